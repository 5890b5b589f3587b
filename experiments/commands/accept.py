"""`decodesim accept`: measures the acceptance of a drafter on a real model, for use in scenarios."""

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
_SAMPLING = "Draft the drafter's most likely tokens, or sample from its distribution (default)."
_STEPS = "Verify steps per row, at least. Uses prompts until they are reached or no prompt is left."
_TOKENS = 64


@click.command()
@click.option(
    "--target", required=True, metavar="DIR|builtin", help="A Hugging Face folder, or SmolLM2-135M."
)
@click.option("--draft", required=True, metavar="KIND[:DIR]", help=f"{_KINDS}.")
@click.option("--prompts", default="builtin", show_default=True, metavar="FILE|builtin", help=_PROMPTS)
@click.option(
    "--temperature", default="0", show_default=True, metavar="0,0.7,1", help="Temperature of both models."
)
@click.option(
    "--draft-length", default="4", show_default=True, metavar="1..8", help="Draft tokens per round."
)
@click.option("--draft-sampling", metavar="greedy,sampled", help=_SAMPLING)
@click.option("--steps", type=click.IntRange(1), default=400, show_default=True, help=_STEPS)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@json_option
@writes_file
def command(output: Path | None, as_json: bool, **options: Any) -> None:
    """Measure the acceptance of a drafter on a real model.

    Reports acceptance by position with intervals, estimated in two ways, and fits acceptance models. A
    scenario can use the output file: acceptance: {file: acceptance.json, temperature: 0, domain: code}.
    """
    from calibration.optional import need

    settings = _settings(options)
    if output is not None:
        check_output(output)
    need("torch", "calibration")
    need("transformers", "lm")
    started_s = time.monotonic()
    document = _measure(options, settings, started_s)
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


def _measure(options: Mapping[str, Any], settings: list[DecodingSetting], started_s: float) -> dict[str, Any]:
    from calibration.acceptance import report
    from calibration.acceptance.prompts import BUILTIN, builtin_prompts, prompts_from_file
    from calibration.drafters.provenance import provenance
    from calibration.drafters.registry import load_drafter, max_levels
    from calibration.drafters.target_session import load_target

    target = load_target(options["target"])
    kind, maker = load_drafter(options["draft"], target)
    if kind.deterministic:
        settings = list(dict.fromkeys(_with_greedy_drafts(setting) for setting in settings))
    most = max_levels(maker)
    for setting in settings:
        if most is not None and setting.draft_length > most:
            raise _input_error(
                "--draft-length",
                setting.draft_length,
                f"is more than {options['draft']} drafts",
                f"1 to {most}",
            )
    window = None if target.network.max_tokens is None else target.network.max_tokens - _TOKENS
    if window is not None and window < 1:
        message, allowed = (
            f"reads {target.network.max_tokens} tokens",
            f"a model that reads more than {_TOKENS}",
        )
        raise _input_error("--target", options["target"], message, allowed)
    if options["prompts"] == BUILTIN:
        prompts = builtin_prompts(target.tokenizer, options["steps"], window)
    else:
        prompts = prompts_from_file(Path(options["prompts"]), target.tokenizer, window)
    samples = _run(target.network, options["draft"], maker, prompts, settings, options["steps"])
    rows = report.rows_json(samples)
    if not rows:
        raise _input_error(
            "--prompts", options["prompts"], "ends every output at its first token", "other prompts"
        )
    return {
        "schema": report.SCHEMA,
        "target": options["target"],
        "draft": options["draft"],
        "rows": rows,
        "fits": report.fits_json(samples),
        "provenance": provenance(options["target"], target.network, time.monotonic() - started_s)
        | {"paper": kind.paper, "prompts": options["prompts"], "max_tokens": _TOKENS},
        "notes": _notes(rows, options["steps"]),
    }


def _run(
    network: Any,
    draft: str,
    maker: Any,
    prompts: Sequence[TokenisedPrompt],
    settings: Sequence[DecodingSetting],
    steps: int,
) -> list[RequestSample]:
    """Measure in waves of prompts until every domain and setting has its steps, or no prompt is left."""
    from calibration.acceptance.harness import BATCH_SLOTS, measure

    samples: list[RequestSample] = []
    counts = {(prompt.domain, setting): 0 for prompt in prompts for setting in settings}
    with progress_bar("accept") as progress:
        for domain in dict.fromkeys(prompt.domain for prompt in prompts):
            domain_prompts = [prompt for prompt in prompts if prompt.domain == domain]
            for start in range(0, len(domain_prompts), BATCH_SLOTS):
                settings_short = [setting for setting in settings if counts[domain, setting] < steps]
                if not settings_short:
                    break
                wave = domain_prompts[start : start + BATCH_SLOTS]
                for sample in measure(network, draft, maker, wave, settings_short, max_tokens=_TOKENS):
                    samples.append(sample)
                    counts[domain, sample.setting] += len(sample.accepted)
                    steps_done = sum(min(count, steps) for count in counts.values())
                    progress(steps_done, steps * len(counts), "verify steps")
    return samples


