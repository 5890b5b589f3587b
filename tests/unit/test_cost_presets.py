"""Serving-engine presets and GPUs: known facts, nearest versions, graph grids."""

import dataclasses
import json
from dataclasses import replace

import pytest

from simulator.engines.host_cost import HostCost
from simulator.engines.preset import Preset
from simulator.engines.preset_field import declared
from simulator.engines.presets import load_preset, presets
from simulator.errors import InputError
from simulator.gpu import GPUS, gpu
from simulator.runs.variant import CompiledVariant
from simulator.scenario import defaults_used, engine_preset, parse_scenario, scenario_from_flags

NAMES = (
    "sglang-0.5",
    "torch-2",
    "trtllm-1",
    "vllm-0.10",
    "vllm-0.14",
    "vllm-0.14-sync",
    "vllm-0.15",
    "vllm-0.15-sync",
    "vllm-0.33",
)


def test_every_preset_loads_and_names_its_sources():
    assert tuple(presets()) == NAMES
    for preset in presets().values():
        assert preset.sources["host"]
        assert preset.sources["graph_sizes"]
        assert not (preset.host.hidden_step_s and not preset.asynchronous)


@pytest.mark.parametrize(
    ("asked", "name", "message"),
    [
        ("vllm-0.33", "vllm-0.33", None),
        ("vllm-0.33.1", "vllm-0.33", None),
        ("vllm-0.13", "vllm-0.10", "nearest known"),
        ("vllm-0.17", "vllm-0.15", "nearest known"),
        ("vllm-0.14-sync", "vllm-0.14-sync", None),
        ("vllm-0.24", "vllm-0.15", "nearest known"),
        ("vllm-0.25", "vllm-0.33", "nearest known"),
        ("vllm-0.33-sync", "vllm-0.15-sync", "nearest known"),
        ("vllm-0.12-sync", "vllm-0.10", "nearest known"),
        ("vLLM 0.14 sync ", "vllm-0.14-sync", None),
        ("vllm-0.14-synchronous", "vllm-0.14-sync", None),
        ("vllm", "vllm-0.33", "newest known"),
        ("vllm-1.0", "vllm-0.33", "nearest known"),
        ("vllm-99", "vllm-0.33", "nearest known"),
        ("vllm-0.2", "vllm-0.10", "nearest known"),
        ("vLLM 0.33", "vllm-0.33", None),
        ("tensorrt-llm-1.2", "trtllm-1", None),
        ("sglang-0.5.9", "sglang-0.5", None),
    ],
)
def test_the_nearest_version_is_taken_and_said(asked, name, message):
    preset, note = load_preset(asked)
    assert preset.name == name
    assert (note is None) == (message is None)
    assert message is None or message in note


@pytest.mark.parametrize("asked", ["lmdeploy-1", "", "33", "?"])
def test_an_unknown_engine_lists_the_known_ones(asked):
    with pytest.raises(InputError, match=r"known: .*vllm-0\.33"):
        load_preset(asked)


def test_graph_grid_of_vllm_has_multiples_of_the_verify_width():
    """vLLM 0.33: the largest uniform batch with a full graph is 256, 128, 83, 64 for K = 1, 3, 5, 7."""
    preset = load_preset("vllm-0.33")[0]
    assert preset.graph_grid(1)[:6] == (1, 2, 4, 8, 16, 24)
    assert preset.graph_grid(1)[-1] == 512
    for draft_length, batch in ((1, 256), (3, 128), (7, 64)):
        grid = preset.graph_grid(draft_length + 1)
        assert grid[-1] == batch * (draft_length + 1)
    assert 6 * 83 <= preset.graph_grid(6)[-1] < 6 * 86
    assert preset.graph_grid(1, max_num_seqs=16)[-1] == 32


def test_graph_grid_of_other_engines_counts_requests():
    sglang, trtllm = load_preset("sglang-0.5")[0], load_preset("trtllm-1")[0]
    assert sglang.graph_grid(1)[:6] == (1, 2, 4, 8, 12, 16)
    assert sglang.graph_grid(4)[:3] == (4, 8, 12)
    assert sglang.graph_grid(4)[-1] == 256 * 4
    assert trtllm.graph_grid(4)[-1] == 128 * 4


