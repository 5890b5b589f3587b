"""Samples drawn from an acceptance model, as a real run would give them."""

from __future__ import annotations

import numpy as np

from calibration.acceptance.predict import decode
from calibration.acceptance.samples import DecodingSetting, RequestSample
from simulator.acceptance import AcceptanceModel


def synthetic_samples(
    model: AcceptanceModel,
    draft_lengths: tuple[int, ...],
    requests: int,
    tokens: int,
    seed: int = 0,
    domain: str = "code",
) -> list[RequestSample]:
    """Return requests decoded at each draft length, every run a request of its own."""
    generator = np.random.default_rng(seed)
    result = []
    for draft_length in draft_lengths:
        for request, accepted in enumerate(decode(model, draft_length, tokens, requests, generator)):
            result.append(
                RequestSample(
                    draft="drawn",
                    domain=domain,
                    prompt=f"{domain}/{draft_length}/{request}",
                    prompt_tokens=(48, 96, 192)[request % 3],
                    setting=DecodingSetting(1.0, draft_length, "sampled"),
                    max_tokens=tokens,
                    drafted=(draft_length,) * len(accepted),
                    nodes=(draft_length,) * len(accepted),
                    accepted=tuple(accepted),
                    levels=(),
                )
            )
    return result
