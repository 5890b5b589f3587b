"""A preset of this engine on this machine: host times from two plain loads and from the engine's own code.

What a plain step takes beyond its pass comes from the gaps between tokens at two loads, what a request takes
before its first step from the first tokens there. What drafting adds cannot be seen in plain runs: it is the
time of the engine's own functions while its networks are stubs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from calibration.engine_loop.calibration_points import HOST_DRAFT_LENGTHS
from calibration.engine_loop.matrix import PLAIN, PROMPT_TOKENS, EngineVariant, LoopCell
from calibration.engine_loop.predict import Calibrated, plain_step_s, predict, scenario_data, write_json
from calibration.engine_loop.raw import GAP_UNIT_S, Figures
from calibration.engine_loop.rounds import median_figures
from calibration.engine_loop.server import MAX_NUM_SEQS
from simulator.engines.preset import SCHEMA

SERIAL_S = tuple(float(value) for value in np.linspace(0.5e-3, 6e-3, 12))
"""Seconds of client and front end for each request, of which the one that fits is taken. They are never 0: of
requests that are sent together the first is alone in its step.
"""
_ALIKE = 0.01
"""Fits whose errors differ by less are alike, and the least time is taken: as long as all requests that wait
join the next step, no figure depends on it, but at more clients a longer time would part them.
"""
_PROMPT_FACTOR = 1.8
"""A gap beyond this multiple of the median holds a prompt."""
_GLUE = ("sampler", "propose", "forward", "head")
"""Spans that are not host work of every step: the device's, or the drafter's."""


@dataclass(frozen=True)
class PlainLoad:
    """A plain run of the server: its figures, the mean gap of steps that only decode, and prompt tokens."""

    cell: LoopCell
    figures: Figures
    gap_s: float
    prompt_tokens: float

    @classmethod
    def of_rounds(cls, raws: Sequence[Mapping[str, Any]]) -> PlainLoad:
        """That of the raw files of its rounds; figures and gaps are the median of the rounds."""
        figures = median_figures([Figures.of_raw(raw) for raw in raws])
        gap_s = median(_decode_gap_s(raw) for raw in raws)
        prompt_tokens = float(np.mean([raw["input_tokens"] for raw in raws]))
        return cls(LoopCell(**raws[0]["cell"]), figures, gap_s, prompt_tokens)

    @property
    def clients(self) -> int:
        """Its clients."""
        assert self.cell.clients is not None
        return self.cell.clients

    @property
    def context_tokens(self) -> float:
        """Mean context of its decode steps."""
        return self.prompt_tokens + self.cell.output_tokens / 2


def _decode_gap_s(raw: Mapping[str, Any]) -> float:
    """Mean gap between tokens of a plain run without the gaps that hold a prompt."""
    gaps_s = np.array([gap for row in raw["gaps"] for gap in row]) * GAP_UNIT_S
    return float(gaps_s[gaps_s < _PROMPT_FACTOR * np.median(gaps_s)].mean())


def write_preset(loads: tuple[PlainLoad, PlainLoad], host: Mapping[str, Any], files: Calibrated) -> None:
    """Write the preset, first without host times, so that the simulator says what is left for them."""
    write_json(files.preset, _preset({}))
    step_s, per_sequence_s = _line(
        loads, [load.gap_s - plain_step_s(load.clients, load.context_tokens, files) for load in loads]
    )
    times = {"step_s": step_s, "per_sequence_s": per_sequence_s} | drafting(host)
    candidates = [_front_end(loads, times, serial_s, files) for serial_s in SERIAL_S]
    least_error = min(error for error, _ in candidates)
    host_times = next(times for error, times in candidates if error <= least_error + _ALIKE)
    write_json(files.preset, _preset(host_times))


def _front_end(
    loads: tuple[PlainLoad, PlainLoad], times: Mapping[str, float], serial_s: float, files: Calibrated
) -> tuple[float, dict[str, float]]:
    """(root mean square error of TTFT and TPOT, host times) if requests reach the scheduler `serial_s` apart.

    Requests that are sent together are admitted one after another, which decides how many prompts a step
    holds. What is left of the first token is the same for every request.
    """
    serial = {"prompt_token_s": serial_s / PROMPT_TOKENS}
    write_json(files.preset, _preset({**times, **serial}))
    predicted = [
        predict(
            scenario_data(load.cell, EngineVariant(PLAIN), files, load.prompt_tokens, None),
            load.cell.requests,
        )
        for load in loads
    ]
    pairs = list(zip(loads, predicted, strict=True))
    latency_s = max(float(np.mean([load.figures.ttft_s - figures.ttft_s for load, figures in pairs])), 0.0)
    errors = [math.log((figures.ttft_s + latency_s) / load.figures.ttft_s) for load, figures in pairs]
    errors += [math.log(figures.tpot_s / load.figures.tpot_s) for load, figures in pairs]
    return float(np.sqrt(np.mean(np.square(errors)))), {**times, **serial, "request_latency_s": latency_s}


def _line(loads: tuple[PlainLoad, PlainLoad], rest_s: list[float]) -> tuple[float, float]:
    """(constant, for each client) that explain what is left at two loads; neither is below 0."""
    low, high = (load.clients for load in loads)
    each_s = min(max((rest_s[1] - rest_s[0]) / (high - low), 0.0), max(rest_s[1], 0.0) / high)
    return max(float(np.mean(rest_s)) - each_s * (low + high) / 2, 0.0), each_s


def drafting(host: Mapping[str, Any]) -> dict[str, float]:
    """The preset's host times of drafting, from stubs: a step, each pass, and prompt lookup.

    The median over batches: the work is that of arrays, and hardly grows with the batch.
    """
    short, long = HOST_DRAFT_LENGTHS
    proposing = {count: _by_batch(host[f"draft-{count}"], count) for count in (short, long)}
    batches = sorted(proposing[short])
    pass_s = median([(proposing[long][b] - proposing[short][b]) / (long - short) for b in batches])
    more_s = median([_glue_s(host[f"draft-{short}"], b) - _glue_s(host[PLAIN], b) for b in batches])
    step_s = median([proposing[short][b] - short * pass_s for b in batches]) + more_s
    lookup = _by_batch(host["ngram-3"], 0)
    slope_s, start_s = np.polyfit(list(lookup), list(lookup.values()), 1)
    lookup_more_s = median([_glue_s(host["ngram-3"], b) - _glue_s(host[PLAIN], b) for b in lookup])
    return {
        "draft_pass_s": max(pass_s, 0.0),
        "draft_step_s": max(step_s, 0.0),
        "lookup_step_s": max(float(start_s) + lookup_more_s, 0.0),
        "lookup_per_sequence_s": max(float(slope_s), 0.0),
    }


def _by_batch(answer: Mapping[str, Any], passes: int) -> dict[int, float]:
    """Seconds of proposing by batch, without choosing tokens in each pass: the profile prices that."""
    choosing = {entry["rows"]: entry["argmax_s"] for entry in answer["heads"]}
    return {
        point["batch"]: point["seconds"]["propose"] - passes * choosing[point["batch"]]
        for point in answer["points"]
    }


def _glue_s(answer: Mapping[str, Any], batch: int) -> float:
    """Host seconds of a step without its device work and without drafting."""
    (point,) = (point for point in answer["points"] if point["batch"] == batch)
    seconds = point["seconds"]
    return float(seconds["step"] - sum(seconds.get(part, 0.0) for part in _GLUE))


def _preset(host: Mapping[str, float]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "inherits": "torch-2",
        "name": "vllm-cpu-0.32",
        "engine": "vLLM",
        "version": "0.32",
        "emits_before_drafting": False,
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": 2048,
        "block_tokens": 128,
        "kernels": "vllm",
        "host": {"step_s": 0.0, "per_sequence_s": 0.0, "draft_pass_s": 0.0, "eager_call_s": 0.0, **host},
    }
