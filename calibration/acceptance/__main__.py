"""The committed measurement on SmolLM2-135M, by one command.

    python -m calibration.acceptance RAW_FOLDER [TRAINED_FOLDER]

measures what RAW_FOLDER lacks, on two processes that each take their share of the prompts (about 15 minutes
of two cores; Ctrl-C loses nothing), then sums all of it up into `calibration/data/acceptance-smollm2.json`.
TRAINED_FOLDER holds folders that `decodesim distill` wrote, by their names: they are measured too.
"""

from __future__ import annotations

import argparse
import sys
from multiprocessing import get_context
from pathlib import Path

from calibration.acceptance.plan import PROCESSES, measure_part
from calibration.acceptance.summary import write
from calibration.optional import need
from simulator.errors import InputError


def main(arguments: list[str] | None = None) -> None:
    """Measure what is lacking, then sum up."""
    parser = argparse.ArgumentParser(prog="python -m calibration.acceptance", description=__doc__)
    parser.add_argument("raw", type=Path, metavar="RAW_FOLDER")
    parser.add_argument("trained", type=Path, nargs="?", metavar="TRAINED_FOLDER")
    given = parser.parse_args(arguments)
    from calibration.decoder.weights import smollm2_file

    try:
        given.raw.mkdir(parents=True, exist_ok=True)
        need("transformers", "lm")  # what is missing is said here, once
        smollm2_file()
        context = get_context("spawn")
        parts = [
            context.Process(
                target=measure_part, args=(given.raw, part, PROCESSES, given.trained), daemon=True
            )
            for part in range(PROCESSES)
        ]
        for part in parts:
            part.start()
        for part in parts:
            part.join()
        if any(part.exitcode != 0 for part in parts):
            sys.exit("a part ended early; the same command goes on from where it was")
        write(given.raw, given.trained)
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
