"""Decodes prompts with a drafter under many settings and records every round."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from calibration.acceptance.prompts import TokenisedPrompt
from calibration.acceptance.samples import DecodingSetting, Level, RequestSample, SampleKey

if TYPE_CHECKING:
    from calibration.drafters.language_model import LanguageModel
    from calibration.drafters.registry import Maker
    from calibration.sampling.decode import Decoded

BATCH_SLOTS = 16
"""Requests decoded in one batch."""


def measure(
    network: LanguageModel,
    draft: str,
    maker: Maker | None,
    prompts: Sequence[TokenisedPrompt],
    settings: Sequence[DecodingSetting],
    *,
    max_tokens: int,
    done: Collection[SampleKey] = (),
    batch_slots: int = BATCH_SLOTS,
    seed: int = 0,
) -> Iterator[RequestSample]:
    """Yield the samples of all prompts and settings as they complete, except those whose keys are in `done`.

    `maker` None: plain decoding. The random numbers of a sample depend only on seed, prompt and setting.
    """
    import torch

    from calibration.drafters.batch_slots import BatchSlots
    from calibration.sampling.decode import speculative_decode

    batch = BatchSlots(min(batch_slots, len(prompts)))
    stop_token = getattr(network.tokenizer, "eos_token_id", None)

    def job(
        prompt: TokenisedPrompt, remaining_settings: list[DecodingSetting]
    ) -> Callable[[int], Iterator[RequestSample]]:
        def decode_all(slot: int) -> Iterator[RequestSample]:
            session = batch.session(network, slot)
            drafter = None if maker is None else maker(session)
            tokens = torch.tensor(prompt.tokens)
            for setting in remaining_settings:
                decoded = speculative_decode(
                    session,
                    drafter,
                    tokens,
                    setting.draft_length,
                    setting.temperature,
                    draft_sampling=setting.draft_sampling,  # type: ignore[arg-type]
                    max_tokens=max_tokens,
                    stop_tokens=() if stop_token is None else (stop_token,),
                    seed=zlib.crc32(f"{seed}:{prompt.name}:{setting.seed_text}".encode()),
                )
                yield sample_of(draft, prompt, setting, max_tokens, decoded)

        return decode_all

    jobs = []
    for prompt in prompts:
        remaining_settings = [
            setting for setting in settings if (draft, prompt.name, setting, max_tokens) not in done
        ]
        if remaining_settings:
            jobs.append(job(prompt, remaining_settings))
    yield from batch.run(jobs)


def sample_of(
    draft: str, prompt: TokenisedPrompt, setting: DecodingSetting, max_tokens: int, decoded: Decoded
) -> RequestSample:
    """Return the acceptance sample of a decoded request."""
    levels: list[Level] = []
    for outcome in decoded.rounds:
        for level, chance in enumerate(outcome.chances):
            accepted = level < outcome.accepted
            trial = Level(
                tried=1,
                accepted=int(accepted),
                first_accepted=int(accepted and outcome.ranks[level] == 0),
                chance=chance,
                variance=chance * (1.0 - chance),
            )
            if level == len(levels):
                levels.append(trial)
            else:
                levels[level] += trial
    return RequestSample(
        draft=draft,
        domain=prompt.domain,
        prompt=prompt.name,
        prompt_tokens=len(prompt.tokens),
        setting=setting,
        max_tokens=max_tokens,
        drafted=tuple(outcome.drafted for outcome in decoded.rounds),
        nodes=tuple(outcome.nodes for outcome in decoded.rounds),
        accepted=tuple(outcome.accepted for outcome in decoded.rounds),
        levels=tuple(levels),
        tokens=decoded.tokens if setting.temperature == 0.0 else (),
    )
