"""What vLLM logs when it starts: version, speculation, KV cache, and what became of its graphs."""

from __future__ import annotations

import re

from calibration.telemetry.reading import Finding

_VERSION = re.compile(
    r"LLM engine \(v([\w.+]+)\)|API server version:? v?([\w.+]+)|\bversion (\d+\.\d+\.\d+\S*)\s*$"
)
_SPECULATION = re.compile(r"SpeculativeConfig\(method='(\w+)'.*?num_spec_tokens=(\d+)")
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_GRAPHS = re.compile(r"Overriding cudagraph_mode from \S+ to \S*PIECEWISE")
_SCHEDULED = re.compile(r"max_num_scheduled_tokens is set to (\d+)")


class StartNotes:
    """Collects the notes of a server's start over all lines of its log."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.traits: dict[str, str] = {}
        self._graphs_lost = False
        self._scheduled: str | None = None

    def line(self, file: str, text: str) -> None:
        """Look at a line that is neither on speculation nor on load."""
        if "ersion" in text or "LLM engine" in text:
            match = _VERSION.search(text)
            if match is not None:
                self.versions.setdefault(file, next(part for part in match.groups() if part))
        if "SpeculativeConfig(" in text and (match := _SPECULATION.search(text)):
            self.traits["method"], self.traits["draft_length"] = match.groups()
        if "KV cache size" in text and (match := _KV_TOKENS.search(text)):
            self.traits["kv_tokens"] = match.group(1)
        if "cudagraph_mode" in text and _GRAPHS.search(text):
            self._graphs_lost = True
        if "max_num_scheduled_tokens" in text and (match := _SCHEDULED.search(text)):
            self._scheduled = match.group(1)

    def findings(self) -> list[Finding]:
        """What of it costs speed."""
        findings = []
        if self._graphs_lost:
            text = "the engine replaced full CUDA graphs of its steps by piecewise ones, which cost host time"
            findings.append(Finding("piecewise-graphs", "warning", text))
        if self._scheduled is not None:
            text = (
                f"speculation limits a step to {self._scheduled} scheduled tokens: prompts take more steps, "
                f"raise max_num_batched_tokens"
            )
            findings.append(Finding("scheduled-tokens", "info", text))
        return findings
