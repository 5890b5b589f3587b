"""The profile and preset of a known engine: the simulator's times are its times."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.engine_loop.checkpoints import SMOLLM2, TARGET_LAYERS
from calibration.engine_loop.engine_preset import PlainLoad, drafting, write_preset
from calibration.engine_loop.engine_profile import layers_and_pass, profile_of
from calibration.engine_loop.host_times import PARTS, least, lines_us, parts_us
from calibration.engine_loop.matrix import PLAIN, PROMPT_TOKENS, EngineVariant, LoopCell
from calibration.engine_loop.predict import Calibrated, plain_step_s, predict, scenario_data, write_json
from calibration.engine_loop.raw import Figures
from simulator.errors import InputError
from simulator.runs.variant import CompiledVariant
from simulator.scenario.load import scenario_from_data
from tests.engine_loop import known_engine as engine

STEP_S, PER_REQUEST_S, LATENCY_S, SERIAL_S = 2e-3, 0.1e-3, 5e-3, 2e-3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    """Profile and preset of the known engine with known host times."""
    folder = tmp_path_factory.mktemp("loop")
    files = Calibrated(folder, folder)
    profile = profile_of(engine.target_answer(), engine.small_answer(), engine.host_answers())
    write_json(files.profile, profile)
    write_json(files.preset, {"schema": "decodesim/engine-1", "inherits": "torch-2", "name": "bare"})
    loads = (load(2, files), load(8, files))
    write_preset(loads, engine.host_answers(), files)
    return files


def load(clients: int, files: Calibrated) -> PlainLoad:
    """A plain run of an engine that takes the simulator's bare times and known host times."""
    cell = LoopCell(PLAIN, 6 * clients, 32, clients)
    scenario = scenario_data(cell, EngineVariant(PLAIN), files, PROMPT_TOKENS, None)
    host = {"step_s": STEP_S, "per_sequence_s": PER_REQUEST_S, "prompt_token_s": SERIAL_S / PROMPT_TOKENS}
    known = files.folder / "known.json"
    base = json.loads(files.preset.read_text("utf-8"))
    write_json(known, base | {"host": {"draft_pass_s": 0.0, "eager_call_s": 0.0, **host}})
    figures = predict(scenario | {"engine": {"preset": str(known)}}, cell.requests)
    late = vars(figures) | {"ttft_s": figures.ttft_s + LATENCY_S}
    gap_s = plain_step_s(clients, PROMPT_TOKENS + 16, files) + STEP_S + PER_REQUEST_S * clients
    return PlainLoad(cell, Figures(**late), gap_s, PROMPT_TOKENS)


def device_s(batch: int) -> float:
    """Seconds of the engine's plain pass at 100 tokens of context."""
    parts = engine.rest_s(batch, TARGET_LAYERS) + TARGET_LAYERS * engine.attention_s(batch, 100, 1)
    return parts + engine.head_s(batch) + engine.VERIFY_ROW_S * batch


def test_layers_and_passes_are_told_apart() -> None:
    per_layer, pass_us = layers_and_pass(engine.target_answer()["points"], engine.small_answer()["points"])
    for tokens, layer_us in per_layer.items():
        assert layer_us == pytest.approx(1e6 * (engine.LAYER_S + engine.LAYER_TOKEN_S * tokens), rel=1e-6)
    assert pass_us == pytest.approx(1e6 * engine.PASS_S, rel=1e-6)


@pytest.mark.parametrize("batch", [1, 3, 8, 20, 32])
def test_a_plain_step_takes_what_the_engine_takes(files: Calibrated, batch: int) -> None:
    expected_s = device_s(batch) + STEP_S + PER_REQUEST_S * batch
    assert plain_step_s(batch, 100, files) == pytest.approx(expected_s, rel=0.02)


def test_a_kernel_that_takes_less_time_for_more_tokens_is_priced_as_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rest_s(tokens: int, layers: int) -> float:
        return engine.PASS_S + layers * (0.3e-3 if tokens in (4, 5, 6) else 0.5e-3)

    monkeypatch.setattr(engine, "rest_s", rest_s)
    files = Calibrated(tmp_path, tmp_path)
    write_json(
        files.profile, profile_of(engine.target_answer(), engine.small_answer(), engine.host_answers())
    )
    write_json(files.preset, {"schema": "decodesim/engine-1", "inherits": "torch-2", "name": "bare"})
    for batch in (2, 4, 8):
        assert plain_step_s(batch, 100, files) == pytest.approx(device_s(batch), rel=0.02)


