"""Defaults of benchmark tools, for sources that name the tool without its settings."""

from __future__ import annotations

import re
from typing import NamedTuple

from calibration.validation.reconstruction.cases import PublishedCase


class ToolConvention(NamedTuple):
    """Defaults of one tool.

    `shortest`: lengths are uniform between this share of the nominal length and the nominal length.
    `prompts_per_client`, `prompts`: number of requests sent.
    """

    tool: str
    pattern: str
    shortest: float | None = None
    prompts_per_client: int | None = None
    prompts: int | None = None


_TOOLS = (
    # benchmark_serving.py with --random-range-ratio 0.8 --num-prompts $((CONC * 10)) --ignore-eos:
    # README of InferenceMAX, its former name.
    ToolConvention("InferenceX", r"inferencex|inferencemax", shortest=0.8, prompts_per_client=10),
    # 20 prompts of MT-Bench by default, according to case specforge339_q30a3b_2xh100_plain.
    ToolConvention("SpecForge bench", r"specforge bench", prompts=20),
)


def convention_of(case: PublishedCase) -> ToolConvention | None:
    """The conventions of the tool that a case was measured with; None for an unknown tool."""
    words = f"{case.source_id} {case.framework.name} {case.framework.note}".lower()
    return next((tool for tool in _TOOLS if re.search(tool.pattern, words)), None)
