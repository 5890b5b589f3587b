"""The scenario file: schema, loading with places, `--set`, flags, and writing it back.

`load_scenario(path, overrides)` reads and checks a file; everything that is wrong is reported at once,
each with its line and column. What each key means is in the `description` of its field.
"""

from simulator.scenario.acceptance import (
    Acceptance,
    AcceptanceDecay,
    AcceptanceFixed,
    AcceptanceGated,
    AcceptanceGeometric,
    AcceptanceHierarchical,
    AcceptancePositional,
    AcceptanceTrace,
)
from simulator.scenario.arrivals import (
    Arrivals,
    ArrivalsBurst,
    ArrivalsClosed,
    ArrivalsGamma,
    ArrivalsPoisson,
    ArrivalsProfile,
    ArrivalsTrace,
)
from simulator.scenario.defaults import defaults_used, engine_preset, memory_bytes
from simulator.scenario.flags import scenario_from_flags
from simulator.scenario.lengths import (
    Lengths,
    LengthsEmpirical,
    LengthsFixed,
    LengthsLognormal,
    LengthsUniform,
)
from simulator.scenario.load import load_scenario, parse_scenario, scenario_from_data
from simulator.scenario.parts import (
    acceptance_basis,
    assumed_acceptance,
    chosen_variant,
    given_acceptance,
    with_workload,
)
from simulator.scenario.policy import AdaptivePolicy
from simulator.scenario.schema import (
    EngineSection,
    HardwareSection,
    HostOverrides,
    Mechanisms,
    RunSection,
    Scenario,
    SloSection,
    TargetSection,
)
from simulator.scenario.speculation import PLAIN, GoodputPolicy, Tree, Variant
from simulator.scenario.workload import OTHER_CLASS, Sessions, TrafficClass, Workload
from simulator.scenario.write import relocated, scenario_yaml

__all__ = [
    "OTHER_CLASS",
    "PLAIN",
    "Acceptance",
    "AcceptanceDecay",
    "AcceptanceFixed",
    "AcceptanceGated",
    "AcceptanceGeometric",
    "AcceptanceHierarchical",
    "AcceptancePositional",
    "AcceptanceTrace",
    "AdaptivePolicy",
    "Arrivals",
    "ArrivalsBurst",
    "ArrivalsClosed",
    "ArrivalsGamma",
    "ArrivalsPoisson",
    "ArrivalsProfile",
    "ArrivalsTrace",
    "EngineSection",
    "GoodputPolicy",
    "HardwareSection",
    "HostOverrides",
    "Lengths",
    "LengthsEmpirical",
    "LengthsFixed",
    "LengthsLognormal",
    "LengthsUniform",
    "Mechanisms",
    "RunSection",
    "Scenario",
    "Sessions",
    "SloSection",
    "TargetSection",
    "TrafficClass",
    "Tree",
    "Variant",
    "Workload",
    "acceptance_basis",
    "assumed_acceptance",
    "chosen_variant",
    "defaults_used",
    "engine_preset",
    "given_acceptance",
    "load_scenario",
    "memory_bytes",
    "parse_scenario",
    "relocated",
    "scenario_from_data",
    "scenario_from_flags",
    "scenario_yaml",
    "with_workload",
]
