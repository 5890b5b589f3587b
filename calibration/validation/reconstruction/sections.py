"""The sections of a published case, as the source or the converter states them.

The explicit fields are those of version 1.1 of the schema. A point may repeat any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

Facts = Mapping[str, Any]
"""An object of the file, with whatever keys it has."""


@dataclass(frozen=True)
class PublishedHardware:
    """The GPUs of a case. `pp`, `ep`, `dcp`: pipeline, expert and decode-context parallelism.

    `attention_dp`: groups of GPUs with requests of their own, or True where their number is not stated.
    `decodes_alone`: prompts were computed on other GPUs.
    """

    gpu: str | None = None
    count: float | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dcp: float | None = None
    attention_dp: float | bool | None = None
    nodes: float | None = None
    interconnect: str | None = None
    decodes_alone: bool | None = None


@dataclass(frozen=True)
class PublishedModel:
    """The served model in the source's words; parameters in 10⁹."""

    model: str | None = None
    params_b: float | None = None
    active_params_b: float | None = None
    arch: str | None = None
    weight_precision: str | None = None
    kv_precision: str | None = None


@dataclass(frozen=True)
class PublishedDraft:
    """How a case drafted. `k`: draft length of a chain. `topk`, `num_draft_tokens`: width and nodes of a
    tree. `vocab_fraction`: the share of the vocabulary that the drafter's head covers. `parallel`: all tokens
    come from one pass. `graphs`: whether CUDA graphs hold its passes. `acceptance_rate`, `acceptance_length`:
    those of all points, the rate at `acceptance_rate_at_k` drafts.
    """

    method: str | None = None
    model: str | None = None
    params_b: float | None = None
    k: float | None = None
    topk: float | None = None
    num_draft_tokens: float | None = None
    structure: str | None = None
    vocab_fraction: float | None = None
    parallel: bool | None = None
    graphs: bool | None = None
    tensor_parallel: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    acceptance_rate_at_k: float | None = None


@dataclass(frozen=True)
class PublishedFramework:
    """The serving engine, in the source's words."""

    name: str | None = None
    version: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class PublishedWorkload:
    """The requests that were sent. A length is a number, an object of statistics, or None.

    `ends`: `eos`, or `max_tokens` where every output is as long as requested. `reasoning`: the model thinks
    before it answers.
    """

    dataset: str | None = None
    input_len_tokens: float | Facts | None = None
    output_len_tokens: float | Facts | None = None
    num_prompts: float | None = None
    ends: str | None = None
    chat_template: bool | None = None
    shared_prefix_tokens: float | None = None
    reasoning: bool | None = None
    thinking: bool | None = None


@dataclass(frozen=True)
class PublishedEngineArgs:
    """The engine's arguments. `async_scheduling` may differ by variant: {"baseline": …, "spec": …}."""

    max_num_seqs: float | None = None
    max_num_batched_tokens: float | None = None
    gpu_memory_utilization: float | None = None
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    async_scheduling: bool | Facts | None = None
    attention_backend: str | None = None
    max_model_len: float | None = None
    kv_cache_dtype: str | None = None
    stream_interval: float | None = None
    runner: str | None = None


@dataclass(frozen=True)
class StatedLoad:
    """The load. `kind`: closed, rate, burst or static_batch. `ramp_s`: time in which the clients start."""

    kind: str | None = None
    concurrency: float | None = None
    concurrency_per_rank: float | None = None
    request_rate_rps: float | None = None
    ramp_s: float | None = None


@dataclass(frozen=True)
class MetricDefinitions:
    """What the client's figures mean.

    `itl`: per_emission, per_token or per_n_tokens. `tpot`: without_ttft or with_ttft. `throughput`: output or
    total.
    """

    itl: str | None = None
    tpot: str | None = None
    throughput: str | None = None


CaseSection = TypeVar(
    "CaseSection",
    PublishedHardware,
    PublishedModel,
    PublishedDraft,
    PublishedFramework,
    PublishedWorkload,
    PublishedEngineArgs,
    StatedLoad,
    MetricDefinitions,
)


def number(value: object) -> float | None:
    """A finite number, also from text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        finite = float(value)
    except OverflowError:
        return None
    return finite if abs(finite) < 1e18 else None


def section_of(kind: type[CaseSection], raw: object) -> CaseSection:
    """A record with the fields of `kind`; a value of an unexpected type counts as not published."""
    facts = raw if isinstance(raw, Mapping) else {}
    return kind(**{field.name: _value(facts.get(field.name), str(field.type)) for field in fields(kind)})


def repeated(section: CaseSection, raw: object) -> CaseSection:
    """The section with the fields that a point repeats."""
    own = section_of(type(section), raw)
    values = {field.name: getattr(own, field.name) for field in fields(own)}
    stated = {name: value for name, value in values.items() if value is not None}
    return replace(section, **stated) if stated else section


def text(value: object) -> str | None:
    """A text, or a number as text, because versions are often written as numbers; else None."""
    if isinstance(value, str):
        return " ".join(value.split()) or None
    return None if isinstance(value, bool) or number(value) is None else str(value)


def _value(value: object, kind: str) -> Any:
    """A value of a field whose type is written as `kind`; None for one of another type."""
    if "str" in kind:
        return text(value)
    if "bool" in kind and isinstance(value, bool):
        return value
    if "Facts" in kind and isinstance(value, Mapping):
        return dict(value)
    return number(value) if "float" in kind else None
