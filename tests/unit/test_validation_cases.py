"""Files of published cases: what is read, what is forgiven, what is refused with its place."""

import json
from dataclasses import replace

import pytest

from calibration.validation.reconstruction.cases import committed_cases, read_cases
from calibration.validation.reconstruction.sections import number
from calibration.validation.row import FORM_NOT_STATED
from simulator.errors import InputError
from tests.published_cases import PLAIN, SPEC, cases_of, write_cases
from tests.shared_data import ROOT, SHARED, needs_shared


def test_a_case_is_read_with_what_it_does_not_say(tmp_path):
    (case,) = cases_of(tmp_path, {**SPEC, "planet": "Mars", "notes": ["seen twice", None]}, source="paper")
    assert (case.case_id, case.kind, case.source_id) == ("c", "spec_vs_plain", "paper")
    assert case.hardware.tp == 1
    assert case.hardware.pp is None
    assert case.draft is not None
    assert (case.draft.method, case.draft.k, case.draft.model) == ("eagle3", 3, None)
    assert case.points == ({"concurrency": 8, "speedup": 1.6, "acceptance_length": 2.6},)
    assert case.notes == ("seen twice",)
    assert case.usable_as_gate


def test_leaves_of_another_type_count_as_not_published(tmp_path):
    odd = {
        **PLAIN,
        "hardware": {"gpu": ["H100"], "count": "8", "tp": True},
        "target": {"model": "m", "params_b": float("inf"), "weight_precision": 16},
        "workload": {"input_len_tokens": [1], "output_len_tokens": {"mean": 5}, "num_prompts": None},
        "usable_as_gate": "yes",
    }
    (case,) = cases_of(tmp_path, odd)
    assert (case.hardware.gpu, case.hardware.count, case.hardware.tp) == (None, 8, None)
    assert (case.target.params_b, case.target.weight_precision) == (None, "16")
    assert case.workload.input_len_tokens is None
    assert case.workload.output_len_tokens == {"mean": 5}
    assert not case.usable_as_gate


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("1e3", 1000.0),
        (" 7 ", 7.0),
        ("high", None),
        (None, None),
        (True, None),
        (float("nan"), None),
        (10**400, None),
    ],
)
def test_numbers_are_read_wherever_they_are_some(value, read):
    assert number(value) == read


def test_each_case_may_name_its_own_source(tmp_path):
    path = tmp_path / "many.json"
    sources = [{"id": "a", "date": "2025-03"}, {"id": "b"}]
    path.write_text(json.dumps({"sources": sources, "cases": [{**PLAIN, "source_id": "b"}, PLAIN]}))
    second, first = read_cases([path])
    assert (second.source_id, second.date) == ("b", None)
    assert (first.source_id, first.date) == ("a", "2025-03")


def test_texts_are_of_one_line_and_whole_characters(tmp_path):
    odd = {**SPEC, "case_id": "a\tb\n", "source_id": "here\tthere", "draft": {"method": " "}}
    target = {"model": "Llama \ud800", "arch": float("nan")}
    (case,) = cases_of(tmp_path, {**odd, "target": target})
    assert (case.case_id, case.source_id, case.draft) == ("a b", "here there", None)
    assert (case.target.model, case.target.arch) == ("Llama ?", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "1:2: is not JSON"),
        ("[]", "cases: is missing or no list"),
        ('{"cases": {}}', "cases: is missing or no list"),
        ('{"cases": [3]}', "cases[0]: is no object"),
        ('{"cases": [{"kind": "x"}]}', "cases[0].case_id: is no name"),
        ('{"cases": [{"case_id": "a", "points": {}}]}', "cases[0].points: is no list"),
        ('{"cases": [{"case_id": "a", "points": [1]}]}', "cases[0].points[0]: is no object"),
        ('{"cases": [{"case_id": "a", "draft": "eagle"}]}', "cases[0].draft: is no object"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"cases": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_damage_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_cases([path])
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{path}:")
    assert message in line


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"\xff\xfe{")
    with pytest.raises(InputError) as error:
        read_cases([tmp_path / "absent.json", broken, write_cases(tmp_path, PLAIN)])
    assert [problem.message.split(":")[0] for problem in error.value.problems] == [
        "no such file or directory",
        "is not UTF-8",
    ]


def test_every_committed_case_has_a_source_and_an_own_name():
    cases = committed_cases()
    assert len(cases) > 250
    names = [(case.source_id, case.case_id) for case in cases]
    assert len(set(names)) == len(names)
    assert all(case.source_id and case.source_id != case.file for case in cases)


def stated(case, field):
    """A field of a case without what was read from words, which a transcription may put otherwise."""
    value = getattr(case, field)
    words = [name.removeprefix(f"{field}.") for name in case.from_words if name.startswith(f"{field}.")]
    return replace(value, **dict.fromkeys(words)) if words else value


@needs_shared
def test_the_transcription_keeps_every_published_figure():
    """Of every source that is committed; reference data may hold more sources than are."""
    committed = {path.name for path in (ROOT / "calibration" / "published").glob("*.json")}
    published = sorted((SHARED / "cases" / "published").glob("*.json"))
    reference = [path for path in published if path.name in committed]
    assert len(reference) >= 61
    reference_cases = {(case.source_id, case.case_id): case for case in read_cases(reference)}
    own_cases = {(case.source_id, case.case_id): case for case in committed_cases()}
    assert reference_cases.keys() <= own_cases.keys()
    for name, case in reference_cases.items():
        own_case = own_cases[name]
        for field in ("kind", "confidence", "hardware", "target", "draft", "speedup_of"):
            assert stated(own_case, field) == stated(case, field), (name, field)
        assert set(own_case.quality_flags) - set(case.quality_flags) <= {FORM_NOT_STATED}
        assert set(case.quality_flags) <= set(own_case.quality_flags)
        for own, point in zip(own_case.points, case.points, strict=True):
            assert _known(point).items() <= own.items()


def _known(value):
    """The value without what is null."""
    if isinstance(value, dict):
        return {key: _known(inner) for key, inner in value.items() if inner is not None}
    return [_known(inner) for inner in value] if isinstance(value, list) else value
