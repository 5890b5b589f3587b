"""Benchmarks are off unless asked for with `make bench`: they need the machine to themselves."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, so that no benchmark can forget to and slow down `make test`."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.benchmark)


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    """Refuse to measure beside other workers: the figures would be theirs too."""
    if hasattr(request.config, "workerinput"):
        pytest.fail("benchmarks run in one process: leave out -n")
