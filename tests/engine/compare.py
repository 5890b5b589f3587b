"""This project's step against traces of vLLM's own scheduler, scenario by scenario.

    python -m tests.engine.compare TRACES.jsonl.gz [--json] [--first N]

Prints per family how many scenarios agree in every step and emission (`equal`), and how many agree in
preempted requests and free blocks as well (`equal_with_blocks`). `--first N` shows N first differences.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine.step_trace import StepTrace, trace_of


@dataclass
class Agreement:
    """How many scenarios of a family agree."""

    n: int = 0
    equal: int = 0
    equal_with_blocks: int = 0

    def count(self, difference: Difference) -> None:
        """Add one scenario."""
        self.n += 1
        self.equal += difference.equal
        self.equal_with_blocks += difference.equal_with_blocks

    def to_json(self) -> dict[str, int]:
        """The counts under their names."""
        return dict(vars(self))


@dataclass(frozen=True)
class Difference:
    """What the step and the engine did with one scenario, side by side."""

    name: str
    family: str
    simulated: StepTrace
    engine: StepTrace

    @property
    def equal(self) -> bool:
        """Whether every step holds the same entries in the same order, and every emission is the same."""
        return (
            _entries(self.simulated) == _entries(self.engine)
            and self.simulated.emissions == self.engine.emissions
        )

    @property
    def equal_with_blocks(self) -> bool:
        """Whether preempted requests and free blocks agree too."""
        return self.simulated == self.engine

    @property
    def first(self) -> str:
        """The first step that differs, or the first emission."""
        pairs = [
            (simulated_step, engine)
            for simulated_step, engine in zip(self.simulated.steps, self.engine.steps, strict=False)
        ]
        at = next(
            (index for index, (simulated_step, engine) in enumerate(pairs) if simulated_step != engine),
            len(pairs),
        )
        simulated_steps, engine = self.simulated.steps[at : at + 1], self.engine.steps[at : at + 1]
        if not simulated_steps and not engine:
            return f"{self.name}: emissions differ"
        return f"{self.name}: step {at}\n  simulated {simulated_steps}\n  engine    {engine}"


def read_traces(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a trace file, gzipped or not."""
    reader = gzip.open if path.suffix == ".gz" else open
    with reader(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def differences(documents: Iterable[dict[str, Any]]) -> Iterator[Difference]:
    """Run the step on each scenario. An engine that did not end a scenario is an error of the file."""
    for document in documents:
        scenario, engine = document["scenario"], document.get("vllm") or document["sglang"]
        if engine["how"] != "done":
            raise ValueError(f"{scenario['id']}: the engine did not end it: {engine['how']}")
        recorded = StepTrace(engine["steps"], engine["emissions"])
        simulated_trace = trace_of(scenario, verifies_padding=verifies_padding(recorded))
        yield Difference(scenario["id"], document["family"], simulated_trace, recorded)


def verifies_padding(trace: StepTrace) -> bool:
    """Whether the model of a recording accepted rows that only padded a request's first decode.

    The engine's scheduler gives such rows to the model, whose answer is none of the scheduler's decisions.
    The scenarios do not fix it, and recordings exist with either answer.
    """
    admitted: set[int] = set()
    for time_ns, entries, preempted, _ in trace.steps:
        for request, _, drafts in entries:
            emissions = trace.emissions[request]
            following = next((tokens for emitted_ns, tokens in emissions if emitted_ns > time_ns), 0)
            if request not in admitted and drafts > 0 and following > 1:
                return True
            admitted.add(request)
        admitted -= set(preempted)
    return False


def agreement_of(compared: Iterable[Difference]) -> dict[str, Agreement]:
    """The counts by family, in order of appearance."""
    families: dict[str, Agreement] = {}
    for difference in compared:
        families.setdefault(difference.family, Agreement()).count(difference)
    return families


def _entries(trace: StepTrace) -> list[list[Any]]:
    return [[time_ns, entries] for time_ns, entries, _, _ in trace.steps if entries]


def _print_table(families: dict[str, Agreement]) -> None:
    print(f"{'family':32} {'n':>5} {'equal':>6} {'with blocks':>12}")
    for family, agreement in families.items():
        print(f"{family:32} {agreement.n:5} {agreement.equal:6} {agreement.equal_with_blocks:12}")
    total, equal = (sum(getattr(a, name) for a in families.values()) for name in ("n", "equal"))
    print(f"{equal} of {total} scenarios are equal")


def main(arguments: list[str] | None = None) -> int:
    """Compare one file and print what agrees."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.engine.compare", description=__doc__.split("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="show N first differences")
    options = parser.parse_args(arguments)
    compared = list(differences(read_traces(options.file)))
    families = agreement_of(compared)
    for difference in [entry for entry in compared if not entry.equal_with_blocks][: options.first]:
        print(difference.first, file=sys.stderr)
    if options.json:
        counts = {family: agreement.to_json() for family, agreement in families.items()}
        totals = {name: sum(count[name] for count in counts.values()) for name in ("n", "equal")}
        print(json.dumps({"families": counts, **totals}))
    else:
        _print_table(families)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
