"""The tracer: a proxy of an ndarray that carries its value and records the operations on it.

NumPy calls it through both its protocols, and it has the interface of an ndarray. Since it carries
the value, Python's control flow works; decisions on the value (`if x > 0`) record a guard.

In-place writes are made functional here. A tracer is a *root*, which owns a variable, or a *view*,
which knows its root and the chain of views from it. Writing to either gives the root a new
variable; a view that has become stale is read through its chain again.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from functools import cache, partial
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.core.arrays import computed_in, native, read
from tapegrad.core.loud import aloud
from tapegrad.core.values import one_type
from tapegrad.errors import ConversionError, TapegradError, UnsupportedError
from tapegrad.ir.tape import Aval, Literal, Operand
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import following, note_remembered, unobserved
from tapegrad.observe.program.source import asks_for, asks_itself, at_line, user_source
from tapegrad.observe.sides.effects import Stopped
from tapegrad.observe.values.proxy import Proxy
from tapegrad.primitives.kinds import Moving, View
from tapegrad.primitives.windows import Window
from tapegrad.tracing.operators.complexes import ComplexMethods
from tapegrad.tracing.operators.inline_cache import made, seen, universal
from tapegrad.tracing.operators.numbers import (
    FloatMethods,
    HexMethods,
    IntegerMethods,
    RealMethods,
    Shapeless,
    WholeMethods,
)
from tapegrad.tracing.operators.numpy import ArrayOperators, ScalarOperators
from tapegrad.tracing.operators.python import ComplexOperators, IntegerOperators, PythonOperators
from tapegrad.tracing.recording.chains import Chosen, Step, show, unviewed, viewed
from tapegrad.tracing.recording.layout import (
    is_doubtful,
    is_ordered,
    laid_out_like,
    note_may_alias,
    refuse_doubtful,
)
from tapegrad.tracing.recording.trace import Trace, innermost
from tapegrad.tracing.tracers.attributes import NumpyAttributes, is_locked, new_shape
from tapegrad.tracing.tracers.conversions import AsIndex, AsReal, Complexes, Conversions, Rounds
from tapegrad.tracing.tracers.elements import writing
from tapegrad.tracing.tracers.hashing import hash_of


class Tracer(Conversions, Proxy):
    """A traced array or number. It is used like the value that it represents.

    Python looks up operators on the type, and programs test for attributes. So each kind of value
    has a class of its own, below, with the attributes and methods of that kind and no others. Names
    that start with an underscore are tapegrad's own.
    """

    __slots__ = (
        "__weakref__",
        "_aval",
        "_chain",
        "_operand",
        "_root",
        "_version",
        "_views",
    )
    shape = property(new_shape)
    dtype = property(lambda self: self._aval.dtype)
    ndim = property(lambda self: len(self._aval.shape))
    size = property(lambda self: self._aval.size)
    _node = property(lambda self: self._trace.place(self))  # in a tape that programs inspect
    if TYPE_CHECKING:  # attributes of the classes below

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __le__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...

    _weak = False  # whether it is a Python number, which adapts to the dtype of other operands
    _either = 0  # 1: may be a Python number; 2: may be an integer. See `union_numbers.py`

    def __init__(self, trace: Trace, operand: Operand, value: Any) -> None:
        self._trace = trace
        self._operand = operand
        self._value = value
        self._aval = operand.aval
        self._root: Tracer | None = None
        self._chain: tuple[Step, ...] = ()
        self._version = 0
        self._ordered = True  # these three: see `tracing.recording.layout`
        self._may_alias: Sequence[Any] = ()
        self._doubt = ""

    # ---- reading and writing

    @property
    def _owner(self) -> Tracer:
        """The array that owns the memory: the root, or the tracer itself."""
        return self if self._root is None else self._root

    def _read(self) -> tuple[Operand, Any]:
        """The current operand and value. A stale view is updated first."""
        root = self._root
        if (self if root is None else root)._doubt:
            refuse_doubtful(self._owner)
        if root is not None and self._version != root._version:
            current = stand_in(root._trace, root._operand, root._value)
            for view in self._chain:
                current = viewed(record, root._trace, view, current)
            self._operand, self._value = current._operand, current._value
            self._version = root._version
        return self._operand, self._value

    @property
    def _concrete(self) -> Any:
        """The NumPy value. Raises an error in an abstract trace, which has none."""
        value = self._read()[1]
        if value is None:
            raise ConversionError(
                f"the value of a traced array was asked for in {self._trace.label}, where only "
                f"shapes and dtypes are known{at_line()}. A derivative rule can't branch on "
                "values: use np.where"
            )
        return value

    def _bind(self, primitive: Any, operands: Any) -> Any:
        trace = innermost(operands)
        return record(trace, primitive, operands)

    def _is_scalar(self) -> bool:
        """Whether the value is a scalar in plain NumPy, which can't be written to."""
        return self._root is None and isinstance(self._value, np.generic)

    def _as_pythons(self) -> Any:
        """This new number as a Python number."""
        set_class(self, PYTHONS[self._aval.dtype.kind])
        return self

    def _revalued(self, value: Any) -> Any:
        """This new tracer with its value as a scalar or as an array."""
        self._value = value
        set_class(self, kind_of(value, self._aval))
        return self

    def _write(self, primitive: Any, *operands: Any) -> None:
        """Replace the contents by `primitive(self, *operands)`, in the root and all its views."""
        trace = innermost([self, *operands])
        if trace is not self._owner._trace:
            raise UnsupportedError(
                "an array of an outer traced function is written to inside an inner one"
                f"{at_line()}. Write to a copy that the inner function makes, y = y.copy(), and "
                "return what the outer one needs of it"
            )
        root = self._root
        if trace.writable is not None and not trace.writable(self._owner):
            raise Stopped
        if root is not None and not self._chain:  # it shows all of a made array
            root._write(primitive, *operands)
            return
        self._owner._let_be_written()
        alone = root is None and primitive.memory.updates and self._is_alone()
        new = record(trace, primitive, [self, *operands], primitive.updating() if alone else None)
        trace.note_write(self._owner)
        if root is None:
            self._operand, self._value = new._operand, laid_out_like(new._value, self._value)
            self._version += 1
            return
        levels = [stand_in(trace, root._operand, root._value)]
        for view in self._chain[:-1]:
            levels.append(viewed(record, trace, view, levels[-1]))
        for view, below in zip(reversed(self._chain), reversed(levels), strict=True):
            new = unviewed(record, trace, view, below, new)
        root._operand, root._value = new._operand, laid_out_like(new._value, root._value)
        root._version += 1

    def _is_constant(self) -> bool:
        return False  # see `made`

    def _let_be_written(self) -> None:
        if self._trace.locked and is_locked(self):
            raise ValueError(f"assignment destination is read-only{at_line()}")

    def _is_alone(self) -> bool:
        """Whether only this tracer refers to the value, and it has no views: it may be overwritten
        then. Each view refers to its base, so the reference count tells."""
        value = self._value
        owns = type(value) is np.ndarray and value.base is None and value.flags.writeable
        del value
        return owns and _references(self) == _ALONE

    def _detached(self) -> Tracer:
        """The same value as a new row-major array, with memory of its own."""
        operand, value = self._read()
        if getattr(value, "ndim", 0) > 1:
            value = np.ascontiguousarray(value)
        return stand_in(self._trace, operand, value, self._weak)

    # ---- NumPy's protocols

    __array_ufunc__ = universal("__array_ufunc__", lambda *args: dispatch.ufunc(*args))

    @unobserved
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        others = len(types) > 1 and any(hasattr(t, "_answers_first") for t in types)
        return NotImplemented if others else seen(dispatch.function(func, args, kwargs), 3)

    def __dir__(self) -> list[str]:
        return dir(self.__class__)


