"""Plain arrays of the run's own that a traced value is about to be written to.

An array that the function makes with NumPy from plain arrays alone, as in `u = u0.copy()`, stays
plain: that costs nothing, and all code takes it. When a traced value is about to be written to it,
it becomes a `CreatedTracer` (`tracing/memory/created.py`), and so do its views: they are replaced
wherever they are held (`holders.py`). An array that isn't proven to be the run's own stays plain.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import operator
import sys
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.listing import instructions_of
from tapegrad.core.tables import is_table
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.generators import generator_of
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.locations import owner_of, written
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.containers import CHANGING
from tapegrad.observe.objects.purity import DISPATCHER, INERT
from tapegrad.observe.operands import table_writes
from tapegrad.observe.operands.holders import Search, Views, counted
from tapegrad.observe.program import frames
from tapegrad.observe.program.source import at_source, source_of
from tapegrad.primitives.base import Value


def fill(a: Activation, target: int, *values: int, in_place: bool = False) -> None:
    """Prepare a write of the operands `values` to operand number `target`, or an operation
    `in_place`."""
    kind: Any = type(a.top(target))
    if kind is np.ndarray and a.top(target).dtype.hasobject:
        return  # NumPy stores the traced value itself, as a list does
    if kind is np.ndarray or kind is np.flatiter:
        traced = any(dispatch.has_traced(a.top(k)) for k in values)
        if traced or _is_outside(a, a.top(target)):
            _fill(a, [id(a.top(target))], traced)
    elif not INERT[kind]:
        table_writes.guard_write(a, target, [a.top(k) for k in values], in_place)


def fill_called(
    a: Activation, f: Any, values: Sequence[Any], named: dict[str, Any]
) -> list[tuple[int, bool]]:
    """The ids of plain arrays that a call of a NumPy function, or of an array's method, writes to,
    if it is passed traced values, or a write to the array would be lost; each with whether it is
    passed traced values. Or the id of a table of pandas."""
    if type(f) in _BOUND and type(f.__self__) in (np.ndarray, np.ufunc):
        own = f.__self__
        f, values = getattr(type(own), f.__name__), [own, *values]
    if (table := table_writes.written_by(f, values)) is not None:
        return [] if a.o.reads.place(table) is not None else [(id(table), True)]
    given = [x for x in _targets(f, values, named) if type(x) is np.ndarray]
    if not given:
        return []
    traced = any(map(dispatch.has_traced, (*values, *named.values())))
    return [(id(x), traced) for x in given if traced or _is_outside(a, x)]


def _targets(f: Any, values: Sequence[Any], named: dict[str, Any]) -> Sequence[Any]:
    """The arguments that a call may write to."""
    kind: Any = type(f)
    if kind is np.ufunc:
        return written(f, values, named)
    if kind is DISPATCHER:
        at = _place_of_out(f)
        return [*written(f, values, named), *values[at : at + 1]]
    if kind in _UNBOUND and f.__objclass__ in (np.ndarray, np.ufunc):
        if f.__objclass__ is np.ufunc:
            at = _OF_UFUNCS.get(f.__name__, sys.maxsize - 1)
            return [*written(f, values, named), *values[at : at + 1]]
        return values[:1] if f.__name__ in CHANGING else written(f, values, named)
    if kind is types.BuiltinFunctionType and f in _IN_PLACE:
        return values[:1]
    if isinstance(generator := generator_of(f, values), randomness.numpys_kinds()):
        shuffled = [x for x in values if x is not generator] if f.__name__ == "shuffle" else []
        return [*written(f, values, named), *shuffled[:1]]
    # a method of a traced array
    return written(f, values, named) if values and isinstance(values[0], Value) else ()


@functools.lru_cache(maxsize=1024)
def _place_of_out(f: Any) -> int:
    """The positional index of a NumPy function's parameter `out`; a huge one if it has none."""
    try:
        names = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        names = []
    return names.index("out") if "out" in names else sys.maxsize - 1


