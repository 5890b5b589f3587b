"""`decodesim` as a stranger meets it: help, exit codes, one JSON document, errors without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from experiments.cli import COMMANDS, decodesim
from simulator.scenario import load_scenario
from tests.shared_data import ROOT
from tests.test_architecture import HEAVY

EXAMPLE = ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml"
WITH_SCENARIO = ("simulate", "breakeven", "memory")


def run(*arguments: str | Path) -> Result:
    """The command in this process; `exception` is None or SystemExit."""
    return CliRunner().invoke(decodesim, [str(argument) for argument in arguments])


def bad(*arguments: str | Path) -> list[str]:
    """The lines of an answer to bad input: exit 2, all on stderr, no traceback. Whichever test comes first on
    a new machine also sees the note on compiling.
    """
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return [line for line in result.stderr.splitlines() if not line.startswith("compiling ")]


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_loads_no_heavy_module(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom experiments.cli import decodesim\n"
        f"decodesim.main({arguments!r}, standalone_mode=False)\n"
        "print('modules:', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    text, _, modules = done.stdout.rpartition("modules:")
    assert "Usage:" in text
    assert set(modules.split()) & (HEAVY | {"rich", "ruamel", "simpy"}) == set()


def test_every_command_of_the_table_is_there_and_says_the_same() -> None:
    for name, (module, _) in COMMANDS.items():
        command = import_module(module).command
        assert isinstance(command, click.Command)
        for subcommand in command.commands.values() if isinstance(command, click.Group) else [command]:
            assert "--json" in {option for parameter in subcommand.params for option in parameter.opts}
        assert name in run("--help").stdout


def test_the_module_is_the_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "decodesim,")


def test_an_unknown_command_is_guessed() -> None:
    assert "did you mean simulate?" in bad("simulat")[-1]
    assert "known: init, simulate" in bad("xyz")[-1]


@pytest.mark.parametrize("command", WITH_SCENARIO)
def test_bad_scenarios_end_with_exit_2_and_every_problem(command: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    text = (
        EXAMPLE.read_text("utf-8").replace("alpha: 0.7", "alpha: 7").replace("gpu: h100-sxm", "gpu: h100sxm")
    )
    file.write_text(text, "utf-8")
    lines = bad(command, file, "--set", "run.seed=-1")
    assert len(lines) == 3
    assert lines[0].startswith(f"{file}:")
    assert "hardware.gpu: unknown GPU, did you mean 'h100-sxm'?" in lines[0]
    assert "acceptance.alpha: is out of range (got 7)" in lines[1]
    assert lines[2].startswith("--set run.seed: run.seed: is out of range (got -1)")
    assert bad(command, tmp_path / "none.yaml") == [f"{tmp_path / 'none.yaml'}: no such file or directory"]


@pytest.mark.parametrize("command", WITH_SCENARIO)
def test_a_scenario_or_flags_are_needed_and_flags_are_checked(command: str) -> None:
    assert bad(command)[0].startswith("--model: is missing")
    assert bad(command, EXAMPLE, "--tp", "0")[0].startswith("--tp: hardware.tensor_parallel: is out of range")
    assert bad(command, "--model", "llama-3.3-70b-instruct", "--gpu", "tpu")[0].startswith(
        "--gpu: hardware.gpu:"
    )


def test_flags_of_the_wrong_type() -> None:
    assert "not a valid integer" in bad("memory", "--tp", "x")[-1]
    lines = bad("memory", "--model", "llama-3.3-70b-instruct", "--concurrency", "many")
    assert lines == ["--concurrency: 'many' is not a number (got 'many'), whole numbers with commas"]


def test_init_writes_the_example_when_given_nothing() -> None:
    result = run("init")
    assert result.exit_code == 0
    assert result.stdout.startswith("# A decodesim scenario.")
    assert "model: llama-3.3-70b-instruct" in result.stdout


def test_init_writes_a_file_that_every_command_reads(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    flags = ("--model", "llama-3.1-8b-instruct", "--method", "ngram", "--draft-length", "4", "--alpha", "0.3")
    result = run("init", *flags, "--concurrency", "8", "--set", "run.seed=5", "-o", file)
    assert (result.exit_code, result.stdout) == (0, "")
    assert str(file) in result.stderr
    scenario = load_scenario(file)
    assert (scenario.speculation[0].name, scenario.speculation[0].max_draft_length) == ("ngram-k4", 4)
    assert (scenario.workload.arrivals.concurrency, scenario.run.seed) == (8, 5)  # type: ignore[union-attr]
    assert run("memory", file).exit_code == 0
    printed = json.loads(run("init", *flags, "--concurrency", "8", "--set", "run.seed=5", "--json").stdout)
    assert printed == scenario.model_dump(mode="json")


def test_init_does_not_write_what_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    (line,) = bad("init", "--model", "llama-3.1-405b-instruct", "--tp", "1", "-o", file)
    assert "tensor_parallel" in line
    assert not file.exists()


def test_the_report_of_a_scenario_names_the_commands_that_lead_to_it() -> None:
    (line,) = bad("report", EXAMPLE)
    assert f"`decodesim simulate {EXAMPLE} --out DIR`, then `decodesim report DIR`" in line


def test_init_keeps_leading_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "lengths.csv").write_text("10\n20\n", "utf-8")
    lengths = "workload.output_tokens={kind: empirical, file: lengths.csv}"
    result = run("init", "--model", "llama-3.1-8b-instruct", "--set", lengths, "-o", "there/s.yaml")
    assert result.exit_code == 0, result.stderr
    assert load_scenario("there/s.yaml").workload.output_tokens.file == "../lengths.csv"  # type: ignore[union-attr]
    assert run("memory", "there/s.yaml").exit_code == 0


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (line,) = bad("init", "-o", tmp_path / "none" / "s.yaml")
    assert "the folder" in line
    assert "is not there" in line


def test_memory_as_a_table_and_as_json() -> None:
    table = run("memory", EXAMPLE)
    assert table.exit_code == 0
    assert table.stderr == ""
    for part in ("weights", "KV tokens held", "eagle3-k3", "It fits", "smallest tensor parallelism: 2"):
        assert part in table.stdout
    document = json.loads(run("memory", EXAMPLE, "--json").stdout)
    assert (document["fits"], document["smallest_tensor_parallel"]) == (True, 2)


def test_not_fitting_is_an_answer_of_memory_and_bad_input_of_simulate() -> None:
    result = run("memory", EXAMPLE, "--set", "hardware.tensor_parallel=1", "--set",
                 "speculation.eagle3-k3.draft_tensor_parallel=1")  # fmt: skip
    assert result.exit_code == 0
    assert "It does NOT fit; smallest tensor parallelism: 2" in result.stdout
    (line,) = bad("simulate", "--model", "llama-3.3-70b-instruct", "--tp", "1")
    assert "leave nothing for KV" in line
    assert "the smallest tensor parallelism that fits is 2" in line


def test_what_no_memory_holds_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("simulator.memory.report.memory", exhausted)
    assert bad("memory", EXAMPLE) == ["not enough memory: reduce the number of requests or tokens"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["written at once", "written at the end"])
@pytest.mark.parametrize("arguments", [["memory", "--model", "llama-3.1-8b-instruct"], ["--help"]])
def test_an_answer_that_has_no_room_gets_one_line(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "experiments", *arguments],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (2, "no space left on device\n")


def test_an_answer_nobody_reads_ends_quietly() -> None:
    command = [sys.executable, "-m", "experiments", "simulate", "--help"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        message = process.stderr.read()
    assert (process.returncode, message) == (1, b"")


def test_an_answer_for_a_closed_stdout_ends_quietly() -> None:
    command = f"{sys.executable} -m experiments --version >&-"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_our_signs_gets_question_marks() -> None:
    code = (
        "from contextlib import suppress\nfrom experiments.cli import main\n"
        "from experiments.commands.output import print_table\n"
        "with suppress(SystemExit): main(['--version'])\n"
        "print_table(['± 95 %'], [['→']])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, env={"PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr
    assert b"? 95 %" in done.stdout


def test_draft_length_may_be_a_policy_or_a_table() -> None:
    flags = ("--model", "llama-3.1-8b-instruct", "--method", "eagle3", "--draft-length")
    for policy, written in (("{policy: goodput, max: 5}",) * 2, ("[[1, null, 2]]",) * 2):
        assert f"draft_length: {written}" in run("init", *flags, policy).stdout


def test_a_table_breaks_no_figure_however_narrow_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from experiments.commands.output import print_table

    headings = ["the rows of it", "predicted", "", "simulated α"]
    cells = ["speedup, of others", "1,234 ± 56", "", "0.15 [0.06, 0.22]"]
    for width in (30, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(headings, [cells])
        shown = capsys.readouterr().out
        assert set(" ".join([*headings, *cells]).split()) <= set(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
