"""The training loop: KL to the target's distribution, from shards of its hidden states; stops and goes on
exactly.

Everything that decides the next step is in the checkpoint or follows from the plan, so that a run that was
killed ends with the same weights as one that was not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.training.evaluation import Judgement, judge
from calibration.drafters.training.losses import kl_slope
from calibration.drafters.training.recipes import Recipe, Trainee
from calibration.drafters.training.shards import ShardPrefetcher, Shards, fingerprint
from simulator.errors import InputError, Problem
from simulator.files import whole_file

CHECKPOINT = "checkpoint.pt"
POSITIONS = 5
"""Draft positions that acceptance is judged at."""
_SAVE_EVERY_S = 180.0
_EARLY_POINTS = (1 / 64, 1 / 32, 1 / 16)
"""Shares of the run after which the drafter is judged, beside even ones: at first it learns fastest."""
_KL_BESIDE_REGRESSION = 0.1
_WARM_UP = 0.03
_COOL_DOWN = 0.25
_CLIP = 1.0

Progress = Callable[[int, int, str], None]
"""Told tokens seen, tokens in all, and a text."""


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained, on how much. tokens: seen in all, in so many `passes` over the same text.
    batch: sequences of a step. judgements: how often it is judged, evenly. judged_every: each how manieth
    held-out sequence counts there.
    """

    kind: str
    tokens: int
    batch: int = 2
    judgements: int = 8
    judged_every: int = 3
    seed: int = 0
    passes: int = 1


@dataclass
class TrainingRun:
    """A run's state. history: {tokens, alpha in training since the one before, judgement} in order.
    seen: alpha of each step since the last of them.
    """

    trainee: Trainee
    history: list[dict[str, Any]]
    seen: list[float]


