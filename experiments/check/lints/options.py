"""Options that were removed, have no effect, are not there yet, or never were options at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibration.launch.options import (
    KNOWN_KEYS,
    NEVER,
    NEW_IN,
    OLD_FLAGS,
    REMOVED_KEYS,
    known_option,
)
from experiments.check.lint import Hit
from experiments.check.lints import lint
from experiments.check.subject import Subject
from simulator.engines.presets import dotted
from simulator.errors import did_you_mean

_FORMATS = "vLLM config/speculative.py 0.17 to 0.33"


@lint(
    "name-never-existed",
    "error",
    "A name that no engine has ever had",
    source="release notes of the engines",
)
def never_existed(subject: Subject) -> Iterator[Hit]:
    for name, instead in NEVER.items():
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", subject.text):
            yield Hit(name, f"no engine has {name}", instead)


@lint(
    "flag-removed",
    "error",
    "A flag of vLLM before 0.8",
    engine="vllm",
    since=(0, 8),
    source="vLLM 0.8 release notes",
)
def flag_removed(subject: Subject) -> Iterator[Hit]:
    for name, key in OLD_FLAGS.items():
        if name in subject.settings and name in subject.text:  # with underscores, it never was one
            text = f"{name} was removed in 0.8"
            yield Hit(name, text, f"--speculative-config '{{\"{key}\": …}}'")


@lint(
    "option-without-effect",
    "warning",
    "An option that is accepted and not read",
    engine="vllm",
    applies="vLLM, by option",
    source="vllm-project/vllm#35060",
)
def without_effect(subject: Subject) -> Iterator[Hit]:
    for key, removed in REMOVED_KEYS.items():
        if key in subject.config and removed.dead <= subject.release < removed.gone:
            text = f"{key} has had no effect since {dotted(removed.dead)}"
            yield Hit(key, text, removed.instead)


@lint(
    "option-removed",
    "error",
    "An option that the version no longer has",
    engine="vllm",
    applies="vLLM, by option",
    source=_FORMATS,
)
def option_removed(subject: Subject) -> Iterator[Hit]:
    for key, removed in REMOVED_KEYS.items():
        if key in subject.config and subject.release >= removed.gone:
            yield Hit(key, f"{key} was removed by {dotted(removed.gone)}", removed.instead)


@lint(
    "option-too-new",
    "error",
    "An option that the version does not have yet",
    engine="vllm",
    applies="vLLM, by option",
    source=_FORMATS,
)
def too_new(subject: Subject) -> Iterator[Hit]:
    for key, since in NEW_IN.items():
        if key in subject.config and subject.release < since:
            yield Hit(key, f"{key} is there from {dotted(since)} on", f"vLLM {dotted(since)} or newer")


@lint(
    "option-unknown",
    "error",
    "A key or speculative flag that the engine refuses",
    source="formats of vLLM, SGLang, TensorRT-LLM",
)
def unknown(subject: Subject) -> Iterator[Hit]:
    known = KNOWN_KEYS[subject.engine]
    for key in subject.config:
        if f"--speculative_{key}" in subject.text and f"--speculative_{key}" in NEVER:
            continue
        if not known_option(subject.engine, key):
            guess = did_you_mean(key, known)
            fix = f"did you mean {guess}?" if guess else f"known: {', '.join(sorted(known))}"
            yield Hit(key, f"{subject.preset.engine} has no option {key}", fix)


@lint(
    "draft-tp-key",
    "error",
    "The target's name for tensor parallelism in the drafter's configuration",
    engine="vllm",
    source=_FORMATS,
)
def draft_tp_key(subject: Subject) -> Iterator[Hit]:
    if "tensor_parallel_size" in subject.config:
        text = "tensor_parallel_size in the speculative configuration is refused"
        yield Hit("tensor_parallel_size", text, "draft_tensor_parallel_size")


@lint(
    "config-not-json",
    "error",
    "A speculative configuration that is not JSON",
    applies="vLLM",
    source="vLLM engine/arg_utils.py",
)
def not_json(subject: Subject) -> Iterator[Hit]:
    import json

    for name in ("--speculative-config", "-sc"):
        text = subject.settings.get(name)
        if isinstance(text, str):
            try:
                json.loads(text)
            except ValueError:
                fix = f"{name} '{json.dumps(dict(subject.config))}'"
                yield Hit(name, "it is no JSON: keys and texts need double quotes", fix)


@lint(
    "mtp-name",
    "info",
    "A deprecated name of multi-token prediction",
    engine="vllm",
    since=(0, 12),
    source=_FORMATS,
)
def mtp_name(subject: Subject) -> Iterator[Hit]:
    named = str(subject.config.get("method", ""))
    if named.endswith("_mtp"):
        yield Hit("method", f"{named} is a deprecated spelling", '"method": "mtp"')


@lint(
    "method-removed",
    "error",
    "A method that the version no longer has",
    engine="vllm",
    since=(0, 33),
    applies="vLLM from 0.33: medusa, mlp_speculator",
    source="vllm-project/vllm#6777, vLLM 0.33.0",
)
def method_removed(subject: Subject) -> Iterator[Hit]:
    named = subject.config.get("method") or subject.method
    if named in ("medusa", "mlp_speculator"):
        text = f"vLLM has no {named} from 0.33 on"
        yield Hit(subject.place("method", "speculation.ARM.method"), text, "an EAGLE-3 head, or vLLM 0.32")


@lint(
    "method-unsupported",
    "error",
    "A method that the version does not run yet",
    engine="vllm",
    before=(0, 12),
    applies="vLLM 0.8 to 0.11: draft models; before 0.12: suffix",
    source="vllm-project/vllm#21278, #24322",
)
def method_unsupported(subject: Subject) -> Iterator[Hit]:
    place = subject.place("method", "speculation.ARM.method")
    if subject.method == "draft_model" and subject.release >= (0, 8):
        text = "the V1 engine runs draft models from 0.12 on; before, the slow V0 engine runs them"
        yield Hit(place, text, "vLLM 0.12 or newer")
    if subject.method == "suffix":
        yield Hit(place, "suffix is there from 0.12 on", "vLLM 0.12 or newer")


@lint(
    "ngram-window",
    "info",
    "n-grams without lookup lengths",
    engine="vllm",
    source="vllm-project/vllm#16258",
)
def ngram_window(subject: Subject) -> Iterator[Hit]:
    keys = ("prompt_lookup_max", "prompt_lookup_min")
    if subject.is_launch and subject.method == "ngram" and not any(key in subject.config for key in keys):
        text = "without lookup lengths only matches of exactly 5 tokens draft"
        yield Hit(keys[0], text, '"prompt_lookup_max": 5, "prompt_lookup_min": 2')
