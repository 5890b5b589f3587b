"""What the step reads of a workload: columns of its requests."""

from __future__ import annotations

from typing import Protocol

from simulator.acceptance.tables import RequestColumns
from simulator.numerics.arrays import Ints


class RequestTable(RequestColumns, Protocol):
    """n requests in issue order; the workload's `Requests` has these columns, and more."""

    @property
    def arrival_ns(self) -> Ints:
        """Arrivals (n,); -1: unknown until a client or a session issues the request."""

    @property
    def prompt_tokens(self) -> Ints:
        """Prompt tokens (n,)."""

    @property
    def cancel_after_tokens(self) -> Ints:
        """Output tokens (n,) after which the client cancels; 0: never."""

    @property
    def successor(self) -> Ints:
        """Next turn of the session (n,); -1: none."""

    @property
    def successor_delay_ns(self) -> Ints:
        """From the end of a request to the arrival of its successor (n,)."""

    @property
    def prefix_start(self) -> Ints:
        """Where the hash blocks of each request begin in `prefix_ids` (n + 1,)."""

    @property
    def prefix_ids(self) -> Ints:
        """Leading full hash blocks of all prompts, one request after another."""

    @property
    def prefix_block_tokens(self) -> int:
        """Tokens of one hash block; 0: no prefix is shared."""
