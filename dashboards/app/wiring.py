"""Dash's ways to connect a page, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dash import Dash

Callback = TypeVar("Callback", bound=Callable[..., Any])


def on(app: Dash, *inputs_and_outputs: Any, **options: Any) -> Callable[[Callback], Callback]:
    """`Dash.callback`, with types."""
    decorate: Callable[[Callback], Callback] = app.callback(*inputs_and_outputs, **options)
    return decorate


def in_browser(app: Dash, script: str, *inputs_and_outputs: Any, **options: Any) -> None:
    """`Dash.clientside_callback`, with types: the page runs the script."""
    app.clientside_callback(script, *inputs_and_outputs, **options)  # type: ignore[no-untyped-call]
