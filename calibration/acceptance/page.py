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
    yield "greedy", _greedy(document)
    yield "speed", _speed(document)


def _fits(document: Mapping[str, Any]) -> Shown:
    rows = []
    for entry in document["predictions"]:
        models = entry["models"]
        least = min(one["bic"] for one in models.values())
        above = [f"{one['bic'] - least:.0f}" if one["bic"] > least else "**best**" for one in models.values()]
        best = models[entry["best"]]["entry"]
        said = ", ".join(f"{key} {_said(value)}" for key, value in best.items() if key != "model")
        rows.append([_where(entry), *(dict(zip(models, above, strict=True))[name] for name in _MODELS), said])
    return Shown(["fitted on K ≤ 4", *_MODELS, "the best one's parameters"], rows)


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
    timed = {(one["temperature"], one["drafts"]): one for one in document["speed"]["timed"]}
    simulated = {
        (one["temperature"], one["draft_sampling"]): one
        for one in document["speed"]["simulated"]
        if one["domain"] == "code"
    }
    rows = []
    for (temperature, drafts), one in timed.items():
        plain = timed[temperature, "plain"]["seconds_per_token"]
        other = simulated.get((temperature, drafts))
        shown = [f"{plain / one['seconds_per_token']:.2f} ×", "–" if other is None else _speedup(other)]
        rows.append([f"T = {temperature:g}, {drafts}", f"{one['mean_acceptance_length']:.2f}", *shown])
    return Shown(["", "E measured", "speed measured here", "speed simulated, a cheap drafter for 70B"], rows)


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
