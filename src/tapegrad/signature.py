"""What a call's arguments are: the key under which a derivative is cached, and error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.arrays import is_foreign, objection
from tapegrad.errors import ArgumentError
from tapegrad.trees import flatten_with_paths, is_number, is_traced, path_name


def argument_names(f: Callable[..., Any], count: int) -> list[str]:
    """The names of the first `count` positional arguments of `f`, as far as they are known."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    while len(named) < count:
        named.append(f"{rest[0]}{len(named)}" if rest else f"x{len(named)}")
    return named[:count]


def describe(f: Callable[..., Any]) -> str:
    """The function's name, for messages."""
    return getattr(f, "__name__", type(f).__name__)


class _Identity:
    """Stands for an object that can't be hashed, and is equal for that very object only."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.x is other.x

    def __hash__(self) -> int:
        return id(self.x)


def leaf_key(x: Any) -> Any:
    """What a trace depends on in one leaf. The memory layout is part of it: whether a reshape is
    a view, which a write goes through, or a copy, depends on it."""
    if isinstance(x, np.ndarray):
        layout = None if x.flags.c_contiguous else x.strides
        return x.shape, x.dtype, layout if type(x) is np.ndarray else (type(x), layout)
    if is_traced(x):
        if is_number(x):
            if isinstance(x, float):
                return float
            return int if -(2**63) < x < 2**63 else "an integer beyond 64 bits"  # refused
        return type(x), x.shape, x.dtype
    try:
        hash(x)
    except (TypeError, ValueError):  # a memoryview
        return type(x), _Identity(x)
    return type(x), x


def check_leaf(x: Any, where: str) -> None:
    """An ArgumentError if this leaf can't be traced."""
    found = objection(x)
    if found is not None:
        raise ArgumentError(f"{where} {''.join(found)}")
    if is_foreign(x) and not is_traced(x):
        raise ArgumentError(
            f"{where} is of type {type(x).__name__}, which isn't an ndarray: what it holds would "
            "be read once, when the function is traced. Pass np.asarray(x)"
        )
    if isinstance(x, (set, bytearray, Iterator)):
        raise ArgumentError(
            f"{where} is a {type(x).__name__}, which can change without notice, so a derivative "
            "can't be kept for it. Pass a tuple (or a frozenset, or bytes)"
        )
    if isinstance(x, int) and is_number(x) and not -(2**63) < x < 2**63:
        raise ArgumentError(f"{where} is {x}, which doesn't fit in 64 bits. Pass it as a float")


def leaf_names(
    f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """A name for each traced leaf, and the words that messages use for each leaf of any kind."""
    long: list[str] = []
    short: list[str] = []
    words: list[str] = []
    labels = argument_names(f, len(args))
    for label, tree in [*zip(labels, args, strict=True), *sorted(kwargs.items())]:
        paths, leaves, _ = flatten_with_paths(tree)
        for path, leaf in zip(paths, leaves, strict=True):
            words.append("argument " + (repr(label) if not path else label + _place(path)))
            if is_traced(leaf):
                long.append(label if not path else path_name((label, *path)))
                own = bool(path) and isinstance(path[-1], str) and path[-1].isidentifier()
                short.append(path[-1] if own else long[-1])
    # `params["W1"]` is W1 where no other leaf is called that, else params_W1.
    names = [s if short.count(s) == 1 else whole for s, whole in zip(short, long, strict=True)]
    return _distinct(names), words


def _place(path: tuple[Any, ...]) -> str:
    """Where a leaf is in its argument, as Python would write it."""
    return "".join(f"[{p!r}]" for p in path)


def _distinct(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def check_differentiable(f: Callable[..., Any], x: Any, where: str) -> None:
    """An ArgumentError if there is no derivative with respect to this leaf."""
    name = describe(f)
    if not is_traced(x):
        raise ArgumentError(
            f"grad of {name}: {where} is {x!r} ({type(x).__name__}), which has no derivative. Pass "
            "it as a separate argument, or choose other argnums"
        )
    kind = (
        "i" if is_number(x) and not isinstance(x, float) else "f" if is_number(x) else x.dtype.kind
    )
    if kind in "iub":
        what = f"an integer ({x!r})" if is_number(x) else f"an array of dtype {x.dtype}"
        raise ArgumentError(
            f"grad of {name}: {where} is {what}, and there is no derivative with respect to "
            "integers or booleans. Convert it to float64 (write 3.0 instead of 3, or "
            "x.astype(float)), or choose other argnums"
        )
