"""The plan of the committed measurement on SmolLM2-135M: drafters, settings, prompts and processes."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.acceptance.prompts import DOMAINS, TokenisedPrompt, builtin_prompts
from calibration.acceptance.samples import DecodingSetting, RequestSample, sample_from_json

MODEL_BASED, TEXT_BASED = ("layer-skip", "quantised:3"), ("ngram", "suffix", "lookahead")
TEMPERATURES = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
DRAFT_LENGTHS = tuple(range(1, 9))
UNUSED_FROM = 16
"""Prompts of a domain from this index on are not used by fits."""
TOKENS = 64
"""Output tokens of a request for measuring acceptance."""
_BATCH_SLOTS, PROCESSES = 24, 2


@dataclass(frozen=True)
class MeasurementBlock:
    """These drafters under these settings on the first `prompts` prompts of each domain."""

    drafts: tuple[str, ...]
    settings: tuple[DecodingSetting, ...]
    prompts: int
    max_tokens: int = TOKENS


def _greedy_and_sampled(temperatures: tuple[float, ...], draft_length: int) -> tuple[DecodingSetting, ...]:
    return tuple(
        DecodingSetting(temperature, draft_length, how)
        for temperature in temperatures
        for how in (("greedy",) if temperature == 0.0 else ("greedy", "sampled"))
    )


BLOCKS = (
    # Acceptance by draft length, on prompts for fits and on others for predictions.
    MeasurementBlock(
        ("layer-skip",),
        tuple(
            DecodingSetting(t, k, how)
            for k in DRAFT_LENGTHS
            for t, how in ((0.0, "greedy"), (1.0, "sampled"))
        ),
        prompts=24,
    ),
    # Acceptance of each drafter by temperature.
    MeasurementBlock(MODEL_BASED, _greedy_and_sampled(TEMPERATURES, 4), prompts=8),
    MeasurementBlock(TEXT_BASED, tuple(DecodingSetting(t, 4) for t in TEMPERATURES), prompts=8),
    # Drafts longer than useful.
    MeasurementBlock(("layer-skip",), (DecodingSetting(0.0, 12), DecodingSetting(0.0, 16)), prompts=12),
    # Greedy outputs, to compare with plain decoding token for token.
    MeasurementBlock(("plain",), (DecodingSetting(0.0, 0),), prompts=25, max_tokens=100),
    MeasurementBlock((*MODEL_BASED, *TEXT_BASED), (DecodingSetting(0.0, 4),), prompts=25, max_tokens=100),
    MeasurementBlock(
        ("layer-skip",), tuple(DecodingSetting(1.0, k, "greedy") for k in DRAFT_LENGTHS), prompts=8
    ),
    # Acceptance by precision of the weights.
    MeasurementBlock(
        ("quantised:2", "quantised:4", "quantised:8"), _greedy_and_sampled((0.0, 1.0), 4), prompts=8
    ),
)


def trained_blocks(drafts: tuple[str, ...]) -> tuple[MeasurementBlock, ...]:
    """The measurements of trained drafters."""
    return (
        MeasurementBlock(drafts, _greedy_and_sampled((0.0, 1.0), 4), prompts=8),
        MeasurementBlock(drafts, _greedy_and_sampled((0.3, 0.6, 1.5, 2.0, 3.0), 4), prompts=4),
    )


def trained_in(folder: Path | None) -> dict[str, str]:
    """Return {name: KIND:FOLDER} of the trained drafters in the subfolders of a folder."""
    entries: dict[str, str] = {}
    for path in sorted(folder.glob("*/config.json")) if folder is not None else ():
        kind = json.loads(path.read_text(encoding="utf-8")).get("decodesim", {}).get("kind")
        if kind is not None:
            entries[path.parent.name] = f"{'draft-model' if kind == 'student' else kind}:{path.parent}"
    return entries


def planned(sample: RequestSample, trained: Collection[str]) -> bool:
    """Whether a sample is part of the plan. Raw files of an older plan may hold other samples."""
    return any(
        sample.draft in block.drafts
        and sample.setting in block.settings
        and sample.max_tokens == block.max_tokens
        for block in (*BLOCKS, *trained_blocks(tuple(trained)))
    )


def run(raw: Path, part: int, parts: int, trained: Path | None) -> Iterator[RequestSample]:
    """Measure what the raw folder lacks of one part of the prompts; yield samples as they complete."""
    from calibration.acceptance.harness import measure
    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target_session import load_target

    target = load_target()
    prompts = planned_prompts(target.tokenizer)
    done = {sample.key for sample in read_raw(raw)}
    names = trained_in(trained)
    for block in (*BLOCKS, *trained_blocks(tuple(names))):
        part_prompts = [
            prompt
            for domain in DOMAINS
            for index, prompt in enumerate([p for p in prompts if p.domain == domain][: block.prompts])
            if index % parts == part
        ]
        for draft in block.drafts:
            maker = None if draft == "plain" else load_drafter(names.get(draft, draft), target)[1]
            for sample in measure(
                target.network,
                draft,
                maker,
                part_prompts,
                block.settings,
                max_tokens=block.max_tokens,
                done=done,
                batch_slots=_BATCH_SLOTS,
            ):
                done.add(sample.key)
                yield sample


def read_raw(raw: Path) -> Iterator[RequestSample]:
    """Yield the samples of all raw files; a last line that was cut by an interruption is skipped."""
    for path in sorted(raw.glob("part-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                document = json.loads(line)
            except json.JSONDecodeError:
                continue
            yield sample_from_json(document)


def planned_prompts(tokenizer: Any) -> list[TokenisedPrompt]:
    """Return the prompts of the plan: per domain, as many as the largest block uses."""
    return builtin_prompts(tokenizer, max(block.prompts for block in BLOCKS))


def unused_prompts(prompts: list[TokenisedPrompt]) -> frozenset[str]:
    """Return the names of the prompts that fits do not use."""
    by_domain = ([prompt for prompt in prompts if prompt.domain == domain] for domain in DOMAINS)
    return frozenset(prompt.name for of_domain in by_domain for prompt in of_domain[UNUSED_FROM:])


def measure_part(raw: Path, part: int, parts: int, trained: Path | None) -> None:
    """Run one part into its raw file, and append the resources it took to taken.jsonl."""
    import resource

    import torch

    torch.set_num_threads(1)
    started_s, steps, levels = time.monotonic(), 0, 0
    with (raw / f"part-{part}-of-{parts}.jsonl").open("a", encoding="utf-8") as file:
        for sample in run(raw, part, parts, trained):
            file.write("\n" * (file.tell() > 0) + json.dumps(sample.to_json()))
            file.flush()
            steps, levels = steps + len(sample.accepted), levels + sum(sample.drafted)
    resources = {
        "seconds": round(time.monotonic() - started_s, 1),
        "processor_seconds": round(time.process_time(), 1),
        "verify_steps": steps,
        "drafted_positions": levels,
        "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    if steps:
        with (raw / "taken.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(resources) + "\n")
