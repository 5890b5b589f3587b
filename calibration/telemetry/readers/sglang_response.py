"""SGLang's responses: `meta_info` with the verify steps and drafts of single requests, and `/server_info`.

`spec_accept_length` is completion tokens ÷ verify steps; the first token, which prefill emits, counts there
and not here.
"""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.fields import DamagedError, RecordFields, draft_length_of
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.reading import Counts, Reading, Source, Stated
from calibration.telemetry.rounds import RequestRounds
from calibration.telemetry.samples import Samples

FORMAT = "sglang-response"


class SglangResponseReader(TelemetryReader):
    """Responses of SGLang; all of them together are one reading."""

    title = "responses of SGLang with meta_info (JSON, JSONL)"

    def __init__(self) -> None:
        super().__init__()
        self._rounds = RequestRounds()
        self._latency = Samples()
        self._prompt, self._output, self._requests = 0.0, 0.0, 0
        self._stated: list[float] = []

    def record(self, record: RecordFields) -> bool:
        """Take one response. Raises DamagedError."""
        info = record.part("meta_info")
        if "completion_tokens" not in info:
            return False
        self.use()
        rounds, output = info.count("spec_verify_ct"), info.count("completion_tokens")
        if rounds and output is not None:
            self._rounds.add(*_counts(info, rounds, output))
            stated = info.number("spec_accept_length", 1.0)
            if stated is not None:
                self._stated.append(stated)
        self._requests += 1
        self._prompt += info.count("prompt_tokens") or 0.0
        self._output += output or 0.0
        latency_s = info.number("e2e_latency")
        if latency_s is not None:
            self._latency.add(latency_s)
        self.note(record)
        return True

    def readings(self) -> Iterator[Reading]:
        """One reading of all responses."""
        if not self._requests:
            return
        latency = self._latency.latency()
        stated: tuple[Stated, ...] = ()
        if self._stated:
            mean = sum(self._stated) / len(self._stated)
            definition = "completion tokens ÷ verify steps, the token of prefill included, mean over requests"
            stated = (Stated("spec_accept_length", mean, definition),)
        yield Reading(
            name=", ".join(self.used.values()),
            sources=tuple(Source(file, FORMAT, "sglang") for file in self.used),
            acceptance=self._rounds.acceptance("counts that the server returned with each response"),
            stated=stated,
            latencies={} if latency is None else {"e2e_s": latency},
            load={
                "requests": float(self._requests),
                "prompt_tokens_mean": self._prompt / self._requests,
                "output_tokens_mean": self._output / self._requests,
            },
        )


def _counts(info: RecordFields, rounds: float, output: float) -> tuple[Counts, int | None]:
    """Counts of one request; older releases report verify steps alone, and the rest is in the tokens."""
    accepted, drafted = info.count("spec_num_correct_drafts"), info.count("spec_num_proposed_drafts")
    if accepted is None:
        accepted = output - 1.0 - rounds
    if accepted < 0.0 or (drafted is not None and accepted > drafted):
        raise DamagedError("the counts of drafts contradict one another")
    return Counts(rounds, accepted, drafted), draft_length_of(rounds, drafted)
