"""Acceptance measured elsewhere: the JSON that `decodesim read` and `decodesim accept` write, as a model.

`read` writes one measurement, `accept` one row per temperature, domain, draft length and way of sampling.
What is used, in this order: `gated` (of drafters that do not find a draft in every round),
`conditional_acceptance` (up to the first position that no round reached), `acceptance_rate_at`,
`mean_acceptance_length` or `draft_acceptance_rate` at the file's draft length (as a geometric model).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.acceptance.base import AcceptanceEntry, AcceptanceModel, fault, logistic, mu_for_mean_length
from simulator.acceptance.chains import Geometric, Positional
from simulator.acceptance.gated import Gated
from simulator.errors import InputError, Problem, reason
from simulator.files import parse_json

SELECTORS = ("draft", "temperature", "domain", "draft_sampling")
"""Keys of an `accept` row that the scenario entry may choose by."""


def model_from_file(
    path: Path, draft_length: int, select: Mapping[str, object] | None = None
) -> AcceptanceModel:
    """Return the acceptance that a file of `read` or `accept` reports, for a variant of this draft length.

    `select` chooses among the rows of `accept` (keys `SELECTORS`). Raises InputError: unreadable, no
    acceptance in it, or several rows that answer the question differently.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            Problem(
                file=str(path),
                message=f"cannot be read: {reason(error)}",
                allowed="the JSON of read or accept",
            )
        ) from None
    document = parse_json(text, str(path))
    if not isinstance(document, dict):
        raise InputError(
            Problem(file=str(path), message="is not a JSON object", allowed="the JSON of read or accept")
        )
    try:
        rows = document.get("rows")
        if rows is None:
            return _model(document, "")
        return _model(*_chosen(rows, draft_length, select or {}))
    except InputError as error:
        raise error.at(file=str(path)) from None


def model_from_reading(document: Mapping[str, Any]) -> AcceptanceModel:
    """Return the acceptance in the document of `read`. Raises InputError where there is none."""
    return _model(document, "")


def _chosen(rows: object, draft_length: int, select: Mapping[str, object]) -> tuple[Mapping[str, Any], str]:
    """Return the row that answers for this draft length, and where it stands."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(
            Problem(field="rows", message="is not a list of measurements", allowed="the rows of accept")
        )
    selected = {key: value for key, value in select.items() if key in SELECTORS and value is not None}
    left = [
        (index, row)
        for index, row in enumerate(rows)
        if all(row.get(key) == value for key, value in selected.items())
    ]
    if not left:
        raise InputError(
            Problem(
                field="rows",
                message=f"no row has {_in_words(selected)}",
                allowed=f"there are: {_offer(rows)}",
            )
        )
    lengths = {_length(row) for _, row in left}
    # c_j does not depend on K, so a longer measurement answers for its first positions.
    length = min((length for length in lengths if length >= draft_length), default=max(lengths))
    left = [(index, row) for index, row in left if _length(row) == length]
    if len(left) > 1:
        raise InputError(
            Problem(
                field="rows",
                message=f"{len(left)} rows answer for draft length {length}",
                allowed=f"choose with {', '.join(SELECTORS)}; there are: {_offer([row for _, row in left])}",
            )
        )
    return left[0][1], f"rows[{left[0][0]}]."


def _length(row: Mapping[str, Any]) -> int:
    """Draft length of a row; 0 where it states none."""
    value = row.get("draft_length")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _in_words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _offer(rows: list[dict[str, Any]]) -> str:
    described = [
        _in_words({key: row[key] for key in SELECTORS if row.get(key) is not None}) or "one without names"
        for row in rows
    ]
    return "; ".join(dict.fromkeys(described))


def _model(row: Mapping[str, Any], where: str) -> AcceptanceModel:
    """Return the model of one measurement; `where` is put before field names in errors."""
    gate = row.get("gated")
    if gate is not None:
        if not isinstance(gate, dict):
            raise fault(where + "gated", gate, "is no gate", "match, stickiness, first, run, request_sd")
        return _placed(lambda: Gated.from_entry(AcceptanceEntry(gate, 1, Path())), where + "gated.")
    for field, make in (
        ("conditional_acceptance", Positional),
        ("acceptance_rate_at", Positional.from_survival),
    ):
        rates = _rates(row.get(field), where + field)
        if rates:
            return _placed(lambda rates=rates, make=make: make(rates), where)
    length = _length(row)
    mean = _value(row.get("mean_acceptance_length"))
    rate = _value(row.get("draft_acceptance_rate"))
    if mean is None and rate is not None:
        mean = 1.0 + length * rate
    if mean is None or length < 1:
        raise InputError(
            Problem(
                field=where + "conditional_acceptance",
                message="is missing",
                allowed="it, acceptance_rate_at, or mean_acceptance_length with draft_length",
            )
        )
    target = mean
    return _placed(lambda: _geometric(target, length), where)


def _geometric(mean_acceptance_length: float, draft_length: int) -> Geometric:
    mu = mu_for_mean_length(
        lambda mu: Geometric(float(logistic(mu))), mean_acceptance_length, draft_length, 0.0
    )
    return Geometric(float(logistic(mu)))


def _placed(make: Any, where: str) -> AcceptanceModel:
    try:
        model: AcceptanceModel = make()
    except InputError as error:
        raise InputError(
            [
                Problem(
                    field=f"{where}{problem.field}",
                    value=problem.value,
                    message=problem.message,
                    allowed=problem.allowed,
                )
                for problem in error.problems
            ]
        ) from None
    return model


def _value(field: object) -> float | None:
    """A number, or the value of an estimate `{"value": …}`."""
    if isinstance(field, dict):
        field = field.get("value")
    return float(field) if isinstance(field, int | float) and not isinstance(field, bool) else None


def _rates(field: object, name: str) -> tuple[float, ...]:
    """Rates by position up to the first that is null; estimates by their value."""
    if field is None:
        return ()
    if not isinstance(field, list):
        raise InputError(
            Problem(field=name, value=field, message="is not a list", allowed="one rate per draft position")
        )
    rates: list[float] = []
    for index, item in enumerate(field):
        if item is None or (isinstance(item, dict) and item.get("value") is None):
            break
        value = _value(item)
        if value is None:
            raise InputError(
                Problem(
                    field=f"{name}[{index}]",
                    value=item,
                    message="is not a number",
                    allowed="a number from 0 to 1",
                )
            )
        rates.append(value)
    return tuple(rates)
