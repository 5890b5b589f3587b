"""Writes fitted values into the preset files and changes nothing else in them."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from calibration.validation.fit.parameters import PARAMETERS, Values

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def rewrite_presets(values: Values) -> None:
    """Write every parameter to its place in `simulator/data/engines/`."""
    folder = Path(str(resources.files("simulator").joinpath("data", "engines")))
    for name in sorted({name for parameter in PARAMETERS for name in parameter.presets}):
        file = folder / f"{name}.json"
        file.write_text(rewritten(file.read_text("utf-8"), name, values), "utf-8")


def rewritten(text: str, name: str, values: Values) -> str:
    """The text of the preset `name` with the values in it. Raises ValueError where a field is missing."""
    for parameter in PARAMETERS:
        if name in parameter.presets:
            value = format(values[parameter.name], "g")
            text, count = re.subn(
                rf'("{parameter.preset_field}": ){_NUMBER}', rf"\g<1>{value}", text, count=1
            )
            if count != 1:
                raise ValueError(f"preset {name} has no {parameter.preset_field}")
    return text
