"""Makes the committed measurement on SmolLM2-135M.

    python -m calibration.acceptance RAW_FOLDER [TRAINED_FOLDER]

measures what RAW_FOLDER lacks, on two processes that each take a share of the prompts (about 15 minutes on
two cores; Ctrl-C loses nothing). It then summarises all samples in
`calibration/data/acceptance-smollm2.json`. TRAINED_FOLDER holds drafter folders written by `decodesim
distill`, which are measured under their names, too.
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
    """Measure what is missing, then summarise."""
    parser = argparse.ArgumentParser(prog="python -m calibration.acceptance", description=__doc__)
    parser.add_argument("raw", type=Path, metavar="RAW_FOLDER")
    parser.add_argument("trained", type=Path, nargs="?", metavar="TRAINED_FOLDER")
    options = parser.parse_args(arguments)
    from calibration.decoder.weights import smollm2_file

    try:
        options.raw.mkdir(parents=True, exist_ok=True)
        need("transformers", "lm")  # a missing package is reported here, once
        smollm2_file()
        context = get_context("spawn")
        processes = [
            context.Process(
                target=measure_part, args=(options.raw, process, PROCESSES, options.trained), daemon=True
            )
            for process in range(PROCESSES)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode != 0 for process in processes):
            sys.exit("a process ended early; run the same command again to continue")
        write(options.raw, options.trained)
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
