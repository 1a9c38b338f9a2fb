"""The texts of keys and attributes in the generated guards."""

from __future__ import annotations

import keyword
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.observe.objects.inspection import looks_up_itself
from tapegrad.primitives.base import Value


@dataclass(frozen=True)
class Key:
    """A key of a dict. It differs from equal keys of other types, as 1 and True."""

    key: Any

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Key) and type(self.key) is type(other.key) and self.key == other.key
        )

    def __hash__(self) -> int:
        try:
            return hash(self.key)
        except TypeError:  # slices, before Python 3.12
            return hash(repr(self.key))


def is_name(text: str) -> bool:
    """Whether a text can be written in the guards as an attribute or a key."""
    return text.isidentifier() and text.isascii() and not keyword.iskeyword(text)


def attribute(name: str, x: Any = None) -> str:
    """The text `{}.name`, for a look-up as Python does it. If the class of `x` defines
    `__getattribute__`, the text looks up as `object` does: the class's own method is followed when
    the program calls it."""
    itself = looks_up_itself(type(x))
    if is_name(name) and not itself:
        return f"{{}}.{name}"
    codes = ", ".join(str(ord(letter)) for letter in name)
    text = repr(name) if is_name(name) else f"''.join(map(chr, [{codes}]))"
    return f"{'plain_attribute' if itself else 'getattr'}({{}}, {text})"


def names_of(x: Any) -> str:
    """The text for the dict of an object's own attributes."""
    return attribute("__dict__", x) if looks_up_itself(type(x)) else "vars({})"


def name_of(f: Any) -> str:
    """A function's name in messages."""
    module = own_attribute(f, "__module__")
    held = own_attribute(f, "__self__")
    if module is None and held is not None and not isinstance(held, types.ModuleType):
        module = type(held).__name__ if not isinstance(held, type) else held.__name__
    names = (own_attribute(f, "__qualname__"), own_attribute(f, "__name__"))
    name = next((x for x in names if type(x) is str), type(f).__name__)
    if not isinstance(module, str) or module in ("", "builtins", "__main__"):
        return str(name)
    return f"{module}.{str(name).rpartition('.')[2]}"


def plain_key(key: Any) -> Any:
    """A key for a look-up. A traced number is guarded and replaced by its value."""
    if isinstance(key, Value):
        value = key._read()[1]  # type: ignore[attr-defined]
        if isinstance(value, (np.generic, np.ndarray)):
            return value.item() if value.size == 1 else key
        return value
    return key


def index_text(key: Any) -> str:
    """The text of an integer index, or a tuple of them; empty for other keys."""
    if type(key) is int:
        return repr(key)
    if type(key) is tuple and all(type(k) is int for k in key):
        return repr(key)
    return ""
