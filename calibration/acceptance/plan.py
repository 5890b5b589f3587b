"""The committed measurement: what is measured on SmolLM2-135M, on how many prompts, and by which process."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.acceptance.prompts import DOMAINS, Prompt, builtin_prompts
from calibration.acceptance.samples import Sample, Setting, sample_from_json

MODEL_BASED, LOOK_UPS = ("layer-skip", "quantised:3"), ("ngram", "suffix", "lookahead")
TEMPERATURES = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
DRAFT_LENGTHS = tuple(range(1, 9))
UNUSED_FROM = 16
"""Of each domain, prompts from this number on are kept from fits."""
TOKENS = 64
"""Output tokens of a request, where acceptance is measured."""
_LANES, PROCESSES = 24, 2


@dataclass(frozen=True)
class Block:
    """One question: these drafters under these settings on the first prompts of each domain."""

    drafts: tuple[str, ...]
    settings: tuple[Setting, ...]
    prompts: int
    max_tokens: int = TOKENS


def _both(temperatures: tuple[float, ...], draft_length: int) -> tuple[Setting, ...]:
    return tuple(
        Setting(temperature, draft_length, how)
        for temperature in temperatures
        for how in (("greedy",) if temperature == 0.0 else ("greedy", "sampled"))
    )


BLOCKS = (
    # How acceptance follows from the draft length, on prompts to fit and on others to predict.
    Block(
        ("layer-skip",),
        tuple(Setting(t, k, how) for k in DRAFT_LENGTHS for t, how in ((0.0, "greedy"), (1.0, "sampled"))),
        prompts=24,
    ),
    # What temperature does to each drafter.
    Block(MODEL_BASED, _both(TEMPERATURES, 4), prompts=8),
    Block(LOOK_UPS, tuple(Setting(t, 4) for t in TEMPERATURES), prompts=8),
    # Drafts that are too long.
    Block(("layer-skip",), (Setting(0.0, 12), Setting(0.0, 16)), prompts=12),
    # The same output as plain decoding, token for token.
    Block(("plain",), (Setting(0.0, 0),), prompts=25, max_tokens=100),
    Block((*MODEL_BASED, *LOOK_UPS), (Setting(0.0, 4),), prompts=25, max_tokens=100),
    Block(("layer-skip",), tuple(Setting(1.0, k, "greedy") for k in DRAFT_LENGTHS), prompts=8),
    # What coarser weights cost.
    Block(("quantised:2", "quantised:4", "quantised:8"), _both((0.0, 1.0), 4), prompts=8),
)


def trained_blocks(drafts: tuple[str, ...]) -> tuple[Block, ...]:
    """What is asked of trained drafters."""
    return (
        Block(drafts, _both((0.0, 1.0), 4), prompts=8),
        Block(drafts, _both((0.3, 0.6, 1.5, 2.0, 3.0), 4), prompts=4),
    )


def trained_in(folder: Path | None) -> dict[str, str]:
    """Return {name: KIND:FOLDER} of the trained drafters in a folder of folders."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*/config.json")) if folder is not None else ():
        kind = json.loads(path.read_text(encoding="utf-8")).get("decodesim", {}).get("kind")
        if kind is not None:
            found[path.parent.name] = f"{'draft-model' if kind == 'student' else kind}:{path.parent}"
    return found


def planned(sample: Sample, trained: Collection[str]) -> bool:
    """Whether the plan asks for a sample: raw files of an older plan may hold others."""
    return any(
        sample.draft in block.drafts
        and sample.setting in block.settings
        and sample.max_tokens == block.max_tokens
        for block in (*BLOCKS, *trained_blocks(tuple(trained)))
    )


def run(raw: Path, part: int, parts: int, trained: Path | None) -> Iterator[Sample]:
    """Measure what the raw folder lacks of one part of the prompts; yield the samples as they end."""
    from calibration.acceptance.harness import measure
    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target import load_target

    target = load_target()
    prompts = planned_prompts(target.tokenizer)
    done = {sample.key for sample in read_raw(raw)}
    names = trained_in(trained)
    for block in (*BLOCKS, *trained_blocks(tuple(names))):
        chosen = [
            prompt
            for domain in DOMAINS
            for place, prompt in enumerate([one for one in prompts if one.domain == domain][: block.prompts])
            if place % parts == part
        ]
        for draft in block.drafts:
            maker = None if draft == "plain" else load_drafter(names.get(draft, draft), target)[1]
            for sample in measure(
                target.network,
                draft,
                maker,
                chosen,
                block.settings,
                max_tokens=block.max_tokens,
                done=done,
                lanes=_LANES,
            ):
                done.add(sample.key)
                yield sample


def read_raw(raw: Path) -> Iterator[Sample]:
    """Yield the samples of all raw files; a last line cut short by an interruption is skipped."""
    for path in sorted(raw.glob("part-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                document = json.loads(line)
            except json.JSONDecodeError:
                continue
            yield sample_from_json(document)


def planned_prompts(tokenizer: Any) -> list[Prompt]:
    """Return the prompts of the plan, of each domain as many as any block takes."""
    return builtin_prompts(tokenizer, max(block.prompts for block in BLOCKS))


def unused_prompts(prompts: list[Prompt]) -> frozenset[str]:
    """Return the names of those that fits may not see."""
    return frozenset(
        one.name
        for domain in DOMAINS
        for one in [one for one in prompts if one.domain == domain][UNUSED_FROM:]
    )


def measure_part(raw: Path, part: int, parts: int, trained: Path | None) -> None:
    """Run one part into its raw file, and what it took into a file beside."""
    import resource

    import torch

    torch.set_num_threads(1)
    begun, steps, levels = time.monotonic(), 0, 0
    with (raw / f"part-{part}-of-{parts}.jsonl").open("a", encoding="utf-8") as file:
        for sample in run(raw, part, parts, trained):
            file.write("\n" * (file.tell() > 0) + json.dumps(sample.to_json()))
            file.flush()
            steps, levels = steps + len(sample.accepted), levels + sum(sample.drafted)
    taken = {
        "seconds": round(time.monotonic() - begun, 1),
        "processor_seconds": round(time.process_time(), 1),
        "verify_steps": steps,
        "drafted_positions": levels,
        "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    if steps:
        with (raw / "taken.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(taken) + "\n")
