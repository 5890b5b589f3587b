"""Times between marks: host timers on a CPU, events on a GPU."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch


class Clock:
    """Marks set while work is issued; `laps_s` waits for the device and returns the times between them."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def restart(self) -> None:
        """Remove all marks and set the first."""
        self._marks.clear()
        self.mark()

    def mark(self) -> None:
        if not self._cuda:
            self._marks.append(perf_counter())
            return
        cuda: Any = torch.cuda
        event = cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def laps_s(self) -> list[float]:
        """Seconds between neighbouring marks."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if not self._cuda:
            return [float(b - a) for a, b in pairs]
        torch.cuda.synchronize()
        return [float(a.elapsed_time(b)) / 1e3 for a, b in pairs]
