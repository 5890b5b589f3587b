"""Random scenarios by family, for the comparison of the step with a serving engine's own scheduler.

    python -m tests.engine.families [--each N] [--first NUMBER] [FAMILY …] > scenarios.jsonl

A family is a kind of load on a kind of engine; `async_` in front of its name is the same on an engine that
schedules ahead. A scenario follows from its name and number alone.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from simulator.numerics.random_numbers import STREAM_MATCH, STREAM_SURVIVAL, draw

TICK_NS = 1000
MATCH_PROBABILITY = 0.5
SURVIVAL = (0.3, 0.7, 0.95)
"""Probability that one more draft of a request is accepted; each request has one of them."""
LONGEST_RUN = 30
ROOM_TOKENS = 14
"""Tokens that every request leaves free of the KV cache, for drafts and look-ahead."""

Scenario = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """What a family varies. Lengths are (least, most) tokens, both drawn uniformly."""

    prompt: tuple[int, int] = (1, 60)
    output: tuple[int, int] = (1, 25)
    late: bool = False
    """Requests arrive over time; otherwise all at 0."""
    shares: bool = False
    """Prompts begin with blocks of a common pool."""
    own_ids: bool = False
    """Every full block that is not shared has an id of its own."""
    sessions: bool = False
    """Later turns repeat an earlier request, its output included."""
    tight_tokens: int | None = None
    """KV tokens that the cache holds, a few blocks more or less; None: more than needed."""
    budgets: tuple[int, ...] = (64, 128, 256)
    """Values of max_num_batched_tokens."""
    methods: tuple[str, ...] = ()
    draft_lengths: tuple[int, int] = (1, 5)
    by_batch: bool = False
    """K by the number of requests of a step."""
    whole_prompts: bool = False
    impatient: bool = False
    """Clients abort their requests after a while."""
    ends_at_context: bool = False
    """Requests end at the model's context."""
    cancels: bool = False
    """Clients cancel at an output token."""
    wide_names: bool = False
    """A name of the pool stands for several KV blocks."""
    sampled: bool = False
    """Drafts are accepted by a table of probabilities, and, of prompt lookups, only on a match."""


METHODS = ("draft_model", "eagle", "ngram")
_TIGHT = Shape(prompt=(4, 60), output=(5, 60), tight_tokens=120, budgets=(16, 32, 128))
_CACHED = replace(_TIGHT, own_ids=True, tight_tokens=140)
_SHARED = Shape(prompt=(10, 100), late=True, shares=True)


def _speculative() -> dict[str, Shape]:
    shapes = {}
    for method in METHODS:
        single = (method,)
        shapes[f"spec_{method}"] = Shape(methods=single)
        shapes[f"spec_budget_{method}"] = Shape(prompt=(2, 80), budgets=(8, 12, 16, 24), methods=single)
        shapes[f"spec_kv_{method}"] = replace(
            _TIGHT, tight_tokens=130, budgets=(64, 128, 256), methods=single
        )
    return shapes


FAMILIES: dict[str, Shape] = {
    "plain": Shape(),
    "chunked": Shape(prompt=(5, 150), budgets=(8, 16, 24, 32)),
    "whole": Shape(prompt=(5, 60), budgets=(96, 128), whole_prompts=True),
    "kv": _TIGHT,
    "kv_cached": replace(_TIGHT, own_ids=True),
    "kv_full": replace(_CACHED),
    "late": Shape(late=True),
    "prefix": _SHARED,
    "prefix_once": replace(_SHARED, late=False),
    "prefix_tight": replace(_SHARED, prompt=(10, 80), tight_tokens=140),
    "prefix_all": replace(_SHARED, prompt=(10, 80), tight_tokens=140, own_ids=True),
    "prefix_full": replace(_CACHED, late=True, shares=True),
    "prefix_spec": replace(_SHARED, methods=METHODS),
    "session": replace(_CACHED, late=True, shares=True, sessions=True),
    **_speculative(),
    "spec_byk_eagle": Shape(methods=("eagle",), by_batch=True),
    "spec_late": Shape(late=True, methods=METHODS),
    "stop_inside": Shape(output=(2, 12), methods=METHODS, draft_lengths=(3, 7)),
    "longK": Shape(output=(1, 5), methods=METHODS, draft_lengths=(6, 12)),
    "whole_spec": Shape(prompt=(5, 60), budgets=(96, 128), whole_prompts=True, methods=METHODS),
    "abort": Shape(late=True, impatient=True),
    "abort_kv": replace(_TIGHT, late=True, impatient=True),
    "abort_spec": Shape(late=True, impatient=True, methods=METHODS),
    "cancel": Shape(late=True, cancels=True),
    "cancel_spec": Shape(late=True, cancels=True, methods=METHODS),
    "prefix_wide": replace(_CACHED, own_ids=False, late=True, shares=True, wide_names=True),
    "spec_sampled": Shape(late=True, sampled=True, methods=METHODS),
    "len_edge": Shape(ends_at_context=True),
    "len_edge_spec": Shape(ends_at_context=True, methods=METHODS),
}
"""Family → what it varies; each exists for engines that schedule ahead as well (`async_` + name)."""