_OF_UFUNCS = {"at": 1, "reduce": 4, "accumulate": 4, "reduceat": 5}  # index of the written argument
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
_IN_PLACE = {operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv}
_IN_PLACE |= {operator.ifloordiv, operator.imod, operator.ipow, operator.imatmul}


def fill_all(a: Activation, found: Iterable[tuple[int, bool]]) -> None:
    found = list(found)
    if is_table(ctypes.cast(found[0][0], ctypes.py_object).value):
        table_writes.fill(a, found[0][0])
        return
    _fill(a, [key for key, _ in found], any(traced for _, traced in found))


def _is_outside(a: Activation, x: Any) -> bool:
    """Whether an array existed before the run, or is captured by a tape: a write to it would be
    lost at later calls."""
    owner = id(owner_of(_array_of(x)))
    return owner in a.o.owners or owner in a.o.reads._owners


def _array_of(x: Any) -> Any:
    return x.base if type(x) is np.flatiter else x


def _fill(a: Activation, keys: Sequence[int], traced: bool) -> None:
    trace = dispatch.trace()
    if trace is None:
        return
    trace.unfilled = ""
    kept: list[Views] = []  # keeps the ids unique
    for key in keys:
        lent = dispatch.lend(a, _array_of(ctypes.cast(key, ctypes.py_object).value), traced)
        if lent is not None:
            trace.unfilled = trace.unfilled or lent
            continue
        if not any(key in family.members for family in kept):
            kept.append(Views(owner_of(_array_of(ctypes.cast(key, ctypes.py_object).value))))
            trace.unfilled = trace.unfilled or _objection(a, kept[-1]) or _put(a, kept[-1])


def _objection(a: Activation, family: Views) -> str:
    """Why an array isn't known to be the run's own; empty if it is."""
    owner = family.owner
    if type(owner) is not np.ndarray or not owner.flags.owndata:
        return f"whose memory belongs to an object of type {type(owner).__name__}"
    if a.o.reads.arrays_of(owner):
        return "that the function hasn't made"
    return ""


def _put(a: Activation, family: Views) -> str:
    """Replace the arrays of a family by traced ones, if all references are known; else return why
    not."""
    trace = dispatch.trace()
    search = Search(a, family, dispatch.began(), strict=trace is not a.o.trace)
    search.run()
    known = counted(filter(family.has, (*dispatch.held(), *a.o.captured)))
    if family.stuck:
        return f"that {family.stuck} holds{_made_at(a, family)}"
    if any(weakref.getweakrefcount(x) for x in family.members.values()):
        return f"to which there is a weak reference{_made_at(a, family)}"
    if not (family.is_whole(known) and search.is_own()):
        return f"that code has which isn't traced{_made_at(a, family)}"
    found = dispatch.fillable(
        trace,
        family.owner,
        [family.members[key] for key, puts in family.puts.items() if puts],
        bool(known),
    )
    if found is None:
        return f"or into a view of one, of a kind that isn't followed{_made_at(a, family)}"
    for key, puts in family.puts.items():
        for put in puts:
            put(found[key])
    a.loops = {}  # a loop whose rounds aren't observed may create another one
    return ""


def _made_at(a: Activation, family: Views) -> str:
    """The line, as a text, where the outermost frame has bound one of these arrays to a variable,
    if it is unique."""
    found, frame = "", a.frame
    while frame is not None:
        if isinstance(getattr(frame.f_trace, "__self__", None), Activation):
            for k, name in enumerate(frame.f_code.co_varnames):
                held_there = id(frames.local(frames.address_of(frame), k)) in family.members
                lines = _lines_of(frame.f_code, name) if held_there else ()
                if len(lines) == 1:
                    found = at_source(source_of(frame.f_code, lines[0]))
        frame = frame.f_back
    return f", made before{found}" if found else ""


def _lines_of(code: types.CodeType, name: str) -> list[int]:
    """The lines that set a variable."""
    lines: list[int] = []
    line = code.co_firstlineno
    for i in instructions_of(code):
        line = i.positions.lineno or line if i.positions is not None else line
        names = i.argval if type(i.argval) is tuple else (i.argval,)
        if i.opname.startswith("STORE_FAST") and name in names:
            lines.append(line)
    return lines
