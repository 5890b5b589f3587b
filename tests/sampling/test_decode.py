"""The decode loop: greedy is greedy, filters, stops and records; masks against paths; typical acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from calibration.acceptance.distortion import measure_distortion
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.layer_skip import LayerSkip
from calibration.drafters.target_session import TargetSession
from calibration.sampling.decode import Decoded, VerificationRule, speculative_decode
from calibration.sampling.distributions import draw, filtered_distribution
from calibration.sampling.protocols import Proposal, Sampling
from calibration.sampling.rejection import accept_chain, accept_greedy, accept_tree, acceptance_probability
from calibration.sampling.typical import Typical, total_variation
from simulator.errors import InputError
from simulator.trees import EAGLE1, DraftTree, GrowthRule
from tests.exact_distributions import joint_distributions, target_distributions
from tests.lm import tiny_folder, tiny_target  # noqa: F401
from tests.token_tables import TableDrafter, TableTarget, random_table
from tests.trees import leaves, longest_accepted_path

PROMPT = torch.tensor([3, 1, 4])
TARGET = random_table(8, 1, 2.0)
CLOSE = TARGET + random_table(8, 2, 1.0)  # a drafter that often agrees
PLANS = [None, EAGLE1, GrowthRule.eagle2(5, 3, 12), GrowthRule.nucleus(4, 0.8, 5, 16), GrowthRule.beam(4)]
PLAN = pytest.mark.parametrize("plan", PLANS, ids=["chain", "eagle1", "eagle2", "nucleus", "beam"])


def decoded(plan: DraftTree | GrowthRule | None, temperature: float, **options: object) -> Decoded:
    """Sixty tokens from the table, by a drafter with this plan."""
    drafter = TableDrafter(CLOSE, plan)
    return speculative_decode(
        TableTarget(TARGET), drafter, PROMPT, 5, temperature, **{"max_tokens": 60} | options
    )  # type: ignore[arg-type]


@PLAN
@pytest.mark.parametrize("rule", [accept_tree, Typical()], ids=["exact", "typical"])
def test_greedy_output_is_plain_greedy_decoding(
    plan: DraftTree | GrowthRule | None, rule: VerificationRule
) -> None:
    plain = speculative_decode(TableTarget(TARGET), None, PROMPT, 5, max_tokens=60)
    fast = decoded(plan, 0.0, rule=rule)
    assert fast.tokens == plain.tokens
    assert len(plain.rounds) == 59
    assert len(fast.rounds) < 40
    assert fast.mean_acceptance_length > 1.4


def test_greedy_is_the_limit_of_low_temperatures() -> None:
    assert decoded(None, 1e-6).tokens == decoded(None, 0.0).tokens


@PLAN
def test_same_seed_same_output(plan: DraftTree | GrowthRule | None) -> None:
    assert decoded(plan, 1.0, seed=5) == decoded(plan, 1.0, seed=5)
    assert decoded(plan, 1.0, seed=5).tokens != decoded(plan, 1.0, seed=6).tokens


@PLAN
def test_records_account_for_every_token(plan: DraftTree | GrowthRule | None) -> None:
    seen: list[tuple[Proposal, torch.Tensor]] = []
    out = decoded(
        plan, 1.0, observe=lambda _, proposal, distributions: seen.append((proposal, distributions))
    )
    position = 1
    for draft_round, (proposal, distributions) in zip(out.rounds, seen, strict=True):
        assert draft_round.position == position
        emitted = out.tokens[position : position + draft_round.accepted + 1]
        position += draft_round.accepted + 1
        drafts = proposal.tokens[list(draft_round.path)].tolist()
        assert drafts[: len(emitted)] == list(emitted[: draft_round.accepted])  # the last round may be cut
        assert [proposal.parents[node] for node in draft_round.path] == [-1, *draft_round.path][
            : draft_round.accepted
        ]
        assert plan is not None or len(draft_round.chances) == min(
            draft_round.accepted + 1, draft_round.drafted
        )
        assert draft_round.nodes == len(proposal.tokens)
        assert all(
            distributions[1 + node, token] > 0
            for node, token in zip((-1, *draft_round.path), emitted, strict=False)
        )
    assert position >= 60
    accepted = [step.accepted for step in out.rounds]
    assert out.mean_acceptance_length == pytest.approx(1 + sum(accepted) / len(accepted))


def test_acceptance_counted_and_computed_agree() -> None:
    """1 - TV of the distributions, averaged over the drafts tried, is the share of them that is accepted."""
    rounds = [draft_round for seed in range(40) for draft_round in decoded(None, 1.0, seed=seed).rounds]
    chances = torch.tensor([chance for draft_round in rounds for chance in draft_round.chances])
    tried = len(chances)
    accepted = sum(draft_round.accepted for draft_round in rounds)
    spread = float((chances * (1 - chances)).sum().sqrt())
    assert abs(accepted - float(chances.sum())) < 4 * spread
    assert tried > 2000


def test_stop_tokens_end_the_output_and_are_in_it() -> None:
    tokens = decoded(None, 1.0, seed=2).tokens
    for stop in set(tokens):
        out = decoded(None, 1.0, seed=2, stop_tokens=(stop,))
        assert out.tokens == tokens[: tokens.index(stop) + 1]
        assert out.finish == "stop"
    for count in (1, 2, 7):
        out = decoded(None, 1.0, seed=2, max_tokens=count)
        assert (out.tokens, out.finish) == (tokens[:count], "length")


class Counting(TableTarget):
    """A verifier that counts its passes."""

    passes = 0

    def score(self, last: int, proposal: Proposal) -> torch.Tensor:
        """One pass."""
        self.passes += 1
        return super().score(last, proposal)


def test_a_rejection_costs_no_second_pass() -> None:
    target = Counting(TARGET)
    out = speculative_decode(target, TableDrafter(-TARGET), PROMPT, 3, 1.0, max_tokens=60)
    assert sum(draft_round.accepted < draft_round.drafted for draft_round in out.rounds) > 30
    assert target.passes == len(out.rounds)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"draft_sampling": "often"},
        {"max_tokens": 0},
        {"draft_length": -1},
    ],
    ids=str,
)
def test_values_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    settings = {"draft_length": 3} | options
    with pytest.raises(InputError, match=next(iter(options))):
        speculative_decode(TableTarget(TARGET), None, PROMPT, **settings)


def test_filters_keep_the_most_probable_tokens() -> None:
    distribution = torch.tensor([0.1, 0.4, 0.25, 0.05, 0.2], dtype=torch.float64)

    def filter_tokens(**options: float) -> list[float]:
        sampling = Sampling(**{"temperature": 1.0} | options)  # type: ignore[arg-type]
        filtered = filtered_distribution(distribution.log(), sampling)
        return [round(probability, 6) for probability in filtered.tolist()]

    assert filter_tokens(top_k=2) == [0, round(0.4 / 0.65, 6), round(0.25 / 0.65, 6), 0, 0]
    assert filter_tokens(top_p=0.65) == filter_tokens(top_p=0.5) == filter_tokens(top_k=2)
    assert filter_tokens(top_p=0.66) == filter_tokens(top_k=3)
    assert filter_tokens(top_p=1e-9) == filter_tokens(temperature=0.0) == [0, 1, 0, 0, 0]
    assert filter_tokens(top_k=2, top_p=0.6) == [
        0,
        1,
        0,
        0,
        0,
    ]  # 0.4 of the 0.65 that top-k left already holds it
    cold = distribution**2 / (distribution**2).sum()
    assert filter_tokens(temperature=0.5) == [round(probability, 6) for probability in cold.tolist()]
    assert filtered_distribution(torch.zeros(5), Sampling(1.0, top_k=2)).tolist() == [0.5, 0.5, 0, 0, 0]


def test_impossible_tokens_are_never_drawn() -> None:
    weights = torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0])
    edges = torch.tensor([0.0, 0.3, 0.3 - 1e-16, 1.0 - 2.0**-53], dtype=torch.float64)
    assert set(draw(weights.expand(4, 5), edges).tolist()) == {1, 3}


def test_argmaxes_suffice_at_temperature_zero() -> None:
    generator = torch.Generator().manual_seed(1)
    best, drafts = (
        torch.randint(3, (500, 4), generator=generator),
        torch.randint(3, (500, 3), generator=generator),
    )
    p = torch.nn.functional.one_hot(best, 3).double()
    uniforms = torch.rand(500, 4, generator=generator, dtype=torch.float64)
    for actual, expected in zip(
        accept_greedy(best, drafts), accept_chain(p, None, drafts, uniforms), strict=True
    ):
        assert torch.equal(actual, expected)


def test_acceptance_probability_is_one_minus_the_distance() -> None:
    p, q = torch.softmax(TARGET, -1), torch.softmax(CLOSE, -1)
    assert torch.allclose(acceptance_probability(p, q, TARGET.argmax(-1)), 1 - total_variation(p, q))


def test_typical_acceptance_takes_the_longest_path_of_likely_drafts() -> None:
    rule, generator = Typical(0.3, 0.6), torch.Generator().manual_seed(4)
    for tree in (EAGLE1, DraftTree((-1, 0, 1, 1, 0, 2, 4, 4, 6, 8))):
        p = torch.softmax(2 * torch.randn(200, tree.nodes, 4, generator=generator), -1)
        drafts = torch.randint(4, (200, tree.nodes - 1), generator=generator)
        parents = torch.from_numpy(tree.draft_parents)
        last, _ = rule(p, None, drafts, parents, torch.zeros(200, tree.nodes, dtype=torch.float64))
        above = p[:, 1 + parents].gather(2, drafts.unsqueeze(2)).squeeze(2)
        likely = above > rule.threshold(p)[:, 1 + parents]
        for row in range(200):
            path = longest_accepted_path(tree, [True, *likely[row].tolist()])
            assert (path[-1] - 1 if path else -1) == int(last[row])


def test_typical_acceptance_bends_the_law_as_computed() -> None:
    rule = Typical()
    p, q = torch.softmax(random_table(5, 1), -1), torch.softmax(random_table(5, 2), -1)
    distribution = joint_distributions(rule, p, q, (-1,), 1, "distinct")
    assert torch.allclose(distribution, rule.typical_distribution(p, q), atol=1e-8)
    one_draft = total_variation(distribution, p)
    assert float(one_draft.mean()) > 0.1
    longer = total_variation(
        joint_distributions(rule, p, q, (-1, 0), 2, "distinct"), target_distributions(p, 2)
    )
    assert float(longer.mean()) > float(one_draft.mean())


def test_typical_acceptance_takes_more_and_says_what_it_costs() -> None:
    prompts = [torch.tensor([token, token + 1]) for token in range(7)]
    greedy, sampled = (
        measure_distortion(TableTarget(TARGET), TableDrafter(CLOSE), prompts, 0.7, how, 40)
        for how in ("greedy", "sampled")
    )
    assert greedy["typical"]["value"] > greedy["exact"]["value"]
    assert greedy["distortion"] > sampled["distortion"] > 0.02
    cold = measure_distortion(TableTarget(TARGET), TableDrafter(CLOSE), prompts, 1e-6, "sampled", 40)
    assert cold["distortion"] < 1e-9


TREES = [EAGLE1, DraftTree((-1, 0, 1, 1, 0, 2, 4, 4, 6, 8)), DraftTree.chain(6)]


def check_rows_equal_paths(target: TargetSession, tree: DraftTree, tolerance: float) -> None:
    """Score a tree at once, and every root-to-leaf path as a chain of its own: equal logits at every node."""
    generator = torch.Generator().manual_seed(tree.nodes)
    tokens = torch.randint(target.vocab_size, (tree.nodes - 1,), generator=generator)
    prompt = torch.randint(target.vocab_size, (12,), generator=generator)
    full_proposal = Proposal(tokens, torch.from_numpy(tree.draft_parents))

    def after_a_round(proposal: Proposal) -> torch.Tensor:
        """Score behind a first round, whose rejected rows must have left the cache."""
        target.start(prompt)
        target.score(5, full_proposal)
        target.keep([node - 1 for node in tree.path(leaves(tree)[-1])])
        return target.score(6, proposal)

    rows = after_a_round(full_proposal)
    for leaf in leaves(tree):
        path = tree.path(leaf)
        chain = tokens[[node - 1 for node in path]]
        alone = after_a_round(Proposal(chain, torch.arange(len(chain)) - 1))
        assert (rows[[0, *path]] - alone).abs().max() <= tolerance * alone.abs().max()


@pytest.mark.parametrize("tree", TREES, ids=["eagle1", "uneven", "chain"])
@pytest.mark.parametrize("tiny_folder", ["llama", "gpt2"], indirect=True)
def test_nodes_see_their_own_path_alone(tiny_folder: Path, tree: DraftTree) -> None:  # noqa: F811
    check_rows_equal_paths(tiny_target(tiny_folder), tree, 1e-12)


@pytest.mark.parametrize("tiny_folder", ["llama"], indirect=True)
def test_a_session_goes_on_after_the_loop(tiny_folder: Path) -> None:  # noqa: F811
    target, chain = tiny_target(tiny_folder), Proposal(torch.tensor([7, 9]), torch.tensor([-1, 0]))
    speculative_decode(target, LayerSkip(target), torch.tensor([5, 17, 40]), 3, max_tokens=12)
    rows = []
    for session in (target, tiny_target(tiny_folder)):
        session.start(torch.tensor([8, 8, 3, 60]))
        session.score(4, chain)
        session.keep([0])
        rows.append(session.score(2, chain))
    assert torch.equal(*rows)


@pytest.mark.parametrize("tiny_folder", ["llama", "gpt2"], indirect=True)
def test_layer_skip_drafts_trees_that_change_no_text(tiny_folder: Path) -> None:  # noqa: F811
    target, prompt = tiny_target(tiny_folder), torch.tensor([5, 17, 40, 8])
    plain = speculative_decode(target, None, prompt, 4, max_tokens=30)
    chain = speculative_decode(target, LayerSkip(target), prompt, 4, max_tokens=30)
    for plan in (DraftTree.chain(4), EAGLE1, GrowthRule.eagle2(4, 3, 10)):
        decoded_text = speculative_decode(target, LayerSkip(target, plan=plan), prompt, 4, max_tokens=30)
        assert decoded_text.tokens == plain.tokens
        assert len(decoded_text.rounds) <= len(chain.rounds) < len(plain.rounds)
        assert plan != DraftTree.chain(4) or decoded_text == chain


def test_nodes_of_a_real_model_see_their_own_path_alone(smollm2: LanguageModel) -> None:
    check_rows_equal_paths(TargetSession(smollm2), EAGLE1, 1e-4)
