"""Writes the tables of docs/measured-acceptance.md from the committed measurement.

    python -m calibration.acceptance.page

replaces the tables between the marks of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calibration.acceptance.committed_file import load
from calibration.acceptance.gallery import interval
from calibration.text_table import TextTable
from simulator.breakeven.theory import overhead, speedup

PAGE = Path(__file__).parents[2] / "docs" / "measured-acceptance.md"
_MARK = "<!-- {} -->"


def written(page: str, document: Mapping[str, Any]) -> str:
    """Return the page with its tables replaced."""
    for name, table in tables(document):
        begin, end = _MARK.format(name), _MARK.format(f"end of {name}")
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{table.markdown()}\n{end}{after}"
    return page


def tables(document: Mapping[str, Any]) -> Iterator[tuple[str, TextTable]]:
    """Yield (name of the place, table)."""
    yield "fits", _fits(document)
    yield "predictions", _predictions(document)
    yield "effects", _effects(document)
    yield "lengths", _lengths(document)
    yield "coarse", _quantised(document)
    yield "greedy", _greedy(document)
    yield "speed", _speed(document)


def _fits(document: Mapping[str, Any]) -> TextTable:
    rows = []
    for entry in document["predictions"]:
        models = entry["models"]
        least = min(model["bic"] for model in models.values())
        best = models[entry["best"]]["entry"]
        parameters = ", ".join(f"{key} {_numbers(value)}" for key, value in best.items() if key != "model")
        rows.append([_setting_text(entry), *(_judged(models[name], least) for name in _MODELS), parameters])
    return TextTable(["fitted on K ≤ 4", *_MODELS, "parameters of the best"], rows)


def _judged(model: Mapping[str, Any], least: float) -> str:
    """BIC above the best; struck out if simulations from the model do not match the data."""
    difference = "best" if model["bic"] == least else f"{model['bic'] - least:.0f}"
    return f"~~{difference}~~" if model["refused"] else difference


_MODELS = ("geometric", "positional", "decay", "hierarchical")


def _predictions(document: Mapping[str, Any]) -> TextTable:
    rows = []
    for entry in document["predictions"]:
        for question in ("draft lengths", "prompts"):
            for prediction in entry["predictions"]:
                if prediction["question"] == question and prediction["draft_length"] in (4, 6, 8):
                    predicted = prediction["predicted"]
                    rows.append(
                        [
                            _setting_text(entry),
                            "longer drafts" if question == "draft lengths" else "other prompts",
                        ]
                        + [str(prediction["draft_length"]), interval(prediction["measured"])]
                        + [f"{predicted[name]:.2f}" for name in _MODELS]
                    )
    return TextTable(["", "predicted for", "K", "measured E", *_MODELS], rows)


def _effects(document: Mapping[str, Any]) -> TextTable:
    rows = []
    for row in document["rows"]:
        scanned = (
            row["draft"] == "layer-skip" and row["temperature"] in (0.0, 1.0) and row["draft_length"] == 4
        )
        if scanned or (row["draft"] == "ngram" and row["temperature"] == 0.0):
            by_prompt = row["mean_acceptance_length_by_prompt_tokens"]
            spread = row["between_requests_sd"]
            rows.append(
                [f"{row['draft']}, {_setting_text(row)}", "–" if spread is None else f"{spread:.2f}"]
                + [interval(row["neighbours_correlation"]), interval(row["late_minus_early"])]
                + [interval(by_prompt.get(tokens)) for tokens in ("48", "96", "192")]
            )
    columns = ["K = 4", "sd between requests", "correlation of neighbours", "second half − first"]
    return TextTable([*columns, *(f"E, prompt of {tokens}" for tokens in (48, 96, 192))], rows)


def _lengths(document: Mapping[str, Any]) -> TextTable:
    rows = []
    for row in document["rows"]:
        length, mean = row["draft_length"], row["mean_acceptance_length"]
        if row["draft"] == "layer-skip" and row["temperature"] == 0.0 and length in (2, 4, 8, 12, 16):
            accepted = f"{(mean['value'] - 1) / length:.0%}"
            rows.append([f"{row['domain']}, K = {length}", interval(mean), accepted])
    return TextTable(["layer-skip, T = 0", "E", "share of drafts accepted"], rows)


def _quantised(document: Mapping[str, Any]) -> TextTable:
    cells: dict[tuple[str, str], dict[tuple[float, str], str]] = {}
    for row in document["rows"]:
        if row["draft"].startswith("quantised:"):
            key = (row["temperature"], row["draft_sampling"])
            cells.setdefault((row["draft"], row["domain"]), {})[key] = interval(
                row["alpha_from_distributions"]
            )
    settings = ((0.0, "greedy"), (1.0, "greedy"), (1.0, "sampled"))
    rows = [
        [f"{draft.partition(':')[2]} bits, {domain}", *(row_cells.get(key, "–") for key in settings)]
        for (draft, domain), row_cells in sorted(cells.items())
    ]
    return TextTable(["α of the target's own matrices at", "T = 0", "T = 1, greedy", "T = 1, drawn"], rows)


def _greedy(document: Mapping[str, Any]) -> TextTable:
    rows = [
        [
            draft,
            str(entry["requests"]),
            f"{entry['tokens']:,}",
            str(len(entry["apart"])),
            _gaps(entry["apart"]),
        ]
        for draft, entry in document["greedy"].items()
    ]
    return TextTable(
        ["drafter", "prompts", "tokens", "outputs that differ", "gap of the best two logits there"], rows
    )


def _gaps(apart: list[dict[str, Any]]) -> str:
    return ", ".join(f"{difference['gap']:.1e}" for difference in apart if "gap" in difference) or "–"


def _speed(document: Mapping[str, Any]) -> TextTable:
    timed = document["speed"]["timed"]
    plain = {row["temperature"]: row for row in timed if row["draft"] == "plain"}
    simulated = {
        (row["draft"], row["temperature"], row["draft_sampling"]): row
        for row in document["speed"]["simulated"]
        if row["domain"] == "code"
    }
    rows = []
    for row in timed:
        if row["draft"] == "plain":
            continue
        draft, temperature, sampling = row["draft"], row["temperature"], row["draft_sampling"]
        simulation = simulated.get((draft, temperature, sampling)) if row["draft_length"] == 4 else None
        measured = plain[temperature]["seconds_per_token"] / row["seconds_per_token"]
        name = f"{draft}, K = {row['draft_length']}, T = {temperature:g}, {sampling}"
        speedups = [f"{measured:.2f} ×", f"{closed_form(document, row):.2f} ×"]
        length = f"{row['mean_acceptance_length']:.2f}"
        rows.append([name, length, *speedups, "–" if simulation is None else _speedup(simulation)])
    return TextTable(["drafts", "E", "measured here", "by its step times at T = 0", "simulated, 70B"], rows)


def closed_form(document: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """The theoretical speedup of timed drafts.

    It uses the pass times at temperature 0 and the acceptance of the row's temperature, so that only
    acceptance changes.
    """
    greedy = [timed for timed in document["speed"]["timed"] if timed["temperature"] == 0.0]
    plain_s = next(timed["seconds_per_token"] for timed in greedy if timed["draft"] == "plain")
    key = (row["draft"], row["draft_length"])
    same = next(timed for timed in greedy if (timed["draft"], timed["draft_length"]) == key)
    length, round_s = row["draft_length"], same["seconds_per_token"] * same["mean_acceptance_length"]
    rest_s = round_s - same["verify_seconds"] - same["draft_seconds"]
    costs = overhead(
        same["verify_seconds"] / plain_s, same["draft_seconds"] / length / plain_s, length, rest_s / plain_s
    )
    return speedup(row["mean_acceptance_length"], costs)


def _speedup(simulated: Mapping[str, Any]) -> str:
    return f"{simulated['speedup']['value']:.2f} ×, {simulated['verdict']}"


def _setting_text(entry: Mapping[str, Any]) -> str:
    sampling = "" if entry["temperature"] == 0.0 else f", {entry['draft_sampling']} drafts"
    return f"{entry['domain']}, T = {entry['temperature']:g}{sampling}"


def _numbers(value: object) -> str:
    values = value if isinstance(value, list) else [value]
    return " ".join(f"{number:.2f}" for number in values)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
