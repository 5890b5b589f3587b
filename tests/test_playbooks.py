"""The playbooks' commands run, on files of a real server."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.cli import decodesim
from tests.shared_data import ROOT, SHARED, needs_shared

REAL = SHARED / "formats" / "real-vllm-0.32"
PLAYBOOKS = sorted((ROOT / "docs" / "playbooks").glob("*.md"))
LAUNCH = (
    "vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --speculative-config "
    '\'{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}\''
)
FILES = {
    "plain.bench.json": "plain-c16.bench.json",
    "spec.bench.json": "ngram-c16.bench.json",
    "spec.before.metrics.txt": "ngram-c16.before.metrics.txt",
    "spec.after.metrics.txt": "ngram-c16.after.metrics.txt",
}


def commands(page: Path) -> list[str]:
    """The commands of a playbook; one with a name in capitals is a pattern."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line.strip()
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    return [line for line in lines if line.startswith("decodesim ") and not re.search(r"\b[A-Z]{3,}\b", line)]


@needs_shared
@pytest.mark.parametrize("page", PLAYBOOKS, ids=lambda page: page.stem)
def test_commands_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, real in FILES.items():
        shutil.copy(REAL / real, tmp_path / name)
    assert len(commands(page)) >= 3
    for command in commands(page):
        _, *arguments = shlex.split(command)
        arguments = [LAUNCH if argument == "$(cat launch.sh)" else argument for argument in arguments]
        done = CliRunner().invoke(decodesim, arguments)
        assert done.exit_code in ((0, 1) if arguments[0] == "check" else (0,)), f"{command}\n{done.output}"
