"""Seeded random scenarios, small and full of rare events, on which the step must equal the oracle.

`scenario(seed)` returns plain data: {"seed", "engine", "prices", "requests", "acceptance"}, the arguments of
`tests.oracle.run_oracle`. In every second scenario all times are multiples of `TICK_NS` and there is no
attention, so that arrivals, emissions and give-ups meet at one instant and every tie rule is used; the others
have real-valued prices, whose sums never come near a rounding boundary. The graph cap is always a graph size.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any

Record = dict[str, Any]
SEEDS = range(416)
MECHANISMS = ("prefill", "graph_padding", "stop_trim", "ghost_rows", "host_overlap", "context_growth")
METHODS: dict[str, Record] = {
    "plain": {"serial_passes": 0, "first_pass_rows": "tokens", "kv": False, "slots": 0},
    "eagle": {"serial_passes": "draft_length", "first_pass_rows": "tokens", "kv": True, "slots": 0},
    "model": {"serial_passes": "draft_length", "first_pass_rows": "tokens+requests", "kv": True, "slots": 1},
    "heads": {"serial_passes": "draft_length", "first_pass_rows": "requests", "kv": False, "slots": 0},
    "ngram": {"serial_passes": 0, "first_pass_rows": "tokens", "kv": False, "slots": 0},
}
TREES = (
    [-1, 0, 0, 1, 1, 2, 3],
    [-1, 0, 0, 0, 1],
    [-1, 0, 1, 1, 2],
    [-1, 0, 0, 1, 2, 3, 4],
)
"""Parents of the nodes, level by level."""
LATER_METHODS: dict[str, Record] = {
    "tree": {"serial_passes": "draft_length", "first_pass_rows": "tokens", "kv": True, "slots": 0},
    "heads of a tree": {"serial_passes": 1, "first_pass_rows": "requests", "kv": False, "slots": 0},
    "parallel": {"serial_passes": 1, "first_pass_rows": "tokens+drafts", "kv": True, "slots": 2},
    "suffix": {"serial_passes": 0, "first_pass_rows": "tokens", "kv": False, "slots": 0},
}
FIRST_LATER_SEED = 320
"""From this seed on the methods are the later ones, so that no older scenario changes."""
METHOD_ORDER = ("plain", "eagle", "model", "ngram", "eagle", "heads", "ngram", "model")
TICK_NS = 20_000
UNLIMITED = 2**62
CONTEXT_KNOTS = [64, 128, 192, 256, 384]


def scenario(seed: int) -> Record:
    """Return one random scenario; its method follows from the seed, so that any 16 in a row hold them all."""
    rng = random.Random(seed)
    order = METHOD_ORDER if seed < FIRST_LATER_SEED else tuple(LATER_METHODS)
    name = order[seed // 2 % len(order)]
    ticks, tight = seed % 2 == 0, chance(rng, 0.4)
    engine = make_engine(rng, name, ticks, tight)
    engine["host"] |= make_front_end(random.Random(f"front end {seed}"), ticks)
    requests = make_requests(rng, engine, tight)
    fit_memory(rng, engine, requests)
    limit_drafts(random.Random(f"draft lengths {seed}"), engine, requests)
    share_prefixes(random.Random(f"prefixes {seed}"), name, engine, requests)
    limit_context(random.Random(f"context {seed}"), engine, requests)
    return {
        "seed": seed,
        "engine": engine,
        "prices": make_prices(rng, engine, ticks),
        "requests": requests,
        "acceptance": make_acceptance(rng, engine, name),
    }


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


def some_ns(rng: random.Random, most_ns: float, ticks: bool) -> float:
    """A price between 0 and `most_ns`, 0 every fourth time; in ticks at most one tick more."""
    if chance(rng, 0.25):
        return 0.0
    return float(rng.randint(0, round(most_ns / TICK_NS) + 1) * TICK_NS) if ticks else rng.uniform(0, most_ns)


def draft_lengths(rng: random.Random, request_limit: int, most: int) -> list[int]:
    """K by the number of scheduled requests: constant, or falling, or arbitrary; sometimes 0 for some."""
    if most == 0 or chance(rng, 0.5):
        return [most] * (request_limit + 1)
    table = [rng.randint(0, most) for _ in range(request_limit + 1)]
    if chance(rng, 0.5):
        table.sort(reverse=True)
    table[rng.randint(1, min(3, request_limit))] = most
    return table


def make_engine(rng: random.Random, name: str, ticks: bool, tight: bool) -> Record:
    """`tight`: too few tokens for every seat's drafts."""
    method = (METHODS | LATER_METHODS)[name]
    tree = {"parents": rng.choice(TREES)} if "tree" in name else {}
    asynchronous = chance(rng, 0.55)
    request_limit = rng.choice((4, 6, 8, 12) if tight else (1, 2, 3, 4, 6, 8, 12, 16))
    most = len(tree["parents"]) - 1 if tree else 0 if name == "plain" else rng.randint(1, 5)
    lengths = draft_lengths(rng, request_limit, most)
    budget = rng.randint(4, 2 + request_limit * (max(lengths) + 1)) if tight else rng.choice((16, 32, 64, 96))
    budget = max(budget, most + 1) if tree else budget  # the first decode may be filled up to K + 1 rows
    largest = rng.choice((8, 16, 24, 48, 96))
    grid = sorted(rng.sample(range(1, largest), rng.randint(3, min(16, largest - 1))))
    host = {
        "step_ns": some_ns(rng, 9e4, ticks),
        "per_sequence_ns": some_ns(rng, 4e3, ticks),
        "draft_pass_ns": some_ns(rng, 3e4, ticks),
        "draft_step_ns": some_ns(rng, 3e4, ticks),
        "hidden_step_ns": some_ns(rng, 5e5, ticks),
        "hidden_per_sequence_ns": some_ns(rng, 2e4, ticks),
    }
    off = rng.sample(MECHANISMS, rng.choice((1, 1, 2))) if chance(rng, 0.35) else []
    return {
        "max_num_seqs": request_limit,
        "max_num_batched_tokens": budget,
        "block_tokens": rng.choice((1, 2, 4, 8, 16)),
        "asynchronous": asynchronous,
        "emits_before_drafting": asynchronous if chance(rng, 0.8) else not asynchronous,
        "mixes_prefill": chance(rng, 0.7),
        "chunked_prefill": chance(rng, 0.8),
        "reserved_output": rng.choice((0.0, 0.0, 0.5, 1.0)),
        "draft_length_by_batch": lengths,
        **tree,
        "lookahead_tokens": (2 if tree else 1) * max(lengths) if method["kv"] else 0,
        "slots_per_request": method["slots"],
        "ragged": name in ("ngram", "suffix") and not asynchronous,
        "drafter_has_kv": method["kv"],
        "first_pass_rows": method["first_pass_rows"],
        "serial_passes": method["serial_passes"],
        "drafter_max_context_tokens": rng.randint(10, 120) if method["kv"] and chance(rng, 0.25) else None,
        "stop_is_foreseen": chance(rng, 0.5),
        "think_time_ns": rng.choice((0, 0, 5, 35)) * TICK_NS + (0 if ticks else rng.randint(0, 999)),
        "timeout_ns": rng.choice((20, 150, 500, 1500)) * TICK_NS if chance(rng, 0.4) else None,
        "graph_sizes": grid,
        "graph_cap": grid[-1],
        "host": host,
        "mechanisms": {mechanism: mechanism not in off for mechanism in MECHANISMS},
    }


