"""What each kind of drafter proposes, checked by hand."""

from pathlib import Path

import pytest
import torch

from calibration.drafters.draft_model import DraftModel
from calibration.drafters.history import History
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.layer_skip import LayerSkip, without_middle
from calibration.drafters.lookahead import NGRAM, WINDOW, Lookahead
from calibration.drafters.ngram import NGram
from calibration.drafters.quantised import quantised
from calibration.drafters.registry import KINDS, load_drafter
from calibration.drafters.suffix import Suffix
from calibration.drafters.target_session import TargetSession, load_network
from calibration.sampling.decode import speculative_decode
from calibration.sampling.protocols import Proposal, Sampling
from simulator.errors import InputError
from tests.lm import save_tiny, tiny_target

GREEDY = Sampling()


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def drafts(drafter: NGram | Suffix, text: list[int], limit: int) -> Proposal:
    """What a drafter proposes when a text has come so far, its last token from the prompt's pass."""
    drafter.start(torch.tensor(text[:-1]))
    return drafter.propose(text[-1], limit, GREEDY, generator())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([1, 2, 3, 4, 5, 9, 2, 3], [4, 5, 9]),
        ([1, 2, 3, 4, 7, 2, 3, 8, 7, 2, 3], [8, 7, 2]),  # the latest occurrence
        ([5, 1, 2, 3, 6, 9, 2, 3, 7, 1, 2, 3], [6, 9, 2]),  # a longer match before a later one
        ([1, 2, 3, 4], []),
        ([1, 2, 1, 3, 1], []),  # one token is no match
        ([4, 4, 4], [4]),  # the end itself is no occurrence
    ],
)
def test_ngram_copies_what_followed(text: list[int], expected: list[int]) -> None:
    assert drafts(NGram(), text, 3).tokens.tolist() == expected


def test_ngram_learns_from_what_is_emitted_and_forgets_at_the_next_prompt() -> None:
    drafter = NGram()
    assert drafts(drafter, [1, 2, 3], 4).tokens.tolist() == []
    drafter.keep([8, 2, 3])
    assert drafter.propose(3, 4, GREEDY, generator()).tokens.tolist() == [8, 2, 3]
    assert drafts(drafter, [2, 3], 4).tokens.tolist() == []


def test_a_first_token_that_repeats_the_prompts_last_is_counted() -> None:
    history = History()
    history.start(torch.tensor([5, 5]))
    history.begin(5)
    history.begin(5)
    assert history.tokens == [5, 5, 5]


def test_suffix_drafts_the_frequent_continuations_as_a_tree() -> None:
    text = [1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1, 2, 3, 4, 8, 1, 2, 3]
    tree = drafts(Suffix(), text, 2)
    paths = {
        tuple(tree.tokens[place].item() for place in ancestors(tree, node))
        for node in range(len(tree.tokens))
    }
    # 4 followed twice, 5 once; below 4 stand 9 and 8, below 5 stands 9.
    assert {(4,), (5,), (4, 9), (4, 8), (5, 9)} == paths
    assert tree.tokens[0] == 4  # the likeliest first


def test_suffix_drafts_no_more_than_its_match_is_worth() -> None:
    tree = drafts(Suffix(), [7, 1, 2, 3, 4, 5, 6, 8, 7], 8)
    assert tree.tokens.tolist() == [1, 2]  # a match of one token, twice as many drafts
    assert drafts(Suffix(), [1, 2, 3], 4).tokens.tolist() == []


def ancestors(tree: Proposal, node: int) -> list[int]:
    path = [node]
    while (parent := int(tree.parents[path[0]])) >= 0:
        path.insert(0, parent)
    return path


def test_lookahead_collects_what_the_target_says_after_its_guesses(tmp_path: Path) -> None:
    target = tiny_target(save_tiny(tmp_path, "llama"))
    prompt = torch.arange(20)
    drafter = Lookahead(target)
    target.start(prompt)
    drafter.start(prompt)
    guesses = [list(level) for level in drafter._levels]
    drafter.propose(33, 4, GREEDY, generator())
    for place in range(WINDOW):
        # A place's n-gram continues the first level up to it, then its own deeper guesses.
        before = [33, *guesses[0][: place + 1], *(level[place] for level in guesses[1:])]
        fresh = TargetSession(target.network)
        best = int(fresh.start(torch.tensor([*prompt.tolist(), *before])).argmax())
        gram = (*(level[place] for level in guesses[1:]), best)
        assert gram in drafter._pool[guesses[0][place]]
        assert len(gram) == NGRAM - 1
    # The next round drafts from the pool, and the target's own state is untouched by the window.
    first = guesses[0][0]
    assert int((drafter.propose(first, 4, GREEDY, generator()).parents == -1).sum()) >= 1
    assert target.cache.length == len(prompt)


