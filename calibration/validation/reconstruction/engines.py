"""Chooses a preset for a published framework and version, and reads the settings of the source's launch line.

A preset is chosen by engine, then by whether host work overlaps the GPU, then by version, because step times
differ more between synchronous and asynchronous builds than between neighbouring versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibration.validation.reconstruction.cases import VARIANTS, PublishedCase, Side
from calibration.validation.reconstruction.names import side_of
from simulator.engines.preset import Preset
from simulator.engines.presets import of_version, presets, release_of

VLLM, SGLANG, TRTLLM = "vLLM", "SGLang", "TensorRT-LLM"

_KNOWN = (
    (r"sglang|sgl\b|specforge", SGLANG, None),
    (r"vllm", VLLM, None),
    (r"tensorrt|trt-?llm", TRTLLM, None),
    (r"\bnim\b", TRTLLM, "NIM taken as TensorRT-LLM, which it runs"),
    (r"lmdeploy|turbomind", TRTLLM, "LMDeploy has no preset: TensorRT-LLM taken"),
    (
        r"dynamo|inferencex|inferencemax|\btgi\b|text generation inference",
        VLLM,
        "no preset of its own: vLLM taken",
    ),
)
"""(pattern in a framework's name, engine whose preset is used, note on the choice)."""

_RESEARCH = re.compile(
    r"research|hugging|transformers|\bhf\b|gpt-?fast|authors|in-?house|official|medusa|pytorch|t5x", re.I
)
_GRAPHS = re.compile(r"cuda graph|gpt-?fast|compile", re.I)
_EAGER = (0, 0)
"""Version assumed for code that launches kernel by kernel, for which the oldest preset is the nearest."""
_RELEASES: Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]] = {
    VLLM: (
        ("2023-06", (0, 5)), ("2024-09", (0, 6)), ("2025-01", (0, 7)), ("2025-03", (0, 8)),
        ("2025-06", (0, 9)), ("2025-08", (0, 10)), ("2025-10", (0, 11)), ("2025-12", (0, 12)),
        ("2026-01", (0, 14)), ("2026-02", (0, 15)), ("2026-03", (0, 17)), ("2026-06", (0, 22)),
        ("2026-10", (0, 31)),
    ),
    SGLANG: (("2024-01", (0, 3)), ("2024-12", (0, 4)), ("2025-08", (0, 5, 0)), ("2026-04", (0, 5, 10))),
}  # fmt: skip
"""Engine → (month, release of that month), for sources that give a date instead of a version."""

_VLLM_ASYNCHRONOUS = (0, 14)
"""The first vLLM release with asynchronous scheduling by default (release notes of v0.14.0)."""
_VLLM_HOST_DRAFTING = re.compile(r"n_?gram|suffix(_decoding)?|prompt_lookup|pld(_ngram)?")
"""Published methods that draft on the host, for which vLLM turns asynchronous scheduling off ("only supported
with EAGLE/MTP/Draft Model/NGram GPU", vllm config/vllm.py, 0.17 to 0.30).
"""
_FLASHINFER_VERIFIES_IN_GRAPHS = (0, 28)
"""The first vLLM release that verifies in CUDA graphs with FlashInfer (vllm-project/vllm#50439)."""
_SGLANG_OVERLAPPED_SPECULATION = (0, 5, 10)
"""The first SGLang release whose speculation overlaps by default ("spec v2"). Before, only plain decoding did
(lmsys:mtp).
"""


@dataclass(frozen=True)
class EngineChoice:
    """A preset, and the fields of `engine` that the source sets."""

    name: str | None
    """The published engine if it has a preset of its own; None if another engine's preset is used instead."""
    preset: str
    settings: Mapping[str, Any]
    serial: bool
    """The preset overlaps host work with the GPU, but this side did not."""
    notes: tuple[str, ...]
    verifies_in_graphs: bool
    """False: drafts are verified without CUDA graphs by the prefill kernel, which is not simulated."""
    research: bool
    """A paper's code rather than a serving engine: its plain variant is slow and its drafts are trees."""


