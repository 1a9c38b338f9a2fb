"""One call of a user's function: its arguments flattened, named and checked, and the key of the
calls that share a tape."""

from __future__ import annotations

import collections
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.arrays import computed_in, is_foreign, objection
from tapegrad.core.locks import cached_property
from tapegrad.core.shapes import ShapeDtype
from tapegrad.core.statics import exact_key, is_generator, is_watched, is_watched_class, static_key
from tapegrad.core.tables import Column
from tapegrad.core.trees import (
    children,
    flatten,
    flatten_with_paths,
    is_number,
    is_of_texts,
    is_traced,
    is_whole,
    path_name,
)
from tapegrad.errors import ArgumentError, TraceError


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a traced call, which later calls of its tape must have too.

    `structure` is the tree structure of (args, kwargs). `statics` are the leaves that aren't
    inputs, as (place, repr, key).
    """

    structure: Any
    statics: tuple[tuple[str, str, Any], ...]


class Request:
    """The call `f(*args, **kwargs)`.

    `leaves` are those of the tree (args, kwargs), whose structure is `structure`. `names` are the
    names of the tape's inputs, by default the parameters' names.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.f = f
        if sys.is_finalizing():
            raise TraceError(
                f"{self.name} is called while Python ends, by __del__ or a weak reference, when "
                "the modules are gone that tapegrad takes. Call it before that, as in a function "
                "that atexit.register is given"
            )
        self.args = tuple(args)
        self.kwargs = kwargs or {}
        self.leaves, self.structure = flatten((self.args, self.kwargs))
        self._names = names
        self.chosen: tuple[Any, ...] = ()  # the result of the user's key function, in a 1-tuple
        self.passes_on = False  # whether effects outside are passed on: see `kept`
        self.holds_draws = False  # whether draws are inputs of its own tape: see `draws`

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return describe(self.f)

    @property
    def inputs(self) -> list[Any]:
        """The leaves that are traced, which are the first inputs of the tape."""
        return [x for x in self.leaves if is_traced(x)]

    @cached_property
    def key(self) -> Any:
        """The key of all that a trace depends on in the arguments, apart from the values of traced
        leaves."""
        orders = key_orders((self.args, self.kwargs))
        return self.chosen, self.structure, orders, tuple(map(leaf_key, self.leaves))

    @cached_property
    def _labels(self) -> tuple[list[str], list[str]]:
        return leaf_names(self.f, self.args, self.kwargs)

    @property
    def names(self) -> Sequence[str]:
        """The names of the tape's first inputs."""
        return self._labels[0] if self._names is None else self._names

    @property
    def words(self) -> list[str]:
        """The description of each leaf in messages."""
        return self._labels[1]

    def check(self, what: str) -> Request:
        """Return the request, or raise an ArgumentError about `what` if a leaf can't be traced."""
        for leaf, word in zip(self.leaves, self.words, strict=True):
            check_leaf(leaf, f"{what} of {self.name}: {word}")
        return self


def argument_names(f: Callable[..., Any], count: int) -> list[str]:
    """The names of the first `count` positional arguments of `f`; made up where they are
    unknown."""
    if type(f) is types.FunctionType and not f.__dict__:  # `__dict__` may hold another signature
        code = f.__code__
        if count <= code.co_argcount:
            return list(code.co_varnames[:count])
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    while len(named) < count:
        named.append(f"{rest[0]}{len(named)}" if rest else f"x{len(named)}")
    return named[:count]


