"""How large a traced integer of Python's may get: 64 bits hold it, by a bound that is known or
guarded, or it is an error. What `int`, `round` and `math.floor` make of a real number is one."""

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
    """The value of a Python number; None in a derivative rule, where types alone are known."""
    return x._read()[1] if isinstance(x, Value) else x  # type: ignore[attr-defined]


# A sum of multiples of variables, and of None for the number 1
Sum = dict[Any, int]
_DEEP = 8  # sums within sums that are looked through
_LARGEST = 92 * 10**17  # just under 2**63, by more than float64 rounds
_USUAL = 2**31  # what integers are first taken to stay below: a product of two fits
_ANY = -math.inf, math.inf
EXACT = 2**53  # up to here integers are floats

GROWTH: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: abs(x) + abs(y),
    "sub": lambda x, y: abs(x) + abs(y),
    "mul": lambda x, y: abs(x) * abs(y),
    "pow": lambda x, y: abs(x) ** y,
    "lshift": lambda x, y: abs(x) * 2**y,
}


def bound(x: Any) -> int:
    """What the size of an integer doesn't exceed, at later calls either."""
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
    """Between which numbers an integer lies, at later calls, too."""
    if not isinstance(x, Value):
        return int(x), int(x)
    trace: Any = x._trace  # type: ignore[attr-defined]
    known = bound(x)
    low, high = span_of(x._read()[0], trace.bounds, trace.made_by)  # type: ignore[attr-defined]
    return int(max(low, -known)), int(min(high, known))


def span_of(
    operand: Operand, bounds: Mapping[Operand, tuple[int, int]], made_by: Callable[[Var], Any]
) -> tuple[float, float]:
    """The same of an operand. Sums are taken apart down to what more is known of than a size, so
    that what is added and subtracted again doesn't count:

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
    """By how much an integer is more than another one at the least, at later calls, too."""
    one, other = (sum_of(each._trace, each._read()[0]) for each in (x, y))
    apart = added(one, other, -1)
    return apart.get(None, 0) if set(apart) <= {None} else span(x - y)[0]


def sum_of(trace: Any, x: Operand, depth: int = 0) -> Sum:
    """What an integer is the sum of: how many times each of these, and a number."""
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
    """`int(x)` of a traced number: a traced integer, which has no derivative. One that 64 bits
    don't hold is plain, and guarded."""
    number, dtype = value(x), x._aval.dtype
    if x._weak and dtype.kind == "i":
        return x
    known = number is not None and not x._aval.shape and dtype.kind in "fiub" and dtype != np.uint64
    if not known or (dtype.kind == "f" and not abs(number) <= _LARGEST):
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
    """What the size of a result doesn't exceed if those of the operands don't exceed x and y."""
    if name in ("pow", "lshift") and y > 64:
        return x if x < 2 and name == "pow" else _LARGEST + 1
    return int(GROWTH[name](x, y))


def fits(name: str, x: Any, y: Any) -> bool:
    """Whether 64 bits hold a result, by the bounds of the operands."""
    return value(x) is not None and _largest(name, bound(x), bound(y)) <= _LARGEST


def outgrows(name: str, x: Any, y: Any) -> bool:
    """Whether an integer result is larger than 64 bits can hold."""
    return _largest(name, abs(int(value(x))), abs(int(value(y)))) > _LARGEST


def size(name: str, x: Any, y: Any) -> int:
    """A bound of the size of an integer result that doesn't outgrow 64 bits, guarded if need be."""
    most = _largest(name, bound(x), bound(y))
    if most > _LARGEST:
        most = _LARGEST
        _take_for_granted(GROWTH[name](x * 1.0, y * 1.0) <= float(most))
    return most


def may_vary(x: Any) -> bool:
    """Whether a traced integer is one of a loop's round, and may be another one in the next."""
    operand, fixed = x._read()[0], x._trace.fixed
    return fixed is not None and isinstance(operand, Var) and operand not in fixed


def differs(x: Any) -> bool:
    """Whether a traced integer may be another one in the next round of a loop, or at the next call,
    as one is that comes of a counter: a guard of its value would hold once."""
    return may_vary(x) or any(map(x._trace.counters.__contains__, _made_of(x)))


def _made_of(x: Any) -> Iterator[Operand]:
    """The integers that one comes of, as far as these are soon found."""
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
    """Whether this is a plain integer that 64 bits can't hold."""
    return type(x) is int and not -(2**63) <= x < 2**63
