"""What all tests share: hypothesis without a clock and without luck of its own; the order of the files."""

import os

# Before numpy, torch or numba come: beside other workers, threads of their own only get in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests.lm import decoder as decoder  # fixtures, here so that all folders share one network a process
from tests.lm import smollm2 as smollm2

settings.register_profile(
    "ci",
    deadline=None,  # a slow machine is not a failure
    derandomize=True,  # the same examples every run: a failure is a change's, never luck's
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# For a search for new failures: HYPOTHESIS_PROFILE=explore make test ARGS="tests/property"
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with a long file that simulates nothing.

    Meanwhile the other worker compiles the step (half a minute on a fresh checkout), and this one finds it
    compiled. Otherwise both would compile the same at once.
    """
    items.sort(key=lambda item: item.path.parent.name != "distillation")
