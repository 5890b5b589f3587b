"""`Scenario`: the whole file, and its smaller sections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from simulator.document import Place
from simulator.engines.host_cost import HostCost
from simulator.engines.preset_field import declared
from simulator.errors import InputError
from simulator.scenario.base import Fault, Raw, Section, as_number, from_percent, names_of, repeated
from simulator.scenario.speculation import Variant
from simulator.scenario.workload import Workload

MOST_GPUS = 1024
"""GPUs that may share one model."""

HostSeconds = Annotated[float, Field(ge=0, lt=1)]


class TargetSection(Section):
    """The model that is served."""

    model: Annotated[str, Field(min_length=1)] = Field(description="catalogue name, or path of a config.json")
    weights: Literal["bf16", "fp8", "fp8_block", "int4", "mxfp4"] | None = Field(
        default=None, description="bf16 | fp8 | fp8_block | int4 | mxfp4; null: as in config.json"
    )
    kv_cache: Literal["bf16", "fp8"] = Field(default="bf16", description="bf16 | fp8")


class HardwareSection(Section):
    """What it runs on."""

    gpu: Annotated[str, Field(min_length=1)] = Field(description="catalogue name, or path of a profile")
    tensor_parallel: Annotated[int, Field(ge=1, le=MOST_GPUS)] = Field(
        default=1, description="GPUs that share every matrix"
    )
    expert_parallel: Annotated[int, Field(ge=1, le=MOST_GPUS)] = Field(
        default=1, description="groups that share the experts"
    )
    attention_dp: Annotated[int, Field(ge=1, le=MOST_GPUS)] = Field(
        default=1,
        description="groups of those GPUs with requests of their own (data-parallel attention)",
    )
    replicas: Annotated[int, Field(ge=1, le=1000)] = Field(default=1, description="copies behind the router")
    router: Literal["round-robin", "least-loaded", "session", "prefix"] = Field(
        default="least-loaded", description="round-robin | least-loaded | session | prefix"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        ranks = as_number(raw.get("tensor_parallel", 1))
        for name, what in (("expert_parallel", "experts"), ("attention_dp", "requests")):
            groups = as_number(raw.get(name))
            if ranks is not None and groups is not None and groups >= 1 and ranks % groups:
                allowed = f"a divisor of {ranks:g}: the {what} are shared among the same GPUs"
                yield Fault((name,), raw[name], "does not divide tensor_parallel", allowed)


def _host_time(name: str, note: str = "") -> Any:
    """A field of `HostOverrides`, described as the preset's field of that name."""
    return Field(default=None, description=f"{declared(HostCost)[name].label}, s{note}")


class HostOverrides(Section):
    """Host time of one step that the GPU waits for, and of a request before it; null: the preset's."""

    step_s: HostSeconds | None = _host_time("step_s")
    per_sequence_s: HostSeconds | None = _host_time("per_sequence_s")
    draft_pass_s: HostSeconds | None = _host_time(
        "draft_pass_s", "; the draft_step_s of a step that drafts stays the preset's"
    )
    lookup_step_s: HostSeconds | None = _host_time("lookup_step_s")
    lookup_per_sequence_s: HostSeconds | None = _host_time("lookup_per_sequence_s")
    request_latency_s: HostSeconds | None = _host_time("request_latency_s")
    request_s: HostSeconds | None = _host_time("request_s")
    prompt_token_s: Annotated[float, Field(ge=0, lt=1e-3)] | None = _host_time("prompt_token_s")


class EngineSection(Section):
    """The serving engine; null fields are the preset's."""

    preset: Annotated[str, Field(min_length=1)] = Field(
        default="vllm-0.33",
        description="serving engine and version (the nearest known is used, with a note), or a preset's file",
    )
    scheduler: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="rule that fills a step: mixed | prefill-apart | one registered by name"
    )
    max_num_seqs: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="requests in a step"
    )
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=262_144)] | None = Field(
        default=None, description="tokens in a step"
    )
    chunked_prefill: bool = Field(default=True, description="prompts are cut to the tokens a step has left")
    prefix_caching: bool = Field(default=True, description="equal leading blocks are computed once")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="share of the GPU memory the engine may use"
    )
    host: HostOverrides = Field(default=HostOverrides(), description="host time, s; null: the preset's")