def test_padding_takes_the_next_graph_or_none():
    preset = load_preset("vllm-0.33")[0]
    assert preset.padded_tokens(1) == 1
    assert preset.padded_tokens(3) == 4
    assert preset.padded_tokens(257) == 272
    assert preset.padded_tokens(513) is None


@pytest.mark.parametrize(("record", "others"), [(Preset, {"host", "sources"}), (HostCost, set())])
def test_every_field_declares_what_it_is(record, others):
    fields = declared(record)
    assert {*fields, *others} == {entry.name for entry in dataclasses.fields(record)}
    assert all(field.meaning and field.source for field in fields.values())
    assert all(field.label for field in fields.values()) == (record is HostCost)


def test_a_file_is_held_to_what_its_fields_declare(tmp_path):
    """0 is a limit of running requests for no engine; where it means that there is no rule, it is read."""
    text = {**OWN, "max_num_seqs": 0, "graph_unit": "batches", "host": {"prompt_token_s": 0.5}}
    with pytest.raises(InputError) as error:
        load_preset("mine.json", engine_file(tmp_path, text))
    message = str(error.value)
    assert all(name in message for name in ("max_num_seqs", "graph_unit", "host.prompt_token_s"))
    assert "known: tokens, requests" in message
    preset, _ = load_preset("mine.json", engine_file(tmp_path, {**OWN, "draft_seats": 0, "state_slots": 0}))
    assert preset.draft_seats == preset.state_slots == 0


def test_exposed_host_time_counts_sequences_and_passes():
    host = HostCost(1e-3, 1e-5, 5e-4, 2e-4, 2e-3, 1e-6)
    assert host.exposed_s(10, 3) == pytest.approx(1e-3 + 1e-4 + 1.5e-3 + 2e-4)
    assert host.exposed_s(10) == pytest.approx(1e-3 + 1e-4)


@pytest.mark.parametrize("value", [-1e-6, float("nan"), 2.0])
def test_impossible_host_costs_are_refused(value):
    with pytest.raises(ValueError, match=r"host\.step_s"):
        HostCost(value, 0.0, 0.0)


def engine_file(folder, text):
    """A preset's file `mine.json` in `folder`."""
    (folder / "mine.json").write_text(text if isinstance(text, str) else json.dumps(text, indent=2), "utf-8")
    return folder


OWN = {"schema": "decodesim/engine-1", "name": "mine", "inherits": "sglang-0.5"}


def test_a_file_that_inherits_says_only_what_differs(tmp_path):
    text = {**OWN, "max_num_seqs": 48, "graph_sizes": [1, [2, 6, 2]], "host": {"step_s": 0.002}}
    preset, note = load_preset("mine.json", engine_file(tmp_path, text))
    base = load_preset("sglang-0.5")[0]
    assert (preset.name, preset.engine, preset.max_num_seqs, note) == ("mine", "SGLang", 48, None)
    assert preset.graph_sizes == (1, 2, 4, 6)
    assert preset.host == replace(base.host, step_s=0.002)


def test_vllm_seats_fewer_requests_on_an_a100_and_a_number_of_ones_own_stays(tmp_path):
    """vLLM engine/arg_utils.py: 256 and 2,048 on GPUs below 70 GiB and on the A100, else 1,024 and 8,192."""
    own = tmp_path / "own.json"
    own.write_text(json.dumps({**OWN, "inherits": "vllm-0.33", "max_num_seqs": 640}), "utf-8")
    for engine, gpu_name, stated, request_limit, tokens in (
        ("vllm-0.33", "a100-sxm-80gb", "null", 256, 2048),
        ("vllm-0.10", "a100-sxm-40gb", "null", 256, 2048),
        ("vllm-0.33", "h100-sxm", "null", 1024, 8192),
        ("vllm-0.33", "a100-sxm-80gb", "700", 700, 2048),
        (str(own), "a100-sxm-80gb", "null", 640, 2048),
        ("sglang-0.5", "a100-sxm-80gb", "null", 2048, 8192),
    ):
        overrides = (f"engine.preset={engine}", f"engine.max_num_seqs={stated}")
        scenario = scenario_from_flags({"model": "llama-3.1-8b-instruct", "gpu": gpu_name}, overrides)
        preset, _ = engine_preset(scenario)
        assert (preset.max_num_seqs, preset.max_num_batched_tokens) == (request_limit, tokens)
        assert stated != "null" or defaults_used(scenario)["engine.max_num_seqs"] == request_limit


