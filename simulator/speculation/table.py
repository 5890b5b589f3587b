"""The methods as a table: what each needs, what it runs and what it costs, from its record alone.

N: query tokens of a step (decodes and prompt chunks), R: its requests, K: draft length, M: nodes of a tree
with its root, L: its levels, W: window of lookahead decoding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from simulator.models.own_drafter import KINDS
from simulator.speculation.base import Method
from simulator.speculation.shape import Chain, ParallelChain
from simulator.speculation.tree_shape import LookaheadShape


class MethodRow(NamedTuple):
    """One method in words."""

    name: str
    title: str
    source: str
    needs: str
    """What `draft` of a scenario names."""
    serial_passes: str
    rows: str
    """Rows of the first drafter pass, and of each later one."""
    drafts: str
    verified_rows: str
    draft_kv: bool
    kv_slots: str
    """KV slots ahead of each request."""
    budget_slots: str
    """Charged for each request against the token budget in addition to its tokens."""
    host_sync: bool
    """The host needs the tokens before the next step can be composed, where lookups do not run on the GPU."""
    loses_last_match: bool
    engines: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The row under the keys of `decodesim methods`."""
        return {**self._asdict(), "simulated": True}


def method_row(method: Method) -> MethodRow:
    """Return what the table says of a method."""
    shape, tree_only = method.shape, method.default_tree is not None
    either = method.drafts_trees and not tree_only
    drafts, verified = ("M - 1", "M") if tree_only else ("K", "K + 1")
    if either:
        drafts, verified = "K; tree: M - 1", "K + 1; tree: M"
    if method.host_lookup:
        drafts, verified = "K on a match" if method.gpu_lookup else "K or fewer on a match", "drafts + 1"
    if isinstance(shape, LookaheadShape):
        drafts, verified = "2WK", "2WK + 1"
    return MethodRow(
        name=method.name,
        title=method.title,
        source=method.source,
        needs=_needs(method),
        serial_passes=_passes(method),
        rows=_rows(method),
        drafts=drafts,
        verified_rows=verified,
        draft_kv=method.drafter_has_kv,
        kv_slots=_kv_slots(method, tree_only, either),
        budget_slots=_terms(method.slots_per_draft, "K", method.slots_per_request) or "0",
        host_sync=method.host_lookup,
        loses_last_match=method.loses_last_match,
        engines=dict(method.engines),
    )


def _needs(method: Method) -> str:
    if method.drafter is None:
        return "nothing"
    if method.drafter in KINDS:
        return "nothing: it is made of the target"
    if method.draft_from_target:
        return "nothing: it comes with the target"
    return f"{'an' if method.drafter[0] in 'aeio' else 'a'} {method.drafter} drafter"


def _passes(method: Method) -> str:
    shape = method.shape
    if method.drafter is None:
        return "0"
    if not (isinstance(shape, Chain) and shape.serial):
        return "1"
    if method.default_tree is not None:
        return "L"
    return "K; tree: L" if method.drafts_trees else "K"


def _rows(method: Method) -> str:
    if method.drafter is None:
        return "-"
    own = _own_rows(method)
    first = " + ".join(part for part in ("N" if method.first_pass_reads_tokens else "", own) if part)
    if not (isinstance(method.shape, Chain) and method.shape.serial):
        return first
    extended = "R times the nodes extended"
    if method.default_tree is not None:
        return f"{first} / {extended}"
    return f"{first} / R; tree: {extended}" if method.drafts_trees else f"{first} / R"


def _own_rows(method: Method) -> str:
    shape = method.shape
    if isinstance(shape, ParallelChain):
        per_request = _terms(1, "K", shape.further_rows)
        return f"R({per_request})" if shape.further_rows else "RK"
    return "R" if shape.pass_rows(1)[0] else ""


def _kv_slots(method: Method, tree_only: bool, either: bool) -> str:
    if not method.drafter_has_kv:
        return "0"
    if tree_only:
        return "M - 1"
    chain = _terms(1, "K", method.shape.kv_slots(4) - 4)
    return f"{chain}; tree: M - 1" if either else chain


def _terms(factor: int, name: str, constant: int) -> str:
    """`K - 1`, `K`, `1`, or nothing."""
    if not factor:
        return f"{constant}" if constant else ""
    if not constant:
        return name
    return f"{name} {'+' if constant > 0 else '-'} {abs(constant)}"
