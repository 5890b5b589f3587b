"""Makes the committed training runs: `python -m calibration.drafters.training.committed`.

Each job resumes where it stopped and ends with a drafter and a result in its folder below the runs' folder.
Finished jobs are skipped. The results so far are written to calibration/data/distillation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.provenance import provenance
from calibration.drafters.target_session import BUILTIN, load_network
from calibration.drafters.training.baselines import LayerSkipped
from calibration.drafters.training.corpus import Mix
from calibration.drafters.training.distil import RESULT, distil
from calibration.drafters.training.evaluation import judge
from calibration.drafters.training.recipes import ABLATION, RECIPES, Recipe, eagle3_layers
from calibration.drafters.training.shards import Shards
from calibration.drafters.training.trainer import TrainingPlan, progress_of
from simulator.errors import InputError
from simulator.files import whole_file

MIX = Mix()
STUDENT_TOKENS = 2_000_000
STUDENT_PASSES = 4
"""Reading costs as much as learning, and four passes are worth almost as much as new text (arXiv 2305.16264).
"""
HEAD_TOKENS = 12 * MIX.tokens
"""The same budget and data for all heads: the first 12 shards, 98,304 tokens."""
ONE_DOMAIN = {
    "code-only": replace(MIX, code=MIX.sequences, prose=0, completions=0),
    "prose-only": replace(MIX, code=0, prose=MIX.sequences, completions=0),
}
DATA = Path(__file__).parents[2] / "data" / "distillation.json"
REPORT_EVERY_S = 60.0

HEADS: Mapping[str, Recipe] = {
    **{kind: recipe for kind, recipe in RECIPES.items() if kind != "student"},
    **ABLATION,
}


@dataclass(frozen=True)
class Job:
    """One training run to make."""

    plan: TrainingPlan
    recipe: Recipe
    mix: Mix = field(default=MIX)

    @property
    def name(self) -> str:
        """Its name in the results."""
        return f"{self.plan.kind.replace(' ', '-')}-{self.plan.tokens}"

    @property
    def folder(self) -> Path:
        """Its folder below that of all runs; drafters that only serve a comparison are in a folder of their
        own.
        """
        return Path(self.name) if self.plan.kind in RECIPES else Path("compared", self.name)


def student() -> Job:
    """The student's run."""
    return Job(
        TrainingPlan("student", STUDENT_TOKENS, judgements=40, passes=STUDENT_PASSES), RECIPES["student"]
    )


def heads() -> tuple[Job, ...]:
    """All heads, then EAGLE trained on code only and on prose only."""
    return (
        *(Job(_head(name), recipe) for name, recipe in HEADS.items()),
        *(Job(_head(f"eagle {name}"), RECIPES["eagle"], mix) for name, mix in ONE_DOMAIN.items()),
    )


def _head(kind: str) -> TrainingPlan:
    return TrainingPlan(kind, HEAD_TOKENS, judgements=4, judged_every=6)


JOBS = (*heads(), student())


def shards_of(network: LanguageModel, runs: Path, mix: Mix = MIX) -> Shards:
    """The shards that all runs on a mix share. The first shards of the common mix hold the features of every
    head.
    """
    folder = runs / ("shards" if mix == MIX else f"shards-{mix.code}-{mix.prose}-{mix.completions}")
    layers = eagle3_layers(network.layer_count) if mix == MIX else ()
    shards = Shards(folder, network, mix, rich=HEAD_TOKENS // MIX.tokens, rich_layers=layers)
    held_out = folder / "held-out.safetensors"
    if mix != MIX and not held_out.exists():  # every mix is evaluated on the same text
        shutil.copyfile(runs / "shards" / held_out.name, held_out)
    return shards


def run(job: Job, network: LanguageModel, runs: Path) -> None:
    """Run or resume a job; a finished job is skipped."""
    reported_s = 0.0

    def report(done: int, total: int, text: str) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s > REPORT_EVERY_S or done >= total:
            reported_s = time.monotonic()
            now = time.strftime("%H:%M:%S")
            print(f"{now} {job.name}: {done:,} of {total:,} tokens, {text}", flush=True)

    folder = runs / job.folder
    if (folder / RESULT).exists():
        return
    shards = shards_of(network, runs, job.mix)
    distil(network, job.recipe, job.plan, folder, shards, resume=True, progress=report)


def layer_skip(network: LanguageModel, runs: Path) -> dict[str, Any]:
    """The evaluation of layer-skip on the same text, made once."""
    path = runs / "layer-skip.json"
    if not path.exists():
        text = shards_of(network, runs).held_out([])
        judged = judge(LayerSkipped(network), network, text, 1)
        held_out = {"digest": text.digest, "domains": text.domains}
        with whole_file(path) as part:
            part.write_text(json.dumps({"held_out": held_out, "final": judged.to_json()}))
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def publish(runs: Path, network: LanguageModel) -> None:
    """Write the results so far, including those of unfinished runs, with their provenance."""
    entries: dict[str, Any] = {}
    for job in JOBS:
        result = runs / job.folder / RESULT
        seen, history = progress_of(runs / job.folder, job.plan, job.mix.length)
        if result.exists():
            entries[job.name] = {"complete": True, **json.loads(result.read_text())}
        elif history:
            entries[job.name] = {
                "complete": False,
                "tokens": seen,
                "plan": vars(job.plan),
                "curve": history,
            }
    document = {
        "schema": "decodesim/distillation-1",
        "provenance": {
            **provenance(BUILTIN, network),
            "command": "python -m calibration.drafters.training.committed",
            "text": "standard library and help topics of this Python, and the target's own text",
            "held_out": "documents that a hash of their name chooses, one of eight; prompts of 128 tokens, "
            "128 more drawn from the target at temperature 1",
            "mix": asdict(MIX),
        },
        "layer_skip": layer_skip(network, runs),
        "runs": entries,
    }
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(DATA) as part:
        part.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Run the jobs that are not finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("results/distillation"), help="folder of the runs")
    parser.add_argument("--publish", action="store_true", help="only write the results so far")
    options = parser.parse_args()
    try:
        network = load_network(BUILTIN)
        for job in () if options.publish else JOBS:
            run(job, network, options.runs)
            publish(options.runs, network)
        publish(options.runs, network)
    except InputError as error:
        parser.exit(os.EX_DATAERR, f"{error}\n")


if __name__ == "__main__":
    main()
