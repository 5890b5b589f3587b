"""Every registered trace reader: finds its own files, says what is wrong with others, gives no traceback."""

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.traces import detect, read_trace, readers

NAMES = sorted(readers())


def read_or_problems(path, name):
    """Problems of the file, and how many requests it has when there are none."""
    try:
        return (), read_trace(path, name).requests
    except InputError as error:
        return error.problems, 0


@pytest.fixture(params=NAMES)
def reader(request):
    """Each reader in turn."""
    return readers()[request.param]


@pytest.fixture
def example(reader, tmp_path):
    """The path of a file that holds the reader's example."""
    path = tmp_path / "trace"
    path.write_text(reader.example, newline="")
    return path


def test_name_and_title_are_given(reader):
    assert readers()[reader.name] is reader
    assert reader.title


def test_its_own_format_is_detected_and_no_other(reader, example):
    assert detect(example) is reader
    head = reader.example.splitlines()[0]
    assert [name for name in NAMES if readers()[name].matches(head)] == [reader.name]


def test_the_example_reads_alike_by_name_and_by_content(reader, example):
    named, result = read_trace(example, reader.name), read_trace(example)
    assert named.format == result.format == reader.name
    assert named.requests == result.requests >= 1


def test_arrays_agree_in_length_and_links_lead_forward(example):
    trace = read_trace(example)
    n = trace.requests
    for name in ("arrival_ns", "output_tokens", "session", "successor", "successor_delay_ns"):
        assert len(getattr(trace, name)) == n, name
    assert len(trace.prefix_start) == n + 1
    assert trace.prefix_start[-1] == len(trace.prefix_ids)
    assert trace.prompt_tokens.min() >= 1
    assert (np.diff(trace.arrival_ns[trace.arrival_ns >= 0]) >= 0).all()
    follows = trace.successor >= 0
    assert (trace.successor[follows] > np.flatnonzero(follows)).all()


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_line_ends_blank_lines_and_a_byte_order_mark_do_not_matter(reader, example, ends, tmp_path):
    text = ends.join(["\ufeff" + reader.example.splitlines()[0], *reader.example.splitlines()[1:], "", ""])
    (tmp_path / "other").write_text(text, encoding="utf-8", newline="")
    assert (read_trace(tmp_path / "other").prompt_tokens == read_trace(example).prompt_tokens).all()


def test_gzip_is_unpacked(reader, example, tmp_path):
    (tmp_path / "trace.gz").write_bytes(gzip.compress(reader.example.encode()))
    assert (read_trace(tmp_path / "trace.gz").prompt_tokens == read_trace(example).prompt_tokens).all()


def test_the_limit_counts_requests(example):
    assert read_trace(example, limit=1).requests == 1


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"\xff\xfe\x00", b"{", b"[", b"[1, 2", b"a,b\n1,2\n", b"null\n"]
)
def test_files_of_no_format_are_input_errors(reader, content, tmp_path):
    (tmp_path / "bad").write_bytes(content)
    for name in ("auto", reader.name):
        with pytest.raises(InputError) as error:
            read_trace(tmp_path / "bad", name)
        assert all(
            problem.file == str(tmp_path / "bad") and problem.message for problem in error.value.problems
        )


def test_a_folder_is_an_input_error(reader, tmp_path):
    with pytest.raises(InputError, match="a folder, not a file"):
        read_trace(tmp_path, reader.name)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_read_or_name_their_line(reader, tmp_path, data):
    """Replace a piece of the example by anything: it still reads, or the error names the file."""
    text = reader.example
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    piece = data.draw(
        st.one_of(st.text(max_size=8), st.sampled_from(["-1", "NaN", "1e999", "null", '""', ",,", "0.5"]))
    )
    path = tmp_path / "damaged"
    path.write_text(text[:start] + piece + text[end:], encoding="utf-8", errors="replace", newline="")
    problems, rows = read_or_problems(path, reader.name)
    assert problems or rows
    assert all(problem.file == str(path) and problem.message for problem in problems)