def engine_of(case: PublishedCase, side: Side, method: str | None = None) -> EngineChoice:
    """The engine of one side of a case; `method` is its published method."""
    name = side_of(case.framework.name, side) or ""
    version = side_of(case.framework.version, side) or ""
    words = f"{name} {version}".lower()
    engine, note = next(
        ((engine, note) for pattern, engine, note in _KNOWN if re.search(pattern, words)), (None, None)
    )
    research = engine is None and bool(_RESEARCH.search(words))
    own_engine = engine if "no preset" not in (note or "") else None
    if engine is None:
        engine = VLLM
        note = (
            f"{name or 'the framework'} has no preset: vLLM taken"
            if name
            else "framework not stated: vLLM taken"
        )
    release = None if research else _version(version) or _version(name)
    month = next((day for text in (version, case.framework.note, case.date) if (day := _month(text))), None)
    if release is None and month is not None and not research:
        release = _by_month(engine, month)
    drafts_on_host = (
        own_engine == VLLM and side == "spec" and _VLLM_HOST_DRAFTING.fullmatch(method or "") is not None
    )
    overlaps = not research and not drafts_on_host and _overlaps(engine, release, case, side, words)
    version_taken = _EAGER if research and not _GRAPHS.search(words) else release
    before_async = version_taken is not None and version_taken[:2] < _VLLM_ASYNCHRONOUS
    preset = _preset_of(
        engine, version_taken, overlaps, drafts_on_host or (engine == VLLM and before_async and not overlaps)
    )
    notes = [note] if note else []
    stated_name = f"{name} {version}".strip()
    if release is None and note is None:
        notes.append(f"{stated_name} names no version: preset {preset.name} taken")
    elif release is not None and release_of(preset.version) != release[: len(release_of(preset.version))]:
        notes.append(f"{stated_name}: preset {preset.name} taken")
    if preset.asynchronous and not overlaps:
        notes.append("host work does not overlap on this side")
    if drafts_on_host and (release or _VLLM_ASYNCHRONOUS) >= _VLLM_ASYNCHRONOUS:
        notes.append("vLLM waits for prompt lookup on the host: a synchronous preset taken")
    flashinfer = "flashinfer" in (case.engine_args.attention_backend or "").lower()
    return EngineChoice(
        own_engine,
        preset.name,
        _settings(case),
        preset.asynchronous and not overlaps,
        tuple(notes),
        not (
            flashinfer
            and own_engine == VLLM
            and release is not None
            and release < _FLASHINFER_VERIFIES_IN_GRAPHS
        ),
        research,
    )


def _version(text: str) -> tuple[int, ...] | None:
    """The first release number in a text.

    Dates and bare years are not releases, nor is a development build without an earlier release ("0.1.dev…").
    """
    if re.match(r"\W*v?0\.[01](?:\.0)?\.dev", text):
        return None
    text = re.sub(r"\b20\d\d-\d\d(?:-\d\d)?\b", "", text)
    match = re.search(r"(?<![\w.])v?(\d{1,2}\.\d+(?:\.\d+)?)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else None


def _month(text: str | None) -> str | None:
    match = re.search(r"\b20\d\d-\d\d\b", text or "")
    return match[0] if match else None


def _by_month(engine: str, month: str) -> tuple[int, ...] | None:
    """The newest release of that month."""
    releases = [release for since, release in _RELEASES.get(engine, ()) if since <= month]
    return releases[-1] if releases else None


def _overlaps(
    engine: str, version: tuple[int, ...] | None, case: PublishedCase, side: Side, words: str
) -> bool:
    """Whether host work overlaps the GPU on this side."""
    stated = case.engine_args.async_scheduling
    if isinstance(stated, Mapping):
        stated = stated.get(VARIANTS[side])
    if isinstance(stated, bool):
        return stated
    if engine == VLLM:
        return version is None or version[:2] >= _VLLM_ASYNCHRONOUS
    if engine == SGLANG and side == "spec":
        return "spec v2" in words or (version or (0,)) >= _SGLANG_OVERLAPPED_SPECULATION
    return True


def _preset_of(engine: str, version: tuple[int, ...] | None, overlaps: bool, synchronous: bool) -> Preset:
    """The preset for a version of an engine, preferably one that overlaps or is synchronous as asked."""
    candidates = [preset for preset in presets().values() if preset.engine == engine]
    if synchronous:
        candidates = [preset for preset in candidates if not preset.asynchronous] or candidates
    if version is None:
        return max(candidates, key=lambda preset: release_of(preset.version))
    overlapping = [preset for preset in candidates if preset.asynchronous or not overlaps] or candidates
    return of_version(overlapping, version)


_WHOLE = ("max_num_seqs", "max_num_batched_tokens")
_MOST = 262_144


def _settings(case: PublishedCase) -> dict[str, Any]:
    """The scenario's engine settings that the engine's arguments give."""
    arguments = case.engine_args
    settings: dict[str, Any] = {
        name: round(value)
        for name in _WHOLE
        if (value := getattr(arguments, name)) is not None and 1 <= value <= _MOST
    }
    share = arguments.gpu_memory_utilization
    if share is not None and 0 < share <= 1:
        settings["gpu_memory_utilization"] = share
    for name in ("chunked_prefill", "prefix_caching"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    return settings
