"""What all tests share: hypothesis without a clock and without luck of its own."""

import os

# Before numpy, torch or numba come: beside other workers, threads of their own only get in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

from tests.lm import smollm2 as smollm2  # a fixture, here so that all folders share one network a session

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
