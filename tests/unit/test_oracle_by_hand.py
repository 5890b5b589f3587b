"""Timelines worked out on paper, so that the oracle itself can be trusted.

Unless a test says otherwise a target pass takes 1000 + 10 N ns (N query tokens), the accept stage 1 ns per
logit row, a draft pass 100 + rows ns, and the host nothing. Random numbers are given per (request, stream,
output position); what is not given is 0.9. A draft is accepted below 0.5.
"""

from typing import Any

import pytest

from tests.by_hand import check, engine, prices, request, simulate
from tests.oracle import Oracle
from tests.oracle_blocks import Record
from tests.oracle_prices import line


def test_one_plain_request() -> None:
    # Host per step: 50 + 5 * 1 exposed, 7 hidden that a synchronous engine exposes too: 62.
    # Prefill N = 10, one logit row: 62 + 1100 + 1 = 1163, from the arrival at 100 to 1263.
    # Each decode N = 1: 62 + 1010 + 1 = 1073: 2336, 3409.
    host = {"step_ns": 50.0, "per_sequence_ns": 5.0, "hidden_step_ns": 7.0}
    (r,), counters = simulate(engine(host=host), [request(10, 3, arrival=100)])
    check(r, admitted_ns=100, first_ns=1263, last_ns=3409, ended_ns=3409, emitted_tokens=3, max_itl_ns=1073)
    check(r, status="done", draft_rounds=0, decode_rounds=2, preemptions=0)
    check(counters, steps=3, full_steps=2, piecewise_steps=1, host_ns=186, hidden_ns=0, verify_ns=3120)


def test_an_eager_pass_lasts_until_the_host_has_launched_it() -> None:
    # No graph: every step is eager, 1100 or 1010 on the GPU and 5000 to launch; each then samples for 1.
    slow = prices(launching_eager_ns=5000.0)
    eager = engine(graph_sizes=[], graph_cap=0)
    (r,), _ = simulate(eager, [request(10, 3)], prices_=slow)
    check(r, first_ns=5001, last_ns=5001 + 2 * 5001)
    # A host that runs ahead launches while the GPU samples.
    overlapped = engine(graph_sizes=[], graph_cap=0, asynchronous=True, stop_is_foreseen=True)
    (r,), _ = simulate(overlapped, [request(10, 3)], prices_=slow)
    check(r, first_ns=5001, last_ns=3 * 5000 + 1)


def test_a_drafter_that_no_graph_holds_lasts_until_the_host_has_launched_it() -> None:
    # Prefill N = 10: 1100 + 1. The two passes take 211 on the GPU and 2 * 900 to launch.
    slow = prices(draft_launching_ns=900.0)
    drafter = {"lookahead_tokens": 2, "drafter_has_kv": True, "serial_passes": "draft_length"}
    drafter |= {"host": {"hidden_step_ns": 700.0}, "emits_before_drafting": False}
    (r,), _ = simulate(engine(2, **drafter), [request(10, 6)], prices_=slow)
    check(r, first_ns=700 + 1101 + 1800)
    # A host that runs ahead has launched for 1101 - 700 before the drafter is due.
    (r,), _ = simulate(engine(2, **drafter, asynchronous=True), [request(10, 6)], prices_=slow)
    check(r, first_ns=700 + 1101 + 1800 - 401)


@pytest.mark.parametrize(("early", "times"), [(False, (1312, 2549, 3786)), (True, (1101, 2345, 3582))])
def test_chain_of_two_drafts(early: bool, times: tuple[int, int, int]) -> None:
    # Prefill N = 10: 1100 + 1, then draft pass 1 on 10 rows 110 and pass 2 on 1 row 101: 1101 -> 1312. Token
    # 1. Verify N = 3: 1030 + 3, drafting 103 + 101: 1033 (2345) and 1237 (2549). Drafts of 2 and 3 survive:
    # tokens 2 3 4. Again: 3582 and 3786. Drafts of 5 and 6 survive: three tokens, but the output ends at 6:
    # one is trimmed.
    chain = engine(2, lookahead_tokens=2, drafter_has_kv=True, serial_passes="draft_length")
    draws = {(0, 0, position): 0.1 for position in (2, 3, 5, 6)}
    (r,), counters = simulate(chain | {"emits_before_drafting": early}, [request(10, 6)], draws)
    first, second, third = times
    check(r, first_ns=first, last_ns=third, ended_ns=third, max_itl_ns=max(second - first, third - second))
    check(r, emitted_tokens=6, drafted_tokens=4, accepted_tokens=4, draft_rounds=2, decode_rounds=2)
    check(counters, trimmed_tokens=1, draft_ns=211 + 204 + 204, steps=3, full_steps=2)