def test_a_preset_file_moves_the_simulated_step_and_is_read_again_after_an_edit(tmp_path):
    scenario = parse_scenario(
        "{target: {model: llama-3.1-8b-instruct}, hardware: {gpu: h100-sxm}, engine: {preset: mine.json},"
        " workload: {arrivals: {kind: closed, concurrency: 4}}}",
        base_dir=engine_file(tmp_path, OWN),
    )
    assert [name for name, _ in presets().items() if name == "mine"] == []

    def step_s() -> float:
        return CompiledVariant.compile(scenario, None).step_times(4, 100)["total"]

    before = step_s()
    engine_file(tmp_path, {**OWN, "host": {"step_s": 0.0023}})
    assert step_s() - before == pytest.approx(0.0023 - load_preset("sglang-0.5")[0].host.step_s, abs=1e-8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", r"mine\.json:1.*list"),
        ("{", r"mine\.json:1:2: is not JSON"),
        ({**OWN, "schema": "x"}, r"mine\.json:2:\d+: schema: .*engine-1"),
        ({"schema": "decodesim/engine-1", "asynchronous": None}, r"mine\.json.*asynchronous: is missing"),
        ({**OWN, "inherits": "sglang"}, r"mine\.json:4:\d+: inherits: unknown preset.*sglang-0\.5"),
        ({**OWN, "surprise": 1}, r"mine\.json:5:\d+: surprise: unknown field"),
        ({**OWN, "max_num_seqs": 0}, r"max_num_seqs: is not usable \(got 0\)"),
        ({**OWN, "host": {"step_s": -1}}, r"mine\.json:6:\d+: host\.step_s: is not usable"),
        ({**OWN, "host": {"step_ms": 1}}, r"host\.step_ms: unknown host time, did you mean 'step_s'"),
        ({**OWN, "graph_sizes": 7}, r"graph_sizes: is not usable.*\[first, last, step\]"),
        ({**OWN, "graph_unit": "rows"}, r"graph_unit: is unknown \(got 'rows'\), known: tokens, requests"),
        ({**OWN, "scheduler": "mixd"}, r"scheduler: unknown scheduler rule, did you mean 'mixed'"),
        ({"schema": "decodesim/engine-1"}, r"mine\.json.*host: is missing(?s:.*)max_num_seqs: is missing"),
    ],
)
def test_a_broken_preset_file_says_what_is_wrong_where(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_preset("mine.json", engine_file(tmp_path, text))


def test_a_scenario_says_which_preset_file_is_missing(tmp_path):
    text = "{target: {model: llama-3.1-8b-instruct}, hardware: {gpu: h100-sxm}, engine: {preset: no.json}}"
    with pytest.raises(InputError, match=r"engine\.preset: the preset cannot be read.*no\.json"):
        parse_scenario(text, base_dir=tmp_path)


def test_gpus_have_a_source_for_every_figure():
    figures = {
        "memory_bytes",
        "hbm_bandwidth_bytes_per_s",
        "peak_flops_per_s",
        "l2_bytes",
        "sms",
        "nvlink_bandwidth_bytes_per_s",
        "interconnect",
    }
    for entry in GPUS.values():
        assert set(entry.sources) == figures, entry.name
        assert all(entry.sources.values()), entry.name


def test_h100_has_the_published_ridge_and_driver_memory():
    h100 = gpu("h100-sxm")
    assert h100.peak_flops_per_s["bf16"] / h100.hbm_bandwidth_bytes_per_s == pytest.approx(295, abs=1)
    assert h100.memory_bytes / 2**30 == pytest.approx(79.65, abs=0.01)
    assert h100.link_bytes_per_s(8) == 900e9
    assert gpu("h100-pcie").link_bytes_per_s(4) == gpu("h100-pcie").pcie_bandwidth_bytes_per_s


def test_an_unknown_gpu_lists_the_known_ones():
    with pytest.raises(InputError, match=r"did you mean 'h100-sxm'.*known: .*h200-sxm"):
        gpu("h100-smx")


def test_presets_are_immutable():
    preset = load_preset("vllm-0.33")[0]
    assert isinstance(preset, Preset)
    with pytest.raises(AttributeError):
        preset.block_tokens = 32
