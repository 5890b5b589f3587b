"""Data-parallel attention against public serving runs: DeepSeek-R1 on TensorRT-LLM, eight H200.

Six rows of `data/silicon/e2e_serving.csv` with eight attention groups; their clients are those of one GPU, as
its `tp_size` is. Nothing was fitted to them.
"""

import csv

import numpy as np

from simulator.costs.cost import CostModel
from simulator.costs.profiles import load_profile
from simulator.engines.presets import load_preset
from simulator.models.catalogue import load_model
from tests.shared_data import SHARED, needs_shared

pytestmark = needs_shared
GROUPS = 8


def runs():
    with (SHARED / "data" / "silicon" / "e2e_serving.csv").open(encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            if row["attention_dp_size"] == str(GROUPS) and row["model_path"].endswith("DeepSeek-R1"):
                yield {name: float(row[name]) for name in ("batch_size", "isl", "osl", "silicon_tpot_ms")}


def tpot_ms(groups, clients, prompt, output):
    """A step, and what prefills of others add to it, prompts spread over the groups."""
    engine, _ = load_preset("trtllm-1")
    profile = load_profile("h200-sxm")
    target = load_model("deepseek-r1")
    cost = CostModel(target, None, profile, GROUPS, GROUPS, 1, "fp8", engine, attention_dp=groups)
    own = clients // groups
    padded = (engine.padded_tokens(own) or own) * groups
    context = clients * (prompt + output / 2)
    plain = cost.target_pass(padded, clients, context, 1, (), clients, real_tokens=clients)
    rows = (clients + prompt, clients, context, 1, ((prompt, 0),), clients + 1, "eager")
    step_s = plain.duration_s + cost.sample(clients).gpu_s
    return 1e3 * (step_s + (cost.target_pass(*rows).gpu_s - plain.gpu_s) * (clients - 1) / output)


def test_groups_of_their_own_are_nearer_to_what_was_measured_than_tensor_parallelism():
    own, cut = [], []
    for row in runs():
        args = (int(row["batch_size"]) * GROUPS, int(row["isl"]), int(row["osl"]))
        own.append(tpot_ms(GROUPS, *args) / row["silicon_tpot_ms"])
        cut.append(tpot_ms(1, *args) / row["silicon_tpot_ms"])
    assert len(own) == 6
    error = np.abs(np.log(own))
    print("predicted ÷ measured:", np.round(own, 2), "as tensor parallelism:", np.round(cut, 2))
    assert (error < np.abs(np.log(cut))).all()
    assert error.mean() < 0.25
    assert error.max() < 0.35
