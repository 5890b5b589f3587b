"""The setting of one side of a point: hardware, model, engine and load, everything but the drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from calibration.validation.reconstruction.cases import PublishedCase, Side
from calibration.validation.reconstruction.drafts import method_of
from calibration.validation.reconstruction.engines import SGLANG, TRTLLM, EngineChoice, engine_of
from calibration.validation.reconstruction.lengths import MOST_TOKENS, LengthsChoice
from calibration.validation.reconstruction.loads import PublishedLoad, load_of
from calibration.validation.reconstruction.models import ModelChoice, model_of
from calibration.validation.reconstruction.names import PublishedGpu, gpu_of, kv_cache_of, side_of
from calibration.validation.reconstruction.placement import NODE, SIZES, Placement, placement_of
from calibration.validation.reconstruction.sections import Facts, PublishedModel
from simulator.engines.presets import load_preset
from simulator.errors import InputError
from simulator.memory.gpu_memory import GpuMemory
from simulator.memory.report import gpu_memory
from simulator.scenario import Scenario, scenario_from_data

NO_CUDA_GRAPHS = "engine without CUDA graphs"
DOES_NOT_FIT = "does not fit the memory"
NOT_A_SCENARIO = "not a scenario"
CAPPED = "fewer requests run while it speculates: the default of SGLang"
DECODING_ONLY = "a batch of a paper's code: decoding only, prompts cost nothing here"
UNSPLIT_PROMPTS = "prompts are not split into chunks: the default of TensorRT-LLM"
_LARGER_SHARE = 0.96
"""Share of the memory that is tried if a source's own placement does not fit at the preset's share."""


class _Attempt(NamedTuple):
    """A layout to try: GPUs of a replica, replicas, share of the memory (None: the preset's), and a note."""

    tensor_parallel: int
    replicas: int
    utilisation: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class RunSetting:
    """The setting of one side of a point. If `placement.tensor_parallel` is None, `scenario` finds it."""

    side: Side
    case: PublishedCase
    gpu: PublishedGpu
    model: ModelChoice
    engine: EngineChoice
    load: PublishedLoad
    lengths: LengthsChoice
    placement: Placement

    @property
    def engine_name(self) -> str:
        """The preset's name; a paper's code keeps its own name, because no preset resembles it."""
        return str(self.case.framework.name) if self.engine.research else self.engine.preset

    @property
    def notes(self) -> tuple[str, ...]:
        """All assumptions."""
        about_gpu = (self.gpu.note,) if self.gpu.note else ()
        parts = (self.model, self.engine, self.placement, self.load, self.lengths)
        defaults = (
            (bool(self.case.from_words), f"read from words: {', '.join(self.case.from_words)}"),
            (self._unsplit_prompts, UNSPLIT_PROMPTS),
            (self._capped, CAPPED),
            (self._static_batch, DECODING_ONLY),
        )
        engine_notes = (note for applies, note in defaults if applies)
        return tuple(
            dict.fromkeys((*about_gpu, *engine_notes, *(note for part in parts for note in part.notes)))
        )

    def runs_as(self, other: RunSetting) -> bool:
        """Whether both sides ran on the same setting, so that one scenario serves both."""
        own_settings, engine_settings = (
            replace(setting, side="plain", engine=replace(setting.engine, notes=()))
            for setting in (self, other)
        )
        return own_settings == engine_settings and not self._capped and not other._capped

    def scenario(self, variant: Mapping[str, Any] | None) -> tuple[Scenario, tuple[str, ...]] | str:
        """The scenario with this speculative variant and the assumptions made for it to fit, or why there is
        none.
        """
        for attempt in self._attempts():
            data = self._data(attempt, variant)
            try:
                scenario = scenario_from_data(data)
                if all(self._holds(gpu_memory(scenario, method)) for method in (None, *scenario.speculation)):
                    return scenario, () if attempt.note is None else (attempt.note,)
            except InputError as error:
                return f"{NOT_A_SCENARIO}: {error.problems[0].message}"
        return DOES_NOT_FIT

    def _holds(self, memory: GpuMemory) -> bool:
        """Whether the engine starts. If the number of GPUs is not stated, it must also hold the load."""
        stated = self.placement.tensor_parallel is not None
        return memory.fits and (stated or memory.max_concurrency >= (self.load.batch or 1))

    def _attempts(self) -> Iterator[_Attempt]:
        """The layouts to try, in order."""
        stated, replicas = self.placement.tensor_parallel, self.placement.replicas
        fuller_note = f"does not fit at the preset's share of the memory: {_LARGER_SHARE:g} taken"
        if stated is not None:
            yield _Attempt(stated, replicas)
            yield _Attempt(stated, replicas, _LARGER_SHARE, fuller_note)
            all_gpus = stated * replicas
            divisible = self.placement.attention_dp == 1 and self.model.model.divides_over(all_gpus)
            if replicas > 1 and divisible:
                yield _Attempt(
                    all_gpus, 1, None, f"replicas do not fit: one engine over {all_gpus} GPUs taken"
                )
            return
        for size in (size for size in SIZES if self.model.model.divides_over(size)):
            note = f"GPUs not stated: {size}, the fewest that fit, taken"
            yield _Attempt(size, replicas, None, note)
            if size == NODE:
                yield _Attempt(size, replicas, _LARGER_SHARE, f"{note}; {fuller_note}")

    def _data(self, attempt: _Attempt, variant: Mapping[str, Any] | None) -> dict[str, Any]:
        """The scenario as plain data."""
        engine: dict[str, Any] = {"preset": self.engine.preset, **self.engine.settings}
        if self._unsplit_prompts:
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
        if self.placement.decodes_alone or self._static_batch:
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
                **self._shared_prefix(),
                "arrivals": dict(self.load.arrivals),
                "requests": self.load.requests,
                "prompt_tokens": self.lengths.prompt,
                "output_tokens": self.lengths.output,
                "ends": "max_tokens" if self.lengths.ends_foreseen else "eos",
            },
            "run": run,
        }

    @property
    def _static_batch(self) -> bool:
        """Whether a batch of a paper's code decodes; such code measures decoding apart from its prompts."""
        return self.engine.research and self.load.runs_together and (self.load.batch or 1) > 1

    def _shared_prefix(self) -> dict[str, Any]:
        """The leading tokens that all prompts have in common, where the source states them."""
        tokens = self.case.workload.shared_prefix_tokens
        if tokens is None or not 1 <= tokens <= MOST_TOKENS:
            return {}
        return {"sessions": {"turns": 1, "shared_prefix_tokens": round(tokens)}}

    @property
    def _capped(self) -> bool:
        """Whether SGLang's default limit of running requests applies: it drafts, and the source states no
        limit.
        """
        stated = self.load.max_num_seqs is not None or "max_num_seqs" in self.engine.settings
        limit = load_preset(self.engine.preset)[0].draft_seats
        below_limit = self.load.batch is not None and self.load.batch <= limit
        drafts = self.side == "spec" and self.engine.name == SGLANG
        return drafts and limit > 0 and not (stated or below_limit or self.load.runs_together)

    @property
    def _unsplit_prompts(self) -> bool:
        """Whether TensorRT-LLM leaves prompts whole: its default.

        A request longer than a step could not be computed again after a preemption, so its prompt is split.
        """
        preset, _ = load_preset(self.engine.preset)
        max_tokens = self.engine.settings.get("max_num_batched_tokens", preset.max_num_batched_tokens)
        longest = sum(_longest(part) for part in (self.lengths.prompt, self.lengths.output))
        chunked = self.case.engine_args.chunked_prefill
        return chunked is None and self.engine.name == TRTLLM and longest <= max_tokens

    def _kv_cache(self) -> str:
        """The KV-cache format: the source's, else its launch line's, else the checkpoint's.

        The FP8 recipe of ModelOpt, which TensorRT-LLM and NIM use, stores the KV cache in FP8, too.
        """
        stated = side_of(self.case.target.kv_precision, self.side) or self.case.engine_args.kv_cache_dtype
        if stated is not None and stated != "auto":
            return kv_cache_of(stated)
        modelopt = self.engine.preset.startswith("trtllm") and self.model.weights == "fp8"
        return "fp8" if modelopt else "bf16"


