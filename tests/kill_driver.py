"""A sweep of tiny cells as a process of its own, to be killed: `python -m tests.kill_driver STORE LOG …`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.runner.dask_pool import LOCAL, dask_pool
from experiments.runner.pools import local_pool
from experiments.runner.runner import run_tasks
from experiments.store.store import Store
from simulator.errors import InputError
from tests.tiny_tasks import cell_of, run_tiny


def main(store_path: Path, log: Path, count: int, seconds_s: float, where: str) -> int:
    """Run what the store does not have; the exit code is that of a command."""
    try:
        pool_of = local_pool(2) if where == "here" else dask_pool(where, 2 if where == LOCAL else None)
        with Store.create_or_open(store_path, {"name": "kill"}, "kill") as store, pool_of as pool:
            cells = (cell_of(number, log, seconds_s) for number in range(count))
            run_tasks(
                run_tiny,
                (cell for cell in cells if cell.key not in store),
                pool,
                store.add,
                lambda cell, error: print(f"failed: {error}", file=sys.stderr),
            )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    path, journal, number_of_cells, seconds, place = sys.argv[1:]
    sys.exit(main(Path(path), Path(journal), int(number_of_cells), float(seconds), place))
