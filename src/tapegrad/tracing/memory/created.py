"""Made arrays: created by a traced function, and without a traced value so far.

The result of `np.zeros(n)` in a trace may become an index table, a mask, or an array of results,
which isn't known when it is created. So it is a tracer with a plain array behind it, and nothing is
recorded. NumPy itself computes operations on such arrays alone (`frontend/numpy/untraced.py`).
Python and C code get the plain array when they ask for one, without a guard, since its contents are
a constant of the tape. When it meets a traced value, a copy goes on the tape. The first traced
value that is written to it makes it an ordinary traced array, and so its views, which know their
chain.

Code that isn't traced may keep the plain array, and wouldn't see writes to the traced one. As long
as any code holds the plain array, no traced value can be written.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.arrays import is_known
from tapegrad.core.values import one_type
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval, Var, literal
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import note_printed, note_written, unobserved
from tapegrad.observe.program.making import made_at
from tapegrad.observe.program.source import at_line, user_source
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives.views import BroadcastTo
from tapegrad.tracing.memory.strides import views_between
from tapegrad.tracing.operators.numpy import operators
from tapegrad.tracing.recording import chains
from tapegrad.tracing.recording.chains import show, viewed, views_of
from tapegrad.tracing.recording.layout import note_aliased_write
from tapegrad.tracing.recording.trace import Trace, current_trace, traces_under_way
from tapegrad.tracing.tracers.attributes import new_shape
from tapegrad.tracing.tracers.tracer import ArrayTracer, Tracer, record, set_class, stand_in

_slot = Tracer.__dict__["_operand"]  # the operand of an ordinary tracer


def is_traceable(dtype: np.dtype) -> bool:
    """Whether arrays of a dtype can be on a tape."""
    return is_known(dtype) and dtype.isnative


_FILLED: Any = object()  # operand of an array that holds one number everywhere


def create(trace: Trace, value: np.ndarray, filled: bool = False) -> CreatedTracer:
    """A tracer of the trace's own array, which may be `filled` with one number."""
    kind: Any = CreatedTracer
    x: CreatedTracer = object.__new__(kind)
    x._trace, x._value = trace, value
    x._aval = one_type(Aval(value.shape, value.dtype))
    x._root, x._chain, x._version = None, (), 0
    x._ordered, x._may_alias, x._doubt = True, (), ""
    _slot.__set__(x, _FILLED if filled else None)
    _made[id(x)] = weakref.ref(x)
    return x


_made: dict[int, weakref.ref[CreatedTracer]] = {}  # by ids, which may be reused once they are gone


def left_over() -> list[CreatedTracer]:
    """The made arrays that are still alive, and whose traces have ended."""
    found = []
    for key, ref in [*_made.items()]:
        x = ref()
        if x is not None and x._trace.alive:
            continue
        if _made.get(key) is ref:
            del _made[key]
        if x is not None and is_created(x):
            found.append(x)
    return found


def part_of(x: CreatedTracer, chain: tuple[Any, ...], value: np.ndarray) -> CreatedTracer:
    """A view of a made array."""
    out = create(x._trace, value)
    show(out, x._owner, (*x._chain, *chain))
    return out


def is_created(x: Any) -> bool:
    """Whether this is a made array, or a view of one, that holds no traced value."""
    return type(x) is CreatedTracer and x._is_plain()


def handed(made: Sequence[CreatedTracer], memory: np.ndarray) -> np.ndarray:
    """A plain array for code that isn't traced, in memory that it shares with made ones."""
    array = np.asarray(_Memory(memory))  # kept alive by all arrays derived from it
    for x in made:
        root = x._owner
        _slot.__set__(root, None)  # the contents on the tape are compared from now on
        root._version += 1
        x._trace.handed.append((weakref.ref(root), weakref.ref(array)))
    return array


def shown(x: CreatedTracer) -> Tracer:
    """An ordinary tracer that views a made array, for functions of traced arrays."""
    out = stand_in(x._trace, x._operand, x._value)
    show(out, x._owner, x._chain)
    return out


