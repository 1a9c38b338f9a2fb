"""Bounds on the bit lengths of integers in a numba function, which computes in 64 bits.

    for k in range(n): x[2 * k + 1]     a loop counter: 47 bits, since no program runs longer
    s = s * 31 + k                      no bound

Sums and products that fit into 64 bits are computed by Python. Others are made to wrap around.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tapegrad.tracing.frontend.numba.inferred_types import Inferred

_LENGTH_BITS = 47  # of a length, or a loop counter
_MAX_BITS = 63
_LENGTHS = {"shape", "size", "ndim"}


class _Size(NamedTuple):
    bits: int  # maximal; 64 if there is no bound
    rounds: frozenset[str] = frozenset()  # variables of the previous round that are used


_ANY = _Size(64)


class Sizes:
    """The definitions of a function's variables, and bounds on their bit lengths."""

    def __init__(self, known: Inferred) -> None:
        self._types, self._values = known.typemap, dict[str, list[Any]]()
        for statement in known.statements():
            if type(statement).__name__ == "Assign":
                self._values.setdefault(statement.target.name, []).append(statement.value)

    def is_constant(self, x: Any) -> bool:
        """Whether a variable always has a number written in the source."""
        values = self._values.get(x.name, ())
        return self.constant(x) is not None or (
            len(values) == 1 and type(values[0]).__name__ == "Const"
        )

    def constant(self, x: Any) -> Any:
        """The constant value of a variable; None if it has none."""
        found = getattr(self._types.get(x.name), "literal_value", None)
        if found is None:
            values = self._values.get(x.name, ())
            if len(values) == 1 and type(values[0]).__name__ in ("Const", "Global", "FreeVar"):
                found = values[0].value
        return found if type(found) in (int, float) else None

    def fit(self, name: str, x: Any, y: Any) -> bool:
        """Whether a result always fits into 64 bits, and so equals Python's."""
        return self._grown(name, x, y, frozenset()).bits <= _MAX_BITS

    def _size(self, x: Any, seen: frozenset[str] = frozenset()) -> _Size:
        """The bound for a variable: the largest of those of its definitions."""
        if x.name in seen:
            return _Size(0, seen & {x.name})
        constant = self.constant(x)
        if constant is not None:
            return _Size(constant.bit_length()) if type(constant) is int else _ANY
        seen |= {x.name}
        found = _largest([self._made(v, seen) for v in self._values.get(x.name, ())])
        return found._replace(rounds=found.rounds - {x.name})

    def _made(self, value: Any, seen: frozenset[str]) -> _Size:
        kind, op = type(value).__name__, getattr(value, "op", "")
        if kind == "Var":
            return self._size(value, seen)
        if kind != "Expr":
            return _ANY
        if op in ("iternext", "pair_first", "getiter", "cast", "exhaust_iter"):
            return self._size(value.value, seen)
        if op in ("phi", "build_tuple"):
            parts = value.incoming_values if op == "phi" else value.items
            return _largest([self._size(x, seen) for x in parts])
        if op in ("static_getitem", "getitem"):
            is_array = hasattr(self._types.get(value.value.name), "ndim")
            return _ANY if is_array else self._size(value.value, seen)
        if op == "getattr":
            is_array = hasattr(self._types.get(value.value.name), "ndim")
            return _Size(_LENGTH_BITS) if is_array and value.attr in _LENGTHS else _ANY
        if op in ("binop", "inplace_binop"):
            function = value.fn if op == "binop" else value.immutable_fn
            return self._grown(function.__name__.strip("_"), value.lhs, value.rhs, seen)
        return self._called(value, seen) if op == "call" else _ANY

    def _grown(self, name: str, x: Any, y: Any, seen: frozenset[str]) -> _Size:
        first, last = self._size(x, seen), self._size(y, seen)
        rounds = first.rounds | last.rounds
        if name in ("add", "sub"):
            if first.rounds and last.rounds:
                return _ANY
            # an increment, added once in each round
            most = max(first.bits, last.bits) + 1 + (_LENGTH_BITS if rounds else 0)
            return _Size(min(most, 64), rounds)
        if name == "mul" and not rounds:
            return _Size(min(first.bits + last.bits, 64))
        if name == "mod":
            return last
        if name in ("floordiv", "rshift") and self.constant(y) is not None:
            return first if self.constant(y) > 0 else _ANY
        return _ANY

    def _called(self, value: Any, seen: frozenset[str]) -> _Size:
        name = getattr(
            getattr(self._types.get(value.func.name), "typing_key", None), "__name__", ""
        )
        if name == "len":
            return _Size(_LENGTH_BITS)
        args = [self._size(x, seen) for x in value.args]
        if name in ("min", "max", "abs"):
            return _largest(args)
        if name in ("range", "prange"):  # it has passed all numbers up to its present one
            step = self.constant(value.args[2]) if args[2:] else 1
            first = args[0] if args[1:] else _Size(0)
            if step is None or first.bits > _LENGTH_BITS:
                return _ANY
            return _Size(_LENGTH_BITS + abs(step).bit_length(), first.rounds)
        if name == "enumerate":
            return _Size(_LENGTH_BITS) if len(args) == 1 else _ANY
        return _ANY


def _largest(sizes: list[_Size]) -> _Size:
    rounds = frozenset().union(*[x.rounds for x in sizes])
    return _Size(max([x.bits for x in sizes], default=64), rounds)
