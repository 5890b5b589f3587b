"""How many drafts of a round are accepted: acceptance models, and their compiled form
(docs/acceptance.md).
"""

from simulator.acceptance.base import (
    GATED,
    TABLE,
    TRACE,
    AcceptanceEntry,
    AcceptanceModel,
    LookupMatch,
    RequestEffects,
)
from simulator.acceptance.chains import Decay, Fixed, Geometric, Positional
from simulator.acceptance.files import model_from_file
from simulator.acceptance.gated import Gated
from simulator.acceptance.hierarchical import Hierarchical
from simulator.acceptance.ranked import Ranked
from simulator.acceptance.registry import MODELS, acceptance_model
from simulator.acceptance.tables import AcceptanceTables, compile_acceptance
from simulator.acceptance.trace import ReplayedAcceptance, read_sequences
from simulator.acceptance.tree import TreeAcceptance, planned_tree

__all__ = [
    "GATED",
    "MODELS",
    "TABLE",
    "TRACE",
    "AcceptanceEntry",
    "AcceptanceModel",
    "AcceptanceTables",
    "Decay",
    "Fixed",
    "Gated",
    "Geometric",
    "Hierarchical",
    "LookupMatch",
    "Positional",
    "Ranked",
    "ReplayedAcceptance",
    "RequestEffects",
    "TreeAcceptance",
    "acceptance_model",
    "compile_acceptance",
    "model_from_file",
    "planned_tree",
    "read_sequences",
]
