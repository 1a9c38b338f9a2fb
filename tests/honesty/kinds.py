"""What the tests of numbers share: kinds of values, what they meet, and how results are held
against those of the untraced program."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tapegrad import jit
from tapegrad.errors import TapegradError
from tapegrad.tracing.recording.trace import Trace


class Doubling:
    """A user's class that knows numbers."""

    def __add__(self, other: Any) -> Any:
        return 2 * other

    def __rmul__(self, other: Any) -> Any:
        return 3 * other

    def __eq__(self, other: object) -> Any:
        return other > 1.0  # type: ignore[operator]

    __hash__ = None  # type: ignore[assignment]


class Degrees(float):
    """A float by another name."""


class Level(enum.IntEnum):
    HIGH = 2


# Each kind at the values of two calls. A bool is static as an argument, so it is made of numbers.
KINDS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "float": (lambda x: x, [2.5, -0.5]),
    "int": (lambda x: x, [3, 0]),
    "bool": (lambda x: x > 0, [1.5, -2.0]),
    "complex": (lambda x: x, [1.5 + 3j, 0j]),
    "a complex product": (lambda x: x * (1 + 2j), [1.5, 0.0]),
    "np.float64": (lambda x: x, [np.float64(2.5), np.float64(-0.5)]),
    "np.float32": (lambda x: x, [np.float32(2.5), np.float32(-0.5)]),
    "np.int64": (lambda x: x, [np.int64(3), np.int64(0)]),
    "np.bool": (lambda x: x > 0, [np.float64(1.5), np.float64(-2.0)]),
    "0-d": (lambda x: x, [np.array(2.5), np.array(-0.5)]),
    "0-d int": (lambda x: x, [np.array(3), np.array(0)]),
    "array": (lambda x: x, [np.array([2.5, 1.0]), np.array([-0.5, 0.0])]),
}

PYTHONS = ("float", "int", "bool", "complex", "a complex product")

# Made anew for each use, since an operator may change them
OTHERS: dict[str, Callable[[], Any]] = {
    "int": lambda: 2,
    "zero": lambda: 0,
    "float": lambda: 0.5,
    "bool": lambda: True,
    "None": lambda: None,
    "str": lambda: "ab",
    "bytes": lambda: b"ab",
    "bytearray": lambda: bytearray(b"ab"),
    "list": lambda: [1.0, 2.0],
    "tuple": lambda: (1, 2),
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1}),
    "dict": lambda: {1: 2},
    "range": lambda: range(2),
    "deque": lambda: collections.deque([1.0]),
    "array.array": lambda: array.array("d", [1.0, 2.0]),
    "slice": lambda: slice(None),
    "ellipsis": lambda: Ellipsis,
    "type": lambda: int,
    "Fraction": lambda: fractions.Fraction(1, 3),
    "Decimal": lambda: decimal.Decimal("1.5"),
    "complex": lambda: 1j,
    "timedelta": lambda: datetime.timedelta(3),
    "IntEnum": lambda: Level.HIGH,
    "float's subclass": lambda: Degrees(1.5),
    "user's": Doubling,
    "np.float64": lambda: np.float64(1.5),
    "np.float32": lambda: np.float32(0.5),
    "np.int64": lambda: np.int64(2),
    "np.bool": lambda: np.bool_(True),
    "np.array": lambda: np.array([1.0, 2.0]),
    "np.array of integers": lambda: np.array([1, 2]),
    "0-d": lambda: np.array(2.0),
}


def told(x: Any) -> Any:
    """A result, and of which type it is, as a tree of numbers, arrays and texts."""
    kind = x.__class__
    if isinstance(x, (bool, int, float, complex, np.ndarray, np.number, np.bool)):
        return kind.__name__, x
    if isinstance(x, (list, tuple, collections.deque, array.array, set, frozenset)):
        return kind.__name__, [told(e) for e in x]
    if isinstance(x, fractions.Fraction):
        return kind.__name__, x.numerator + 0, x.denominator + 0
    return kind.__name__, str(x)


REFUSED = "refused"


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """What a call gives: its result, the type of its error, or that it is refused."""
    try:
        return told(f(*args))
    except TapegradError:
        return REFUSED
    except Exception as error:
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins")


def differences(
    f: Callable[[Any], dict[str, Any]], values: Sequence[Any], how: str = "never"
) -> tuple[list[str], set[str]]:
    """Where outcomes of a program, by name, differ from the untraced ones at calls with these
    values; and which are refused.

    A program ends with a refusal, and here it goes on, so that many are tried in one trace.
    """
    wrong, refused = [], set()
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trace, "refused", lambda self, error: error)
        traced = jit(f, compile=how)
        for value in values:
            found, expected = traced(value), f(value)
            for name, b in expected.items():
                a = found[name]
                if isinstance(a, str) and a == REFUSED:
                    refused.add(name)
                elif not same(a, b):
                    wrong.append(f"{name} of {value!r}: {a!r} and not {b!r}")
    return wrong, refused


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal, a NumPy number to a Python number: jit returns those."""
    if isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, str) or isinstance(a, str):
        return bool(isinstance(a, str) and a == b)
    if type(a) is int and type(b) is int:
        return a == b
    if np.shape(a) != np.shape(b):
        return False
    if np.iscomplexobj(b):
        return all(same(getattr(a, part), getattr(b, part)) for part in ("real", "imag"))
    tolerance = 1e-6 if getattr(b, "dtype", None) == np.float32 else 1e-15
    return bool(np.allclose(a, b, tolerance, 0, equal_nan=True)) and bool(
        np.all(np.signbit(a) == np.signbit(b))
    )
