"""Trees against each other: one drafter, the same prompts, as many nodes, greedy decoding.

    python -m calibration.acceptance.tree_plans [DRAFT_FOLDER]

decodes held-out prompts on the builtin target, with the trained head of a folder or with layer-skip drafts,
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
"""Prompts of each domain for each half: one to measure ranks on, one to compare the plans on."""

Plan = DraftTree | GrowthRule


def plans(best: DraftTree) -> dict[str, Plan]:
    """What is compared, by name: a chain, then trees of as many nodes (a beam of one less)."""
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
    make: Callable[[Plan], Drafter],
    to_fit: Sequence[Tensor],
    to_compare: Sequence[Tensor],
    max_tokens: int = MAX_TOKENS,
) -> dict[str, Any]:
    """Return the measurement: per plan the mean acceptance length, and paired differences.

    The optimal tree is made from ranks that the fixed tree met on the prompts `to_fit`. A request whose text
    differs between plans is left out: in single precision another number of rows may turn a near tie. Raises
    InputError when that happens to more than one in ten: greedy output must not depend on the drafter.
    """
    from calibration.sampling.decode import speculative_decode
    from calibration.sampling.measured import paired_difference, rank_chances

    def decoded(plan: Plan, prompts: Sequence[Tensor]) -> list[Decoded]:
        drafter = make(plan)
        return [speculative_decode(target, drafter, one, DEPTH, max_tokens=max_tokens) for one in prompts]

    chances = rank_chances(EAGLE1, [one for request in decoded(EAGLE1, to_fit) for one in request.rounds])
    compared = plans(optimal_tree(chances, NODES, EAGLE1.depth))
    found = {name: decoded(plan, to_compare) for name, plan in compared.items()}
    alike = [len({one.tokens for one in ways}) == 1 for ways in zip(*found.values(), strict=True)]
    if alike.count(False) > len(alike) / 10:
        raise InputError(Problem(field="draft", message="changes what greedy decoding says"))
    found = {name: list(compress(requests, alike)) for name, requests in found.items()}
    return {
        "schema": SCHEMA,
        "temperature": 0.0,
        "requests": alike.count(True),
        "left_out": alike.count(False),
        "max_tokens": max_tokens,
        "rank_chances": chances.round(4).tolist(),
        "plans": [_row(name, compared[name], requests) for name, requests in found.items()],
        "differences": [
            {"of": GROWN, "to": other, **(estimate_json(paired_difference(found[GROWN], found[other])) or {})}
            for other in (FIXED, OPTIMAL)
        ],
    }


def _row(name: str, plan: Plan, requests: Sequence[Decoded]) -> dict[str, Any]:
    """One plan's figures; E is tokens ÷ rounds, its interval that of requests."""
    rounds = [one for request in requests for one in request.rounds]
    counts = [len(request.rounds) for request in requests]
    tokens = [sum(one.accepted + 1 for one in request.rounds) for request in requests]
    return {
        "plan": name,
        "nodes": 1 + max((one.nodes for one in rounds), default=0),
        "depth": max((one.drafted for one in rounds), default=0),
        "parents": list(plan.parents) if isinstance(plan, DraftTree) else None,
        "rounds": len(rounds),
        "mean_acceptance_length": estimate_json(ratio(tokens, counts)),
        "requests": [list(pair) for pair in zip(tokens, counts, strict=True)],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure on the builtin target with the drafter of a folder."""
    parser = argparse.ArgumentParser(prog="python -m calibration.acceptance.tree_plans", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", metavar="DRAFT_FOLDER")
    given = parser.parse_args(arguments)
    try:
        document = measured(given.folder)
    except InputError as error:
        sys.exit(str(error))
    with whole_file(DATA) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measured(folder: Path | None) -> dict[str, Any]:
    """The committed measurement, with the trained head of a folder or with layer-skip drafts."""
    import torch

    from calibration.acceptance.prompts import DOMAINS, builtin_prompts
    from calibration.drafters.layer_skip import LayerSkip
    from calibration.drafters.provenance import provenance
    from calibration.drafters.target import load_target
    from calibration.drafters.trained import drafter_of, load_head

    target = load_target()
    head = None if folder is None else load_head(folder, target.network)

    def make(plan: Plan) -> Drafter:
        return LayerSkip(target, plan=plan) if head is None else drafter_of(head, target, plan)

    prompts = builtin_prompts(target.tokenizer, 2 * PROMPTS)
    to_fit: list[Tensor] = []
    to_compare: list[Tensor] = []
    for domain in DOMAINS:
        of = [torch.tensor(one.tokens) for one in prompts if one.domain == domain]
        to_fit += of[:PROMPTS]
        to_compare += of[PROMPTS : 2 * PROMPTS]
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
