"""Keys and values of sequences: rows are written behind what is kept, then kept or forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_FIRST_CAPACITY = 256


class KVPool:
    """Keys and values of several sequences, one slot each, per layer (slots, heads, capacity, head size).

    Memory is taken at the first write and grows by doubling. What stands beyond a sequence's length is
    rubbish that masks hide.
    """

    def __init__(self, layer_count: int, slots: int = 1) -> None:
        self.slots = slots
        self.keys: list[Tensor | None] = [None] * layer_count
        self.values: list[Tensor | None] = [None] * layer_count

    def write(
        self, layer: int, slots: Sequence[int], starts: Sequence[int], key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write rows (b, heads, n, d) of b slots in rising order, each at its own start.

        Returns all that stands there, (b, heads, largest start + n, d): views where the slots are neighbours.
        """
        rows = key.shape[2]
        total = max(starts) + rows
        keys = self.keys[layer] = self._roomy(self.keys[layer], key, total)
        values = self.values[layer] = self._roomy(self.values[layer], value, total)
        for index, (slot, start) in enumerate(zip(slots, starts, strict=True)):
            keys[slot, :, start : start + rows] = key[index]
            values[slot, :, start : start + rows] = value[index]
        if slots[-1] - slots[0] + 1 == len(slots):
            there = slice(slots[0], slots[-1] + 1)
            return keys[there, :, :total], values[there, :, :total]
        return keys[list(slots), :, :total], values[list(slots), :, :total]

    @torch.inference_mode()
    def move(self, slot: int, source: Sequence[int], to: int) -> None:
        """Copy the rows `source` of a slot to `to` and after it, in every layer that has been written."""
        index = torch.as_tensor(source, dtype=torch.int64)
        for store in (self.keys, self.values):
            for tensor in store:
                if tensor is not None and tensor.shape[2] > max(source):
                    tensor[slot, :, to : to + len(source)] = tensor[slot].index_select(1, index)

    def _roomy(self, store: Tensor | None, like: Tensor, total: int) -> Tensor:
        if store is not None and store.shape[2] >= total:
            return store
        capacity = max(_FIRST_CAPACITY, 1 << (total - 1).bit_length())
        roomy = like.new_zeros((self.slots, like.shape[1], capacity, like.shape[3]))
        if store is not None:
            roomy[:, :, : store.shape[2]] = store
        return roomy


class KVCache:
    """One sequence in a pool. New rows are written at `length` and stay candidates until `keep`."""

    def __init__(self, layer_count: int, pool: KVPool | None = None, slot: int = 0) -> None:
        self.pool = pool if pool is not None else KVPool(layer_count)
        self.slot = slot
        self.length = 0

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these of the rows written at `length`, in rising order, side by side; forget the others."""
        if list(rows) != list(range(len(rows))):
            self.pool.move(self.slot, [self.length + row for row in rows], self.length)
        self.length += len(rows)

    def crop(self, length: int) -> None:
        """Go back to this length."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} rows cannot be cropped to {length}")
        self.length = length

    def clear(self) -> None:
        """Forget the sequence."""
        self.length = 0
