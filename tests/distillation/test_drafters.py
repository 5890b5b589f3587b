"""Trained drafters draft what they were trained to draft, and never change what the target says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from calibration.drafters.draft_model import DraftModel
from calibration.drafters.feature_head import FeatureHead
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.medusa import Medusa
from calibration.drafters.student import Student
from calibration.drafters.target_session import TargetSession, load_network
from calibration.drafters.trained import drafter_of, load_head, save_trained
from calibration.drafters.training.recipes import RECIPES
from calibration.sampling.decode import speculative_decode
from calibration.sampling.grow import NextLogits, grow
from calibration.sampling.protocols import Drafter, Proposal, Sampling
from simulator.errors import InputError
from simulator.models.catalogue import load_drafter, load_model
from simulator.trees import EAGLE1, DraftTree, Growth, GrowthRule, StaticGrowth
from tests.lm import FAMILIES, save_tiny, tiny_target

HEADS = ("eagle", "eagle3", "mtp", "medusa")
PLANS = {"chain": None, "static": EAGLE1, "dynamic": GrowthRule.eagle2(4, 4, 12)}
DRAFTS = 4


@dataclass(frozen=True)
class Pair:
    """A tiny target in double precision and a head on it, both random."""

    target: TargetSession
    head: Medusa | FeatureHead


def fresh_head(kind: str, network: LanguageModel) -> Medusa | FeatureHead:
    torch.manual_seed(7)
    head = RECIPES[kind].make(network)
    assert not isinstance(head, Student)
    for weight in head.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.3)
    return head.requires_grad_(False).to(network.dtype)


@pytest.fixture(scope="module", params=FAMILIES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TargetSession:
    return tiny_target(save_tiny(tmp_path_factory.mktemp("tiny") / request.param, request.param))


@pytest.fixture(scope="module")
def plain_texts(target: TargetSession) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Prompts with what plain greedy decoding makes of them."""
    prompts = [prompt_of(seed, 5 + seed) for seed in range(3)]
    return [
        (prompt, speculative_decode(target, None, prompt, 0, max_tokens=120).tokens) for prompt in prompts
    ]


@pytest.fixture(params=HEADS)
def pair(target: TargetSession, request: pytest.FixtureRequest) -> Pair:
    return Pair(target, fresh_head(request.param, target.network))


def prompt_of(seed: int, length: int = 9) -> Tensor:
    return torch.randint(1, 97, (length,), generator=torch.Generator().manual_seed(seed))


