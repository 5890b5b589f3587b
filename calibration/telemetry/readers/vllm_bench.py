"""`vllm bench serve` (JSON): one object per run, or one a line; arrays per request with `--save-detailed`.

ITL is the gap between chunks, so it rises with speculation; TPOT is per request. Acceptance is what the
server's counters grew by during the run. One chunk is one decode step, so the gaps of all requests are the
decode steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from calibration.telemetry.client import latencies_of, request_rate, run_load
from calibration.telemetry.fields import DamagedError, RecordFields, draft_length_of
from calibration.telemetry.reader import RunReader
from calibration.telemetry.reading import (
    Counts,
    Finding,
    Latency,
    MeasuredAcceptance,
    Reading,
    Source,
    Stated,
)
from calibration.telemetry.samples import Samples

FORMAT = "vllm-bench"

_NAMES = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2e_s"}
_LOAD = {
    "concurrency": "max_concurrency",
    "requests": "completed",
    "failed_requests": "failed",
    "duration_s": "duration",
    "request_rate_per_s": "request_throughput",
}
_TOLERANCE = 0.02
"""How far a mean may be from the mean of the arrays."""
_FEWEST_ALIKE = 20
"""Prompts of one length that are enough to suspect random ones."""


class VllmBenchReader(RunReader):
    """Result files of vLLM's serving benchmark."""

    title = "result of `vllm bench serve` (JSON)"

    def record(self, record: RecordFields) -> bool:
        """Take one run. Raises DamagedError."""
        if not {"request_throughput", "output_throughput", "total_input_tokens"} <= set(record):
            return False
        if "backend" in record and "request_rate" in record and "input_throughput" in record:
            return False  # SGLang's
        self.keep(reading_of(self.file, self.name, record))
        self.note(record)
        return True


def reading_of(file: str, name: str, fields: RecordFields, form: str = FORMAT) -> Reading:
    """What one run says, `form` being the source's format. Raises DamagedError when nothing was served."""
    completed, total = fields.count("completed"), fields.count("total_output_tokens")
    if completed == 0.0:
        raise DamagedError("no request was completed")
    requests = None if completed is None else int(completed)
    gaps, detailed = _details(fields)
    stated = latencies_of(fields, _NAMES, {"ttft_s": requests, "tpot_s": requests, "e2e_s": requests})
    findings = [*_contradictions(stated, detailed)]
    latencies = stated | {key: _both(stated.get(key), latency) for key, latency in detailed.items()}
    decoded = total - completed if total is not None and completed is not None else None
    return Reading(
        name=name,
        sources=(Source(file, form, "vllm"),),
        acceptance=_acceptance(fields),
        stated=tuple(_stated(fields)),
        latencies=latencies,
        throughput_tokens_per_s=fields.number("output_throughput"),
        decode_steps=gaps or None,
        decoded_tokens=decoded or None,
        load=run_load(fields, _LOAD),
        traits=_traits(fields),
        findings=tuple(findings),
    )


def _both(stated: Latency | None, detailed: Latency) -> Latency:
    """What the arrays say, and of the summary what they do not."""
    return Latency({**(stated.values if stated else {}), **detailed.values}, detailed.count)


def _acceptance(fields: RecordFields) -> MeasuredAcceptance | None:
    """Counts of the run; positions from their rates, as the file rounds nothing."""
    rounds, drafted = fields.count("spec_decode_num_drafts"), fields.count("spec_decode_draft_tokens")
    accepted = fields.count("spec_decode_accepted_tokens")
    rates = fields.numbers("spec_decode_per_position_acceptance_rates", 0.0, 1.0) or []
    if not rounds or accepted is None:
        length = fields.number("spec_decode_acceptance_length", 1.0)
        if rounds == 0.0 or length is None:
            return None
        return MeasuredAcceptance(
            Counts(1.0, length - 1.0), len(rates) or None, "the mean that the client prints", counted=False
        )
    at = tuple(float(round(rate * rounds)) for rate in rates)
    basis = "counters of the server over the run"
    return MeasuredAcceptance(
        Counts(rounds, accepted, drafted, at), draft_length_of(rounds, drafted, at), basis
    )


def _stated(fields: RecordFields) -> Iterator[Stated]:
    length = fields.number("spec_decode_acceptance_length", 1.0)
    if length is not None:
        yield Stated("spec_decode_acceptance_length", length, "1 + accepted ÷ rounds")
    rate = fields.number("spec_decode_acceptance_rate", 0.0, 100.0)
    if rate is not None:
        yield Stated("spec_decode_acceptance_rate", rate, "accepted ÷ drafted, in percent")


def _details(fields: RecordFields) -> tuple[float | None, dict[str, Latency]]:
    """The number of gaps and the latencies of the arrays; nothing where they do not fit together."""
    ttfts, gaps, outputs = fields.numbers("ttfts"), fields.lists("itls"), fields.numbers("output_lens")
    if not ttfts or not gaps or not outputs or not len(ttfts) == len(gaps) == len(outputs):
        return None, {}
    samples = {key: Samples() for key in ("ttft_s", "tpot_s", "itl_s", "e2e_s")}
    for ttft_s, own, tokens in zip(ttfts, gaps, outputs, strict=True):
        if not tokens:
            continue  # the request failed
        samples["ttft_s"].add(ttft_s)
        samples["itl_s"].extend(own)
        samples["e2e_s"].add(ttft_s + math.fsum(own))
        if tokens > 1.0:
            samples["tpot_s"].add(math.fsum(own) / (tokens - 1.0))
    latencies = {key: latency for key, own in samples.items() if (latency := own.latency()) is not None}
    return float(len(samples["itl_s"])), latencies


def _contradictions(stated: Mapping[str, Latency], detailed: Mapping[str, Latency]) -> Iterator[Finding]:
    for key in stated.keys() & detailed.keys():
        stated_s, detailed_s = stated[key].values["mean"], detailed[key].values["mean"]
        if abs(stated_s - detailed_s) > _TOLERANCE * max(stated_s, detailed_s):
            text = (
                f"mean {key} is {stated_s:.4g} s in the summary and {detailed_s:.4g} s in the arrays, "
                "which are used"
            )
            yield Finding("stated-differs", "warning", text)


def _traits(fields: RecordFields) -> dict[str, str]:
    _, unlimited = request_rate(fields)
    traits = {"model": fields.text("model_id"), "dataset": fields.text("dataset_name")}
    if unlimited and "max_concurrency" not in fields:
        traits["saturation"] = "yes"
    lengths = fields.numbers("input_lens") or []
    if len(lengths) >= _FEWEST_ALIKE and len(set(lengths)) == 1:
        traits["prompts_alike"] = f"{int(lengths[0])}"
    return {key: value for key, value in traits.items() if value is not None}
