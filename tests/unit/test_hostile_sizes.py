"""Times, lengths and contexts that no clock and no memory holds: refused, neither wrapped round nor tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.models.config import model_from_config
from simulator.simulation import simulate
from tests.runs import small_scenario, traffic

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def refused(changes: dict[str, Any]) -> str:
    with pytest.raises(InputError) as error:
        traffic(small_scenario(changes))
    return str(error.value)


def test_a_timeout_within_the_clock_s_reach() -> None:
    with pytest.raises(InputError, match=r"workload\.timeout_s: is out of range"):
        small_scenario({"workload.timeout_s": 1e30})
    late = {"workload.arrivals": {"kind": "poisson", "rate_per_s": 1.5e-8}, "workload.timeout_s": 1e6}
    result = simulate(small_scenario({**late, "run.replications": 1}))
    assert result.variants["plain"]["throughput_tokens_per_s"].value > 0  # type: ignore[union-attr]


def test_arrivals_later_than_never(tmp_path: Path) -> None:
    """2**62 ns mean that no request comes; a rate so low that one comes later is refused, on any driver."""
    rare = {"workload.arrivals": {"kind": "poisson", "rate_per_s": 8e-9}}
    assert "workload.arrivals: the last of 40 arrivals comes after 4.8" in refused(rare)


def test_pauses_that_add_up_beyond_the_clock() -> None:
    think = {"workload.arrivals": {"kind": "closed", "concurrency": 1, "think_time_s": 1e6}}
    assert "workload.arrivals.think_time_s: with its pauses" in refused({**think, "workload.requests": 4000})
    assert len(traffic(small_scenario({**think, "workload.requests": 3900})).arrival_ns) == 3900
    sessions = {"workload.sessions": {"turns": 1000, "gap_s": 1e6}, "workload.arrivals.concurrency": 1}
    assert "workload.sessions.gap_s: with its pauses" in refused({**sessions, "workload.requests": 4000})


@pytest.mark.parametrize("scale", [1e-12, 1e-300])
def test_a_trace_played_too_slowly(tmp_path: Path, scale: float) -> None:
    file = tmp_path / "t.csv"
    file.write_text(AZURE + "2023-11-16 18:17:03,5,5\n2023-11-16 18:18:03,5,5\n", "utf-8")
    arrivals = {"kind": "trace", "file": str(file), "rate_scale": scale}
    assert "workload.arrivals.rate_scale: at this rate" in refused({"workload.arrivals": arrivals})


def test_a_trace_of_ten_thousand_years(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(AZURE + "0001-01-01 00:00:00,5,5\n9999-12-31 00:00:00,5,5\n", "utf-8")
    message = refused({"workload.arrivals": {"kind": "trace", "file": str(file)}})
    assert message.startswith(f"{file}:3: timestamp: comes 3.16e+11 s after the first")


def test_sessions_whose_prompts_fill_no_memory() -> None:
    sessions = {"turns": 1000, "gap_s": 0, "shared_prefix_tokens": 10_000_000}
    changes = {"workload.sessions": sessions, "workload.prompt_tokens.tokens": 10**9}
    assert "workload.sessions: the prompts of all turns hold 51," in refused(changes)


def test_a_context_that_no_table_holds(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "intermediate_size": 14336,
    }
    endless = {**config, "max_position_embeddings": 10**12}
    with pytest.raises(InputError, match=r"max_position_embeddings: is not usable \(got 1000000000000\)"):
        model_from_config(endless, "x", "x")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), "utf-8")  # names no context at all
    changes = {"target.model": str(file), "speculation": [], "run.replications": 1}
    result = simulate(small_scenario(changes))
    assert result.variants["plain"]["mean_batch"].value > 0  # type: ignore[union-attr]
