"""Inline caches of operators.

A loop applies the same operators to operands of the same types, over and over. Resolving what NumPy
does with them takes most of the time of a trace. So each place in the user's code caches the last
call of its operator: the recorded call, and the type of its result. If the operands are like those,
the next call is recorded from the cache.

A hit requires equal conditions: the types of traced operands, compared by identity, since there is
one object for each; tracers of one trace that aren't stale; the values of plain numbers; and that
nobody watches for floating-point errors. All else uses the general code (`frontend.numpy.ufuncs`).

While a program is observed, Python takes several times as long for each instruction. So observation
is paused first.
"""

from __future__ import annotations

import operator as pythons
import sys
import warnings
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, NoneType
from typing import Any

import numpy as np
from numpy._core import umath

from tapegrad.core.arrays import is_half
from tapegrad.core.handlers import let_through
from tapegrad.core.loud import aloud
from tapegrad.core.progress import step
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval, Literal, Source
from tapegrad.observe.answers.answers import Swapped
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import following, unobserved
from tapegrad.observe.program.source import at_line, is_told, is_users, source_of
from tapegrad.primitives.base import Elementwise

CACHED_PLACES = 10_000  # places in an operator's cache
_EXACT = 2**53  # integers up to here are exact floats
_getframe, _new = sys._getframe, object.__new__
_gettrace, _settrace = sys.gettrace, sys.settrace
_watching = vars(warnings)  # Python's state of warnings


def _state_of_errors() -> Callable[[], Any]:
    """A function that returns an object which identifies NumPy's handling of floating-point errors.
    It is the same object until that changes; without support by NumPy, a new one each time."""
    variable = getattr(umath, "_extobj_contextvar", None)
    return object if variable is None else variable.get


errors_now = _state_of_errors()


class CacheEntry:
    """A cache entry: the last call of an operator at a place in the user's code.

    `left` is the type of its first operand. The second is a tracer of the class `kind` and the type
    `right`, or a number of the class `kind`. If the number is the object `number` itself, `literal`
    is its operand.
    """

    __slots__ = (
        *("aval", "code", "cls", "deep", "dtype", "kind", "left", "literal", "number"),
        *("compute", "primitive", "reflected", "result", "right", "run", "src"),
    )
    code: CodeType  # kept alive, so that no other code has its id
    src: Source
    left: Aval
    kind: type
    right: Aval | None
    number: Any
    literal: Any
    dtype: Any  # of plain numbers as operands
    primitive: Any
    reflected: bool  # whether the tracer is the second operand
    run: Callable[..., Any]
    compute: Callable[..., Any]  # like `run`, with the bits of the played tape
    aval: Aval
    result: type
    cls: type
    deep: bool  # whether there are several axes, whose memory order matters


Places = dict[tuple[int, int, int], Any]
_VAIN = CacheEntry()  # the entry of a place where nothing can be cached


def seen(x: Any, depth: int = 2) -> Any:
    """A boolean for the user's code, `depth` frames above. In a run that isn't observed,
    comparisons by identity can't be seen, so it is a plain boolean, which is guarded."""
    if not following.unwatched or getattr(x, "_root", ...) is not None or x._aval.shape:
        return x
    if x._aval.dtype != np.bool_ or x._trace.repeats or x._trace.idle:
        return x
    frame: Any = _getframe(depth)
    if frame.f_code is Swapped.__call__.__code__:
        frame = frame.f_back
    if type(x._value) is np.ndarray or not is_users(frame.f_code):
        return x
    return x.__class__(bool(x))


def _asks(ufunc: np.ufunc) -> bool:
    """Whether a ufunc returns booleans for floats."""
    return "dd->?" in ufunc.types or "d->?" in ufunc.types