def _references(held: Any) -> int:
    """The number of references to a value, including those of the count itself."""
    return sys.getrefcount(held._value)


_ALONE = _references(SimpleNamespace(_value=np.empty(0)))  # the number in this Python version

# Sets `type(x)`. The `__class__` of a tracer is the class of the value that it represents.
set_class = vars(object)["__class__"].__set__


# ---- arrays and NumPy's scalars


class _Matched(metaclass=ABCMeta):  # noqa: B024
    """Mixin of classes that match `case [x, y]:`, as arrays do from NumPy 2.5 on, though they are
    no Sequence: Python inherits the type flag from here."""

    __slots__ = ()
    __abc_tpflags__ = np.ndarray.__flags__ & 1 << 5


class ArrayTracer(ArrayOperators, AsReal, AsIndex, Complexes, NumpyAttributes, Tracer, _Matched):
    """A traced ndarray."""

    __slots__ = ()
    __class__ = property(lambda self: np.ndarray)
    __hash__ = None  # type: ignore[assignment]

    def _set_dtype(self, dtype: Any) -> None:
        raise UnsupportedError(
            f"the dtype of a traced array is set in place{at_line()}, which isn't followed. Make "
            "another array: y = x.astype(...)"
        )

    shape = property(new_shape, lambda self, shape: dispatch.set_shape(self, shape))
    dtype = property(lambda self: self._aval.dtype, _set_dtype)
    mT = property(lambda self: np.swapaxes(self, -1, -2))

    def __copy__(self, memo: Any = None) -> Any:
        return np.copy(self)

    __deepcopy__ = __copy__

    def __len__(self) -> int:
        if self._aval.shape == ():
            raise TypeError("len() of unsized object")
        return self._aval.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if self._aval.shape == ():
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(self._aval.shape[0]))

    def __contains__(self, x: Any) -> bool:
        return bool((self == x).any())

    __setitem__ = writing(lambda self, index, value: dispatch.setitem(self, index, value))

    def __delitem__(self, index: Any) -> None:
        raise ValueError("cannot delete array elements")


