"""Trees in generated code: how it takes arguments apart, and puts results together.

Code generated for certain arguments knows their nesting: dicts, lists and tuples, and where wanted,
named tuples and dataclasses. It doesn't walk the tree, but has an expression for each part:
`args[0]['w'][2]`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tapegrad.core.instances import Functions, notes_of, tree_of


def is_plain_tree(x: Any) -> bool:
    """Whether `x` is one of Python's own containers that can be written as a literal: a list, a
    tuple, or a dict whose keys are strings or integers."""
    if type(x) is dict:
        return {str, int}.issuperset(map(type, x))
    return type(x) in (list, tuple)


def is_named_tuple(x: Any) -> bool:
    """Whether `x` is a named tuple whose class adds nothing to the fields."""
    cls: Any = type(x)
    return cls.__bases__ == (tuple,) and hasattr(cls, "_fields") and tree_of(cls) is None


def is_tree(x: Any) -> bool:
    """Whether generated code can take `x` apart: a container, or a named tuple or dataclass with no
    state besides its fields."""
    if is_plain_tree(x):
        return True
    how = tree_of(type(x))
    if notes_of(x) or isinstance(how, Functions) or (how is not None and how.static):
        return False
    if isinstance(x, tuple):
        return hasattr(x, "_fields")
    if not dataclasses.is_dataclass(x) or isinstance(x, type):
        return False
    return all(f.init and hasattr(x, f.name) for f in dataclasses.fields(x))


def branches(place: str, x: Any) -> list[tuple[Any, str, Any]]:
    """The parts of the tree `x`, whose expression is `place`, in the order in which tracing takes
    them: the key, position or field's name; the part's expression; and the part."""
    if type(x) is dict:
        keys = sorted(x, key=lambda k: (type(k).__name__, k))
        return [(k, f"{place}[{k!r}]", x[k]) for k in keys]
    if type(x) in (list, tuple):
        return [(k, f"{place}[{k}]", value) for k, value in enumerate(x)]
    cls: Any = type(x)
    names = cls._fields if issubclass(cls, tuple) else [f.name for f in dataclasses.fields(cls)]
    return [(name, f"{place}.{name}", getattr(x, name)) for name in names]


def take_apart(place: str, x: Any, enter: Callable[[str, Any], str | None]) -> None:
    """Visit a tree and its parts, in the order in which tracing takes them.

    `enter` is called with the expression of each part and the part. It returns the expression to
    use for the part from there on, or None for a part that isn't to be taken apart.
    """
    inside = enter(place, x)
    if inside is not None:
        for _, said, part in branches(inside, x):
            take_apart(said, part, enter)


class Mark:
    """A placeholder of an output, in a result whose expression is to be written."""

    def __init__(self, text: str) -> None:
        self.text = text


class ComputedPart(Mark):
    """A placeholder of a part of a result that lines of Python compute from outputs and fixed
    arrays. The lines and the expression name these in braces; `imported` is the import that they
    need."""

    def __init__(
        self, text: str, lines: Sequence[str], arrays: Mapping[str, Any], imported: str
    ) -> None:
        super().__init__(text)
        self.lines, self.arrays, self.imported = lines, arrays, imported


def put_together(
    x: Any, said: Callable[[Any], str | None], kind: Callable[[type], str] = repr
) -> str:
    """The expression that builds a tree like `x`.

    `said` returns the expression of a part, None for a part that is itself put together; `kind`
    returns the expression of the class of a named tuple or a dataclass.
    """
    text = said(x)
    if text is not None:
        return text
    name = "" if is_plain_tree(x) else kind(type(x))
    made = {key: put_together(part, said, kind) for key, _, part in branches("", x)}
    inner = ", ".join(made.values())
    if type(x) is dict:
        return "{" + ", ".join(f"{key!r}: {made[key]}" for key in x) + "}"
    if type(x) is list:
        return f"[{inner}]"
    if type(x) is tuple:
        return f"({inner},)" if len(made) == 1 else f"({inner})"
    return f"{name}({', '.join(f'{name}={text}' for name, text in made.items())})"
