"""The price of one uniform step: a number of decodes, all at one context, all with as many drafts.

Closed forms and K tables use it. It is the step's own pricing (`step/price.py`) on a step written by hand.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.acceptance import AcceptanceTables, Geometric, compile_acceptance
from simulator.costs.prices import Prices
from simulator.step.build import new_state
from simulator.step.entry import price_step
from simulator.step.settings import EngineSettings
from simulator.traffic.workload import Requests


class UniformStep:
    """A step of `sequences` decodes whose contexts hold `context_tokens` each, with `draft_length` drafts of
    each to verify and to make.

    The mean context is exact: some requests are one token longer than others.
    """

    def __init__(
        self,
        settings: EngineSettings,
        prices: Prices,
        sequences: int,
        context_tokens: float,
        draft_length: int,
    ) -> None:
        settings = replace(
            settings,
            max_num_seqs=max(sequences, 1),
            draft_length_by_batch=(draft_length,),
            policy_lengths=(),
        )
        self.overlaps = settings.asynchronous and settings.host_overlap
        requests = _requests(sequences, context_tokens)
        self.state = new_state(settings, prices, _any_acceptance(requests, settings.max_depth), requests, 0)
        records, plan, entries = self.state.requests, self.state.plans[0], self.state.entries[0]
        records["emitted"] = 1  # context before the step: prompt + emitted − 1
        entries["request"][:sequences] = np.arange(sequences)
        entries["tokens"] = draft_length + 1
        entries["drafts"] = draft_length
        entries["decodes"] = entries["samples"] = 1
        plan["entries"] = plan["decodes"] = plan["samples"] = plan["drafters"] = sequences
        plan["drafting_samples"] = sequences
        plan["tokens"] = plan["decode_tokens"] = sequences * (draft_length + 1)
        plan["draft_length"], plan["drafts"] = draft_length, draft_length > 0
        plan["uniform"] = draft_length + 1
        price_step(self.state.engine, 0, 0)
        host = settings.host_step_ns + settings.host_per_sequence_ns * sequences
        hidden = settings.hidden_step_ns + settings.hidden_per_sequence_ns * sequences
        self.host_ns, self.hidden_ns = (host, hidden) if self.overlaps else (host + hidden, 0.0)

    def stages_ns(self) -> dict[str, float]:
        """Return ns of host, verify, accept and draft, and `total`: what each step takes in the long run."""
        plan = self.state.plans[0]
        stages = {
            "host": float(self.host_ns),
            "verify": float(plan["verify_ns"]),
            "accept": float(plan["accept_ns"]),
            "draft": float(plan["draft_ns"]),
        }
        return {**stages, "total": max(sum(stages.values()), self.hidden_ns)}


def _requests(sequences: int, context_tokens: float) -> Requests:
    shortest = int(context_tokens)
    longer = round((context_tokens - shortest) * sequences)
    prompts = np.full(sequences, max(shortest, 1), np.int64)
    prompts[:longer] += 1
    zeros = np.zeros(sequences, np.int64)
    return Requests(
        arrival_ns=zeros,
        prompt_tokens=prompts,
        output_tokens=np.full(sequences, 2, np.int64),
        traffic_class=np.zeros(sequences, np.int32),
        successor=np.full(sequences, -1, np.int64),
        successor_delay_ns=zeros,
        cancel_after_tokens=zeros,
        prefix_start=np.zeros(sequences + 1, np.int64),
        prefix_ids=np.zeros(0, np.int64),
        prefix_block_tokens=0,
        session=np.full(sequences, -1, np.int64),
    )


def _any_acceptance(requests: Requests, depth: int) -> AcceptanceTables:
    """Return some acceptance: a price does not depend on it."""
    return compile_acceptance([Geometric(0.5)], requests, 0, depth)