class SloSection(Section):
    """Limits that a request must meet to count as good."""

    ttft_p99_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="time to first token, s"
    )
    tpot_p99_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="time per output token, s"
    )

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        if all(raw.get(name) is None for name in cls.model_fields):
            yield Fault(
                (),
                None,
                "limits nothing",
                f"{' or '.join(cls.model_fields)}; or null in place of the section",
            )


class Mechanisms(Section):
    """Each true as in a real engine; false switches one off, to see what it does."""

    prefill: bool = Field(default=True, description="prompts take time and delay decodes")
    kv_limit: bool = Field(default=True, description="KV blocks run out; requests wait and are preempted")
    graph_padding: bool = Field(
        default=True, description="steps are padded to CUDA-graph sizes; eager beyond the cap"
    )
    heterogeneity: bool = Field(default=True, description="requests differ in acceptance")
    stop_trim: bool = Field(default=True, description="tokens accepted past the stop are lost")
    ghost_rows: bool = Field(
        default=True, description="a finished request occupies one more step (asynchronous engines)"
    )
    expert_union: bool = Field(default=True, description="tokens of a step share the experts they read")
    host_overlap: bool = Field(
        default=True, description="host work hides behind the GPU (asynchronous engines)"
    )
    context_growth: bool = Field(default=True, description="contexts grow as outputs do")


