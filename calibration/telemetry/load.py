"""Load as logs report it: a line per engine and interval, averaged over the intervals in which it worked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Engine:
    """Sums over the intervals of one engine in which it had requests or emitted tokens."""

    intervals: int = 0
    throughput: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    usage: float = 0.0


class LoadSeries:
    """Running and waiting requests, KV use and throughput, engine by engine, in constant memory."""

    def __init__(self) -> None:
        self._engines: dict[str, _Engine] = {}
        self._most_running, self._most_usage = 0.0, 0.0

    def add(
        self, engine: str, throughput_tokens_per_s: float, running: float, waiting: float, kv_usage: float
    ) -> None:
        """One interval of one engine; `kv_usage` is a fraction."""
        own = self._engines.setdefault(engine, _Engine())
        self._most_running = max(self._most_running, running)
        self._most_usage = max(self._most_usage, kv_usage)
        if not running and not waiting and not throughput_tokens_per_s:
            return
        own.intervals += 1
        own.throughput += throughput_tokens_per_s
        own.running += running
        own.waiting += waiting
        own.usage += kv_usage

    @property
    def throughput_tokens_per_s(self) -> float | None:
        """Mean output tokens per second of all engines together; None without a busy interval."""
        return self._sum("throughput")

    def to_json(self) -> dict[str, float]:
        """Means over busy intervals, requests summed over engines; the most of an engine at once."""
        running, waiting, usage = self._sum("running"), self._sum("waiting"), self._sum("usage")
        if running is None or waiting is None or usage is None:
            return {}
        return {
            "running_requests": running,
            "running_requests_max": self._most_running,
            "waiting_requests": waiting,
            "kv_cache_usage": usage / self._busy,
            "kv_cache_usage_max": self._most_usage,
        }

    @property
    def _busy(self) -> int:
        return sum(own.intervals > 0 for own in self._engines.values())

    def _sum(self, name: str) -> float | None:
        busy = [own for own in self._engines.values() if own.intervals]
        return sum(getattr(own, name) / own.intervals for own in busy) if busy else None