def _longest(lengths: Mapping[str, Any]) -> float:
    """The longest length that a distribution gives, tokens."""
    return float(next(lengths[key] for key in ("max", "high", "tokens") if key in lengths))


def setting_of(case: PublishedCase, point: Facts, lengths: LengthsChoice, side: Side) -> RunSetting | str:
    """The setting of one side of a point, or why it cannot be simulated."""
    if case.engine_args.cuda_graphs is False:
        return NO_CUDA_GRAPHS
    gpu = gpu_of(side_of(case.hardware.gpu, side))
    if isinstance(gpu, str):
        return gpu
    precision = (
        point.get("precision") if isinstance(point.get("precision"), str) else case.target.weight_precision
    )
    target = case.target
    if isinstance(point.get("model"), str):
        target = PublishedModel(model=point["model"], arch=target.arch, kv_precision=target.kv_precision)
    model = model_of(target, side_of(precision, side), lengths.prompt_mean + lengths.output_mean)
    if isinstance(model, str):
        return model
    placement = placement_of(case, point, model.model)
    if isinstance(placement, str):
        return placement
    load = load_of(case, point, placement.ranks)
    if isinstance(load, str):
        return load
    engine = engine_of(case, side, method_of(case, point))
    return RunSetting(side, case, gpu, model, engine, load, lengths, placement)
