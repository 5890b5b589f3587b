"""The launch configurations of a plan: what starts each engine with the choice that the plan makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from calibration.launch.registry import artefacts
from experiments.capacity.decision import PLAIN_VERDICTS

if TYPE_CHECKING:
    from calibration.launch.launch import Artefact
    from experiments.capacity.replica import ReplicaSetting
    from experiments.capacity.schedule import Schedule
    from simulator.scenario import Scenario


def launches(
    scenario: Scenario,
    verdict: str,
    plain: ReplicaSetting,
    speculative: ReplicaSetting,
    schedule: Schedule | None,
) -> Mapping[str, Artefact]:
    """Engine → its launch: the speculative setting with a schedule of several rows, or plain decoding."""
    setting = plain if verdict in PLAIN_VERDICTS else speculative
    variant = setting.variant
    if variant is not None and variant.tree is None and schedule is not None and len(schedule.rows) > 1:
        variant = variant.model_copy(update={"draft_length": schedule.rows, "policy": None})
    hardware = scenario.hardware.model_copy(
        update={"tensor_parallel": setting.tensor_parallel, "gpu": setting.gpu}
    )
    return artefacts(scenario.model_copy(update={"hardware": hardware}), variant)
