"""What each method costs a step, against numbers from papers and engine sources, as the compiled step holds
them: K = 4, on vLLM's preset unless stated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from simulator.scenario import Scenario
from simulator.speculation import methods
from simulator.step.settings import EngineSettings
from simulator.step.state import State
from tests.contracts.test_methods import scenario_of
from tests.runs import drafting_variant, final_state, traffic

K = 4


@dataclass(frozen=True)
class Cost:
    """Of one request in a round of K drafts. `first`: rows that it adds to the first drafter pass, beyond the
    step's own tokens where `reads_tokens`; `later`: rows of each later pass. `verified`: query rows. `slots`:
    KV slots ahead. `waits`: the next step waits for the tokens on the host.
    """

    passes: int
    first: int
    later: tuple[int, ...]
    reads_tokens: bool
    verified: int
    slots: int
    waits: bool = False


CHAINS = {
    # K serial passes: all tokens of the step, then one row a request.
    "eagle": Cost(4, 0, (1, 1, 1), True, 5, 4),
    "eagle3": Cost(4, 0, (1, 1, 1), True, 5, 4),
    "mtp": Cost(4, 0, (1, 1, 1), True, 5, 4),
    # A draft model reads the newest token as a row of its own: N + R.
    "draft_model": Cost(4, 1, (1, 1, 1), True, 5, 4),
    # Parallel drafters: N + R(K − 1), and N + RK with a draft model, in one pass.
    "peagle": Cost(1, 3, (), True, 5, 4),
    "pard": Cost(1, 4, (), True, 5, 4),
    # A block of K masks behind the newest token, and of K.
    "dflash": Cost(1, 5, (), False, 5, 5),
    "dspark": Cost(1, 4, (), False, 5, 4),
    # The target drafts for itself, a row a pass, into KV that it has.
    "layer_skip": Cost(4, 1, (1, 1, 1), False, 5, 0),
    "magicdec": Cost(4, 1, (1, 1, 1), False, 5, 0),
    # No network: the host looks up, and the next step waits for it.
    "suffix": Cost(0, 0, (), False, 5, 0, waits=True),
}


def compiled(scenario: Scenario) -> tuple[EngineSettings, State]:
    """The settings of the variant's engine, and what it knows at the end of a run."""
    variant = drafting_variant(scenario)
    return variant.settings, final_state(variant, traffic(scenario), 0)


@pytest.mark.parametrize("name", CHAINS)
def test_a_round_costs_what_is_specified(name: str) -> None:
    cost = CHAINS[name]
    settings, state = compiled(scenario_of(name))
    assert (methods()[name].drafter is not None) == (cost.passes > 0)
    if cost.passes:
        assert state.passes_by_nodes[K] == cost.passes
        rows = np.reshape(state.pass_rows, (len(state.passes_by_nodes), -1))[K]
        assert tuple(rows[: cost.passes]) == (cost.first, *cost.later)
        assert settings.first_pass_reads_tokens == cost.reads_tokens
    assert cost.verified == K + 1
    assert settings.lookahead_tokens == cost.slots
    assert settings.asynchronous != cost.waits


def test_every_chain_is_in_the_table() -> None:
    others = {"ngram", "medusa", "eagle2", "sequoia", "lookahead"}
    assert CHAINS.keys() | others == methods().keys()


def tree_rows(name: str, preset: str = "sglang-0.5") -> tuple[list[int], int, int]:
    """(rows of a request in each drafter pass, query rows, KV slots ahead) of a method's own tree."""
    settings, state = compiled(scenario_of(name, {"engine.preset": preset}))
    nodes = len(state.passes_by_nodes) - 1
    rows = np.reshape(state.pass_rows, (nodes + 1, -1))[nodes]
    return rows[: state.passes_by_nodes[nodes]].tolist(), nodes + 1, settings.lookahead_tokens


def test_the_tree_of_eagle2_grows_level_by_level() -> None:
    """L passes, of R · topk rows after the first; M verified nodes; SGLang keeps 2 · max(L · topk, M)."""
    passes, verified, slots = tree_rows("eagle2")
    levels, top_k = len(passes), passes[1]
    assert passes[1:] == [top_k] * (levels - 1)
    assert slots == 2 * max(levels * top_k, verified)


def test_medusa_heads_run_once_on_the_newest_row() -> None:
    passes, _, slots = tree_rows("medusa", "vllm-0.33")
    assert passes == [1]
    assert slots == 0


def test_lookahead_decoding_verifies_window_and_candidates() -> None:
    """2WK + 1 rows of the target (arXiv 2402.02057), no drafter pass."""
    _, state = compiled(scenario_of("lookahead", window=6))
    assert len(state.passes_by_nodes) == 2 * 6 * K + 1
    assert methods()["lookahead"].drafter is None


@pytest.mark.parametrize(
    ("preset", "waits", "every_round"), [("vllm-0.14-sync", True, False), ("vllm-0.33", False, True)]
)
def test_n_grams_wait_for_the_host_or_draft_in_every_round(
    preset: str, waits: bool, every_round: bool
) -> None:
    """Looked up on the host, a miss brings no drafts; on the GPU, always K."""
    settings, _ = compiled(scenario_of("ngram", {"engine.preset": preset}))
    assert settings.asynchronous != waits
    assert settings.ragged != every_round
