"""Decodes prompts with a drafter under many settings and keeps what every round says."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from calibration.acceptance.prompts import Prompt
from calibration.acceptance.samples import Key, Level, Sample, Setting

if TYPE_CHECKING:
    from calibration.drafters.network import Network
    from calibration.drafters.registry import Maker
    from calibration.sampling.decode import Decoded

LANES = 16
"""Requests decoded side by side."""


def measure(
    network: Network,
    draft: str,
    maker: Maker | None,
    prompts: Sequence[Prompt],
    settings: Sequence[Setting],
    *,
    max_tokens: int,
    done: Collection[Key] = (),
    lanes: int = LANES,
    seed: int = 0,
) -> Iterator[Sample]:
    """Yield the samples of all prompts and settings, but those whose keys are done, as they end.

    `maker` None: plain decoding. The luck of a sample depends on seed, prompt and setting alone.
    """
    import torch

    from calibration.drafters.lanes import Lanes
    from calibration.sampling.decode import speculative_decode

    side_by_side = Lanes(min(lanes, len(prompts)))
    end = getattr(network.tokenizer, "eos_token_id", None)

    def job(prompt: Prompt, left: list[Setting]) -> Callable[[int], Iterator[Sample]]:
        def run(lane: int) -> Iterator[Sample]:
            session = side_by_side.session(network, lane)
            drafter = None if maker is None else maker(session)
            tokens = torch.tensor(prompt.tokens)
            for setting in left:
                decoded = speculative_decode(
                    session,
                    drafter,
                    tokens,
                    setting.draft_length,
                    setting.temperature,
                    draft_sampling=setting.draft_sampling,  # type: ignore[arg-type]
                    max_tokens=max_tokens,
                    stop_tokens=() if end is None else (end,),
                    seed=zlib.crc32(f"{seed}:{prompt.name}:{setting}".encode()),
                )
                yield sample_of(draft, prompt, setting, max_tokens, decoded)

        return run

    jobs = []
    for prompt in prompts:
        left = [one for one in settings if (draft, prompt.name, one, max_tokens) not in done]
        if left:
            jobs.append(job(prompt, left))
    yield from side_by_side.run(jobs)


def sample_of(draft: str, prompt: Prompt, setting: Setting, max_tokens: int, decoded: Decoded) -> Sample:
    """Return what a decoded request says of acceptance."""
    levels: list[Level] = []
    for one in decoded.rounds:
        for level, chance in enumerate(one.chances):
            accepted = level < one.accepted
            here = Level(
                tried=1,
                accepted=int(accepted),
                first_accepted=int(accepted and one.ranks[level] == 0),
                chance=chance,
                variance=chance * (1.0 - chance),
            )
            if level == len(levels):
                levels.append(here)
            else:
                levels[level] += here
    return Sample(
        draft=draft,
        domain=prompt.domain,
        prompt=prompt.name,
        prompt_tokens=len(prompt.tokens),
        setting=setting,
        max_tokens=max_tokens,
        drafted=tuple(one.drafted for one in decoded.rounds),
        nodes=tuple(one.nodes for one in decoded.rounds),
        accepted=tuple(one.accepted for one in decoded.rounds),
        levels=tuple(levels),
        tokens=decoded.tokens if setting.temperature == 0.0 else (),
    )