def test_the_first_rejection_ends_a_round() -> None:
    # The draft of 2 dies: the good luck of 3 is of no use in that round; token 2 is emitted alone. Then 3
    # survives, 4 dies.
    chain = engine(2, lookahead_tokens=2, drafter_has_kv=True, serial_passes="draft_length")
    (r,), counters = simulate(chain, [request(10, 4)], {(0, 0, 3): 0.1})
    check(r, emitted_tokens=4, drafted_tokens=4, accepted_tokens=1, draft_rounds=2, last_ns=1312 + 2 * 1237)
    check(counters, trimmed_tokens=0)


def test_chunked_prefill_mixes_with_a_decode() -> None:
    # Budget 8; prefill costs 3 a step, half a tick a token, 1 a pair. t = 0: A's 4 prompt tokens and 4 of B's
    # 10; N = 8, one logit row (A): 1080 + 1 + 2 * 4 * 2 + 8 / 2 + 3 = 1104. Then A decodes beside B's last 6
    # tokens: N = 7, two logit rows, 1070 + 2 + 6 * (4 + 6 / 2) + 6 / 2 + 3 = 1120 -> 2224. Then both decode:
    # 1020 + 2 -> 3246.
    costs = prices(prefill_pair_ns=1.0, prefill_start_ns=3.0, prefill_token_ns=0.5)
    requests = [request(4, 3), request(10, 2)]
    (a, b), counters = simulate(engine(max_num_batched_tokens=8), requests, prices_=costs)
    check(a, admitted_ns=0, first_ns=1104, last_ns=3246, max_itl_ns=1120, emitted_tokens=3, decode_rounds=2)
    check(b, admitted_ns=0, first_ns=2224, last_ns=3246, max_itl_ns=1022, emitted_tokens=2, decode_rounds=1)
    check(counters, steps=3, mixed_steps=1, full_steps=1, piecewise_steps=2)


def test_prefill_apart_makes_a_decode_wait() -> None:
    # As above, but while B has prompt left nobody decodes: 1104; B's 6 alone, N = 6: 1060 + 1 + 42 + 3 + 3 ->
    # 2213; then A and B decode: 1022 -> 3235 (B done); A alone 1011 -> 4246.
    costs = prices(prefill_pair_ns=1.0, prefill_start_ns=3.0, prefill_token_ns=0.5)
    apart = engine(max_num_batched_tokens=8, mixes_prefill=False)
    (a, b), counters = simulate(apart, [request(4, 3), request(10, 2)], prices_=costs)
    check(a, first_ns=1104, last_ns=4246, max_itl_ns=3235 - 1104)
    check(b, first_ns=2213, last_ns=3235)
    check(counters, steps=4, mixed_steps=0)


def test_preemption_recomputes_prompt_and_output() -> None:
    # 5 blocks of 4 tokens. t = 0: both prefill 7 tokens (2 blocks each, 1 free): N = 14: 1140 + 2 = 1142. t =
    # 1142: token 8 of each still fits: 1022 -> 2164. t = 2164: A takes the last block for its token 9; B
    # finds none and is itself the last running: preempted, 2 blocks free. A alone: 1011 -> 3175. B needs
    # ceil(9 / 4) = 3: waits. A: 4186, 5197, 6208 (6 tokens, done). B: prefills 7 + 2 tokens: 1090 + 1 ->
    # 7299, its third token.
    (a, b), counters = simulate(engine(total_blocks=5), [request(7, 6), request(7, 3)])
    check(a, first_ns=1142, last_ns=6208, emitted_tokens=6, preemptions=0, max_itl_ns=1022)
    check(b, admitted_ns=0, first_ns=1142, last_ns=7299, emitted_tokens=3, preemptions=1)
    check(b, max_itl_ns=7299 - 2164, decode_rounds=1)
    check(counters, preemptions=1, steps=7)


