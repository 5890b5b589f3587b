"""Framework and version as published → a preset, and what the source's launch line sets beside it.

A preset is chosen by engine, then by whether it can do the host's work while the GPU runs, then by version:
what a step waits for differs more between synchronous and asynchronous builds than between neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.validation.trials.cases import Case, Side
from calibration.validation.trials.names import side_of
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
"""Words of a framework's name → engine whose preset serves, and what to say of it."""

_RESEARCH = re.compile(
    r"research|hugging|transformers|\bhf\b|gpt-?fast|authors|in-?house|official|medusa|pytorch|t5x", re.I
)
_GRAPHS = re.compile(r"cuda graph|gpt-?fast|compile", re.I)
_EAGER = (0, 0)
"""Stands for code that launches kernel by kernel: the oldest preset is the nearest."""
_RELEASES: Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]] = {
    VLLM: (
        ("2023-06", (0, 5)), ("2024-09", (0, 6)), ("2025-01", (0, 7)), ("2025-03", (0, 8)),
        ("2025-06", (0, 9)), ("2025-08", (0, 10)), ("2025-10", (0, 11)), ("2025-12", (0, 12)),
        ("2026-01", (0, 14)), ("2026-03", (0, 17)), ("2026-06", (0, 22)), ("2026-10", (0, 31)),
    ),
    SGLANG: (("2024-01", (0, 3)), ("2024-12", (0, 4)), ("2025-08", (0, 5, 0)), ("2026-04", (0, 5, 10))),
}  # fmt: skip
"""Engine → (month, release of that time), for sources that give a date in place of a version."""

_VLLM_ASYNCHRONOUS = (0, 14)
"""The first vLLM whose scheduler runs ahead by default (release notes of v0.14.0)."""
_VLLM_LOOK_UPS = re.compile(r"n_?gram|suffix(_decoding)?|prompt_lookup|pld(_ngram)?")
"""Published methods that take their tokens from the host, so that vLLM turns asynchronous scheduling off
("only supported with EAGLE/MTP/Draft Model/NGram GPU", vllm config/vllm.py, 0.17 to 0.30).
"""
_SERIAL = re.compile(
    r"async\w*[- ]scheduling (?:off|disabled)|disables async\w*[- ]scheduling|no-async|disable-overlap"
)
_DRAFTING = re.compile(r"\bspec(?:ulati\w+)?\b|draft|n-?gram|eagle|mtp")
"""In a clause: it is about the variant that drafts …"""
_NOT_DRAFTING = re.compile(r"\b(?:plain|baseline|both)\b|\b(?:without|no)\s+(?:spec|draft|n-?gram|eagle|mtp)")
"""… and not the other, or both."""
_FLASHINFER = re.compile(r"attention[-_ ]backend\W{1,3}flashinfer")
_FLASHINFER_VERIFIES_IN_GRAPHS = (0, 28)
"""The first vLLM that does (vllm-project/vllm#50439)."""
_SGLANG_OVERLAPPED_SPECULATION = (0, 5, 10)
"""SGLang whose speculation overlaps by default ("spec v2"); before, only plain decoding did (lmsys:mtp)."""


@dataclass(frozen=True)
class EngineChoice:
    """A preset, and the fields of `engine` that the source sets."""

    name: str | None
    """The engine as published, of those that have a preset; None: another, for which `preset` stands in."""
    preset: str
    settings: Mapping[str, Any]
    serial: bool
    """The preset would do host work while the GPU runs; this side did not."""
    notes: tuple[str, ...]
    verifies_in_graphs: bool
    """False: drafts are verified by the kernel for prompts, launched one by one, which is not simulated."""
    research: bool
    """Code of a paper, not a serving engine: its plain variant is slow, and its drafts are trees."""


