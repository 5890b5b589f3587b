"""Distillation: its gradient, its judgement, what it learns, and that a killed run ends the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calibration.drafters.language_model import LanguageModel
from calibration.drafters.layer_skip import LayerSkip
from calibration.drafters.target_session import TargetSession, load_network
from calibration.drafters.training import trainer
from calibration.drafters.training.baselines import LayerSkipped
from calibration.drafters.training.corpus import Mix
from calibration.drafters.training.distil import RESULT, distil
from calibration.drafters.training.evaluation import judge
from calibration.drafters.training.losses import kl_slope, match
from calibration.drafters.training.recipes import RECIPES, Recipe
from calibration.drafters.training.shards import Shards
from calibration.drafters.training.text import documents, is_held_out
from calibration.drafters.training.trainer import CHECKPOINT, TrainingPlan
from calibration.sampling.protocols import Sampling
from simulator.errors import InputError
from tests.lm import FAMILIES, save_tiny
from tests.shared_data import ROOT

SMALL = Mix(length=64, code=6, prose=0, completions=2, together=2, held_out=8)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "target", "llama")


@pytest.fixture(scope="module")
def network(tiny: Path) -> LanguageModel:
    return load_network(tiny)


@pytest.fixture(scope="module")
def shards(network: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards(tmp_path_factory.mktemp("shards"), network, SMALL)


def test_the_gradient_written_down_is_that_of_kl() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(16, 50, bias=True).double()
    target_states, result = torch.randn(300, 16).double(), torch.randn(2, 300, 16).double().requires_grad_()
    target = torch.softmax(head(target_states), -1)
    distributions = torch.log_softmax(head(result), -1)
    torch.nn.functional.kl_div(distributions, target.expand(2, -1, -1), reduction="sum").backward()
    slope = kl_slope(head, target_states, result.detach(), torch.float64)
    assert result.grad is not None
    torch.testing.assert_close(slope.gradient, result.grad)
    torch.testing.assert_close(
        slope.alpha.double(), 1 - (distributions[0].exp() - target).abs().sum(-1) / 2, atol=1e-6, rtol=1e-6
    )


@torch.no_grad()
def test_how_well_distributions_match_is_counted_right() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 20, bias=False)
    expected, target_states = torch.randn(300, 8), torch.randn(1, 300, 8)
    tokens = torch.randint(20, (300,))
    loss = match(head, expected, target_states, tokens)
    target, draft = torch.softmax(head(expected), -1), torch.softmax(head(target_states[0]), -1)
    places = torch.arange(300)
    ratio = (draft / target)[places, tokens].clamp(max=1.0)
    torch.testing.assert_close(loss.alpha[0], torch.minimum(target, draft).sum(-1))
    torch.testing.assert_close(loss.survival[0], ratio, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(loss.kl[0], (target * (target / draft).log()).sum(-1), atol=1e-5, rtol=1e-4)
    assert torch.equal(loss.same[0].bool(), target.argmax(-1) == draft.argmax(-1))
    alike = match(head, expected, expected[None], tokens)
    assert alike.alpha.min() > 1 - 1e-5
    assert alike.same.min() == 1


def test_documents_are_held_out_whole() -> None:
    code, prose = (
        {document.name for document in documents(domain, held_out=True)} for domain in ("code", "prose")
    )
    learned = {document.name for document in documents("code", held_out=False)}
    assert len(learned) > 5 * len(code)
    learned |= {
        document.name for document in islice(documents("prose", held_out=False), 50)
    }  # parsing all takes long
    assert min(len(code), len(prose)) > 20
    assert not (code | prose) & learned
    assert all(is_held_out(name) for name in code | prose)


def test_shards_hold_what_the_target_says(shards: Shards, network: LanguageModel) -> None:
    top = network.layer_count
    shard = shards.shard(1, [2])
    assert shard.tokens.shape == (SMALL.sequences, SMALL.length)
    assert set(shard.features) == {2, top}
    assert shard.features[top].dtype == torch.bfloat16
    states = network.hidden_states(shard.tokens, [2, top])
    logits, logits_of_head = network.lm_head(shard.features[top].float()), network.head(states[top])
    apart = (torch.softmax(logits, -1) - torch.softmax(logits_of_head, -1)).abs().sum(-1) / 2
    assert apart.mean() < 0.02  # bfloat16
    assert (shard.features[2].float() - states[2]).norm() < 0.02 * states[2].norm()
    again = Shards(shards.folder, network, SMALL)  # from disk now
    assert torch.equal(again.shard(1, [2]).tokens, shard.tokens)
    held = shards.held_out([2])
    assert held.features[top].dtype == torch.float32
    torch.testing.assert_close(
        network.lm_head(held.features[top]), network.head(network.hidden_states(held.tokens, [top])[top])
    )
    assert set(held.names) <= {document.name for document in documents("code", held_out=True)} | {
        document.name for document in documents("prose", held_out=True)
    }
    assert held.tokens.shape == (16, SMALL.length // 2)


def test_text_follows_from_the_number_of_a_shard(
    shards: Shards, network: LanguageModel, tmp_path: Path
) -> None:
    """Whoever asks first, for whatever layers, all learn from and are judged on the same text."""
    other = Shards(tmp_path, network, SMALL)
    held, shard = other.held_out([]), other.shard(3, [])
    assert torch.equal(shard.tokens, shards.shard(3, [1]).tokens)
    more = other.shard(3, [1])
    assert torch.equal(more.tokens, shard.tokens)
    assert set(other.shard(3, [1, 3]).features) == {1, 3, network.layer_count}
    assert torch.equal(other.shard(3, [1]).features[1], more.features[1])
    asked = other.held_out([2])
    assert torch.equal(asked.tokens, held.tokens)
    assert asked.digest == held.digest == shards.held_out([1]).digest
    assert (asked.domains, asked.names) == (held.domains, held.names)
    (tmp_path / "shard-00003.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(InputError, match="is damaged"):
        other.shard(3, [])


@pytest.mark.parametrize("kind", RECIPES)
def test_every_kind_learns(kind: str, shards: Shards, network: LanguageModel, tmp_path: Path) -> None:
    recipe = RECIPES[kind]
    document = distil(network, recipe, TrainingPlan(kind, 12_288, batch=4), tmp_path, shards)
    begun, ended = document["random_initialisation"], document["final"]
    assert document["tokens"] == document["curve"][-1]["tokens"] == 12_288
    assert ended["kl"]["value"] < begun["kl"]["value"]
    assert ended["alpha"]["value"] > begun["alpha"]["value"]
    gains = [after - before for after, before in zip(ended["samples"], begun["samples"], strict=True)]
    assert sum(gain > 0 for gain in gains) > 0.7 * len(gains)
    assert json.loads((tmp_path / RESULT).read_text()) == json.loads(json.dumps(document))
    assert (tmp_path / "model.safetensors").exists()


def test_a_perfect_draft_is_always_accepted(shards: Shards, network: LanguageModel) -> None:
    """A student with all of the target's layers is the target."""
    from calibration.drafters.student import Student

    copied_network = Student(network, tuple(range(network.layer_count)))
    judged = judge(copied_network, network, shards.held_out([]), 3)
    assert judged.alpha.value == pytest.approx(1.0, abs=1e-4)
    assert [estimate.value for estimate in judged.conditional] == pytest.approx([1.0] * 3, abs=1e-4)
    assert judged.kl.value == pytest.approx(0.0, abs=1e-4)


