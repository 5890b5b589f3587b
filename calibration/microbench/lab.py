"""What benches share on one device: random memory that is cold when its turn comes, whole decoders."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from calibration.decoder.decoder import Cache, Decoder
from calibration.decoder.shape import DecoderShape
from calibration.decoder.weights import random_weights
from calibration.microbench.device import CACHES_COLD, Device

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp8": torch.float8_e4m3fn}
ROOM_TOKENS = 64
"""Tokens by which caches are longer than what is read of them."""
_SEED = 20
_CHUNK = 1 << 24
_ALIGNED = 256
"""Copies begin at multiples of so many bytes, as separate tensors would."""


@dataclass
class Lab:
    """Shared memory and decoders of one device. Every value is random: zeros are cheaper to move."""

    device: Device
    _arenas: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    _decoders: dict[DecoderShape, Decoder] = field(default_factory=dict)

    @cached_property
    def _generator(self) -> torch.Generator:
        return torch.Generator(self.device.torch_device).manual_seed(_SEED)

    @property
    def on_gpu(self) -> bool:
        return self.device.on_gpu

    def random(self, *shape: int, dtype: str = "bf16") -> Tensor:
        """Normal values."""
        return self._fill(torch.empty(shape, dtype=DTYPES[dtype], device=self.device.torch_device))

    def uniforms(self, *shape: int) -> Tensor:
        """Values in [0, 1), as draws are decided by."""
        return torch.rand(
            shape, dtype=torch.float64, device=self.device.torch_device, generator=self._generator
        )

    def tokens(self, *shape: int, vocab: int) -> Tensor:
        """Token ids."""
        return torch.randint(vocab, shape, device=self.device.torch_device, generator=self._generator)

    def shared(self, use: str, *shape: int, dtype: str = "bf16") -> Tensor:
        """A piece of the memory for `use`: what needs as much after it gets the same."""
        return self._arena(use, dtype, math.prod(shape))[: math.prod(shape)].view(shape)

    def empty_caches(self) -> None:
        """Read so much that the caches hold nothing else: what a head does to whatever comes after it."""
        size = CACHES_COLD * self.device.notes.cache_bytes
        self.shared("swept", size // 4, dtype="fp32").sum()

    def cold(self, use: str, *shape: int, dtype: str = "bf16") -> list[Tensor]:
        """Distinct copies of that shape in the memory for `use` (weights, kv): enough to be cold in turn."""
        size = math.prod(shape)
        each = DTYPES[dtype].itemsize
        stride = math.ceil(size * each / _ALIGNED) * _ALIGNED // each
        count = self.device.copies_of(stride * each)
        arena = self._arena(use, dtype, count * stride)
        return [arena[i * stride : i * stride + size].view(shape) for i in range(count)]

    def cache(self, shape: DecoderShape, batch: int, tokens: int) -> Cache:
        """A full KV cache with room for some more than `tokens`, as a cache in use has."""
        size = (2, shape.layers, batch, shape.kv_heads, tokens + ROOM_TOKENS, shape.head_dim)
        return Cache(*self.shared("kv", *size))

    def decoder(self, shape: DecoderShape) -> Decoder:
        """A decoder of that shape with random weights."""
        if shape not in self._decoders:
            weights = random_weights(shape, DTYPES["bf16"], self.device.notes.kind, _SEED)
            self._decoders[shape] = Decoder(shape, weights)
        return self._decoders[shape]

    def forget(self) -> None:
        """Let go of all of it."""
        self._arenas.clear()
        self._decoders.clear()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def _arena(self, use: str, dtype: str, size: int) -> Tensor:
        found = self._arenas.get((use, dtype))
        if found is None or found.numel() < size:
            self._arenas.pop((use, dtype), None)  # first let go of it: both may not fit
            del found
            self._arenas[use, dtype] = found = self.random(size, dtype=dtype)
        return found

    def _fill(self, tensor: Tensor) -> Tensor:
        """Normal values in place; types that cannot draw them take them piece by piece."""
        if tensor.dtype in (torch.float32, torch.bfloat16):
            return tensor.normal_(generator=self._generator)
        flat = tensor.view(-1)
        for piece in torch.split(flat, _CHUNK):
            drawn = torch.empty(piece.shape, dtype=torch.float32, device=piece.device)
            piece.copy_(drawn.normal_(generator=self._generator))
        return tensor
