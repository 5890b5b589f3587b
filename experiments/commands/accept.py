"""`decodesim accept`: acceptance of a drafter on a real model, as a file that scenarios take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import check_output, json_option, numbers, words, writes_file
from experiments.commands.output import (
    NOTHING,
    note,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from calibration.acceptance.prompts import TokenisedPrompt
    from calibration.acceptance.samples import DecodingSetting, RequestSample

_SAMPLINGS = ("greedy", "sampled")
_KINDS = "layer-skip, ngram, suffix, lookahead, quantised:BITS; draft-model, eagle, eagle3, medusa, mtp:DIR"
_PROMPTS = (
    'One prompt a line, or JSON lines {"prompt", "domain"}; builtin: code and prose of Python\'s library.'
)
_SAMPLING = "Drafts are the drafter's best tokens, or drawn from its distribution (default)."
_STEPS = "Verify steps a row, at least: prompts are taken until they are done or none is left."
_TOKENS = 64


@click.command()
@click.option(
    "--target", required=True, metavar="DIR|builtin", help="A Hugging Face folder, or SmolLM2-135M."
)
@click.option("--draft", required=True, metavar="KIND[:DIR]", help=f"{_KINDS}.")
@click.option("--prompts", default="builtin", show_default=True, metavar="FILE|builtin", help=_PROMPTS)
@click.option("--temperature", default="0", show_default=True, metavar="0,0.7,1", help="Of both models.")
@click.option("--draft-length", default="4", show_default=True, metavar="1..8", help="Draft tokens a round.")
@click.option("--draft-sampling", metavar="greedy,sampled", help=_SAMPLING)
@click.option("--steps", type=click.IntRange(1), default=400, show_default=True, help=_STEPS)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@json_option
@writes_file
def command(output: Path | None, as_json: bool, **given: Any) -> None:
    """Acceptance of a drafter on a real model: by position, two ways, with intervals, and fitted models.

    The file it writes is an acceptance of scenarios: {file: acceptance.json, temperature: 0, domain: code}.
    """
    from calibration.optional import need

    settings = _settings(given)
    if output is not None:
        check_output(output)
    need("torch", "calibration")
    need("transformers", "lm")
    begun = time.monotonic()
    document = _measure(given, settings, begun)
    if output is not None:
        from simulator.files import whole_file
        from simulator.results.result import dump_json

        with whole_file(output) as part:
            part.write_text(dump_json(document), encoding="utf-8")
    if as_json:
        print_json(document)
    else:
        _print(document)
        if output is not None:
            note(f"{output} written; in a scenario: acceptance: {{file: {output.name}, …}}")


def _measure(given: Mapping[str, Any], settings: list[DecodingSetting], begun: float) -> dict[str, Any]:
    from calibration.acceptance import report
    from calibration.acceptance.prompts import BUILTIN, builtin_prompts, prompts_from_file
    from calibration.drafters.provenance import provenance
    from calibration.drafters.registry import load_drafter, max_levels
    from calibration.drafters.target_session import load_target

    target = load_target(given["target"])
    kind, maker = load_drafter(given["draft"], target)
    if kind.deterministic:
        settings = list(dict.fromkeys(_certain(one) for one in settings))
    most = max_levels(maker)
    for one in settings:
        if most is not None and one.draft_length > most:
            raise _wrong(
                "--draft-length", one.draft_length, f"is more than {given['draft']} drafts", f"1 to {most}"
            )
    window = None if target.network.max_tokens is None else target.network.max_tokens - _TOKENS
    if window is not None and window < 1:
        message, allowed = (
            f"reads {target.network.max_tokens} tokens",
            f"a model that reads more than {_TOKENS}",
        )
        raise _wrong("--target", given["target"], message, allowed)
    if given["prompts"] == BUILTIN:
        prompts = builtin_prompts(target.tokenizer, given["steps"], window)
    else:
        prompts = prompts_from_file(Path(given["prompts"]), target.tokenizer, window)
    samples = _run(target.network, given["draft"], maker, prompts, settings, given["steps"])
    rows = report.rows_json(samples)
    if not rows:
        raise _wrong("--prompts", given["prompts"], "ends every output at its first token", "other prompts")
    return {
        "schema": report.SCHEMA,
        "target": given["target"],
        "draft": given["draft"],
        "rows": rows,
        "fits": report.fits_json(samples),
        "provenance": provenance(given["target"], target.network, time.monotonic() - begun)
        | {"paper": kind.paper, "prompts": given["prompts"], "max_tokens": _TOKENS},
        "notes": _notes(rows, given["steps"]),
    }


def _run(
    network: Any,
    draft: str,
    maker: Any,
    prompts: Sequence[TokenisedPrompt],
    settings: Sequence[DecodingSetting],
    steps: int,
) -> list[RequestSample]:
    """Measure wave by wave of prompts until every domain and setting has its steps, or no prompt is left."""
    from calibration.acceptance.harness import BATCH_SLOTS, measure

    samples: list[RequestSample] = []
    counts = {(one.domain, setting): 0 for one in prompts for setting in settings}
    with progress_bar("accept") as progress:
        for domain in dict.fromkeys(one.domain for one in prompts):
            own = [one for one in prompts if one.domain == domain]
            for first in range(0, len(own), BATCH_SLOTS):
                short = [setting for setting in settings if counts[domain, setting] < steps]
                if not short:
                    break
                wave = own[first : first + BATCH_SLOTS]
                for sample in measure(network, draft, maker, wave, short, max_tokens=_TOKENS):
                    samples.append(sample)
                    counts[domain, sample.setting] += len(sample.accepted)
                    done = sum(min(one, steps) for one in counts.values())
                    progress(done, steps * len(counts), "verify steps")
    return samples


def _settings(given: Mapping[str, Any]) -> list[DecodingSetting]:
    """The settings asked for. Raises InputError."""
    from calibration.acceptance.samples import LONGEST_DRAFT, DecodingSetting

    temperatures = numbers("--temperature", given["temperature"])
    for one in temperatures:
        if not 0.0 <= one <= 100.0:
            raise _wrong("--temperature", one, "is out of range", "0 (greedy) to 100")
    lengths = _lengths(given["draft_length"])
    for length in lengths:
        if not 1 <= length <= LONGEST_DRAFT:
            raise _wrong("--draft-length", length, "is out of range", f"1 to {LONGEST_DRAFT}")
    samplings = words(given["draft_sampling"]) or ["sampled"]
    for name in samplings:
        if name not in _SAMPLINGS:
            raise _wrong("--draft-sampling", name, "is no way of sampling", " or ".join(_SAMPLINGS))
    return list(
        dict.fromkeys(
            DecodingSetting(temperature, length, how if temperature > 0.0 else "greedy")
            for temperature in temperatures
            for how in samplings
            for length in lengths
        )
    )


def _lengths(text: str) -> list[int]:
    """The whole numbers of `1..8` or `1,3,5`."""
    first, dots, last = text.partition("..")
    if not dots:
        found: list[int] = numbers("--draft-length", text, whole=True)
        return found
    if not (first.strip().isdecimal() and last.strip().isdecimal()) or int(first) > int(last):
        raise _wrong("--draft-length", text, "is no range", "as 1..8, or 1,3,5")
    return list(range(int(first), int(last) + 1))


def _certain(setting: DecodingSetting) -> DecodingSetting:
    """Look-ups draw nothing: greedy and sampled drafts are the same."""
    from dataclasses import replace

    return replace(setting, draft_sampling="greedy")


def _notes(rows: Sequence[Mapping[str, Any]], steps: int) -> list[str]:
    found = []
    short = [row for row in rows if row["verify_steps"] < steps]
    if short:
        least = min(row["verify_steps"] for row in short)
        found.append(
            f"{len(short)} of {len(rows)} rows ran out of prompts before {steps} steps (least: {least})"
        )
    apart = [row for row in rows if abs(row["alphas_differ_by_standard_errors"] or 0.0) > 4.0]
    if apart:
        found.append(
            f"in {len(apart)} rows the two α differ by more than 4 standard errors: report it as a fault"
        )
    return found


def _print(document: Mapping[str, Any]) -> None:
    rows = document["rows"]
    longest = min(max(row["draft_length"] for row in rows), 8)
    gated = any(row["draft_coverage"] < 1.0 for row in rows)
    print_text(f"{document['draft']} drafts for {document['target']}: acceptance by row, 95 % intervals")
    found = ["with a draft", "tokens/round"] if gated else []
    rates = [f"c{j}" for j in range(1, longest + 1)]
    print_table(
        ["domain", "T", "drafts", "K", "steps", *found, "E", "α (1 − TV)", "α (counts)", *rates],
        [_cells(row, longest, gated) for row in rows],
    )
    print_table(
        ["model", "domain", "T", "drafts", "BIC above best", "worst error of E", "describes", "parameters"],
        [_fit_cells(fit) for fit in document["fits"]],
        title="Fitted models, as a scenario writes them; one describes data that its own runs look like",
    )
    print_list("Notes", document["notes"])


def _cells(row: Mapping[str, Any], longest: int, gated: bool) -> list[str]:
    conditional = [_value(one, 2) for one in row["conditional_acceptance"][:longest]]
    found = [f"{row['draft_coverage']:.0%}", _with_interval(row["tokens_per_round"])] if gated else []
    return [
        row["domain"],
        f"{row['temperature']:g}",
        row["draft_sampling"],
        str(row["draft_length"]),
        f"{row['verify_steps']:,}",
        *found,
        _with_interval(row["mean_acceptance_length"]),
        _with_interval(row["alpha_from_distributions"]),
        _with_interval(row["alpha_from_counts"]),
        *conditional,
        *[""] * (longest - len(conditional)),
    ]


def _fit_cells(fit: Mapping[str, Any]) -> list[str]:
    goodness, parameters = fit["goodness"], fit["parameters"]
    worst = max(goodness["error_of_mean_acceptance_length"].values(), key=abs)
    said = ", ".join(
        f"{key} {' '.join(f'{one:.2f}' for one in (value if isinstance(value, list) else [value]))}"
        for key, value in parameters.items()
    )
    best = goodness["bic_above_best"]
    return [
        fit["model"],
        fit["domain"],
        f"{fit['temperature']:g}",
        fit["draft_sampling"],
        "best" if best == 0.0 else f"{best:.0f}",
        f"{worst:+.1%}",
        "yes" if fit["describes"] else "no",
        said,
    ]


def _with_interval(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None:
        return NOTHING
    if estimate["ci95"] is None:
        return f"{estimate['value']:.2f}"
    low, high = estimate["ci95"]
    return f"{estimate['value']:.2f} ± {(high - low) / 2:.2f}"


def _value(estimate: Mapping[str, Any] | None, places: int) -> str:
    return NOTHING if estimate is None else f"{estimate['value']:.{places}f}"


def _wrong(field: str, value: object, message: str, allowed: str) -> InputError:
    return InputError(Problem(field=field, value=value, message=message, allowed=allowed))
