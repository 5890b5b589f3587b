"""Mooncake rows, blocks and shared prefixes; AIPerf's sessions and texts; vLLM's seconds and small blocks."""

import json

import pytest

from simulator.errors import InputError
from simulator.traces import read_trace


@pytest.fixture
def read(tmp_path):
    """Reads rows as a JSONL trace."""

    def read_rows(*rows, format="auto", **options):
        (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return read_trace(tmp_path / "trace.jsonl", format, **options)

    return read_rows


def row(timestamp=0, tokens=1300, output=10, ids=None, **more):
    """One row; without ids it says nothing of its content."""
    fields = {
        "timestamp": timestamp,
        "input_length": tokens,
        "output_length": output,
        "hash_ids": ids,
        **more,
    }
    return {name: value for name, value in fields.items() if value is not None}


def prefixes(trace):
    """Prefix ids of each request."""
    bounds = zip(trace.prefix_start[:-1], trace.prefix_start[1:], strict=True)
    return [trace.prefix_ids[start:end].tolist() for start, end in bounds]


def problems(read, *rows):
    """Line, field and message of each problem that reading the rows raises."""
    with pytest.raises(InputError) as error:
        read(*rows, format="mooncake")
    return [(problem.line, problem.field, problem.message) for problem in error.value.problems]


def test_times_are_milliseconds_and_full_blocks_have_ids(read):
    trace = read(row(100, 1300, 120, [7, 8, 9]), row(100, 1290, 64, [7, 8, 10]), row(450.5, 512, 4, [7]))
    assert trace.arrival_ns.tolist() == [0, 0, 350_500_000]
    assert trace.prompt_tokens.tolist() == [1300, 1290, 512]
    assert trace.prefix_block_tokens == 512
    assert prefixes(trace) == [[0, 1], [0, 1], [0]]  # the ids of partial last blocks say nothing


def test_blocks_are_the_same_only_after_the_same_blocks(read):
    trace = read(row(0, 1024, 1, [1, 2]), row(0, 1024, 1, [3, 2]), row(0, 1024, 1, [1, 2]))
    assert prefixes(trace) == [[0, 1], [2, 3], [0, 1]]


def test_a_mooncake_trace_without_ids_says_nothing_of_prefixes(read):
    trace = read(row(), row(5))
    assert trace.prefix_block_tokens == 0
    assert prefixes(trace) == [[], []]


def test_too_many_ids_are_said_and_too_few_refused(read):
    trace = read(row(0, 655, 52, [0, 1, 2]))
    assert prefixes(trace) == [[0]]
    assert trace.notes == ("trace.jsonl: some rows have more hash ids than blocks: the first ones count",)
    assert problems(read, row(0, 1300, 1, [0, 1, 2]), row(0, 1300, 1, [0])) == [
        (2, "hash_ids", "too few ids")
    ]


def test_vllm_timed_trace_counts_seconds_and_blocks_of_16(read):
    trace = read(row(0.5, 40, 8, [7, 8, 9]), row(2, 32, 8, [7, 8]))
    assert trace.format == "timed-trace"
    assert trace.arrival_ns.tolist() == [0, 1_500_000_000]
    assert trace.prefix_block_tokens == 16
    assert prefixes(trace) == [[0, 1], [0, 1]]
    assert read(row(0, 1300, 1, [0, 1, 2])).format == "mooncake"


@pytest.mark.parametrize(
    ("bad", "field", "message"),
    [
        (row(-1), "timestamp", "not a time"),
        (row("soon"), "timestamp", "not a number"),
        (row(float("nan")), "timestamp", "not a finite number"),
        (row(tokens=-3), "input_length", "not a number of tokens"),
        (row(tokens=True), "input_length", "not a number"),
        (row(tokens=None), "input_length", "missing"),
        (row(output=None), "output_length", "missing"),
        (row(text_input="hello"), "input_length", "several prompts"),
        (row(ids="abc"), "hash_ids", "not a list of whole numbers"),
        (row(ids=[0, 1, None]), "hash_ids", "not a list of whole numbers"),
        (row(session_id=[1]), "session_id", "not a name"),
        (row(None), "timestamp", "missing"),
    ],
)
def test_a_broken_row_names_its_line_and_field(read, bad, field, message):
    assert problems(read, row(), bad, row()) == [(2, field, message)]


def test_lines_that_are_not_objects_are_broken_rows(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{json.dumps(row())}\n\n[1]\nnope\n{'[' * 100_000}\n")
    with pytest.raises(InputError) as error:
        read_trace(path, "mooncake")
    result = [(problem.line, problem.message.split(":")[0]) for problem in error.value.problems]
    assert result == [(3, "not a JSON object"), (4, "not JSON"), (5, "not JSON")]


def test_later_turns_of_a_session_bring_only_what_is_new(read):
    trace = read(
        row(0, 1024, 100, [5, 6], session_id="a"),
        row(10, 1024, 7, [5, 6]),
        row(None, 50, 30, delay=2000, session_id="a"),
        row(None, 512, 20, [9], session_id="a"),
    )
    assert trace.prompt_tokens.tolist() == [1024, 1174, 1716, 1024]
    assert trace.session.tolist() == [0, 0, 0, -1]
    assert trace.arrival_ns.tolist() == [0, -1, -1, 10_000_000]
    assert trace.successor.tolist() == [1, 2, -1, -1]
    assert trace.successor_delay_ns.tolist() == [2_000_000_000, 0, 0, 0]
    # Blocks of prompt and output: the first two are public, what follows belongs to the session.
    assert prefixes(trace) == [[0, 1], [0, 1], [0, 1, 2], [0, 1]]


def test_a_sessions_own_blocks_are_its_own(read):
    first, two = row(0, 1024, 600, [5, 6], session_id="a"), row(0, 1024, 600, [5, 6], session_id="b")
    assert prefixes(read(first, two)) == [[0, 1, 2], [0, 1, 3]]


def test_a_later_turn_with_a_time_comes_at_that_time(read):
    trace = read(row(0, 100, 10, session_id="a"), row(300, 100, 10, session_id="a"))
    assert trace.arrival_ns.tolist() == [0, 300_000_000]
    assert trace.successor.tolist() == [-1, -1]
    assert trace.prompt_tokens.tolist() == [100, 210]
    assert any("even if the turn before has not ended" in note for note in trace.notes)


def test_a_session_whose_first_turn_is_dropped_starts_with_the_next(read):
    trace = read(row(50, 10, 0, session_id="a"), row(None, 20, 5, delay=9, session_id="a"), row(20, 30, 5))
    assert trace.prompt_tokens.tolist() == [30, 20]
    assert trace.arrival_ns.tolist() == [0, 30_000_000]


def test_a_session_that_builds_on_an_unknown_output_is_refused(read):
    text = {"timestamp": 0, "session_id": "a", "text_input": "hello"}
    assert problems(read, text) == [(1, "output_length", "missing")]


def test_texts_are_estimated_and_shared_where_they_agree(read):
    common = "s" * 128
    rows = [
        {"timestamp": at, "text_input": common + end * 72, "output_length": 5} for at, end in enumerate("abb")
    ]
    trace = read(*rows)
    assert trace.prompt_tokens.tolist() == [50, 50, 50]
    assert trace.prefix_block_tokens == 16
    assert prefixes(trace) == [[0, 1, 2], [0, 1, 3], [0, 1, 3]]
    assert any("estimated at 4 characters" in note for note in trace.notes)
    counted = read(*rows, tokenizer=len)
    assert counted.prompt_tokens.tolist() == [200] * 3
    assert counted.prefix_block_tokens == 0
    assert counted.notes == ()


def test_recorded_messages_are_complete_as_they_stand(read):
    messages = [{"role": "user", "content": "q" * 100}]
    more = [
        *messages,
        {"role": "assistant", "content": "a" * 50},
        {"role": "user", "content": [{"type": "text"}]},
    ]
    trace = read(
        {"timestamp": 0, "session_id": "s", "messages": messages, "output_length": 9},
        {"delay": 5, "session_id": "s", "messages": more, "output_length": 9},
    )
    first, second = (
        len("".join(f"{part['role']}\n{text}\n" for part, text in said_))
        for said_ in (
            [(messages[0], "q" * 100)],
            [(more[0], "q" * 100), (more[1], "a" * 50), (more[2], '[{"type": "text"}]')],
        )
    )
    assert trace.prompt_tokens.tolist() == [-(-first // 4), -(-second // 4)]
    assert trace.successor.tolist() == [1, -1]
    assert prefixes(trace)[1][:1] == prefixes(trace)[0] == [0]


def test_messages_marked_delta_accumulate(read):
    turn = {"session_id": "s", "messages": [{"role": "user", "content": "q" * 95}], "message_mode": "delta"}
    trace = read({**turn, "timestamp": 0, "output_length": 9}, {**turn, "output_length": 9})
    assert trace.prompt_tokens.tolist() == [26, 26 + 9 + 26]


def test_the_aiperf_name_is_known(read):
    assert read(row(), format="aiperf").format == "mooncake"
