"""Which acceptance models there are, and how an entry becomes one: a model is a class and a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from simulator.acceptance.base import AcceptanceEntry, AcceptanceModel, fault, fields_of
from simulator.acceptance.chains import Decay, Fixed, Geometric, Positional
from simulator.acceptance.files import SELECTORS, model_from_file
from simulator.acceptance.gated import Gated
from simulator.acceptance.hierarchical import Hierarchical
from simulator.acceptance.ranked import Ranked
from simulator.acceptance.trace import ReplayedAcceptance
from simulator.errors import InputError, unknown_name


class EntryModel(Protocol):
    """A model that a scenario entry describes."""

    name: ClassVar[str]

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> AcceptanceModel:
        """Return the model of the entry. Raises InputError for missing or impossible values."""


MODELS: dict[str, type[EntryModel]] = {
    model.name: model
    for model in (Fixed, Geometric, Positional, Decay, Hierarchical, Ranked, Gated, ReplayedAcceptance)
}


def acceptance_model(
    entry: object,
    draft_length: int,
    base_dir: Path | str = ".",
    of_tree: Callable[[AcceptanceModel], AcceptanceModel] | None = None,
) -> AcceptanceModel:
    """Return the acceptance model of a scenario entry, for a variant that drafts `draft_length` tokens.

    `of_tree`: from this model to that of the variant's tree. A mean acceptance length that was seen at
    `draft_length` is then the tree's.

    `entry` is an `acceptance` section (a mapping or the scenario's own type): `{model: …}` or `{file:
    acceptance.json}`; an `AcceptanceModel` is returned as it is. Relative file names start from
    `base_dir`. Raises InputError.
    """
    if isinstance(entry, AcceptanceModel):
        return entry
    fields = fields_of(entry)
    folder = Path(base_dir)
    made = AcceptanceEntry(fields, draft_length, folder, of_tree)
    name = fields.get("model")
    if name is None:
        if not made.has("file"):
            raise fault(
                "model", None, "is missing", f"model: one of {', '.join(MODELS)}; or file: acceptance.json"
            )
        return model_from_file(made.path("file"), draft_length, {key: fields.get(key) for key in SELECTORS})
    if not isinstance(name, str) or name not in MODELS:
        raise InputError(unknown_name("acceptance model", str(name), MODELS, field="model"))
    return MODELS[name].from_entry(made)
