"""Operators"""

from __future__ import annotations

import operator

import pytest
from tests.honesty.kinds import KINDS, OTHERS, differences, outcome

BINARY = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor matmul".split()
COMPARE = "lt le gt ge eq ne".split()
OPERATORS = {n: getattr(operator, n) for n in BINARY + COMPARE} | {"divmod": divmod}
IN_PLACE = {f"i{n}": getattr(operator, "i" + n.strip("_")) for n in BINARY}


def programs(make, other):
    """A program that applies every operator, or the one of number `k`, and the operators' names."""
    applied = {}
    for name, op in (OPERATORS | IN_PLACE).items():
        applied[f"x {name} y"] = lambda x, op=op: op(make(x), other())
        applied[f"y {name} x"] = lambda x, op=op: op(other(), make(x))

    def program(x, k=None):
        chosen = list(applied.values()) if k is None else [list(applied.values())[k]]
        return [outcome(f, x) for f in chosen]

    return program, list(applied)


@pytest.mark.parametrize("kind", KINDS)
def test_operators(kind):
    make, values = KINDS[kind]
    for name, other in OTHERS.items():
        program, names = programs(make, other)
        wrong, refused = differences(program, values, names)
        print(kind, name, "REFUSED" if refused else "", *sorted(refused))
        for w in sorted(wrong): print("   WRONG", kind, name, w)
