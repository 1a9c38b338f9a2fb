"""Keys and attributes, as the texts of guards have them."""

from __future__ import annotations

import keyword
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.observe.objects.plainly import looks_up_itself
from tapegrad.primitives.base import Value


@dataclass(frozen=True)
class Key:
    """A key of a dict, told apart from those that are equal and of another type."""

    key: Any

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key) and type(self.key) is type(other.key) and self.key == other.key
        )

    def __hash__(self) -> int:
        try:
            return hash(self.key)
        except TypeError:  # of slices, before Python 3.12
            return hash(repr(self.key))


def is_name(text: str) -> bool:
    """Whether a text may stand in the guards as an attribute or a key."""
    return text.isidentifier() and text.isascii() and not keyword.iskeyword(text)


def attribute(name: str, x: Any = None) -> str:
    """`{}.name`, as Python looks it up; as `object` does it, where the class of `x` has a way of
    its own, which is followed when the program does it."""
    itself = looks_up_itself(type(x))
    if is_name(name) and not itself:
        return f"{{}}.{name}"
    codes = ", ".join(str(ord(letter)) for letter in name)
    text = repr(name) if is_name(name) else f"''.join(map(chr, [{codes}]))"
    return f"{'plain_attribute' if itself else 'getattr'}({{}}, {text})"


def names_of(x: Any) -> str:
    """The dict of the attributes that an object has of its own."""
    return attribute("__dict__", x) if looks_up_itself(type(x)) else "vars({})"


def name_of(f: Any) -> str:
    """What the user calls a function."""
    module = getattr(f, "__module__", None)
    held = getattr(f, "__self__", None)
    if module is None and held is not None and not isinstance(held, types.ModuleType):
        module = type(held).__name__ if not isinstance(held, type) else held.__name__
    names = (getattr(f, "__qualname__", None), getattr(f, "__name__", None))
    name = next((x for x in names if type(x) is str), type(f).__name__)
    if not isinstance(module, str) or module in ("", "builtins", "__main__"):
        return str(name)
    return f"{module}.{str(name).rpartition('.')[2]}"


def plain_key(key: Any) -> Any:
    """A traced number that is looked up is guarded, and stands for its value."""
    if isinstance(key, Value):
        value = key._read()[1]  # type: ignore[attr-defined]
        if isinstance(value, (np.generic, np.ndarray)):
            return value.item() if value.size == 1 else key
        return value
    return key


def index_text(key: Any) -> str:
    """A plain index as text; empty if it is of another kind."""
    if type(key) is int:
        return repr(key)
    if type(key) is tuple and all(type(k) is int for k in key):
        return repr(key)
    return ""