def train(
    network: LanguageModel,
    shards: Shards,
    recipe: Recipe,
    plan: TrainingPlan,
    folder: Path,
    *,
    resume: bool = False,
    say: Progress = lambda done, total, text: None,
) -> TrainingRun:
    """Train from the beginning, or from the folder's checkpoint.

    Raises InputError: the checkpoint is another run's.
    """
    torch.manual_seed(plan.seed)
    trainee = recipe.make(network).float().to(network.device)
    weights = [weight for weight in trainee.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.01)
    steps = max(1, plan.tokens // (plan.batch * shards.mix.length))
    signature = {
        "plan": asdict(plan),
        "target": fingerprint(network),
        "mix": asdict(shards.mix),
    }
    run, done = TrainingRun(trainee, [], []), 0
    folder.mkdir(parents=True, exist_ok=True)
    if resume:
        done = _restore(folder, signature, run, optimiser)
    shards.say = lambda text: say(done * plan.batch * shards.mix.length, plan.tokens, text)
    text = shards.held_out(trainee.layers)
    even = [number / plan.judgements for number in range(1, plan.judgements + 1)]
    points = {max(1, math.ceil(share * steps)) for share in (*_EARLY_POINTS, *even)}
    per_shard = shards.mix.sequences // plan.batch
    saved, clock, begun_at = time.monotonic(), time.monotonic(), done
    if done == 0:
        say(0, plan.tokens, "judging the beginning")
        _note(run, 0, judge(trainee, network, text, POSITIONS, plan.judged_every))
    of_a_pass = math.ceil(steps / plan.passes / per_shard)
    visits = range(done // per_shard, math.ceil(steps / per_shard))
    ahead = ShardPrefetcher(shards, trainee.layers, [visit % of_a_pass for visit in visits])
    while done < steps:
        visit, first = divmod(done, per_shard)
        shard = ahead.shard(visit % of_a_pass)
        order = torch.randperm(
            shards.mix.sequences, generator=torch.Generator().manual_seed(plan.seed * 1_000_003 + visit)
        )
        for place in range(first, min(per_shard, steps - visit * per_shard)):
            rows = order[place * plan.batch : (place + 1) * plan.batch]
            for group in optimiser.param_groups:
                group["lr"] = recipe.rate * _schedule(done, steps)
            tokens = shard.tokens[rows].to(network.device)
            features = {layer: state[rows].to(network.device) for layer, state in shard.features.items()}
            run.seen.append(float(_step(trainee, network, recipe, optimiser, tokens, features)))
            done += 1
            if done in points:
                judged = judge(trainee, network, text, POSITIONS, plan.judged_every)
                _note(run, done * plan.batch * shards.mix.length, judged)
            left = (time.monotonic() - clock) / (done - begun_at) * (steps - done)
            say(done * plan.batch * shards.mix.length, plan.tokens, _progress_text(run, left))
            if time.monotonic() - saved > _SAVE_EVERY_S or done == steps:
                _save(folder, signature, run, optimiser, done)
                saved = time.monotonic()
    return run


def _step(
    trainee: Trainee,
    network: LanguageModel,
    recipe: Recipe,
    optimiser: torch.optim.Optimizer,
    tokens: Tensor,
    features: dict[int, Tensor],
) -> Tensor:
    """Move the weights once; return alpha of the first draft, seen on the way."""
    wanted = features[network.layer_count]
    with torch.autocast(tokens.device.type, torch.bfloat16):
        found, states = trainee.predict(tokens, features, network.embed, recipe.steps)
    used = slice(recipe.steps, tokens.shape[1])  # rows before mean nothing yet
    rows = found[:, :, used].flatten(1, 2).float()
    slope = kl_slope(network.lm_head, wanted[:, used].flatten(0, 1), rows.detach())
    weights = torch.tensor([recipe.decay**step for step in range(recipe.steps)], device=tokens.device)
    scale = weights / weights.sum() / rows.shape[1] * (_KL_BESIDE_REGRESSION if recipe.regression else 1.0)
    optimiser.zero_grad(set_to_none=True)
    roots, gradients = [rows], [slope.gradient * scale[:, None, None]]
    if recipe.regression:
        roots.append(smooth_l1_loss(states[:, :-1].float(), wanted[:, 1:].float()))
        gradients.append(torch.ones((), device=tokens.device))
    torch.autograd.backward(roots, gradients)
    torch.nn.utils.clip_grad_norm_(trainee.parameters(), _CLIP)
    optimiser.step()
    return slope.alpha.mean()


def _schedule(done: int, steps: int) -> float:
    """Share of the peak learning rate: a short rise, level, and a last quarter that falls to nothing."""
    rise = min(1.0, (done + 1) / max(1.0, _WARM_UP * steps))
    return min(rise, max((steps - done) / (_COOL_DOWN * steps), 0.0))


def _note(run: TrainingRun, tokens: int, judged: Judgement) -> None:
    alpha = sum(run.seen) / len(run.seen) if run.seen else None
    run.history.append({"tokens": tokens, "alpha_in_training": alpha, **judged.to_json()})
    run.seen.clear()


def _progress_text(run: TrainingRun, left_s: float) -> str:
    judged = run.history[-1]["alpha"]["value"]
    now = f", in training {sum(run.seen) / len(run.seen):.3f}" if run.seen else ""
    return f"alpha {judged:.3f} held out{now}, {left_s / 60:.0f} min left"


def progress_of(folder: Path, plan: TrainingPlan, length: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the tokens seen by a plan's checkpoint and its history; nothing where there is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0, []
    state = torch.load(path, weights_only=True, map_location="cpu")
    return int(state["done"]) * plan.batch * length, json.loads(state["history"])


def _save(
    folder: Path, signature: dict[str, Any], run: TrainingRun, optimiser: torch.optim.Optimizer, done: int
) -> None:
    learned = {name for name, weight in run.trainee.named_parameters() if weight.requires_grad}
    weights = {name: value for name, value in run.trainee.state_dict().items() if name in learned}
    state = {
        "signature": json.dumps(signature),
        "history": json.dumps(run.history),
        "seen": run.seen,
        "done": done,
        "weights": weights,
        "optimiser": optimiser.state_dict(),
    }
    with whole_file(folder / CHECKPOINT) as part:
        try:
            torch.save(state, part)
        except RuntimeError as error:  # how torch says that a disk is full
            raise OSError(None, f"checkpoint not written: {error}".splitlines()[0], str(folder)) from error


def _restore(
    folder: Path, signature: dict[str, Any], run: TrainingRun, optimiser: torch.optim.Optimizer
) -> int:
    """Take up the checkpoint; 0 when none has been written yet."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        before = json.loads(state["signature"])
    except Exception as error:
        raise InputError(Problem(file=str(path), message="is no checkpoint of a distillation")) from error
    for key, what in (("target", "another target"), ("plan", "another plan"), ("mix", "another mix of text")):
        if before.get(key) != signature[key]:
            detail = "" if key == "target" else f" ({before.get(key)})"
            raise InputError(
                Problem(
                    file=str(path), message=f"belongs to {what}{detail}", allowed="the same, or a new folder"
                )
            )
    run.trainee.load_state_dict(state["weights"], strict=False)
    optimiser.load_state_dict(state["optimiser"])
    run.history, run.seen = json.loads(state["history"]), state["seen"]
    return int(state["done"])