def shared(**changes: Any) -> Record:
    return engine(**{"prefix_caching": True, "prefix_block_tokens": 4, **changes})


def test_the_second_of_a_step_finds_the_blocks_of_the_first() -> None:
    # Both prompts begin with two blocks of 4: the first computes 10 tokens, the second 2. One step of 12
    # tokens and two logit rows: 1120 + 2.
    (a, b), counters = simulate(shared(), [request(10, 1, names=(7, 8)), request(10, 1, names=(7, 8))])
    check(a, first_ns=1122)
    check(b, first_ns=1122)
    check(counters, steps=1, prefix_hit_tokens=8)


@pytest.mark.parametrize(("blocks", "hit_tokens"), [(4, 8), (3, 4)])
def test_blocks_leave_in_the_order_in_which_they_came_free(blocks: int, hit_tokens: int) -> None:
    # The first request fills two blocks and leaves them, the second block before the first one. The other
    # has 5 tokens of its own, so two blocks: those without contents are taken first, of 4 both, of 3 one and
    # then the deepest. The last request is like the first.
    first, again = request(9, 1, names=(7, 8)), request(9, 1, arrival=6000, names=(7, 8))
    requests = [first, request(5, 1, arrival=3000), again]
    _, counters = simulate(shared(total_blocks=blocks), requests)
    check(counters, prefix_hit_tokens=hit_tokens)


def test_the_last_block_of_an_aligned_prompt_is_computed_again() -> None:
    # Of 8 tokens the second finds one block and computes four tokens: 1140 + 1 after it came. Without the
    # target's features of that block EAGLE finds none.
    requests = [request(8, 1, names=(7, 8)), request(8, 1, arrival=3000, names=(7, 8))]
    (_, b), counters = simulate(shared(), requests)
    check(b, first_ns=3000 + 1041)
    check(counters, prefix_hit_tokens=4)
    check(simulate(shared(loses_last_match=True), requests)[1], prefix_hit_tokens=0)


def test_one_missing_token_is_filled_up_to_a_decode() -> None:
    # The second prompt lacks one token: 1 + 2 rows in one full step: 1030 + 3. Its drafts are rejected,
    # though chance would accept them; the next round has two drafts, which count.
    drafting = shared(draft_length=2, padded_drafts=2)
    requests = [request(9, 1, names=(7, 8)), request(9, 4, arrival=3000, names=(7, 8))]
    draws = {(1, 0, position): 0.0 for position in range(1, 5)}
    (_, b), counters = simulate(drafting, requests, draws)
    check(b, first_ns=3000 + 1033, draft_rounds=2, drafted_tokens=4, accepted_tokens=2, decode_rounds=2)
    check(counters, padded=1)


def test_at_the_end_of_the_context_drafts_are_cut() -> None:
    # Context 12: after 10 tokens there is room for one draft beside the token that comes out.
    (r,), counters = simulate(engine(draft_length=4, max_context_tokens=12), [request(9, 3)])
    check(r, drafted_tokens=1, draft_rounds=1, decode_rounds=2)
    check(counters, cut_drafts=7)


def test_an_asynchronous_engine_runs_a_ghost_row() -> None:
    # Composed at 0, hidden host work 40: starts at 40; 1101 -> 1141. Step 2, composed at 40, starts at 1141;
    # 1011 -> 2152: token 2, done. Step 3 was composed at 1141, before that was known: 2152 .. 3163, one ghost
    # row. The follow-up, issued at 2152 + 500, joins at the next compose, 3163, is host work until 3203, ends
    # 3203 + 1101.
    asynchronous = engine(asynchronous=True, think_time_ns=500, host={"hidden_step_ns": 40.0})
    requests = [request(10, 2), request(10, 1, arrival=-1)]
    (a, b), counters = simulate(asynchronous, requests)
    check(a, first_ns=1141, last_ns=2152, ended_ns=2152)
    # Its own ghost step is composed at 3203 as well.
    check(b, arrival_ns=2652, admitted_ns=3163, first_ns=4304)
    check(counters, ghost_rows=2, steps=5, hidden_ns=200)
    # Foreseen, there is no ghost: idle from 2152, woken at 2652, 2652 + 40 + 1101.
    for change in (
        {"stop_is_foreseen": True},
        {"mechanisms": asynchronous["mechanisms"] | {"ghost_rows": False}},
    ):
        (a, b), counters = simulate(asynchronous | change, requests)
        check(a, last_ns=2152)
        check(b, admitted_ns=2652, first_ns=3793)
        check(counters, ghost_rows=0, steps=3)


