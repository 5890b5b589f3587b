"""SmolLM2-135M and its first layers as Hugging Face folders in bf16, which vLLM serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibration.optional import need

SMOLLM2 = "smollm2-135m-instruct"
"""The target, as the catalogue of models names it."""
TARGET_LAYERS = 30
_DROPPED = ("model_type", "architectures", "quantization_config", "_name_or_path", "dtype", "layer_types")


def checkpoint(folder: Path, layers: int) -> Path:
    """The folder of the target's first `layers` layers with its embedding, norm and head."""
    return folder / f"smollm2-{layers}"


def write_checkpoints(folder: Path, layers: set[int]) -> None:
    """Write the folders that are not there yet. Raises InputError without weights or transformers."""
    missing = sorted(count for count in layers if not (checkpoint(folder, count) / "config.json").exists())
    if not missing:
        return
    torch: Any = need("torch", "calibration")
    transformers: Any = need("transformers", "lm")
    from calibration.drafters.target_session import load_network

    loaded = load_network(dtype="bfloat16")
    state = loaded.model.state_dict()
    config = {key: value for key, value in loaded.model.config.to_dict().items() if key not in _DROPPED}
    for count in missing:
        shape = transformers.LlamaConfig(**config | {"num_hidden_layers": count})
        shape.architectures = ["LlamaForCausalLM"]
        fresh = transformers.LlamaForCausalLM(shape).to(torch.bfloat16)
        fresh.load_state_dict(
            {name: values for name, values in state.items() if _layer_of(name) < count}, strict=False
        )
        target = checkpoint(folder, count)
        loaded.tokenizer.save_pretrained(target)
        fresh.save_pretrained(target)


def _layer_of(name: str) -> int:
    """The layer of a weight; -1 outside the layers."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else -1