def engine_of(case: Case, side: Side, method: str | None = None) -> EngineChoice:
    """The engine of one side of a case, which drafts by a published method."""
    name = side_of(case.framework.name, side) or ""
    version = side_of(case.framework.version, side) or ""
    words = f"{name} {version}".lower()
    engine, note = next(
        ((engine, note) for pattern, engine, note in _KNOWN if re.search(pattern, words)), (None, None)
    )
    research = engine is None and bool(_RESEARCH.search(words))
    own = engine if "no preset" not in (note or "") else None
    if engine is None:
        engine = VLLM
        note = (
            f"{name or 'the framework'} has no preset: vLLM taken"
            if name
            else "framework not stated: vLLM taken"
        )
    found = None if research else _version(version) or _version(name)
    month = next((day for text in (version, case.framework.note, case.date) if (day := _month(text))), None)
    if found is None and month is not None and not research:
        found = _by_month(engine, month)
    looks_up = own == VLLM and side == "spec" and _VLLM_LOOK_UPS.fullmatch(method or "") is not None
    overlaps = not research and not looks_up and _overlaps(engine, found, case, side, words)
    version_taken = _EAGER if research and not _GRAPHS.search(words) else found
    old = version_taken is not None and version_taken[:2] < _VLLM_ASYNCHRONOUS
    preset = _preset_of(
        engine, version_taken, overlaps, looks_up or (engine == VLLM and old and not overlaps)
    )
    notes = [note] if note else []
    asked = f"{name} {version}".strip()
    if found is None and note is None:
        notes.append(f"{asked} names no version: preset {preset.name} taken")
    elif found is not None and release_of(preset.version) != found[: len(release_of(preset.version))]:
        notes.append(f"{asked}: preset {preset.name} taken")
    if preset.asynchronous and not overlaps:
        notes.append("host work does not overlap on this side")
    if looks_up and (found or _VLLM_ASYNCHRONOUS) >= _VLLM_ASYNCHRONOUS:
        notes.append("vLLM waits for drafts that are looked up on the host: a synchronous preset taken")
    flashinfer = _FLASHINFER.search(case.text) is not None
    return EngineChoice(
        own,
        preset.name,
        _settings(case),
        preset.asynchronous and not overlaps,
        tuple(notes),
        not (flashinfer and own == VLLM and found is not None and found < _FLASHINFER_VERIFIES_IN_GRAPHS),
        research,
    )


def _version(text: str) -> tuple[int, ...] | None:
    """The first release number in a text; dates and bare years are none, nor is a build that knows no release
    before it ("0.1.dev…").
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
    """The release of that time."""
    past = [release for since, release in _RELEASES.get(engine, ()) if since <= month]
    return past[-1] if past else None


def _overlaps(engine: str, version: tuple[int, ...] | None, case: Case, side: Side, words: str) -> bool:
    """Whether the host works ahead of the GPU on this side."""
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
    """The clauses of a text, and whether each speaks of plain decoding, too. One that names no variant
    speaks of
    the variant that its sentence named last."""
    for sentence in re.split(r"[;·]|\.\s", text):
        plain = True
        for clause in re.split(r"[,()]", sentence):
            if _DRAFTING.search(clause) or _NOT_DRAFTING.search(clause):
                plain = _NOT_DRAFTING.search(clause) is not None
            yield clause, plain


def _preset_of(engine: str, version: tuple[int, ...] | None, overlaps: bool, synchronous: bool) -> Preset:
    """The preset of a version of an engine, of those that overlap or that are synchronous where that is asked
    and there are some.
    """
    same = [preset for preset in presets().values() if preset.engine == engine]
    if synchronous:
        same = [preset for preset in same if not preset.asynchronous] or same
    if version is None:
        return max(same, key=lambda preset: release_of(preset.version))
    able = [preset for preset in same if preset.asynchronous or not overlaps] or same
    return of_version(able, version)


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


def _settings(case: Case) -> dict[str, Any]:
    """What the launch line in a case's notes sets."""
    found: dict[str, Any] = {}
    for pattern, key, read in _FLAGS:
        match = re.search(rf"--{pattern}[ =](\d+(?:\.\d+)?)", case.text)
        if match:
            value = read(float(match[1]))
            if (0 < value <= 1) if key == "gpu_memory_utilization" else (1 <= value <= 262_144):
                found[key] = value
    return found
