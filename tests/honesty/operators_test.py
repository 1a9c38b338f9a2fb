"""Operators"""

from __future__ import annotations

import operator

import numpy as np
import pytest
from tests.honesty.check import refused
from tests.honesty.kinds import KINDS, OTHERS, PYTHONS, differences, outcome

from tapegrad import grad

NAMES = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]
NAMES += ["lshift", "rshift", "and_", "or_", "xor"]
COMPARED = ["lt", "le", "gt", "ge", "eq", "ne"]
OPERATORS = {n: getattr(operator, n) for n in NAMES + COMPARED} | {"divmod": divmod}
IN_PLACE = {f"i{n}": getattr(operator, "i" + n.strip("_")) for n in NAMES}


def applied(make, other):
    """A program that applies every operator, from both sides."""

    def program(x):
        found = {}
        for name, op in (OPERATORS | IN_PLACE).items():
            found[f"x {name} y"] = outcome(lambda op=op: op(make(x), other()))
            found[f"y {name} x"] = outcome(lambda op=op: op(other(), make(x)))
        return found

    return program


# To NumPy these are what others are that are tried.
LIKE_OTHERS = {"frozenset", "slice", "ellipsis", "type", "timedelta", "set", "bytes", "np.float32"}

# What is refused, by what a traced value meets: the operators, or "all" that NumPy asks.
ANY_SIDE = {f"{a} {n} {b}" for n in (*OPERATORS, *IN_PLACE) for a, b in ("xy", "yx")}
WRITES = {f"y {n} x" for n in IN_PLACE}
OF_FLOATS = {
    "Fraction": ANY_SIDE,
    "Decimal": {f"{a} {n} {b}" for n in COMPARED for a, b in ("xy", "yx")},
    "timedelta": ANY_SIDE,
}
OF_COMPLEX = {"Fraction": {f"{a} {n} {b}" for n in ("eq", "ne") for a, b in ("xy", "yx")}}
OF_NUMPYS = dict.fromkeys(
    ["None", "str", "bytes", "bytearray", "set", "frozenset", "dict", "array.array", "slice"]
    + ["ellipsis", "type", "Fraction", "Decimal", "timedelta", "user's"],
    ANY_SIDE,
)
INTO_PLAIN = dict.fromkeys(["np.array", "np.array of integers", "0-d"], WRITES)


def allowed(kind, other):
    of_pythons = {"float": OF_FLOATS, "complex": OF_COMPLEX, "a complex product": OF_COMPLEX}
    of_kind = of_pythons.get(kind, {}) if kind in PYTHONS else OF_NUMPYS
    return (of_kind | INTO_PLAIN).get(other, set())


def is_known(kind, other, line):
    """Differences that are left, none of them in a value: an error where Decimal asks what it takes
    for an integer; and the type of a result where NumPy's scalars meet a class derived from one of
    Python's numbers."""
    if kind in ("int", "bool") and other == "Decimal":
        return line.startswith("y ") and ": 'TypeError' and not" in line
    return (
        kind.startswith("np.") and other in ("float's subclass", "IntEnum") and "Error" not in line
    )


PAIRS = [(k, o) for k in KINDS for o in OTHERS if k in PYTHONS or o not in LIKE_OTHERS]


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind, other", PAIRS)
def test_operators(kind, other):
    """any operator between a number or array and an object of any type, on both sides and in place
    -> as Python and NumPy decide it by the types: the result, its type and the error; what computes
    with plain numbers only is refused"""
    make, values = KINDS[kind]
    wrong, refused = differences(applied(make, OTHERS[other]), values)
    assert not [line for line in wrong if not is_known(kind, other, line)]
    assert refused <= allowed(kind, other)


class Factor:
    def __init__(self, value):
        self.value = value

    def __rmul__(self, other):
        return other * self.value


def test_objects_beside_scalars(derivative):
    """`x[0] * q` with an object `q` that has `__rmul__` -> it is asked, as by a Python float"""
    q = Factor(2.0)
    df = derivative(lambda x: x[0] * q * x[1])
    df.at(np.array([0.5, 1.5]))
    q.value = 3.0
    df.at(np.array([0.5, 1.5]))


def test_objects_beside_arrays():
    """`x * q` of an array, of which NumPy makes an array of objects -> error with the class"""
    q = Factor(2.0)
    with refused(NotImplementedError, "Factor", "np.sum(x * q)"):
        grad(lambda x: np.sum(x * q))(np.ones(2))
