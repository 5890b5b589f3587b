"""The compiled step as plain Python: the same functions, one of which a test may edit, without a compiler.

`interpret` follows a compiled function to all that it calls and makes a Python function of each, from the
same code. What only machine code has is replaced: arrays at an address, records with fields as attributes,
the bits of a float.
"""

from __future__ import annotations

import ast
import inspect
import struct
import textwrap
from collections.abc import Callable
from functools import cache, wraps
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

from simulator.numerics import compiled, random_numbers


class Edit(NamedTuple):
    """A change of one compiled function: its syntax tree, changed in place."""

    function: Any
    change: Callable[[ast.FunctionDef], None]


@cache
def element_type(dtype: np.dtype[Any]) -> Any:
    """Return the ctypes type of a dtype; fields of a record can also be read by name, as the views do."""
    element = np.ctypeslib.as_ctypes_type(dtype)
    if dtype.names:
        element.__getitem__ = lambda record, name: getattr(record, name)
    return element


def elements_at(address: int, length: int, dtype: Any) -> Any:
    """Return the elements that lie at an address; reading and writing them reads and writes the memory."""
    return (element_type(np.dtype(dtype)) * length).from_address(address)


def float_bits(value: float) -> int:
    """Return the 64 bits of a float as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


SUBSTITUTES: dict[int, Any] = {
    id(carray): elements_at,
    id(compiled.pointer): int,
    id(compiled.float_bits): float_bits,
}
"""What Python calls instead, by identity of what the compiled code calls."""


def with_plain_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function return Python's numbers instead of numpy's. The wrap-around of its hash is intended."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            number = function(*arguments)
        return number.item() if isinstance(number, np.generic) else number

    return call


def interpret(function: Any, edit: Edit | None = None) -> Callable[..., Any]:
    """Return a compiled function, and all that it calls, as plain Python, with one of them edited."""
    translated: dict[int, Any] = {}

    def translate(value: Any) -> Any:
        if not isinstance(value, CPUDispatcher):
            return SUBSTITUTES.get(id(value), value)
        if id(value) not in translated:
            original: Any = value.py_func  # type: ignore[attr-defined]
            names: dict[str, Any] = {}
            if edit is not None and value is edit.function:
                plain = edited(original, edit.change, names)
            else:
                cells = tuple(CellType(translate(cell.cell_contents)) for cell in original.__closure__ or ())
                plain = FunctionType(original.__code__, names, None, original.__defaults__, cells)
            if original.__module__ == random_numbers.__name__:
                plain = with_plain_numbers(plain)
            translated[id(value)] = plain
            names |= {name: translate(held) for name, held in original.__globals__.items()}
        return translated[id(value)]

    return translate(function)  # type: ignore[no-any-return]


def edited(
    function: Any, change: Callable[[ast.FunctionDef], None], names: dict[str, Any]
) -> Callable[..., Any]:
    """Return the function after a change of its syntax tree, with `names` as its globals."""
    source = textwrap.dedent(inspect.getsource(function))
    module = ast.parse(f"from __future__ import annotations\n{source}")
    definition = module.body[1]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    change(definition)
    ast.fix_missing_locations(module)
    exec(compile(module, f"<edited {function.__name__}>", "exec"), names)
    return names[definition.name]  # type: ignore[no-any-return]
