"""The harness on a tiny model: rounds of the decode loop, two alphas that agree, runs resources_taken up
again.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calibration.acceptance.harness import measure
from calibration.acceptance.prompts import TokenisedPrompt, prompts_from_file
from calibration.acceptance.report import groups_of
from calibration.acceptance.rows import row_of
from calibration.acceptance.samples import DecodingSetting
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.registry import load_drafter
from calibration.drafters.target_session import TargetSession, load_network
from calibration.sampling.decode import speculative_decode
from simulator.errors import InputError
from tests.lm import save_tiny

SAMPLED, GREEDY_DRAFTS = DecodingSetting(0.9, 3, "sampled"), DecodingSetting(0.9, 3, "greedy")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_network(save_tiny(tmp_path_factory.mktemp("tiny"), "llama"), "float64")


def prompts(count: int) -> list[TokenisedPrompt]:
    generator = torch.Generator().manual_seed(5)
    return [
        TokenisedPrompt(f"code/{n}", "code", tuple(torch.randint(1, 97, (12,), generator=generator).tolist()))
        for n in range(count)
    ]


def test_the_two_alphas_agree(network: LanguageModel) -> None:
    for entry in ("layer-skip", "suffix"):
        _, maker = load_drafter(entry, TargetSession(network))
        samples = list(measure(network, entry, maker, prompts(24), [SAMPLED, GREEDY_DRAFTS], max_tokens=48))
        for row in map(row_of, groups_of(samples, by_draft_length=True)):
            assert row.agreement is not None
            assert abs(row.agreement) < 4.0
            tried = sum(
                level.tried for sample in samples if sample.setting == row.setting for level in sample.levels
            )
            assert tried > (500 if entry == "layer-skip" else 50)


def test_alphas_of_other_distributions_would_not_agree(network: LanguageModel) -> None:
    """The comparison notices an acceptance that is off by a fifth."""
    _, maker = load_drafter("layer-skip", TargetSession(network))
    samples = list(measure(network, "layer-skip", maker, prompts(24), [SAMPLED], max_tokens=48))
    wrong = [
        replace(sample, levels=tuple(replace(level, chance=0.8 * level.chance) for level in sample.levels))
        for sample in samples
    ]
    row = row_of(wrong)
    assert row.agreement is not None
    assert row.agreement > 4.0


def test_samples_are_what_the_loop_decodes_and_a_second_run_does_the_rest(network: LanguageModel) -> None:
    _, maker = load_drafter("layer-skip", TargetSession(network))
    settings = [DecodingSetting(0.0, 2), SAMPLED]
    samples_at_once = list(measure(network, "d", maker, prompts(5), settings, max_tokens=20, batch_slots=3))
    assert len(samples_at_once) == 10
    half = [
        sample
        for sample in samples_at_once
        if sample.prompt in ("code/0", "code/3") or sample.setting == settings[0]
    ]
    rest = list(
        measure(
            network,
            "d",
            maker,
            prompts(5),
            settings,
            max_tokens=20,
            done={sample.key for sample in half},
            batch_slots=2,
        )
    )
    assert {sample.key: sample for sample in (*half, *rest)} == {
        sample.key: sample for sample in samples_at_once
    }
    alone = next(
        sample for sample in samples_at_once if sample.prompt == "code/1" and sample.setting == settings[0]
    )
    session = TargetSession(network)
    prompt = torch.tensor(prompts(5)[1].tokens)
    decoded = speculative_decode(session, maker(session), prompt, 2, max_tokens=20, stop_tokens=[0])
    assert alone.tokens == decoded.tokens
    assert alone.accepted == tuple(draft_round.accepted for draft_round in decoded.rounds)
    assert alone.positions == tuple(draft_round.position for draft_round in decoded.rounds)
    assert math.isclose(
        sum(level.chance for level in alone.levels),
        sum(sum(draft_round.chances) for draft_round in decoded.rounds),
    )


def test_prompts_of_a_file(network: LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        'plain text\n\n{"prompt": "def f", "domain": "code"}\n{"prompt": "x"}\n', encoding="utf-8"
    )
    result = prompts_from_file(path, network.tokenizer)
    assert [(prompt.domain, prompt.name, len(prompt.tokens)) for prompt in result] == [
        ("prompts", "prompts.jsonl:1", 10),
        ("code", "prompts.jsonl:3", 5),
        ("prompts", "prompts.jsonl:4", 1),
    ]


def test_prompts_longer_than_the_window_are_said_by_line(network: LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("short\nmuch too long for it\n", encoding="utf-8")
    with pytest.raises(InputError, match="2: is too long for the model"):
        prompts_from_file(path, network.tokenizer, window=10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prompt"),
        ("ok\n{broken", "2: is no prompt"),
        ('{"prompt": 3}', "1: is no prompt"),
        ('{"prompt": ""}', "is an empty prompt"),
    ],
)
def test_files_that_hold_no_prompts(network: LanguageModel, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        prompts_from_file(path, network.tokenizer)
