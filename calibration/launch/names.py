"""Model names in launch configurations: Hugging Face ids and folders, which scenarios name by catalogue."""

from __future__ import annotations

import os

from simulator.errors import InputError
from simulator.models.catalogue import drafters, entry, known_drafter, known_model, load_model
from simulator.models.catalogue import targets as models
from simulator.scenario import Scenario

_CONFIG = "config.json"


def served_name(name: str) -> str:
    """What an engine is given for a model or drafter of a scenario: its Hugging Face id, or its folder."""
    if name.endswith(_CONFIG):
        return os.path.dirname(name) or "."
    try:
        return entry(name).hugging_face
    except InputError:  # a spelling of a catalogue name, or a Hugging Face id already
        known = known_drafter(name)
        return name if known is None or "/" in name else entry(known).hugging_face


def model_name(served: str) -> str:
    """The catalogue name of a served model; the name itself where a name of its own states its weights."""
    exact = next((name for name in models() if entry(name).hugging_face.lower() == served.lower()), None)
    return exact or served


def drafter_name(served: str, kind: str) -> str:
    """The catalogue name of a served drafter of that kind: `eagle3`, `mtp`, `draft_model`."""
    of_kind = [name for name in drafters() if (entry(name).method or "draft_model") == kind]
    for name in of_kind:
        if entry(name).hugging_face.lower() == served.lower():
            return name
    known = known_drafter(served)
    return known if known in of_kind else served


def own_weights(scenario: Scenario) -> str | None:
    """The format of the checkpoint's weights, None where the model is not known."""
    try:
        return load_model(scenario.target.model, scenario.base_dir).weights
    except InputError:
        return None


def is_known(served: str) -> bool:
    """Whether a served model is in the catalogue."""
    return known_model(served) is not None
