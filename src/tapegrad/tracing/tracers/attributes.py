"""The attributes and methods that tracers share with arrays and NumPy scalars."""

from __future__ import annotations

import sys
import weakref
from functools import partial
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError, TraceError, UnsupportedError
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.program.source import asks_for, at_line, caller, is_numpys_class
from tapegrad.primitives import complexes
from tapegrad.tracing.operators.inline_cache import seen
from tapegrad.tracing.operators.integer_bounds import whole
from tapegrad.tracing.recording import chains
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.tracers.alternatives import use_for
from tapegrad.tracing.tracers.elements import reading


def _method(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return seen(dispatch.method(name, self, *args, **kwargs))

    method.__name__ = method.__qualname__ = name
    return method


def new_shape(x: Any) -> tuple[int, ...]:
    """The shape of a traced array: a new tuple of new integers each time, as NumPy's."""
    return tuple([n + 0 for n in x._aval.shape])


class NumpyAttributes:
    """Mixin of the attributes that arrays and NumPy scalars have in common."""

    __slots__ = ()
    __array_priority__ = 1000.0

    def item(self: Any, *args: Any) -> Any:
        """ndarray.item, as a Python number. A boolean is guarded, others stay traced."""
        return seen(dispatch.element(self, args))

    def tolist(self: Any) -> Any:
        """ndarray.tolist: nested lists of traced Python numbers."""
        return dispatch.number(self) if self.ndim == 0 else [x.tolist() for x in self]

    def __floor__(self: Any) -> int:
        return whole(np.floor(self))

    def __ceil__(self: Any) -> int:
        return whole(np.ceil(self))

    __getitem__ = reading(lambda self, index: dispatch.getitem(self, index))

    # Those that loops call often; `__getattr__` finds the others.
    all, any, argmax, argmin = map(_method, ("all", "any", "argmax", "argmin"))
    astype, clip, copy, cumsum = map(_method, ("astype", "clip", "copy", "cumsum"))
    max, mean, min, prod, std = map(_method, ("max", "mean", "min", "prod", "std"))
    ravel, reshape, sum = map(_method, ("ravel", "reshape", "sum"))
    swapaxes, transpose, var = map(_method, ("swapaxes", "transpose", "var"))

    def __array_namespace__(self: Any, *, api_version: Any = None) -> Any:
        return dispatch.namespace(api_version, sys._getframe(1).f_globals.get("__name__", ""))

    @property
    def T(self: Any) -> Any:
        return np.transpose(self)

    @property
    def real(self: Any) -> Any:
        return _part_of(self, complexes.real) if self.dtype.kind == "c" else self

    @real.setter
    def real(self: Any, value: Any) -> None:
        _set_part(self, "real", value)

    @property
    def imag(self: Any) -> Any:
        if self.dtype.kind == "c":
            return _part_of(self, complexes.imag)
        zeros = np.zeros_like(self)  # read-only in NumPy
        return zeros if self._is_scalar() else np.broadcast_to(zeros, self.shape)

    @imag.setter
    def imag(self: Any, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        _set_part(self, "imag", value)

    @property
    def nbytes(self: Any) -> int:
        return self._aval.nbytes

    @property
    def itemsize(self: Any) -> int:
        return self._aval.dtype.itemsize

    @property
    def base(self: Any) -> Any:
        """The array that a view belongs to. It isn't known for an argument."""
        unknown = is_passed(self) or not self.size
        if self._root is None and not self._is_scalar() and unknown:
            raise UnsupportedError(
                "whether an argument, or an array without elements, is a view of another one isn't "
                f"followed{at_line()}. Use np.copy(x), which is none"
            )
        return self._root

    @property
    def strides(self: Any) -> Any:
        return laid_out(self).strides

    @property
    def flags(self: Any) -> Any:
        if caller() == "numba":
            raise refusing(_unsupported(self.__class__, "flags"))
        return Flags(laid_out(self).flags, self)

    @property
    def device(self: Any) -> str:
        return "cpu"

    @property
    def __array_interface__(self: Any) -> dict[str, Any]:
        """NumPy's array interface. NumPy's classes may compare the start of a traced array's memory
        with others'. It is hidden from C code, which would read the memory."""
        asking = sys._getframe(1).f_code.co_filename
        if not (is_numpys_class(asking) and asks_for("__array_interface__")):
            raise AttributeError("__array_interface__")
        return {"shape": self.shape, "data": (_Start(self), False)}

    def setflags(self: Any, write: Any = None, align: Any = None, uic: Any = None) -> None:
        """ndarray.setflags, which locks or unlocks an array."""
        if self._is_constant():
            dispatch.method("setflags", self, write, align, uic)
        elif uic or align or self._is_scalar():
            _refuse(self.__class__, "setflags")
        else:
            _lock(self, write)

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Any:
        np.empty(0).to_device(device, stream=stream)  # NumPy's own errors
        return self

    @property
    def flat(self: Any) -> Any:
        return dispatch.flat(self)

    @flat.setter
    def flat(self: Any, value: Any) -> None:
        self.flat[:] = value

    def __dlpack__(self: Any, **kwargs: Any) -> Any:
        _refuse(self.__class__, "__dlpack__")

    __dlpack_device__ = __dlpack__

    def __getattr__(self: Any, name: str) -> Any:
        kind = self.__class__
        if name in dispatch.methods and hasattr(kind, name):
            return partial(dispatch.method, name, self)
        hidden = name.startswith("__") and name != "__buffer__"  # C code looks up __buffer__
        if hidden or not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        found = getattr(kind, name)
        if not callable(found):
            raise refusing(_unsupported(kind, name))
        return partial(_refuse, kind, name)


def _part_of(z: Any, part: Any) -> Any:
    """The real or imaginary part of a complex array, which is a view of it."""
    become_traced = getattr(z._owner, "_become_traced", None)
    if become_traced is not None:  # a made array
        become_traced()
    value = z._read()[1]
    out = part(z)
    if isinstance(value, np.ndarray) or (value is None and out.shape):
        out._value = None if value is None else chains.shown(part, value)  # laid out as NumPy's
        chains.show(out, z._owner, (*z._chain, part))
    return out


def _set_part(z: Any, name: str, value: Any) -> None:
    """`z.real = value`, or `z.imag = value`."""
    if z._is_scalar():
        raise AttributeError(f"attribute {name!r} of '{z.dtype}' objects is not writable")
    if z.dtype.kind != "c":
        z[...] = value
        return
    parts = {"real": complexes.real(z), "imag": complexes.imag(z)}
    parts[name] = np.copy(parts[name])
    parts[name][...] = value
    z[...] = complexes.cartesian(*parts.values())


def laid_out(x: Any) -> Any:
    """The value of an array, if its memory layout is certain."""
    value = x._read()[1]
    if value is None or (x.ndim > 1 and not x._owner._ordered):
        raise UnsupportedError(
            f"how an array lies in memory isn't known here{at_line()}. Make a copy first"
        )
    return value


def is_passed(x: Any) -> bool:
    """Whether an array has, or may have, the memory of an argument."""
    return x._owner._read()[0] in x._trace.builder.inputs


class _Start:
    """The address of a traced array's first element, which can only be compared for equality."""

    def __init__(self, x: Any) -> None:
        self._owner, self._at = x._owner, 0
        if x._root is not None:
            whole, part = (y._read()[1].__array_interface__["data"][0] for y in (x._root, x))
            self._at = part - whole

    def __eq__(self, other: Any) -> bool:
        return type(other) is _Start and (self._owner is other._owner and self._at == other._at)

    __hash__ = None  # type: ignore[assignment]


_OF_LAYOUT = {"aligned", "c_contiguous", "contiguous", "f_contiguous", "fnc", "forc", "fortran"}
_OF_WRITING = {"writeable", "behaved", "carray", "farray"}
_LETTERS = {
    **{"C": "c_contiguous", "F": "f_contiguous", "O": "owndata", "W": "writeable"},
    **{"A": "aligned", "X": "writebackifcopy", "B": "behaved", "CA": "carray", "FA": "farray"},
}


def is_locked(root: Any) -> bool:
    """Whether the program has made a traced array read-only."""
    if root._is_constant():
        return not root._value.flags.writeable
    return any(known() is root for known in root._trace.locked)


def _lock(x: Any, write: Any) -> None:
    """`x.setflags(write=write)`, for an array that the function has made and that has no views.
    Views of it that are made later are read-only, too."""
    if write is None:
        return
    lent = hasattr(type(x._owner), "_loan")
    if x._root is not None or lent or is_passed(x) or chains.views_of(x):
        if caller() == "SciPy" and not write:
            return  # its own code locks arrays that it won't write to
        raise UnsupportedError(
            f"whether an argument, a view, or an array with views may be written to is set"
            f"{at_line()}, which a trace doesn't follow. Leave it out, or start with np.copy(x)"
        )
    locked = x._trace.locked
    locked[:] = [known for known in locked if known() is not x]
    value = x._read()[1]
    if not write:
        locked.append(weakref.ref(x))
        value = value if value is None else value.view()
    elif value is not None:
        value = np.array(value, order="K")
    if value is not None:
        value.flags.writeable = bool(write)
    x._value = value


class Flags:
    """The flags of a traced array. Only `writeable` can be set."""

    def __init__(self, flags: Any, x: Any) -> None:
        self._flags, self._x = flags, x

    def __getattr__(self, name: str) -> Any:
        if name == "owndata":
            return self._x.base is None
        if name not in _OF_LAYOUT and is_passed(self._x):
            raise UnsupportedError(
                f"whether an argument may be written to isn't followed{at_line()}: a call "
                "may be passed one that is read-only. Start with np.copy(x), which may be"
            )
        if name in _OF_WRITING and is_locked(self._x._owner):
            return False
        return getattr(self._flags, name)

    def __getitem__(self, name: str) -> Any:
        self._flags[name]  # NumPy's own error
        return getattr(self, _LETTERS.get(name, name.lower()))

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        getattr(self._flags, name)  # NumPy's own error
        if name == "writeable":
            self._x.setflags(value)
            return
        raise UnsupportedError(
            f"a flag of a traced array is set{at_line()}, which a trace doesn't follow. Leave it "
            "out"
        )

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, _LETTERS.get(name, name.lower()), value)


def _refuse(kind: type, name: str, *args: Any, **kwargs: Any) -> Any:
    """A method without a rule: calling it raises an error."""
    raise refusing(_unsupported(kind, name))


def _unsupported(kind: type, name: str) -> TraceError:
    if caller() == "numba":
        return ConversionError(
            f"a function that numba compiled is called with a traced array{at_line()}. It runs "
            "machine code on plain arrays, which carries no derivative. Trace the Python function "
            "(f.py_func), or declare it with tapegrad.primitive and defvjp"
        )
    return UnsupportedError(
        f"{kind.__name__}.{name} isn't supported on a traced array{at_line()}. {use_for(name)}, or "
        "declare one with tapegrad.primitive"
    )
