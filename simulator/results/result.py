"""`Result`: what a simulation answers, with all it rests on;
the one writer of result files and the one reader.

A result folder holds `result.json`, which is what `simulate --json` prints, and one `requests-ARM.npz` per
variant with every request of every replication. The same seed gives the same bytes of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from simulator.errors import InputError, Problem, reason
from simulator.files import read_json, whole_file
from simulator.results.comparison import Comparison, comparison_from_json
from simulator.results.variant_summary import VariantSummary, summary_from_json
from simulator.results.verdict import LOSES, NO_VERDICT, PAYS, UNDECIDED

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

SCHEMA = "decodesim/simulate-1"
RESULT_FILE = "result.json"


@dataclass(frozen=True)
class Provenance:
    """What a result rests on. `backend_reason` says why engines went stage by stage, None when they leapt.

    `requests` of each replication, of which those from the first up to the second of `measured_requests`
    are measured.
    """

    version: str
    seed: int
    scenario_sha256: str
    profile: str
    profile_sha256: str
    preset: str
    backend: str
    backend_reason: str | None = None
    defaults_used: Mapping[str, Any] = field(default_factory=dict)
    replications: int = 1
    requests: int | None = None
    measured_requests: Sequence[int] | None = None


@dataclass(frozen=True)
class Result:
    """The variants of one scenario, plain first, each speculative one compared with it.

    `scenario` is the scenario with every default written out, as a mapping. `records` holds the runs of
    every variant; they are not in the JSON, and empty in a result read from a single file.
    """

    scenario: Mapping[str, Any]
    provenance: Provenance
    variants: Mapping[str, VariantSummary]
    comparison: Mapping[str, Comparison]
    notes: tuple[str, ...] = ()
    records: Mapping[str, tuple[RunRecord, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim simulate --json`."""
        return {
            "schema": SCHEMA,
            "arms": {name: variant.to_json() for name, variant in self.variants.items()},
            "comparison": {name: comparison.to_json() for name, comparison in self.comparison.items()},
            "provenance": asdict(self.provenance),
            "notes": [
                *self.notes,
                *(f"{name}: {note}" for name, variant in self.variants.items() for note in variant.notes),
            ],
            "scenario": dict(self.scenario),
        }

    def write(self, folder: str | Path) -> Path:
        """Write the result into a folder, created on demand; returns the path of its `result.json`."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, records in self.records.items():
                with whole_file(folder / _requests_file(name)) as part, open(part, "wb") as stream:
                    np.savez_compressed(stream, **_to_arrays(records))
            path = folder / RESULT_FILE
            with whole_file(path) as part:
                part.write_text(dump_json(self.to_json()), encoding="utf-8")
        except OSError as error:
            raise InputError(
                Problem(file=str(folder), message=f"cannot be written: {reason(error)}")
            ) from error
        return path


def dump_json(document: Any) -> str:
    """The one text form of every JSON document: keys in their order, no NaN, a newline at the end."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_results(path: str | Path) -> list[Result]:
    """The results at a path: a `result.json`, a folder with one, or a folder of such folders (by name).

    Raises InputError when there is none, or one is damaged or of a schema that this version does not know.
    """
    path = Path(path)
    if path.is_dir():
        files = (
            [path / RESULT_FILE] if (path / RESULT_FILE).exists() else sorted(path.glob(f"*/{RESULT_FILE}"))
        )
    else:
        files = [path]
    if not files:
        raise InputError(
            Problem(file=str(path), message="holds no result", allowed=f"a folder with {RESULT_FILE}")
        )
    return [_read(file) for file in files]


def _read(file: Path) -> Result:
    document = read_json(file)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise InputError(
            Problem(
                file=str(file),
                field="schema",
                value=schema,
                message="not a result of this version",
                allowed=f'"{SCHEMA}"',
            )
        )
    try:
        variants = {name: summary_from_json(variant) for name, variant in document["arms"].items()}
        comparison = {name: comparison_from_json(entry) for name, entry in document["comparison"].items()}
        known = {entry.name for entry in fields(Provenance)}
        provenance = Provenance(
            **{key: value for key, value in document["provenance"].items() if key in known}
        )
        notes, scenario = tuple(document["notes"]), document["scenario"]
        damage = _damage(variants, comparison, provenance, notes, scenario)
        if damage:
            raise TypeError(damage)
    except KeyError as error:
        message = f"is damaged: {error} is missing"
        raise InputError(Problem(file=str(file), message=message)) from error
    except (TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise error.at(file=str(file)) from error
        raise InputError(Problem(file=str(file), message=f"is damaged: {error}")) from error
    requests_files = {name: file.parent / _requests_file(name) for name in variants}
    for name, place in requests_files.items():
        older = file.parent / f"requests-{name.replace('/', '_')}.npz"  # up to 0.1
        if "/" in name and not place.exists() and older.exists() and name.replace("/", "_") not in variants:
            requests_files[name] = older
    records = {name: _from_arrays(place) for name, place in requests_files.items() if place.exists()}
    return Result(scenario, provenance, variants, comparison, notes, records)


def _damage(
    variants: Mapping[str, VariantSummary],
    comparison: Mapping[str, Comparison],
    provenance: Provenance,
    notes: tuple[object, ...],
    scenario: object,
) -> str | None:
    """What no result has, so that pages need not expect it."""
    from simulator.scenario import PLAIN

    if PLAIN not in variants:
        return f"the variant {PLAIN} is missing"
    strangers = [name for name in comparison if name not in variants]
    if strangers:
        return f"{strangers[0]} is compared, but is no variant"
    for name, entry in comparison.items():
        if entry.verdict.outcome not in (PAYS, LOSES, UNDECIDED, NO_VERDICT):
            return f"{name}: unknown verdict {entry.verdict.outcome!r}"
    texts = [notes, [entry.verdict.sentence for entry in comparison.values()]]
    if not all(isinstance(text, str) for group in texts for text in group):
        return "a note or a reason is no text"
    if not isinstance(scenario, dict) or not isinstance(provenance.defaults_used, dict):
        return "scenario or defaults_used is no mapping"
    return None


def _requests_file(variant: str) -> str:
    """The file of a variant's requests: signs that file systems refuse are written as in an address."""
    text = "".join(quote(sign, safe="") if sign in _REFUSED else sign for sign in variant)
    return f"requests-{text}.npz"


_REFUSED = '/\\%:*?"<>|'


def _to_arrays(records: tuple[RunRecord, ...]) -> dict[str, Any]:
    """Arrays under `INDEX.field`, everything else as JSON text under `INDEX`."""
    arrays: dict[str, Any] = {}
    for index, record in enumerate(records):
        plain: dict[str, Any] = {}
        for entry in fields(record):
            value = getattr(record, entry.name)
            if isinstance(value, np.ndarray):
                arrays[f"{index}.{entry.name}"] = value
            else:
                plain[entry.name] = value
        arrays[str(index)] = np.array(json.dumps(plain))
    return arrays


def _from_arrays(file: Path) -> tuple[RunRecord, ...]:
    import zipfile

    from simulator.results.record import RunRecord

    try:
        with np.load(file, allow_pickle=False) as arrays:
            count = sum("." not in name for name in arrays)
            records = []
            for index in range(count):
                values = json.loads(str(arrays[str(index)]))
                prefix = f"{index}."
                values |= {
                    name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)
                }
                records.append(RunRecord(**values))
        return tuple(records)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(Problem(file=str(file), message=f"is damaged: {error}")) from error