def make_front_end(rng: random.Random, ticks: bool) -> Record:
    """None in every second engine; else from idle to the bottleneck."""
    if chance(rng, 0.5):
        return {"request_latency_ns": 0, "request_ns": 0, "prompt_token_ns": 0.0}
    return {
        "request_latency_ns": round(some_ns(rng, 4e5, ticks)),
        "request_ns": round(some_ns(rng, rng.choice((2e4, 3e5)), ticks)),
        "prompt_token_ns": some_ns(rng, rng.choice((1e2, 1e4)), ticks),
    }


def make_requests(rng: random.Random, engine: Record, tight: bool) -> list[Record]:
    """5 to 60 requests: all known arrivals, all at once, or a closed loop of a few clients."""
    count = rng.randint(5, 60)
    longest_prompt = rng.choice((4, 8, 16) if tight else (8, 40, 120, 300))
    longest_output = rng.choice((10, 20, 30) if tight else (3, 10, 30, 60))
    cancels = chance(rng, 0.35)
    requests = []
    for _ in range(count):
        prompt, output = rng.randint(1, longest_prompt), rng.randint(1, longest_output)
        budget = engine["max_num_batched_tokens"] - engine["slots_per_request"]
        if not engine["chunked_prefill"] and prompt + output > budget and chance(rng, 0.95):
            output = min(output, max(1, budget // 2))
            prompt = rng.randint(1, budget - output)
        elif not engine["chunked_prefill"] and prompt + output > budget:
            prompt += engine["max_num_batched_tokens"]  # can never run
        cancel = rng.randint(1, output + 2) if cancels and chance(rng, 0.3) else 0
        requests.append({"prompt_tokens": prompt, "output_tokens": output, "cancel_after_tokens": cancel})
    kind, clients = rng.choice(("known", "at_once", "closed", "closed")), rng.randint(4 if tight else 1, 12)
    gap_ticks = rng.choice((1, 10) if tight else (1, 10, 50, 200))
    arrival = 0
    for number, request in enumerate(requests):
        arrival += rng.randint(0, 2 * gap_ticks) * TICK_NS if kind == "known" else 0
        late = kind == "closed" and number >= clients
        request |= {"arrival_ns": -1 if late else arrival, "traffic_class": rng.randint(0, 1)}
    return requests


def limit_drafts(rng: random.Random, engine: Record, requests: list[Record]) -> None:
    """Give the requests of every fourth engine draft lengths of their own."""
    if chance(rng, 0.25):
        for request in requests:
            request["draft_length"] = rng.randint(0, max(engine["draft_length_by_batch"]))


def share_prefixes(rng: random.Random, name: str, engine: Record, requests: list[Record]) -> None:
    """Let most engines keep blocks for their contents, and requests begin alike: their blocks are paths from
    the root of a tree, which may reach into their outputs. Half of the engines have graphs of every K.
    """
    fixed = len(set(engine["draft_length_by_batch"])) == 1
    block = engine["block_tokens"] * (rng.choice((1, 1, 2, 3)) if engine["block_tokens"] > 1 else 1)
    shares = chance(rng, 0.6)
    engine |= {
        "prefix_caching": chance(rng, 0.75),
        "keys_after_results": not engine["mixes_prefill"],
        "loses_last_match": name == "eagle",
        "padded_drafts": max(engine["draft_length_by_batch"]) if fixed and chance(rng, 0.7) else 0,
        "prefix_block_tokens": block if shares else 0,
        "graphs_of_every_length": chance(rng, 0.5),
    }
    children: dict[int, list[int]] = {}
    for request in requests:
        request["prefix_ids"] = []
        full = (request["prompt_tokens"] + request["output_tokens"]) // block
        for _ in range(rng.randint(0, full) if shares else 0):
            parent = request["prefix_ids"][-1] if request["prefix_ids"] else -1
            known = children.setdefault(parent, [])
            if not known or chance(rng, 0.15):
                known.append(sum(map(len, children.values())))
            request["prefix_ids"].append(rng.choice(known))


def limit_context(rng: random.Random, engine: Record, requests: list[Record]) -> None:
    """Give every third engine a context that ends with its longest requests, or just before."""
    longest = max(request["prompt_tokens"] + request["output_tokens"] for request in requests)
    engine["max_context_tokens"] = longest - rng.choice((0, 0, 1, 5)) if chance(rng, 0.35) else UNLIMITED


def fit_memory(rng: random.Random, engine: Record, requests: list[Record]) -> None:
    """Choose `total_blocks`: room for one to several requests; sometimes too little for the largest."""
    lookahead, block = engine["lookahead_tokens"], engine["block_tokens"]
    needs = sorted(-(-(r["prompt_tokens"] + r["output_tokens"] + lookahead) // block) for r in requests)
    largest = needs[-1 - rng.randint(0, 2)] if chance(rng, 0.3) else needs[-1]
    engine["total_blocks"] = round(largest * rng.choice((1, 1, 1.2, 1.5, 2, 4, 20)))


def make_prices(rng: random.Random, engine: Record, ticks: bool) -> Record:
    """Monotone tables. T covers every padded size and every draft row of these engines."""
    request_limit, most = engine["max_num_seqs"], max(engine["draft_length_by_batch"])
    tokens = max(engine["max_num_batched_tokens"] + request_limit, engine["graph_cap"]) + most + 1
    if "parents" in engine or "drafts" in engine["first_pass_rows"]:
        tokens += request_limit * most

    def table(base: float, slope: float) -> list[float]:
        steps = [
            TICK_NS * chance(rng, slope / TICK_NS) if ticks else rng.uniform(0, 2 * slope)
            for _ in range(tokens)
        ]
        start = float(round(base / TICK_NS) * TICK_NS) if ticks else rng.uniform(0.5 * base, 1.5 * base)
        return [0.0, *(start + rise for rise in accumulate(steps))]

    def price_ns(most_ns: float) -> float:
        return some_ns(rng, most_ns, ticks)

    def pair(most_ns: float) -> float:
        return 0.0 if ticks else rng.uniform(0, most_ns)

    batch_knots = [1, *sorted(rng.sample(range(2, 20), rng.randint(1, 6)))]
    query_tables = max(1, most + 1 - rng.randint(0, 1))
    scale = {"attention": 0.0 if ticks else 150.0, "draft_attention": 0.0 if ticks else 10.0}
    return {
        "target_tokens": table(300e3, 3e3),
        "target_experts": table(40e3, 2e3),
        "target_head": table(10e3, 1e3),
        "target_comm": [0.0] * (tokens + 1),
        "sample": table(8e3, 1e3),
        "draft_tokens": table(30e3, 1e3),
        "draft_experts": table(2e3, 1e3),
        "draft_head": table(6e3, 1e3),
        **{name: attention(rng, query_tables, batch_knots, per_token) for name, per_token in scale.items()},
        "batch_knots": batch_knots,
        "context_knots": CONTEXT_KNOTS,
        "prefill_pair_ns": pair(40.0),
        "prefill_window_pair_ns": pair(20.0),
        "window_tokens": float(rng.choice((0, 8, 64))),
        "prefill_start_ns": price_ns(9e3),
        "prefill_token_ns": price_ns(60.0),
        "draft_prefill_pair_ns": pair(5.0),
        "draft_prefill_start_ns": price_ns(3e3),
        "draft_prefill_token_ns": price_ns(7.0),
        "launch_full_ns": price_ns(10e3),
        "launch_piecewise_ns": price_ns(60e3),
        "launch_eager_ns": price_ns(200e3),
        "launching_eager_ns": price_ns(2e6),
        "draft_launch_ns": price_ns(20e3),
        "draft_launching_ns": rng.choice((0.0, price_ns(300e3))),
        "sample_sequence_ns": price_ns(500.0),
    }


def attention(
    rng: random.Random, queries: int, batches: list[int], per_token: float
) -> list[list[list[float]]]:
    """[query][batch knot][context knot] ns, rising along each, positive where the first interval goes on."""
    tables, bend = [], rng.uniform(0.1, 0.5)
    for query in range(1, queries + 1):
        grid = [[per_token * (b * c + b * 80 + bend * c * c / 400) for c in CONTEXT_KNOTS] for b in batches]
        tables.append([[value * (1 + 0.1 * query) for value in row] for row in grid])
    return tables


def make_acceptance(rng: random.Random, engine: Record, name: str) -> Record:
    most = max(1, *engine["draft_length_by_batch"])
    low = rng.choice((0.0, 0.3, 0.6, 0.9, 1.0))
    lengths = {}
    if name == "suffix":
        lengths["match_drafts"] = [sorted(rng.randint(1, most + 1) for _ in range(4)) for _ in range(2)]
    return {
        **lengths,
        "kind": "gated" if name in ("ngram", "suffix") else "table",
        "conditional": [[rng.uniform(low, 1.0) for _ in range(most)] for _ in range(2)],
        "drafts": [True, chance(rng, 0.7)] if chance(rng, 0.9) else [False, False],
        "match_after_miss": [rng.uniform(0, 0.8) for _ in range(2)],
        "match_after_match": [rng.uniform(0.3, 1) for _ in range(2)],
    }


def any_uniform(request: int, stream: int, position: int) -> float:
    """Uniforms for runs of the oracle on its own (against the step, the step's own draws are used)."""
    return random.Random(f"{request}/{stream}/{position}").random()
