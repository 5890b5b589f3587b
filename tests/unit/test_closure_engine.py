"""The engine of the closed loop: speculation changes no text, outcomes can be dialled, caches roll back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from calibration.closure.engine import SpeculativeDecoding
    from calibration.closure.prompt_cache import PromptCache
    from calibration.decoder.decoder import Decoder

BATCH, CONTEXT = 3, 20


def tiny(layers: int = 6) -> Decoder:
    """A random decoder in double precision: rounding cannot turn an argmax."""
    import torch

    from calibration.decoder.decoder import Decoder
    from calibration.decoder.shape import DecoderShape
    from calibration.decoder.weights import random_weights

    shape = DecoderShape("tiny", layers, 48, 6, 2, 8, 64, 67, 256)
    return Decoder(shape, random_weights(shape, torch.float64))


def prompts_of(decoder: Decoder) -> PromptCache:
    """Two prompts for three sequences."""
    from calibration.closure.prompt_cache import PromptCache

    return PromptCache.random(decoder, 2, CONTEXT + 4)


def speculation(
    target: Decoder, layers: int, draft_length: int, temperature: float = 0.0
) -> SpeculativeDecoding:
    """Drafts of the first layers."""
    from calibration.closure.engine import SpeculativeDecoding

    drafter = target.first_layers(layers)
    return SpeculativeDecoding(
        target, drafter, prompts_of(target), BATCH, CONTEXT, 64, draft_length, temperature
    )


@pytest.mark.parametrize("draft_length", [1, 2, 4, 7])
@pytest.mark.parametrize("layers", [2, 5, 6])
def test_text_is_that_of_plain_greedy_decoding(draft_length: int, layers: int) -> None:
    import torch

    from calibration.closure.text_check import plain_text, speculative_text

    target = tiny()
    prompts = prompts_of(target)
    with torch.inference_mode():
        plain = plain_text(target, prompts, BATCH, CONTEXT, 30)
        drafter = target.first_layers(layers)
        result, accepted = speculative_text(target, drafter, prompts, BATCH, CONTEXT, 30, draft_length)
    assert torch.equal(result, plain)
    assert (accepted == 1) == (layers == 6)  # a drafter that is the target is always right, others are not


def test_text_of_smollm2_in_fp32_is_that_of_plain_greedy_decoding(decoder: Decoder) -> None:
    import torch

    from calibration.closure.text_check import compare_texts

    with torch.inference_mode():
        texts = compare_texts(decoder)
    assert texts.equal
    assert texts.accepted > 0.1  # otherwise every token would be the target's own anyway


def test_drafts_drawn_from_the_target_itself_are_all_accepted() -> None:
    import torch

    from calibration.closure.clock import Clock

    with torch.inference_mode():
        decoding = speculation(tiny(), 6, 4, temperature=1.0)
        taken: list[torch.Tensor] = []
        for _ in range(6):
            decoding.cycle(Clock(decoding.device))
            taken.append(decoding.accepted.clone())
    assert all((accepted == 4).all() for accepted in taken)


def test_given_outcomes_are_what_the_sequences_advance_by_and_restart_forgets_them() -> None:
    import torch

    from calibration.closure.clock import Clock

    with torch.inference_mode():
        decoding = speculation(tiny(), 2, 3)
        first = decoding.drafts.clone()
        clock = Clock(decoding.device)
        clock.restart()
        decoding.cycle(clock, torch.tensor([0, 3, 1]))
        assert (decoding.lengths - CONTEXT).tolist() == [1, 4, 2]
        assert len(clock.laps_s()) == 2 + 3  # verify, accept, three draft passes
        decoding.restart()
        assert decoding.lengths.tolist() == [CONTEXT] * BATCH
        assert torch.equal(decoding.drafts, first)


def test_dialled_outcomes_have_the_acceptance_they_are_dialled_to() -> None:
    from itertools import islice

    from calibration.closure.pairs import outcomes

    alpha, draft_length = 0.7, 3
    counts = list(islice(outcomes(alpha, draft_length), 400))
    for j in range(1, draft_length + 1):
        assert sum(count >= j for count in counts) / len(counts) == pytest.approx(alpha**j, abs=0.005)
