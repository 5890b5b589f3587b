"""BatchSlots decode what each sequence would decode alone, and an error in one ends all."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from calibration.drafters.batch_slots import BatchSlots
from calibration.drafters.language_model import LanguageModel
from calibration.drafters.registry import Maker, load_drafter
from calibration.drafters.target_session import TargetSession, load_network
from calibration.sampling.decode import Decoded, speculative_decode
from tests.lm import FAMILIES, save_tiny

PROMPTS = [torch.arange(3 + seed, 13 + 7 * seed) % 97 for seed in range(1, 8)]  # of unlike lengths


@pytest.fixture(scope="module", params=FAMILIES)
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load_network(save_tiny(tmp_path_factory.mktemp(request.param), request.param), "float64")


def decode(session: TargetSession, maker: Maker, prompt: torch.Tensor) -> Decoded:
    return speculative_decode(session, maker(session), prompt, 4, 0.8, max_tokens=24, seed=len(prompt))


def job(
    batch_slots: BatchSlots, network: LanguageModel, maker: Maker, number: int
) -> Callable[[int], Iterator[tuple[int, Decoded]]]:
    def run(slot: int) -> Iterator[tuple[int, Decoded]]:
        yield number, decode(batch_slots.session(network, slot), maker, PROMPTS[number])

    return run


@pytest.mark.parametrize("entry", ["layer-skip", "suffix", "lookahead", "quantised:4"])
def test_batch_slots_change_nothing(network: LanguageModel, entry: str) -> None:
    target = TargetSession(network)
    _, maker = load_drafter(entry, target)
    alone = [decode(TargetSession(network), maker, prompt) for prompt in PROMPTS]
    for count in (1, 3):
        batch_slots = BatchSlots(count)
        jobs = [job(batch_slots, network, maker, number) for number in range(len(PROMPTS))]
        decoded = [outcome for _, outcome in sorted(batch_slots.run(jobs), key=lambda pair: pair[0])]
        assert [outcome.tokens for outcome in decoded] == [outcome.tokens for outcome in alone]
        for outcome, other in zip(decoded, alone, strict=True):
            assert [step.path for step in outcome.rounds] == [step.path for step in other.rounds]


def test_passes_of_all_slots_run_together(network: LanguageModel) -> None:
    target = TargetSession(network)
    _, maker = load_drafter("layer-skip", target)
    passes: list[int] = []
    run_pass = network.run_pass
    network.run_pass = lambda *positional, **named: (
        passes.append(positional[1].shape[0]) or run_pass(*positional, **named)
    )  # type: ignore
    try:
        batch_slots = BatchSlots(7)
        done = list(batch_slots.run([job(batch_slots, network, maker, number) for number in range(7)]))
    finally:
        network.run_pass = run_pass  # type: ignore[method-assign]
    rounds = sum(len(decoded.rounds) for _, decoded in done)
    assert max(passes) == 7
    assert len(passes) < 5 * rounds / 3  # a round has 5 passes; alone they would be 5 × rounds


def test_what_a_job_raises_ends_the_run(network: LanguageModel) -> None:
    _, maker = load_drafter("layer-skip", TargetSession(network))
    batch_slots = BatchSlots(3)

    def failing(slot: int) -> Iterator[tuple[int, Decoded]]:
        batch_slots.session(network, slot).start(PROMPTS[0])
        raise ValueError("no more")
        yield

    jobs = [
        job(batch_slots, network, maker, 0),
        failing,
        job(batch_slots, network, maker, 1),
        job(batch_slots, network, maker, 2),
    ]
    with pytest.raises(ValueError, match="no more"):
        list(batch_slots.run(jobs))


def test_whoever_stops_reading_stops_the_slots(network: LanguageModel) -> None:
    _, maker = load_drafter("layer-skip", TargetSession(network))
    batch_slots = BatchSlots(2)
    before = threading.active_count()
    results = batch_slots.run([job(batch_slots, network, maker, number) for number in range(7)])
    next(iter(results))
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(list(batch_slots.run([job(batch_slots, network, maker, number) for number in range(3)]))) == 3
