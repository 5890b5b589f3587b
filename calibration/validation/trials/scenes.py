"""What a point ran on and what was sent: everything of its scenarios but the drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from calibration.validation.trials.cases import Case, Facts, Side, Target
from calibration.validation.trials.drafts import method_of
from calibration.validation.trials.engines import SGLANG, TRTLLM, EngineChoice, engine_of
from calibration.validation.trials.lengths import LengthsChoice
from calibration.validation.trials.loads import Load, load_of
from calibration.validation.trials.models import ModelChoice, model_of
from calibration.validation.trials.names import Gpu, gpu_of, kv_cache_of, side_of
from calibration.validation.trials.placement import NODE, SIZES, Placement, placement_of
from simulator.engines.presets import load_preset
from simulator.errors import InputError
from simulator.memory.gpu_memory import GpuMemory
from simulator.memory.report import gpu_memory
from simulator.scenario import Scenario, scenario_from_data

DOES_NOT_FIT = "does not fit the memory"
NOT_A_SCENARIO = "not a scenario"
CAPPED = "fewer requests are seated while it speculates, as by SGLang unless it is told otherwise"
WHOLE_PROMPTS = "prompts are not cut: TensorRT-LLM cuts none unless it is told to"
_FULLER = 0.96
"""Share of memory that is tried where a source's own placement would not fit at the preset's."""


class _Attempt(NamedTuple):
    """A layout: GPUs of a replica, replicas, share of the memory (None: the preset's), what to say of it."""

    tensor_parallel: int
    replicas: int
    utilisation: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Scene:
    """One side of a point. `tensor_parallel` None in `placement`: found when the scenario is made."""

    side: Side
    case: Case
    gpu: Gpu
    model: ModelChoice
    engine: EngineChoice
    load: Load
    lengths: LengthsChoice
    placement: Placement

    @property
    def engine_name(self) -> str:
        """The preset; code of a paper keeps its own name, as no preset is like it."""
        return str(self.case.framework.name) if self.engine.research else self.engine.preset

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that was assumed."""
        about_gpu = (self.gpu.note,) if self.gpu.note else ()
        parts = (self.model, self.engine, self.placement, self.load, self.lengths)
        found = ((self._whole_prompts, WHOLE_PROMPTS), (self._capped, CAPPED))
        habits = (note for is_so, note in found if is_so)
        return tuple(dict.fromkeys((*about_gpu, *habits, *(note for part in parts for note in part.notes))))

    def runs_as(self, other: Scene) -> bool:
        """Whether both sides ran on the same: one scenario then serves them."""
        mine, theirs = (
            replace(one, side="plain", engine=replace(one.engine, notes=())) for one in (self, other)
        )
        return mine == theirs and not self._capped and not other._capped

    def scenario(self, variant: Mapping[str, Any] | None) -> tuple[Scenario, tuple[str, ...]] | str:
        """The scenario with this speculative variant and what was assumed for it to fit; or why there
        is none.
        """
        for attempt in self._attempts():
            data = self._data(attempt, variant)
            try:
                found = scenario_from_data(data)
                if all(self._holds(gpu_memory(found, one)) for one in (None, *found.speculation)):
                    return found, () if attempt.note is None else (attempt.note,)
            except InputError as error:
                return f"{NOT_A_SCENARIO}: {error.problems[0].message}"
        return DOES_NOT_FIT

    def _holds(self, memory: GpuMemory) -> bool:
        """Whether an engine starts, and holds the load where that alone tells how many GPUs there were."""
        stated = self.placement.tensor_parallel is not None
        return memory.fits and (stated or memory.max_concurrency >= (self.load.batch or 1))

    def _attempts(self) -> Iterator[_Attempt]:
        """The layouts that are tried, in order."""
        stated, replicas = self.placement.tensor_parallel, self.placement.replicas
        fuller = f"does not fit at the preset's share of the memory: {_FULLER:g} taken"
        if stated is not None:
            yield _Attempt(stated, replicas)
            yield _Attempt(stated, replicas, _FULLER, fuller)
            together = stated * replicas
            whole = self.placement.attention_dp == 1 and self.model.model.divides_over(together)
            if replicas > 1 and whole:
                yield _Attempt(
                    together, 1, None, f"replicas do not fit: one engine over {together} GPUs taken"
                )
            return
        for size in (one for one in SIZES if self.model.model.divides_over(one)):
            note = f"GPUs not stated: {size}, the fewest that fit, taken"
            yield _Attempt(size, replicas, None, note)
            if size == NODE:
                yield _Attempt(size, replicas, _FULLER, f"{note}; {fuller}")

    def _data(self, attempt: _Attempt, variant: Mapping[str, Any] | None) -> dict[str, Any]:
        """The scenario as plain data."""
        engine: dict[str, Any] = {"preset": self.engine.preset, **self.engine.settings}
        if self._whole_prompts:
            engine["chunked_prefill"] = False
        if self.load.max_num_seqs is not None:
            engine["max_num_seqs"] = self.load.max_num_seqs
        elif self._capped:
            engine["max_num_seqs"] = load_preset(self.engine.preset)[0].draft_seats
        if attempt.utilisation is not None:
            engine["gpu_memory_utilization"] = attempt.utilisation
        target: dict[str, Any] = {"model": self.model.name, "kv_cache": self._kv_cache()}
        if self.model.weights is not None:
            target["weights"] = self.model.weights
        run: dict[str, Any] = {"replications": 1}
        if self.engine.serial:
            run["mechanisms"] = {"host_overlap": False, "ghost_rows": False}
        if self.placement.decodes_alone:
            run["mechanisms"] = {**run.get("mechanisms", {}), "prefill": False}
        return {
            "target": target,
            "hardware": {
                "gpu": self.gpu.name,
                "tensor_parallel": attempt.tensor_parallel,
                "expert_parallel": self.placement.expert_parallel,
                "attention_dp": self.placement.attention_dp,
                "replicas": attempt.replicas,
            },
            "engine": engine,
            "speculation": [] if variant is None else [dict(variant)],
            "workload": {
                "arrivals": dict(self.load.arrivals),
                "requests": self.load.requests,
                "prompt_tokens": self.lengths.prompt,
                "output_tokens": self.lengths.output,
                "ends": "max_tokens" if self.lengths.ends_foreseen else "eos",
            },
            "run": run,
        }

    @property
    def _capped(self) -> bool:
        """Whether SGLang seats fewer requests than come at once: it drafts, and nobody says how many."""
        said = self.load.max_num_seqs is not None or "max_num_seqs" in self.engine.settings
        seats = load_preset(self.engine.preset)[0].draft_seats
        few = self.load.batch is not None and self.load.batch <= seats
        drafts = self.side == "spec" and self.engine.name == SGLANG
        return drafts and seats > 0 and not (said or few or self.load.runs_together)

    @property
    def _whole_prompts(self) -> bool:
        """TensorRT-LLM cuts no prompt unless it is told to; one longer than a step tells that it was."""
        preset, _ = load_preset(self.engine.preset)
        room = self.engine.settings.get("max_num_batched_tokens", preset.max_num_batched_tokens)
        prompts = self.lengths.prompt
        longest = next(prompts[key] for key in ("max", "high", "tokens") if key in prompts)
        told = re.search(
            r"enable[-_]chunked[-_](?:prefill|context)(?!\W{0,3}(?:false|off|0\b))", self.case.text
        )
        return self.engine.name == TRTLLM and not told and longest <= room

    def _kv_cache(self) -> str:
        """What the source says, else its launch line, else the checkpoint: ModelOpt's FP8 recipe, which
        TensorRT-LLM and NIM run, stores the KV cache in FP8 too.
        """
        said = side_of(self.case.target.kv_precision, self.side)
        if said is not None:
            return kv_cache_of(said)
        launched = re.search(r"--kv-cache-dtype[ =](\w+)", self.case.text)
        if launched:
            return kv_cache_of(launched[1])
        modelopt = self.engine.preset.startswith("trtllm") and self.model.weights == "fp8"
        return "fp8" if modelopt else "bf16"


def scene_of(case: Case, point: Facts, lengths: LengthsChoice, side: Side) -> Scene | str:
    """One side of a point, or why it cannot be simulated."""
    gpu = gpu_of(side_of(case.hardware.gpu, side))
    if isinstance(gpu, str):
        return gpu
    said = point.get("precision") if isinstance(point.get("precision"), str) else case.target.weight_precision
    target = case.target
    if isinstance(point.get("model"), str):
        target = Target(model=point["model"], arch=target.arch, kv_precision=target.kv_precision)
    model = model_of(target, side_of(said, side), lengths.prompt_mean + lengths.output_mean)
    if isinstance(model, str):
        return model
    placement = placement_of(case, point, model.model)
    if isinstance(placement, str):
        return placement
    load = load_of(case, point, placement.ranks)
    if isinstance(load, str):
        return load
    engine = engine_of(case, side, method_of(case, point))
    return Scene(side, case, gpu, model, engine, load, lengths, placement)
