"""Chooses a preset for a published framework and version, and reads the settings of the source's launch line.

A preset is chosen by engine, then by whether host work overlaps the GPU, then by version, because step times
differ more between synchronous and asynchronous builds than between neighbouring versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.validation.reconstruction.cases import PublishedCase, Side
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
_SERIAL = re.compile(
    r"async\w*[- ]scheduling (?:off|disabled)|disables async\w*[- ]scheduling|no-async|disable-overlap"
)
_DRAFTING = re.compile(r"\bspec(?:ulati\w+)?\b|draft|n-?gram|eagle|mtp")
"""A clause with these words is about the variant that drafts …"""
_NOT_DRAFTING = re.compile(r"\b(?:plain|baseline|both)\b|\b(?:without|no)\s+(?:spec|draft|n-?gram|eagle|mtp)")
"""… unless it has these words, too: then it is about the plain variant or both."""
_FLASHINFER = re.compile(r"attention[-_ ]backend\W{1,3}flashinfer")
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
    flashinfer = _FLASHINFER.search(case.text) is not None
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
    text = f"{words} · {case.text}"
    if side == "plain" and re.search(r"(?:plain|baseline) without overlap", text):
        return False
    if any(_SERIAL.search(clause) and (side == "spec" or plain) for clause, plain in _clauses(text)):
        return False
    if engine == VLLM:
        return "--async-scheduling" in text or version is None or version[:2] >= _VLLM_ASYNCHRONOUS
    if engine == SGLANG and side == "spec":
        return "spec v2" in words or (version or (0,)) >= _SGLANG_OVERLAPPED_SPECULATION
    return True


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    """The clauses of a text, and whether each is about plain decoding or both variants.

    A clause that names no variant is about the variant named last in its sentence.
    """
    for sentence in re.split(r"[;·]|\.\s", text):
        plain = True
        for clause in re.split(r"[,()]", sentence):
            if _DRAFTING.search(clause) or _NOT_DRAFTING.search(clause):
                plain = _NOT_DRAFTING.search(clause) is not None
            yield clause, plain


def _preset_of(engine: str, version: tuple[int, ...] | None, overlaps: bool, synchronous: bool) -> Preset:
    """The preset for a version of an engine, preferably one that overlaps or is synchronous as asked."""
    candidates = [preset for preset in presets().values() if preset.engine == engine]
    if synchronous:
        candidates = [preset for preset in candidates if not preset.asynchronous] or candidates
    if version is None:
        return max(candidates, key=lambda preset: release_of(preset.version))
    overlapping = [preset for preset in candidates if preset.asynchronous or not overlaps] or candidates
    return of_version(overlapping, version)


_FLAGS: tuple[tuple[str, str, type[int] | type[float]], ...] = (
    (r"max[-_]num[-_]seqs", "max_num_seqs", int),
    (r"max[-_]running[-_]requests", "max_num_seqs", int),
    (r"max[-_]batch[-_]size", "max_num_seqs", int),
    (r"max[-_]num[-_]batched[-_]tokens", "max_num_batched_tokens", int),
    (r"max[-_]num[-_]tokens", "max_num_batched_tokens", int),
    (r"kv_cache_free_gpu_mem_fraction", "gpu_memory_utilization", float),
    (r"chunked[-_]prefill[-_]size", "max_num_batched_tokens", int),
    (r"gpu[-_]memory[-_]utilization", "gpu_memory_utilization", float),
    (r"mem[-_]fraction[-_]static", "gpu_memory_utilization", float),
)


def _settings(case: PublishedCase) -> dict[str, Any]:
    """The engine settings in the launch line of a case's notes."""
    settings: dict[str, Any] = {}
    for pattern, key, read in _FLAGS:
        match = re.search(rf"--{pattern}[ =](\d+(?:\.\d+)?)", case.text)
        if match:
            value = read(float(match[1]))
            if (0 < value <= 1) if key == "gpu_memory_utilization" else (1 <= value <= 262_144):
                settings[key] = value
    return settings
