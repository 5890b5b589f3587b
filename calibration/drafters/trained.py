"""Trained drafters as folders: `config.json`, which engines and the simulator can read, and
`model.safetensors`.

A student is an ordinary Hugging Face folder and is run by `calibration.drafters.draft_model`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.drafters.eagle import Eagle
from calibration.drafters.eagle3 import Eagle3
from calibration.drafters.feature_draft import FeatureDraft
from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.llama_layer import LlamaLayerShape
from calibration.drafters.medusa import Medusa, MedusaDraft
from calibration.drafters.mtp import Mtp
from calibration.drafters.student import Student
from calibration.drafters.target_session import TargetSession
from calibration.sampling.protocols import Drafter
from simulator.errors import InputError, Problem
from simulator.files import whole_file
from simulator.trees import DraftTree, GrowthRule

NOTES_KEY = "decodesim"
"""The key of config.json for fields that engines do not know."""
HEADS: dict[str, type[FeatureHead]] = {"eagle": Eagle, "eagle3": Eagle3, "mtp": Mtp}
_ARCHITECTURES = {"eagle": "LlamaForCausalLMEagle", "eagle3": "LlamaForCausalLMEagle3", "mtp": "LlamaMTP"}


def save_trained(
    trainee: Student | Medusa | FeatureHead, network: LanguageModel, folder: Path, notes: Mapping[str, Any]
) -> None:
    """Write a drafter's folder. `notes` on its training go into its config. Raises OSError."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(trainee, Student):
        trainee.save(folder, network.tokenizer)
        config = json.loads((folder / "config.json").read_text())
    else:
        config = _config(trainee, network)
        weights = {name: value.detach().contiguous() for name, value in trainee.state_dict().items()}
        with whole_file(folder / "model.safetensors") as part:
            save_file(weights, part, metadata={"format": "pt"})
    config[NOTES_KEY] = {"kind": trainee.kind, "layers": list(trainee.layers), **notes}
    with whole_file(folder / "config.json") as part:
        part.write_text(json.dumps(config, indent=2) + "\n")


def _config(trainee: Medusa | FeatureHead, network: LanguageModel) -> dict[str, Any]:
    if isinstance(trainee, Medusa):
        return {
            "model_type": "medusa",
            "medusa_num_heads": len(trainee.heads),
            "medusa_num_layers": 1,
            "hidden_size": network.hidden_size,
            "vocab_size": network.vocab_size,
        }
    shape = trainee.shape
    config = {
        "architectures": [_ARCHITECTURES[trainee.kind]],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_theta": shape.rope_theta,
        "vocab_size": network.vocab_size,
        "max_position_embeddings": network.max_tokens or 2048,
        "bias": False,
    }
    if trainee.kind == "eagle3":
        config["draft_vocab_size"] = network.vocab_size
        config["eagle_config"] = {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(trainee.layers),
        }
    return config


def load_head(folder: Path, network: LanguageModel) -> Medusa | FeatureHead:
    """Return the head in a folder, in the target's precision. Raises InputError if it does not fit the
    target.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = _read_config(folder)
    notes = config.get(NOTES_KEY) or {}
    kind = notes.get("kind")
    if kind not in (*HEADS, Medusa.kind):
        raise _wrong(
            folder,
            "is not a trained drafter",
            f"a folder that decodesim distill wrote: {', '.join(HEADS)}, medusa",
        )
    for key, expected in (("vocab_size", network.vocab_size), ("hidden_size", network.hidden_size)):
        if config.get(key) != expected:
            raise _wrong(
                folder, f"has {key} {config.get(key)}", f"{expected}, as the target it was trained on"
            )
    layers = tuple(int(layer) for layer in notes.get("layers", ()))
    if not layers or max(layers) > network.layer_count:
        raise _wrong(
            folder, f"reads the layers {list(layers)}", f"layers of the target, up to {network.layer_count}"
        )
    head: Medusa | FeatureHead
    try:
        if kind == Medusa.kind:
            head = Medusa(network.hidden_size, layers, int(config["medusa_num_heads"]))
        else:
            head = HEADS[kind](_shape(config), layers)
        head.load_state_dict(load_file(folder / "model.safetensors"))
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise _wrong(folder, f"cannot be read: {reason}", "a folder that decodesim distill wrote") from error
    head.requires_grad_(False)
    return head.to(network.dtype).eval()


def drafter_of(
    head: Medusa | FeatureHead, target: TargetSession, plan: DraftTree | GrowthRule | None = None
) -> Drafter:
    """Return a drafter for a session on weights that sessions share."""
    if isinstance(head, Medusa):
        return MedusaDraft(head, target, plan)
    return FeatureDraft(head, target, plan)


def _shape(config: Mapping[str, Any]) -> LlamaLayerShape:
    return LlamaLayerShape(
        hidden=int(config["hidden_size"]),
        heads=int(config["num_attention_heads"]),
        kv_heads=int(config["num_key_value_heads"]),
        head_size=int(config["head_dim"]),
        intermediate=int(config["intermediate_size"]),
        norm_epsilon=float(config["rms_norm_eps"]),
        rope_theta=float(config["rope_theta"]),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise _wrong(folder, "holds no config.json", "a folder that decodesim distill wrote")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(path, "is not JSON", "a folder that decodesim distill wrote") from error
    if not isinstance(config, dict):
        raise _wrong(path, "holds no fields", "a folder that decodesim distill wrote")
    return config


def _wrong(path: Path, message: str, allowed: str) -> InputError:
    return InputError(Problem(file=str(path), field="draft", message=message, allowed=allowed))
