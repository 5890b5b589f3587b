"""Compares tree plans: one drafter, the same prompts, equal numbers of nodes, greedy decoding.

    python -m calibration.acceptance.tree_plans [DRAFT_FOLDER]

decodes held-out prompts on the built-in target, with the trained head of a folder or with layer-skip drafts,
and writes `calibration/data/trees-smollm2.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.acceptance.rows import estimate_json, ratio
from simulator.errors import InputError, Problem
from simulator.files import whole_file
from simulator.trees import EAGLE1, DraftTree, GrowthRule, optimal_tree

if TYPE_CHECKING:
    from torch import Tensor

    from calibration.sampling.decode import Decoded
    from calibration.sampling.protocols import Drafter, Verifier

DATA = Path(__file__).resolve().parents[1] / "data" / "trees-smollm2.json"
SCHEMA = "decodesim/trees-1"
FIXED, OPTIMAL, GROWN = "EAGLE-1, fixed", "optimal for its ranks, fixed", "EAGLE-2, grows"
NODES = EAGLE1.nodes
DEPTH = 8
PROMPTS, MAX_TOKENS = 8, 40
"""Prompts per domain in each half: one half measures ranks, the other compares the plans."""

TreePlan = DraftTree | GrowthRule


def plans(best: DraftTree) -> dict[str, TreePlan]:
    """The plans by name: a chain, then trees of equal numbers of nodes (the beam has one less)."""
    return {
        "chain of 5": DraftTree.chain(5),
        FIXED: EAGLE1,
        OPTIMAL: best,
        GROWN: GrowthRule.eagle2(DEPTH, 8, NODES),
        f"{GROWN} to {EAGLE1.depth} levels": GrowthRule.eagle2(EAGLE1.depth, 8, NODES),
        "top-p 0.9, grows": GrowthRule.nucleus(DEPTH, 0.9, 8, NODES),
        "three per depth": GrowthRule.beam((NODES - 1) // 3),
    }


def measure_trees(
    target: Verifier,
    make: Callable[[TreePlan], Drafter],
    to_fit: Sequence[Tensor],
    to_compare: Sequence[Tensor],
    max_tokens: int = MAX_TOKENS,
) -> dict[str, Any]:
    """Return the measurement: the mean acceptance length of each plan, and paired differences.

    The optimal tree is built from the ranks that the fixed tree accepted on the prompts `to_fit`. A request
    whose text differs between plans is left out, because in single precision another number of rows may
    decide a near tie. Raises InputError if this happens to more than one request in ten, as greedy output
    must not depend on the drafter.
    """
    from calibration.sampling.decode import speculative_decode
    from calibration.sampling.tree_statistics import paired_difference, rank_chances

    def decoded(plan: TreePlan, prompts: Sequence[Tensor]) -> list[Decoded]:
        drafter = make(plan)
        return [
            speculative_decode(target, drafter, prompt, DEPTH, max_tokens=max_tokens) for prompt in prompts
        ]

    chances = rank_chances(EAGLE1, [r for request in decoded(EAGLE1, to_fit) for r in request.rounds])
    tree_plans = plans(optimal_tree(chances, NODES, EAGLE1.depth))
    requests_by_plan = {name: decoded(plan, to_compare) for name, plan in tree_plans.items()}
    equal = [
        len({request.tokens for request in by_plan}) == 1
        for by_plan in zip(*requests_by_plan.values(), strict=True)
    ]
    if equal.count(False) > len(equal) / 10:
        raise InputError(Problem(field="draft", message="changes the output of greedy decoding"))
    requests_by_plan = {name: list(compress(requests, equal)) for name, requests in requests_by_plan.items()}
    return {
        "schema": SCHEMA,
        "temperature": 0.0,
        "requests": equal.count(True),
        "left_out": equal.count(False),
        "max_tokens": max_tokens,
        "rank_chances": chances.round(4).tolist(),
        "plans": [_row(name, tree_plans[name], requests) for name, requests in requests_by_plan.items()],
        "differences": [
            {
                "of": GROWN,
                "to": other,
                **(estimate_json(paired_difference(requests_by_plan[GROWN], requests_by_plan[other])) or {}),
            }
            for other in (FIXED, OPTIMAL)
        ],
    }


def _row(name: str, plan: TreePlan, requests: Sequence[Decoded]) -> dict[str, Any]:
    """The figures of one plan; E is tokens ÷ rounds, with its interval over requests."""
    rounds = [outcome for request in requests for outcome in request.rounds]
    counts = [len(request.rounds) for request in requests]
    tokens = [sum(outcome.accepted + 1 for outcome in request.rounds) for request in requests]
    return {
        "plan": name,
        "nodes": 1 + max((outcome.nodes for outcome in rounds), default=0),
        "depth": max((outcome.drafted for outcome in rounds), default=0),
        "parents": list(plan.parents) if isinstance(plan, DraftTree) else None,
        "rounds": len(rounds),
        "mean_acceptance_length": estimate_json(ratio(tokens, counts)),
        "requests": [list(pair) for pair in zip(tokens, counts, strict=True)],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure on the built-in target with the drafter of a folder."""
    parser = argparse.ArgumentParser(prog="python -m calibration.acceptance.tree_plans", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", metavar="DRAFT_FOLDER")
    options = parser.parse_args(arguments)
    try:
        document = committed_measurement(options.folder)
    except InputError as error:
        sys.exit(str(error))
    with whole_file(DATA) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def committed_measurement(folder: Path | None) -> dict[str, Any]:
    """The committed measurement, with the trained head of a folder or with layer-skip drafts."""
    import torch

    from calibration.acceptance.prompts import DOMAINS, builtin_prompts
    from calibration.drafters.layer_skip import LayerSkip
    from calibration.drafters.provenance import provenance
    from calibration.drafters.target_session import load_target
    from calibration.drafters.trained import drafter_of, load_head

    target = load_target()
    head = None if folder is None else load_head(folder, target.network)

    def make(plan: TreePlan) -> Drafter:
        return LayerSkip(target, plan=plan) if head is None else drafter_of(head, target, plan)

    prompts = builtin_prompts(target.tokenizer, 2 * PROMPTS)
    to_fit: list[Tensor] = []
    to_compare: list[Tensor] = []
    for domain in DOMAINS:
        tokens = [torch.tensor(prompt.tokens) for prompt in prompts if prompt.domain == domain]
        to_fit += tokens[:PROMPTS]
        to_compare += tokens[PROMPTS : 2 * PROMPTS]
    return {
        **measure_trees(target, make, to_fit, to_compare),
        "draft": LayerSkip.kind if head is None else head.kind,
        "provenance": provenance("SmolLM2-135M-Instruct", target.network)
        | {
            "command": "python -m calibration.acceptance.tree_plans" + (" DRAFT_FOLDER" if folder else ""),
            "seed": 0,
        },
    }


if __name__ == "__main__":
    main()
