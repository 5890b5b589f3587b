"""What a pass costs and why: every duration as a sum of five terms that can be printed and drawn."""

from __future__ import annotations

from dataclasses import dataclass, fields

TERMS = ("compute_s", "memory_s", "communication_s", "launch_s", "host_s")


@dataclass(frozen=True)
class PassCost:
    """Seconds of one pass (or one operator of it), split by what they are spent on; the terms add up.

    `compute_s` and `memory_s`: a kernel's time beyond its start, divided between arithmetic and memory
    traffic as its smooth maximum weighs them. `launch_s`: starts of kernels and of graphs. `host_s`:
    exposed host time. `moved_bytes` and `flops` are counts of one GPU.
    """

    compute_s: float = 0.0
    memory_s: float = 0.0
    communication_s: float = 0.0
    launch_s: float = 0.0
    host_s: float = 0.0
    moved_bytes: float = 0.0
    flops: float = 0.0

    def __add__(self, other: PassCost) -> PassCost:
        return PassCost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, count: float) -> PassCost:
        """`count` such passes."""
        return PassCost(*(getattr(self, f.name) * count for f in fields(self)))

    @property
    def gpu_s(self) -> float:
        """Everything but the host."""
        return self.compute_s + self.memory_s + self.communication_s + self.launch_s

    @property
    def duration_s(self) -> float:
        return self.gpu_s + self.host_s

    @property
    def bound(self) -> str:
        """The largest term: compute, memory, communication, launch or host."""
        return max(TERMS, key=lambda term: getattr(self, term)).removesuffix("_s")
