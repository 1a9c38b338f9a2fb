"""Numbers that only say when a loop ends at the latest.

    for _ in range(50):                 n = 0
        ...                             while error > tolerance and n < 50:
        if error < tolerance:               ...
            break                           n += 1

What the range has left, and `n`, differ from round to round, and make no difference as long as the
range has something left and the comparison has the same outcome. Other numbers that differ may make
any difference, so of such a loop only the rounds are known that were seen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tapegrad.tracing.observe.activation import Activation
from tapegrad.tracing.observe.frames import local
from tapegrad.tracing.observe.liveness import Flow, reads_and_writes

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
FAR = 1 << 40  # rounds that nobody waits for


def most_rounds(
    flow: Flow,
    a: Activation,
    jump: int,
    truth: bool,
    k: int,
    numbers: Sequence[tuple[Any, Any] | None],
) -> int | None:
    """For how many rounds the variable or entry number `k`, which held these `numbers` before and
    after each, makes no difference; None if it makes one after the loop."""
    left = flow.branch(jump, not truth)
    code, seen = flow.code, len(numbers)
    if k >= flow.variables:
        if _is_read_later(flow, left, k):
            return None
        known = [pair for pair in numbers if pair is not None]
        steady = len(known) == seen and all(x - y == 1 for x, y in known)
        return known[0][0] if steady and _drops_items(flow, jump, truth, k) else seen
    if k >= code.co_nlocals or code.co_varnames[k] in code.co_cellvars or k in flow.live(left):
        return None
    if not _is_read(flow, jump, truth, k):
        return FAR
    counted = _counted(flow, a, jump, truth, k, numbers)
    return seen if counted is None else max(seen, counted)


def _is_read(flow: Flow, jump: int, truth: bool, k: int) -> bool:
    """Whether a round may read a variable."""
    region = flow.region(jump, truth)
    return flow.sees_all or any(k in reads_and_writes(flow.at[at])[0] for at in region)


# ---- ranges


def _drops_items(flow: Flow, jump: int, truth: bool, k: int) -> bool:
    """Whether nobody reads the items of the iterator at entry `k` of the stack."""
    for offset in flow.region(jump, truth):
        if flow.at[offset].opname == "FOR_ITER" and flow.height(offset) - 1 == k:
            name = flow.at[flow.next[offset]]
            if name.opname == "STORE_FAST":
                code, number = flow.code, name.arg or 0
                if code.co_varnames[number] in code.co_cellvars:
                    return False
                if _is_read(flow, jump, truth, number):
                    return False
            elif name.opname != "POP_TOP":
                return False
    return True


_NAMES = """
    LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_DEREF LOAD_CLOSURE PUSH_NULL NOP JUMP_FORWARD
    JUMP_BACKWARD EXTENDED_ARG CACHE
