"""`--model` and `--draft` of commands that need networks but no scenario."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from simulator.models.drafter import DrafterModel
    from simulator.models.model import Model


def networks(model: str | None, draft: str | None) -> tuple[Model, DrafterModel | None]:
    """Target and drafter by catalogue name or config.json. Raises InputError."""
    from simulator.models.catalogue import load_model

    if model is None:
        allowed = "catalogue name, or path of a config.json"
        raise InputError(Problem(field="--model", message="is missing", allowed=allowed))
    target = load_model(model)
    return target, None if draft is None else _drafter(draft, target)


def _drafter(name: str, target: Model) -> DrafterModel:
    """A drafter by catalogue name, or by the config.json of a whole model or of a head."""
    from simulator.models.catalogue import entry, find_drafter, load_drafter

    if not Path(name).exists() and not name.endswith(".json"):
        catalogue_name = find_drafter(name)
        return load_drafter(catalogue_name, target, entry(catalogue_name).method or "draft_model")
    try:
        return load_drafter(name, target, "draft_model")
    except InputError as model_error:
        for method in ("eagle3", "eagle"):
            with suppress(InputError):
                return load_drafter(name, target, method)
        raise model_error
