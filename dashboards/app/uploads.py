"""Telemetry that a page uploads: read as `decodesim read` reads files, and never trusted."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dash import Dash, Input, Output, State, html, no_update

from dashboards.app.layout import control_id
from dashboards.app.wiring import on
from simulator.errors import InputError


def connect_uploads(app: Dash) -> None:
    """Read what is uploaded, and offer its acceptance to the control of α."""

    @on(
        app,
        Output("upload-answer", "children"),
        Output("measured", "data"),
        Output("use-alpha", "hidden"),
        Input("upload", "contents"),
        State("upload", "filename"),
        prevent_initial_call=True,
    )
    def read_files(contents: Sequence[str] | None, names: Sequence[str]) -> list[Any]:
        if not contents:
            return [no_update, no_update, no_update]
        try:
            document = read_uploads(names, contents)
        except InputError as error:
            return [str(error), None, True]
        alpha = document["geometric_alpha"]
        lines = measured_lines(document)
        return [[html.P(line) for line in lines], alpha, alpha is None]

    @on(
        app,
        Output(control_id("alpha"), "value", allow_duplicate=True),
        Input("use-alpha", "n_clicks"),
        State("measured", "data"),
        prevent_initial_call=True,
    )
    def use_alpha(_: int, alpha: float | None) -> Any:
        return no_update if alpha is None else round(alpha, 3)


def read_uploads(names: Sequence[str], contents: Sequence[str]) -> dict[str, Any]:
    """What `decodesim read` says of uploaded files. Raises InputError, with the files' own names."""
    from calibration.telemetry.answer import read

    with tempfile.TemporaryDirectory(prefix="decodesim-") as folder:
        paths = []
        for index, (name, content) in enumerate(zip(names, contents, strict=True)):
            path = Path(folder) / str(index) / Path(name.replace("\\", "/")).name.replace("\0", "")[:200]
            path.parent.mkdir()
            path.write_bytes(_decoded(name, content))
            paths.append(str(path))
        try:
            return read(paths).to_json()
        except InputError as error:
            text = str(error)
            for index in range(len(paths)):
                text = text.replace(f"{folder}/{index}/", "")
            raise InputError(text) from None


def _decoded(name: str, content: str) -> bytes:
    try:
        return base64.b64decode(content.partition(",")[2], validate=True)
    except binascii.Error:
        raise InputError(f"{name[:80]}: was not uploaded whole") from None


def measured_lines(document: Mapping[str, Any]) -> list[str]:
    """What a reading says, a line each: acceptance, α, tokens per step, findings, notes."""
    lines = []
    length = document["mean_acceptance_length"]
    if length is not None:
        ends = length.get("ci95")
        bounds = f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else ""
        lines.append(f"Mean acceptance length {length['value']:.2f}{bounds}.")
    if document["geometric_alpha"] is not None:
        lines.append(f"α {document['geometric_alpha']:.2f}, if it is equal for all drafts.")
    if document["tokens_per_step"] is not None:
        lines.append(f"{document['tokens_per_step']:.2f} tokens per decode step.")
    lines += [f"{finding['severity']}: {finding['text']}" for finding in document["health"]]
    return [*lines, *document["notes"]]
