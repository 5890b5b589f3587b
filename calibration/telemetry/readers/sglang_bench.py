"""`sglang.bench_serving` (JSONL): one object per run.

`accept_length` is the server's average since its start, and the run has no counts of it. With the backends
`sglang` and, under speculation, `sglang-oai`, ITL is the gap of a chunk ÷ its tokens, once per token; with
others it is the gap between chunks. TPOT is per request, as everywhere.
"""

from __future__ import annotations

from calibration.telemetry.client import latencies_of, request_rate, run_load
from calibration.telemetry.fields import LONGEST_DRAFT, DamagedError, RecordFields
from calibration.telemetry.reader import RunReader
from calibration.telemetry.reading import Counts, Finding, MeasuredAcceptance, Reading, Source, Stated

FORMAT = "sglang-bench"

_LOAD = {
    "concurrency": "max_concurrency",
    "requests": "completed",
    "duration_s": "duration",
    "request_rate_per_s": "request_throughput",
    "running_requests": "concurrency",
}


class SglangBenchReader(RunReader):
    """Result files of SGLang's serving benchmark."""

    title = "result of `sglang.bench_serving` (JSONL)"

    def record(self, record: RecordFields) -> bool:
        """Take one run. Raises DamagedError."""
        if not {"backend", "input_throughput", "output_throughput", "completed"} <= set(record):
            return False
        self.keep(reading_of(self.file, self.name, record))
        self.note(record)
        return True


def gap_of(backend: str | None, speculation: bool) -> str:
    """Which latency the client's `itl` is."""
    per_token = backend in ("sglang", "sglang-native") or (
        speculation and (backend or "").startswith("sglang-oai")
    )
    return "itl_token_s" if per_token else "itl_s"


def reading_of(file: str, name: str, fields: RecordFields, form: str = FORMAT) -> Reading:
    """What one run says, `form` being the source's format. Raises DamagedError when nothing was served."""
    completed = fields.count("completed")
    if completed == 0.0:
        raise DamagedError("no request was completed")
    requests = None if completed is None else int(completed)
    length = fields.number("accept_length", 1.0)
    gap = gap_of(fields.text("backend"), length is not None)
    names = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": gap, "e2e_latency": "e2e_s"}
    findings, acceptance, stated = [], None, []
    if length is not None:
        draft_length = _draft_length(fields.part("server_info"))
        total_counts = Counts(1.0, length - 1.0)
        acceptance = MeasuredAcceptance(
            total_counts, draft_length, "the server's average since its start", counted=False
        )
        stated.append(
            Stated("accept_length", length, "tokens emitted per round, average since the server started")
        )
        text = "SGLang's accept_length is the server's average since its start, not that of this run"
        findings.append(Finding("lifetime-average", "info", text))
    return Reading(
        name=name,
        sources=(Source(file, form, "sglang", fields.part("server_info").text("version")),),
        acceptance=acceptance,
        stated=tuple(stated),
        latencies=latencies_of(fields, names, {"ttft_s": requests, "tpot_s": requests, "e2e_s": requests}),
        throughput_tokens_per_s=fields.number("output_throughput"),
        load=run_load(fields, _LOAD),
        traits=_traits(fields),
        findings=tuple(findings),
    )


def _draft_length(server: RecordFields) -> int | None:
    """The drafter's steps of the server's arguments; of a chain one less than the window."""
    steps, window = server.count("speculative_num_steps"), server.count("speculative_num_draft_tokens")
    length = steps or (window or 0.0) - 1.0
    return int(length) if 1.0 <= length <= LONGEST_DRAFT else None


def _traits(fields: RecordFields) -> dict[str, str]:
    _, unlimited = request_rate(fields)
    traits = {"dataset": fields.text("dataset_name"), "model": fields.part("server_info").text("model_path")}
    if unlimited and "max_concurrency" not in fields:
        traits["saturation"] = "yes"
    return {key: value for key, value in traits.items() if value is not None}