def test_hidden_host_work_longer_than_the_step_sets_the_pace() -> None:
    # Starts at 2000, ends 3101; the next was composed at 2000 and is ready at 4000: ends 5011. Its ghost:
    # 6000 .. 7011.
    slow_host = engine(asynchronous=True, host={"hidden_step_ns": 2000.0})
    (r,), counters = simulate(slow_host, [request(10, 2)])
    check(r, first_ns=3101, last_ns=5011)
    check(counters, steps=3, ghost_rows=1)
    # Without overlap the same work is exposed: 0 + 2000 + 1101, and 2000 + 1011 more.
    exposed = slow_host["mechanisms"] | {"host_overlap": False}
    (r,), counters = simulate(slow_host | {"mechanisms": exposed}, [request(10, 2)])
    check(r, first_ns=3101, last_ns=6112)


def test_a_preempted_request_in_flight_still_emits() -> None:
    # Asynchronous, 5 blocks of 4. Both prefill 7 (2 blocks each): composed and started at 0, ends 1142. Step
    # 2 (token 8 of each), composed at 0: 1142 .. 2164. Step 3, composed at 1142: A takes block 5; B has none:
    # preempted while its entry of step 2 runs. At 2164 that entry emits B's token 2; at 2164 B is next in the
    # queue, but needs 3 of 2 blocks.
    asynchronous = engine(asynchronous=True, total_blocks=5, stop_is_foreseen=True)
    (a, b), counters = simulate(asynchronous, [request(7, 4), request(7, 3)])
    # Step 3: A alone, 1011 -> 3175, token 3; step 4 -> 4186, token 4, done; nothing follows it.
    check(a, last_ns=4186, emitted_tokens=4)
    # B at 4186: 9 tokens, 1091.
    check(b, preemptions=1, first_ns=1142, max_itl_ns=5277 - 2164, last_ns=5277, emitted_tokens=3)
    check(counters, steps=5, ghost_rows=0)


def test_ragged_n_gram_drafts_only_on_a_match() -> None:
    # Prefill 1101, token 1; the lookup for token 2 misses (0.9 against 0.5). Decode N = 1: 2112, token 2; the
    # lookup for token 3 hits. Verify N = 3: 1033 -> 3145; the draft of 3 survives, of 4 not: tokens 3 4. The
    # lookup for 5 hits (0.9 against 0.95 after a match). 4178: drafts of 5 and 6 survive; the seventh token
    # is trimmed.
    draws = {(0, 1, 3): 0.1, (0, 0, 3): 0.1, (0, 0, 5): 0.1, (0, 0, 6): 0.1}
    (r,), counters = simulate(engine(2, ragged=True), [request(10, 6)], draws, kind="gated")
    check(r, first_ns=1101, last_ns=4178, emitted_tokens=6, drafted_tokens=4, accepted_tokens=3)
    check(r, draft_rounds=2, decode_rounds=3)
    check(counters, trimmed_tokens=1, steps=4, full_steps=2, piecewise_steps=2, draft_ns=0)


def test_n_gram_on_the_device_verifies_junk_on_a_miss() -> None:
    # Always two drafts. Prefill 1101; verify 1033 -> 2134: the lookup for token 2 misses, so luck at 2 does
    # not count: token 2 alone. 3167: the lookup for 3 hits, 3 and 4 survive: three tokens, room for one: two
    # trimmed. The step composed at 2134 is a ghost of three rows.
    draws = {(0, 1, 3): 0.1, (0, 0, 2): 0.1, (0, 0, 3): 0.1, (0, 0, 4): 0.1}
    (r,), counters = simulate(engine(2, asynchronous=True), [request(10, 3)], draws, kind="gated")
    check(
        r, first_ns=1101, last_ns=3167, emitted_tokens=3, drafted_tokens=4, accepted_tokens=2, draft_rounds=2
    )
    check(counters, trimmed_tokens=2, ghost_rows=3, steps=4)


