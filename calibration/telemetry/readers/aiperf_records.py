"""AIPerf's records, one JSON object per request: `profile_export.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.fields import RecordFields
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.readers.aiperf import LATENCIES, UNITS
from calibration.telemetry.reading import Reading, Source, Stated
from calibration.telemetry.rounds import RequestRounds, rounds_of_vllm
from calibration.telemetry.samples import Samples

FORMAT = "aiperf-records"


class AiperfRecordsReader(TelemetryReader):
    """Per-request records of AIPerf; warm-up requests are left out."""

    title = "records of AIPerf (profile_export.jsonl)"

    def __init__(self) -> None:
        super().__init__()
        self._engine: str | None = None
        self._rounds = RequestRounds()
        self._samples = {name: Samples() for name in LATENCIES.values()}
        self._requests = self._failed = 0
        self._prompt, self._output, self._decoded = 0.0, 0.0, 0.0
        self._stated: list[float] = []

    def record(self, record: RecordFields) -> bool:
        """Take one request. Raises DamagedError."""
        if not {"metadata", "metrics"} <= set(record):
            return False
        metadata, metrics = record.part("metadata"), record.part("metrics")
        if not set(LATENCIES) & set(metrics) and "error" not in record:
            return False
        self.use()
        if metadata.text("benchmark_phase") == "warmup":
            return True
        if "error" in record:
            self._failed += 1
            return True
        speculation = record.part("spec_decode_acceptance")
        if "num_spec_steps" in speculation:
            self._rounds.add(*rounds_of_vllm(speculation))
            self._engine = speculation.text("engine") or self._engine
            length = speculation.number("mean_acceptance_length", 1.0)
            if length is not None:
                self._stated.append(length)
        self._requests += 1
        self._measures(metrics)
        self.note(record)
        return True

    def readings(self) -> Iterator[Reading]:
        """One reading of all requests."""
        if not self._requests:
            return
        latencies = {
            name: latency for name, own in self._samples.items() if (latency := own.latency()) is not None
        }
        load = {"requests": float(self._requests), "failed_requests": float(self._failed)}
        if self._output:
            load["prompt_tokens_mean"] = self._prompt / self._requests
            load["output_tokens_mean"] = self._output / self._requests
        stated: tuple[Stated, ...] = ()
        if self._stated:
            mean = sum(self._stated) / len(self._stated)
            stated = (Stated("mean_acceptance_length", mean, "mean of the requests' 1 + accepted ÷ rounds"),)
        yield Reading(
            name=", ".join(self.used.values()),
            sources=tuple(Source(file, FORMAT, self._engine) for file in self.used),
            acceptance=self._rounds.acceptance("counts of each request"),
            stated=stated,
            latencies=latencies,
            decode_steps=float(len(self._samples["itl_s"])) or None,
            decoded_tokens=self._decoded or None,
            load=load,
        )

    def _measures(self, metrics: RecordFields) -> None:
        for tag, name in LATENCIES.items():
            part = metrics.part(tag)
            unit = UNITS.get(part.text("unit") or "ms")
            if unit is None or "value" not in part:
                continue
            values = part.numbers("value") if part.is_list("value") else [part.number("value")]
            self._samples[name].extend(value * unit for value in values or () if value is not None)
        prompt, output = (
            metrics.part(f"{side}_sequence_length").number("value") for side in ("input", "output")
        )
        self._prompt += prompt or 0.0
        self._output += output or 0.0
        self._decoded += max((output or 0.0) - 1.0, 0.0)
