"""`simulate(scenario)`: every variant on the same requests and random numbers, measured and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.models.catalogue import taken_as
from simulator.results.catalogue import title_of
from simulator.results.comparison import compare
from simulator.results.result import Provenance, Result
from simulator.results.verdict import NO_VERDICT
from simulator.runs.fit import fitting_variants
from simulator.runs.replications import Progress, Replications, VariantRuns
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, acceptance_basis, defaults_used
from simulator.traffic.workload import workload_notes
from simulator.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from simulator.drivers.pipeline import TimelineStage
    from simulator.results.variant_summary import VariantSummary

_WITHOUT_MISSES = ("geometric", "decay", "hierarchical")
"""Acceptance models under which a prompt lookup always finds a match."""


def simulate(
    scenario: Scenario,
    progress: Progress | None = None,
    trace_out: str | Path | None = None,
    keep_requests: bool = True,
) -> Result:
    """Run plain decoding and every speculative variant of a scenario, and return their figures and
    comparisons.

    `trace_out`: the file for a Chrome trace with the stages of all steps of the first replication.
    `keep_requests`: the result holds every request of every run. Without them memory does not grow with
    replications. Raises InputError where the scenario does not fit the memory, or names something that cannot
    be used.
    """
    variants = fitting_variants(scenario)
    timelines: dict[str, list[TimelineStage]] = {variant.name: [] for variant in variants}
    runs = [VariantRuns(variant, variant.measurement_scope, keep_requests) for variant in variants]
    study = Replications(scenario, runs, progress, timelines=timelines if trace_out is not None else None)
    missed = study.run()
    measurements = study.measurements()
    comparison = {
        compiled.name: compare(
            compiled.name, measurements[0], measured, acceptance_basis(scenario, compiled.name)
        )
        for compiled, measured in zip(variants[1:], measurements[1:], strict=True)
    }
    without_verdict = tuple(
        entry.verdict.sentence for entry in comparison.values() if entry.verdict.outcome is NO_VERDICT
    )
    summaries = {
        compiled.name: measured.summary() for compiled, measured in zip(variants, measurements, strict=True)
    }
    if trace_out is not None:
        _write_trace(trace_out, scenario, timelines)
    return Result(
        scenario=scenario.model_dump(mode="json"),
        provenance=_provenance(scenario, study),
        variants=summaries,
        comparison=comparison,
        notes=(
            *without_verdict,
            *_missed_limits(scenario, summaries),
            *_notes(scenario, study.variants),
            *study.notes(),
            *([missed] if missed else ()),
        ),
        records={runs.variant.name: runs.records(study.warm_up) for runs in study.variants}
        if keep_requests
        else {},
    )


def _write_trace(path: str | Path, scenario: Scenario, timelines: dict[str, list[TimelineStage]]) -> None:
    """Write the stages of all variants as one Chrome trace, variant after variant."""
    from simulator.results.timeline import write_chrome_trace

    replicas = scenario.hardware.replicas
    rows = [
        stage._replace(replica=stage.replica + index * replicas)
        for index, stages in enumerate(timelines.values())
        for stage in stages
    ]
    names = {
        index * replicas + replica: variant if replicas == 1 else f"{variant}, replica {replica}"
        for index, variant in enumerate(timelines)
        for replica in range(replicas)
    }
    write_chrome_trace(path, rows, scenario.title, names)


def _provenance(scenario: Scenario, study: Replications) -> Provenance:
    plain = study.variants[0]
    setup = plain.variant.setup
    driver, reason = plain.driver
    return Provenance(
        version=version("decodesim"),
        seed=scenario.run.seed,
        scenario_sha256=scenario.scenario_sha256,
        profile=setup.profile.name,
        profile_sha256=setup.profile.sha256,
        preset=setup.preset.name,
        backend=driver,
        backend_reason=reason,
        defaults_used=defaults_used(scenario),
        replications=study.have,
        requests=study.requests,
        measured_requests=study.measured,
    )


def _never_served(runs: VariantRuns) -> str:
    """Return how many requests are left out, and the limits that they exceed."""
    count = runs.rejected / runs.made
    return f"{count:g} requests a run are left out, as they are longer than {runs.variant.request_limits}"


def _missed_limits(scenario: Scenario, summaries: Mapping[str, VariantSummary]) -> Iterator[str]:
    """Yield a note for every limit of the SLO that a variant's P99 exceeds."""
    limits = scenario.slo.model_dump(exclude_none=True) if scenario.slo is not None else {}
    for name, summary in summaries.items():
        missed = []
        for key, limit_s in limits.items():
            latency, _, percentile = key.removesuffix("_s").rpartition("_")
            estimate = summary.estimates.get(f"{latency}_s.{percentile}")
            if estimate is not None and estimate.value > limit_s:
                title = title_of(f"{latency}_s.{percentile}")
                missed.append(f"{title} {format_seconds(estimate.value)}, limit {format_seconds(limit_s)}")
        if missed:
            yield f"{name}: misses the SLO: {'; '.join(missed)}"


