"""The load that a replica carries within a limit, where queueing theory knows it: M/D/1 and M/M/1.

With one seat and steps of constant length an engine is a queue with one server (`test_queueing_theory.py`).
A limit on the sojourn time is then a limit on the rate, by formula.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.capacity.demand import RATE, USERS
from experiments.capacity.load_search import SATURATION, Capacity, LoadSearch
from experiments.capacity.replica import Replica, ReplicaSetting
from experiments.capacity.slo import slo_from_text
from simulator.numerics.roots import bracketed_root
from simulator.results.estimate import student_t95
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from tests import closed_forms
from tests.runs import constant_steps, small_scenario

SIGMAS = 3.0
SERVICE_S = 1e-3
TOKENS = 100
"""Steps of a service in the mean, where it is not one."""
REPLICATIONS = 12
_COMPILE = CompiledVariant.compile


def capacity(
    monkeypatch: pytest.MonkeyPatch, slo: str, step_s: float, kind: str = RATE, **changes: Any
) -> Capacity:
    """What one seat with constant steps carries."""

    def compiled(scenario: Scenario, variant: None) -> CompiledVariant:
        return constant_steps(_COMPILE(scenario, variant), round(step_s * 1e9))

    monkeypatch.setattr(CompiledVariant, "compile", staticmethod(compiled))
    scenario = small_scenario(
        {
            "engine.max_num_seqs": 1,
            "workload.prompt_tokens.tokens": 1,
            "workload.output_tokens.tokens": 1,
            **changes,
        }
    )
    replica = Replica(scenario, ReplicaSetting(None, 1, "h100-sxm"), slo_from_text(slo))
    return LoadSearch(replica, kind, REPLICATIONS, band=0.0).capacity()


def geometric_lengths(folder: Path) -> str:
    """A file of lengths that are exponential but for the grain of a token."""
    file = folder / "lengths"
    lengths = np.random.default_rng(0).geometric(1 / TOKENS, 20_000)
    file.write_text("\n".join(map(str, lengths)), encoding="utf-8")
    return str(file)


def load_for_mean(sojourn_s: float, service_cv: float) -> float:
    """The rate at which wait + service of M/G/1 take so long in the mean."""
    return bracketed_root(
        lambda rate: closed_forms.mg1_wait_s(rate, SERVICE_S, service_cv) + SERVICE_S - sojourn_s,
        1e-3 / SERVICE_S,
        0.999 / SERVICE_S,
    )


def score(result: Capacity, claimed: float) -> float:
    """How many standard errors a claimed rate is off."""
    assert result.amount is not None
    return abs(result.amount.value - claimed) / (result.amount.half_width / student_t95(REPLICATIONS - 1))


@pytest.mark.parametrize("sojourn_in_services", [1.5, 3.0])
def test_constant_service_carries_the_rate_of_m_d_1(
    monkeypatch: pytest.MonkeyPatch, sojourn_in_services: float
) -> None:
    limit_s = sojourn_in_services * SERVICE_S
    result = capacity(monkeypatch, f"e2e_mean={limit_s}s", SERVICE_S)
    assert result.limited_by == "end to end mean"
    assert score(result, load_for_mean(limit_s, 0.0)) < SIGMAS
    assert score(result, load_for_mean(limit_s, 1.0)) > 3 * SIGMAS, "M/M/1 would carry less"


@pytest.mark.parametrize("sojourn_in_services", [2.0, 3.0])
def test_exponential_service_carries_the_rate_of_m_m_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sojourn_in_services: float
) -> None:
    limit_s = sojourn_in_services * SERVICE_S
    lengths = {"kind": "empirical", "file": geometric_lengths(tmp_path)}
    result = capacity(
        monkeypatch, f"e2e_mean={limit_s}s", SERVICE_S / TOKENS, **{"workload.output_tokens": lengths}
    )
    assert score(result, 1 / SERVICE_S - 1 / limit_s) < SIGMAS, "μ − 1 / W"
    assert score(result, load_for_mean(limit_s, 0.0)) > SIGMAS, "M/D/1 would carry more"


def test_a_percentile_limits_the_rate_as_in_m_m_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit_s = 6 * SERVICE_S
    lengths = {"kind": "empirical", "file": geometric_lengths(tmp_path)}
    result = capacity(
        monkeypatch, f"e2e_p90={limit_s}s", SERVICE_S / TOKENS, **{"workload.output_tokens": lengths}
    )
    exact = 1 / SERVICE_S - math.log(10) / limit_s
    assert closed_forms.mm1_sojourn_quantile_s(exact, SERVICE_S, 0.9) == pytest.approx(limit_s)
    assert score(result, exact) < SIGMAS


def test_without_a_limit_that_binds_a_server_carries_what_saturates_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = capacity(monkeypatch, "ttft_mean=1000s", SERVICE_S)
    assert result.limited_by == SATURATION
    assert result.amount == result.saturation_load
    assert result.saturation_load.value == pytest.approx(1 / SERVICE_S, rel=1e-9)


def test_a_limit_below_the_service_time_is_kept_at_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    result = capacity(monkeypatch, f"ttft_mean={0.8 * SERVICE_S}s", SERVICE_S)
    assert result.amount is None
    assert result.idle.ratio == pytest.approx(1 / 0.8)
    assert result.idle.value == pytest.approx(SERVICE_S)


def test_users_who_never_pause_fill_a_seat_each(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = {"workload.arrivals": {"kind": "closed", "concurrency": 5}}
    result = capacity(monkeypatch, "e2e_mean=1s", SERVICE_S, USERS, **closed)
    assert (result.limited_by, result.amount) == (SATURATION, result.saturation_load)
    assert result.saturation_load.value == 1


def test_users_who_pause_leave_their_seat_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine repairman with constant times: ten users, each away for nine and a half services,
    never meet."""
    closed = {
        "workload.arrivals": {"kind": "closed", "concurrency": 5, "think_time_s": 9.5 * SERVICE_S},
    }
    result = capacity(monkeypatch, f"e2e_mean={1.5 * SERVICE_S}s", SERVICE_S, USERS, **closed)
    assert (result.limited_by, result.amount) == (SATURATION, result.saturation_load)
    assert result.saturation_load.value == 10
