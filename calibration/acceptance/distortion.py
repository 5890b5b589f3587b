"""Measures what typical acceptance gains and how much it changes the distribution, on a real model.

    python -m calibration.acceptance.distortion

decodes held-out prompts with the built-in target and layer-skip drafts, by the exact rule and by Medusa's
rule, and writes `calibration/data/typical-smollm2.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from calibration.acceptance.rows import estimate_json, ratio
from simulator.errors import InputError
from simulator.files import whole_file

if TYPE_CHECKING:
    from torch import Tensor

    from calibration.sampling.decode import Round
    from calibration.sampling.protocols import Drafter, Proposal, Verifier

DATA = Path(__file__).resolve().parents[1] / "data" / "typical-smollm2.json"
SCHEMA = "decodesim/typical-1"
TEMPERATURES = (0.7, 1.0)
PROMPTS, MAX_TOKENS, DRAFT_LENGTH = 4, 32, 4


def measure_distortion(
    target: Verifier,
    drafter: Drafter,
    prompts: Sequence[Tensor],
    temperature: float,
    draft_sampling: Literal["greedy", "sampled"],
    max_tokens: int = MAX_TOKENS,
) -> dict[str, Any]:
    """Return tokens ÷ rounds under both rules, and the distortion.

    The distortion is the total variation between the typical distribution and the target's, averaged over the
    drafts that were tried.
    """
    from torch.nn.functional import one_hot

    from calibration.sampling.decode import VerificationRule, speculative_decode
    from calibration.sampling.rejection import accept_tree
    from calibration.sampling.typical import Typical, total_variation

    typical = Typical()
    distances: list[float] = []

    def observe(outcome: Round, proposal: Proposal, distributions: Tensor) -> None:
        tried = min(outcome.accepted + 1, len(proposal.tokens))
        p = distributions[:tried]
        q = (
            one_hot(proposal.tokens[:tried], p.shape[1]).to(p)
            if proposal.distributions is None
            else proposal.distributions[:tried]
        )
        distances.extend(total_variation(typical.typical_distribution(p, q), p).tolist())

    def length(rule: VerificationRule) -> dict[str, Any] | None:
        rounds, tokens = [], []
        for prompt in prompts:
            request = speculative_decode(
                target,
                drafter,
                prompt,
                DRAFT_LENGTH,
                temperature,
                draft_sampling=draft_sampling,
                max_tokens=max_tokens,
                rule=rule,
                observe=observe if rule is typical else None,
            )
            rounds.append(len(request.rounds))
            tokens.append(sum(outcome.accepted + 1 for outcome in request.rounds))
        return estimate_json(ratio(tokens, rounds))

    return {
        "temperature": temperature,
        "draft_sampling": draft_sampling,
        "exact": length(accept_tree),
        "typical": length(typical),
        "distortion": round(math.fsum(distances) / len(distances), 4),
        "drafts_tried": len(distances),
    }


def main() -> None:
    """Measure on the built-in target."""
    argparse.ArgumentParser(
        prog="python -m calibration.acceptance.distortion", description=__doc__
    ).parse_args()
    try:
        document = committed_measurement()
    except InputError as error:
        sys.exit(str(error))
    with whole_file(DATA) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def committed_measurement() -> dict[str, Any]:
    """The committed measurement."""
    import torch

    from calibration.acceptance.prompts import builtin_prompts
    from calibration.drafters.layer_skip import LayerSkip
    from calibration.drafters.provenance import provenance
    from calibration.drafters.target_session import load_target

    target = load_target()
    prompts = [torch.tensor(prompt.tokens) for prompt in builtin_prompts(target.tokenizer, PROMPTS)]
    draft_samplings: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    return {
        "schema": SCHEMA,
        "draft": LayerSkip.kind,
        "draft_length": DRAFT_LENGTH,
        "requests": len(prompts),
        "max_tokens": MAX_TOKENS,
        "rows": [
            measure_distortion(target, LayerSkip(target), prompts, temperature, draft_sampling)
            for temperature in TEMPERATURES
            for draft_sampling in draft_samplings
        ],
        "provenance": provenance("SmolLM2-135M-Instruct", target.network)
        | {"command": "python -m calibration.acceptance.distortion", "seed": 0},
    }


if __name__ == "__main__":
    main()
