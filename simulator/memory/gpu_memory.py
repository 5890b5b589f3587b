"""The memory of one GPU under one variant: weights, drafter, reserve, states, and the KV blocks that are
left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulator.units import format_bytes


@dataclass(frozen=True)
class GpuMemory:
    """The memory of one GPU under one variant, in bytes, and what its KV blocks hold.

    `kv_bytes_per_token` is per GPU, target and drafter together, at the workload's mean context: windows and
    constant states (one more per draft) count with what they hold there. `request_tokens` is a request of
    mean length at its end, `longest_request_tokens` the longest of the workload (at most the model's
    context). `groups` of GPUs each hold requests of their own. `state_bytes`: what the constant states of one
    request take, whatever its length; `state_pool_share`: the part of what weights leave that is set aside
    for them alone (0: they lie among the KV).
    """

    variant: str
    device_bytes: int
    usable_bytes: int
    weights_bytes: int
    drafter_bytes: int
    reserve_bytes: int
    kv_bytes_per_token: float
    block_tokens: int
    request_tokens: float
    longest_request_tokens: int
    groups: int = 1
    state_bytes: int = 0
    state_pool_share: float = 0.0

    @property
    def _left_bytes(self) -> int:
        """For KV and states; 0 when nothing is left."""
        return max(0, self.usable_bytes - self.weights_bytes - self.drafter_bytes - self.reserve_bytes)

    @property
    def state_pool_bytes(self) -> int | None:
        """What is set aside for constant states; None where none is."""
        pooled = self.state_pool_share > 0 and self.state_bytes > 0
        return int(self.state_pool_share * self._left_bytes) if pooled else None

    @property
    def kv_bytes(self) -> int:
        """What is left for KV; 0 when nothing is."""
        return self._left_bytes - (self.state_pool_bytes or 0)

    @property
    def kv_blocks(self) -> int:
        """Whole blocks that fit, of all groups."""
        token_bytes = max(self.kv_bytes_per_token, 1.0)  # 0 where all layers are recurrent
        return self.groups * int(self.kv_bytes // (self.block_tokens * token_bytes))

    @property
    def kv_tokens(self) -> int:
        """Tokens that the blocks hold."""
        return self.kv_blocks * self.block_tokens

    @property
    def state_request_limit(self) -> int | None:
        """Requests whose states fit into what is set aside for them, of all groups; None where nothing is."""
        if self.state_pool_bytes is None:
            return None
        return self.groups * (self.state_pool_bytes // self.state_bytes)

    @property
    def max_concurrency(self) -> int:
        """Requests of mean length that fit at once, each to its end; memory alone, without the engine's
        `max_num_seqs`.
        """
        by_kv = int(self.kv_tokens // self.request_tokens)
        return by_kv if self.state_request_limit is None else min(by_kv, self.state_request_limit)

    @property
    def fits(self) -> bool:
        """Whether the longest request fits to its end; an engine does not start otherwise."""
        return self.state_request_limit != 0 and self.kv_tokens // self.groups >= self.longest_request_tokens

    @property
    def shortage(self) -> str | None:
        """Why it does not fit, with the numbers; None when it does."""
        if self.fits:
            return None
        parts = f"{format_bytes(self.weights_bytes)} weights"
        if self.drafter_bytes:
            parts += f" + {format_bytes(self.drafter_bytes)} drafter"
        parts += f" + {format_bytes(self.reserve_bytes)} reserve"
        usable = f"{format_bytes(self.usable_bytes)} usable per GPU"
        if self.state_pool_bytes:
            parts += f" + {format_bytes(self.state_pool_bytes)} for states"
        used = f"{self.variant}: {parts} of {usable}"
        if self.kv_bytes == 0:
            return f"{used} leave nothing for KV"
        if self.state_request_limit == 0:
            return f"{used}: the recurrent states of one request take {format_bytes(self.state_bytes)}"
        longest = f"the longest request has {self.longest_request_tokens:,}"
        return f"{used} leave room for {self.kv_tokens // self.groups:,} KV tokens, and {longest}"

    def to_json(self) -> dict[str, Any]:
        """Bytes per GPU, under the keys of `decodesim memory`."""
        return {
            "weights_bytes": self.weights_bytes,
            "drafter_bytes": self.drafter_bytes,
            "graphs_bytes": self.reserve_bytes,
            "kv_bytes": self.kv_bytes,
            "device_bytes": self.device_bytes,
            "usable_bytes": self.usable_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "state_bytes_per_request": self.state_bytes,
            "state_pool_bytes": self.state_pool_bytes,
            "kv_blocks": self.kv_blocks,
        }