def binary(ufunc: np.ufunc, name: str, numpys: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The operator `name`, which applies `ufunc`, with a cache; `numpys` is the general case."""
    reflected = name.startswith("__r") and name != "__rshift__"
    run = getattr(pythons, f"__{name.strip('_')[reflected:]}__")  # for scalars, faster than `ufunc`
    places: Places = {}
    asks = _asks(ufunc)

    def operator(self: Any, other: Any) -> Any:
        if asks and following.unwatched:
            return seen(numpys(self, other))
        follower = _gettrace()  # inlined `unobserved`, which saves a call
        if follower is not None:
            here = following.observer
            if here is None or follower is not here.follower or here.enters:
                follower = None
            else:
                _settrace(None)
        try:
            frame = _getframe(1)
            place = id(frame.f_code), frame.f_lasti, id(self._aval)
            known = places.get(place)
            if known is None:
                inputs = (other, self) if reflected else (self, other)
                found = dispatch.again(ufunc, inputs)
                if found is not None:
                    _learn(places, place, frame, ufunc, run, found, self, other, reflected)
                    return found
            elif known is not _VAIN and type(other) is known.kind:
                found = _applied(known, self, other, reflected)
                if found is not None:
                    return found
        finally:
            if follower is not None:
                _settrace(follower)
        found = numpys(self, other)
        if found is not NotImplemented and known is not _VAIN:
            _learn(places, place, frame, ufunc, run, found, self, other, reflected)
        return found

    operator.__name__ = operator.__qualname__ = name
    return operator


def universal(name: str, numpys: Callable[..., Any]) -> Callable[..., Any]:
    """`__array_ufunc__` with a cache; `numpys` is the general case."""
    places: Places = {}

    def apply(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if following.unwatched and _asks(ufunc):
            return seen(numpys(ufunc, method, inputs, kwargs))
        follower = _gettrace()  # inlined `unobserved`, which saves a call
        if follower is not None:
            here = following.observer
            if here is None or follower is not here.follower or here.enters:
                follower = None
            else:
                _settrace(None)
        try:
            if kwargs or len(inputs) > 2 or method != "__call__":
                return numpys(ufunc, method, inputs, kwargs)
            frame = _getframe(1)
            at = -1 - frame.f_lasti if self._weak else frame.f_lasti  # Python numbers apart
            place = id(frame.f_code), at, id(self._aval)
            known = places.get(place)
            if known is _VAIN:
                return numpys(ufunc, method, inputs, kwargs)
            if len(inputs) == 1:
                if known is not None and known.run is ufunc and known.kind is NoneType:
                    found = _applied_alone(known, self)
                    if found is not None:
                        return found
                found = numpys(ufunc, method, inputs, kwargs)
                _learn(places, place, frame, ufunc, ufunc, found, self)
                return found
            first, second = inputs
            reflected = first is not self
            other = first if reflected else second
            if (
                known is not None
                and known.run is ufunc
                and known.kind is type(other)
                and known.reflected is reflected
            ):
                found = _applied(known, self, other, reflected)
                if found is not None:
                    return found
            found = numpys(ufunc, method, inputs, kwargs)
            if self is first or self is second:
                _learn(places, place, frame, ufunc, ufunc, found, self, other, reflected)
            return found
        finally:
            if follower is not None:
                _settrace(follower)

    apply.__name__ = apply.__qualname__ = name
    return apply


def alone(name: str, numpys: Callable[..., Any], run: Any = None) -> Callable[..., Any]:
    """The operator `name` of one operand, or of one and a number, with a cache for calls of one
    elementwise primitive. `numpys` is the general case; `run` computes the value, if given."""
    places: Places = {}

    @unobserved
    def again(frame: FrameType, self: Any, number: Any) -> Any:
        known = places.get((id(frame.f_code), frame.f_lasti, id(self._aval)))
        if known is None or known.number is not number:
            return None
        return _applied_alone(known, self)

    @unobserved
    def learn(frame: FrameType, self: Any, number: Any, found: Any, count: int) -> None:
        code, calls = frame.f_code, self._trace.builder.calls
        if not is_told(code.co_filename) or len(calls) != count + 1 or not hasattr(found, "_root"):
            return
        last = calls[-1]
        if (
            isinstance(last.primitive, Elementwise)
            and last.outs == (found._operand,)
            and found._root is None
            and last.operands[0] == self._operand
            and (len(last.operands) == 1 or type(last.operands[-1]) is Literal)
            and type(number) in (int, float, NoneType)
        ):
            place = id(code), frame.f_lasti, id(self._aval)
            kept = _begun(frame, self, found)
            kept.primitive, kept.aval = last.primitive, found._aval
            kept.number, kept.literal = number, last.operands[-1]
            kept.run = run or last.primitive.ufunc
            kept.compute = _to_the_bit(last.primitive, kept.run, last.operands)
            kept.deep = len(kept.aval.shape) > 1
            _keep(places, place, kept)

    def operator(self: Any, number: Any = None) -> Any:
        frame = _getframe(1)
        found = again(frame, self, number)
        if found is None:
            count = len(self._trace.builder.calls)
            found = numpys(self) if number is None else numpys(self, number)
            learn(frame, self, number, found, count)
        return found

    operator.__name__ = operator.__qualname__ = name
    return operator


def _applied(known: CacheEntry, self: Any, other: Any, reflected: bool) -> Any:
    """The result by a cache entry; None if the operands differ from those of the entry."""
    trace, root = self._trace, self._root
    operand, value = self._operand, self._value
    if value is None or (self._doubt if root is None else not _is_fresh(self, root)):
        return None
    if known.right is not None:
        root = other._root
        if other._aval is not known.right or other._trace is not trace:
            return None
        if other._doubt if root is None else not _is_fresh(other, root):
            return None
        second, number = other._operand, other._value
    elif other is known.number:
        second = known.literal
        number = second.value
    elif known.kind is not int or -_EXACT < other < _EXACT:
        number = known.dtype(other)
        second = Literal(number)
    else:
        return None
    if number is None or not is_plain(trace) or (known.deep and _is_out_of_order(self, other)):
        return None
    try:
        found = aloud(known.compute, (number, value) if reflected else (value, number))
    except Exception as error:  # the general case raises it again, and records it
        let_through(error)
        return None
    if type(found) is not known.result:
        return None
    operands = (second, operand) if reflected else (operand, second)
    return made(trace, known.primitive, operands, known.aval, known.src, known.cls, found)


def _applied_alone(known: CacheEntry, self: Any) -> Any:
    """The result for one operand by a cache entry; None if the operand differs."""
    trace, root, value = self._trace, self._root, self._value
    if (
        value is None
        or (self._doubt if root is None else not _is_fresh(self, root))
        or not is_plain(trace)
        or (known.deep and _is_out_of_order(self))
    ):
        return None
    operands: tuple[Any, ...]
    try:
        if type(known.literal) is Literal:
            found = aloud(known.compute, (value, known.literal.value))
            operands = self._operand, known.literal
        else:
            found, operands = aloud(known.compute, (value,)), (self._operand,)
    except Exception as error:
        let_through(error)
        return None
    if type(found) is not known.result:
        return None
    return made(trace, known.primitive, operands, known.aval, known.src, known.cls, found)


def is_plain(trace: Any) -> bool:
    """Whether calls are recorded in this trace at their own source lines, and nobody watches for
    floating-point errors."""
    filters, were, show = trace.warned
    return (
        trace.alive
        and trace.inside is None
        and trace.src is None
        and errors_now() is trace.calm
        and _watching["filters"] is filters
        and filters == were
        and _watching["_showwarnmsg_impl"] is show
    )


def made(
    trace: Any,
    primitive: Any,
    operands: tuple[Any, ...],
    aval: Aval,
    src: Source | None,
    cls: type,
    value: Any,
) -> Any:
    """Record a call with one result of type `aval`, and make its tracer, an array with memory of
    its own."""
    if is_half(aval.dtype):
        raise trace.refused(
            UnsupportedError(
                f"{primitive.name} would make numbers of {aval.dtype}{at_line()}, and a traced "
                f"function computes with float32 in their place. Leave that dtype out, or use "
                f"x.astype({aval.dtype}) of the result"
            )
        )
    step()
    (out,) = trace.builder.define(primitive, operands, (aval,), src, trace.reason)
    tracer: Any = _new(cls)
    tracer._trace, tracer._operand, tracer._value = trace, out, value
    tracer._aval, tracer._root, tracer._chain, tracer._version = aval, None, (), 0
    tracer._ordered, tracer._may_alias, tracer._doubt = True, (), ""
    return tracer


def _is_fresh(view: Any, root: Any) -> bool:
    return view._version == root._version and not root._doubt


def _is_out_of_order(*xs: Any) -> bool:
    """Whether an operand with several axes may have another memory order than without a trace."""
    return any(
        getattr(x, "ndim", 0) > 1 and not x._owner._ordered for x in xs if hasattr(x, "_owner")
    )


@unobserved
def _learn(
    places: Places,
    place: tuple[int, int, int],
    frame: FrameType,
    ufunc: np.ufunc,
    run: Callable[..., Any],
    found: Any,
    left: Any,
    other: Any = None,
    reflected: bool = False,
) -> None:
    """Cache an operator's call, if it recorded one call of a primitive. `run` computes the value as
    `ufunc` does."""
    code = frame.f_code
    inputs = (left,) if other is None else (other, left) if reflected else (left, other)
    keeps = is_told(code.co_filename) and not hasattr(type(found), "_answers_first")
    known = dispatch.known(ufunc, inputs) if keeps else None
    if known is None:
        if len(places) < CACHED_PLACES:
            places[place] = _VAIN
        return
    again = _begun(frame, left, found)
    again.primitive, dtype, again.aval = known
    again.kind, again.right = type(other), getattr(other, "_aval", None)
    again.reflected = reflected
    again.dtype = dtype.type
    is_number = other is not None and again.right is None
    again.number = other if is_number else None
    again.literal = Literal(again.dtype(other)) if is_number else None
    again.run = run if dtype.kind == "f" else ufunc  # integer scalars would warn where arrays wrap
    again.compute = _to_the_bit(again.primitive, again.run, found._trace.builder.calls[-1].operands)
    again.deep = len(again.aval.shape) > 1
    _keep(places, place, again)


def _to_the_bit(primitive: Any, run: Any, operands: Sequence[Any]) -> Any:
    """The function that computes the value with the bits of the played tape. NumPy's powers of
    scalars and of arrays differ in the last bit, which could change a branch."""
    own = primitive.for_types(*[x.aval for x in operands])
    return run if own is primitive.ufunc else own


def _begun(frame: FrameType, left: Any, found: Any) -> CacheEntry:
    """A cache entry with the place and the types of an operator's call."""
    again = CacheEntry()
    again.code, again.src = frame.f_code, source_of(frame.f_code, frame.f_lineno)
    again.left, again.result, again.cls = left._aval, type(found._value), type(found)
    return again


def _keep(places: Places, place: tuple[int, int, int], again: CacheEntry) -> None:
    """Store a complete cache entry: another thread may read it, and an interrupt may occur."""
    if len(places) >= CACHED_PLACES:
        places.clear()
    places[place] = again
