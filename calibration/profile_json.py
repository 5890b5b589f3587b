"""The text of a profile file: one line per coefficient set and table row, so that two files are easy to
compare.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LONG_ROW = 40


def dumps(profile: Mapping[str, Any]) -> str:
    """The JSON text of a profile."""
    head = {key: value for key, value in profile.items() if key != "parts"}
    lines = ["{"]
    for key, value in head.items():
        lines.append(f"  {json.dumps(key)}: {_json(value)},")
    lines.append('  "parts": [')
    for i, part in enumerate(profile["parts"]):
        lines += ["    {", *_part_lines(part), "    }" + ("," if i + 1 < len(profile["parts"]) else "")]
    return "\n".join([*lines, "  ]", "}"]) + "\n"


def _part_lines(part: Mapping[str, Any]) -> list[str]:
    fields = [f"      {json.dumps(key)}: {_json(value)}" for key, value in part.items() if key != "table"]
    rows = [f"        {json.dumps(key)}: {_rows(value)}" for key, value in part["table"].items()]
    table = "{\n" + ",\n".join(rows) + "\n      }" if rows else "{}"
    return (",\n".join([*fields, f'      "table": {table}'])).split("\n")


def _rows(value: Any) -> str:
    """Long rows of a table on separate lines, everything else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        rows = [_json(row) for row in value]
        if len(rows[0]) > _LONG_ROW:
            return "[\n" + ",\n".join(rows) + "]"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(_integers(value), ensure_ascii=False, separators=(",", ":"))


def _integers(value: Any) -> Any:
    """Integral floats as integers, which need fewer bytes."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_integers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _integers(item) for key, item in value.items()}
    return value
