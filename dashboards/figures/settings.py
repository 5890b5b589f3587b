"""Settings of a study in words: what an axis is called on a page, and how its values look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dashboards.figures.look import clients
from experiments.maps.study_map import SettingValue

_CLIENTS = "workload.arrivals.concurrency"
_TITLES = {
    _CLIENTS: "clients at work at once",
    "workload.arrivals.rate_per_s": "requests per second",
    "hardware.tensor_parallel": "GPUs",
    "hardware.gpu": "GPU",
    "target.model": "model",
    "engine.preset": "serving engine",
}


def setting_title(path: str) -> str:
    """`prompt tokens` of `workload.prompt_tokens.median`, `draft length of head`."""
    if path in _TITLES:
        return _TITLES[path]
    section, *parts = path.removesuffix(".median").split(".")
    of = f" of {parts.pop(0)}" if section == "speculation" and len(parts) > 1 else ""
    if parts == ["acceptance", "alpha"]:
        return f"α{of}"
    words = [word for part in parts or [section] for word in part.split("_")]
    return " ".join(dict.fromkeys(words)) + of


def place_title(axes: Sequence[str]) -> str:
    """The names of the axes of a place, in the order of its values."""
    return " · ".join(map(setting_title, axes))


def setting_text(value: SettingValue) -> str:
    """A value of an axis: `1,024`, `0.55`, `h100-sxm`."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"{value:,g}" if value < 1e6 else f"{value:g}"


def place_text(place: Iterable[SettingValue]) -> str:
    """`2 · 1,024`."""
    return " · ".join(map(setting_text, place))


def where_text(axes: Sequence[str], place: Sequence[SettingValue], load: str, amount: float) -> str:
    """`2 GPUs, 1,024 prompt tokens, draft length of head 3, 64 clients`."""
    values = [_value_with_title(path, value) for path, value in zip(axes, place, strict=True)]
    return ", ".join([*values, clients(amount) if load == _CLIENTS else _value_with_title(load, amount)])


def _value_with_title(path: str, value: SettingValue) -> str:
    """A value with what it is of; a text speaks for itself."""
    if isinstance(value, str):
        return value
    title, text = setting_title(path), setting_text(value)
    return f"{text} {title}" if title.endswith(("s", "second")) else f"{title} {text}"