@pytest.mark.parametrize(("batch", "draft_length"), [(1, 3), (4, 3), (16, 5)])
def test_a_speculative_step_is_composed_of_parts_that_plain_passes_showed(
    files: Calibrated, batch: int, draft_length: int, tmp_path: Path
) -> None:
    (acceptance := tmp_path / "acceptance.json").write_text(json.dumps({"conditional_acceptance": [0.5] * 5}))
    folder = tmp_path / "smollm2-6"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of(layers=6)))
    cell = LoopCell("draft", batch, 2, batch)
    variant = EngineVariant("draft", "draft_model", draft_length, 6)
    data = scenario_data(cell, variant, Calibrated(files.folder, tmp_path), PROMPT_TOKENS, acceptance)
    scenario = scenario_from_data(data)
    times = CompiledVariant.compile(scenario, scenario.speculation[0]).step_times(batch, 100, draft_length)

    def pass_s(layers: int, queries: int, rows: int) -> float:
        attention_s = layers * engine.attention_s(batch, 100, queries)
        return engine.rest_s(batch * queries, layers) + attention_s + engine.head_s(rows)

    choice_s = engine.CHOICE_ROW_S * batch
    drafts_s = pass_s(6, draft_length + 2, batch) + (draft_length - 1) * pass_s(6, 1, batch)
    drafts_s += draft_length * (choice_s + engine.PROPOSE_PASS_S)
    verify_s = pass_s(TARGET_LAYERS, draft_length + 1, batch * (draft_length + 1))
    assert times["verify"] == pytest.approx(verify_s, rel=0.05)
    assert times["draft"] == pytest.approx(drafts_s, rel=0.08)


def config_of(layers: int) -> dict[str, object]:
    """The config.json of the target's first layers."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": layers,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }


def test_two_loads_give_the_host_times_of_steps_and_requests(files: Calibrated) -> None:
    host = json.loads(files.preset.read_text("utf-8"))["host"]
    assert host["step_s"] == pytest.approx(STEP_S, rel=0.01)
    assert host["per_sequence_s"] == pytest.approx(PER_REQUEST_S, rel=0.02)
    for clients in (1, 4, 16):
        known, cell = load(clients, files), LoopCell(PLAIN, 6 * clients, 32, clients)
        data = scenario_data(cell, EngineVariant(PLAIN), files, PROMPT_TOKENS, None)
        figures = predict(data, cell.requests)
        assert figures.ttft_s == pytest.approx(known.figures.ttft_s, rel=0.06)
        assert figures.tpot_s == pytest.approx(known.figures.tpot_s, rel=0.03)


def test_stubs_give_the_host_times_of_drafting() -> None:
    times = drafting(engine.host_answers())
    assert times["draft_pass_s"] == pytest.approx(engine.PROPOSE_PASS_S)
    assert times["draft_step_s"] == pytest.approx(engine.PROPOSE_S)
    assert times["lookup_step_s"] == pytest.approx(0.1e-3)
    assert times["lookup_per_sequence_s"] == pytest.approx(2e-6)


def test_parts_of_the_host_add_up_to_the_step_without_its_device_work() -> None:
    answer = engine.host_answers()["draft-5"]
    (point,) = (point for point in answer["points"] if point["batch"] == 8)
    parts = parts_us(point, answer["heads"], passes=5)
    device_s = point["seconds"]["sampler"] + 5 * engine.CHOICE_ROW_S * 8
    assert list(parts) == list(PARTS)
    assert sum(parts.values()) == pytest.approx(1e6 * (point["seconds"]["step"] - device_s), abs=0.5)
    document = {
        "step_us": {"draft-5": {str(batch): {**parts, "update": 3.0 + 2.0 * batch} for batch in (1, 8, 64)}}
    }
    assert lines_us(document)["draft-5"]["update"] == pytest.approx((3.0, 2.0))


def test_a_second_measurement_of_the_host_keeps_what_was_less() -> None:
    def document(engine: str, **us: float) -> dict[str, Any]:
        step_us = {"plain": {"1": us}}
        return {"schema": "s", "engine": engine, "cpu": "c", "python_unit_s": 0.03, "step_us": step_us}

    first, second = (
        document("vLLM 0.32.0", schedule=5, update=9),
        document("vLLM 0.32.0", schedule=6, update=8),
    )
    assert least(first, second)["step_us"] == {"plain": {"1": {"schedule": 5, "update": 8}}}
    with pytest.raises(InputError, match=r"vLLM 0\.31"):
        least(first, document("vLLM 0.31.0", schedule=1, update=1))


def test_the_target_is_the_catalogues() -> None:
    assert scenario_from_data(
        {
            "target": {"model": SMOLLM2},
            "hardware": {"gpu": "h100-sxm"},
            "workload": {"arrivals": {"kind": "closed", "concurrency": 1}},
        }
    )
