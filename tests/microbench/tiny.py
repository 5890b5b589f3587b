"""Networks and a device small enough to be measured in a test."""

import json
from dataclasses import replace
from pathlib import Path

from calibration.microbench.device import Device, open_device
from calibration.microbench.subject import ShapeGrid
from calibration.microbench.timing import Effort
from simulator.models.catalogue import load_model
from simulator.models.model import Model

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
MIXTURE = DENSE | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
SLIDING = DENSE | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 128}

GRID = ShapeGrid(
    tokens=(1, 4),
    few_tokens=(1, 4),
    rows=(1, 2),
    batches=(1, 2),
    queries=(1, 2),
    contexts=(64,),
    max_cached_tokens=1 << 10,
    layer_contexts=(64,),
    prefills=((1, 16),),
    passes=(2,),
    drafts=(0, 2),
    memory_bytes=(1 << 12,),
    message_bytes=(),
    rounds=2,
    effort=Effort(repeats=3, min_s=0.0, max_s=0.1),
    max_spread=1e9,
)


def written(config: dict[str, object], folder: Path) -> Path:
    """A config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def model_of(config: dict[str, object], folder: Path) -> Model:
    """The model of a config."""
    return load_model(str(written(config, folder)))


def tiny_device(**changes: object) -> Device:
    """This machine's CPU with a cache that little fills."""
    device = open_device("cpu")
    notes = replace(device.notes, cache_bytes=1 << 12)
    return replace(device, notes=notes, **changes)  # type: ignore[arg-type]
