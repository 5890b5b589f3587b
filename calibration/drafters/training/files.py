"""Tensors in safetensors files, written atomically and read through memory mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from simulator.errors import InputError, Problem
from simulator.files import whole_file

_TOKENS = "tokens"


def save(
    path: Path, tokens: Tensor, features: Mapping[int, Tensor], notes: Mapping[str, str] | None = None
) -> None:
    """Write tokens and features {layer: tensor}. Raises OSError, for a full disk as well."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {_TOKENS: tokens.to(torch.int32)}
    tensors |= {str(layer): state.contiguous() for layer, state in features.items()}
    with whole_file(path) as part:
        try:
            save_file(tensors, part, metadata=dict(notes or {}) or None)
        except SafetensorError as error:  # raised when the disk is full
            raise OSError(None, f"cannot be written: {error}", str(path)) from error


def layers_in(path: Path) -> set[int]:
    """Return the layers whose features a file holds. Raises InputError when it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {int(name) for name in file.keys() if name != _TOKENS}  # noqa: SIM118
    except SafetensorError as error:
        allowed = "delete it, and it is made again"
        raise InputError(Problem(file=str(path), message="is damaged", allowed=allowed)) from error


def load(path: Path, layers: Iterable[int]) -> tuple[Tensor, dict[int, Tensor], dict[str, str]]:
    """Return tokens, the features after these layers, and notes."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        features = {layer: file.get_tensor(str(layer)) for layer in layers}
        return file.get_tensor(_TOKENS).to(torch.int64), features, file.metadata() or {}


def save_tokens(path: Path, tokens: Tensor) -> None:
    """Write tokens only."""
    save(path, tokens, {})


def load_tokens(path: Path) -> Tensor:
    """Return tokens only."""
    return load(path, ())[0]
