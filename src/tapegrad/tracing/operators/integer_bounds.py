"""Bounds on the size of traced Python integers.

Each integer has a bound that is known or guarded, and fits into 64 bits; others are an error. The
integers from `int`, `round` and `math.floor` of a real number are included."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tapegrad.ir.tape import Literal, Operand, Var
from tapegrad.primitives.base import Value
from tapegrad.primitives.elementwise import AsType


def value(x: Any) -> Any:
    """The value of a Python number; None in a derivative rule, where only types are known."""
    return x._read()[1] if isinstance(x, Value) else x  # type: ignore[attr-defined]


# An affine sum: variables and their integer coefficients; None is the key of the constant
Sum = dict[Any, int]
_DEEP = 8  # depth of nested sums that are expanded
LARGEST = 92 * 10**17  # just under 2**63, by more than the rounding error of float64
_USUAL = 2**31  # the bound that is assumed first: a product of two fits
_ANY = -math.inf, math.inf
EXACT = 2**53  # integers up to here are exact floats

GROWTH: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: abs(x) + abs(y),
    "sub": lambda x, y: abs(x) + abs(y),
    "mul": lambda x, y: abs(x) * abs(y),
    "pow": lambda x, y: abs(x) ** y,
    "lshift": lambda x, y: abs(x) * 2**y,
}


def bound(x: Any) -> int:
    """A bound on the absolute value of an integer, valid at later calls too."""
    if not isinstance(x, Value):
        return abs(int(x))
    bounds: dict[Any, tuple[int, int]] = x._trace.bounds  # type: ignore[attr-defined]
    operand = x._read()[0]  # type: ignore[attr-defined]
    if operand not in bounds:
        most = max(_USUAL, 1 << abs(int(value(x))).bit_length())
        bounds[operand] = -most, most
        if most < 2**63:
            _take_for_granted(abs(x) <= most)  # type: ignore[arg-type]
    return max(map(abs, bounds[operand]))


def span(x: Any) -> tuple[int, int]:
    """Lower and upper bounds of an integer, valid at later calls too."""
    if not isinstance(x, Value):
        return int(x), int(x)
    trace: Any = x._trace  # type: ignore[attr-defined]
    known = bound(x)
    low, high = span_of(x._read()[0], trace.bounds, trace.made_by)  # type: ignore[attr-defined]
    return int(max(low, -known)), int(min(high, known))


def span_of(
    operand: Operand, bounds: Mapping[Operand, tuple[int, int]], made_by: Callable[[Var], Any]
) -> tuple[float, float]:
    """Lower and upper bounds of an integer operand.

    Sums are expanded down to operands with bounds tighter than one on their size, so that terms
    which are added and subtracted again cancel:

        j - i - 1  -->  length - 1,  where j = i + length
    """
    terms, waiting = Counter[Operand](), [(operand, 1)]
    for _ in range(_SOON):
        if not waiting:
            break
        x, times = waiting.pop()
        low, high = bounds.get(x, _ANY)
        call = made_by(x) if isinstance(x, Var) and low == -high else None
        sign = 0 if call is None else {"add": 1, "sub": -1}.get(call.primitive.name, 0)
        if call is not None and sign:
            waiting += [(call.operands[0], times), (call.operands[1], sign * times)]
        else:
            terms[x] += times
    low = high = 0.0
    for x, times in [*terms.items(), *waiting]:
        ends: Any = (x.value, x.value) if isinstance(x, Literal) else bounds.get(x, _ANY)
        if times:
            low += min(times * ends[0], times * ends[1])
            high += max(times * ends[0], times * ends[1])
    return low, high


def least_ahead(x: Any, y: Any) -> float:
    """A lower bound of the difference `x - y` of two integers, valid at later calls too."""
    one, other = (sum_of(each._trace, each._read()[0]) for each in (x, y))
    apart = added(one, other, -1)
    return apart.get(None, 0) if set(apart) <= {None} else span(x - y)[0]


def sum_of(trace: Any, x: Operand, depth: int = 0) -> Sum:
    """An integer as an affine sum: {variable: coefficient, None: constant}."""
    if isinstance(x, Literal):
        return {None: int(x.value)}
    call = trace.made_by(x) if depth < _DEEP and x is not trace.number else None
    name = "" if call is None else call.primitive.name
    if call is None or x.dtype.kind != "i":
        return {x: 1}
    if name in ("add", "sub"):
        one, other = (sum_of(trace, y, depth + 1) for y in call.operands)
        return added(one, other, 1 if name == "add" else -1)
    if name == "mul":
        for y, times in (call.operands, call.operands[::-1]):
            if isinstance(times, Literal):
                return added({}, sum_of(trace, y, depth + 1), int(times.value))
    return {x: 1}


def added(one: Sum, other: Sum, times: int) -> Sum:
    found = dict(one)
    for x, n in other.items():
        found[x] = found.get(x, 0) + times * n
    return {x: n for x, n in found.items() if n}


def whole(x: Any, what: str = "int(...)") -> Any:
    """`int(x)` of a traced number: a traced integer, which has no derivative. An integer that may
    not fit into 64 bits is plain, and guarded."""
    number, dtype = value(x), x._aval.dtype
    if x._weak and dtype.kind == "i":
        return x
    known = number is not None and not x._aval.shape and dtype.kind in "fiub" and dtype != np.uint64
    if not known or (dtype.kind == "f" and not abs(number) <= LARGEST):
        return x._guarded_int(what)
    x._trace.check_alive()
    found = AsType(np.dtype(np.int64))(x)._as_pythons()
    if dtype.kind == "f":
        most = max(_USUAL, 1 << abs(int(number)).bit_length())
        _take_for_granted(abs(x) <= float(most))
        found._trace.bounds[found._read()[0]] = -most, most
    return found


def _take_for_granted(condition: Any) -> None:
    condition._trace.guard(condition, True, "the size of an integer", fixed=True)


def _largest(name: str, x: int, y: int) -> int:
    """A bound on the size of a result, for operands whose sizes are at most x and y."""
    if name in ("pow", "lshift") and y > 64:
        return x if x < 2 and name == "pow" else LARGEST + 1
    return int(GROWTH[name](x, y))


def fits(name: str, x: Any, y: Any) -> bool:
    """Whether the bounds of the operands show that 64 bits hold a result."""
    return value(x) is not None and _largest(name, bound(x), bound(y)) <= LARGEST


def outgrows(name: str, x: Any, y: Any) -> bool:
    """Whether an integer result doesn't fit into 64 bits."""
    return _largest(name, abs(int(value(x))), abs(int(value(y)))) > LARGEST