def test_clients_that_do_not_wait() -> None:
    # One seat, patience 2500. A: 1101, 2112; its third token would leave at 3123: gone at 2500, and B is
    # issued at 2530. C, arrived at 100, waited for the seat until 2600: D is issued at 2630. Both join at
    # 3123. B: 3123 + 1101 = 4224. D is admitted at 4224 and would emit at 5325, after 2630 + 2500.
    impatient = engine(max_num_seqs=1, think_time_ns=30, timeout_ns=2500)
    requests = [request(10, 5), request(10, 5, 100), request(10, 1, -1), request(10, 1, -1)]
    (a, c, b, d), counters = simulate(impatient, requests)
    check(a, status="timed_out", ended_ns=2500, last_ns=2112, emitted_tokens=2)
    check(c, status="timed_out", ended_ns=2600, admitted_ns=-1, first_ns=-1)
    check(b, status="done", arrival_ns=2530, admitted_ns=3123, first_ns=4224)
    check(d, status="timed_out", arrival_ns=2630, admitted_ns=4224, first_ns=-1, ended_ns=5130)
    check(counters, steps=5, ghost_rows=11)  # A's third row and D's prompt were computed for nobody


def test_a_token_that_leaves_at_the_last_moment_counts() -> None:
    (r,), _ = simulate(engine(timeout_ns=1101), [request(10, 1)])
    check(r, status="done", ended_ns=1101)
    (r,), _ = simulate(engine(timeout_ns=1100), [request(10, 1)])
    check(r, status="timed_out", ended_ns=1100, emitted_tokens=0)


def test_a_client_cancels_and_an_impossible_request_is_set_aside() -> None:
    # 4 blocks of 4: 12 + 6 tokens, less the last, never fit: rejected at its arrival 7, and its client
    # thinks for 3.
    # The next cancels at its second token: 10 -> 1111 -> 2122, though its output would be 6.
    requests = [request(12, 6, 7), request(10, 6, -1, cancel=2)]
    (a, b), _ = simulate(engine(total_blocks=4, think_time_ns=3), requests)
    check(a, status="rejected", ended_ns=7, admitted_ns=-1, emitted_tokens=0)
    check(b, status="cancelled", arrival_ns=10, first_ns=1111, ended_ns=2122, emitted_tokens=2)


def test_the_token_budget_cuts_drafts() -> None:
    # Budget 4. Both prefill 2: N = 4: 1040 + 2, drafting 104 + 102 (R = 2): 1248. A asks for 3, B gets what
    # is left, 1: its two drafts are lost. N = 4, not uniform: 1040 + 4 + 206 = 1250 -> 2498 -> 3748. No draft
    # survives.
    chain = engine(2, max_num_batched_tokens=4, drafter_has_kv=True, serial_passes="draft_length")
    (a, b), counters = simulate(chain, [request(2, 3), request(2, 3)])
    check(a, last_ns=3748, drafted_tokens=4, accepted_tokens=0, draft_rounds=2)
    check(b, last_ns=3748, drafted_tokens=0, draft_rounds=0, decode_rounds=2)
    check(counters, cut_drafts=4, piecewise_steps=3, full_steps=0)


def test_graph_sizes_and_interpolation() -> None:
    acceptance = {"kind": "table"}
    sizes = engine(2, graph_sizes=[1, 2, 4, 8], graph_cap=8)
    oracle = Oracle(sizes, prices(), [], acceptance, lambda *key: 0.9)
    assert oracle.graph(3, [3], False) == ("full", 3)  # 1, 2, 4, 8 become 3, 3, 6, 9, and 9 is beyond the cap
    assert oracle.graph(6, [3, 3], False) == ("full", 6)
    assert oracle.graph(7, [3, 3, 1], False) == ("piecewise", 8)
    assert oracle.graph(6, [3], True) == ("piecewise", 8)
    assert oracle.graph(9, [3, 3, 3], False) == ("eager", 9)
    assert [line([1, 3, 4], [10.0, 30.0, 50.0], x) for x in (0.0, 2.0, 3.5, 6.0)] == [0.0, 20.0, 40.0, 90.0]
