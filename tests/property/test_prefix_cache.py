"""Prefix caching of real variants against a plain reference: what a queue of free blocks holds when requests
come one after the other.

With one request at a time everything about it is certain: what is found, what is computed, what is evicted.
"""

from __future__ import annotations

import random
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
            "engine.preset": "vllm-0.33" if speculative else "vllm-0.10",
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
    produced_blocks = 0
    ids, start, prompts, outputs = [], [0], [], []
    for _ in range(COUNT):
        node, depth = -1, rng.randint(0, 6)
        for _ in range(depth):
            if children[node] and rng.random() < 0.75:
                node = rng.choice(children[node])
            else:
                children[node].append(produced_blocks)
                children[produced_blocks] = []
                node, produced_blocks = produced_blocks, produced_blocks + 1
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


class Block(NamedTuple):
    """One block of memory that no request holds: what it contains, and when that was computed."""

    content: tuple[int, int, int]
    number: int


def contents(requests: Requests, r: int, blocks: int) -> list[tuple[int, int, int]]:
    """What stands in the leading blocks of a request: pieces of what its ids name, then its own."""
    per_id = requests.prefix_block_tokens // BLOCK
    ids = requests.prefix_ids[requests.prefix_start[r] : requests.prefix_start[r + 1]].tolist()
    named = [(-1, name, piece) for name in ids for piece in range(per_id)]
    return [*named, *((r, index, 0) for index in range(len(named), blocks))][:blocks]


def reference(variant: CompiledVariant, requests: Requests, total_blocks: int) -> Found:
    """One request after the other: what it finds leaves the queue of free blocks, what it needs besides comes
    from its front, and what it has filled goes to its end, the deepest first.
    """
    settings = variant.settings
    queue: list[Block] = []
    hits = evicted = number = 0
    for r in range(COUNT):
        prompt, output = int(requests.prompt_tokens[r]), int(requests.output_tokens[r])
        filled = contents(requests, r, (prompt + output - 1) // BLOCK)
        result: list[Block] = []
        for content in filled[: (prompt - 1) // BLOCK]:
            copies = [block for block in queue if block.content == content]
            if not copies:
                break
            result.append(min(copies, key=lambda block: block.number))
        result = result[: len(result) - settings.loses_last_match] if result else result
        hits += len(result) * BLOCK
        queue = [block for block in queue if block not in result]
        needed = -(-(prompt + output - 1 + settings.lookahead_tokens) // BLOCK) - len(result)
        leaving = max(0, needed - (total_blocks - len(queue) - len(result)))
        queue, evicted = queue[leaving:], evicted + leaving
        computed = [Block(content, number + at) for at, content in enumerate(filled[len(result) :])]
        number += len(computed)
        queue += reversed([*result, *computed])
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
    result = reference(variant, requests, PLENTY)
    assert result.evicted == 0
    assert record.totals["prefix_hit_tokens"] == result.hit_tokens > 0
    # What is found is not computed again.
    assert record.totals["prompt_tokens"] == requests.prompt_tokens.sum()
    if not speculative:
        computed = requests.prompt_tokens.sum() + (requests.output_tokens - 1).sum()
        assert record.totals["query_tokens"] + result.hit_tokens == computed


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_tokens", [16, 64])
@pytest.mark.parametrize("spare", [0, 8, 40])
def test_the_least_recently_used_leave_first(spare: int, block_tokens: int, seed: int) -> None:
    variant = one_at_a_time(False)
    requests = with_prefixes(traffic(variant.scenario), block_tokens, seed)
    blocks = -(-int((requests.prompt_tokens + requests.output_tokens).max()) // BLOCK) + spare
    record = played(variant, requests, blocks)
    result = reference(variant, requests, blocks)
    assert result.evicted > 10
    assert record.totals["prefix_hit_tokens"] == result.hit_tokens
    assert record.preemptions.sum() == 0
    assert result.hit_tokens < reference(variant, requests, PLENTY).hit_tokens


def test_switched_off_nothing_is_found() -> None:
    variant = one_at_a_time(False)
    requests = with_prefixes(traffic(variant.scenario), 16, 0)
    engine = variant.scenario.engine.model_copy(update={"prefix_caching": False})
    off = replace(variant, scenario=variant.scenario.model_copy(update={"engine": engine}))
    assert off.run(requests, 0).totals["prefix_hit_tokens"] == 0
    assert off.run(requests, 0).makespan_ns > variant.run(requests, 0).makespan_ns
