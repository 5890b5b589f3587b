"""What typical acceptance gains and how far it bends the law, on a real model.

    python -m calibration.acceptance.distortion

decodes held-out prompts with the builtin target and layer-skip drafts, by the exact rule and by Medusa's, and
writes `calibration/data/typical-smollm2.json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simulator.files import whole_file
from simulator.results.estimate import mean_estimate

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
    """Return both rules' mean acceptance length and, per draft tried, the distortion: how far the typical law
    lies from the target's (total variation).
    """
    from torch.nn.functional import one_hot

    from calibration.sampling.decode import Rule, speculative_decode
    from calibration.sampling.rejection import accept_tree
    from calibration.sampling.typical import Typical, total_variation

    typical = Typical()
    distances: list[float] = []

    def observe(seen: Round, proposal: Proposal, laws: Tensor) -> None:
        tried = min(seen.accepted + 1, len(proposal.tokens))
        p = laws[:tried]
        q = (
            one_hot(proposal.tokens[:tried], p.shape[1]).to(p)
            if proposal.laws is None
            else proposal.laws[:tried]
        )
        distances.extend(total_variation(typical.typical_law(p, q), p).tolist())

    def lengths(rule: Rule) -> list[float]:
        return [
            speculative_decode(
                target,
                drafter,
                prompt,
                DRAFT_LENGTH,
                temperature,
                draft_sampling=draft_sampling,
                max_tokens=max_tokens,
                rule=rule,
                observe=observe if rule is typical else None,
            ).mean_acceptance_length
            for prompt in prompts
        ]

    row: dict[str, Any] = {"temperature": temperature, "draft_sampling": draft_sampling}
    for name, rule in (("exact", accept_tree), ("typical", typical)):
        estimate = mean_estimate(lengths(rule))
        assert estimate is not None
        interval = estimate.ci95 or (math.nan, math.nan)
        row[name] = {"value": round(estimate.value, 3), "ci95": [round(end, 3) for end in interval]}
    row["distortion"] = round(math.fsum(distances) / len(distances), 4)
    row["drafts_tried"] = len(distances)
    return row


def main() -> None:
    """Measure on the builtin target."""
    import torch

    from calibration.acceptance.prompts import builtin_prompts
    from calibration.drafters.layer_skip import LayerSkip
    from calibration.drafters.target import load_target

    target = load_target()
    prompts = [torch.tensor(one.tokens) for one in builtin_prompts(target.tokenizer, PROMPTS)]
    ways: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    rows = [
        measure_distortion(target, LayerSkip(target), prompts, temperature, how)
        for temperature in TEMPERATURES
        for how in ways
    ]
    document = {
        "schema": SCHEMA,
        "target": "SmolLM2-135M-Instruct",
        "draft": "layer-skip",
        "draft_length": DRAFT_LENGTH,
        "requests": len(prompts),
        "max_tokens": MAX_TOKENS,
        "rows": rows,
    }
    with whole_file(DATA) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