PLANNED_TOKENS = 8_192
RUN = """
import sys
from pathlib import Path
from calibration.drafters.target_session import load_network
from calibration.drafters.training import trainer
from calibration.drafters.training.distil import distil
from calibration.drafters.training.recipes import RECIPES
from calibration.drafters.training.shards import Shards
from tests.distillation.test_training import PLANNED_TOKENS, SMALL

trainer._SAVE_EVERY_S = 0.0
network = load_network(sys.argv[1])
shards = Shards(Path(sys.argv[2]), network, SMALL)
plan = trainer.TrainingPlan("eagle3", PLANNED_TOKENS)
distil(network, RECIPES["eagle3"], plan, Path(sys.argv[3]), shards, resume=len(sys.argv) > 4)
"""


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, *map(str, arguments)], cwd=ROOT)


def kill_when(there: Path, run: subprocess.Popen[bytes]) -> None:
    """Kill a run, without warning, as soon as a file of it is there."""
    while not there.exists() and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL


def test_a_killed_run_goes_on_and_ends_the_same(
    tiny: Path, network: LanguageModel, shards: Shards, tmp_path: Path
) -> None:
    """Killed while shards are made, and again while it learns; it goes on in another process."""
    complete, killed, own = tmp_path / "whole", tmp_path / "killed", tmp_path / "shards"
    plan = TrainingPlan("eagle3", PLANNED_TOKENS)
    distil(network, RECIPES["eagle3"], plan, complete, shards)
    kill_when(own / "shard-00001.safetensors", start(tiny, own, killed))
    kill_when(killed / CHECKPOINT, start(tiny, own, killed, "resume"))
    assert not (killed / "model.safetensors").exists()
    distil(network, RECIPES["eagle3"], plan, killed, Shards(own, network, SMALL), resume=True)
    left, right = (load_file(folder / "model.safetensors") for folder in (complete, killed))
    assert all(torch.equal(value, right[name]) for name, value in left.items())
    assert json.loads((complete / RESULT).read_text()) == json.loads((killed / RESULT).read_text())


