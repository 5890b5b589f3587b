"""The step is vLLM 0.32's: 2,072 random scenarios, recorded from its own scheduler (`make traces`).

Where memory is not short, it is SGLang 0.5.23's under its preset: 196 scenarios (`sglang_scheduler.py`).
"""

from collections import Counter
from pathlib import Path

from tests.engine.compare import differences, read_traces
from tests.engine.families import SGLANG_FAMILIES, all_families, scenario_of

TRACES = Path(__file__).with_name("traces.jsonl.gz")
SGLANG_TRACES = Path(__file__).with_name("sglang-traces.jsonl.gz")
EACH = 28


def test_every_step_of_every_family_is_vllms() -> None:
    """Requests with tokens and drafts, preempted ones, free blocks and emissions, with ==."""
    documents = list(read_traces(TRACES))
    assert Counter(document["family"] for document in documents) == dict.fromkeys(all_families(), EACH)
    unequal = [difference.first for difference in differences(documents) if not difference.equal_with_blocks]
    assert not unequal, "\n".join(unequal[:10])


def test_every_step_is_sglangs_where_memory_is_not_short() -> None:
    """Free blocks too, except where requests share a prefix: SGLang drops the copy that came second."""
    documents = list(read_traces(SGLANG_TRACES))
    assert Counter(document["family"] for document in documents) == dict.fromkeys(SGLANG_FAMILIES, EACH)
    unequal = [
        difference.first
        for difference in differences(documents)
        if not (difference.equal if "prefix" in difference.family else difference.equal_with_blocks)
    ]
    assert not unequal, "\n".join(unequal[:10])


def test_a_recorded_scenario_follows_from_its_family_and_number() -> None:
    for document in [*read_traces(TRACES), *read_traces(SGLANG_TRACES)][::7]:
        family, number = document["scenario"]["id"].rsplit("/", 1)
        assert document["scenario"] == scenario_of(family, int(number))


def test_the_scenarios_are_full_of_what_is_rare() -> None:
    """Equality says little about what does not happen."""
    happened: Counter[str] = Counter()
    for document in read_traces(TRACES):
        engine, steps = document["scenario"]["engine"], document["vllm"]["steps"]
        requests = document["scenario"]["requests"]
        first = {entry[0]: entry[1:] for _, entries, _, _ in reversed(steps) for entry in entries}
        happened["preempted"] += any(preempted for _, _, preempted, _ in steps)
        happened["padded"] += any(drafts > 0 for _, drafts in first.values())
        happened["no block is left"] += any(free == 0 for *_, free in steps)
        full = engine["max_model_len"]
        happened["ends at its context"] += any(
            request["prompt"] + request["output"] == full for request in requests
        )
        happened["many"] += len(requests) > engine["max_num_seqs"]
    assert min(happened.values()) >= 20, happened
