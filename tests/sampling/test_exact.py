"""Speculative sampling keeps the target's distribution: by enumeration, by counting, and a common slip does
not.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from calibration.sampling.decode import VerificationRule, speculative_decode
from calibration.sampling.distributions import draw, filtered_distribution, siblings
from calibration.sampling.protocols import Sampling
from calibration.sampling.rejection import accept_chain, accept_tree, accepts, residual
from calibration.sampling.typical import total_variation
from simulator.trees import DraftTree, GrowthRule
from tests.exact_distributions import joint_distributions, target_distributions
from tests.token_tables import TableDrafter, TableTarget, random_table


def chain_rule(
    p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """`accept_chain`, called like `accept_tree`."""
    accepted, token = accept_chain(p, q, drafts, uniforms)
    return accepted - 1, token


def slip(
    p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """The negative control, for chains: the residual subtracts the number q(x), not the distribution q."""
    assert q is not None
    accepted, token = accept_chain(p, q, drafts, uniforms)
    rows = torch.arange(len(p))
    place = accepted.clamp(max=drafts.shape[1] - 1)
    number = q[rows, place, drafts[rows, place]].unsqueeze(1)
    wrong = draw((p[rows, place] - number).clamp(min=0.0) + 1e-300, uniforms[:, -1])
    return accepted - 1, torch.where(accepted < drafts.shape[1], wrong, token)


def distributions_of(vocab_size: int, sampling: Sampling, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Filtered distributions of a target and a drafter after every pair of tokens."""
    return (
        filtered_distribution(random_table(vocab_size, 1, spread), sampling),
        filtered_distribution(random_table(vocab_size, 2, spread), sampling),
    )


Plan = DraftTree | GrowthRule
PLAIN = Sampling(1.0)
CHAIN = (-1, 0, 1)
TREE = (-1, -1, 0, 0)
DEEP = (-1, -1, 1, 2)
FORK = (-1, -1, -1)


@pytest.mark.parametrize(
    ("rule", "vocab_size", "parents", "siblings", "sampling"),
    [
        (chain_rule, 6, CHAIN, "distinct", PLAIN),
        (accept_tree, 4, CHAIN, "distinct", PLAIN),
        (chain_rule, 6, CHAIN, "best", PLAIN),
        (chain_rule, 5, (-1,), "distinct", Sampling(0.7, top_k=3)),
        (chain_rule, 5, (-1, 0), "distinct", Sampling(1.5, top_p=0.7)),
        (chain_rule, 4, CHAIN, "distinct", Sampling(0.0)),
        (accept_tree, 3, TREE, "distinct", PLAIN),
        (accept_tree, 3, TREE, "replaced", PLAIN),
        (accept_tree, 3, DEEP, "distinct", PLAIN),
        (accept_tree, 4, FORK, "distinct", PLAIN),
        (accept_tree, 6, TREE, "best", PLAIN),
        (accept_tree, 6, TREE, "best", Sampling(0.0)),
        (accept_tree, 4, FORK, "replaced", Sampling(0.8, top_k=3, top_p=0.9)),
    ],
)
def test_the_joint_law_is_the_targets(
    rule: VerificationRule, vocab_size: int, parents: tuple[int, ...], siblings: str, sampling: Sampling
) -> None:
    target, draft = distributions_of(vocab_size, sampling)
    distribution = joint_distributions(rule, target, draft, parents, 4, siblings)
    assert torch.allclose(distribution, target_distributions(target, 4), rtol=0.0, atol=1e-8)


def test_the_enumeration_notices_the_slip() -> None:
    target, draft = distributions_of(4, PLAIN)
    distribution = joint_distributions(slip, target, draft, CHAIN, 3, "distinct")
    assert torch.allclose(distribution.sum(-1), torch.ones(4, 4, dtype=torch.float64))
    assert float(total_variation(distribution, target_distributions(target, 3)).min()) > 0.2


