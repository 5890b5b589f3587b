"""The assumptions of an answer with their sources: models, GPU, kernel times, engine, defaults, notes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dashboards.figures.look import clients
from dashboards.markup import Html, joined, linked, sentence, table, tag
from dashboards.subject import ReportedResult
from simulator.engines.host_cost import HostCost
from simulator.engines.preset_field import declared
from simulator.units import format_bytes, format_number, format_rate, format_seconds

if TYPE_CHECKING:
    from simulator.costs.profiles import Part
    from simulator.runs.setup import Setup
    from simulator.scenario import Scenario, Variant


def assumptions(subject: ReportedResult) -> Html:
    """All of it, as headings, tables and lists."""
    scenario = subject.scenario
    parts: list[Html] = []
    if scenario is None:
        parts.append(tag("p", subject.scenario_problem or "The scenario is not known.", cls="missing"))
    else:
        from simulator.runs.setup import setup_of

        setups = [(variant, setup_of(scenario, variant)) for variant in (None, *scenario.speculation)]
        parts += [
            tag("h3", "Models and GPU"),
            table(["", "", "Source"], list(_models(setups)), words=3),
            tag("h3", "Kernel times"),
            *_kernels([setup for _, setup in setups]),
            tag("h3", "Serving engine"),
            *_engine(setups[0][1]),
        ]
    parts += _values(subject)
    return joined(*parts, *_notes(subject), *_origin(subject))


def _models(setups: list[tuple[Variant | None, Setup]]) -> Iterator[list[object]]:
    target, gpu = setups[0][1].target, setups[0][1].profile.gpu
    billions = target.parameters / 1e9
    yield [
        "Target",
        f"{target.name}, {format_number(billions)} billion parameters, {target.weights}",
        linked(target.source),
    ]
    for variant, setup in setups:
        drafter = setup.drafter
        if variant is not None and drafter is not None:
            size = f"{format_number(drafter.parameters / 1e9)} billion parameters"
            yield [
                f"Drafter of {variant.name}",
                f"{drafter.model.name}, {size}",
                linked(drafter.model.source),
            ]
    bandwidth = f"{gpu.hbm_bandwidth_bytes_per_s / 1e12:.3g} TB/s"
    peaks = ", ".join(f"{rate / 1e12:,.0f} TFLOPS {kind}" for kind, rate in gpu.peak_flops_per_s.items())
    words = f"{gpu.title}: {format_bytes(gpu.memory_bytes)}, {bandwidth}, {peaks} dense"
    all_sources = list(dict.fromkeys(gpu.sources.values()))
    sources = [
        source
        for source in all_sources
        if not any(longer != source and longer.startswith(source) for longer in all_sources)
    ]
    yield ["GPU", words, joined(*(tag("div", linked(source)) for source in sources))]


def _kernels(setups: list[Setup]) -> Iterator[Html]:
    """The parts of the profile that this scenario's passes read, each with its status and error."""
    profile = setups[0].profile
    names = {name for setup in setups for name in parts_read(setup)}
    parts = [part for name, part in profile.parts.items() if name in names]
    origin = profile.provenance
    origin_text = " ".join(str(origin[key]) for key in ("package", "version", "date") if key in origin)
    yield tag(
        "p",
        f"Profile {profile.name}{f', from {origin_text}' if origin_text else ''}. {origin.get('notice', '')}",
    )
    rows = [
        [
            part.name,
            tag("span", part.status, cls=f"status {part.status}"),
            _error(part),
            linked(_source(part)),
        ]
        for part in parts
    ]
    yield table(["Part", "Status", "Error on held-out points", "Source"], rows, words=4)


def _error(part: Part) -> str:
    median, mean = part.residual.get("p50_percent"), part.residual.get("mape_percent")
    if mean is None:
        return "not known"
    middle = "" if median is None else f", median {median:g} %"
    return f"mean {mean:g} %{middle}"


def _source(part: Part) -> str:
    return f"{part.source}; {part.note}" if part.note else part.source


class _Recorder(Mapping[str, Any]):
    """The parts of a profile; remembers which were read."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts, self.names_read = parts, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names_read.add(name)
        return self.parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def parts_read(setup: Setup) -> set[str]:
    """Names of the profile's parts that price a step of decodes, a prompt and drafts, found by pricing."""
    recorder = _Recorder(setup.profile.parts)
    cost = replace(setup.cost, profile=replace(setup.profile, parts=recorder))
    step: dict[str, Any] = {"tokens": 64, "decode_sequences": 8, "context_tokens_sum": 8000.0}
    step |= {"prefill_chunks": ((48, 0),), "logit_rows": 9}
    cost.target_pass(**step)
    cost.sample(9)
    if cost.drafter is not None:
        cost.draft_pass(**step)
    return recorder.names_read


