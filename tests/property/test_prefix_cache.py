"""Prefix caching against a plain reference: what a cache with least-recently-used eviction finds when
requests come one after the other.

The oracle of the step leaves prefixes out; this reference is a dictionary and knows nothing of the step. With
one request at a time everything about it is certain: what is found, what is computed, what is evicted.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.traffic.workload import Requests
from tests.runs import drafting_variant, plain_variant, small_scenario, traffic

COUNT = 120
BLOCK = 16
PLENTY = 10**9


def one_at_a_time(speculative: bool) -> CompiledVariant:
    scenario = small_scenario(
        {
            "engine.preset": "vllm-0.10",
            "engine.max_num_seqs": 1,
            "workload.arrivals.concurrency": 1,
            "workload.requests": COUNT,
        }
    )
    return drafting_variant(scenario) if speculative else plain_variant(scenario)


def with_prefixes(requests: Requests, block_tokens: int, seed: int) -> Requests:
    """The requests with prompts that share beginnings: paths from the root of a random tree of blocks.

    Ids reach into the output of some, as those of a session do.
    """
    rng = random.Random(seed)
    children: dict[int, list[int]] = {-1: []}
    made = 0
    ids, start, prompts, outputs = [], [0], [], []
    for _ in range(COUNT):
        node, depth = -1, rng.randint(0, 6)
        for _ in range(depth):
            if children[node] and rng.random() < 0.75:
                node = rng.choice(children[node])
            else:
                children[node].append(made)
                children[made] = []
                node, made = made, made + 1
            ids.append(node)
        start.append(len(ids))
        output = rng.randint(1, 40)
        into_output = rng.random() < 0.3
        prompt = max(1, depth * block_tokens + rng.randint(0, block_tokens - 1) - (20 if into_output else 0))
        prompts.append(prompt)
        outputs.append(output)
    return requests._replace(
        prompt_tokens=np.array(prompts),
        output_tokens=np.array(outputs),
        prefix_start=np.array(start),
        prefix_ids=np.array(ids, np.int64),
        prefix_block_tokens=block_tokens,
    )


class Found(NamedTuple):
    """What the reference saw."""

    hit_tokens: int
    evicted: int


def reference(variant: CompiledVariant, requests: Requests, total_blocks: int) -> Found:
    """One request after the other: look up, hold, evict the oldest as needed, keep what was computed."""
    per_id, settings = requests.prefix_block_tokens // BLOCK, variant.settings
    kept: OrderedDict[int, None] = OrderedDict()
    hits = evicted = 0
    for r in range(COUNT):
        ids = requests.prefix_ids[requests.prefix_start[r] : requests.prefix_start[r + 1]].tolist()
        prompt, output = int(requests.prompt_tokens[r]), int(requests.output_tokens[r])
        matched = 0
        while matched < len(ids) and ids[matched] in kept:
            matched += 1
        found = min(matched * requests.prefix_block_tokens, (prompt - 1) // BLOCK * BLOCK)
        if found and settings.loses_last_match:
            found -= BLOCK
        hits += found
        for block in ids[:matched]:
            del kept[block]
        computed = (prompt + output - 1) // requests.prefix_block_tokens
        held = max(min(computed, len(ids)), matched)
        for block in ids[matched:held]:
            kept.pop(block, None)
        own = -(-(prompt + output - 1 + settings.lookahead_tokens) // BLOCK)
        room = total_blocks - per_id * len(kept)
        while room < max(own, per_id * held):
            kept.popitem(last=False)
            room += per_id
            evicted += 1
        for block in reversed(ids[:held]):  # the deepest is the first to go
            kept[block] = None
    return Found(hits, evicted)


def played(variant: CompiledVariant, requests: Requests, total_blocks: int) -> RunRecord:
    return replace(variant, settings=replace(variant.settings, total_blocks=total_blocks)).run(requests, 0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_tokens", [16, 64])
@pytest.mark.parametrize("speculative", [False, True])
def test_with_room_for_all_everything_is_found(speculative: bool, block_tokens: int, seed: int) -> None:
    variant = one_at_a_time(speculative)
    requests = with_prefixes(traffic(variant.scenario), block_tokens, seed)
    record = played(variant, requests, 10**6)
    found = reference(variant, requests, PLENTY)
    assert found.evicted == 0
    assert record.totals["prefix_hit_tokens"] == found.hit_tokens > 0
    # What is found is not computed again.
    assert record.totals["prompt_tokens"] == requests.prompt_tokens.sum()
    if not speculative:
        computed = requests.prompt_tokens.sum() + (requests.output_tokens - 1).sum()
        assert record.totals["query_tokens"] + found.hit_tokens == computed


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_tokens", [16, 64])
@pytest.mark.parametrize("spare", [0, 8, 40])
def test_the_least_recently_used_leave_first(spare: int, block_tokens: int, seed: int) -> None:
    variant = one_at_a_time(False)
    requests = with_prefixes(traffic(variant.scenario), block_tokens, seed)
    blocks = -(-int((requests.prompt_tokens + requests.output_tokens).max()) // BLOCK) + spare
    record = played(variant, requests, blocks)
    found = reference(variant, requests, blocks)
    assert found.evicted > 10
    assert record.totals["prefix_hit_tokens"] == found.hit_tokens
    assert record.preemptions.sum() == 0
    assert found.hit_tokens < reference(variant, requests, PLENTY).hit_tokens


def test_switched_off_nothing_is_found() -> None:
    variant = one_at_a_time(False)
    requests = with_prefixes(traffic(variant.scenario), 16, 0)
    engine = variant.scenario.engine.model_copy(update={"prefix_caching": False})
    off = replace(variant, scenario=variant.scenario.model_copy(update={"engine": engine}))
    assert off.run(requests, 0).totals["prefix_hit_tokens"] == 0
    assert off.run(requests, 0).makespan_ns > variant.run(requests, 0).makespan_ns
