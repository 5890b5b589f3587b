"""The comparison of trees, on tables instead of models."""

from __future__ import annotations

import pytest
import torch

from calibration.acceptance.tree_plans import GROWN, NODES, TreePlan, measure_trees
from calibration.sampling.protocols import Proposal
from simulator.errors import InputError
from tests.token_tables import TableDrafter, TableTarget, random_table

TARGET = random_table(40, 1, 2.0)
DRAFT = TARGET + random_table(40, 2, 2.0)
PROMPTS = [torch.tensor([token, (7 * token) % 40]) for token in range(16)]


class Cheat(TableTarget):
    """A verifier whose logits depend on how many drafts it sees."""

    def score(self, last: int, proposal: Proposal) -> torch.Tensor:
        """Logits that favour a token by the number of drafts."""
        logits = super().score(last, proposal).clone()
        logits[:, len(proposal.tokens)] += 100.0
        return logits


def test_plans_are_compared_on_the_same_texts() -> None:
    result = measure_trees(
        TableTarget(TARGET), lambda plan: TableDrafter(DRAFT, plan), PROMPTS[:6], PROMPTS[6:], 24
    )
    rows = {row["plan"]: row for row in result["plans"]}
    assert len(rows) == 7
    assert all(row["nodes"] <= NODES for row in rows.values())
    assert len(rows[GROWN]["requests"]) == 10
    for row in rows.values():
        tokens, rounds = (sum(counts) for counts in zip(*row["requests"], strict=True))
        assert row["rounds"] == rounds
        assert row["mean_acceptance_length"]["value"] == pytest.approx(tokens / rounds, abs=1e-6)
    for difference in result["differences"]:
        first, other = (rows[difference[key]]["mean_acceptance_length"]["value"] for key in ("of", "to"))
        assert difference["value"] == pytest.approx(first - other, abs=3e-6)
        assert difference["ci95"][0] < difference["value"] < difference["ci95"][1]


def test_a_drafter_that_changes_the_text_is_found_out() -> None:
    def make(plan: TreePlan) -> TableDrafter:
        return TableDrafter(DRAFT, plan)

    with pytest.raises(InputError, match="greedy decoding"):
        measure_trees(Cheat(TARGET), make, PROMPTS[:2], PROMPTS[2:4], 24)
