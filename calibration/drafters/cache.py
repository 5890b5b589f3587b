"""KV caches of sequences: new rows are written after the kept ones, and then kept or dropped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_INITIAL_CAPACITY = 256


class KVPool:
    """Keys and values of several sequences, one slot each, per layer (slots, heads, capacity, head size).

    Memory is allocated at the first write and grows by doubling. Rows beyond a sequence's length are garbage,
    which masks hide.
    """

    def __init__(self, layer_count: int, slots: int = 1) -> None:
        self.slots = slots
        self.keys: list[Tensor | None] = [None] * layer_count
        self.values: list[Tensor | None] = [None] * layer_count

    def write(
        self, layer: int, slots: Sequence[int], starts: Sequence[int], key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write rows (b, heads, n, d) of b slots in ascending order, each at its own start.

        Returns all rows of these slots, (b, heads, largest start + n, d); views if the slots are adjacent.
        """
        rows = key.shape[2]
        total = max(starts) + rows
        keys = self.keys[layer] = self._with_capacity(self.keys[layer], key, total)
        values = self.values[layer] = self._with_capacity(self.values[layer], value, total)
        for index, (slot, start) in enumerate(zip(slots, starts, strict=True)):
            keys[slot, :, start : start + rows] = key[index]
            values[slot, :, start : start + rows] = value[index]
        if slots[-1] - slots[0] + 1 == len(slots):
            block = slice(slots[0], slots[-1] + 1)
            return keys[block, :, :total], values[block, :, :total]
        return keys[list(slots), :, :total], values[list(slots), :, :total]

    @torch.inference_mode()
    def move(self, slot: int, source: Sequence[int], to: int) -> None:
        """Copy the rows `source` of a slot to the rows from `to` on, in every layer that has been written."""
        index = torch.as_tensor(source, dtype=torch.int64)
        for store in (self.keys, self.values):
            for tensor in store:
                if tensor is not None and tensor.shape[2] > max(source):
                    tensor[slot, :, to : to + len(source)] = tensor[slot].index_select(1, index)

    def _with_capacity(self, store: Tensor | None, like: Tensor, total: int) -> Tensor:
        if store is not None and store.shape[2] >= total:
            return store
        capacity = max(_INITIAL_CAPACITY, 1 << (total - 1).bit_length())
        larger = like.new_zeros((self.slots, like.shape[1], capacity, like.shape[3]))
        if store is not None:
            larger[:, :, : store.shape[2]] = store
        return larger


class KVCache:
    """One sequence in a pool. New rows are written at `length` and are provisional until `keep`."""

    def __init__(self, layer_count: int, pool: KVPool | None = None, slot: int = 0) -> None:
        self.pool = pool if pool is not None else KVPool(layer_count)
        self.slot = slot
        self.length = 0

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these of the rows written at `length`, in ascending order, and drop the others."""
        if list(rows) != list(range(len(rows))):
            self.pool.move(self.slot, [self.length + row for row in rows], self.length)
        self.length += len(rows)

    def crop(self, length: int) -> None:
        """Shorten the sequence to this length."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} rows cannot be cropped to {length}")
        self.length = length

    def clear(self) -> None:
        """Drop the whole sequence."""
        self.length = 0