_SGLANG = "sglang_"
SGLANG_FAMILIES = {
    **{f"{_SGLANG}{name}": FAMILIES[name] for name in ("plain", "chunked", "late", "whole")},
    f"{_SGLANG}late_chunked": replace(FAMILIES["chunked"], late=True),
    **{f"{_SGLANG}{name}": FAMILIES[name] for name in ("prefix", "prefix_once")},
}
"""Family of SGLang's scheduler → what it varies. KV blocks are single tokens, and memory is never short."""
_ENOUGH_TOKENS = 400_000


def all_families() -> tuple[str, ...]:
    """Every family of vLLM, those that schedule ahead last."""
    return (*FAMILIES, *(f"async_{name}" for name in FAMILIES))


def scenario_of(family: str, number: int) -> Scenario:
    """The scenario of that number in a family, always the same."""
    rng = random.Random(f"{family}/{number}")
    asynchronous = family.startswith("async_")
    shape = SGLANG_FAMILIES.get(family) or FAMILIES[family.removeprefix("async_")]
    seed = rng.randrange(10**6)
    engine = _engine(rng, shape, asynchronous)
    if family in SGLANG_FAMILIES:
        engine |= {"engine": "sglang", "block_size": 1, "num_blocks": _ENOUGH_TOKENS}
    requests = _requests(rng, shape, engine, seed)
    sampled = _sample_acceptance(rng, engine, requests, seed) if shape.sampled else {}
    return {
        "id": f"{family}/{number}",
        "family": family,
        "seed": seed,
        "match_probability": MATCH_PROBABILITY,
        "engine": engine,
        "requests": requests,
        **sampled,
    }


def _sample_acceptance(
    rng: random.Random, engine: Scenario, requests: list[Scenario], seed: int
) -> dict[str, list[float]]:
    """Give every request the accepted runs that the step's own random numbers make of a random table."""
    conditional = [round(rng.uniform(0.2, 1.0), 3) for _ in range(engine["K"])]
    for index, request in enumerate(requests):
        request["accept"] = [
            _sampled_run(seed, index, emitted, conditional) for emitted in range(request["output"] + 1)
        ]
    return {"conditional": conditional}


def _sampled_run(seed: int, index: int, emitted: int, conditional: list[float]) -> int:
    draws = [draw(seed, index, STREAM_SURVIVAL, emitted + 1 + at) for at in range(len(conditional))]
    accepted = [value < chance for value, chance in zip(draws, conditional, strict=True)]
    return [*accepted, False].index(False)


def _engine(rng: random.Random, shape: Shape, asynchronous: bool) -> Scenario:
    block = rng.choice([4, 8, 16])
    method = rng.choice(shape.methods) if shape.methods else "none"
    draft_length: Any = rng.randint(*shape.draft_lengths) if shape.methods else 0
    if shape.by_batch:
        cut = rng.randint(1, 3)
        middle, most = rng.randint(0, 5), rng.randint(2, 5)
        draft_length = [
            [1, cut, most],
            [cut + 1, cut + 2, min(middle, most)],
            [cut + 3, 64, rng.randint(0, 1)],
        ]
    blocks = 4096
    if shape.tight_tokens is not None and not (shape.sessions and rng.random() < 0.5):
        blocks = shape.tight_tokens // block + rng.randint(1, 10)
    engine = {
        "max_num_seqs": rng.randint(2, 8),
        "max_num_batched_tokens": rng.choice(shape.budgets),
        "block_size": block,
        "num_blocks": blocks,
        "chunked_prefill": not shape.whole_prompts,
        "prefix_caching": shape.shares or shape.own_ids,
        "asynchronous": asynchronous,
        "method": method,
        "K": draft_length,
        "max_model_len": rng.randint(40, 90) if shape.ends_at_context else 4096,
        "foreseen": rng.random() < 0.5,
        "ragged": method == "ngram" and not asynchronous,
        "junk_on_miss": method == "ngram" and asynchronous,
    }
    if shape.wide_names:
        engine["blocks_per_name"] = rng.randint(2, 4)
    if shape.impatient:
        engine["timeout"] = rng.randint(3, 30) * TICK_NS + TICK_NS // 2
    return engine