def _settings(options: Mapping[str, Any]) -> list[DecodingSetting]:
    """The settings asked for. Raises InputError."""
    from calibration.acceptance.samples import LONGEST_DRAFT, DecodingSetting

    temperatures = numbers("--temperature", options["temperature"])
    for temperature in temperatures:
        if not 0.0 <= temperature <= 100.0:
            raise _input_error("--temperature", temperature, "is out of range", "0 (greedy) to 100")
    lengths = _lengths(options["draft_length"])
    for length in lengths:
        if not 1 <= length <= LONGEST_DRAFT:
            raise _input_error("--draft-length", length, "is out of range", f"1 to {LONGEST_DRAFT}")
    samplings = words(options["draft_sampling"]) or ["sampled"]
    for name in samplings:
        if name not in _SAMPLINGS:
            raise _input_error("--draft-sampling", name, "is not a sampling method", " or ".join(_SAMPLINGS))
    return list(
        dict.fromkeys(
            DecodingSetting(temperature, length, sampling if temperature > 0.0 else "greedy")
            for temperature in temperatures
            for sampling in samplings
            for length in lengths
        )
    )


def _lengths(text: str) -> list[int]:
    """The whole numbers of `1..8` or `1,3,5`."""
    first, dots, last = text.partition("..")
    if not dots:
        lengths: list[int] = numbers("--draft-length", text, integers=True)
        return lengths
    if not (first.strip().isdecimal() and last.strip().isdecimal()) or int(first) > int(last):
        raise _input_error("--draft-length", text, "is not a range", "such as 1..8, or 1,3,5")
    return list(range(int(first), int(last) + 1))


def _with_greedy_drafts(setting: DecodingSetting) -> DecodingSetting:
    """Drafters that copy text do not sample: greedy and sampled drafts are the same."""
    from dataclasses import replace

    return replace(setting, draft_sampling="greedy")


def _notes(rows: Sequence[Mapping[str, Any]], steps: int) -> list[str]:
    texts = []
    short_rows = [row for row in rows if row["verify_steps"] < steps]
    if short_rows:
        fewest_steps = min(row["verify_steps"] for row in short_rows)
        texts.append(
            f"{len(short_rows)} of {len(rows)} rows ran out of prompts before {steps} steps "
            f"(least: {fewest_steps})"
        )
    rows_apart = [row for row in rows if abs(row["alphas_differ_by_standard_errors"] or 0.0) > 4.0]
    if rows_apart:
        texts.append(
            f"in {len(rows_apart)} rows the two estimates of α differ by more than 4 standard errors: "
            "please report this as a bug"
        )
    return texts


def _print(document: Mapping[str, Any]) -> None:
    rows = document["rows"]
    longest = min(max(row["draft_length"] for row in rows), 8)
    gated = any(row["draft_coverage"] < 1.0 for row in rows)
    print_text(f"{document['draft']} drafts for {document['target']}: acceptance by row, 95 % intervals")
    gated_headings = ["with a draft", "tokens/round"] if gated else []
    rates = [f"c{j}" for j in range(1, longest + 1)]
    print_table(
        ["domain", "T", "drafts", "K", "steps", *gated_headings, "E", "α (1 − TV)", "α (counts)", *rates],
        [_cells(row, longest, gated) for row in rows],
    )
    print_table(
        ["model", "domain", "T", "drafts", "BIC above best", "worst error of E", "describes", "parameters"],
        [_fit_cells(fit) for fit in document["fits"]],
        title="Fitted models, as in a scenario; a model describes the data if its own runs look like them",
    )
    print_list("Notes", document["notes"])


def _cells(row: Mapping[str, Any], longest: int, gated: bool) -> list[str]:
    conditional = [_value(estimate, 2) for estimate in row["conditional_acceptance"][:longest]]
    gated_cells = [f"{row['draft_coverage']:.0%}", _with_interval(row["tokens_per_round"])] if gated else []
    return [
        row["domain"],
        f"{row['temperature']:g}",
        row["draft_sampling"],
        str(row["draft_length"]),
        f"{row['verify_steps']:,}",
        *gated_cells,
        _with_interval(row["mean_acceptance_length"]),
        _with_interval(row["alpha_from_distributions"]),
        _with_interval(row["alpha_from_counts"]),
        *conditional,
        *[""] * (longest - len(conditional)),
    ]


def _fit_cells(fit: Mapping[str, Any]) -> list[str]:
    goodness, parameters = fit["goodness"], fit["parameters"]
    worst_error = max(goodness["error_of_mean_acceptance_length"].values(), key=abs)
    parameter_text = ", ".join(
        f"{key} {' '.join(f'{number:.2f}' for number in (value if isinstance(value, list) else [value]))}"
        for key, value in parameters.items()
    )
    bic_above_best = goodness["bic_above_best"]
    return [
        fit["model"],
        fit["domain"],
        f"{fit['temperature']:g}",
        fit["draft_sampling"],
        "best" if bic_above_best == 0.0 else f"{bic_above_best:.0f}",
        f"{worst_error:+.1%}",
        "yes" if fit["describes"] else "no",
        parameter_text,
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


def _input_error(field: str, value: object, message: str, allowed: str) -> InputError:
    return InputError(Problem(field=field, value=value, message=message, allowed=allowed))
