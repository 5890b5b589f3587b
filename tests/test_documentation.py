"""What the documentation shows works: its links lead somewhere, its Python and its commands run.

In a README, a block fenced as `python` runs as it stands, and so does every line of a `bash` block that
starts with `decodesim`; nothing else runs. A command that holds a name in capitals, `simulate SCENARIO`, is a
pattern, and does not run either. On every page the subcommands and options of all commands must exist.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared_data import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md"), *ROOT.glob("docs/**/*.md")])
READMES = [page for page in PAGES if page.name == "README.md"]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|…|\.\.\.")


def name_of(page: Path) -> str:
    """Relative path, as the id of a parametrised case."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """The contents of the fenced blocks of one language."""
    return [body for label, body in FENCE.findall(page.read_text(encoding="utf-8")) if label == language]


def commands(page: Path) -> list[str]:
    """The lines of `bash` blocks that start with `decodesim`, without comments, continued lines joined."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("decodesim ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to run in that holds the examples: what commands write does not stay in the project."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


def run(*command: str | Path, folder: Path) -> None:
    """Run a command, which must succeed and say nothing of a traceback."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    relative = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link]
    missing = [link for link in relative if link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in READMES if blocks(page, "python")], ids=name_of)
def test_python_runs(page: Path, folder: Path) -> None:
    script = folder / "readme.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    run(sys.executable, script, folder=folder)


@pytest.mark.parametrize("page", [page for page in READMES if commands(page)], ids=name_of)
def test_commands_run_one_after_the_other(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has imported what each command would import anew.

    `plan` chooses between one and two GPUs a replica: four numbers of them take twice as long.
    """
    from click.testing import CliRunner

    from experiments.capacity import candidates
    from experiments.cli import decodesim

    monkeypatch.chdir(folder)
    monkeypatch.setattr(candidates, "RANKS", (1, 2))
    for command in commands(page):
        if not PLACEHOLDER.search(command):
            program, *arguments = shlex.split(command)
            assert program == "decodesim"
            outcome = CliRunner().invoke(decodesim, arguments, catch_exceptions=False)
            assert outcome.exit_code == 0, f"{command}\n{outcome.output}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_have_their_options(page: Path) -> None:
    from click import Context, Group

    from experiments.cli import decodesim

    for command in commands(page):
        _, name, *arguments = shlex.split(command)
        subcommand = decodesim.get_command(Context(decodesim), name)
        assert subcommand is not None, f"{command}: there is no command {name}"
        if isinstance(subcommand, Group):
            subcommand = subcommand.commands[arguments[0]]
        known = {option for parameter in subcommand.params for option in parameter.opts} | {"--help"}
        asked = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")}
        assert asked <= known, f"{command}: {sorted(asked - known)} not among {sorted(known)}"
