"""Each trace format field by field: units, dropped rows, column orders, broken rows with their lines."""

import pytest

from simulator.errors import InputError
from simulator.traces import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


@pytest.fixture
def read(tmp_path):
    """Reads a text as a trace file."""

    def read_text(text, format="auto", **options):
        (tmp_path / "trace").write_text(text, encoding="utf-8", newline="")
        return read_trace(tmp_path / "trace", format, **options)

    return read_text


def problems(read, text, format="auto"):
    """Line, field and message of each problem that reading the text raises."""
    with pytest.raises(InputError) as error:
        read(text, format)
    return [(problem.line, problem.field, problem.message) for problem in error.value.problems]


def test_azure_keeps_all_seven_decimals(read):
    rows = "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319607,3180,8\r\n"
    trace = read(AZURE + rows)
    assert trace.arrival_ns.tolist() == [0, 52_000_700]
    assert trace.prompt_tokens.tolist() == [4808, 3180]
    assert trace.output_tokens.tolist() == [10, 8]
    assert trace.dropped == trace.notes == ()


def test_azure_of_2024_names_an_offset(read):
    rows = "2024-05-10 00:00:00.009930+00:00,1,1\n2024-05-10T02:00:01+02:00,2,2\n2024-05-10 00:00:02Z,3,3\n"
    assert read(AZURE + rows).arrival_ns.tolist() == [0, 990_070_000, 1_990_070_000]


def test_rows_out_of_order_are_sorted_and_ties_keep_theirs(read):
    rows = "2023-11-16 00:00:02,1,1\n2023-11-16 00:00:01,2,1\n2023-11-16 00:00:02,3,1\n"
    trace = read(AZURE + rows)
    assert trace.prompt_tokens.tolist() == [2, 1, 3]
    assert trace.arrival_ns.tolist() == [0, 10**9, 10**9]


def test_many_rows_at_one_instant_stay_in_order(read):
    rows = "".join(f"{at % 2},m,{at + 1},1,0,x\n" for at in range(400))
    trace = read(BURST + rows)
    assert trace.prompt_tokens.tolist() == [*range(1, 401, 2), *range(2, 401, 2)]


def test_rows_without_output_are_dropped_and_counted(read):
    trace = read(
        BURST + "5.0,ChatGPT,472,18,490,x\n45.0,GPT-4,10,0,10,x\n46,GPT-4,11,0,11,x\n47,GPT-4,0,3,3,x\n"
    )
    assert trace.prompt_tokens.tolist() == [472]
    assert trace.dropped == (("zero output tokens", 2), ("zero prompt tokens", 1))
    assert trace.notes == (
        "trace: 1 request, 2 rows with zero output tokens dropped, 1 row with zero prompt tokens dropped",
    )


def test_a_trace_of_failures_only_is_refused(read):
    assert problems(read, BURST + "5.0,ChatGPT,472,0,472,x\n") == [
        (None, None, "no request in this burstgpt trace, 1 row with zero output tokens dropped")
    ]


def test_both_burstgpt_generations_read_by_name(read):
    old = read(BURST + "5.0,ChatGPT,472,18,490,x\n45.5,GPT-4,1087,230,1317,x\n")
    new = read(BURST_SESSIONS + "5.0,s1,2.4,ChatGPT,472,18,490,x\n45.5,,6.1,GPT-4,1087,230,1317,x\n")
    for trace in (old, new):
        assert trace.arrival_ns.tolist() == [0, 40_500_000_000]
        assert trace.prompt_tokens.tolist() == [472, 1087]
        assert trace.output_tokens.tolist() == [18, 230]
    assert old.session.tolist() == [-1, -1]
    assert new.session.tolist() == [0, -1]


def test_burstgpt_sessions_keep_their_times(read):
    rows = "5,b,1,m,10,1,11,x\n6,a,1,m,10,1,11,x\n9,b,1,m,30,1,31,x\n"
    trace = read(BURST_SESSIONS + rows)
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.successor.tolist() == [-1, -1, -1]
    assert trace.arrival_ns.tolist() == [0, 10**9, 4 * 10**9]


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ("2023-11-16 18:17:03,abc,10", "ContextTokens", "not a number"),
        ("2023-11-16 18:17:03,10,-1", "GeneratedTokens", "not a number of tokens"),
        ("2023-11-16 18:17:03,1.5,10", "ContextTokens", "not a number of tokens"),
        ("2023-11-16 18:17:03,nan,10", "ContextTokens", "not a finite number"),
        ("2023-11-16 18:17:03,10", "GeneratedTokens", "missing"),
        ("2023-11-16 18:17:03,10,1,7", None, "too many fields"),
        ("2023-11-31 18:17:03,10,1", "TIMESTAMP", "day is out of range for month"),
        ("yesterday,10,1", "TIMESTAMP", "not a date and time"),
        (",10,1", "TIMESTAMP", "missing"),
    ],
)
def test_a_broken_azure_row_names_its_line_and_field(read, row, field, message):
    good = "2023-11-16 18:17:02,5,5\r\n"
    assert problems(read, f"{AZURE}{good}\r\n{row}\r\n{good}") == [(4, field, message)]


