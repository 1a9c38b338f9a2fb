"""Lists whose length differs between calls, since a branch appends to them.

    for v in x:                      loop(n, %there, %ys, %x, body)
        if v > 0:                    selected = ys[there]
            out.append(f(v))  -->
    np.mean(out), len(out)           np.mean(selected), len(selected)

The entries of such a list are the elements of an array that a mask selects
(`indexing/masked.py`). The variable holds a proxy of the list, which is no list. So before each
instruction, its operands are examined for a proxy. The instructions and functions listed here work
on the proxy. Before any other, the trace is repeated with a real list, whose length is guarded.
"""

from __future__ import annotations

import dis
import inspect
import opcode
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.purity import is_users_file
from tapegrad.observe.observer import observed
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import MISSING, operand_at
from tapegrad.observe.program.joins import operands_of
from tapegrad.observe.program.liveness import flow_of
from tapegrad.tracing.frontend.indexing.masked import FUNCTIONS, Selected, selected
from tapegrad.tracing.statements.filled_lists import FilledList
from tapegrad.tracing.statements.varying_lists import METHODS, Note, VaryingList
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer


def made(column: Any, mask: Any, weak: bool, either: int, note: Note) -> VaryingList | None:
    """The proxy of a list of the elements that a mask selects; None if it has to be a real list."""
    entries = selected(column, mask, dispatch.getitem) if isinstance(mask, Tracer) else None
    known = type(entries) is Selected and entries._serves and entries.dtype.kind in "fib"
    return VaryingList(entries, weak, either, note) if known else None


def listed(make: Callable[[], Any]) -> Any:
    """The list of a generator expression's entries, or its proxy."""
    with observed():
        try:
            return make()
        except StopIteration as error:
            raise RuntimeError("generator raised StopIteration") from error


# ---- the check before an instruction


def look(a: Activation, at: int) -> bool:
    """Examine the operands of the next instruction for proxies. Returns whether it is known to
    change nothing but what rounds carry."""
    flow, changes_nothing = flow_of(a.frame.f_code), False
    i = flow.at.get(2 * at)
    if i is None or i.opname in _MOVING:
        return False
    for k in range(operands_of(i)):
        x: Any = a.top(k)
        if type(x) is VaryingList and not _is_known(a, i, k, x):
            x.give_up()
        if type(x) is FilledList:
            alone = a.sides is not None or a.o.apart is not None
            if alone or not x.in_round or not (_is_done(a, i, k) or _is_read(a, i, k, x)):
                x.give_up()
            changes_nothing = True
    return changes_nothing


def _is_read(a: Activation, i: dis.Instruction, k: int, x: FilledList) -> bool:
    """Whether an instruction calls a function that iterates over all entries; it then gets the
    selected elements."""
    upper, lower = a.top((i.arg or 0) + 1), a.top(i.arg or 0)
    f = lower if upper is MISSING else upper
    is_method = upper is not MISSING and lower is not MISSING
    if i.opname != "CALL" or is_method or type(f) is FunctionType:
        return False
    found = x.varying()
    if found is not None:
        frames.replace(operand_at(a.stack, k), found)
    return found is not None and _is_known(a, i, k, found)


def _is_done(a: Activation, i: dis.Instruction, k: int) -> bool:
    """Whether an instruction does something that a list filled by rounds supports."""
    if i.opname == "CALL":
        upper, lower = a.top((i.arg or 0) + 1), a.top(i.arg or 0)
        method = upper is not MISSING and lower is not MISSING
        return k == i.arg == 1 if method else (k, i.arg) == (0, 1) and len in (upper, lower)
    is_append = i.opname in ("LOAD_METHOD", "LOAD_ATTR") and i.argval == "append"
    return is_append or i.opname == "GET_ITER" or (i.opname == "BINARY_SUBSCR" and k == 1)


_MOVING = frozenset(["STORE_FAST", "POP_TOP", "SWAP", "COPY", "PRECALL", "CACHE", "KW_NAMES"])
_TRUTH = ("POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT")


def _is_known(a: Activation, i: dis.Instruction, k: int, x: VaryingList) -> bool:
    """Whether an instruction's use of operand `k` is supported by the proxy."""
    name, arg = i.opname, i.arg or 0
    if name == "GET_ITER" or (name.startswith(_TRUTH) and "NONE" not in name):
        return True
    if name == "BINARY_SUBSCR" and k == 0 and type(a.top(1)) is ArrayTracer:
        frames.replace(operand_at(a.stack, 0), x.array)
        return True
    if name in ("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE"):
        return k == (2 if name == "BINARY_SLICE" else 1)
    if name == "BINARY_OP":
        known = {type(a.top()), type(a.top(1))} <= {VaryingList, list}
        sign = opcode._nb_ops[arg][1]  # type: ignore[attr-defined]
        return known and (sign == "+" or (sign == "+=" and type(a.top(1)) is VaryingList))
    if name in ("LOAD_METHOD", "LOAD_ATTR"):
        return i.argval in METHODS
    if name == "RETURN_VALUE":
        caller = getattr(a.frame.f_back, "f_trace", None)
        caller = getattr(caller, "__self__", None)
        is_called = isinstance(caller, Activation) and caller.direct is a.frame.f_code
        return is_called or a.frame.f_back.f_code is listed.__code__
    return name == "CALL" and a.checks is not None and _is_passed(a, arg, k, x)


def _is_passed(a: Activation, count: int, k: int, x: VaryingList) -> bool:
    """Whether a call with `count` arguments accepts the proxy among them. If NumPy would convert
    it, it is replaced by the array of its entries."""
    upper, lower = a.top(count + 1), a.top(count)
    if upper is not MISSING and lower is not MISSING:  # a method
        name = getattr(upper, "__name__", "") if type(lower) is VaryingList else ""
        return count in METHODS.get(name, ()) and (k == count or name == "extend")
    f = lower if upper is MISSING else upper
    if type(f) is FunctionType:
        code = f.__code__
        packs = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        apart = code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE) or code.co_cellvars
        return (
            is_users_file(code.co_filename)
            and not packs
            and not apart
            and not flow_of(code).sees_all
        )
    args = [a.top(j) for j in range(count)][::-1]
    if f is len or dispatch.exhausted(a.frame, f, args) is not None:
        return count == 1 or any(f is one for one in _OF_SEVERAL)
    if type(f) is np.ufunc or any(f is one for one in FUNCTIONS):
        frames.replace(operand_at(a.stack, k), x.array)
        return True
    return False


_OF_SEVERAL = (sum, zip, enumerate)
