"""Globals as numba has frozen them: machine code keeps their values from when it was compiled.

When numba compiles a function, for each kind of arguments, it reads the values of globals and
closures, and copies arrays. It keeps the values with the machine code; arrays and values in modules
are copied here when it compiles. For functions compiled before the first trace they are copied at
that trace. A function that isn't compiled for a kind of arguments has nothing frozen for it yet.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Sequence
from types import CellType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tapegrad.observe.objects.purity import is_users_file
from tapegrad.observe.observer import following
from tapegrad.observe.packages.opaque import names_in
from tapegrad.tracing.tracers.tracer import Tracer

# By function and types of arguments: [the compiled function if known, its Python source].
_known: WeakKeyDictionary[Any, dict[Any, list[Any]]] = WeakKeyDictionary()


def compiled_for(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The compiled function for `f(*args, **kwargs)`. At the first call it is compiled now."""
    kinds = _kinds(f, args, kwargs)
    compiled = _compiled(f)
    if kinds not in compiled:  # memory layouts may differ from those on the tape
        alike = [k for k in compiled if tuple(map(_loose, k)) == tuple(map(_loose, kinds))]
        kinds = alike[0] if alike else kinds
    if kinds not in compiled:
        f.compile(kinds)
        compiled = _compiled(f)
    return compiled[kinds]


def frozen(f: Any, kinds: Any) -> Any:
    """The Python source for arguments of these types, with numba's frozen values."""
    compiled = _compiled(f).get(kinds)
    _note_compiled(f, kinds, compiled)
    if compiled is None:
        return f.py_func
    held = _known.setdefault(f, {})
    known = held.get(kinds)
    if known is not None and known[0] is None:  # numba has just compiled it
        known[0] = compiled
    if known is None or known[0] is not compiled:
        known = held[kinds] = [compiled, with_frozen(f.py_func, _blocks(compiled))]
    return known[1]


def _note_compiled(f: Any, kinds: Any, compiled: Any) -> None:
    """Guard that this is the function compiled for these types."""
    here = following.observer
    place = None if here is None else here.reads.place(f)
    if here is not None and place is not None:
        value = here.reads._value
        text = f"({{}}.overloads.get({value(kinds)}) is {value(compiled)})"
        here.reads.read(place, ("compiled", kinds), text, True, place.word)


def _compiled(f: Any) -> dict[Any, Any]:
    """The compiled functions, by their types of arguments."""
    return {getattr(kinds, "args", kinds): x for kinds, x in f.overloads.items()}


def note_compiled(dispatcher: Any = None, args: Any = (), **others: Any) -> None:
    """Freeze the values of a function that numba has just compiled for arguments of these types."""
    function = getattr(dispatcher, "py_func", None)
    if type(function) is FunctionType:
        _known.setdefault(dispatcher, {})[tuple(args)] = [None, _python_of(function, {})]


def _kinds(f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """numba's types of the arguments, in the order of the parameters."""
    types = importlib.import_module("numba.core.types")
    type_of = getattr(f, "typeof_pyval", importlib.import_module("numba").typeof)
    signature = inspect.signature(f.py_func)
    given, found = signature.bind(*args, **kwargs).arguments, []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = [type_of(_plain(x)) for x in given.get(name, ())]
            found.append(types.StarArgTuple(rest))
        elif name in given:
            found.append(type_of(_plain(given[name])))
        else:
            found.append(types.Omitted(parameter.default))
    return tuple(found)


def _plain(x: Any) -> Any:
    """A plain value with the type that numba would get."""
    if isinstance(x, (tuple, list)):
        held = [_plain(y) for y in x]
        return type(x)(*held) if hasattr(x, "_fields") else type(x)(held)
    if not isinstance(x, Tracer):
        return x
    value = x._read()[1]
    if value is None:
        value = np.zeros(x.shape, x.dtype)[()]
    return value.item() if x._weak else value


def _loose(kind: Any) -> Any:
    return kind.copy(layout="A", readonly=False) if hasattr(kind, "layout") else kind


def types_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """numba's types of arguments."""
    type_of = importlib.import_module("numba").typeof
    return tuple([type_of(_plain(x)) for x in args])


def _blocks(compiled: Any) -> dict[Any, Any]:
    return getattr(compiled.type_annotation, "blocks", {})


def with_frozen(function: FunctionType, blocks: dict[Any, Any]) -> FunctionType:
    """A function whose names have the values that numba read when it made these blocks."""
    return _python_of(function, dict(_values_in(blocks)))


def _values_in(blocks: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The names in the machine code, and their values."""
    waiting = [*blocks.values()]
    ir = importlib.import_module("numba.core.ir")
    while waiting:
        block = waiting.pop()
        for statement in block.body:
            value = statement.value if type(statement) is ir.Assign else None
            if isinstance(value, (ir.Global, ir.FreeVar)):
                yield value.name, value.value
            if type(statement).__name__ == "Parfor":
                waiting += [*statement.loop_body.values(), statement.init_block]


def _python_of(function: FunctionType, values: dict[str, Any]) -> FunctionType:
    """The function with `values` for some of its names, and copies of present values for others."""
    code = function.__code__
    used = set(names_in(code))
    names = {**function.__globals__, **{k: v for k, v in values.items() if k in code.co_names}}
    names |= {k: _fixed(v, used) for k, v in names.items() if k in used}
    cells = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells.append(CellType(_fixed(values.get(name, cell.cell_contents), used)))
        except ValueError:  # an empty cell
            cells.append(cell)
    made = FunctionType(code, names, function.__name__, function.__defaults__, tuple(cells))
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _fixed(x: Any, used: set[str]) -> Any:
    """A copy of an array, or of the used names of a user's module, that doesn't change later."""
    if type(x) is np.ndarray:
        x = x.copy()
        x.flags.writeable = False
    elif type(x) is tuple:
        return tuple([_fixed(y, used) for y in x])
    elif type(x) is ModuleType and is_users_file(getattr(x, "__file__", None)):
        module = ModuleType(x.__name__)
        held = {k: _fixed(v, used) if k in used else v for k, v in vars(x).items()}
        vars(module).update(held)
        return module
    return x