"""
_PUSHING = frozenset(_NAMES.split())
_LEAVING = ("RETURN_VALUE", "RETURN_CONST")


def _is_read_later(flow: Flow, offset: int, k: int) -> bool:
    """Whether the iterator at entry `k` of the stack may go on, from here on."""
    seen: set[tuple[int, int]] = set()
    todo = [(offset, k)]
    while todo:
        at, k = todo.pop()
        if (at, k) in seen:
            continue
        seen.add((at, k))
        i, top = flow.at[at], flow.height(at) - 1
        arg = i.arg or 0
        if k > top or i.opname in _LEAVING:
            continue
        handler = flow.handlers.get(at)
        if handler is not None and k < flow.variables + handler[1]:
            todo.append((handler[0], k))
        if i.opname in ("RAISE_VARARGS", "RERAISE"):
            continue
        if i.opname == "SWAP" and k in (top, top - arg + 1):
            k = top if k != top else top - arg + 1
        elif i.opname == "COPY" and k == top - arg + 1:
            return True
        elif k == top:
            if i.opname == "POP_TOP":
                continue
            if i.opname not in _PUSHING:
                return True
        todo += [(target, k) for target in flow.after(at)]
    return False


# ---- counters


class _Simple(NamedTuple):
    """An instruction that handles one variable."""

    offset: int
    name: str
    arg: int
    value: Any


def _simple(flow: Flow) -> list[_Simple]:
    """The instructions, in order, those for two variables as two."""
    found = []
    for offset, i in flow.at.items():
        arg = i.arg or 0
        if i.opname == "LOAD_FAST_LOAD_FAST":
            parts = [("LOAD_FAST", arg >> 4), ("LOAD_FAST", arg & 15)]
        elif i.opname == "STORE_FAST_LOAD_FAST":
            parts = [("STORE_FAST", arg >> 4), ("LOAD_FAST", arg & 15)]
        elif i.opname == "STORE_FAST_STORE_FAST":
            parts = [("STORE_FAST", arg >> 4), ("STORE_FAST", arg & 15)]
        elif i.opname in ("EXTENDED_ARG", "NOP", "CACHE"):
            continue
        else:
            parts = [(i.opname, arg)]
        found += [_Simple(offset, name, number, i.argval) for name, number in parts]
    return found


def _counted(
    flow: Flow,
    a: Activation,
    jump: int,
    truth: bool,
    k: int,
    numbers: Sequence[tuple[Any, Any] | None],
) -> int | None:
    """For how many rounds a counter's comparisons go out as they did; None if it is none."""
    known = [pair for pair in numbers if pair is not None]
    if len(known) < len(numbers) or any(type(x) is not int for pair in known for x in pair):
        return None
    start, step = known[0][0], known[0][1] - known[0][0]
    if any(y - x != step for x, y in known):
        return None
    region = flow.region(jump, truth)
    text = _simple(flow)
    stored = {
        at for i in text if i.offset in region for at in reads_and_writes(flow.at[i.offset])[1]
    }
    rounds = FAR
    used: set[int] = set()
    for n, i in enumerate(text):
        if i.offset not in region or i.name != "LOAD_FAST" or i.arg != k:
            continue
        first, rest = text[n - 1] if n else None, text[n + 1 : n + 4]
        if len(rest) < 3:
            return None
        if _adds(flow, rest[0], rest[1], rest[2], k, step):
            used.add(n + 3)
            continue
        if rest[1].name == "COMPARE_OP" and _is_jump(rest[2]):
            sign, bound = _sign(rest[1].value), _value(flow, a, rest[0], k, stored)
        elif rest[0].name == "COMPARE_OP" and _is_jump(rest[1]) and first is not None:
            sign, bound = _MIRRORED.get(_sign(rest[0].value), ""), _value(flow, a, first, k, stored)
        else:
            return None
        if sign not in _COMPARED or bound is None:
            return None
        rounds = min(rounds, _steady(_COMPARED[sign], sign, bound, start, step))
    writes = {
        n
        for n, i in enumerate(text)
        if i.offset in region and i.name in ("STORE_FAST", "DELETE_FAST") and i.arg == k
    }
    return rounds if writes <= used else None


def _adds(flow: Flow, load: _Simple, add: _Simple, store: _Simple, k: int, step: int) -> bool:
    """Whether these are the rest of `n += number`, in the direction in which `n` goes."""
    if load.name != "LOAD_CONST" or type(load.value) is not int:
        return False
    if add.name != "BINARY_OP" or (store.name, store.arg) != ("STORE_FAST", k):
        return False
    sign = flow.at[add.offset].argrepr.rstrip("=")
    by = load.value if sign == "+" else -load.value if sign == "-" else 0
    return by * step > 0


def _is_jump(i: _Simple) -> bool:
    return i.name.startswith("POP_JUMP") and i.name.endswith(("_IF_TRUE", "_IF_FALSE"))


def _sign(value: Any) -> str:
    """The sign of a comparison; Python 3.13 puts `bool(...)` around it where its truth is asked."""
    return str(value).removeprefix("bool(").removesuffix(")")


def _value(flow: Flow, a: Activation, i: _Simple, k: int, stored: set[int]) -> Any:
    """The plain number that an instruction loads, the same in each round; None if it isn't one."""
    found: Any = None
    if i.name == "LOAD_CONST":
        found = i.value
    elif i.name == "LOAD_FAST" and i.arg != k and i.arg not in stored:
        if flow.code.co_varnames[i.arg] not in flow.code.co_cellvars:
            found = local(a.address, i.arg)
    elif i.name == "LOAD_GLOBAL":
        found = a.frame.f_globals.get(i.value)
    elif i.name == "LOAD_DEREF" and i.value in flow.code.co_freevars:
        try:
            found = local(a.address, i.arg).cell_contents
        except ValueError:
            return None
    return found if type(found) in (int, float) else None


def _steady(
    compare: Callable[[Any, Any], bool], sign: str, bound: Any, start: int, step: int
) -> int:
    """For how many rounds a comparison with `bound` has one outcome, whenever in a round the
    counter, which goes from `start` in `step`s, has its next value."""
    if sign in ("==", "!="):
        ahead = (bound - start) // step if (bound - start) * step >= 0 else FAR
        return max(0, int(min(FAR, ahead)) - 1)
    expected = compare(start, bound)
    low, high = 0, FAR  # the counter's values up to that after `low` rounds go out as expected
    while low < high:
        middle = (low + high + 1) // 2
        if compare(start + middle * step, bound) == expected:
            low = middle
        else:
            high = middle - 1
    return low
