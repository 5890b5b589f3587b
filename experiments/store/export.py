"""Exports the cells of a store to a Parquet or CSV file, which appears under its name when it is complete.

The file is written in pieces, so that memory does not grow with the number of cells.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.store.columns import INTEGER, REAL, TEXT, StoreColumn
from experiments.store.reader import StoreReader
from simulator.errors import InputError, Problem
from simulator.files import whole_file

ExportedRows = Iterator[tuple[Any, ...]]

_PIECE = 10_000
"""Rows written together: a row group of a Parquet file."""


def export(
    store: StoreReader, path: str | Path, where: str | None = None, columns: Sequence[str] | None = None
) -> int:
    """Write the cells that meet `where` to a `.parquet` or `.csv` file; returns their number.

    Missing figures are null (empty in CSV). Raises InputError for another suffix, and for Parquet without
    pyarrow.
    """
    path = Path(path)
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        message, allowed = "has no known ending", " or ".join(_WRITERS)
        raise InputError(Problem(field="--export", value=str(path), message=message, allowed=allowed))
    exported_columns = store.columns_named(columns)
    rows = store.values(where, [column.name for column in exported_columns])
    try:
        with whole_file(path) as part:
            return write(part, rows, exported_columns, store.about)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(Problem(file=str(path), message=f"cannot be written: {reason.lower()}")) from error


def _write_csv(
    path: Path, rows: ExportedRows, columns: Sequence[StoreColumn], about: Mapping[str, str]
) -> int:
    """Uses pyarrow if it is installed, which formats numbers five times as fast, with the same result."""
    count = 0
    if find_spec("pyarrow") is not None:
        from pyarrow import csv as arrow

        schema = _schema(columns, about)
        with arrow.CSVWriter(path, schema, write_options=arrow.WriteOptions(quoting_style="needed")) as out:
            for table in _tables(rows, columns, schema):
                out.write_table(table)
                count += len(table)
        return count
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        for piece in _pieces(rows):
            writer.writerows(piece)
            count += len(piece)
    return count


def _write_parquet(
    path: Path, rows: ExportedRows, columns: Sequence[StoreColumn], about: Mapping[str, str]
) -> int:
    if find_spec("pyarrow") is None:
        message, allowed = "needs pyarrow", "pip install 'decodesim[parquet]', or export to .csv"
        raise InputError(Problem(field="--export", value=".parquet", message=message, allowed=allowed))
    from pyarrow import parquet

    schema, count = _schema(columns, about), 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as out:
        for table in _tables(rows, columns, schema):
            out.write_table(table)
            count += len(table)
    return count


def _schema(columns: Sequence[StoreColumn], about: Mapping[str, str]) -> Any:
    """Each field with its unit and meaning, the whole with the study and the version of the code."""
    import pyarrow as pa

    types = {INTEGER: pa.int64(), REAL: pa.float64(), TEXT: pa.string()}
    fields = [
        pa.field(column.name, types[column.kind], metadata={"unit": column.unit, "meaning": column.meaning})
        for column in columns
    ]
    return pa.schema(fields, metadata={f"decodesim.{name}": about[name] for name in ("study", "version")})


def _tables(rows: ExportedRows, columns: Sequence[StoreColumn], schema: Any) -> Iterator[Any]:
    import pyarrow as pa

    for piece in _pieces(rows):
        values = [
            _texts(cells) if column.kind == TEXT else cells
            for column, cells in zip(columns, zip(*piece, strict=True), strict=True)
        ]
        yield pa.table([pa.array(v, type=f.type) for v, f in zip(values, schema, strict=True)], schema=schema)


def _texts(values: Sequence[Any]) -> list[str | None]:
    """Values of a text column, with its numbers converted to text."""
    return [value if value is None or isinstance(value, str) else str(value) for value in values]


def _pieces(rows: ExportedRows) -> Iterator[list[tuple[Any, ...]]]:
    while piece := list(islice(rows, _PIECE)):
        yield piece


_Write = Callable[[Path, ExportedRows, Sequence[StoreColumn], Mapping[str, str]], int]
_WRITERS: Mapping[str, _Write] = {".parquet": _write_parquet, ".csv": _write_csv}