def test_passes_learn_from_the_same_text(network: LanguageModel, tmp_path: Path) -> None:
    """Twice the tokens in two passes need the shards of one; another order makes other weights of them."""

    def read(plan: TrainingPlan, name: str) -> list[str]:
        own = Shards(tmp_path / name, network, SMALL)
        assert (
            distil(network, RECIPES["medusa"], plan, tmp_path / f"{name}-run", own)["tokens"] == plan.tokens
        )
        return sorted(path.name for path in own.folder.glob("shard-*"))

    once = read(TrainingPlan("medusa", 2 * SMALL.tokens), "once")
    assert read(TrainingPlan("medusa", 4 * SMALL.tokens, passes=2), "twice") == once
    assert once == ["shard-00000.safetensors", "shard-00001.safetensors"]


def test_a_run_does_not_go_on_as_another(
    shards: Shards, network: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "_SAVE_EVERY_S", 0.0)

    def stop(done: int, total: int, text: str) -> None:
        if done >= 512:
            raise KeyboardInterrupt

    plan = TrainingPlan("mtp", 2048)
    with pytest.raises(KeyboardInterrupt):
        distil(network, RECIPES["mtp"], plan, tmp_path / "run", shards, progress=stop)
    go_on = {"folder": tmp_path / "run", "resume": True}
    with pytest.raises(InputError, match="--resume, or a new folder"):
        distil(network, RECIPES["mtp"], plan, tmp_path / "run", shards)
    with pytest.raises(InputError, match="belongs to another plan"):
        distil(network, RECIPES["mtp"], TrainingPlan("mtp", 4096), shards=shards, **go_on)
    other = load_network(save_tiny(tmp_path / "other", "llama", seed=1))
    with pytest.raises(InputError, match="holds hidden states of another target"):
        Shards(shards.folder, other, SMALL)
    elsewhere = Shards(tmp_path / "elsewhere", other, SMALL)
    with pytest.raises(InputError, match="belongs to another target"):
        distil(other, RECIPES["mtp"], plan, shards=elsewhere, **go_on)
    (tmp_path / "run" / CHECKPOINT).write_bytes(b"no checkpoint")
    with pytest.raises(InputError, match="is not a checkpoint"):
        distil(network, RECIPES["mtp"], plan, shards=shards, **go_on)


