"""The training loop: minimises KL to the target's distribution, on shards of its hidden states; resumes
exactly.

Everything that determines the next step is in the checkpoint or follows from the plan, so that an interrupted
run ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from simulator.runs.replications import Progress

CHECKPOINT = "checkpoint.pt"
POSITIONS = 5
"""Draft positions at which acceptance is evaluated."""
_SAVE_EVERY_S = 180.0
_EARLY_EVALUATIONS = (1 / 64, 1 / 32, 1 / 16)
"""Shares of the run with an additional evaluation, because a drafter learns fastest at the start."""
_KL_WEIGHT_WITH_REGRESSION = 0.1
_WARM_UP = 0.03
_COOL_DOWN = 0.25
_CLIP = 1.0


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained, and on how much text.

    tokens: total tokens seen, in `passes` passes over the same text. batch: sequences per step. judgements:
    number of evaluations, evenly spaced. judged_every: an evaluation uses every such held-out sequence.
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
    """The state of a training run. history: evaluations in order, {tokens, alpha in training since the last
    one, figures}. seen: alpha of each step since the last evaluation.
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
    progress: Progress = lambda done, total, text: None,
) -> TrainingRun:
    """Train from the start or from the folder's checkpoint.

    Raises InputError if the checkpoint belongs to another run.
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
    shards.report = lambda text: progress(done * plan.batch * shards.mix.length, plan.tokens, text)
    text = shards.held_out(trainee.layers)
    even_shares = [number / plan.judgements for number in range(1, plan.judgements + 1)]
    evaluation_steps = {max(1, math.ceil(share * steps)) for share in (*_EARLY_EVALUATIONS, *even_shares)}
    per_shard = shards.mix.sequences // plan.batch
    saved_s, started_s, first_step = time.monotonic(), time.monotonic(), done
    if done == 0:
        progress(0, plan.tokens, "evaluating the start")
        _note(run, 0, judge(trainee, network, text, POSITIONS, plan.judged_every))
    shards_per_pass = math.ceil(steps / plan.passes / per_shard)
    visits = range(done // per_shard, math.ceil(steps / per_shard))
    prefetcher = ShardPrefetcher(
        shards, trainee.layers, [shard_visit % shards_per_pass for shard_visit in visits]
    )
    while done < steps:
        shard_visit, first_batch = divmod(done, per_shard)
        shard = prefetcher.shard(shard_visit % shards_per_pass)
        order = torch.randperm(
            shards.mix.sequences, generator=torch.Generator().manual_seed(plan.seed * 1_000_003 + shard_visit)
        )
        for place in range(first_batch, min(per_shard, steps - shard_visit * per_shard)):
            rows = order[place * plan.batch : (place + 1) * plan.batch]
            for group in optimiser.param_groups:
                group["lr"] = recipe.rate * _schedule(done, steps)
            tokens = shard.tokens[rows].to(network.device)
            features = {layer: state[rows].to(network.device) for layer, state in shard.features.items()}
            run.seen.append(float(_step(trainee, network, recipe, optimiser, tokens, features)))
            done += 1
            if done in evaluation_steps:
                evaluation = judge(trainee, network, text, POSITIONS, plan.judged_every)
                _note(run, done * plan.batch * shards.mix.length, evaluation)
            remaining_s = (time.monotonic() - started_s) / (done - first_step) * (steps - done)
            progress(done * plan.batch * shards.mix.length, plan.tokens, _progress_text(run, remaining_s))
            if time.monotonic() - saved_s > _SAVE_EVERY_S or done == steps:
                _save(folder, signature, run, optimiser, done)
                saved_s = time.monotonic()
    return run


def _step(
    trainee: Trainee,
    network: LanguageModel,
    recipe: Recipe,
    optimiser: torch.optim.Optimizer,
    tokens: Tensor,
    features: dict[int, Tensor],
) -> Tensor:
    """Make one optimiser step and return alpha of the first draft."""
    target_states = features[network.layer_count]
    with torch.autocast(tokens.device.type, torch.bfloat16):
        predictions, states = trainee.predict(tokens, features, network.embed, recipe.steps)
    defined = slice(recipe.steps, tokens.shape[1])  # earlier rows are undefined
    rows = predictions[:, :, defined].flatten(1, 2).float()
    slope = kl_slope(network.lm_head, target_states[:, defined].flatten(0, 1), rows.detach())
    weights = torch.tensor([recipe.decay**step for step in range(recipe.steps)], device=tokens.device)
    scale = (
        weights / weights.sum() / rows.shape[1] * (_KL_WEIGHT_WITH_REGRESSION if recipe.regression else 1.0)
    )
    optimiser.zero_grad(set_to_none=True)
    roots, gradients = [rows], [slope.gradient * scale[:, None, None]]
    if recipe.regression:
        roots.append(smooth_l1_loss(states[:, :-1].float(), target_states[:, 1:].float()))
        gradients.append(torch.ones((), device=tokens.device))
    torch.autograd.backward(roots, gradients)
    torch.nn.utils.clip_grad_norm_(trainee.parameters(), _CLIP)
    optimiser.step()
    return slope.alpha.mean()


def _schedule(done: int, steps: int) -> float:
    """Share of the peak learning rate: a short rise, a constant part, a fall to 0 in the last quarter."""
    rise = min(1.0, (done + 1) / max(1.0, _WARM_UP * steps))
    return min(rise, max((steps - done) / (_COOL_DOWN * steps), 0.0))


def _note(run: TrainingRun, tokens: int, evaluation: Judgement) -> None:
    alpha = sum(run.seen) / len(run.seen) if run.seen else None
    run.history.append({"tokens": tokens, "alpha_in_training": alpha, **evaluation.to_json()})
    run.seen.clear()


def _progress_text(run: TrainingRun, remaining_s: float) -> str:
    alpha = run.history[-1]["alpha"]["value"]
    in_training = f", in training {sum(run.seen) / len(run.seen):.3f}" if run.seen else ""
    return f"alpha {alpha:.3f} held out{in_training}, {remaining_s / 60:.0f} min left"


def progress_of(folder: Path, plan: TrainingPlan, length: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the tokens seen and the history of a plan's checkpoint; (0, []) without one."""
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
        except RuntimeError as error:  # raised when the disk is full
            raise OSError(None, f"checkpoint not written: {error}".splitlines()[0], str(folder)) from error


def _restore(
    folder: Path, signature: dict[str, Any], run: TrainingRun, optimiser: torch.optim.Optimizer
) -> int:
    """Load the checkpoint and return the number of steps done; 0 without a checkpoint."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        signature_before = json.loads(state["signature"])
    except Exception as error:
        raise InputError(Problem(file=str(path), message="is not a checkpoint of a distillation")) from error
    for key, other in (
        ("target", "another target"),
        ("plan", "another plan"),
        ("mix", "another mix of text"),
    ):
        if signature_before.get(key) != signature[key]:
            detail = "" if key == "target" else f" ({signature_before.get(key)})"
            raise InputError(
                Problem(
                    file=str(path), message=f"belongs to {other}{detail}", allowed="the same, or a new folder"
                )
            )
    run.trainee.load_state_dict(state["weights"], strict=False)
    optimiser.load_state_dict(state["optimiser"])
    run.history, run.seen = json.loads(state["history"]), state["seen"]
    return int(state["done"])
