"""The builder of profiles on small tables made here: both layouts, the same bytes twice, missing tables."""

import csv
import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner

from calibration.heldout import held_out
from calibration.profile_json import dumps
from calibration.silicon import TRTLLM, build_profile, expert_points, main, own_gemm_points
from calibration.silicon_attention import fit_prefill
from calibration.silicon_exchange import exchange_part
from calibration.silicon_fit import fit_gemm
from calibration.smoothing import hats, isotonic, significant, thin
from calibration.tables import medians, open_tables
from simulator.costs.ops.gemm import GemmForm
from simulator.costs.profiles import Profile, load_profile, parse_profile
from simulator.errors import InputError
from simulator.gpu import gpu

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow reads the tables: extra parquet")

SHAPES = [(n, k) for n in (512, 2048, 8192) for k in (1024, 4096, 8192)]
M = (1, 16, 64, 128, 129, 256, 512, 1024, 4096)
UNTUNED_SHAPE = ("fp8", 4096, 1536, 2)
"""Experts timed with a kernel that nobody tuned."""


def _rows():
    """Rows of every table in the flat layout: (table, columns as dict)."""

    def base(framework, version, us, **columns):
        return {
            "system": "h100_sxm",
            "framework": framework,
            "version": version,
            "kernel": "k",
            "latency_us": us,
            **columns,
        }

    gemm = [
        base(fw, version, 4 + n * k * size / 3e6 + 2 * m * n * k / 7e8, dtype=dtype, m=m, n=n, k=k)
        for fw, version, dtype, size in (
            ("vllm", "0.24.0", "bfloat16", 2),
            ("vllm", "0.24.0", "fp8", 1),
            ("sglang", "0.5.14", "fp8_block", 1),
        )
        for (n, k), m in itertools.product(SHAPES, M)
    ]
    attention = [
        base(
            fw,
            version,
            12 + b * c * kv * d * 4 / 3e6,
            kv_dtype=dtype,
            batch=b,
            heads=h * kv,
            kv_heads=kv,
            head_dim=d,
            context=c,
        )
        for fw, version in (("vllm", "0.24.0"), ("sglang", "0.5.14"), ("trtllm", "1.3.0rc20"))
        for dtype, b, h, kv, d, c in itertools.product(
            ("bfloat16", "fp8"), (1, 8, 64), (1, 4, 8), (1, 4, 5, 6, 8), (64, 128), (16, 1024, 16384)
        )
    ]
    mla = [
        base(
            "trtllm",
            "1.3.0rc20",
            12 + b * c * 1152 / 3e6 * (1 + h / 256),
            kv_dtype=dtype,
            batch=b,
            heads=h,
            context=c,
        )
        for dtype, b, h, c in itertools.product(
            ("bfloat16", "fp8"), (1, 64), (8, 16, 32, 64, 128), (16, 4096)
        )
    ]
    moe = [
        base(
            framework,
            version,
            (30 + t + 3 * h * i / tp / 1e6 * min(t * 8, 128)) * slower,
            dtype=dtype,
            tokens=t,
            hidden=h,
            inter=i,
            topk=8,
            experts=128,
            moe_tp=tp,
            moe_ep=1,
            distribution="power_law_1.01",
        )
        for framework, version, dtype in (
            ("vllm", "0.24.0", "bfloat16"),
            ("vllm", "0.24.0", "fp8_block"),
            ("trtllm", "1.3.0rc20", "fp8"),
        )
        for t, h, i, tp in itertools.product((1, 16, 256, 4096), (2048, 4096), (768, 1536), (1, 2))
        for slower in (3 if (dtype, h, i, tp) == UNTUNED_SHAPE else 1,)
    ]
    comm = [
        {
            "system": "h100_sxm",
            "library": library,
            "version": version,
            "op": "all_reduce",
            "mode": mode,
            "dtype": "bfloat16",
            "gpus": gpus,
            "elements": size // 2,
            "bytes": size,
            "latency_us": (4 if mode == "graph" else 20) + size / 3e5,
        }
        for library, version, modes in (
            ("vllm", "0.24.0", ("graph", "eager")),
            ("trtllm", "1.3.0rc20", ("graph",)),
        )
        for mode, gpus, size in itertools.product(modes, (2, 4), (256, 4096, 65536, 1 << 20))
    ]
    return {"gemm": gemm, "attention_decode": attention, "mla_decode": mla, "moe": moe, "comm": comm}


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """A folder in the flat layout."""
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("flat")
    for name, rows in _rows().items():
        if name == "comm":
            with (folder / "comm.csv").open("w", newline="", encoding="utf-8") as handle:
                writer = csv.DictWriter(handle, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        else:
            pq.write_table(pyarrow.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """The same rows as the package lays them out, in milliseconds and under its column names."""
    import pyarrow.parquet as pq

    names = {
        "gemm": ("gemm", "gemm_perf", {"dtype": "gemm_dtype"}),
        "attention_decode": (
            "attention",
            "generation_attention_perf",
            {
                "kv_dtype": "kv_cache_dtype",
                "batch": "batch_size",
                "heads": "num_heads",
                "kv_heads": "num_key_value_heads",
            },
        ),
        "mla_decode": (
            "mla",
            "generation_mla_perf",
            {"kv_dtype": "kv_cache_dtype", "batch": "batch_size", "heads": "num_heads"},
        ),
        "moe": (
            "moe",
            "moe_perf",
            {
                "dtype": "moe_dtype",
                "tokens": "num_tokens",
                "hidden": "hidden_size",
                "inter": "inter_size",
                "experts": "num_experts",
                "moe_tp": "moe_tp_size",
                "moe_ep": "moe_ep_size",
            },
        ),
        "comm": ("comm", "custom_allreduce_perf", {"gpus": "num_gpus", "elements": "message_size"}),
    }
    root = tmp_path_factory.mktemp("package")
    for name, rows in _rows().items():
        folder, file, renamed = names[name]
        for row in rows:
            row["latency"] = row.pop("latency_us") / 1000
            row.pop("bytes", None)
            if "context" in row:
                row.update(step=row.pop("context") - 1, isl=1, window_size=0)
            if name == "comm":
                mode = row.pop("mode")
                row |= {"backend": f"vllm_{mode}"} if row["library"] == "vllm" else {}
        owners = sorted({(row.get("framework") or row.get("library"), row["version"]) for row in rows})
        for owner, version in owners:
            own_rows = [
                row
                for row in rows
                if (row.get("framework") or row.get("library"), row["version"]) == (owner, version)
            ]
            where = root / "aiconfigurator_core" / "systems" / "data" / "h100_sxm" / folder / owner / version
            where.mkdir(parents=True, exist_ok=True)
            renamed_rows = [{renamed.get(key, key): value for key, value in row.items()} for row in own_rows]
            pq.write_table(pyarrow.Table.from_pylist(renamed_rows), where / f"{file}.parquet")
    (root / "aiconfigurator_core-9.9.dist-info").mkdir()
    return root


def test_the_same_tables_give_the_same_bytes_and_a_loadable_profile(flat):
    first, second = (dumps(build_profile(flat, "h100-sxm", "2026-01")) for _ in range(2))
    assert first == second
    profile = parse_profile(first, "built.json")
    assert profile.statuses["gemm/fp8"] == "measured"
    assert profile.statuses["prefill"] == "assumed"
    assert profile.provenance["date"] == "2026-01"
    assert profile.gemm("bf16").time_us(2048, 4096, 1) == pytest.approx(4 + 2048 * 4096 * 2 / 3e6, rel=0.02)


def test_experts_of_an_untuned_kernel_are_left_out(flat):
    tables = open_tables(flat, "h100-sxm")
    shapes = {weights: {key[:6] for key in expert_points(tables, weights)} for weights in ("bf16", "fp8")}
    assert shapes["bf16"] - shapes["fp8"] == {(4096, 1536, 8, 128, 2, 1)}


def test_both_layouts_give_the_same_parts(flat, packaged):
    parts = [build_profile(folder, "h100-sxm")["parts"] for folder in (flat, packaged)]
    assert parts[0] == parts[1]
    assert build_profile(packaged, "h100-sxm")["provenance"]["version"] == "9.9"


def test_own_matrices_lose_the_time_that_finds_scales(tmp_path):
    """A checkpoint that brings the scales of its inputs does not pay for finding them; without a table of
    that time there is no part."""
    import pyarrow.parquet as pq

    data = tmp_path / "systems" / "data" / "h100_sxm"

    def write(folder, file, rows):
        where = data / folder / "trtllm" / "1.3.0rc20"
        where.mkdir(parents=True)
        pq.write_table(pyarrow.Table.from_pylist(rows), where / f"{file}.parquet")

    h100 = gpu("h100-sxm")
    peak = h100.peak_flops_per_s["fp8"]
    form = GemmForm(h100.hbm_bandwidth_bytes_per_s, peak, 1.0, 1.0, 5.0, 0.9, 0.7, 2.5, 1e-4, 0.9)
    shapes = [(n, k, m) for (n, k), m in itertools.product(SHAPES, M)]
    linear = {key: float(form.time_us(*key)) for key in shapes}
    finding = {(k, m): 7 + m * k / 1e6 for _, k, m in shapes}
    rows = [
        {"gemm_dtype": "fp8", "m": m, "n": n, "k": k, "latency": (us + finding[k, m]) / 1000}
        for (n, k, m), us in linear.items()
    ]
    write("gemm", "gemm_perf", rows)
    assert own_gemm_points(open_tables(tmp_path, "h100-sxm"), "fp8", TRTLLM) == {}
    scaling = [{"m": m, "k": k, "latency": us / 1000} for (k, m), us in finding.items()]
    write("quantize", "computescale_perf", scaling)
    points = own_gemm_points(open_tables(tmp_path, "h100-sxm"), "fp8", TRTLLM)
    assert points == pytest.approx(linear, abs=2e-3)

    part = fit_gemm(points, "fp8", h100, "made here", form_only=True)
    assert part.table == {}
    operator = Profile("mine", h100, {part.name: part}, {}, "").gemm("fp8")
    for (n, k, m), us in points.items():
        assert float(operator.time_us(n, k, m)) == pytest.approx(us, rel=0.02)


def test_an_exchange_takes_the_faster_kernel_of_every_size(tmp_path):
    """One kernel is for few tokens; the other, with the best number of SMs, for many."""
    import pyarrow.parquet as pq

    where = tmp_path / "systems" / "data" / "h100_sxm" / "comm" / "sglang" / "0.5.6.post2"
    where.mkdir(parents=True)
    shape = {"hidden_size": 7168, "num_topk": 8, "num_experts": 256}
    few = [
        {**shape, "node_num": nodes, "num_token": t, "dispatch_avg_t_us": 10.0 * t, "combine_avg_t_us": 20.0}
        for nodes, t in itertools.product((1, 2), (2, 4, 16))
    ]
    many = [
        {
            **shape,
            "node_num": nodes,
            "num_token": t,
            "dispatch_sms": sms,
            "combine_sms": sms,
            "dispatch_transmit_us": 100.0 + t / sms,
            "dispatch_notify_us": 1.0,
            "combine_transmit_us": 50.0,
            "combine_notify_us": 2.0,
        }
        for nodes, t, sms in itertools.product((1, 2), (1, 4, 16, 64), (8, 20))
    ]
    pq.write_table(pyarrow.Table.from_pylist(few), where / "wideep_deepep_ll_perf.parquet")
    assert exchange_part(open_tables(tmp_path, "h100-sxm")) is None
    pq.write_table(pyarrow.Table.from_pylist(many), where / "wideep_deepep_normal_perf.parquet")
    part = exchange_part(open_tables(tmp_path, "h100-sxm"))
    assert part is not None
    table = {"tokens": [1, 2, 4, 16, 64], "us": [40.0, 40.0, 60.0, 154.0, 156.0]}
    assert part.table == {"8": table, "16": table}


def test_the_command_writes_the_profile_and_reports_errors(flat, tmp_path):
    output = tmp_path / "mine.json"
    arguments = ["--from-tables", str(flat), "--system", "h100-sxm", "-o", str(output)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "gemm/bf16" in done.output
    assert json.loads(output.read_text("utf-8"))["name"] == "h100-sxm"


@pytest.mark.parametrize(("system", "message"), [("h200-sxm", "no gemm table"), ("b900", "unknown GPU")])
def test_missing_tables_are_an_input_error(flat, system, message, tmp_path):
    with pytest.raises(InputError, match=message):
        build_profile(flat, system)
    arguments = ["--from-tables", str(flat), "--system", system, "-o", str(tmp_path / "x.json")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_an_empty_folder_says_what_it_should_hold(tmp_path):
    with pytest.raises(InputError, match=r"no kernel tables of h100-sxm.*gemm\.parquet"):
        open_tables(tmp_path, "h100-sxm")


def test_isotonic_pools_violators_by_weight():
    assert isotonic([1, 3, 2, 4], [1, 1, 1, 1]).tolist() == [1, 2.5, 2.5, 4]
    assert isotonic([3, 0], [1, 3]).tolist() == [0.75, 0.75]


def test_prefill_attention_starts_once_however_many_prompts():
    """Prompts that share a kernel share its start: the fit tells it from what each of them adds."""
    h100 = gpu("h100-sxm")
    points = {}
    for batch, prompt, heads in itertools.product((1, 4, 16, 64), (128, 512, 2048), (8, 32)):
        flops = 2.0 * batch * heads * 128 * prompt * (prompt + 1)
        moved = 4.0 * batch * prompt * (heads + 2) * 128
        us = 12.0 + 1e6 * (flops / (0.7 * 989e12) + moved / (0.4 * h100.hbm_bandwidth_bytes_per_s))
        points[batch, prompt, heads, 2, 128] = us
    part = fit_prefill(points, h100, "made here")
    assert part.number("start_us") == pytest.approx(12.0, rel=0.01)
    assert part.number("compute_efficiency") == pytest.approx(
        0.7 * 989e12 / h100.peak_flops_per_s["bf16"], rel=0.01
    )
    assert part.number("memory_efficiency") == pytest.approx(0.4, rel=0.01)
    assert part.residual["mape_percent"] < 1
    shipped = load_profile("h100-sxm").parts["prefill"]
    assert shipped.residual["mape_percent"] < 10
    assert shipped.residual["n"] > 2000


def test_thin_tables_reproduce_a_power_law():
    at = np.arange(1, 257, dtype=float)
    knots = np.array([1.0, 16.0, 256.0])
    thinned = thin(at[None, :] ** 0.7, at, knots, np.ones(256))
    assert thinned[0] == pytest.approx(knots**0.7, rel=1e-6)
    assert hats(at, knots).sum(axis=1) == pytest.approx(np.ones(256))


def test_significant_digits():
    assert significant([1234.5, 0.0123456, 7]) == [1230.0, 0.0123, 7.0]


def test_medians_group_repeated_measurements():
    columns = {"a": np.array([1, 2, 1, 1]), "us": np.array([3.0, 9.0, 5.0, 100.0])}
    assert medians(columns, ("a",), np.ones(4, dtype=bool)) == {(1,): 5.0, (2,): 9.0}


def test_held_out_never_shows_the_predictor_what_it_is_asked():
    points = {(shape, m): float(1 + shape * 10 + m) for shape in range(20) for m in range(3)}
    asked = []

    def predictor(train):
        seen = {key[0] for key in train}

        def predict(keys):
            assert not seen & set(keys[:, 0].astype(int).tolist())
            asked.extend(keys[:, 0].astype(int).tolist())
            return 1 + keys[:, 0] * 10 + keys[:, 1]

        return predict

    report = held_out(points, (0,), predictor, "shape")
    assert sorted(set(asked)) == list(range(20))
    assert report["n"] == 60
