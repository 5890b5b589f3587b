"""JSON of Prometheus' query API says what the same samples say as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from calibration.telemetry.answer import read
from simulator.errors import InputError

FILES = Path(__file__).parent / "files"
SCRAPES = [FILES / f"two-engines.{when}.prom" for when in ("before", "after")]
PREFIX = "vllm:"


def series_of(scrapes: list[Path]) -> list[dict[str, Any]]:
    """The range vectors of scrapes that were taken every 15 s."""
    series: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
    for place, scrape in enumerate(scrapes):
        lines = [line for line in scrape.read_text().splitlines() if line.startswith(PREFIX)]
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                labels = {"__name__": sample.name, "instance": "10.0.0.1:8000", **sample.labels}
                values = series.setdefault(tuple(labels.items()), [])
                values.append([1796084408.781 + 15 * place, str(sample.value)])
    return [{"metric": dict(labels), "values": values} for labels, values in series.items()]


def answered(path: Path, series: list[dict[str, Any]], kind: str = "matrix") -> dict[str, Any]:
    """The JSON of `read` for an answer of the API."""
    path.write_text(json.dumps({"status": "success", "data": {"resultType": kind, "result": series}}))
    document: dict[str, Any] = read([str(path)]).to_json()
    return document


KEYS = ("draft_rounds", "accepted_tokens", "drafted_tokens", "acceptance_rate_at", "ttft_s", "load")


def test_a_range_is_the_scrapes_at_its_times(tmp_path: Path) -> None:
    document = answered(tmp_path / "range.json", series_of(SCRAPES))
    text = read([str(path) for path in SCRAPES]).to_json()
    assert document["draft_rounds"] == 700
    assert {key: document[key] for key in KEYS} == {key: text[key] for key in KEYS}


def test_an_instant_is_one_scrape(tmp_path: Path) -> None:
    instant = [{"metric": part["metric"], "value": part["values"][0]} for part in series_of(SCRAPES[:1])]
    document = answered(tmp_path / "instant.json", instant, "vector")
    assert document["draft_rounds"] == 100
    assert document["accepted_tokens"] == 90


def without_names(series: list[dict[str, Any]]) -> None:
    """What `rate(…)` leaves."""
    for part in series:
        del part["metric"]["__name__"]


def of_two_servers(series: list[dict[str, Any]]) -> None:
    """The same engine behind another address."""
    series.append({**series[0], "metric": {**series[0]["metric"], "instance": "10.0.0.2:8000"}})


def with_a_late_series(series: list[dict[str, Any]]) -> None:
    """A series that is not there at the first time."""
    series[0]["values"] = series[0]["values"][1:]


def with_nan(series: list[dict[str, Any]]) -> None:
    """A value that was not measured."""
    series[0]["values"][0][1] = "NaN"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_names, "took the names"),
        (of_two_servers, "2 instances"),
        (with_a_late_series, "different times"),
        (with_nan, "out of range"),
    ],
)
def test_what_would_give_a_wrong_number_is_refused(damage: Any, message: str, tmp_path: Path) -> None:
    series = series_of(SCRAPES)
    damage(series)
    with pytest.raises(InputError, match=message):
        answered(tmp_path / "answer.json", series)


def test_an_answer_without_an_engine_is_refused(tmp_path: Path) -> None:
    other = {"metric": {"__name__": "up"}, "values": [[0, "1"]]}
    with pytest.raises(InputError, match="without metrics of vLLM or SGLang"):
        answered(tmp_path / "other.json", [other])
