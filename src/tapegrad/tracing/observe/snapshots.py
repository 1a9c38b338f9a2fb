"""What the variables of a frame hold at one moment, as far as it can be told when that is so again.

Two snapshots are alike where the same program would go on in the same way: traced values of one
type may be others, plain ones are equal, and containers are alike in turn. That is so if nothing
but these variables was changed in between, which `effects.py` knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tapegrad.ir.tape import Operand
from tapegrad.primitives.base import Value
from tapegrad.tracing.observe.frames import MISSING
from tapegrad.tracing.observe.harmless import PLAIN_TYPES

_RANGE = type(iter(range(1)))
_NUMBERS = (int, float, bool)


@dataclass
class Described:
    """One variable: what it is like, what it holds that is traced, and which objects."""

    shape: list[Any] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    arrays: list[int] = field(default_factory=list)  # by id: roots of traced arrays,
    containers: list[int] = field(default_factory=list)  # lists and dicts
    objects: list[Any] = field(default_factory=list)  # held, and the same ones only if they are so
    number: Any = None  # a plain number
    left: int | None = None  # how many numbers a range has left


def described(x: Any, trace: Any) -> Described:
    """What a variable that holds `x` is like, to this trace."""
    found = Described()
    _describe(found, x, trace, 0)
    if type(x) in _NUMBERS:
        found.number = x
    elif type(x) is _RANGE:
        found.left = len(_left(x))
    return found


def _left(x: Any) -> range:
    """What the iterator of a range has left."""
    _, (whole,), at = x.__reduce__()
    left: range = whole[at or 0 :]
    return left


_DEEP = 6


def _describe(d: Described, x: Any, trace: Any, depth: int) -> None:
    kind: Any = type(x)
    if x is MISSING:
        d.shape.append("missing")
    elif isinstance(x, Value):
        _describe_traced(d, x, trace)
    elif kind in PLAIN_TYPES:
        d.shape.append((kind, repr(x)))
    elif isinstance(x, np.generic) and not isinstance(x, (np.void, np.object_)):
        d.shape.append((kind, x.dtype.str, x.tobytes()))
    elif depth < _DEEP and (kind in (list, tuple) or (isinstance(x, tuple) and _is_named(kind))):
        d.shape.append((kind, len(x)))
        if kind is list:
            d.containers.append(id(x))
        for value in x:
            _describe(d, value, trace, depth + 1)
    elif depth < _DEEP and kind is dict and all(type(key) in (str, int) for key in x):
        d.shape.append((kind, *x))
        d.containers.append(id(x))
        for value in x.values():
            _describe(d, value, trace, depth + 1)
    elif kind is _RANGE:  # not held: whether it is the frame's alone, is seen when it goes on
        d.shape.append((kind, _left(x)))
    else:
        d.shape.append("object")
        d.objects.append(x)


def _is_named(kind: type) -> bool:
    """Whether objects of a class of tuples are nothing else beside: named tuples."""
    return kind.__base__ is tuple and hasattr(kind, "_fields") and kind.__dictoffset__ == 0


def _describe_traced(d: Described, x: Any, trace: Any) -> None:
    root, sizes = x._root, trace.bounds
    owner = x if root is None else root
    if x._trace is not trace:  # of an outer trace, in which nothing is written
        d.shape.append("object")
        d.objects.append(x)
        return
    if owner._doubt or owner._may_alias or x._version != owner._version:
        d.shape.append(object())  # like nothing else
        return
    if root is not None:
        d.shape.append(("view", type(x), x._aval, x._chain))
        d.operands.append(x._operand)
    strides = getattr(owner._value, "strides", None)  # they decide what a reshape is
    size = sizes.get(owner._operand)  # of an integer of Python's, which have no bound
    d.shape.append((type(owner), owner._aval, owner._ordered, strides, size))
    d.operands.append(owner._operand)
    if owner._aval.shape or not owner._is_scalar():
        d.arrays.append(id(owner))


def are_alike(one: Described, other: Described) -> bool:
    """Whether two variables, or one at two moments, are alike but for which objects they hold."""
    return (
        one.shape == other.shape
        and len(one.objects) == len(other.objects)
        and all(x is y for x, y in zip(one.objects, other.objects, strict=True))
    )


class Pairing:
    """Which object has become which, from one moment to another: no two have become one."""

    def __init__(self) -> None:
        self.after: dict[int, int] = {}
        self.before: dict[int, int] = {}
        self.holds = True

    def add(self, one: list[int], other: list[int]) -> None:
        for x, y in zip(one, other, strict=True):
            if self.after.setdefault(x, y) != y or self.before.setdefault(y, x) != x:
                self.holds = False

    @property
    def new(self) -> set[int]:
        """The later ones of those that aren't the same any more."""
        return {y for x, y in self.after.items() if x != y}

    @property
    def old(self) -> set[int]:
        return {x for x, y in self.after.items() if x != y}