def _of_the_engine(scenario: Scenario, variants: Sequence[CompiledVariant]) -> Iterator[str]:
    """Yield what the serving engine does with speculative variants and the simulated engine does not."""
    drafting = [
        compiled
        for compiled in variants
        if compiled.variant is not None and compiled.variant.max_draft_length > 0
    ]
    if not drafting:
        return
    preset, max_num_seqs = drafting[0].setup.preset, drafting[0].settings.max_num_seqs
    lookups = [
        compiled.name
        for compiled in drafting
        if compiled.method is not None and compiled.method.drafter is None
    ]
    if lookups and preset.lookup_note:
        yield f"{', '.join(lookups)}: {preset.lookup_note}"
    arrivals = scenario.workload.arrivals
    clients = scenario.workload.requests if arrivals.kind == "burst" else 0
    if arrivals.kind == "closed":
        clients = arrivals.concurrency
    is_set = scenario.engine.max_num_seqs is not None
    if min(clients / scenario.hardware.replicas, max_num_seqs) > preset.draft_seats > 0 and not is_set:
        names = ", ".join(compiled.name for compiled in drafting)
        yield (
            f"{names}: {preset.engine} runs at most {preset.draft_seats} requests while it speculates, "
            f"unless it is configured otherwise; here {max_num_seqs:,} may run. Set engine.max_num_seqs to "
            f"{preset.draft_seats} to see such a variant; plain decoding keeps its own limit"
        )


def _notes(scenario: Scenario, variants: Sequence[VariantRuns]) -> tuple[str, ...]:
    """Return what a reader must know before trusting the figures."""
    notes = [*workload_notes(scenario.workload, scenario.base_dir)]
    setup = variants[0].variant.setup
    if (taken := taken_as(scenario.target.model, scenario.base_dir)) is not None:
        notes.append(taken)
    if setup.preset_note:
        notes.append(setup.preset_note)
    for runs in variants:
        name, memory = runs.variant.name, runs.variant.memory
        if runs.rejected:
            notes.append(f"{name}: {_never_served(runs)}")
        if runs.beyond_drafter:
            notes.append(f"{name}: {runs.beyond_drafter}")
        if runs.variant.limited_by_states:
            notes.append(
                f"{name}: at most {memory.state_request_limit:,} are served at once: each request takes "
                f"{format_bytes(memory.state_bytes)} of what is set aside for the states of recurrent layers"
            )
        entry = runs.variant.variant
        if entry is not None and entry.max_draft_length == 0:
            notes.append(f"{name}: a draft length of 0 is plain decoding with the drafter in memory")
        if entry is not None and entry.method == "ngram" and entry.acceptance.model in _WITHOUT_MISSES:
            notes.append(
                f"{name}: {entry.acceptance.model} acceptance assumes that every prompt lookup finds a "
                "match; {model: gated, …} states how often one does"
            )
    notes += _of_the_engine(scenario, [runs.variant for runs in variants])
    ranks = setup.cost.target_pricing.network.tensor_parallel
    measured = max(setup.profile.allreduce().tables, default=0)
    if scenario.hardware.attention_dp > 1:
        notes.append(
            "data-parallel attention: requests are assumed to be spread evenly, and all groups step together"
        )
    if ranks > measured > 0:
        notes.append(
            f"all-reduces of {ranks} GPUs are priced as those of {measured}, the most that the profile "
            "knows: between nodes they take longer"
        )
    parts = setup.profile.statuses
    for status in ("inherited", "assumed"):
        names = sorted(part for part, of_part in parts.items() if of_part == status)
        if names:
            notes.append(f"{status} in the profile {setup.profile.name}: {', '.join(names)}")
    return tuple(notes)
