"""Rows as `decodesim accept` writes them, with acceptance that is known."""

from __future__ import annotations

from typing import Any

from simulator.breakeven.theory import tokens_per_verify


def measured_row(
    alpha: float, draft_length: int, temperature: float = 0.0, draft_sampling: str = "greedy", **names: str
) -> dict[str, Any]:
    """A row of i.i.d. acceptance `alpha`, every figure ± 0.01."""

    def figure(value: float) -> dict[str, Any]:
        return {"value": value, "ci95": [value - 0.01, value + 0.01]}

    return {
        "draft": "layer-skip",
        "domain": "code",
        "temperature": temperature,
        "draft_length": draft_length,
        "draft_sampling": draft_sampling,
        "requests": 10,
        "verify_steps": 300,
        "mean_acceptance_length": figure(tokens_per_verify(alpha, draft_length)),
        "acceptance_rate_at": [figure(alpha**j) for j in range(1, draft_length + 1)],
        "conditional_acceptance": [figure(alpha)] * draft_length,
        "alpha_from_distributions": figure(alpha),
        "alpha_from_counts": figure(alpha),
        **names,
    }
