"""Greedy output with any drafter is plain greedy decoding's, token for token: 16 prompts × 100 tokens a kind
on a tiny Llama, 6 × 100 on a tiny GPT-2. A kind with two ways of drafting takes every other prompt in each.

The tiny models run in double precision: scores of one place, computed among other rows, differ by 1e-13, and
two tokens so close never met. SmolLM2 runs in single precision on prompts whose best two tokens stay further
apart than rounding reaches (the test says so of them first); 50 × 100 of it are in the committed measurement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from calibration.drafters.batch_slots import BatchSlots
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.registry import Maker, load_drafter
from calibration.drafters.target_session import TargetSession, load_network
from calibration.drafters.trained import drafter_of
from calibration.drafters.training.recipes import RECIPES
from calibration.sampling.decode import speculative_decode
from simulator.trees import EAGLE1, GrowthRule
from tests.lm import save_tiny

PROMPTS, TOKENS, DRAFTS = {"llama": 16, "gpt2": 6}, 100, 4
UNTRAINED = ("layer-skip", "ngram", "suffix", "lookahead", "draft-model", "quantised:4")
HEADS = {
    "eagle, a chain": ("eagle", None, slice(0, None, 2)),
    "eagle, EAGLE-1's tree": ("eagle", EAGLE1, slice(1, None, 2)),
    "eagle3, a dynamic tree": ("eagle3", GrowthRule.eagle2(4, 4, 12), slice(None)),
    "medusa": ("medusa", None, slice(None)),
    "mtp": ("mtp", None, slice(None)),
}
"""Name → kind, the plan of its trees, and the prompts it drafts for."""
ROUNDING = 1e-3
"""Logits of single precision differ by less, whatever the shape of the pass."""


@dataclass(frozen=True)
class Family:
    """A target of one family in double precision, the folder of a draft model, and prompts."""

    network: LanguageModel
    draft: Path
    prompts: list[torch.Tensor]


@pytest.fixture(scope="module", params=PROMPTS)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    here, generator = tmp_path_factory.mktemp(request.param), torch.Generator().manual_seed(0)
    count = PROMPTS[request.param]
    return Family(
        load_network(save_tiny(here / "target", request.param, layers=3), "float64"),
        save_tiny(here / "draft", request.param, layers=1, seed=1),
        [torch.randint(0, 97, (8 + number % 9,), generator=generator) for number in range(count)],
    )


@pytest.fixture(scope="module")
def plain(family: Family) -> list[tuple[int, ...]]:
    return outputs(family.network, None, family.prompts, TOKENS)


def outputs(
    network: LanguageModel, maker: Maker | None, prompts: list[torch.Tensor], tokens: int
) -> list[tuple[int, ...]]:
    """The greedy outputs, decoded side by side."""
    batch_slots = BatchSlots(len(prompts))

    def decode(number: int, slot: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        session = batch_slots.session(network, slot)
        drafter = None if maker is None else maker(session)
        decoded = speculative_decode(session, drafter, prompts[number], DRAFTS, max_tokens=tokens)
        yield number, decoded.tokens

    jobs = [lambda slot, number=number: decode(number, slot) for number in range(len(prompts))]
    return [tokens for _, tokens in sorted(batch_slots.run(jobs))]


def test_the_texts_say_something(plain: list[tuple[int, ...]]) -> None:
    assert len(set(plain)) > len(plain) // 2
    assert len({token for text in plain for token in text}) > 20
    assert all(len(text) == TOKENS for text in plain)


@pytest.mark.parametrize("entry", UNTRAINED)
def test_untrained_kinds_change_nothing(family: Family, plain: list[tuple[int, ...]], entry: str) -> None:
    source = f"{entry}:{family.draft}" if entry == "draft-model" else entry
    _, maker = load_drafter(source, TargetSession(family.network))
    assert outputs(family.network, maker, family.prompts, TOKENS) == plain


@pytest.mark.parametrize("name", HEADS)
def test_trained_kinds_change_nothing(family: Family, plain: list[tuple[int, ...]], name: str) -> None:
    kind, plan, part = HEADS[name]
    torch.manual_seed(7)
    head = RECIPES[kind].make(family.network).requires_grad_(False).to(family.network.dtype)
    prompts = family.prompts[part]
    drafted = outputs(family.network, lambda session: drafter_of(head, session, plan), prompts, TOKENS)
    assert drafted == plain[part]


@pytest.fixture(scope="module")
def smollm2_prompts(smollm2: LanguageModel) -> list[torch.Tensor]:
    texts = ["def factorial(n):\n", "The capital of France is"]
    return [torch.tensor(smollm2.tokenizer(text)["input_ids"]) for text in texts]


@pytest.fixture(scope="module")
def smollm2_plain(smollm2: LanguageModel, smollm2_prompts: list[torch.Tensor]) -> list[tuple[int, ...]]:
    """Plain greedy outputs, whose best two tokens stay further apart than rounding reaches."""
    expected = outputs(smollm2, None, smollm2_prompts, 24)
    for prompt, text in zip(smollm2_prompts, expected, strict=True):
        tokens = torch.cat([prompt, torch.tensor(text)])[None]
        last = smollm2.hidden_states(tokens, [smollm2.layer_count])[smollm2.layer_count]
        best = smollm2.head(last[0, len(prompt) - 1 : -1]).topk(2).values
        assert float((best[:, 0] - best[:, 1]).min()) > ROUNDING
    return expected


@pytest.mark.parametrize("entry", ["layer-skip", "ngram", "suffix", "lookahead", "quantised:4"])
def test_smollm2_says_the_same_with_every_drafter(
    smollm2: LanguageModel,
    smollm2_prompts: list[torch.Tensor],
    smollm2_plain: list[tuple[int, ...]],
    entry: str,
) -> None:
    _, maker = load_drafter(entry, TargetSession(smollm2))
    assert outputs(smollm2, maker, smollm2_prompts, 24) == smollm2_plain