def _engine(setup: Setup) -> Iterator[Html]:
    preset = setup.preset
    manner = "asynchronous" if preset.asynchronous else "synchronous"
    limits = (
        f"{preset.max_num_seqs:,} sequences and {preset.max_num_batched_tokens:,} tokens in a step, "
        f"{preset.gpu_memory_utilization:.0%} of the memory, KV blocks of {preset.block_tokens} tokens"
    )
    yield tag("p", f"{preset.engine} {preset.version} ({manner}): {limits}.")
    if setup.preset_note:
        yield tag("p", sentence(setup.preset_note))
    host = [
        [f"Host time {field.label}", format_seconds(getattr(preset.host, name))]
        for name, field in declared(HostCost).items()
        if getattr(preset.host, name)
    ]
    host.append(["Small kernels per layer", format_seconds(preset.small_kernel_s_per_layer)])
    yield table(["", "Value"], host, cls="narrow")
    yield tag(
        "ul", *(tag("li", tag("b", f"{name}: "), linked(source)) for name, source in preset.sources.items())
    )


def _values(subject: ReportedResult) -> Iterator[Html]:
    """Defaults that were used, and mechanisms that were switched off."""
    defaults = subject.result.provenance.defaults_used
    switched_off = [
        name
        for name, is_on in subject.result.scenario.get("run", {}).get("mechanisms", {}).items()
        if not is_on
    ]
    if switched_off:
        yield tag("h3", "Switched off")
        yield tag("p", f"{', '.join(switched_off)}: the answer omits their effects.", cls="warning")
    if defaults:
        yield tag("h3", "Values that are defaults")
        rows = [[tag("code", path), _short(value)] for path, value in defaults.items()]
        yield tag("details", tag("summary", f"{len(rows)} fields"), table(["Field", "Value"], rows, words=2))


def _short(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _notes(subject: ReportedResult) -> Iterator[Html]:
    notes = list(dict.fromkeys([*subject.result.notes, *subject.study.notes, *_notes_of_break_even(subject)]))
    if notes:
        yield tag("h3", "Notes")
        yield tag("ul", *(tag("li", note) for note in notes))


def _notes_of_break_even(subject: ReportedResult) -> Iterator[str]:
    """The notes on a whole break-even, without those of single loads."""
    for variant, document in subject.study.break_even.items():
        of_rows = tuple(row["note"] for row in document["rows"] if row.get("note"))
        yield from (f"{variant}: {note}" for note in document.get("notes", ()) if not note.endswith(of_rows))


def _origin(subject: ReportedResult) -> Iterator[Html]:
    origin = subject.result.provenance
    driver = origin.backend.replace("_", " ")
    reason = f" ({origin.backend_reason})" if origin.backend_reason else ""
    yield tag("h3", "How it was run")
    yield tag(
        "p",
        f"decodesim {origin.version}, {driver} driver{reason}, seed {origin.seed}, "
        f"{origin.replications} replications. ± is the 95 % interval of sampling; bands add the error of the "
        "cost model, and verdicts use the band. ",
        "Scenario ",
        tag("code", origin.scenario_sha256[:12]),
        ", profile ",
        tag("code", origin.profile_sha256[:12]),
        ".",
    )


def traffic(subject: ReportedResult) -> str:
    """The scenario in one line: load, requests, engine, hardware."""
    scenario = subject.scenario
    if scenario is None:
        return f"{subject.result.provenance.preset}, {subject.result.provenance.profile}"
    from simulator.gpu import GPUS
    from simulator.scenario import engine_preset

    hardware, count = scenario.hardware, subject.result.provenance.replications
    preset, _ = engine_preset(scenario)
    gpu = GPUS[hardware.gpu].title if hardware.gpu in GPUS else hardware.gpu
    replicas = f"{hardware.replicas} replicas of " if hardware.replicas > 1 else ""
    parts = [
        _load(scenario),
        f"{scenario.workload.requests:,} requests, {count} replication{'s' if count != 1 else ''}",
        f"{replicas}{hardware.tensor_parallel} × {gpu}",
        f"{preset.engine} {preset.version}",
    ]
    return " · ".join(parts)


def _load(scenario: Scenario) -> str:
    arrivals = scenario.workload.arrivals
    match arrivals.kind:
        case "closed":
            return clients(arrivals.concurrency)
        case "burst":
            return "all requests at once"
        case "poisson" | "gamma":
            return format_rate(arrivals.rate_per_s, "requests/s")
        case "profile":
            return "a rate that changes"
        case "trace":
            return f"the requests of {arrivals.file}"