def _forwarded(name: str) -> Callable[..., Any]:
    """A method that calls the plain array's."""
    own = getattr(np.ndarray, name)

    def method(self: Any, *args: Any) -> Any:
        if not self._is_plain():
            return getattr(self, name)(*args)
        if name in ("__repr__", "__str__", "__format__"):
            note_printed(self._value)
        return own(self._value, *args)

    method.__name__ = name
    return method


class _Memory:
    """Exposes an array's memory, so that arrays made from it can be distinguished."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class CreatedTracer(ArrayTracer):
    """A made array, or a view of one. `_value` is the memory that it and its views share; the
    operand is None until it is on the tape, and again after a write."""

    __slots__ = ()

    def _is_plain(self) -> bool:
        root = self._root
        if root is None or type(root) is CreatedTracer:
            return True
        self._version = -1  # its root holds traced values by now
        set_class(self, ArrayTracer)
        return False

    _is_constant = _is_plain

    # ---- on the tape

    @property
    def _operand(self) -> Any:
        if not self._is_plain():
            return self._read()[0]
        root, found = self._root, _slot.__get__(self)
        if root is None:
            if found is None or found is _FILLED or self._is_stale(found):
                found = _on_tape(self._trace, self._value, found is _FILLED)
                _slot.__set__(self, found)
            return found
        before = _slot.__get__(root)
        above = root._operand
        if found is None or self._version != root._version or above is not before:
            current: Any = stand_in(root._trace, above, root._value)
            for view in self._chain:
                current = viewed(record, root._trace, view, current)
            found = current._operand
            _slot.__set__(self, found)
            self._version = root._version
        return found

    @_operand.setter
    def _operand(self, operand: Any) -> None:
        """Set the operand: the array is an ordinary tracer from now on, and its memory is out of
        date."""
        _slot.__set__(self, operand)
        set_class(self, ArrayTracer)

    def _is_stale(self, found: Any) -> bool:
        """Whether code that has the plain array has written to it since it was put on the tape."""
        if not self._trace.handed:
            return False
        now = self._trace.contents.get(found)
        return now is not None and now.tobytes() != self._value.tobytes()

    def _read(self) -> tuple[Any, Any]:
        if not self._is_plain():
            return self._read()
        return self._operand, self._value

    def _write(self, primitive: Any, *operands: Any) -> None:
        self._owner._let_be_written()
        is_created(self)  # changes the class
        self._write(primitive, *operands)

    def _become_traced(self) -> None:
        """Become a traced array, since views of it are about to be made that aren't followed."""
        if self._is_plain():
            root: Any = self._owner
            if not root._value.flags.writeable:
                root._trace.locked.append(weakref.ref(root))
            root._leave_memory()
            is_created(self)  # changes the class

    def _let_be_written(self) -> None:
        """Become an ordinary traced array before a write."""
        if not self._value.flags.writeable:
            raise ValueError(f"assignment destination is read-only{at_line()}")
        self._leave_memory()

    def _leave_memory(self) -> None:
        """Put the contents on the tape, and become an ordinary tracer."""
        if self._is_handed():
            raise self._assigned()
        _ = self._operand
        set_class(self, ArrayTracer)

    def _is_handed(self) -> bool:
        """Whether any code has a plain array in its memory."""
        handed = self._trace.handed
        return any(root() is self and array() is not None for root, array in handed)

    # ---- as a plain array

    def _reshaped(self, shape: Any) -> None:
        """Set the shape of the plain array, if no view of it is alive."""
        if not self._is_plain() or self._root is not None or views_of(self):
            dispatch.set_shape(self, shape)
            return
        self._check_rounds()
        self._value.shape = shape
        self._aval = one_type(Aval(self._value.shape, self._value.dtype))
        self._changed()

    shape = property(new_shape, _reshaped)

    def _check_rounds(self) -> None:
        here = current_trace()
        if here is not None and here.repeats and here is not self._trace:
            raise UnsupportedError(
                "an array that was made before is written to in what is traced once for all "
                f"rounds{at_line()}. Let the rounds carry it, and return it"
            )

    def _changed(self) -> None:
        """Record that its memory was written to."""
        root = self._owner
        note_written(root)
        if root._may_alias:
            note_aliased_write(root, user_source())
        _slot.__set__(root, None)
        root._version += 1

    @property
    def _concrete(self) -> Any:
        return self._value if self._is_plain() else self._concrete

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if not self._is_plain():
            return self.__array__(dtype)
        if copy or (dtype is not None and np.dtype(dtype) != self.dtype):
            return np.array(self._value, dtype)
        return handed([self], self._value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._value.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if not self._is_plain():
            return getattr(self, name)
        if name.startswith("__"):
            return super().__getattr__(name)
        if name in ("data", "ctypes"):  # they expose the memory, and keep the array alive
            return getattr(self.__array__(), name)
        found = getattr(self._value, name)
        if not callable(found):
            return found

        x: Any = self  # becomes a plain array if it outlives the run

        def called(*args: Any, **kwargs: Any) -> Any:
            if not isinstance(x, Tracer):
                return getattr(x, name)(*args, **kwargs)
            return dispatch.method(name, x, *args, **kwargs)

        return called

    def item(self, *args: Any) -> Any:
        return self._value.item(*args) if self._is_plain() else self.item(*args)

    __bool__, __int__, __float__ = map(_forwarded, ("__bool__", "__int__", "__float__"))
    __complex__, __index__ = _forwarded("__complex__"), _forwarded("__index__")
    __repr__, __str__, __format__ = map(_forwarded, ("__repr__", "__str__", "__format__"))
    tolist = _forwarded("tolist")

    @unobserved
    def __getitem__(self, index: Any) -> Any:
        return dispatch.getitem(self, index)

    @unobserved
    def __setitem__(self, index: Any, value: Any) -> None:
        dispatch.setitem(self, index, value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return dispatch.ufunc(ufunc, method, inputs, kwargs)


def _fillable(
    trace: Trace, owner: np.ndarray, members: Sequence[Any], kept: bool
) -> dict[int, Any] | None:
    """The replacements of a plain array, `owner`, of its views and of their methods, by their ids;
    None if a view isn't known. If the memory is `kept`, since a tape has it as an input, the
    replacements get memory of their own."""
    root = create(trace, np.array(owner, order="K") if kept else owner)
    found: dict[int, Any] = {}
    for x in members:
        array = x if type(x) is np.ndarray else x.base if type(x) is np.flatiter else x.__self__
        views = views_between(owner, array)
        if views is None or (type(x) is np.flatiter and x.index):
            return None
        value: Any = root._value
        for view in views:
            value = chains.shown(view, value)
        y: Any = root if array is owner else part_of(root, views, value)
        if type(x) is np.flatiter:
            y = dispatch.flat(y)
        elif array is not x:
            y = functools.partial(dispatch.method, x.__name__, y)
        found[id(x)] = y
    return found


def _held() -> list[Any]:
    """The arrays that are inputs of the traces under way, once for each reference."""
    found: list[Any] = []
    for trace in traces_under_way():
        found += [outside for _, outside in trace.captured.values()]
        found += [array for array, *_ in trace._checksums]
    return found


dispatch.fillable, dispatch.held = _fillable, _held


def _plain(x: Any) -> np.ndarray | None:
    return x.__array__() if is_created(x) else None


dispatch.plain, dispatch.is_made = _plain, is_created


# Results of operators aren't traced at this point: NumPy computes them.
for _name, _operator in operators().items():
    setattr(CreatedTracer, _name, _operator)
CreatedTracer.__name__ = "ndarray"


def _on_tape(trace: Trace, value: np.ndarray, filled: bool) -> Var:
    """A variable with the present contents of an array: one number, if it is `filled` with that, or
    a captured array that only the trace references."""
    builder, aval = trace.builder, Aval(value.shape, value.dtype)
    kept = np.array(value, order="C")
    if filled or not kept.size:
        number = literal(kept.flat[0] if kept.size else 0, kept.dtype)
        src = trace.src or user_source()
        (spread,) = builder.call(BroadcastTo(value.shape), [number], src, trace.reason)
        (var,) = builder.call(ew.copy, [spread], src, trace.reason)
    else:
        var = builder.fresh(aval)
        trace.captured[id(kept)] = var, kept
        trace.made[id(kept)] = made_at(value)
    if trace.handed:
        trace.contents[var] = kept
    return var