class Prompted:
    """A drafter whose best token is, more often than not, the one that plain decoding gives there: what it
    drafts is accepted to every depth, and refused at every depth.
    """

    def __init__(self, drafter: Drafter, plain: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = drafter.kind
        self._drafter, self._plain = drafter, plain
        self._emitted = 1
        self._generator = torch.Generator().manual_seed(3)
        for module in ("feature_draft", "medusa"):
            monkeypatch.setattr(f"calibration.drafters.{module}.grow", self._grow)

    def start(self, prompt: Tensor) -> None:
        self._emitted = 1
        self._drafter.start(prompt)

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        return self._drafter.propose(last, limit, sampling, generator)

    def keep(self, tokens: Sequence[int]) -> None:
        self._emitted += len(tokens)
        self._drafter.keep(tokens)

    def _grow(
        self,
        growth: Growth | StaticGrowth,
        next_logits: NextLogits,
        sampling: Sampling,
        generator: torch.Generator,
    ) -> Proposal:
        def hinted_logits(growth: Growth | StaticGrowth) -> Tensor:
            logits = next_logits(growth).clone()
            for row, node in enumerate(growth.frontier.tolist()):
                way = list[int]()
                while node > 0:
                    way.insert(0, int(growth.tokens[node]))
                    node = int(growth.parents[node])
                rest = self._plain[self._emitted :]
                if list(rest[: len(way)]) == way and len(way) < len(rest) and self._heads():
                    logits[row, rest[len(way)]] += 1e3
            return logits

        return grow(growth, hinted_logits, sampling, generator)

    def _heads(self) -> bool:
        return bool(torch.rand((), generator=self._generator) < 0.7)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_greedy_output_is_that_of_plain_decoding(
    pair: Pair,
    plain_texts: list[tuple[Tensor, tuple[int, ...]]],
    plan: DraftTree | GrowthRule | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepted: list[int] = []
    for prompt, plain in plain_texts:
        drafter = Prompted(drafter_of(pair.head, pair.target, plan), plain, monkeypatch)
        drafted = speculative_decode(pair.target, drafter, prompt, DRAFTS, max_tokens=100)
        assert drafted.tokens == plain[:100]
        accepted += [draft_round.accepted for draft_round in drafted.rounds]
    assert sum(accepted) > 100
    assert set(accepted) == set(range(DRAFTS + 1))


@torch.inference_mode()
def test_what_is_learned_from_a_text_is_what_is_drafted(pair: Pair) -> None:
    """Row s of step j of `predict` is the distribution that the j-th draft of a chain is drawn from."""
    target, head = pair.target, pair.head
    network = target.network
    drafter = drafter_of(head, target)
    sampling = Sampling(temperature=1.0)
    prompt = prompt_of(1)
    last = int(target.start(prompt).argmax())
    drafter.start(prompt)
    text = [*prompt.tolist(), last]
    for turn in range(3):  # later rounds read the features of tokens kept since
        proposal = drafter.propose(text[-1], DRAFTS, sampling, torch.Generator().manual_seed(turn))
        drafted = torch.tensor([[*text, *proposal.tokens.tolist()]])
        features = network.hidden_states(drafted, sorted({*head.layers, network.layer_count}))
        features[network.layer_count] = network.norm(features[network.layer_count])
        rows, _ = head.predict(drafted, features, network.embed, DRAFTS)
        for draft in range(DRAFTS):
            distribution = torch.softmax(network.lm_head(rows[draft, 0, len(text) - 1 + draft]), -1)
            assert proposal.distributions is not None
            torch.testing.assert_close(proposal.distributions[draft], distribution, atol=1e-6, rtol=1e-5)
        logits = target.score(text[-1], proposal)
        accepted = [0, 1][:turn]  # as if the target had accepted so many
        emitted = [*proposal.tokens[accepted].tolist(), int(logits[len(accepted)].argmax())]
        target.keep(accepted)
        drafter.keep(emitted)
        text += emitted


@torch.no_grad()
def test_a_saved_head_comes_back(pair: Pair, tmp_path: Path) -> None:
    head = pair.head.float()
    save_trained(head, pair.target.network, tmp_path, {"tokens": 12})
    again = load_head(tmp_path, pair.target.network)
    for name, value in again.state_dict().items():
        torch.testing.assert_close(value, head.state_dict()[name].to(value.dtype), atol=0, rtol=0)
    head.to(pair.target.network.dtype)
    first, other = (
        speculative_decode(pair.target, drafter, prompt_of(2), DRAFTS, 1.0, max_tokens=20)
        for drafter in (drafter_of(head, pair.target), drafter_of(again, pair.target))
    )
    assert first == other


def test_a_student_is_a_draft_model(target: TargetSession, tmp_path: Path) -> None:
    trainee = RECIPES["student"].make(target.network)
    save_trained(trainee, target.network, tmp_path, {})
    network = load_network(tmp_path, "float64")
    assert network.layer_count == 2
    assert torch.equal(network.lm_head.weight, target.network.lm_head.weight)
    plain = speculative_decode(target, None, prompt_of(3), 0, max_tokens=30)
    drafted = speculative_decode(
        target, DraftModel(TargetSession(network)), prompt_of(3), DRAFTS, max_tokens=30
    )
    assert drafted.tokens == plain.tokens
    copied_network = Student(target.network, tuple(range(target.layer_count)))  # all of the target's layers
    save_trained(copied_network, target.network, tmp_path / "twin", {})
    drafter = DraftModel(TargetSession(load_network(tmp_path / "twin", "float64")))
    drafted = speculative_decode(target, drafter, prompt_of(3), DRAFTS, max_tokens=30)
    assert drafted.tokens == plain.tokens
    assert min(draft_round.accepted for draft_round in drafted.rounds) == DRAFTS
    # The student is the target's first and last layer, read on its own.
    text = prompt_of(4)[None]
    own = trainee.double().predict(text, {}, target.embed, 1)[0][0]
    hidden = network.norm(network.hidden_states(text, [2])[2])
    torch.testing.assert_close(own, hidden, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "method"), [("eagle", "eagle"), ("eagle3", "eagle3"), ("student", "draft_model")]
)
def test_the_simulator_reads_the_config_of_a_drafter(kind: str, method: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "target", "llama")
    network = load_network(folder)
    trainee = RECIPES[kind].make(network)
    save_trained(trainee, network, tmp_path / "drafter", {"tokens": 0})
    drafter = load_drafter(str(tmp_path / "drafter"), load_model(str(folder)), method)
    shared_head = (
        network.vocab_size * network.hidden_size if kind == "eagle3" else 0
    )  # counted as its own there
    assert drafter.parameters == sum(value.numel() for value in trainee.parameters()) + shared_head


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    target = tiny_target(save_tiny(tmp_path / "target", "llama"))
    with pytest.raises(InputError, match="holds no config"):
        load_head(tmp_path / "nothing", target.network)
    with pytest.raises(InputError, match="is not a trained drafter"):
        load_head(tmp_path / "target", target.network)
    save_trained(RECIPES["eagle"].make(target.network), target.network, tmp_path / "eagle", {})
    config = tmp_path / "eagle" / "config.json"
    config_text = config.read_text()
    config.write_text(config_text.replace('"vocab_size": 97', '"vocab_size": 98'))
    with pytest.raises(InputError, match="has vocab_size 98, 97"):
        load_head(tmp_path / "eagle", target.network)
    config.write_text(config_text)
    (tmp_path / "eagle" / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(InputError, match="cannot be read"):
        load_head(tmp_path / "eagle", target.network)
    config.write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load_head(tmp_path / "eagle", target.network)
