"""Processes of the tests answer to Ctrl-C, however the tests themselves were started."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.processes import end, start

ASLEEP = "import time; print('ready', flush=True); time.sleep(0.5 if {brief} else 60)"


@pytest.fixture(params=["foreground", "background"])
def inherited(request: pytest.FixtureRequest) -> Iterator[object]:
    """What this process does at Ctrl-C; a shell script starts `make test &` with Ctrl-C ignored."""
    handler = signal.SIG_IGN if request.param == "background" else signal.default_int_handler
    before = signal.signal(signal.SIGINT, handler)
    yield handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("background", "status"), [(False, -signal.SIGINT), (True, 0)])
def test_a_process_ignores_interrupts_only_in_the_background(
    inherited: object, background: bool, status: int
) -> None:
    process = start("-c", ASLEEP.format(brief=background), background=background)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        end([process])
    assert process.returncode == status
    assert signal.getsignal(signal.SIGINT) == inherited
