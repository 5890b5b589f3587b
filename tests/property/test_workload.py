"""Whatever the workload: lengths of at least one token, links that hold, luck that belongs to a request."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scenario.workload import Workload
from simulator.traffic.workload import generate

RATES = st.floats(0.01, 1000)
ARRIVALS = st.one_of(
    st.builds(lambda n: {"kind": "closed", "concurrency": n}, st.integers(1, 40)),
    st.just({"kind": "burst"}),
    st.builds(lambda rate: {"kind": "poisson", "rate_per_s": rate}, RATES),
    st.builds(lambda rate, cv: {"kind": "gamma", "rate_per_s": rate, "cv": cv}, RATES, st.floats(0.1, 5)),
    st.builds(
        lambda first, last: {"kind": "profile", "rates_per_s": [[0, first], [3, 0], [10, last]]}, RATES, RATES
    ),
)
LENGTHS = st.one_of(
    st.builds(lambda n: {"kind": "fixed", "tokens": n}, st.integers(1, 500)),
    st.builds(
        lambda low, more: {"kind": "uniform", "low": low, "high": low + more},
        st.integers(1, 99),
        st.integers(0, 99),
    ),
    st.builds(
        lambda median, ratio, most: {
            "kind": "lognormal",
            "median": median,
            "p95": median * ratio,
            "max": most,
        },
        st.floats(1, 500),
        st.floats(1, 9),
        st.integers(1, 2000),
    ),
)
CLASSES = st.lists(
    st.builds(lambda share, lengths: {"share": share, "prompt_tokens": lengths}, st.floats(0, 0.25), LENGTHS),
    max_size=4,
).map(lambda entries: [{"name": f"class {at}", **entry} for at, entry in enumerate(entries)])
SESSIONS = st.one_of(
    st.none(),
    st.builds(
        lambda turns, gap_s, shared: {"turns": turns, "gap_s": gap_s, "shared_prefix_tokens": shared},
        st.integers(1, 5),
        st.floats(0, 100),
        st.integers(0, 200),
    ),
)
WORKLOADS = st.fixed_dictionaries(
    {
        "arrivals": ARRIVALS,
        "prompt_tokens": LENGTHS,
        "output_tokens": LENGTHS,
        "classes": CLASSES,
        "sessions": SESSIONS,
        "cancel_fraction": st.floats(0, 1),
    }
)
SEEDS = st.integers(0, 2**63 - 1)


def requests_of(fields, n, seed):
    """`n` requests of a workload with these fields."""
    return generate(Workload.model_validate_json(json.dumps({**fields, "requests": n})), seed)


@given(WORKLOADS, st.integers(1, 60), SEEDS)
def test_requests_hold_together(fields, n, seed):
    requests = requests_of(fields, n, seed)
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "traffic_class", "successor", "session"):
        assert len(getattr(requests, name)) == n
    assert requests.prompt_tokens.min() >= 1
    assert requests.output_tokens.min() >= 1
    assert (requests.cancel_after_tokens >= 0).all()
    assert (requests.cancel_after_tokens < requests.output_tokens).all()
    assert requests.prefix_start[0] == 0
    assert requests.prefix_start[-1] == len(requests.prefix_ids)
    assert (np.diff(requests.prefix_start) * 16 <= requests.prompt_tokens + requests.output_tokens).all()
    known = requests.arrival_ns[requests.arrival_ns >= 0]
    assert (np.diff(known) >= 0).all()
    follows = requests.successor[requests.successor >= 0]
    assert len(set(follows.tolist())) == len(follows)
    assert (requests.arrival_ns[follows] == -1).all()
    assert (follows > np.flatnonzero(requests.successor >= 0)).all()


@given(WORKLOADS, SEEDS)
def test_a_request_does_not_depend_on_how_many_there_are(fields, seed):
    few, many = requests_of(fields, 10, seed), requests_of(fields, 20, seed)
    for name in (
        "arrival_ns",
        "prompt_tokens",
        "output_tokens",
        "traffic_class",
        "cancel_after_tokens",
        "session",
    ):
        assert (getattr(few, name) == getattr(many, name)[:10]).all(), name
    assert (few.successor[:9] == many.successor[:9]).all()
    assert (few.prefix_start == many.prefix_start[:11]).all()


@given(WORKLOADS, SEEDS)
def test_the_same_seed_gives_the_same_requests(fields, seed):
    for first, two in zip(requests_of(fields, 30, seed), requests_of(fields, 30, seed), strict=True):
        assert np.array_equal(first, two)


@given(WORKLOADS, ARRIVALS, SEEDS)
def test_arrivals_do_not_move_the_lengths(fields, other, seed):
    first, two = requests_of(fields, 30, seed), requests_of({**fields, "arrivals": other}, 30, seed)
    for name in ("prompt_tokens", "output_tokens", "traffic_class", "cancel_after_tokens"):
        assert (getattr(first, name) == getattr(two, name)).all(), name


@given(WORKLOADS, LENGTHS, SEEDS)
def test_lengths_do_not_move_the_arrivals_or_each_other(fields, other, seed):
    first, two = requests_of(fields, 30, seed), requests_of({**fields, "output_tokens": other}, 30, seed)
    assert (first.arrival_ns == two.arrival_ns).all()
    assert (first.traffic_class == two.traffic_class).all()
    if not fields["sessions"]:
        assert (first.prompt_tokens == two.prompt_tokens).all()


@pytest.mark.parametrize("what", ["prompt_tokens", "output_tokens", "arrival_ns"])
def test_another_seed_gives_other_requests(what):
    fields = {"arrivals": {"kind": "poisson", "rate_per_s": 1}}
    first, two = requests_of(fields, 30, 1), requests_of(fields, 30, 2)
    assert (getattr(first, what) != getattr(two, what)).any()


@pytest.mark.parametrize("n", [2000])
def test_prompts_outputs_and_gaps_are_unrelated(n):
    requests = requests_of({"arrivals": {"kind": "poisson", "rate_per_s": 1}}, n, 7)
    gaps = np.diff(requests.arrival_ns, prepend=0)
    table = np.corrcoef(
        [np.argsort(np.argsort(values)) for values in (requests.prompt_tokens, requests.output_tokens, gaps)]
    )
    assert np.abs(table[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(n)
