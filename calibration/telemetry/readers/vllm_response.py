"""vLLM's responses with `--per-request-spec-decode-metrics`: the rounds and times of single requests."""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.client import MS
from calibration.telemetry.fields import RecordFields
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.reading import Reading, Source, Stated
from calibration.telemetry.rounds import RequestRounds, rounds_of_vllm
from calibration.telemetry.samples import Samples

FORMAT = "vllm-response"


class VllmResponseReader(TelemetryReader):
    """Responses of vLLM that carry `metrics`; all of them together are one reading."""

    title = "responses of vLLM with per-request metrics (JSON, JSONL)"

    def __init__(self) -> None:
        super().__init__()
        self._rounds = RequestRounds()
        self._samples = {name: Samples() for name in ("ttft_s", "tpot_s", "itl_s")}
        self._steps, self._decoded, self._prompt, self._output = 0.0, 0.0, 0.0, 0.0
        self._requests = 0
        self._stated: list[float] = []

    def record(self, record: RecordFields) -> bool:
        """Take one response. Raises DamagedError."""
        metrics = record.part("metrics")
        if not {"time_to_first_token_ms", "speculative_decoding", "mean_itl_ms"} & set(metrics):
            return False
        speculation = metrics.part("speculative_decoding")
        if "num_spec_steps" in speculation:
            self._rounds.add(*rounds_of_vllm(speculation))
            length = speculation.number("mean_acceptance_length", 1.0)
            if length is not None:
                self._stated.append(length)
        self.use()
        self._requests += 1
        self._time(metrics, record.part("usage"))
        self.note(record)
        return True

    def readings(self) -> Iterator[Reading]:
        """One reading of all responses."""
        if not self._requests:
            return
        latencies = {
            name: latency for name, own in self._samples.items() if (latency := own.latency()) is not None
        }
        stated: tuple[Stated, ...] = ()
        if self._stated:
            mean = sum(self._stated) / len(self._stated)
            stated = (Stated("mean_acceptance_length", mean, "1 + accepted ÷ rounds, mean over requests"),)
        load = {"requests": float(self._requests)}
        if self._output:
            load["prompt_tokens_mean"] = self._prompt / self._requests
            load["output_tokens_mean"] = self._output / self._requests
        yield Reading(
            name=", ".join(self.used.values()),
            sources=tuple(Source(file, FORMAT, "vllm") for file in self.used),
            acceptance=self._rounds.acceptance("counts that the server returned with each response"),
            stated=stated,
            latencies=latencies,
            decode_steps=self._steps or None,
            decoded_tokens=self._decoded or None,
            load=load,
        )

    def _time(self, metrics: RecordFields, usage: RecordFields) -> None:
        ttft_ms, span_ms, gap_ms = (
            metrics.number(key) for key in ("time_to_first_token_ms", "generation_time_ms", "mean_itl_ms")
        )
        prompt, output = usage.count("prompt_tokens"), usage.count("completion_tokens")
        self._prompt += prompt or 0.0
        self._output += output or 0.0
        if ttft_ms is not None:
            self._samples["ttft_s"].add(ttft_ms * MS)
        if gap_ms is not None:
            self._samples["itl_s"].add(gap_ms * MS)
        if span_ms is not None and output is not None and output > 1.0:
            self._samples["tpot_s"].add(span_ms * MS / (output - 1.0))
            if gap_ms:
                self._steps += span_ms / gap_ms
                self._decoded += output - 1.0
