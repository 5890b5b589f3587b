"""Sessions of several turns: prompts with their history, who follows whom, and what prefixes are shared."""

import json

import numpy as np

from simulator.scenario.workload import Workload
from simulator.traffic.workload import generate
from tests.traffic_figures import describe, ideal_hit_rate

GAP_NS = 2_500_000_000


def sessions(**fields):
    """Ten requests in sessions of three turns: 10 prompt and 5 output tokens each, 40 shared tokens."""
    settings = {
        "arrivals": {"kind": "closed", "concurrency": 2},
        "requests": 10,
        "prompt_tokens": {"kind": "fixed", "tokens": 10},
        "output_tokens": {"kind": "fixed", "tokens": 5},
        "sessions": {"turns": 3, "gap_s": 2.5, "shared_prefix_tokens": 40},
        **fields,
    }
    return Workload.model_validate_json(json.dumps(settings))


def prefix_of(requests, index):
    """Ids of one request, as a list."""
    return requests.prefix_ids[requests.prefix_start[index] : requests.prefix_start[index + 1]].tolist()


def test_turns_carry_what_was_said_before():
    requests = generate(sessions(), seed=1)
    assert requests.prompt_tokens.tolist() == [50, 65, 80] * 3 + [50]
    assert requests.session.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert requests.successor.tolist() == [1, 2, -1, 4, 5, -1, 7, 8, -1, -1]
    assert requests.successor_delay_ns.tolist() == [GAP_NS, GAP_NS, 0] * 3 + [0]


def test_clients_start_sessions_not_turns():
    requests = generate(sessions(), seed=1)
    started_ns = requests.arrival_ns.tolist()
    assert started_ns == [0, -1, -1, 2_500_000_000, -1, -1, -1, -1, -1, -1]  # half of two gaps of 2.5 s later


def test_open_loop_sessions_keep_the_rate_of_requests():
    poisson = {"kind": "poisson", "rate_per_s": 30}
    requests = generate(sessions(arrivals=poisson, requests=30_000), seed=1)
    starts = requests.arrival_ns[requests.arrival_ns >= 0]
    assert len(starts) == 10_000
    rate = describe(requests)["arrivals"]["rate_per_s"]
    assert abs(rate - 30) < 4 * 30 / np.sqrt(10_000)


def test_ids_are_the_system_prompt_then_the_sessions_own_blocks():
    requests = generate(sessions(), seed=1)
    assert requests.prefix_block_tokens == 16
    # 40 shared tokens fill blocks 0 and 1; outputs end at 55, 70 and 85 tokens: 3, 4 and 5 blocks.
    assert [prefix_of(requests, turn) for turn in range(3)] == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert [prefix_of(requests, turn) for turn in range(3, 6)] == [[0, 1, 5], [0, 1, 5, 6], [0, 1, 5, 6, 7]]
    assert prefix_of(requests, 9) == [0, 1, 11]
    assert sorted(set(requests.prefix_ids.tolist())) == list(range(12))


def test_a_cancelled_answer_is_remembered_as_far_as_it_came():
    talk = sessions(cancel_fraction=1.0, output_tokens={"kind": "fixed", "tokens": 100}, requests=3)
    requests = generate(talk, seed=8)
    message = requests.cancel_after_tokens
    assert (message > 0).all()
    assert requests.prompt_tokens.tolist() == [50, 60 + message[0], 70 + message[0] + message[1]]
    blocks = np.diff(requests.prefix_start)
    assert blocks.tolist() == ((requests.prompt_tokens + message) // 16).tolist()


def test_prefix_ids_are_equal_exactly_when_the_tokens_are():
    talk = sessions(
        requests=60,
        prompt_tokens={"kind": "uniform", "low": 1, "high": 40},
        output_tokens={"kind": "uniform", "low": 1, "high": 40},
        cancel_fraction=0.3,
        sessions={"turns": 4, "shared_prefix_tokens": 23},
    )
    requests = generate(talk, seed=9)
    spelled: dict[int, tuple] = {}
    for index in range(60):
        # Spell the tokens out: the shared ones have a name of their own, all others are the session's.
        message = requests.cancel_after_tokens[index] or requests.output_tokens[index]
        session = int(requests.session[index])
        tokens = [
            ("all", at) if at < 23 else (session, at) for at in range(requests.prompt_tokens[index] + message)
        ]
        block_count = len(tokens) // 16
        ids = prefix_of(requests, index)
        assert len(ids) == block_count
        for block, code in enumerate(ids):
            text = tuple(tokens[: 16 * (block + 1)])
            assert spelled.setdefault(code, text) == text
    assert len(set(spelled.values())) == len(spelled) == requests.prefix_ids.max() + 1


def test_a_turn_is_long_enough_for_what_it_repeats():
    requests = generate(
        sessions(requests=300, output_tokens={"kind": "uniform", "low": 1, "high": 90}), seed=2
    )
    for index, after in enumerate(requests.successor.tolist()):
        if after >= 0:
            assert requests.prompt_tokens[after] == (
                requests.prompt_tokens[index] + requests.output_tokens[index] + 10
            )
            assert prefix_of(requests, after)[: len(prefix_of(requests, index))] == prefix_of(requests, index)


def test_ideal_hits_are_blocks_of_prompts_that_were_prompt_or_output_before():
    requests = generate(
        sessions(requests=90, output_tokens={"kind": "uniform", "low": 1, "high": 90}), seed=2
    )
    seen, hits = set(), 0
    for index in range(90):
        ids = prefix_of(requests, index)
        hits += 16 * sum(code in seen for code in ids[: requests.prompt_tokens[index] // 16])
        seen.update(ids)
    assert ideal_hit_rate(requests) == hits / requests.prompt_tokens.sum()


def test_one_turn_and_a_shared_prefix_is_a_common_system_prompt():
    requests = generate(sessions(sessions={"turns": 1, "shared_prefix_tokens": 64}, requests=4), seed=1)
    assert requests.prompt_tokens.tolist() == [74] * 4
    assert requests.successor.tolist() == [-1] * 4
    assert ideal_hit_rate(requests) == 3 * 64 / (4 * 74)


def test_a_session_has_one_class():
    mixed = sessions(requests=600, classes=[{"name": "code", "share": 0.5}])
    requests = generate(mixed, seed=1)
    by_session = requests.traffic_class.reshape(-1, 3)
    assert (by_session == by_session[:, :1]).all()
    assert set(by_session[:, 0].tolist()) == {0, 1}


def test_description_counts_sessions():
    summary = describe(generate(sessions(), seed=1))
    assert summary["sessions"] == 4
    assert summary["prefix"]["block_tokens"] == 16
