"""Fitted values into the presets' files, nothing else of them changed."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from calibration.validation.fit.parameters import PARAMETERS, Values

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def rewrite_presets(values: Values) -> None:
    """Every parameter at its place in `simulator/data/engines/`."""
    folder = Path(str(resources.files("simulator").joinpath("data", "engines")))
    for name in sorted({name for one in PARAMETERS for name in one.presets}):
        file = folder / f"{name}.json"
        file.write_text(rewritten(file.read_text("utf-8"), name, values), "utf-8")


def rewritten(text: str, name: str, values: Values) -> str:
    """The text of the preset `name` with the values in it. Raises ValueError where a field is not there."""
    for one in PARAMETERS:
        if name in one.presets:
            value = format(values[one.name], "g")
            text, count = re.subn(rf'("{one.leaf}": ){_NUMBER}', rf"\g<1>{value}", text, count=1)
            if count != 1:
                raise ValueError(f"preset {name} has no {one.leaf}")
    return text