@pytest.mark.parametrize("time", ["-1", "nan", "inf", "1e300", "x", ""])
def test_burstgpt_times_are_numbers_from_0_on(read, time):
    ((line, field, _),) = problems(read, f"{BURST}{time},m,1,1,2,x\n")
    assert (line, field) == (2, "Timestamp")


def test_all_broken_rows_are_said_at_once_up_to_twenty(read):
    rows = [f"{second},m,{second},x,0,x\n" for second in range(30)]
    assert [line for line, _, _ in problems(read, BURST + "".join(rows[:3]))] == [2, 3, 4]
    assert len(problems(read, BURST + "".join(rows))) == 20


def test_a_missing_column_names_the_header(read):
    text = "Timestamp,Model,Request tokens\n1,m,2\n"
    assert problems(read, text, "burstgpt") == [(1, None, "no column 'Response tokens'")]


def test_an_unknown_format_lists_the_known_ones(read):
    with pytest.raises(
        InputError, match=r"did you mean 'azure'\?.*known: aiperf-records, auto, azure, bench"
    ):
        read(AZURE, "azur")


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: no such file"):
        read_trace(tmp_path / "none.csv")


def chat(*texts):
    """A conversation in ShareGPT's form."""
    turns = ", ".join(f'{{"from": "human", "value": "{text}"}}' for text in texts)
    return f'{{"id": "a", "conversations": [{turns}]}}'


def test_sharegpt_takes_the_first_prompt_and_the_length_of_the_answer(read):
    trace = read(f"[\n{chat('p' * 41, 'a' * 80, 'later', 'turns')},\n{chat('p' * 16, 'a' * 16)}\n]")
    assert trace.prompt_tokens.tolist() == [11, 4]
    assert trace.output_tokens.tolist() == [20, 4]
    assert not trace.timed
    assert trace.arrival_ns.tolist() == [0, 0]
    assert trace.notes == (
        "trace: lengths are estimated at 4 characters per token, since no tokenizer was given",
        "trace has no times: all requests arrive at once",
    )


def test_a_tokenizer_replaces_the_estimate(read):
    trace = read(
        f"[{chat('one two three four', 'one two three four five')}]", tokenizer=lambda text: len(text.split())
    )
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([4], [5])
    assert not any("estimated" in note for note in trace.notes)


def test_sharegpt_drops_what_the_benchmarks_drop(read):
    keep = chat("p" * 40, "a" * 40)
    texts = [
        keep,
        chat("alone" * 9),
        chat("p" * 12, "a" * 40),
        chat("p" * 4100, "a" * 40),
        chat("p" * 40, "a" * 8200),
    ]
    trace = read(f"[{', '.join(texts)}]")
    assert trace.requests == 1
    assert dict(trace.dropped) == {
        "fewer than two turns": 1,
        "a prompt or answer under 4 tokens": 1,
        "over 1024 prompt or 2048 tokens": 2,
    }


def test_a_broken_conversation_names_its_line(read):
    text = f'[\n{chat("p" * 40, "a" * 40)},\n{{"id": "b"}},\n{{"conversations": [1, 2]}}\n]'
    assert problems(read, text) == [
        (3, "conversations", "missing"),
        (4, "conversations[0].value", "not a text"),
    ]


def test_broken_json_names_its_line(read):
    good = chat("p" * 40, "a" * 40)
    ((line, field, message),) = problems(read, f"[\n{good},\n{good},\n{{oops}}\n]")
    assert (line, field) == (4, None)
    assert message.startswith("not JSON")
    assert problems(read, f"[\n{good},\n{good}\n") == [(3, None, "the list has no end")]


def test_custom_prompts_may_leave_the_output_open(read):
    trace = read('{"prompt": "Write a haiku about rain."}\n{"prompt": "x", "output_tokens": 9}\n')
    assert trace.prompt_tokens.tolist() == [7, 1]
    assert trace.output_tokens.tolist() == [-1, 9]
    assert any("drawn from workload.output_tokens" in note for note in trace.notes)
    assert problems(read, '{"prompt": 3}\n{"prompt": "a", "output_tokens": -2}\n[1]\n') == [
        (1, "prompt", "not a text"),
        (2, "output_tokens", "not a number of tokens"),
        (3, None, "not a JSON object"),
    ]