def _itself(x: Any, memo: Any = None) -> Any:
    """The copy of a number: itself, since numbers aren't written to."""
    return x


class ScalarTracer(ScalarOperators, AsReal, NumpyAttributes, Tracer):
    """A traced NumPy scalar. Each scalar type has a subclass."""

    __slots__ = ()
    __hash__ = hash_of
    __iter__ = None  # otherwise Python would iterate by indices
    __copy__, __deepcopy__ = _itself, _itself


@cache
def _scalar_class(numpys: type) -> type[Tracer]:
    """The class of tracers of a NumPy scalar type."""
    mixins: tuple[type, ...] = ()
    if issubclass(numpys, np.complexfloating):
        mixins = (Complexes,)
    elif issubclass(numpys, np.floating):
        mixins = (Rounds, HexMethods if numpys is np.float64 else RealMethods)
    elif issubclass(numpys, np.integer):
        mixins = (Rounds, WholeMethods, AsIndex)
    told = property(lambda self: numpys)
    return type(numpys.__name__, (*mixins, ScalarTracer), {"__slots__": (), "__class__": told})


# ---- Python's numbers


class NumberTracer(Shapeless, Tracer):
    """A traced Python number."""

    __slots__ = ()
    _weak = True
    _value_as = property(lambda self: self.__class__)  # Python's type

    def _plain(self, what: str) -> Any:
        """The guarded plain number, without a derivative: an argument as the caller's object."""
        number, here = self._value_as(self._guarded(what)), following.observer
        return number if here is None else here.identities.as_given(self, number)

    def _plain_or_one(self) -> Any:
        """The plain number if it is known; else 1 of the same type."""
        return self._value_as(1 if self._value is None else self._read()[1])

    __copy__, __deepcopy__ = _itself, _itself

    @property
    def __array__(self) -> Any:
        """Visible only to NumPy, which looks it up before it makes an object array."""
        if asks_for("__array__"):
            raise AttributeError(f"{self.__class__.__name__!r} object has no attribute '__array__'")
        return super().__array__

    def __getattr__(self, name: str) -> Any:
        if not asks_itself() or name == "__name__":  # the class has `__name__`
            kind = self.__class__.__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        if name in dispatch.methods:
            return partial(dispatch.method, name, self)
        found: Any = getattr(ArrayTracer, name)
        return found.__get__(self) if isinstance(found, property) else partial(found, self)


class FloatTracer(FloatMethods, PythonOperators, AsReal, NumberTracer):
    """A traced float."""

    __slots__ = ()
    __hash__ = hash_of
    __class__ = property(lambda self: float)


class ComplexTracer(ComplexMethods, ComplexOperators, NumberTracer):
    """A traced complex number of Python's."""

    __slots__ = ()
    __hash__ = hash_of
    __class__ = property(lambda self: complex)


class IntTracer(IntegerMethods, IntegerOperators, AsReal, AsIndex, NumberTracer):
    """A traced int."""

    __slots__ = ()
    __hash__ = hash_of
    __class__ = property(lambda self: int)


class BoolTracer(IntTracer):
    """A traced bool."""

    __slots__ = ()
    __class__ = property(lambda self: bool)
    from_bytes = staticmethod(bool.from_bytes)


# For `type(x).__name__`, and the messages of Python's errors
ArrayTracer.__name__ = "ndarray"
PYTHONS: dict[str, Any] = {"c": ComplexTracer, "f": FloatTracer, "i": IntTracer, "b": BoolTracer}
for _kind in PYTHONS.values():
    _kind.__name__ = _kind.__name__.removesuffix("Tracer").lower()


