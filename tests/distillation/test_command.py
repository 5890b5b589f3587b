"""`decodesim distill` as a stranger meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from tests.lm import save_tiny


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "target", "llama")


def distill(*options: str | Path) -> Result:
    return CliRunner().invoke(decodesim, ["distill", "--device", "cpu", *map(str, options)])


def test_a_drafter_is_trained_described_and_not_overwritten(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eagle"
    options = ("--target", target, "--draft", "eagle", "-o", folder, "--tokens", 4096)
    done = distill(*options, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["draft"] == "eagle"
    assert document["tokens"] == document["curve"][-1]["tokens"] == 4096
    assert document["alpha"]["value"] > document["random_initialisation"]["value"]
    assert len(document["conditional_acceptance"]) == 5
    assert {file.name for file in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "distillation.json",
        "shards",
    }
    again = distill(*options)
    assert again.exit_code == 2
    assert "holds a drafter or a run already, --resume, or a new folder" in again.stderr
    same = distill(*options, "--resume")  # nothing is left to do
    assert same.exit_code == 0, same.output
    assert "4,096" in same.stdout
    other = distill(*options[:-1], 5120, "--resume")
    assert other.exit_code == 2
    assert "holds a finished run (kind eagle, tokens 4096" in other.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--draft", "egle"), "did you mean eagle?"),
        (("--draft", "eagle", "--tokens", "100"), "--tokens: is less than one step (got 100), 1024 or more"),
        (("--draft", "eagle", "--tokens", "9" * 15), "for the target's hidden states and has"),
        (("--draft", "eagle", "--target", "nowhere"), "holds no config.json"),
        (("--draft", "eagle", "--device", "cuda"), "torch sees no GPU here"),
    ],
)
def test_bad_input_is_one_line(target: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    torch = pytest.importorskip("torch")
    if "cuda" in options and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = distill("--target", target, "-o", tmp_path / "out", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_target_that_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "short", "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 256}))
    done = distill("--target", folder, "--draft", "eagle", "-o", tmp_path / "out")
    assert "--target: reads 256 tokens at most, 512 or more" in done.stderr
    folder = save_tiny(tmp_path / "wrong", "llama")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"word{number}": 97 + number for number in range(9)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    done = distill("--target", folder, "--draft", "eagle", "-o", tmp_path / "out")
    assert "its tokenizer has 106 tokens where the model has 97" in done.stderr
    assert not (tmp_path / "out").exists()
