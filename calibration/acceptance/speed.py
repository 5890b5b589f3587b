"""What acceptance is worth: decoding with and without drafts, timed here, and simulated from the same rows.

Timed is one sequence on one thread, in processor time, which other programs do not disturb. Simulated is a
70B model with a cheap drafter in a serving engine, at the acceptance that was measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from calibration.acceptance.prompts import Prompt

if TYPE_CHECKING:
    from calibration.drafters.network import Network
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


class Clocked:
    """A target or a drafter whose calls are timed, in processor time of this thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in ("score", "propose", "keep"):
            return value

        def clocked(*given: Any) -> Any:
            begun = time.thread_time()
            try:
                return value(*given)
            finally:
                self.seconds += time.thread_time() - begun

        return clocked


def timed(
    network: Network,
    maker: Maker | None,
    prompts: Sequence[Prompt],
    temperature: float,
    draft_sampling: str,
    draft_length: int,
) -> dict[str, float]:
    """Return processor time of plain (`maker` None) or speculative decoding: seconds per output token, and of
    a round the seconds its drafts and its verification take; with the mean acceptance length. The pass over
    the prompt is not in them.
    """
    import torch

    from calibration.drafters.target import Target
    from calibration.sampling.decode import speculative_decode

    seconds, verify, draft, tokens, rounds = 0.0, 0.0, 0.0, 0, 0
    for prompt in prompts:
        session = Target(network)
        given = torch.tensor(prompt.tokens)
        session.start(given)  # read now; `start` in the loop then costs nothing
        target, drafter = Clocked(session), None if maker is None else Clocked(maker(session))
        begun = time.thread_time()
        decoded = speculative_decode(
            target,
            drafter,
            given,
            draft_length,
            temperature,
            draft_sampling=draft_sampling,  # type: ignore[arg-type]
            max_tokens=_TOKENS,
        )
        seconds += time.thread_time() - begun
        verify += target.seconds
        draft += 0.0 if drafter is None else drafter.seconds
        tokens += sum(one.accepted + 1 for one in decoded.rounds)
        rounds += len(decoded.rounds)
    return {
        "seconds_per_token": round(seconds / tokens, 6),
        "verify_seconds": round(verify / rounds, 6),
        "draft_seconds": round(draft / rounds, 6),
        "mean_acceptance_length": round(tokens / rounds, 4),
    }


def simulated(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the speedup at one client that the simulator gives for a row of an acceptance file."""
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
