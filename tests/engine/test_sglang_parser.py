"""SGLang's own parser on what this project writes: recorded verdicts (`sglang_parser.py`)."""

import json
from pathlib import Path

import pytest

from calibration.launch.sglang import METHODS
from tests.engine.sglang_cases import ENGINES, MAX_NUM_SEQS, PLANNED, cases, planned_scenario

VERDICTS = json.loads((Path(__file__).parent / "sglang-verdicts.json").read_text("utf-8"))["verdicts"]
NAMES = [(variant, engine) for variant in PLANNED for engine in ENGINES]


def test_every_command_line_has_a_verdict() -> None:
    assert list(VERDICTS) == [case["name"] for case in cases()]


@pytest.mark.parametrize(("variant", "engine"), NAMES)
def test_a_planned_launch_line_starts_the_variant_that_was_simulated(variant: str, engine: str) -> None:
    scenario, verdict = planned_scenario(variant, engine), VERDICTS[variant + engine]
    assert verdict["accepted"], verdict
    assert verdict["max_num_seqs"] == MAX_NUM_SEQS
    assert verdict["prefix_caching"] == scenario.engine.prefix_caching
    if not scenario.engine.chunked_prefill:
        assert verdict["chunk_tokens"] == -1
    elif scenario.engine.max_num_batched_tokens is not None:
        assert verdict["chunk_tokens"] == scenario.engine.max_num_batched_tokens
    if not scenario.speculation:
        assert verdict["method"] is None
        return
    entry = scenario.speculation[0]
    assert verdict["method"] == METHODS[entry.method]
    if entry.tree is not None:
        assert (verdict["steps"], verdict["top_k"]) == (entry.tree.depth, entry.tree.top_k)
        assert verdict["rows"] == entry.tree.nodes
    else:
        assert verdict["rows"] == entry.chain_length + 1
    if entry.method != "ngram" and entry.tree is None:
        assert (verdict["steps"], verdict["top_k"]) == (entry.chain_length, 1)
