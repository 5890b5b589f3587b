"""The live page answers its own machine only, and reads what is uploaded without trusting it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dashboards.app.guard import MAX_UPLOAD_BYTES, is_own
from dashboards.app.server import make_app
from dashboards.app.uploads import measured_lines, read_uploads
from simulator.errors import InputError
from simulator.scenario import scenario_from_flags
from simulator.scenario.flags import EXAMPLE
from tests.shared_data import SHARED, needs_shared

PORT = 8050


@pytest.fixture(scope="module")
def client() -> Any:
    return make_app(scenario_from_flags(EXAMPLE), PORT).server.test_client()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "127.0.0.1:9", "localhost"])
def test_other_hosts_are_refused(client: Any, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 403


def test_the_own_page_is_served_and_may_not_load_from_elsewhere(client: Any) -> None:
    answer = client.get("/", headers={"Host": f"127.0.0.1:{PORT}"})
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "https://" not in answer.text.replace("https://www.w3.org", "")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8050", "http://127.0.0.1:81"]
)
def test_pages_of_other_sites_are_refused(client: Any, origin: str) -> None:
    headers = {"Host": f"127.0.0.1:{PORT}", "Origin": origin}
    assert client.post("/_dash-update-component", headers=headers, json={}).status_code == 403
    assert not is_own(origin, {f"127.0.0.1:{PORT}"})


def test_large_uploads_are_refused(client: Any) -> None:
    headers = {"Host": f"127.0.0.1:{PORT}", "Content-Type": "application/json"}
    answer = client.post("/_dash-update-component", headers=headers, data=b" " * (MAX_UPLOAD_BYTES + 1))
    assert answer.status_code == 413


def upload(content: bytes) -> str:
    """A file as a browser sends it."""
    return f"data:text/plain;base64,{base64.b64encode(content).decode()}"


@needs_shared
def test_uploads_are_read_as_the_command_reads_files() -> None:
    folder = SHARED / "formats" / "real-vllm-0.32"
    names = ["ngram-c16.before.metrics.txt", "ngram-c16.after.metrics.txt"]
    document = read_uploads(names, [upload((folder / name).read_bytes()) for name in names])
    assert document["mean_acceptance_length"]["value"] == pytest.approx(2.600, abs=0.001)
    assert measured_lines(document)[0].startswith("Mean acceptance length 2.60")


@pytest.mark.parametrize("name", ["../../etc/passwd", "..\\x", "a\0b", "<img src=x>.txt", "x" * 500])
def test_hostile_names_stay_text(name: str) -> None:
    with pytest.raises(InputError) as refused:
        read_uploads([name], [upload(b"nothing that is known\n" * 3)])
    assert "/tmp" not in str(refused.value)


def test_a_broken_upload_is_named() -> None:
    with pytest.raises(InputError, match="not uploaded whole"):
        read_uploads(["a.txt"], ["data:text/plain;base64,!!!"])
