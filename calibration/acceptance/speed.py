"""The speedup from measured acceptance: decoding with and without drafts, timed on this machine, and
simulated.

Timing runs one sequence on one thread and uses processor time, which other programs do not disturb. The
simulation is of a 70B model with a cheap drafter in a serving engine, with the measured acceptance.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from calibration.acceptance.prompts import TokenisedPrompt

if TYPE_CHECKING:
    from calibration.drafters.language_model import LanguageModel
    from calibration.drafters.registry import Maker

_TOKENS = 32
_FILE = "acceptance.json"
_SCENARIO = """
target: {{model: llama-3.3-70b-instruct, weights: fp8, kv_cache: fp8}}
hardware: {{gpu: h100-sxm, tensor_parallel: 4}}
speculation:
  - name: drafts
    method: eagle3
    draft: eagle3-llama-3.3-70b
    draft_length: {draft_length}
    draft_sampling: {draft_sampling}
    acceptance: {{file: {file}}}
workload:
  arrivals: {{kind: closed, concurrency: 1}}
  requests: 40
  temperature: {temperature}
  prompt_tokens: {{kind: fixed, tokens: 500}}
  output_tokens: {{kind: fixed, tokens: 256}}
"""


class TimedCalls:
    """A target or drafter whose calls are timed, in processor time of this thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in ("score", "propose", "keep"):
            return value

        def timed_call(*arguments: Any) -> Any:
            started_s = time.thread_time()
            try:
                return value(*arguments)
            finally:
                self.seconds += time.thread_time() - started_s

        return timed_call


def timed(
    network: LanguageModel,
    maker: Maker | None,
    prompts: Sequence[TokenisedPrompt],
    temperature: float,
    draft_sampling: str,
    draft_length: int,
) -> dict[str, float]:
    """Return processor times of plain (`maker` None) or speculative decoding, without the prompt.

    The entries are seconds per output token, seconds per round for verification and for drafts, and the mean
    acceptance length.
    """
    import torch

    from calibration.drafters.target_session import TargetSession
    from calibration.sampling.decode import speculative_decode

    total_s, verify_s, draft_s, tokens, rounds = 0.0, 0.0, 0.0, 0, 0
    for prompt in prompts:
        session = TargetSession(network)
        prompt_tokens = torch.tensor(prompt.tokens)
        session.start(prompt_tokens)  # reads the prompt now, so that `start` in the loop costs nothing
        target, drafter = TimedCalls(session), None if maker is None else TimedCalls(maker(session))
        started_s = time.thread_time()
        decoded = speculative_decode(
            target,
            drafter,
            prompt_tokens,
            draft_length,
            temperature,
            draft_sampling=draft_sampling,  # type: ignore[arg-type]
            max_tokens=_TOKENS,
        )
        total_s += time.thread_time() - started_s
        verify_s += target.seconds
        draft_s += 0.0 if drafter is None else drafter.seconds
        tokens += sum(outcome.accepted + 1 for outcome in decoded.rounds)
        rounds += len(decoded.rounds)
    return {
        "seconds_per_token": round(total_s / tokens, 6),
        "verify_seconds": round(verify_s / rounds, 6),
        "draft_seconds": round(draft_s / rounds, 6),
        "mean_acceptance_length": round(tokens / rounds, 4),
    }


def simulated(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the simulated speedup at one client for a row of an acceptance file."""
    from simulator.scenario import load_scenario
    from simulator.simulation import simulate

    keys = ("temperature", "domain", "draft_sampling", "draft_length")
    with TemporaryDirectory() as folder:
        (Path(folder) / _FILE).write_text(json.dumps({"rows": [row]}), encoding="utf-8")
        path = Path(folder) / "scenario.yaml"
        path.write_text(_SCENARIO.format(file=_FILE, **{key: row[key] for key in keys}), encoding="utf-8")
        comparison = simulate(load_scenario(path)).to_json()["comparison"]["drafts"]
    return {key: row[key] for key in ("draft", *keys)} | {
        "speedup": comparison["throughput_speedup"],
        "verdict": comparison["verdict"],
    }
