"""The tracer: a stand-in for an ndarray that carries its value and records what is done with it.

NumPy calls it back through both its protocols, and it has ndarray's operators, methods and
attributes. Because it carries the value, Python's control flow works as in plain NumPy; where
Python takes a value for granted (`if x > 0`, `range(n)`), the tape gets a guard.

In-place writes are made functional here. A tracer is a *root*, which owns a variable, or a *view*,
which knows its root and the chain of views from it. Writing to either gives the root a new
variable; a view that has become stale is read through its chain again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError, UnsupportedError
from tapegrad.ir.tape import Aval, Literal, Operand
from tapegrad.primitives.base import Value, View
from tapegrad.primitives.scatter import SetItem
from tapegrad.primitives.views import (
    BroadcastTo,
    Diagonal,
    ExpandDims,
    GetItem,
    Reshape,
    Squeeze,
    Transpose,
)
from tapegrad.tracing.hashing import hash_of
from tapegrad.tracing.layout import (
    is_doubtful,
    is_ordered,
    laid_out_like,
    make_twins,
    refuse_doubtful,
)
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.source import assigns_item, at_line, called_by_scipy
from tapegrad.tracing.texts import formats_text, tell
from tapegrad.tracing.trace import Trace, innermost, to_operand
from tapegrad.tracing.weak import PythonArithmetic


class _OfArrays:
    """A method that scalars don't have: programs tell them from arrays by `hasattr(x, "__len__")`.
    `__iter__` can't be such a method, since Python would try indices instead."""

    def __init__(self, method: Callable[[Any], Any]) -> None:
        self._method = method

    def __get__(self, x: Any, owner: Any = None) -> Any:
        if x is None:
            return self
        if x.is_scalar():
            raise NotAnArray(f"a traced {x.__class__.__name__} has no length")
        return partial(self._method, x)


class NotAnArray(TypeError, AttributeError):
    """A scalar was used as an array: Python's own error is either, depending on how it's asked."""


