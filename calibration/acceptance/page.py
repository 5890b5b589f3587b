"""The tables of docs/measured-acceptance.md, from the committed measurement.

    python -m calibration.acceptance.page

writes them between the marks of the page anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calibration.acceptance.committed import load
from calibration.acceptance.gallery import Shown, interval
from simulator.breakeven.theory import overhead, speedup

PAGE = Path(__file__).parents[2] / "docs" / "measured-acceptance.md"
_MARK = "<!-- {} -->"


def written(page: str, document: Mapping[str, Any]) -> str:
    """Return the page with its tables written anew."""
    for name, table in tables(document):
        begin, end = _MARK.format(name), _MARK.format(f"end of {name}")
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{table.markdown()}\n{end}{after}"
    return page


def tables(document: Mapping[str, Any]) -> Iterator[tuple[str, Shown]]:
    """Yield (name of the place, table)."""
    yield "fits", _fits(document)
    yield "predictions", _predictions(document)
    yield "effects", _effects(document)
    yield "lengths", _lengths(document)
    yield "coarse", _coarse(document)
    yield "greedy", _greedy(document)
    yield "speed", _speed(document)


def _fits(document: Mapping[str, Any]) -> Shown:
    rows = []
    for entry in document["predictions"]:
        models = entry["models"]
        least = min(one["bic"] for one in models.values())
        best = models[entry["best"]]["entry"]
        said = ", ".join(f"{key} {_said(value)}" for key, value in best.items() if key != "model")
        rows.append([_where(entry), *(_judged(models[name], least) for name in _MODELS), said])
    return Shown(["fitted on K ≤ 4", *_MODELS, "the best one's parameters"], rows)


def _judged(model: Mapping[str, Any], least: float) -> str:
    """BIC above the best; struck out where runs drawn from the model do not look like the data."""
    above = "best" if model["bic"] == least else f"{model['bic'] - least:.0f}"
    return f"~~{above}~~" if model["refused"] else above


_MODELS = ("geometric", "positional", "decay", "hierarchical")


def _predictions(document: Mapping[str, Any]) -> Shown:
    rows = []
    for entry in document["predictions"]:
        for question in ("draft lengths", "prompts"):
            for one in entry["predictions"]:
                if one["question"] == question and one["draft_length"] in (4, 6, 8):
                    predicted = one["predicted"]
                    rows.append(
                        [_where(entry), "longer drafts" if question == "draft lengths" else "other prompts"]
                        + [str(one["draft_length"]), interval(one["measured"])]
                        + [f"{predicted[name]:.2f}" for name in _MODELS]
                    )
    return Shown(["", "asked", "K", "measured E", *_MODELS], rows)


def _effects(document: Mapping[str, Any]) -> Shown:
    rows = []
    for row in document["rows"]:
        scanned = (
            row["draft"] == "layer-skip" and row["temperature"] in (0.0, 1.0) and row["draft_length"] == 4
        )
        if scanned or (row["draft"] == "ngram" and row["temperature"] == 0.0):
            by_prompt = row["mean_acceptance_length_by_prompt_tokens"]
            spread = row["between_requests_sd"]
            rows.append(
                [f"{row['draft']}, {_where(row)}", "–" if spread is None else f"{spread:.2f}"]
                + [interval(row["neighbours_correlation"]), interval(row["late_minus_early"])]
                + [interval(by_prompt.get(tokens)) for tokens in ("48", "96", "192")]
            )
    columns = ["K = 4", "sd between requests", "correlation of neighbours", "second half − first"]
    return Shown([*columns, *(f"E, prompt of {tokens}" for tokens in (48, 96, 192))], rows)


def _lengths(document: Mapping[str, Any]) -> Shown:
    rows = []
    for row in document["rows"]:
        length, mean = row["draft_length"], row["mean_acceptance_length"]
        if row["draft"] == "layer-skip" and row["temperature"] == 0.0 and length in (2, 4, 8, 12, 16):
            accepted = f"{(mean['value'] - 1) / length:.0%}"
            rows.append([f"{row['domain']}, K = {length}", interval(mean), accepted])
    return Shown(["layer-skip, T = 0", "E", "of the drafts accepted"], rows)


def _coarse(document: Mapping[str, Any]) -> Shown:
    found: dict[tuple[str, str], dict[tuple[float, str], str]] = {}
    for row in document["rows"]:
        if row["draft"].startswith("quantised:"):
            key = (row["temperature"], row["draft_sampling"])
            found.setdefault((row["draft"], row["domain"]), {})[key] = interval(
                row["alpha_from_distributions"]
            )
    shown = ((0.0, "greedy"), (1.0, "greedy"), (1.0, "sampled"))
    rows = [
        [f"{draft.partition(':')[2]} bits, {domain}", *(own.get(key, "–") for key in shown)]
        for (draft, domain), own in sorted(found.items())
    ]
    return Shown(["α of the target's own matrices at", "T = 0", "T = 1, greedy", "T = 1, drawn"], rows)


def _greedy(document: Mapping[str, Any]) -> Shown:
    rows = [
        [draft, str(one["requests"]), f"{one['tokens']:,}", str(len(one["apart"])), _gaps(one["apart"])]
        for draft, one in document["greedy"].items()
    ]
    return Shown(
        ["drafter", "prompts", "tokens", "outputs that part", "gap of the best two logits there"], rows
    )


def _gaps(apart: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['gap']:.1e}" for one in apart if "gap" in one) or "–"


def _speed(document: Mapping[str, Any]) -> Shown:
    timed = document["speed"]["timed"]
    plain = {one["temperature"]: one for one in timed if one["draft"] == "plain"}
    simulated = {
        (one["draft"], one["temperature"], one["draft_sampling"]): one
        for one in document["speed"]["simulated"]
        if one["domain"] == "code"
    }
    rows = []
    for one in timed:
        if one["draft"] == "plain":
            continue
        draft, temperature, how = one["draft"], one["temperature"], one["draft_sampling"]
        other = simulated.get((draft, temperature, how)) if one["draft_length"] == 4 else None
        here = plain[temperature]["seconds_per_token"] / one["seconds_per_token"]
        name = f"{draft}, K = {one['draft_length']}, T = {temperature:g}, {how}"
        shown = [f"{here:.2f} ×", f"{closed_form(document, one):.2f} ×"]
        length = f"{one['mean_acceptance_length']:.2f}"
        rows.append([name, length, *shown, "–" if other is None else _speedup(other)])
    return Shown(["drafts", "E", "measured here", "by its step times at T = 0", "simulated, 70B"], rows)


def closed_form(document: Mapping[str, Any], one: Mapping[str, Any]) -> float:
    """The speedup that theory gives for timed drafts: passes as they were timed at temperature 0, and the
    acceptance of the temperature, so that nothing but acceptance changes.
    """
    timed = [row for row in document["speed"]["timed"] if row["temperature"] == 0.0]
    plain_s = next(row["seconds_per_token"] for row in timed if row["draft"] == "plain")
    key = (one["draft"], one["draft_length"])
    same = next(row for row in timed if (row["draft"], row["draft_length"]) == key)
    length, round_s = one["draft_length"], same["seconds_per_token"] * same["mean_acceptance_length"]
    rest_s = round_s - same["verify_seconds"] - same["draft_seconds"]
    costs = overhead(
        same["verify_seconds"] / plain_s, same["draft_seconds"] / length / plain_s, length, rest_s / plain_s
    )
    return speedup(one["mean_acceptance_length"], costs)


def _speedup(simulated: Mapping[str, Any]) -> str:
    return f"{simulated['speedup']['value']:.2f} ×, {simulated['verdict']}"


def _where(entry: Mapping[str, Any]) -> str:
    how = "" if entry["temperature"] == 0.0 else f", {entry['draft_sampling']} drafts"
    return f"{entry['domain']}, T = {entry['temperature']:g}{how}"


def _said(value: object) -> str:
    values = value if isinstance(value, list) else [value]
    return " ".join(f"{one:.2f}" for one in values)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
