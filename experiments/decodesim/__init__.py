"""decodesim in Python: a dozen calls for notebooks and scripts, each a command of the command line.

    import decodesim

    scenario = decodesim.load("my.yaml", "workload.requests=1000")
    result = decodesim.simulate(scenario)
    print(result.comparison["eagle3-k3"].verdict.sentence)

docs/library.md describes the calls. Nothing heavy is imported before a call needs it.

The code lives in four packages: `simulator`, `calibration`, `experiments` and `dashboards`. After
`import decodesim` these names mean decodesim's packages, in this process and in its worker processes, even
where the current folder or `PYTHONPATH` holds packages of the same names. A process can hold only one package
of a name: after `import decodesim`, `import experiments` gives decodesim's, and a module that only your
`experiments` has raises ModuleNotFoundError. If yours was imported first, `import decodesim` raises
ImportError.
"""

from __future__ import annotations

from .own_packages import claim

claim()

# Only after `claim` do these names mean decodesim's.
from experiments.api import *  # noqa: E402, F403
from experiments.api import __all__ as __all__  # noqa: E402
from simulator.errors import InputError as InputError  # noqa: E402


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: the metadata take longer to read than all the rest."""
    if name == "__version__":
        from importlib.metadata import version

        return version("decodesim")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