class Tracer(Value, PythonArithmetic):
    """A traced array or number. Use it as you would the ndarray that it stands for."""

    __slots__ = (
        "__weakref__",
        "_aval",
        "_chain",
        "_doubt",
        "_operand",
        "_ordered",
        "_root",
        "_trace",
        "_twins",
        "_value",
        "_version",
        "_weak",
    )
    __array_priority__ = 1000.0
    __hash__ = hash_of

    def __init__(self, trace: Trace, operand: Operand, value: Any, weak: bool = False) -> None:
        self._trace = trace
        self._operand = operand
        self._value = value
        self._aval = operand.aval
        self._weak = weak
        self._root: Tracer | None = None
        self._chain: tuple[View, ...] = ()
        self._version = 0
        self._ordered = True  # these three: see `tracing.layout`
        self._twins: list[Any] = []
        self._doubt = ""

    # ---- reading and writing

    @property
    def aval(self) -> Aval:  # type: ignore[override]
        return self._aval

    @property
    def root(self) -> Tracer:
        """The array that owns the memory: itself, if it isn't a view."""
        return self if self._root is None else self._root

    def read(self) -> tuple[Operand, Any]:
        """The operand and value that this tracer stands for now."""
        root = self._root
        if (self if root is None else root)._doubt:
            refuse_doubtful(self.root)
        if root is not None and self._version != root._version:
            current = Tracer(root._trace, root._operand, root._value)
            for view in self._chain:
                current = record(root._trace, view, [current])
            self._operand, self._value = current._operand, current._value
            self._version = root._version
        return self._operand, self._value

    @property
    def value(self) -> Any:
        """The NumPy value; an error in an abstract trace, which has none."""
        value = self.read()[1]
        if value is None:
            raise ConversionError(
                f"the value of a traced array was asked for in {self._trace.label}, where only "
                f"shapes and dtypes are known{at_line()}. A derivative rule can't branch on "
                "values: use np.where"
            )
        return value

    def bind(self, primitive: Any, operands: Any) -> Any:
        trace = innermost(operands)
        return record(trace, primitive, operands)

    def is_scalar(self) -> bool:
        """Whether plain NumPy would have a scalar here, which can't be written to."""
        return self._root is None and isinstance(self._value, (np.generic, int, float))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What NumPy or Python would have here, so that `isinstance` says what it says untraced."""
        if self._weak:
            return {"f": float, "b": bool}.get(self.dtype.kind, int)
        scalar = self.is_scalar() if self._value is not None else self._aval.shape == ()
        return self._aval.dtype.type if scalar else np.ndarray

    def write(self, primitive: Any, *operands: Any) -> None:
        """Make this tracer stand for `primitive(self, *operands)` from now on, and its root and
        all other views of that follow."""
        trace = innermost([self, *operands])
        if trace is not self._trace:
            raise UnsupportedError(
                "an array of an outer traced function is written to inside an inner one"
                f"{at_line()}. Return the new value from the inner function instead"
            )
        new = record(trace, primitive, [self, *operands])
        root = self._root
        trace.note_write(self.root)
        if root is None:
            self._operand, self._value = new._operand, laid_out_like(new._value, self._value)
            self._version += 1
            return
        levels = [Tracer(trace, root._operand, root._value)]
        for view in self._chain[:-1]:
            levels.append(record(trace, view, [levels[-1]]))
        for view, below in zip(reversed(self._chain), reversed(levels), strict=True):
            new = _unview(trace, view, below, new)
        root._operand, root._value = new._operand, laid_out_like(new._value, root._value)
        root._version += 1

    def detached(self) -> Tracer:
        """The same value as a new row-major array: what is written to either stays there."""
        operand, value = self.read()
        if getattr(value, "ndim", 0) > 1:
            value = np.ascontiguousarray(value)
        return Tracer(self._trace, operand, value, self._weak)

    # ---- NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from tapegrad.tracing.frontend.ufuncs import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tapegrad.tracing.frontend import call_function

        return call_function(func, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._trace.check_alive()
        if self.ndim == 0 and self.dtype.kind in "iub":
            return np.array(self._guarded("an integer or a boolean in a plain array"))
        if assigns_item():
            raise self._assigned()
        if called_by_scipy():
            raise ConversionError(
                f"SciPy makes a plain NumPy array of a traced one ({self.aval}){at_line()}, which "
                "carries no derivative. Functions of scipy.linalg that can be traced are in "
                "tapegrad.linalg, under SciPy's names; numpy.linalg can be traced too. Others can "
                "be declared with tapegrad.primitive and defvjp"
            )
        raise ConversionError(
            f"a traced array ({self.aval}) can't become a plain NumPy array{at_line()}, which "
            "carries no derivative. For np.array([a, b]) of traced values, import tapegrad.numpy "
            "as np, or use np.stack([a, b]); drop np.array(x) and np.asarray(x) of one. A function "
            "that needs plain arrays can be declared with tapegrad.primitive"
        )

    def _assigned(self) -> ConversionError:
        """The error for `a[k] = self` where `a` is a plain array."""
        return ConversionError(
            f"a traced value ({self.aval}) is assigned into a plain NumPy array{at_line()}, which "
            "carries no derivative. Import tapegrad.numpy as np, whose np.zeros can hold it, "
            "make the array with np.zeros_like(x, shape=...) of a traced x, or put the parts "
            "together with np.stack or np.concatenate"
        )

    # ---- what Python takes for granted

    def _scalar_value(self, kind: str) -> Any:
        if self.size != 1:
            raise TypeError(f"only an array of one element can be converted to {kind}")
        return np.asarray(self.value).reshape(())[()]

    def _as_integer(self) -> Tracer:
        """Python's True as 1."""
        from tapegrad.primitives.elementwise import AsType

        number = AsType(np.dtype(np.int64))(self)
        number._weak = True
        return number

    def _as_scalar(self) -> Tracer:
        return self if self.ndim == 0 else Reshape(())(self)

    @unobserved
    def __bool__(self) -> bool:
        if self.size != 1:
            return bool(np.asarray(self.value))  # NumPy's own error
        found = bool(self._scalar_value("bool"))
        condition = self._as_scalar()
        if self.dtype != np.bool_:
            condition = condition != 0
        self._trace.check_alive()
        self._trace.guard(condition, found, "a condition")
        return found

    @unobserved
    def _guarded(self, what: str) -> Any:
        """The value of a number without a derivative, which is taken for granted from here on."""
        value = self._scalar_value(what)
        if formats_text():
            tell(self)
            return value
        self._trace.check_alive()
        self._trace.guard(self._as_scalar(), value, what)
        return value

    def _guarded_int(self, what: str) -> int:
        whole: Any = self if self.dtype.kind != "f" else np.trunc(self)
        return int(whole._guarded(what))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"only integer arrays can be used as an index, not {self.aval}")
        return self._guarded_int("an integer used as an index, a length or a range")

    def __int__(self) -> int:
        return self._guarded_int("int(...)")

    def __trunc__(self) -> int:
        return self._guarded_int("int(...)")

    def __round__(self, digits: int | None = None) -> Any:
        return int(np.rint(self)) if digits is None else np.round(self, digits)

    def __floor__(self) -> int:
        return int(np.floor(self))

    def __ceil__(self) -> int:
        return int(np.ceil(self))

    def __float__(self) -> float:
        if formats_text():
            tell(self)
            return float(self._scalar_value("float"))
        if self.dtype.kind in "iub" or self._trace.is_of_integers(self.read()[0]):
            return float(self._guarded("float(...)"))
        self._trace.check_alive()
        if assigns_item():
            raise self._assigned()
        raise ConversionError(
            f"a traced number was converted to a plain Python float{at_line()}, by float(x), "
            "x.item() or a function of the math module. A plain float carries no derivative: drop "
            "float(...) and x.item(), and use np.exp instead of math.exp. A function that needs "
            "plain numbers can be declared with tapegrad.primitive"
        )

    def __complex__(self) -> complex:
        raise ConversionError(f"complex numbers can't be traced yet{at_line()}")

    def item(self, *args: Any) -> Any:
        """As ndarray's, for integers and booleans; a float would lose its derivative."""
        x = self[args] if args else self
        if x.dtype.kind == "b":
            return bool(x)
        return int(x) if x.dtype.kind in "iu" else float(x)

    def tolist(self) -> Any:
        """Nested lists of traced numbers."""
        return self if self.ndim == 0 else [x.tolist() for x in self]

    @_OfArrays
    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(self.shape[0]))

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    def __repr__(self) -> str:
        value = "" if self._value is None else f", value={np.array2string(np.asarray(self.value))}"
        return f"Tracer({self.aval}{value})"

    def __str__(self) -> str:
        if self._value is None:
            return repr(self)
        tell(self)
        return str(self.value)

    def __format__(self, spec: str) -> str:
        if self._value is None:
            return repr(self)
        tell(self)
        return format(self.value, spec)

    def __deepcopy__(self, memo: Any) -> Any:
        return np.copy(self)

    def __copy__(self) -> Any:
        return np.copy(self)

    def __reduce__(self) -> Any:
        raise ConversionError(f"a traced array can't be pickled{at_line()}")

    # ---- attributes

    def _in_place(self, value: Any) -> None:
        raise UnsupportedError(
            f"the shape or dtype of a traced array is set in place{at_line()}, which a trace "
            "doesn't follow. Make another array: y = x.reshape(...) or y = x.astype(...)"
        )

    shape = property(Value.shape.fget, _in_place)  # type: ignore[attr-defined]
    dtype = property(Value.dtype.fget, _in_place)  # type: ignore[attr-defined]

    @property
    def T(self) -> Any:
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return np.zeros_like(self)

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def flat(self) -> Any:
        from tapegrad.tracing.frontend.indexing import Flat

        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    def __getattr__(self, name: str) -> Any:
        from tapegrad.tracing.frontend.methods import METHODS, call_method

        method = METHODS.get(name)
        if method is not None:
            return partial(call_method, method, self)
        kind = self.__class__
        if hasattr(kind, name):
            raise UnsupportedAttribute(
                f"{kind.__name__}.{name} isn't supported on a traced array{at_line()}. Use a NumPy "
                "function that has a rule, or declare one with tapegrad.primitive"
            )
        raise AttributeError(f"a traced array has no attribute {name!r}")

    # ---- indexing

    def __getitem__(self, index: Any) -> Any:
        from tapegrad.tracing.frontend.indexing import getitem

        return getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from tapegrad.tracing.frontend.indexing import setitem

        setitem(self, index, value)


