"""What numba makes of whole numbers that Python makes another number of, at some calls.

    2**-1             0, as a power of integers is one         0.5
    1 << 64           1, as there are 64 bits                  2**64
    round(x, 2)       what floats make of x * 100.0            the nearest decimal

One call's numbers don't tell: a tape serves others. So an exponent or a shift has to be one that
can't be negative: a constant, a count of rounds, a length, and sums and products of such.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

_POWERS: set[Any] = {operator.pow, operator.ipow, pow, np.power}
_SHIFTS: set[Any] = {operator.lshift, operator.ilshift, operator.rshift, operator.irshift}
_SHIFTS |= {np.left_shift, np.right_shift}
_GROWING: set[Any] = {operator.add, operator.iadd, operator.mul, operator.imul, operator.floordiv}
_GROWING |= {operator.ifloordiv, operator.or_, operator.ior, *_POWERS, *_SHIFTS}
_REMAINDERS: set[Any] = {operator.mod, operator.imod}  # of the divisor's sign
_LENGTHS = {"shape", "size", "ndim"}
_BITS = 64


def objections_to_integers(annotation: Any, is_whole: Any) -> Iterator[str]:
    """The expressions that are others in Python, by the numbers of a call. `is_whole` says
    whether a type of numba's is of integers."""
    known = _Definitions(annotation)
    for expression, signature in annotation.calltypes.items():
        if not signature or getattr(expression, "op", "") not in ("binop", "inplace_binop", "call"):
            continue
        function, args = known.called(expression)
        line = f"in line {expression.loc.line} of {expression.loc.filename}"
        if function is round and len(args) > 1:
            yield f"numba rounds to decimals by a rule of its own {line}"
        if len(args) < 2 or not is_whole(signature.return_type):
            continue
        base, last = known.constant(args[0]), known.constant(args[1])
        if function in _POWERS and base not in (1, -1) and not known.counts(args[1]):
            yield (
                f"numba makes an integer of an integer's power {line}, whose exponent may be "
                "negative: make one of the two a float"
            )
        elif function in _SHIFTS and not (known.counts(args[1]) and (last or 0) < _BITS):
            yield f"numba shifts integers by what may be negative, or {_BITS} and more, {line}"


class _Definitions:
    """What the names of a function are made of."""

    def __init__(self, annotation: Any) -> None:
        self._types, self._values = annotation.typemap, dict[str, list[Any]]()
        for block in annotation.blocks.values():
            for statement in block.body:
                if type(statement).__name__ == "Assign":
                    self._values.setdefault(statement.target.name, []).append(statement.value)

    def called(self, x: Any) -> tuple[Any, list[Any]]:
        """The function that an expression calls, and what is passed to it."""
        if x.op == "call":
            kind = self._types.get(x.func.name)
            return getattr(kind, "typing_key", None), [*x.args, *dict(x.kws).values()]
        return x.fn, [x.lhs, x.rhs]

    def constant(self, x: Any) -> Any:
        """The number that a name always means; None if there is none."""
        found = getattr(self._types.get(x.name), "literal_value", None)
        return found if type(found) is int else None

    def counts(self, x: Any, at: Any = None, seen: frozenset[str] = frozenset()) -> bool:
        """Whether what a name means can't be negative: all that it is set to, where a loop that
        changes it doesn't make it so. `at` is which part of it is meant."""
        if x.name in seen:
            return True
        constant = self.constant(x)
        if constant is not None:
            return bool(constant >= 0)
        values, seen = self._values.get(x.name, ()), seen | {x.name}
        return bool(values) and all(self._is_counted(v, at, seen) for v in values)

    def _is_counted(self, value: Any, at: Any, seen: frozenset[str]) -> bool:
        kind, op = type(value).__name__, getattr(value, "op", "")
        if kind == "Var":
            return self.counts(value, at, seen)
        if kind in ("Const", "Global", "FreeVar"):
            return type(value.value) is int and value.value >= 0
        if kind != "Expr":
            return False
        if op in ("iternext", "pair_first", "getiter", "cast", "exhaust_iter"):
            return self.counts(value.value, at, seen)
        if op in ("static_getitem", "getitem"):
            return self.counts(value.value, getattr(value, "index", None), seen)
        if op == "getattr":
            return value.attr in _LENGTHS and hasattr(self._types.get(value.value.name), "ndim")
        if op == "build_tuple":
            return all(self.counts(x, None, seen) for x in value.items)
        return op in ("binop", "inplace_binop", "call") and self._is_made(value, at, seen)

    def _is_made(self, value: Any, at: Any, seen: frozenset[str]) -> bool:
        function, args = self.called(value)
        name = getattr(function, "__name__", "")
        if name in ("range", "prange"):
            start, step = (args[0] if len(args) > 1 else None), (args[2] if args[2:] else None)
            by = 1 if step is None else self.constant(step) or 0
            if by < 0:
                last = self.constant(args[1])
                return last is not None and last >= -1
            return by > 0 and (start is None or self.counts(start, None, seen))
        if function is enumerate:  # of pairs
            return at == 0 and len(args) == 1
        if function in (len, abs):
            return True
        if function in _REMAINDERS:
            return self.counts(args[1], None, seen)
        if function in _GROWING:
            return all(self.counts(x, None, seen) for x in args[: 1 if function in _SHIFTS else 2])
        return False
