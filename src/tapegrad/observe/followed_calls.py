"""The functions that are called by the traced function, and by tapegrad's own closures and
objects."""

from __future__ import annotations

import functools
import types
from typing import Any

from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.objects.naming import attribute
from tapegrad.observe.objects.purity import PLAIN_TYPES, is_pythons_class, module_of
from tapegrad.observe.program.source import TAPEGRAD


def root_called(o: RunRecord, f: Any) -> None:
    """Record the call of the traced function: the objects that the call goes through are read."""
    if isinstance(f, functools.partial):
        o.partial(f)
        root_called(o, f.func)
    elif isinstance(f, types.MethodType):
        root_called(o, f.__func__)
        if module_of(type(f.__self__)).startswith("tapegrad."):
            go_on(o, f.__self__)
    elif isinstance(f, types.FunctionType):
        if f.__closure__ and f.__code__.co_filename.startswith(TAPEGRAD):
            _go_into(o, f)
    elif module_of(type(f)).startswith("tapegrad."):
        go_on(o, f)
    elif callable(f) and not isinstance(f, type) and is_pythons_class(type(f)):
        o.kind(f)
        o.lookups.attribute(f, "__call__")


def go_on(o: RunRecord, f: Any) -> None:
    """Record the functions that a derivative, a user's primitive or a bound one calls."""
    place, own = o.reads.place(f), vars(f) if hasattr(f, "__dict__") else {}
    for name in ("root", "function", "joint", "_function", "_instance", "rules", "rate"):
        x = own.get(name)
        if x is None or type(x) in PLAIN_TYPES:
            continue
        if place is not None:
            o.reads.read(place, ("attr", name), attribute(name), x, place.word)
        if name == "rules":
            o.shallow(x)
        elif callable(x):
            root_called(o, x)
    for given in (own.get("reverse"), own.get("forward")) if place is not None else ():
        for rule in (*getattr(given, "rules", {}).values(), getattr(given, "joint", None)):
            if type(rule) not in (types.FunctionType, types.NoneType):
                _held(o, rule, "a rule")


def _go_into(o: RunRecord, f: types.FunctionType) -> None:
    """Record the functions that a closure of tapegrad's own calls, as `checkpoint(f)` does: no
    instruction that reads them is seen. Other reads are seen where the closure's code is
    followed."""
    if o.reads.place(f) is None or id(f) in o.gone_into:
        return
    o.gone_into.add(id(f))
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        x = None if cell == types.CellType() else cell.cell_contents
        if callable(x) or module_of(type(x)).startswith("tapegrad."):
            _held(o, x, name)


def _held(o: RunRecord, x: Any, word: str) -> None:
    o.reads.constant(x, word)
    if type(x) is types.MethodType:
        o.reads.constant(x.__self__, word)
    root_called(o, x)