def test_layer_skip_with_all_layers_is_the_target(tmp_path: Path) -> None:
    target = tiny_target(save_tiny(tmp_path, "gpt2"))
    prompt = torch.arange(10, 30)
    last = int(target.start(prompt).argmax())
    proposal = LayerSkip(target, range(target.layer_count)).propose(last, 5, GREEDY, generator())
    best = target.score(last, proposal).argmax(-1)
    assert proposal.tokens.tolist() == best[:-1].tolist()


@pytest.mark.parametrize(
    ("layers", "expected"), [(30, [*range(12), *range(18, 30)]), (4, [0, 2, 3]), (2, [1]), (1, [0])]
)
def test_layer_skip_leaves_out_the_middle(layers: int, expected: list[int]) -> None:
    assert list(without_middle(layers)) == expected


def test_a_draft_model_forgets_what_was_refused(tmp_path: Path) -> None:
    network = load_network(save_tiny(tmp_path / "draft", "llama", layers=2, seed=3), "float64")
    target = tiny_target(save_tiny(tmp_path / "target", "llama"))
    drafter = DraftModel(target.sibling(network))
    text = list(range(5, 25))
    drafter.start(torch.tensor(text[:-1]))
    for emitted in ([1, 2, 3], [4], [9, 9, 9, 9, 9], [6, 7]):
        proposal = drafter.propose(text[-1], 4, GREEDY, generator())
        drafter.keep([proposal.tokens[0].item(), *emitted])  # one draft accepted, the others refused
        assert proposal.tokens.tolist() == greedy(network, text, 4)
        text += [int(proposal.tokens[0]), *emitted]


def greedy(network: LanguageModel, text: list[int], count: int) -> list[int]:
    result: list[int] = []
    for _ in range(count):
        result.append(int(TargetSession(network).start(torch.tensor([*text, *result])).argmax()))
    return result


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_coarser_weights_move_further_and_the_embedding_stays(tmp_path: Path, family: str) -> None:
    network = load_network(save_tiny(tmp_path, family), "float64")
    tokens = torch.arange(40).reshape(2, 20)
    exact = network.head(network.hidden_states(tokens, [4])[4])
    errors = []
    for bits in (8, 5, 3):
        coarse = quantised(network, bits)
        assert torch.equal(coarse.embed(tokens), network.embed(tokens))
        errors.append(float((coarse.head(coarse.hidden_states(tokens, [4])[4]) - exact).abs().mean()))
    assert errors[0] < errors[1] / 3 < errors[2] / 9  # a step is 4 to 9 times as wide at every stop
    again = network.head(network.hidden_states(tokens, [4])[4])
    assert torch.equal(again, exact)  # the original is untouched


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("eagle9", "layer-skip, ngram"),
        ("ngram:x", "ngram alone"),
        ("draft-model", "draft-model:SOURCE"),
        ("quantised:1", "2 to 8 bits"),
        ("quantised:x", "2 to 8 bits"),
        ("layer-skip:3-1", "from 0 to 3"),
        ("layer-skip:0-9", "from 0 to 3"),
        ("layer-skip:a", "as 0-7"),
        ("eagle:/nowhere", "config.json"),
    ],
)
def test_drafters_that_are_none_are_refused(tmp_path: Path, entry: str, message: str) -> None:
    target = tiny_target(save_tiny(tmp_path, "llama"))
    with pytest.raises(InputError, match=message):
        load_drafter(entry, target)


def test_every_kind_names_its_paper() -> None:
    assert all(kind.paper.startswith("arXiv ") for kind in KINDS.values())
    assert len(KINDS) == 10


@pytest.mark.parametrize(
    "entry", ["layer-skip", "ngram", "suffix", "lookahead", "quantised:4", "draft-model"]
)
def test_drafts_end_where_the_window_ends(tmp_path: Path, entry: str) -> None:
    """Plain decoding goes to the last position, and so does every drafter, to the same text."""
    target = tiny_target(save_tiny(tmp_path / "target", "gpt2", window=48))
    save_tiny(tmp_path / "draft", "gpt2", layers=1, window=40)
    source = f"draft-model:{tmp_path / 'draft'}" if entry == "draft-model" else entry
    prompt = torch.arange(20, 38)
    plain = speculative_decode(target, None, prompt, 0, max_tokens=200)
    assert len(plain.tokens) == 48 - 18 + 1  # the last one is never read
    assert plain.finish == "length"
    _, maker = load_drafter(source, target)
    for levels in (2, 7):
        assert (
            speculative_decode(target, maker(target), prompt, levels, max_tokens=200).tokens == plain.tokens
        )