# ---- recording


def kind_of(value: Any, aval: Aval) -> type[Tracer]:
    """The class of the tracer of a NumPy value. If only its type is known, a value without axes is
    a scalar."""
    if type(value) is np.ndarray or (value is None and aval.shape):
        return ArrayTracer
    return _scalar_class(aval.dtype.type)  # type: ignore[arg-type]


def stand_in(trace: Trace, operand: Operand, value: Any, weak: bool = False) -> Tracer:
    """A tracer for an operand with this value. A `weak` one represents a Python number."""
    aval = operand.aval
    kind = PYTHONS[aval.dtype.kind] if weak else kind_of(value, aval)
    return kind(trace, operand, value)


def to_operand(trace: Trace, x: Any) -> tuple[Operand, Any]:
    """The operand of `trace` and the value for an argument of a primitive."""
    if isinstance(x, Tracer):
        if x._trace is trace:
            return x._read()
        if not x._trace.alive and x._is_constant():
            note_remembered(x._value)
            return to_operand(trace, x._value)
        x._trace.check_alive()
        operand, value = x._read()
        if isinstance(operand, Literal):
            return operand, value
        # The key is the variable, since a write gives a tracer a new one; the pinned tracer isn't
        # written to.
        pins = x._trace.pins
        if operand not in pins:
            pins[operand] = stand_in(x._trace, operand, value)
        return trace.capture(pins[operand], operand.aval), value
    if isinstance(x, Literal):
        return x, x.value
    if isinstance(x, np.ndarray):
        if (lent := dispatch.lent(trace, x)) is not x:
            return to_operand(trace, lent)
        return trace.capture(x, Aval(x.shape, computed_in(native(x.dtype)))), read(x)
    return Literal(x := read(x)), x


def record(trace: Trace, primitive: Any, operands: Any, evaluate: Any = None) -> Any:
    """Record one call, evaluate it if the operands have values, and wrap the results in tracers."""
    plain, values, known = [], [], True
    for x in operands:
        operand, value = to_operand(trace, x)
        plain.append(operand)
        values.append(value)
        known = known and value is not None
    start = perf_counter()
    run: Any = evaluate or primitive.evaluate
    try:
        found: Any = (run(*values) if primitive.foreign else aloud(run, values)) if known else None
    except Exception as error:
        if not (isinstance(error, TapegradError) or primitive.refuses(*[x.aval for x in plain])):
            trace.note_raised(primitive.name)
        raise
    trace.seconds += perf_counter() - start
    if primitive.results == 1:
        result = found[0] if type(found) is tuple else found
        aval = one_type(primitive.avals(*[x.aval for x in plain])[0])
        src = trace.src or user_source()
        out = made(trace, primitive, tuple(plain), aval, src, kind_of(result, aval), result)
        if not is_ordered(primitive, operands, values):
            out._ordered = False
        if isinstance(primitive, View) and not isinstance(primitive, Moving):
            _link_view(out, primitive, operands[0], values[0])
        return out
    results = found if known else (None,) * primitive.results
    outs = trace.record(primitive, plain)  # only types may be known here: see `Trace`
    tracers = tuple(stand_in(trace, out, r) for out, r in zip(outs, results, strict=True))
    if not is_ordered(primitive, operands, values):
        for tracer in tracers:
            tracer._ordered = False
    return tracers


def _link_view(out: Tracer, view: View, operand: Any, value: Any) -> None:
    """Make `out` a view of `operand` if NumPy's result is one: a write to either changes both."""
    if not isinstance(operand, Tracer):
        return
    root = operand._owner
    if is_doubtful(view, root, operand):
        note_may_alias(out, root)
        return
    if out._value is None or not isinstance(value, np.ndarray):
        aliased = out._value is None
    else:
        aliased = np.may_share_memory(out._value, value)
    if aliased and isinstance(out._value, (np.ndarray, type(None))):
        show(out, root, (*operand._chain, view))


def link_chosen(out: Tracer, window: Window, operand: Tracer, steps: Sequence[Tracer]) -> None:
    """Make `out` a view of `operand` at the present `steps`, unless it is a scalar."""
    if out.shape or isinstance(out._value, np.ndarray):
        held = tuple([stand_in(k._trace, *k._read()) for k in steps])
        show(out, operand._owner, (*operand._chain, Chosen(window, held)))


def unwrap(x: Any) -> Any:
    """The plain value of a tracer; any other object unchanged."""
    return x._concrete if isinstance(x, Tracer) else x
