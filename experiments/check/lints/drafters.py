"""Drafters: their kind, their target, their context, their GPUs and their memory."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.check.lint import Hit
from experiments.check.lints import lint
from experiments.check.subject import Subject
from simulator.models.catalogue import entry, known_drafter, known_model

SMALL_PARAMETERS = 4e9
"""A draft model up to this size waits for its all-reduces rather than for its weights."""
_KINDS = ("eagle3", "eagle")


def _drafter(subject: Subject) -> str | None:
    keys = ("model", "draft_model_path", "speculative_model")
    stated = (subject.config.get(key) for key in keys)
    name = next((name for name in stated if name), subject.entry.get("draft"))
    return name if isinstance(name, str) else None


def _kind_of(name: str) -> str | None:
    """The kind of head that a name means: by the catalogue, else by its words."""
    known = known_drafter(name)
    if known is not None and entry(known).method in _KINDS:
        return entry(known).method
    lower = name.lower().replace("_", "-")
    if "eagle3" in lower or "eagle-3" in lower:
        return "eagle3"
    return "eagle" if "eagle-" in lower and "p-eagle" not in lower else None


@lint(
    "head-type",
    "error",
    "An EAGLE-3 head under the method EAGLE, or the other way round",
    source="sgl-project/sglang#21272",
)
def head_type(subject: Subject) -> Iterator[Hit]:
    name = _drafter(subject)
    kind = _kind_of(name) if name is not None else None
    if subject.method in _KINDS and kind is not None and kind != subject.method:
        text = f"{name} is an {kind} head: run as {subject.method}, it is accepted never, and nothing warns"
        option = {"sglang": "--speculative-algorithm", "trtllm": "decoding_type"}.get(
            subject.engine, "method"
        )
        yield Hit(subject.place(option, "speculation.ARM.method"), text, kind)


@lint(
    "drafter-of-other-model",
    "warning",
    "A drafter that was trained for another model",
    source="model cards, in the catalogue",
)
def other_model(subject: Subject) -> Iterator[Hit]:
    name = _drafter(subject)
    known = known_drafter(name) if name is not None else None
    served = subject.data.get("target", {}).get("model")
    model = known_model(served) if isinstance(served, str) else None
    if known is None or model is None or subject.method not in (*_KINDS, "mtp"):
        return
    targets = entry(known).targets
    if targets and model not in targets:
        text = f"{known} was trained for {', '.join(targets)}, not for {model}"
        yield Hit(
            subject.place("model", "speculation.ARM.draft"),
            text,
            "a drafter of this model: see docs/models.md",
        )


@lint(
    "drafter-context",
    "warning",
    "Half of the prompts are longer than the drafter's context",
    source="sgl-project/sglang#6783, SafeAILab/EAGLE#311",
)
def drafter_context(subject: Subject) -> Iterator[Hit]:
    from simulator.scenario import LengthsFixed, LengthsLognormal, LengthsUniform

    if subject.scenario is None or "workload" not in subject.data or subject.is_launch:
        return
    lengths = subject.scenario.workload.prompt_tokens
    match lengths:
        case LengthsFixed():
            median = float(lengths.tokens)
        case LengthsLognormal():
            median = lengths.median
        case LengthsUniform():
            median = (lengths.low + lengths.high) / 2
        case _:
            return
    limit = subject.entry.get("max_context_tokens")
    drafter = subject.models[1] if subject.models else None
    if limit is None and drafter is not None:
        limit = drafter.max_context_tokens
    if limit is not None and median > limit:
        text = (
            f"the median prompt has {median:,.0f} tokens, the drafter's context {limit:,}: it drafts no more"
        )
        yield Hit(
            subject.place("max_model_len", "speculation.ARM.max_context_tokens"),
            text,
            "a drafter trained on longer contexts",
        )


@lint(
    "draft-tp",
    "warning",
    "A small draft model over several GPUs",
    engine="vllm",
    source="vllm-project/vllm#24322, sgl-project/sglang#6949",
)
def draft_tp(subject: Subject) -> Iterator[Hit]:
    if subject.method != "draft_model" or subject.models is None:
        return
    drafter = subject.models[1]
    ranks = subject.entry.get("draft_tensor_parallel") or subject.tensor_parallel
    if drafter is not None and ranks > 1 and drafter.parameters <= SMALL_PARAMETERS:
        text = f"{drafter.name} on {ranks} GPUs waits for its all-reduces in each of its passes"
        place = subject.place("draft_tensor_parallel_size", "speculation.ARM.draft_tensor_parallel")
        yield Hit(place, text, "1")


@lint(
    "mtp-multiple",
    "error",
    "K is no multiple of the prediction modules",
    engine="vllm",
    source="vLLM config/speculative.py",
)
def mtp_multiple(subject: Subject) -> Iterator[Hit]:
    drafter = subject.models[1] if subject.models else None
    if subject.method != "mtp" or drafter is None or subject.draft_length is None:
        return
    if drafter.modules > 1 and subject.draft_length % drafter.modules:
        text = f"{drafter.name} has {drafter.modules} modules, and vLLM refuses K {subject.draft_length}"
        place = subject.place("num_speculative_tokens", "speculation.ARM.draft_length")
        yield Hit(place, text, f"a multiple of {drafter.modules}")


@lint(
    "does-not-fit",
    "error",
    "The memory does not hold the model with its drafter",
    source="vllm-project/vllm#9995; docs/engines.md",
)
def does_not_fit(subject: Subject) -> Iterator[Hit]:
    from simulator.memory.report import fix_of, gpu_memory, smallest_tensor_parallel

    if subject.scenario is None:
        return
    memory = gpu_memory(subject.scenario, subject.variant)
    if not memory.fits:
        fix = fix_of(smallest_tensor_parallel(subject.scenario))
        place = subject.place("--tensor-parallel-size", "hardware.tensor_parallel")
        yield Hit(place, memory.shortage or "the memory does not hold it", fix)
