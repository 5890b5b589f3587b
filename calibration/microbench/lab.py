"""Resources that benches share on one device: random memory that is cold at every use, and decoders."""

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
"""Tokens by which caches are longer than the part that is read."""
_SEED = 20
_CHUNK = 1 << 24
_ALIGNED = 256
"""Copies start at multiples of this many bytes, as separate tensors would."""


@dataclass
class Lab:
    """Shared memory and decoders of one device. All values are random, because zeros are cheaper to move."""

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
        """Uniform values in [0, 1) for draws."""
        return torch.rand(
            shape, dtype=torch.float64, device=self.device.torch_device, generator=self._generator
        )

    def tokens(self, *shape: int, vocab: int) -> Tensor:
        """Token ids."""
        return torch.randint(vocab, shape, device=self.device.torch_device, generator=self._generator)

    def shared(self, use: str, *shape: int, dtype: str = "bf16") -> Tensor:
        """A part of the memory for `use`; later calls get the same memory."""
        return self._arena(use, dtype, math.prod(shape))[: math.prod(shape)].view(shape)

    def empty_caches(self) -> None:
        """Read enough memory to evict everything else from the caches, as a head does."""
        size = CACHES_COLD * self.device.notes.cache_bytes
        self.shared("swept", size // 4, dtype="fp32").sum()

    def cold(self, use: str, *shape: int, dtype: str = "bf16") -> list[Tensor]:
        """Distinct copies of a tensor in the memory for `use` (weights, kv), enough to be cold when used in
        turn.
        """
        size = math.prod(shape)
        value_bytes = DTYPES[dtype].itemsize
        stride = math.ceil(size * value_bytes / _ALIGNED) * _ALIGNED // value_bytes
        count = self.device.copies_of(stride * value_bytes)
        arena = self._arena(use, dtype, count * stride)
        return [arena[i * stride : i * stride + size].view(shape) for i in range(count)]

    def cache(self, shape: DecoderShape, batch: int, tokens: int) -> Cache:
        """A full KV cache with room for a few more tokens than `tokens`, as in use."""
        size = (2, shape.layers, batch, shape.kv_heads, tokens + ROOM_TOKENS, shape.head_dim)
        return Cache(*self.shared("kv", *size))

    def decoder(self, shape: DecoderShape) -> Decoder:
        """A decoder of this shape with random weights."""
        if shape not in self._decoders:
            weights = random_weights(shape, DTYPES["bf16"], self.device.notes.kind, _SEED)
            self._decoders[shape] = Decoder(shape, weights)
        return self._decoders[shape]

    def forget(self) -> None:
        """Free all memory and decoders."""
        self._arenas.clear()
        self._decoders.clear()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def _arena(self, use: str, dtype: str, size: int) -> Tensor:
        arena = self._arenas.get((use, dtype))
        if arena is None or arena.numel() < size:
            self._arenas.pop((use, dtype), None)  # freed first, because both may not fit
            del arena
            self._arenas[use, dtype] = arena = self.random(size, dtype=dtype)
        return arena

    def _fill(self, tensor: Tensor) -> Tensor:
        """Fill with normal values in place; types without a generator are filled piece by piece."""
        if tensor.dtype in (torch.float32, torch.bfloat16):
            return tensor.normal_(generator=self._generator)
        flat = tensor.view(-1)
        for piece in torch.split(flat, _CHUNK):
            drawn = torch.empty(piece.shape, dtype=torch.float32, device=piece.device)
            piece.copy_(drawn.normal_(generator=self._generator))
        return tensor
