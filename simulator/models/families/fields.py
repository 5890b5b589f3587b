"""Checked access to the fields of a `config.json`: what is wrong is collected,
so that one read reports all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from simulator.document import DataPath
from simulator.errors import InputError, Problem

# Far above anything built, low enough that loops stay short.
MOST_LAYERS = 2_000
MOST_HEADS = 65_536
MOST_EXPERTS = 65_536
MOST_WIDTH = 16_777_216
MOST_TOKENS = 100_000_000

# What some configs call a field, most of them older ones; the usual name goes first where both are there.
_SPELLINGS = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "multi_query_group_num", "kv_n_heads"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
}


@dataclass
class ConfigFields:
    """One JSON object of a config. Readers take the first name present, in any of its spellings.

    A field that is missing or wrong is recorded in `problems` and a harmless stand-in is returned, so that
    reading goes on; call `finish` before using what was read. `path` is the place of this object in the file.
    """

    values: Mapping[str, object]
    path: DataPath = ()
    problems: list[tuple[DataPath, Problem]] = field(default_factory=list)
    disagreements: list[tuple[DataPath, Problem]] = field(default_factory=list)

    def inner(self, values: Mapping[str, object], *path: str | int) -> ConfigFields:
        """An object inside this one; its problems are this one's problems."""
        return ConfigFields(values, (*self.path, *path), self.problems, self.disagreements)

    def has(self, *names: str) -> bool:
        return self._name(names) is not None

    def count(self, *names: str, default: int | None = None, low: int = 1, high: int = MOST_WIDTH) -> int:
        """The whole number under the first of `names` that is present; required when there is no default."""
        value = self.optional_count(*names, low=low, high=high)
        if value is not None:
            return value
        if default is None and self._name(names) is None:
            self.add(names[0], None, "is missing", _between(low, high))
        return low if default is None else default

    def optional_count(self, *names: str, low: int = 1, high: int = MOST_WIDTH) -> int | None:
        """As `count`, None when absent or null."""
        name = self._name(names)
        if name is None:
            return None
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.add(name, value, "is not usable", _between(low, high))
            return None
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A real number within low..high."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self.add(name, value, "is not usable", f"a number from {low:g} to {high:g} is allowed")
            return default
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add(name, value, "is not usable", "true or false is allowed")
            return default
        return value

    def word(self, *names: str) -> str:
        """A text, "" when absent or null."""
        name = self._name(names)
        if name is None:
            return ""
        value = self.values[name]
        if not isinstance(value, str):
            self.add(name, value, "is not usable", "a text is allowed")
            return ""
        return value

    def entries(self, name: str) -> list[object] | None:
        """A list, None when absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            self.add(name, value, "is not usable", "a list is allowed")
            return None
        return value

    def per_layer(self, name: str, layers: int, allowed: Sequence[object]) -> list[object] | None:
        """A list with one of `allowed` per layer; entries past the last layer (MTP modules) are left out."""
        entries = self.entries(name)
        if entries is None:
            return None
        if len(entries) < layers:
            self.disagree(
                name,
                f"{len(entries)} entries",
                "is too short",
                f"one entry for each of {layers} layers is needed",
            )
            return None
        for index, entry in enumerate(entries[:layers]):
            if isinstance(entry, list | dict) or entry not in allowed:
                choices = ", ".join(str(choice) for choice in allowed)
                self.add(name, entry, "is unknown", f"known: {choices}", index=index)
                return None
        return entries[:layers]

    def evened(self, names: Sequence[str], layers: int) -> ConfigFields:
        """This object with one number where a list has the same number for every layer."""
        even: dict[str, object] = {}
        for name in names:
            stated = self.values.get(name)
            if not isinstance(stated, list) or len(stated) < layers:
                continue
            even[name] = stated[0]
            if any(entry != stated[0] for entry in stated[:layers]):
                self.add(name, stated, "differs from layer to layer", "one number for all layers is allowed")
        return replace(self, values={**self.values, **even})

    def child(self, name: str) -> ConfigFields | None:
        """The object under `name`, None when absent or null; its problems are this object's problems."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.add(name, value, "is not usable", "an object is allowed")
            return None
        return self.inner(value, name)

    def add(
        self, name: str, value: object, message: str, allowed: str | None = None, *, index: int | None = None
    ) -> None:
        """Record a problem of the field `name`, or of one entry of it."""
        self.problems.append(self._problem(name, value, message, allowed, index))

    def disagree(self, name: str, value: object, message: str, allowed: str | None = None) -> None:
        """Record that a field does not agree with another; reported only where every field is valid by
        itself.
        """
        self.disagreements.append(self._problem(name, value, message, allowed, None))

    def finish(self, file: str | None, locate: Callable[[DataPath], tuple[int | None, int | None]]) -> None:
        """Raise InputError with every problem met so far, if any;
        `locate` gives line and column of a place."""
        problems: dict[str, Problem] = {}
        for path, problem in self.problems or self.disagreements:
            line, column = locate(path)
            problems.setdefault(str(problem), replace(problem, file=file, line=line, column=column))
        if problems:
            raise InputError(list(problems.values()))

    def _problem(
        self, name: str, value: object, message: str, allowed: str | None, index: int | None
    ) -> tuple[DataPath, Problem]:
        path: DataPath = (*self.path, name) if index is None else (*self.path, name, index)
        shown = f"{len(value)} entries" if isinstance(value, list | dict) else value
        return path, Problem(field=_dotted(path), value=shown, message=message, allowed=allowed)

    def _name(self, names: Sequence[str]) -> str | None:
        spelt = (spelling for name in names for spelling in (name, *_SPELLINGS.get(name, ())))
        return next((name for name in spelt if self.values.get(name) is not None), None)


def _dotted(path: DataPath) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _between(low: int, high: int) -> str:
    return f"a whole number from {low} to {high} is allowed"