def _requests(rng: random.Random, shape: Shape, engine: Scenario, seed: int) -> list[Scenario]:
    pool = [[group * 100 + block for block in range(40)] for group in range(rng.randint(1, 3))]
    requests: list[Scenario] = []
    arrival_ns, next_id = 0, 10_000
    for index in range(rng.randint(3, 12)):
        if shape.late:
            arrival_ns += rng.choice([0, 0, 1, 2, 5, 20]) * TICK_NS
        prompt, output = _lengths(rng, shape, engine)
        name_tokens = engine["block_size"] * engine.get("blocks_per_name", 1)
        prefix = _common_blocks(rng, pool, prompt // name_tokens) if shape.shares else []
        begins_ns = arrival_ns
        if shape.sessions and requests and rng.random() < 0.6:
            turn = _later_turn(rng, rng.choice(requests), output, engine)
            if turn is not None:
                prompt, output, prefix, earliest_ns = turn
                begins_ns = max(arrival_ns, earliest_ns)
        if shape.own_ids:
            own = range(next_id, next_id + (prompt + output) // engine["block_size"] - len(prefix))
            prefix, next_id = [*prefix, *own], next_id + len(own)
        matches = [draw(seed, index, STREAM_MATCH, at + 1) < MATCH_PROBABILITY for at in range(output + 2)]
        accepted = accepted_runs(rng, output, rng.choice(SURVIVAL))
        request = {"arrival": begins_ns, "prompt": prompt, "output": output, "prefix": prefix}
        if shape.cancels and rng.random() < 0.5:
            request["cancel"] = rng.randint(1, output + 2)
        requests.append({**request, "accept": accepted, "match": matches})
    return requests


def _lengths(rng: random.Random, shape: Shape, engine: Scenario) -> tuple[int, int]:
    prompt, output = rng.randint(*shape.prompt), rng.randint(*shape.output)
    if shape.ends_at_context:
        prompt = rng.randint(5, engine["max_model_len"] - 10)
        output = engine["max_model_len"] - prompt - rng.choice([0, 0, 0, 1, 2, 5])
    if shape.whole_prompts:
        output = min(output, max(1, engine["max_num_batched_tokens"] - prompt - 1))
    room = engine["num_blocks"] * engine["block_size"] - ROOM_TOKENS
    if prompt + output > room:
        prompt = max(1, min(prompt, room // 2))
        output = max(1, min(output, room - prompt))
    return prompt, output


def _common_blocks(rng: random.Random, pool: list[list[int]], full: int) -> list[int]:
    """Leading blocks of a pool: none, all full blocks of the prompt, or some of them."""
    return rng.choice(pool)[: rng.choice([0, full, rng.randint(0, full)])]


def _later_turn(
    rng: random.Random, first: Scenario, output: int, engine: Scenario
) -> tuple[int, int, list[int], int] | None:
    """Prompt, output, shared blocks and earliest arrival of a turn that repeats `first`; None: no room."""
    room = engine["num_blocks"] * engine["block_size"] - ROOM_TOKENS
    before = first["prompt"] + first["output"]
    prompt = before + rng.randint(1, 20)
    if before >= 250 or prompt + 1 > room:
        return None
    blocks = first["prefix"][: prompt // engine["block_size"]]
    return prompt, min(output, room - prompt), blocks, first["arrival"] + 150 * TICK_NS


def accepted_runs(rng: random.Random, output: int, probability: float) -> list[int]:
    """Drafts that are accepted in a row, for a round that begins after each of the output's tokens."""
    good = [rng.random() < probability for _ in range(output + LONGEST_RUN + 10)]

    def run(start: int) -> int:
        length = 0
        while length < LONGEST_RUN and good[start + length]:
            length += 1
        return length

    return [run(start) for start in range(output + 1)]


def scenarios(families: list[str], each: int, first: int = 0) -> Iterator[Scenario]:
    """Yield `each` scenarios of every family, numbered from `first`."""
    for family in families:
        for number in range(first, first + each):
            yield scenario_of(family, number)


def main(arguments: list[str] | None = None) -> int:
    """Print scenarios, one JSON document a line."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.families")
    parser.add_argument("families", nargs="*", default=None, metavar="FAMILY")
    parser.add_argument("--each", type=int, default=20, metavar="N", help="scenarios a family")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="number of the first one")
    options = parser.parse_args(arguments)
    known = (*all_families(), *SGLANG_FAMILIES)
    unknown = set(options.families or ()) - set(known)
    if unknown:
        parser.error(f"unknown families {sorted(unknown)}; known: {', '.join(known)}")
    for scenario in scenarios(options.families or list(all_families()), options.each, options.first):
        print(json.dumps(scenario))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
