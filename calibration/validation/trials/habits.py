"""What benchmark tools do by themselves, where a source names the tool and not what it did."""

from __future__ import annotations

import re
from typing import NamedTuple

from calibration.validation.trials.cases import Case


class Habit(NamedTuple):
    """`shortest`: lengths are drawn evenly from this share of the nominal one up to it.
    `prompts_per_client`, `prompts`: how many requests are sent.
    """

    tool: str
    pattern: str
    shortest: float | None = None
    prompts_per_client: int | None = None
    prompts: int | None = None


_TOOLS = (
    # benchmark_serving.py with --random-range-ratio 0.8 --num-prompts $((CONC * 10)) --ignore-eos:
    # README of InferenceMAX, which it was called before.
    Habit("InferenceX", r"inferencex|inferencemax", shortest=0.8, prompts_per_client=10),
    # 20 prompts of MT-Bench unless told otherwise, says case specforge339_q30a3b_2xh100_plain.
    Habit("SpecForge bench", r"specforge bench", prompts=20),
)


def habit_of(case: Case) -> Habit | None:
    """The habits of the tool that a case was measured with; None for tools without."""
    words = f"{case.source_id} {case.framework.name} {case.framework.note}".lower()
    return next((tool for tool in _TOOLS if re.search(tool.pattern, words)), None)
