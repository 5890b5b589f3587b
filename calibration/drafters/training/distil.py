"""One distillation from target to drafter folder: what `decodesim distill` and the committed runs do."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.trained import save_trained
from calibration.drafters.training.corpus import Mix
from calibration.drafters.training.evaluation import judge
from calibration.drafters.training.recipes import Recipe, Trainee
from calibration.drafters.training.shards import Shards, fingerprint
from calibration.drafters.training.trainer import CHECKPOINT, POSITIONS, Progress, TrainingPlan, train
from simulator.errors import InputError, Problem
from simulator.files import whole_file

RESULT = "distillation.json"
_BYTES_PER_STATE = 2
_SPARE = 1.1


def distil(
    network: LanguageModel,
    recipe: Recipe,
    plan: TrainingPlan,
    folder: Path,
    shards: Shards,
    *,
    resume: bool = False,
    say: Progress = lambda done, total, text: None,
) -> dict[str, Any]:
    """Train a drafter into a folder, return what is written to its distillation.json.

    The folder then holds config.json and model.safetensors too. Raises InputError (a folder of another run,
    a target that cannot be learned from, too little room), OSError.
    """
    check_run(network, plan, folder, shards.mix, resume)
    result = folder / RESULT
    if result.exists():  # the same run, done
        document: dict[str, Any] = json.loads(result.read_text())
        return document
    run = train(network, shards, recipe, plan, folder, resume=resume, say=say)
    notes = {"trained_on_tokens": plan.tokens, "target": fingerprint(network)}
    save_trained(run.trainee, network, folder, notes)
    say(plan.tokens, plan.tokens, "judging it, and random weights beside it")
    text = shards.held_out(run.trainee.layers)
    final = judge(run.trainee, network, text, POSITIONS)
    random = judge(randomised(run.trainee), network, text, POSITIONS)
    document = {
        "plan": vars(plan),
        "target": fingerprint(network),
        "parameters": sum(weight.numel() for weight in run.trainee.parameters()),
        "parameters_learned": sum(w.numel() for w in run.trainee.parameters() if w.requires_grad),
        "tokens": run.history[-1]["tokens"],
        "rows_per_token": recipe.steps,
        "held_out": {"digest": text.digest, "domains": text.domains},
        "final": final.to_json(),
        "random_initialisation": random.to_json(),
        "curve": run.history,
    }
    with whole_file(result) as part:
        part.write_text(json.dumps(document) + "\n")
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return document


@torch.no_grad()
def randomised(trainee: Trainee) -> Trainee:
    """Return a copy with random matrices in place of the learned ones: what having learned nothing gives."""
    fresh = copy.deepcopy(trainee)
    torch.manual_seed(1)
    for weight in fresh.parameters():
        if weight.requires_grad and weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
        elif weight.requires_grad:
            nn.init.ones_(weight)
    return fresh


def move(network: LanguageModel, device: str | None) -> None:
    """Put the weights on a device, by default on a GPU where there is one. Raises InputError: there is none.

    Of the threads, one half learns while the other reads ahead.
    """
    gpu = torch.cuda.is_available()
    if device == "cuda" and not gpu:
        message = "torch sees no GPU here"
        raise InputError(Problem(field="--device", value=device, message=message, allowed="cpu"))
    network.model.to(device or ("cuda" if gpu else "cpu"))
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))


def check_run(network: LanguageModel, plan: TrainingPlan, folder: Path, mix: Mix, resume: bool) -> None:
    """Raise InputError when the target cannot be learned from, or the folder is not for this run."""
    if network.tokenizer is None or len(network.tokenizer) > network.vocab_size:
        count = 0 if network.tokenizer is None else len(network.tokenizer)
        message = f"its tokenizer has {count} tokens where the model has {network.vocab_size}"
        raise InputError(
            Problem(field="--target", message=message, allowed="a tokenizer that belongs to the model")
        )
    if network.max_tokens is not None and network.max_tokens < mix.length:
        message = f"reads {network.max_tokens} tokens at most"
        raise InputError(Problem(field="--target", message=message, allowed=f"{mix.length} or more"))
    least = plan.batch * mix.length
    if plan.tokens < least:
        message = "is less than one step"
        raise InputError(
            Problem(field="--tokens", value=plan.tokens, message=message, allowed=f"{least} or more")
        )
    there = any((folder / name).exists() for name in (CHECKPOINT, RESULT, "config.json"))
    if there and not resume:
        message = "holds a drafter or a run already"
        raise InputError(Problem(file=str(folder), message=message, allowed="--resume, or a new folder"))
    if there and not (folder / CHECKPOINT).exists():
        done = _read_result(folder / RESULT)
        if done.get("plan") != vars(plan) or done.get("target") != fingerprint(network):
            options = ", ".join(f"{key} {value}" for key, value in done.get("plan", {}).items())
            message = f"holds a finished run ({options})" if options else "holds no run that could go on"
            allowed = "the same target and options, or a new folder"
            raise InputError(Problem(file=str(folder), message=message, allowed=allowed))


def _read_result(path: Path) -> dict[str, Any]:
    """What a finished run wrote; nothing where there is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def check_room(network: LanguageModel, tokens: int, states: int, folder: Path) -> None:
    """Raise InputError when the hidden states of so many tokens have no room on the disk.

    `states`: hidden states per token.
    """
    have = sum(file.stat().st_size for file in folder.glob("shard-*")) if folder.exists() else 0
    need = tokens * states * network.hidden_size * _BYTES_PER_STATE * _SPARE - have
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    free = shutil.disk_usage(place).free
    if need > free:
        message = f"needs {need / 1e9:.1f} GB for the target's hidden states and has {free / 1e9:.1f}"
        raise InputError(
            Problem(file=str(folder), message=message, allowed="fewer --tokens, or another disk")
        )