def size(name: str, x: Any, y: Any) -> int:
    """A bound on the size of an integer result that fits into 64 bits, guarded if needed."""
    most = _largest(name, bound(x), bound(y))
    if most > LARGEST:
        most = LARGEST
        _take_for_granted(GROWTH[name](x * 1.0, y * 1.0) <= float(most))
    return most


def may_vary(x: Any) -> bool:
    """Whether a traced integer belongs to a loop's round, and may differ in the next one."""
    operand, fixed = x._read()[0], x._trace.fixed
    return fixed is not None and isinstance(operand, Var) and operand not in fixed


def differs(x: Any) -> bool:
    """Whether a traced integer may have another value in the next round or at the next call, as one
    computed from a counter has. A guard on its value would fail then."""
    return may_vary(x) or any(map(x._trace.counters.__contains__, _made_of(x)))


def _made_of(x: Any) -> Iterator[Operand]:
    """The integers that one is computed from; the search is bounded."""
    waiting = [x._read()[0]]
    for _ in range(_SOON):
        if not waiting:
            return
        operand = waiting.pop()
        yield operand
        call = x._trace.made_by(operand) if isinstance(operand, Var) else None
        waiting += [y for y in (call.operands if call else ()) if y.dtype.kind == "i"]


_SOON = 50


def is_wide(x: Any) -> bool:
    """Whether `x` is a plain integer beyond 64 bits."""
    return type(x) is int and not -(2**63) <= x < 2**63