class UnsupportedAttribute(UnsupportedError, AttributeError):
    """An attribute of ndarray that a tracer doesn't have."""


def record(trace: Trace, primitive: Any, operands: Any) -> Any:
    """Record one call, evaluate it if the operands have values, and wrap the results."""
    plain, values = [], []
    for x in operands:
        operand, value = to_operand(trace, x)
        plain.append(operand)
        values.append(value)
    if any(value is None for value in values):  # only types are known here: see `Trace`
        results: Any = (None,) * primitive.results
    else:
        results = primitive.evaluate(*values)
        if primitive.results == 1 and not isinstance(results, tuple):
            results = (results,)
    outs = trace.record(primitive, plain)
    tracers = tuple(Tracer(trace, out, r) for out, r in zip(outs, results, strict=True))
    if not is_ordered(primitive, operands, values):
        for tracer in tracers:
            tracer._ordered = False
    if primitive.results != 1:
        return tracers
    if isinstance(primitive, View):
        _link_view(tracers[0], primitive, operands[0], values[0])
    return tracers[0]


def _link_view(out: Tracer, view: View, operand: Any, value: Any) -> None:
    """Make `out` a view of `operand`, if NumPy made one: then writes to either reach the other."""
    if not isinstance(operand, Tracer) or operand._trace is not out._trace:
        return
    root = operand.root
    if is_doubtful(view, root, operand):
        make_twins(out, root)
        return
    if out._value is None or not isinstance(value, np.ndarray):
        aliased = out._value is None
    else:
        aliased = np.may_share_memory(out._value, value)
    if aliased and isinstance(out._value, (np.ndarray, type(None))):
        out._root, out._chain = root, (*operand._chain, view)
        out._version = root._version


def _unview(trace: Trace, view: View, below: Tracer, new: Tracer) -> Tracer:
    """`below` after its view `view(below)` has become `new`."""
    if isinstance(view, GetItem):
        return record(trace, SetItem(view.index), [below, new])
    if isinstance(view, Transpose):
        inverse = tuple(int(a) for a in np.argsort(view.axes))
        return record(trace, Transpose(inverse), [new])
    if isinstance(view, Reshape):
        return record(trace, Reshape(below.shape), [new])
    if isinstance(view, ExpandDims):
        return record(trace, Squeeze(view.axes), [new])
    if isinstance(view, Squeeze):
        return record(trace, ExpandDims(view.axes), [new])
    assert isinstance(view, (BroadcastTo, Diagonal))
    instead = ". Use np.fill_diagonal" if isinstance(view, Diagonal) else ""
    raise ValueError(f"assignment destination is read-only{at_line()}{instead}")


def unwrap(x: Any) -> Any:
    """The plain value of a tracer, or `x` itself."""
    return x.value if isinstance(x, Tracer) else x


def is_literal(x: Any) -> bool:
    """Whether a tracer stands for a scalar constant."""
    return isinstance(x, Tracer) and isinstance(x._operand, Literal)
