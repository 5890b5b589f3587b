"""The provenance of figures measured on a real model."""

from __future__ import annotations

import platform
import resource
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
import transformers

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.training.shards import fingerprint


def provenance(target: str, network: LanguageModel, seconds: float | None = None) -> dict[str, Any]:
    """Return the provenance of figures: weights, precision, versions, machine and resources."""
    return {
        "decodesim": version("decodesim"),
        "target": target,
        "architecture": type(network.model).__name__,
        "layers": network.layer_count,
        "vocabulary": network.vocab_size,
        "dtype": str(network.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "weights": fingerprint(network),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        **({} if seconds is None else {"seconds": round(seconds, 1)}),
        "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
