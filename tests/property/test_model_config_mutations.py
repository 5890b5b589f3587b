"""Whatever is wrong with a config.json, the answer is a model or an InputError, and both do occur."""

import copy
import json
import math

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.models.catalogue import drafters, entry, load_model, targets
from simulator.models.config import model_from_config, parse_object
from simulator.models.drafter import drafter_from_config
from simulator.models.model import Model
from tests.shared_data import SHARED

FILES = sorted((SHARED / "data" / "model_configs").glob("*.json")) if SHARED.is_dir() else []
CONFIGS = {name: dict(entry(name).config) for name in targets()}
CONFIGS |= {file.name: json.loads(file.read_text()) for file in FILES}
HEADS = {name: entry(name) for name in drafters() if entry(name).method in ("eagle", "eagle3")}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70_000),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["fp8", "4096", "full_attention", "linear_attention", "re:(", "re:.*", "M*E-", 10**400]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)
KEYS = [*sorted({key for config in CONFIGS.values() for key in config}), "text_config", "block_configs"]


def places(value, path=()):
    """Every place in a config that can be changed, nested ones included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:6]):
            yield (*path, index)
            yield from places(inner, (*path, index))


def mutate(config, data):
    """A copy of a config with a few values changed, removed, added or moved."""
    config = copy.deepcopy(config)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["change", "remove", "add", "borrow"]))
        if kind == "add":
            config[data.draw(st.sampled_from(KEYS))] = data.draw(VALUES)
            continue
        if kind == "borrow":
            other = CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]
            key = data.draw(st.sampled_from(sorted(other)))
            config[key] = copy.deepcopy(other[key])
            continue
        choices = list(places(config))
        if not choices:
            continue
        *parents, last = data.draw(st.sampled_from(choices))
        holder = config
        for key in parents:
            holder = holder[key]
        if kind == "remove":
            del holder[last]
        else:
            holder[last] = data.draw(VALUES)
    return config


def check(model: Model) -> None:
    """What must hold of any model at all."""
    assert model.parameters >= model.active_parameters > 0
    assert model.layer_count > 0
    for ranks in (1, 3, 8):
        weight = model.weight_bytes(ranks)
        assert 0 < weight < math.inf
        assert model.kv_bytes(1000, "fp8", ranks) >= 1000 * model.kv_bytes_per_token("fp8", ranks) >= 0
    assert model.with_weights("fp8").parameters == model.parameters


def attempt(read):
    """What `read` gives, or the InputError it raises; anything else is a failure of the test."""
    try:
        return read()
    except InputError as error:
        return error


@given(st.data())
def test_mutated_configs_give_a_model_or_an_input_error(data):
    config = mutate(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))], data)
    text = json.dumps(config)
    result = attempt(
        lambda: model_from_config(parse_object(text, "f.json"), "x", "x", file="f.json", text=text)
    )
    if isinstance(result, InputError):
        assert all(problem.file == "f.json" and problem.message for problem in result.problems)
        event("refused")
    else:
        check(result)
        event("read")


@given(st.data())
def test_mutated_heads_give_a_drafter_or_an_input_error(data):
    known = HEADS[data.draw(st.sampled_from(sorted(HEADS)))]
    config = mutate(known.config, data)
    target = load_model(known.targets[0])
    result = attempt(lambda: drafter_from_config(config, target, known.method, "x", "x", file="f"))
    if isinstance(result, InputError):
        assert all(problem.file == "f" for problem in result.problems)
    else:
        assert result.parameters > 0
        assert 0 < result.weight_bytes(4) < math.inf
        assert result.kv_bytes_per_token("fp8", 4) > 0


@given(st.data())
def test_broken_text_gives_a_model_or_an_input_error(data):
    text = json.dumps(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))], indent=1)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    text = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
    result = attempt(lambda: model_from_config(parse_object(text, "f"), "x", "x", file="f", text=text))
    if isinstance(result, InputError):
        assert str(result)
    else:
        check(result)


@pytest.mark.parametrize(
    "name", ["llama-3.3-70b-instruct", "deepseek-v3.2", "qwen3.5-35b-a3b", "gpt-oss-120b"]
)
def test_each_field_that_sizes_rest_on_is_missed(name):
    """Negative control: a config without it, or with it as a text, is refused by that field's name."""
    known = dict(entry(name).config)
    for field in ("hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers"):
        for broken in ({k: v for k, v in known.items() if k != field}, {**known, field: str(known[field])}):
            with pytest.raises(InputError) as error:
                model_from_config(broken, "x", "x")
            assert [problem.field for problem in error.value.problems] == [field]
