"""Parameter counts against the model cards, for every config
of the reference data and the whole catalogue."""

import re
from dataclasses import replace

import pytest

from simulator.models.catalogue import load_drafter, load_model, targets
from simulator.models.model import Model
from tests.model_cards import CATALOGUE, CONFIGS, INSTANTIATED, UNPUBLISHED, Card, least_active_parameters
from tests.shared_data import SHARED, needs_shared
from tests.unit.test_model_sizes import ROWS

FOLDER = SHARED / "data" / "model_configs"
UNITS = {"M": 1e6, "B": 1e9, "T": 1e12}


def printed(figure: str) -> tuple[float, float]:
    """A figure such as `70.6B` and half of its last printed digit, both in parameters."""
    number, unit = re.fullmatch(r"([\d.]+)([MBT])", figure).groups()
    decimals = len(number.partition(".")[2])
    return float(number) * UNITS[unit], 0.5 * 10**-decimals * UNITS[unit]


def allowance(figure: str) -> float:
    value, half_digit = printed(figure)
    return max(0.01 * value, half_digit)


def counted_beside(card: Card, model: Model) -> int:
    """Parameters that the card's figure has in addition to the text part."""
    total = 0
    for part in card.other_parts:
        if part == "mtp":
            total += load_drafter(None, model, "mtp").parameters
        elif part == "ends":
            total += model.embedding_parameters + model.head.parameters
        else:
            total += part
    return total


def check_total(card: Card, model: Model) -> None:
    value, _ = printed(card.total)
    assert model.parameters + counted_beside(card, model) == pytest.approx(value, abs=allowance(card.total))


def check_active(card: Card, model: Model) -> None:
    """Cards differ in whether the ends and the router are active: the figure must be one of these counts."""
    value, _ = printed(card.active)
    least = least_active_parameters(model)
    assert least - allowance(card.active) <= value <= model.active_parameters + allowance(card.active)


def load_config(card: Card) -> Model:
    return load_model(str(FOLDER / f"{card.name}_config.json"))


@needs_shared
def test_every_config_of_the_reference_data_has_a_row():
    assert sorted(card.name for card in CONFIGS) == sorted(
        file.name.removesuffix("_config.json") for file in FOLDER.glob("*.json")
    )


def test_every_model_of_the_catalogue_has_a_row_is_the_size_of_one_that_has_or_is_known_to_lack_a_figure():
    def size(name: str) -> tuple[int, int, int]:
        model = load_model(name)
        return model.parameters, model.active_parameters, model.hidden_size

    rows = {card.name for card in CATALOGUE} | {row["name"] for row in ROWS}
    sizes = {size(name) for name in rows}
    assert rows <= set(targets())
    assert sorted(UNPUBLISHED) == [name for name in targets() if name not in rows and size(name) not in sizes]


@needs_shared
@pytest.mark.parametrize("card", CONFIGS, ids=lambda card: card.name)
def test_config_counts_as_its_card(card):
    model = load_config(card)
    assert model.layer_count > 0
    if card.total is not None:
        check_total(card, model)
    if card.active is not None:
        check_active(card, model)


@pytest.mark.parametrize("card", CATALOGUE, ids=lambda card: card.name)
def test_catalogue_counts_as_its_card(card):
    model = load_model(card.name)
    check_total(card, model)
    if card.active is not None:
        check_active(card, model)


@needs_shared
@pytest.mark.parametrize("name", INSTANTIATED)
def test_config_counts_as_its_published_code(name):
    assert load_model(str(FOLDER / f"{name}_config.json")).parameters == INSTANTIATED[name]


@pytest.mark.parametrize(
    ("name", "total_b", "active_b"), [("gpt-oss-120b", 116.83, 5.13), ("gpt-oss-20b", 20.91, 3.61)]
)
def test_gpt_oss_to_the_second_decimal(name, total_b, active_b):
    """Its card (arXiv 2508.10925, table 1) says which parts are active: the head is, the embedding is not."""
    model = load_model(name)
    assert model.parameters / 1e9 == pytest.approx(total_b, abs=0.005)
    assert (model.active_parameters - model.embedding_parameters) / 1e9 == pytest.approx(active_b, abs=0.005)


@needs_shared
def test_nemotron_3_nano_with_and_without_its_embedding():
    """Its card prints 3.2B active, 3.6B with embeddings."""
    model = load_model(str(FOLDER / "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16_config.json"))
    assert model.active_parameters / 1e9 == pytest.approx(3.6, abs=0.05)
    assert (model.active_parameters - model.embedding_parameters) / 1e9 == pytest.approx(3.2, abs=0.05)


@pytest.mark.parametrize(
    ("name", "with_modules", "checkpoint_bytes", "tolerance"),
    [
        ("gpt-oss-120b", False, 60.8 * 2**30, 0.002),  # its card, table 1: checkpoint size 60.8 GiB
        ("gpt-oss-20b", False, 12.8 * 2**30, 0.005),  # its card, table 1: checkpoint size 12.8 GiB
        ("kimi-k2.5", False, 595e9, 0.005),  # hub: 595 GB of int4 experts, bf16 rest and vision tower
        ("deepseek-v4-pro", True, 865e9, 0.005),  # hub: about 865 GB of fp4 experts and fp8 rest
    ],
)
def test_quantised_checkpoints_weigh_what_their_files_do(name, with_modules, checkpoint_bytes, tolerance):
    model = load_model(name)
    weight = model.weight_bytes()
    if with_modules:
        weight += load_drafter(None, model, "mtp").weight_bytes()
    assert weight == pytest.approx(checkpoint_bytes, rel=tolerance)


def test_a_wrong_count_is_noticed():
    """Negative control: one layer more, or one expert more a token, fails the check."""
    card = next(card for card in CATALOGUE if card.name == "deepseek-v3")
    model = load_model("deepseek-v3")
    moe = next(layer for layer in model.layers if layer.experts is not None)
    longer = tuple(replace(x, count=x.count + 1) if x is moe else x for x in model.layers)
    with pytest.raises(AssertionError):
        check_total(card, replace(model, layers=longer))
    busier = replace(moe, experts=replace(moe.experts, per_token=moe.experts.per_token + 1))
    with pytest.raises(AssertionError):
        check_active(card, replace(model, layers=tuple(busier if x is moe else x for x in model.layers)))