class Names:
    """The parameter names of a plain function whose arguments may be passed by position or by
    name."""

    def __init__(self, f: Any) -> None:
        self.f, self.code = f, f.__code__
        self.names: tuple[str, ...] = self.code.co_varnames[: self.code.co_argcount]

    @staticmethod
    def of(f: Callable[..., Any]) -> Names | None:
        """The names for a function. None if it isn't plain, may have another signature, or has
        positional-only parameters."""
        is_plain = type(f) is types.FunctionType and not f.__dict__
        return Names(f) if is_plain and not f.__code__.co_posonlyargcount else None

    def by_position(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments, with the keyword arguments that come next passed by position instead.
        They are removed from `kwargs`.

        f(x, n=3)    -->    f(x, 3)
        """
        if self.f.__code__ is self.code:
            for name in self.names[len(args) :]:
                if name not in kwargs:
                    break
                args = (*args, kwargs.pop(name))
        return args, kwargs


def describe(f: Callable[..., Any]) -> str:
    """The function's name, for messages."""
    return getattr(f, "__name__", type(f).__name__)


def leaf_key(x: Any) -> Any:
    """The key of all that a trace depends on in one leaf. It includes the memory layout, which
    decides whether a reshape is a view, through which writes pass, or a copy."""
    if isinstance(x, np.ndarray) and not is_of_texts(x):
        layout = None if x.flags.c_contiguous else x.strides
        return x.shape, x.dtype, layout if type(x) is np.ndarray else (type(x), layout)
    if is_traced(x):
        if is_number(x):
            if type(x) is int:
                return int if -(2**63) < x < 2**63 else "an integer beyond 64 bits"  # refused
            return type(x)
        return type(x), x.shape, x.dtype
    return type(x) if is_generator(x) or is_watched(x) else static_key(x)


def has_objects(key: Any) -> bool:
    """Whether a call's arguments include watched objects, each of which may lead to another
    path."""
    return isinstance(key, tuple) and any(
        isinstance(x, type) and is_watched_class(x) for x in key[-1]
    )


def key_orders(tree: Any) -> tuple[Any, ...]:
    """The keys of a tree's dicts, in order. The structure ignores their order, since leaves are
    sorted by key, and equates 1 with True; but a function may iterate over a dict and see both."""
    parts = children(tree)
    if parts is None:
        return ()
    own = tuple(map(static_key, tree)) if isinstance(tree, dict) else ()
    return sum(map(key_orders, parts), (own,) if own else ())


# Containers whose contents aren't watched, unless `trees` flattens them or they have an exact key.
_NUMBERS = (float, int, complex)
_CONTAINERS = (
    *(list, tuple, dict, set, frozenset, bytearray, slice),
    *(collections.deque, types.MappingProxyType, Iterator),
)


def check_leaf(x: Any, where: str) -> None:
    """Raise an ArgumentError if this leaf can't be traced."""
    found = objection(x)
    if found is not None:
        raise ArgumentError(f"{where} {''.join(found)}")
    if is_foreign(x) and not is_traced(x):
        raise ArgumentError(
            f"{where} is of type {type(x).__name__}, which isn't an ndarray: what it holds would "
            "be read once, when the function is traced. Pass np.asarray(x)"
        )
    if isinstance(x, ShapeDtype):
        raise ArgumentError(
            f"{where} is {x!r}, and a call needs values. Pass an array, or ask for what depends on "
            "shapes alone: eval_shape, or compile and lower of the derived function"
        )
    if isinstance(x, _CONTAINERS) and not is_traced(x) and exact_key(x) is None:
        raise ArgumentError(
            f"{where} is a {type(x).__name__}, which can change without notice, so a derivative "
            "can't be kept for it. Pass a tuple, list or dict (or a frozenset, or bytes)"
        )
    if is_number(x) and type(x) not in _NUMBERS:
        kind = next(k.__name__ for k in _NUMBERS if isinstance(x, k))
        raise ArgumentError(
            f"{where} is of type {type(x).__name__}, a class derived from {kind}, whose operators "
            f"tapegrad can't follow. Pass {kind}(x)"
        )
    if isinstance(x, int) and is_number(x) and not -(2**63) < x < 2**63:
        raise ArgumentError(
            f"{where} is {x}, which doesn't fit in 63 bits and a sign. Pass it as a float"
        )


def static_leaves(paths: Sequence[Any], leaves: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The leaves that aren't traced, as (place, leaf)."""
    for path, leaf in zip(paths, leaves, strict=True):
        if not is_traced(leaf):
            yield _place(path), leaf


def form_of(args: Any, kwargs: dict[str, Any]) -> Form:
    """The form of a call with these arguments."""
    paths, leaves, structure = flatten_with_paths((args, kwargs))
    statics = tuple((at, repr(x), static_key(x)) for at, x in static_leaves(paths, leaves))
    return Form(structure, statics)


def leaf_names(
    f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """A name for each traced leaf, and a description of every leaf for messages."""
    long: list[str] = []
    short: list[str] = []
    words: list[str] = []
    labels = argument_names(f, len(args))
    for label, tree in [*zip(labels, args, strict=True), *sorted(kwargs.items())]:
        paths, leaves, _ = flatten_with_paths(tree)
        for path, leaf in zip(paths, leaves, strict=True):
            place = _place(path)
            words.append(f"argument {label + place if place else repr(label)}")
            if is_traced(leaf):
                long.append(label if not path else path_name((label, *path)))
                own = bool(path) and isinstance(path[-1], str) and path[-1].isidentifier()
                short.append(path[-1] if own else long[-1])
    # `params["W1"]` is named W1 if no other leaf has that name, else params_W1.
    names = [s if short.count(s) == 1 else whole for s, whole in zip(short, long, strict=True)]
    return _distinct(names), words


def _place(path: tuple[Any, ...]) -> str:
    """The place of a leaf in its argument, in Python's notation."""
    return "".join(f"[{p!r}]" for p in path if not is_whole(p))


def _distinct(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def is_differentiable(x: Any) -> bool:
    """Whether derivatives with respect to this leaf exist."""
    if not is_traced(x):
        return False
    return not isinstance(x, int) if is_number(x) else computed_in(x.dtype).kind in "fc"


def without_derivative(
    f: Callable[..., Any], x: Any, where: str, what: str = "grad"
) -> ArgumentError:
    """The error for an argument without differentiable leaves. `x` is its first leaf, `what` the
    transformation."""
    name = describe(f)
    if isinstance(x, Column):
        return ArgumentError(
            f"{what} of {name}: {where} is {x!r}, which has no derivative. Choose the columns of "
            "numbers (df[['a', 'b']]), convert it with astype(float), or choose other argnums"
        )
    if not is_traced(x):
        return ArgumentError(
            f"{what} of {name}: {where} is {x!r} ({type(x).__name__}), which has no derivative. "
            "Choose other argnums"
        )
    kind = f"an integer ({x!r})" if is_number(x) else f"an array of dtype {x.dtype}"
    return ArgumentError(
        f"{what} of {name}: {where} is {kind}, and there is no derivative with respect to "
        "integers or booleans. Convert it to float64 (write 3.0 instead of 3, or "
        "x.astype(float)), or choose other argnums"
    )