def test_a_full_disk_is_said_and_leaves_no_broken_file(
    shards: Shards, network: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    recipe: Recipe = RECIPES["eagle"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    shards.held_out([])
    shards.shard(0, [])
    monkeypatch.setattr(signal, "SIGXFSZ", signal.SIGXFSZ)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        with pytest.raises(OSError, match="written"):
            distil(network, recipe, TrainingPlan("eagle", 512), tmp_path, shards)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert not list(tmp_path.glob("*.part"))
    assert not (tmp_path / CHECKPOINT).exists()


@torch.inference_mode()
def test_layer_skip_is_judged_as_it_drafts(network: LanguageModel) -> None:
    target = TargetSession(network)
    drafter = LayerSkip(target)
    text = torch.randint(1, 97, (20,), generator=torch.Generator().manual_seed(0))
    rows, _ = LayerSkipped(network).predict(text[None], {}, network.embed, 1)
    for place in (5, 12, 18):
        target.start(text[:place])
        drafter.start(text[:place])
        proposal = drafter.propose(int(text[place]), 1, Sampling(1.0), torch.Generator())
        assert proposal.distributions is not None
        torch.testing.assert_close(
            proposal.distributions[0],
            torch.softmax(network.lm_head(rows[0, 0, place]), -1),
            atol=1e-5,
            rtol=1e-4,
        )


def test_a_short_distillation_on_a_real_model_pays(smollm2: LanguageModel, tmp_path: Path) -> None:
    """2,048 tokens of Python's source and documentation, twice: EAGLE on SmolLM2 against random weights.

    Many steps on short sequences teach more in the same time than few on long ones: α is seven times that of
    random weights, and two times must be certain.
    """
    mix = Mix(length=64, code=24, prose=8, completions=0, held_out=4)
    shards = Shards(tmp_path / "shards", smollm2, mix)
    plan = TrainingPlan("eagle", 2 * mix.tokens, batch=4, judgements=1, passes=2)
    document = distil(smollm2, RECIPES["eagle"], plan, tmp_path / "eagle", shards)
    learned, random = document["final"]["alpha"], document["random_initialisation"]["alpha"]
    assert learned["ci95"][0] > 2 * random["ci95"][1]
    assert document["final"]["alpha_in"].keys() == {"code", "prose", "conversation"}
    assert peak_bytes() < 6e9


def peak_bytes() -> int:
    resource = pytest.importorskip("resource")
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


@pytest.mark.parametrize("family", FAMILIES)
def test_no_tensor_is_left_on_the_cpu(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where shapes alone are computed, tensors from elsewhere are refused."""
    monkeypatch.setattr(torch, "autocast", lambda *_: nullcontext())  # it knows no meta device
    network = load_network(save_tiny(tmp_path / family, family))
    kinds = RECIPES.keys() - {"student"}  # transformers' own forward looks at values, which meta has none of
    drafters = {kind: RECIPES[kind].make(network).to("meta") for kind in kinds}
    network.model.to("meta")
    tokens = torch.zeros(2, 64, dtype=torch.int64, device="meta")
    states = network.hidden_states(tokens, [2, 4])
    assert states[4].device.type == "meta"
    features = {layer: torch.zeros(2, 64, 32, device="meta", dtype=torch.bfloat16) for layer in range(1, 5)}
    for kind, trainee in drafters.items():
        weights = [weight for weight in trainee.parameters() if weight.requires_grad]
        optimiser = torch.optim.SGD(weights, lr=0.1)
        alpha = trainer._step(trainee, network, RECIPES[kind], optimiser, tokens, features)
        assert alpha.device.type == "meta"
    rows, _ = LayerSkipped(network).predict(tokens, {}, network.embed, 1)
    assert match(network.lm_head, rows[0, 0], rows[0], tokens[0]).alpha.device.type == "meta"
