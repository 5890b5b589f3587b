"""Acceptance from files: traces, and what `read` and `accept` write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.acceptance import (
    AcceptanceModel,
    Gated,
    Positional,
    ReplayedAcceptance,
    acceptance_model,
    read_sequences,
)
from simulator.errors import InputError

# Trace files


@pytest.mark.parametrize(
    "text",
    [
        '{"sequences": [[2, 1, 3], [1, 4]]}',
        '{"note": "K = 7",\n "sequences": [[2, 1, 3],\n [1, 4]]}',
        "[[2, 1, 3], [1, 4]]",
        "[2, 1, 3]\n[1, 4]\n",
        "2 1 3\n\n1 4",
        "# accepted + 1\n2, 1, 3\n1,4\n",
    ],
)
def test_trace_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.txt").write_text(text, encoding="utf-8")
    model = acceptance_model({"model": "trace", "file": "trace.txt"}, 3, tmp_path)
    assert model == ReplayedAcceptance(((2, 1, 3), (1, 4)))


def test_a_broken_trace_says_every_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("2 1 3\n2 0 1\n[1, 2\n4\n1.5 2\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_sequences(path)
    assert [problem.line for problem in error.value.problems] == [2, 3, 5]
    assert "accepted drafts + 1" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sequence"),
        ('{"sequences": []}', "holds no sequence"),
        ('{"sequences": [[1, true]]}', r"sequences\[0\]: is not a sequence"),
        ('{"sequences": 3}', "is not a list"),
        ('{"lengths": [[1]]}', "is not a list"),
        ('{"sequences": [[1,\n2}', "trace.txt:2:2: is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[[]]", "is not a sequence"),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_sequences(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.txt: cannot be read: no such file"):
        read_sequences(tmp_path / "none.txt")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe1 2")
    with pytest.raises(InputError, match="not UTF-8"):
        read_sequences(tmp_path / "bytes")
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        acceptance_model({"file": "none.json"}, 3, tmp_path)


def test_rounds_of_a_trace_start_where_rounds_end() -> None:
    """[1, 3, 2, 1, 5]: prefill emits the first token; K = 4 starts at entries 2, 5, K = 1 at 2, 4, 5."""
    trace = ReplayedAcceptance(((1, 3, 2, 1, 5),))
    assert trace.survival(4).tolist() == [1.0, 1.0, 0.5, 0.5]
    assert trace.survival(1) == pytest.approx([2 / 3])
    assert ReplayedAcceptance(((4,),)).survival(2).tolist() == [1.0, 1.0]


# Files of `read` and `accept`

READ = {
    "schema": "decodesim/read-1",
    "draft_length": 3,
    "mean_acceptance_length": {"value": 2.6, "ci95": [2.5, 2.7]},
    "draft_acceptance_rate": 0.533,
    "acceptance_rate_at": [0.73, 0.52, 0.35],
    "conditional_acceptance": [0.73, 0.712, 0.673],
}


def _from(tmp_path: Path, document: object, draft_length: int = 3, **select: object) -> AcceptanceModel:
    (tmp_path / "acceptance.json").write_text(json.dumps(document), encoding="utf-8")
    return acceptance_model({"file": "acceptance.json", **select}, draft_length, tmp_path)


def test_a_file_of_read(tmp_path: Path) -> None:
    assert _from(tmp_path, READ) == Positional((0.73, 0.712, 0.673))
    without = {key: value for key, value in READ.items() if key != "conditional_acceptance"}
    assert _from(tmp_path, without).survival(3) == pytest.approx([0.73, 0.52, 0.35])
    bare = {"draft_length": 3, "mean_acceptance_length": {"value": 2.6}}
    assert _from(tmp_path, bare).mean_acceptance_length(3) == pytest.approx(2.6, abs=1e-12)
    rate = {"draft_length": 4, "draft_acceptance_rate": 0.4, "mean_acceptance_length": None}
    assert _from(tmp_path, rate).mean_acceptance_length(4) == pytest.approx(2.6, abs=1e-12)


def test_positions_that_nobody_reached_are_left_out(tmp_path: Path) -> None:
    assert _from(tmp_path, {"conditional_acceptance": [0.7, {"value": 0.6}, None, 0.5]}) == Positional(
        (0.7, 0.6)
    )


def test_a_file_of_accept(tmp_path: Path) -> None:
    def row(k: int, rate: float, **names: object) -> dict[str, object]:
        return {"draft_length": k, "conditional_acceptance": [rate] * k, **names}

    single = {"target": "a", "draft": "b", "rows": [row(2, 0.5), row(4, 0.6), row(8, 0.7)]}
    assert _from(tmp_path, single, 4) == Positional((0.6,) * 4)
    assert _from(tmp_path, single, 3) == Positional((0.6,) * 4)
    assert _from(tmp_path, single, 9) == Positional((0.7,) * 8)
    several = {"rows": [row(3, 0.7, temperature=0.0), row(3, 0.5, temperature=1.0)]}
    assert _from(tmp_path, several, 3, temperature=1.0) == Positional((0.5,) * 3)
    with pytest.raises(
        InputError, match=r"2 rows answer for draft length 3.*temperature 0\.0; temperature 1\.0"
    ):
        _from(tmp_path, several)
    with pytest.raises(InputError, match=r"no row has temperature 0\.5"):
        _from(tmp_path, several, 3, temperature=0.5)


def test_drafters_of_one_file_are_chosen_by_name(tmp_path: Path) -> None:
    rows = [
        {"draft": name, "domain": domain, "draft_length": 3, "conditional_acceptance": [rate] * 3}
        for name, rate in (("ngram", 0.4), ("eagle3", 0.8))
        for domain in ("code", "prose")
    ]
    assert _from(tmp_path, {"rows": rows}, draft="eagle3", domain="code") == Positional((0.8,) * 3)
    with pytest.raises(InputError, match=r"choose with draft.*draft ngram, domain code; draft eagle3"):
        _from(tmp_path, {"rows": rows}, domain="code")


def test_a_drafter_that_finds_nothing_in_some_rounds_is_gated(tmp_path: Path) -> None:
    gate = {"match": 0.3, "stickiness": 0.2, "first": 0.6, "run": 0.9}
    row = {"draft_length": 4, "conditional_acceptance": [0.6, 0.9, 0.9, 0.9], "gated": gate}
    assert _from(tmp_path, {"rows": [row]}) == Gated(0.3, 0.2, 0.6, 0.9)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "is not a JSON object"),
        ({"rows": [{"draft_length": 3, "gated": 0.5}]}, r"rows\[0\].gated: is no gate"),
        ({"rows": [{"draft_length": 3, "gated": {"match": 1.5, "first": 0.5, "run": 0.5}}]}, "gated.match"),
        ({}, "conditional_acceptance: is missing"),
        ({"rows": []}, "rows: is not a list of measurements"),
        ({"rows": [{"draft_length": 3}]}, r"rows\[0\].conditional_acceptance: is missing"),
        (
            {"rows": [{"draft_length": 1, "conditional_acceptance": [1.2]}]},
            r"rows\[0\].conditional\[0\]: is out of range",
        ),
        ({"conditional_acceptance": 0.7}, "conditional_acceptance: is not a list"),
        ({"conditional_acceptance": ["x"]}, r"conditional_acceptance\[0\]: is not a number"),
        ({"acceptance_rate_at": [0.5, 0.6]}, r"survival\[1\]: is more than the position before"),
        ({"draft_length": 3, "mean_acceptance_length": 4.5}, "mean_acceptance_length: cannot be reached"),
    ],
)
def test_files_without_usable_acceptance(tmp_path: Path, document: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        _from(tmp_path, document)
    assert "acceptance.json" in str(error.value)
