"""Sizes of the catalogue's models against published ones: `model_sizes.tsv`, in units of 10⁹ parameters.

A total is that of a checkpoint's language part; the modules that predict further tokens are in it or not. An
active figure is as its publisher counts, with or without embedding, head and router, and often rounded.
"""

import csv
from pathlib import Path

import pytest

from simulator.models.catalogue import load_drafter, load_model
from tests.model_cards import least_active_parameters

with Path(__file__).with_name("model_sizes.tsv").open(encoding="utf-8", newline="") as file:
    ROWS = tuple(csv.DictReader(file, delimiter="\t"))


def half_digit(figure: str) -> float:
    return 0.5 * 10.0 ** -len(figure.partition(".")[2])


def totals(name: str) -> list[float]:
    """Without and with the modules that predict further tokens."""
    model = load_model(name)
    modules = load_drafter(None, model, "mtp").parameters if model.mtp else 0
    return [model.parameters / 1e9, (model.parameters + modules) / 1e9]


def active(name: str) -> tuple[float, float]:
    """The least and the most that may be called active."""
    model = load_model(name)
    return least_active_parameters(model) / 1e9, model.active_parameters / 1e9


def test_many_models_have_a_published_size_and_every_row_a_source():
    assert len({row["name"] for row in ROWS}) == len(ROWS) > 300
    assert all(row["source"] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_total_is_met_within_half_a_percent(row):
    published = float(row["total"])
    assert any(total == pytest.approx(published, rel=5e-3) for total in totals(row["name"]))


@pytest.mark.parametrize("row", [row for row in ROWS if row["active"]], ids=lambda row: row["name"])
def test_active_is_met_within_one_percent_or_its_last_digit(row):
    published = float(row["active"])
    allowance = max(0.01 * published, half_digit(row["active"]))
    least, most = active(row["name"])
    assert least - allowance <= published <= most + allowance
