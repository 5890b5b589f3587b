"""One distillation from target to drafter folder, for `decodesim distill` and the committed runs."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.trained import save_trained
from calibration.drafters.training.corpus import Mix
from calibration.drafters.training.evaluation import judge
from calibration.drafters.training.recipes import Recipe, Trainee
from calibration.drafters.training.shards import Shards, fingerprint
from calibration.drafters.training.trainer import CHECKPOINT, POSITIONS, TrainingPlan, train
from simulator.errors import InputError, Problem
from simulator.files import whole_file

if TYPE_CHECKING:
    from simulator.runs.replications import Progress

RESULT = "distillation.json"
_BYTES_PER_STATE = 2
_MARGIN = 1.1


def distil(
    network: LanguageModel,
    recipe: Recipe,
    plan: TrainingPlan,
    folder: Path,
    shards: Shards,
    *,
    resume: bool = False,
    progress: Progress = lambda done, total, text: None,
) -> dict[str, Any]:
    """Train a drafter into a folder and return the content of its distillation.json.

    The folder then also holds config.json and model.safetensors. Raises InputError (a folder of another run,
    an unsuitable target, too little disk space) and OSError.
    """
    check_run(network, plan, folder, shards.mix, resume)
    result = folder / RESULT
    if result.exists():  # the same run is finished
        document: dict[str, Any] = json.loads(result.read_text())
        return document
    run = train(network, shards, recipe, plan, folder, resume=resume, progress=progress)
    notes = {"trained_on_tokens": plan.tokens, "target": fingerprint(network)}
    save_trained(run.trainee, network, folder, notes)
    progress(plan.tokens, plan.tokens, "evaluating it and random weights")
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
    """Return a copy with random matrices instead of the learned ones, as a baseline without learning."""
    fresh = copy.deepcopy(trainee)
    torch.manual_seed(1)
    for weight in fresh.parameters():
        if weight.requires_grad and weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
        elif weight.requires_grad:
            nn.init.ones_(weight)
    return fresh


def move(network: LanguageModel, device: str | None) -> None:
    """Move the weights to a device, by default a GPU if there is one. Raises InputError without a GPU.

    torch gets half of the threads, because reading ahead uses the other half.
    """
    gpu = torch.cuda.is_available()
    if device == "cuda" and not gpu:
        message = "torch sees no GPU here"
        raise InputError(Problem(field="--device", value=device, message=message, allowed="cpu"))
    network.model.to(device or ("cuda" if gpu else "cpu"))
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))


def check_run(network: LanguageModel, plan: TrainingPlan, folder: Path, mix: Mix, resume: bool) -> None:
    """Raise InputError if the target is unsuitable or the folder belongs to another run."""
    if network.tokenizer is None or len(network.tokenizer) > network.vocab_size:
        count = 0 if network.tokenizer is None else len(network.tokenizer)
        message = f"its tokenizer has {count} tokens where the model has {network.vocab_size}"
        raise InputError(
            Problem(field="--target", message=message, allowed="a tokenizer that belongs to the model")
        )
    if network.max_tokens is not None and network.max_tokens < mix.length:
        message = f"reads {network.max_tokens} tokens at most"
        raise InputError(Problem(field="--target", message=message, allowed=f"{mix.length} or more"))
    min_tokens = plan.batch * mix.length
    if plan.tokens < min_tokens:
        message = "is less than one step"
        raise InputError(
            Problem(field="--tokens", value=plan.tokens, message=message, allowed=f"{min_tokens} or more")
        )
    exists = any((folder / name).exists() for name in (CHECKPOINT, RESULT, "config.json"))
    if exists and not resume:
        message = "holds a drafter or a run already"
        raise InputError(Problem(file=str(folder), message=message, allowed="--resume, or a new folder"))
    if exists and not (folder / CHECKPOINT).exists():
        finished = _read_result(folder / RESULT)
        if finished.get("plan") != vars(plan) or finished.get("target") != fingerprint(network):
            options = ", ".join(f"{key} {value}" for key, value in finished.get("plan", {}).items())
            message = f"holds a finished run ({options})" if options else "holds no run to resume"
            allowed = "the same target and options, or a new folder"
            raise InputError(Problem(file=str(folder), message=message, allowed=allowed))


def _read_result(path: Path) -> dict[str, Any]:
    """The result of a finished run; empty without one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def check_room(network: LanguageModel, tokens: int, states: int, folder: Path) -> None:
    """Raise InputError if the disk has no room for `states` hidden states of each of `tokens` tokens."""
    stored_bytes = sum(file.stat().st_size for file in folder.glob("shard-*")) if folder.exists() else 0
    missing_bytes = tokens * states * network.hidden_size * _BYTES_PER_STATE * _MARGIN - stored_bytes
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if missing_bytes > free_bytes:
        needed, free = f"{missing_bytes / 1e9:.1f} GB", f"{free_bytes / 1e9:.1f}"
        message = f"needs {needed} for the target's hidden states and has {free}"
        raise InputError(
            Problem(file=str(folder), message=message, allowed="fewer --tokens, or another disk")
        )