class RunSection(Section):
    """How the simulation is run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="same seed, same result, to the byte"
    )
    replications: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5, description="independent repetitions"
    )
    precision: Annotated[float, Field(gt=0, lt=1), BeforeValidator(from_percent)] | None = Field(
        default=None,
        description="half-width of the 95 % interval asked for: 1% or 0.01; null: replications as given",
    )
    precision_metric: Annotated[str, Field(min_length=1)] = Field(
        default="throughput",
        description="what it is asked of: a metric of breakeven, a path of the results, or speedup",
    )
    backend: Literal["auto", "pipeline"] = Field(
        default="auto",
        description="auto: engines leap where nothing forbids it; pipeline: they go stage by stage",
    )
    mechanisms: Mechanisms = Field(
        default=Mechanisms(), description="false switches one off, for attribution"
    )


class Scenario(Section):
    """What is simulated: the scenario file, checked and frozen.

    Two scenarios are equal when their fields are; where they name files, their folders must be the same too.
    """

    name: Annotated[str, Field(max_length=500)] | None = Field(
        default=None, description="what tables and pages call it"
    )
    target: TargetSection = Field(description="the model that is served")
    hardware: HardwareSection = Field(description="what it runs on")
    engine: EngineSection = Field(
        default=EngineSection(), description="the serving engine; null: the preset's"
    )
    speculation: Annotated[tuple[Variant, ...], Field(max_length=100)] = Field(
        default=(), description="the variants; plain decoding is always the first"
    )
    workload: Workload = Field(description="the traffic that every variant meets")
    slo: SloSection | None = Field(default=None, description="limits a good request meets; null: none")
    run: RunSection = Field(default=RunSection(), description="how the simulation is run")

    _base_dir: Path = PrivateAttr(default=Path("."))
    _taken: dict[str, Any] = PrivateAttr(default_factory=dict)
    _places: dict[str, Place] = PrivateAttr(default_factory=dict)
    _measured: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def faults(cls, raw: Raw) -> Iterator[Fault]:
        variants = raw.get("speculation")
        entries = (
            [variant if isinstance(variant, dict) else {} for variant in variants]
            if isinstance(variants, list | tuple)
            else []
        )
        for fault in repeated([variant.get("name") for variant in entries], "arm"):
            yield fault._replace(path=("speculation", *fault.path))
        hardware = raw.get("hardware")
        ranks = as_number(hardware.get("tensor_parallel", 1)) if isinstance(hardware, dict) else None
        for index, variant in enumerate(entries):
            own = as_number(variant.get("draft_tensor_parallel"))
            if own is not None and ranks is not None and own not in (1, ranks):
                yield Fault(
                    ("speculation", index, "draft_tensor_parallel"),
                    own,
                    "is neither 1 nor the target's",
                    f"1 or {ranks:g}" if ranks != 1 else "1",
                )
        yield from _faults_of_class_variants(raw, set(names_of(entries)))

    @property
    def base_dir(self) -> Path:
        """Folder that relative file names are relative to."""
        return self._base_dir

    @property
    def taken(self) -> Mapping[str, Any]:
        """Dotted path → value of what was filled in from a catalogue while the file was read."""
        return self._taken

    def at(
        self,
        base_dir: Path,
        taken: Mapping[str, Any] | None = None,
        places: Mapping[str, Place] | None = None,
        measured: frozenset[str] | None = None,
    ) -> Self:
        """This scenario with relative file names relative to `base_dir`.

        `places`: the place of each dotted path in its file. `measured`: the variants whose acceptance comes
        from a file.
        """
        copy = self.model_copy()
        copy._base_dir = base_dir
        copy._taken = dict(self._taken if taken is None else taken)
        copy._places = dict(self._places if places is None else places)
        copy._measured = self._measured if measured is None else measured
        return copy

    @property
    def measured(self) -> frozenset[str]:
        """Names of the variants whose acceptance comes from a file."""
        return self._measured

    def located(self, error: InputError) -> InputError:
        """Return an error found after reading with each problem at the line of its field, or of what would
        hold it.
        """
        problems = []
        for problem in error.problems:
            field = problem.field or ""
            while field and field not in self._places:
                field = field.rpartition(".")[0]
            place = self._places.get(field) if problem.file is None else None
            problems.append(problem if place is None else problem.at(*place))
        return InputError(problems)

    @property
    def title(self) -> str:
        """The name, or else the model and its hardware."""
        hardware = self.hardware
        replicas = f"{hardware.replicas} replicas of " if hardware.replicas > 1 else ""
        return self.name or f"{self.target.model} on {replicas}{hardware.tensor_parallel} × {hardware.gpu}"

    def variant(self, name: str) -> Variant:
        """The speculative variant of that name. Raises KeyError where there is none."""
        return {variant.name: variant for variant in self.speculation}[name]

    def draft_tensor_parallel(self, variant: Variant) -> int:
        """GPUs that share the drafter's matrices."""
        return variant.draft_tensor_parallel or self.hardware.tensor_parallel

    def canonical_json(self) -> str:
        """The scenario as JSON with every default written out, keys sorted: equal scenarios, equal text."""
        return json.dumps(
            self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )

    @property
    def scenario_sha256(self) -> str:
        """Hash of `canonical_json`."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()

    def _identity(self) -> tuple[str, Path | None]:
        """What equal scenarios share: the text, and the folder where it names files."""
        text = self.canonical_json()
        return text, self.base_dir.resolve() if '"file":' in text or ".json" in text else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


def _faults_of_class_variants(raw: Raw, variants: set[str]) -> Iterator[Fault]:
    """Acceptance given for variants that do not exist."""
    workload = raw.get("workload")
    classes = workload.get("classes") if isinstance(workload, dict) else None
    for index, entry in enumerate(classes if isinstance(classes, list | tuple) else ()):
        acceptance = entry.get("acceptance") if isinstance(entry, dict) else None
        for name in acceptance if isinstance(acceptance, dict) else ():
            if name not in variants:
                known = ", ".join(sorted(variants)) or "none: speculation is empty"
                yield Fault(
                    ("workload", "classes", index, "acceptance", name),
                    None,
                    "names no variant",
                    f"known: {known}",
                )