def forgetful(
    p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """A slip of trees: two children of the root, the second tried as if the first had never been."""
    assert q is not None
    first, second = (accepts(p[:, 0], q[:, node], drafts[:, node], uniforms[:, node]) for node in (0, 1))
    last = torch.where(first, 0, torch.where(second, 1, -1))
    left = residual(residual(p[:, 0], q[:, 0], drafts[:, 0]), q[:, 1], drafts[:, 1])
    distributions = torch.stack([left, p[:, 1], p[:, 2]], 1)[torch.arange(len(p)), 1 + last]
    return last, draw(distributions, uniforms[:, -1])


def unlevelled(
    p: Tensor, q: Tensor | None, drafts: Tensor, parents: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """A slip of trees: siblings drawn without replacement, each said to come from the whole distribution."""
    assert q is not None
    return accept_tree(p, q[:, :1].expand_as(q), drafts, parents, uniforms)


@pytest.mark.parametrize("rule", [forgetful, unlevelled])
def test_the_enumeration_notices_slips_of_trees(rule: VerificationRule) -> None:
    target, draft = distributions_of(4, PLAIN)
    distribution = joint_distributions(rule, target, draft, (-1, -1), 2, "distinct")
    assert torch.allclose(distribution.sum(-1), torch.ones(4, 4, dtype=torch.float64))
    assert float(total_variation(distribution, target_distributions(target, 2)).max()) > 0.01
    exact = joint_distributions(accept_tree, target, draft, (-1, -1), 2, "distinct")
    assert torch.allclose(exact, target_distributions(target, 2), rtol=0.0, atol=1e-8)


def test_a_chain_is_a_tree() -> None:
    generator = torch.Generator().manual_seed(3)
    p = torch.softmax(torch.randn(5000, 5, 7, generator=generator), -1)
    q = torch.softmax(torch.randn(5000, 4, 7, generator=generator), -1)
    drafts = torch.randint(7, (5000, 4), generator=generator)
    uniforms = torch.rand(5000, 5, generator=generator, dtype=torch.float64)
    for distributions in (q, None):
        last, token = accept_tree(p, distributions, drafts, torch.arange(4) - 1, uniforms)
        assert torch.equal(
            torch.stack([last + 1, token]), torch.stack(accept_chain(p, distributions, drafts, uniforms))
        )


SAMPLES = 200_000
P4 = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
Q4 = torch.tensor([0.1, 0.3, 0.2, 0.4], dtype=torch.float64)


def emitted_first(rule: VerificationRule, samples: int, seed: int) -> Tensor:
    """Shares of the first emitted token over many rounds of two drafts."""
    generator = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(samples, 5, generator=generator, dtype=torch.float64)
    q = Q4.expand(samples, 2, 4)
    drafts = draw(q, uniforms[:, :2])
    last, token = rule(P4.expand(samples, 3, 4), q, drafts, torch.arange(2) - 1, uniforms[:, 2:])
    first = torch.where(last >= 0, drafts[:, 0], token)
    return torch.bincount(first, minlength=4).double() / samples


def divergence(shares: Tensor, distribution: Tensor) -> float:
    """KL(shares || distribution), in nats."""
    return float(torch.xlogy(shares, shares / distribution).sum())


def test_a_quarter_of_a_million_samples_come_close() -> None:
    shares = emitted_first(chain_rule, SAMPLES, 1)
    assert divergence(shares, P4) < 0.01
    assert float(total_variation(shares, P4)) < 0.01
    wrong = emitted_first(slip, SAMPLES, 1)
    assert divergence(wrong, P4) > 0.1
    assert float(total_variation(wrong, P4)) > 0.2


def test_ten_thousand_samples_could_not_tell() -> None:
    """Two perfect samplers of 10,000 draws differ by 0.009 on average: a limit of 0.01 needs more draws."""
    generator = torch.Generator().manual_seed(5)
    uniforms = torch.rand(2, 400, 10_000, generator=generator, dtype=torch.float64)
    counts = torch.nn.functional.one_hot(torch.searchsorted(P4.cumsum(0), uniforms), 4).double().mean(2)
    floor = total_variation(counts[0], counts[1])
    theory = 0.5 * float((4 * P4 * (1 - P4) / (math.pi * 10_000)).sqrt().sum())
    assert float(floor.mean()) == pytest.approx(theory, abs=4 * float(floor.std()) / 20)
    assert 0.008 < theory < 0.01
    assert float((floor > 0.01).double().mean()) > 0.2


@pytest.mark.parametrize("replace", [True, False])
def test_siblings_have_the_distributions_they_say(replace: bool) -> None:
    distribution = torch.tensor([[0.5, 0.3, 0.2, 0.0]], dtype=torch.float64).expand(SAMPLES, 4)
    tokens, distributions = siblings(distribution, 2, torch.Generator().manual_seed(1), replace)
    pairs = torch.bincount(tokens[:, 0] * 4 + tokens[:, 1], minlength=16).view(4, 4).double() / SAMPLES
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for first in range(3):
        second = (
            distribution[0].clone() if replace else distribution[0].index_fill(0, torch.tensor(first), 0.0)
        )
        expected[first] = distribution[0, first] * second / second.sum()
        assert torch.allclose(distributions[tokens[:, 0] == first][0, 1], second / second.sum())
    assert float(total_variation(pairs.flatten(), expected.flatten())) < 0.01


def test_exhausted_siblings_go_on_with_what_was_not_drawn() -> None:
    distribution = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    tokens, distributions = siblings(distribution, 3, torch.Generator().manual_seed(1), replace=False)
    assert sorted(tokens[0].tolist()) == [0, 1, 2]
    assert distributions[0, 1].tolist() == [0.5, 0.0, 0.5]


SEQUENCES = 10_000


def p_value(
    rule: VerificationRule, plan: Plan | None, sampling: Sampling, sequences: int = SEQUENCES
) -> float:
    """Chi-square of decoded sequences of 3 tokens over 3 words against the target's joint distribution."""
    target, drafter = random_table(3, 1, 0.7), TableDrafter(random_table(3, 2, 0.7), plan)
    verifier, prompt = TableTarget(target), torch.tensor([0, 1])
    counts = torch.zeros(3, 3, 3, dtype=torch.float64)
    for seed in range(sequences):
        decoded = speculative_decode(
            verifier, drafter, prompt, 2, sampling.temperature, top_p=sampling.top_p, max_tokens=3, seed=seed,
            rule=rule,
        )  # fmt: skip
        counts[decoded.tokens] += 1
    distribution = target_distributions(filtered_distribution(target, sampling), 3)[0, 1]
    expected = sequences * distribution.view(3, 3, 3)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert float(expected[possible].min()) > 5, "a chi-square needs filled cells"
    statistic = float(((counts - expected) ** 2 / expected)[possible].sum())
    return float(chi2.sf(statistic, int(possible.sum()) - 1))


@pytest.mark.parametrize(
    ("plan", "sampling"),
    [
        (None, Sampling(1.0, top_p=0.9)),
        (DraftTree((-1, 0, 0, 1)), PLAIN),
        (GrowthRule.eagle2(depth=2, top_k=2, nodes=4), PLAIN),
    ],
    ids=["chain, top-p", "drawn tree", "growing tree"],
)
def test_decoded_sequences_have_the_targets_distribution(plan: Plan | None, sampling: Sampling) -> None:
    assert p_value(accept_tree, plan, sampling) > 0.001


def test_the_chi_square_notices_the_slip() -> None:
    """A fifth of the sequences suffices: the slip moves a fifth of the probability, as enumerated above."""
    assert p_value(slip, None, PLAIN, SEQUENCES // 5) < 1e-6
