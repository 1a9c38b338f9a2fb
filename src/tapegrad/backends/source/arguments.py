"""Trees in generated code: how arguments are taken apart there, and results put together.

What is generated for certain arguments knows how they are nested: dicts, lists and tuples, and
where asked for, named tuples and dataclasses. It walks no tree, but says for each part what it is
called there: `args[0]['w'][2]`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tapegrad.core.instances import Functions, notes_of, tree_of


def is_plain_tree(x: Any) -> bool:
    """Whether this is one of Python's own containers, and can be written down: a list, a tuple, a
    dict whose keys are strings or integers."""
    if type(x) is dict:
        return {str, int}.issuperset(map(type, x))
    return type(x) in (list, tuple)


def is_named_tuple(x: Any) -> bool:
    """Whether this is a tuple with names, whose class adds nothing to that."""
    cls: Any = type(x)
    return cls.__bases__ == (tuple,) and hasattr(cls, "_fields") and tree_of(cls) is None


def is_tree(x: Any) -> bool:
    """Whether generated code can take this apart: a container, or a named tuple or a dataclass that
    carries along nothing besides its fields."""
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
    """The parts of a tree that `place` says, in the order in which tracing takes them: the key,
    position or field's name, the expression that says it, and the part."""
    if type(x) is dict:
        keys = sorted(x, key=lambda k: (type(k).__name__, k))
        return [(k, f"{place}[{k!r}]", x[k]) for k in keys]
    if type(x) in (list, tuple):
        return [(k, f"{place}[{k}]", value) for k, value in enumerate(x)]
    cls: Any = type(x)
    names = cls._fields if issubclass(cls, tuple) else [f.name for f in dataclasses.fields(cls)]
    return [(name, f"{place}.{name}", getattr(x, name)) for name in names]


def take_apart(place: str, x: Any, enter: Callable[[str, Any], str | None]) -> None:
    """Go through a tree and its parts, in the order in which tracing takes them.

    `enter` is given each with the expression that says it. It returns what the tree is called from
    there on, or None for what isn't to be taken apart.
    """
    inside = enter(place, x)
    if inside is not None:
        for _, said, part in branches(inside, x):
            take_apart(said, part, enter)


class Mark:
    """Stands for an output in a result of which the expression is to be written."""

    def __init__(self, text: str) -> None:
        self.text = text


class Made(Mark):
    """Stands for a part of a result that lines of Python make of outputs and of fixed arrays: the
    lines and the expression say these by their names in braces, after an import."""

    def __init__(
        self, text: str, lines: Sequence[str], arrays: Mapping[str, Any], imported: str
    ) -> None:
        super().__init__(text)
        self.lines, self.arrays, self.imported = lines, arrays, imported


def put_together(
    x: Any, said: Callable[[Any], str | None], kind: Callable[[type], str] = repr
) -> str:
    """The expression that makes a tree like `x`.

    `said` is the expression of a part, None for one that is to be put together in turn; `kind` that
    of the class of a named tuple or a dataclass.
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
