"""Iterators over the elements of arrays: np.ndenumerate, np.broadcast and np.nditer.

NumPy's own iterator determines the elements visited and their order: it runs over the flat
positions of elements, in arrays with the memory layout of the traced ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.answers import declare
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.frontend.operands.operands import as_tracer, common_dtype, has_tracer
from tapegrad.tracing.frontend.shapes.making import uniform
from tapegrad.tracing.recording.layout import laid_out_like, note_may_alias
from tapegrad.tracing.recording.trace import innermost
from tapegrad.tracing.tracers.tracer import Tracer


def _array(x: Any) -> Any:
    return dispatch.as_operand(x) if has_tracer(x) and not isinstance(x, Tracer) else x


# ---- np.ndenumerate


class Enumerated:
    """np.ndenumerate(x)."""

    def __init__(self, x: Any) -> None:
        self._x = x
        self._indices = np.ndindex(x.shape)

    def __iter__(self) -> Enumerated:
        return self

    @unobserved
    def __next__(self) -> Any:
        index = next(self._indices)
        return index, self._x[index]


@unobserved
def _ndenumerate(arr: Any) -> Any:
    return Enumerated(_array(arr)) if has_tracer(arr) else np.ndenumerate(arr)


# ---- np.broadcast


class Broadcast:
    """np.broadcast(*xs)."""

    def __init__(self, xs: Sequence[Any]) -> None:
        self._plain = np.broadcast(*[np.broadcast_to(0, np.shape(x)) for x in xs])
        for name in ("shape", "size", "nd", "ndim", "numiter"):
            setattr(self, name, getattr(self._plain, name))
        self._xs = np.broadcast_arrays(*xs)
        self.index = 0

    def __iter__(self) -> Broadcast:
        return self

    @unobserved
    def __next__(self) -> Any:
        if self.index >= self._plain.size:
            raise StopIteration
        at = np.unravel_index(self.index, self._plain.shape)
        self.index += 1
        return tuple(x[tuple(map(int, at))] for x in self._xs)

    def reset(self) -> None:
        self.index = 0

    @property
    def iters(self) -> Any:
        return tuple(x.flat for x in self._xs)


@unobserved
def _broadcast(*args: Any) -> Any:
    if not any(map(has_tracer, args)):
        return np.broadcast(*args)
    xs = [_array(x) for x in args]
    first = next(x for x in xs if isinstance(x, Tracer))
    return Broadcast([as_tracer(x, first) for x in xs])


# ---- np.nditer

_KNOWN = {
    *("multi_index", "c_index", "f_index", "external_loop", "refs_ok", "zerosize_ok"),
    *("copy_if_overlap", "reduce_ok", "buffered", "delay_bufalloc", "grow_inner", "growinner"),
}
_OF_BUFFERS = {"buffered", "delay_bufalloc", "grow_inner", "growinner", "copy_if_overlap"}
_WRITTEN = {"readwrite", "writeonly"}
_ROLES = {*_WRITTEN, "readonly", "allocate", "nbo", "aligned", "contig", "no_broadcast"}


def _refuse(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"np.nditer with {what} isn't supported on traced arrays{at_line()}. Use loops over "
        "np.ndindex(x.shape), or functions of whole arrays"
    )


def _numbers(x: Any) -> Any:
    """The flat positions of an array's elements, in an array with its memory layout."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        if value is None or (x.ndim > 1 and not x._owner._ordered):
            raise _refuse("an array of which it isn't known how it lies in memory")
    else:
        value = np.asarray(x)
    value = np.asarray(value)
    if any(step % value.itemsize for step in value.strides):
        raise _refuse("an array whose elements aren't a whole number of elements apart")
    strides = tuple(8 * (step // value.itemsize) for step in value.strides)
    return _laid_out(np.arange(value.size).reshape(value.shape), strides, value.size)


def _laid_out(numbers: Any, strides: Sequence[int], size: int) -> Any:
    """An array with these strides. Where elements share memory, any of the positions will do."""
    if not size:
        return numbers
    ends = [(n - 1) * step for n, step in zip(numbers.shape, strides, strict=True)]
    low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
    memory = np.empty((high - low) // 8 + 1, np.int64)
    out: Any = np.ndarray(numbers.shape, np.int64, memory, -low, strides)
    out[...] = numbers
    return out


class Walk:
    """np.nditer(xs, ...). The elements are views of the arrays, as NumPy's are."""

    def __init__(
        self,
        xs: Sequence[Any],
        flags: Any = None,
        op_flags: Any = None,
        op_dtypes: Any = None,
        order: Any = "K",
        casting: Any = "safe",
        **kwargs: Any,
    ) -> None:
        for name, x in kwargs.items():
            if x is not None and (name, x) != ("buffersize", 0):
                raise _refuse(f"{name}=")
        flags = set(flags or ())
        roles = _roles(op_flags, xs)
        writes = any(_WRITTEN & {*role} for role in roles)
        self._external = "external_loop" in flags
        for flag in sorted(flags):
            buffers = flag in _OF_BUFFERS and (writes or self._external)
            if flag not in _KNOWN or buffers or (self._external and writes):
                raise _refuse(f"the flag {flag!r}" + " and arrays that are written to" * writes)
        first = next(x for x in xs if isinstance(x, Tracer))
        dtypes = _dtypes(op_dtypes, xs)
        numbers: Any = [None if x is None else _numbers(x) for x in xs]
        self._it: Any = np.nditer(
            numbers,
            [*(flags - _OF_BUFFERS)],
            roles,  # type: ignore[arg-type]
            [np.int64 if x is None else None for x in xs],
            order,
        )
        self.operands = tuple(
            as_tracer(x, first) if x is not None else _new(first, plain, dtype)
            for x, plain, dtype in zip(xs, self._it.operands, dtypes, strict=True)
        )
        self.dtypes = tuple(dtypes)
        self._roles, self._begun = roles, False

    def __iter__(self) -> Walk:
        return self

    @unobserved
    def __next__(self) -> Any:
        if self._begun:
            self._it.iternext()
        self._begun = True
        if self._it.finished:
            raise StopIteration
        return self.value

    @property
    def value(self) -> Any:
        found = tuple([self[k] for k in range(len(self.operands))])
        return found[0] if len(found) == 1 else found

    @unobserved
    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return tuple([self[n] for n in range(*k.indices(len(self)))])
        x, here = self.operands[k], np.array(self._it[k])
        if self._external:
            out = x.reshape(-1)[here]
            note_may_alias(out._owner, x._owner)
            return np.broadcast_to(out, out.shape)
        view = x[(*map(int, np.unravel_index(int(here), x.shape)), Ellipsis)]
        return view if _WRITTEN & {*self._roles[k]} else np.broadcast_to(view, ())

    def __setitem__(self, k: Any, value: Any) -> None:
        self[k][...] = value

    def __len__(self) -> int:
        return len(self.operands)

    def iternext(self) -> bool:
        return bool(self._it.iternext())

    def reset(self) -> None:
        self._it.reset()
        self._begun = False

    def close(self) -> None:
        self._it.close()

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return getattr(self._it, name)
        if name.startswith("_") or not hasattr(np.nditer, name):
            raise AttributeError(f"'numpy.nditer' object has no attribute {name!r}")
        raise _refuse(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PASSED_ON:
            setattr(self._it, name, value)
        else:
            object.__setattr__(self, name, value)


_PASSED_ON = {
    *("finished", "has_index", "has_multi_index", "has_delayed_bufalloc", "index", "iterindex"),
    *("iterrange", "itersize", "multi_index", "ndim", "nop", "shape", "iterationneedsapi"),
}


def _roles(op_flags: Any, xs: Sequence[Any]) -> list[list[str]]:
    """The flags of each operand."""
    given = [*(op_flags or ())]
    if not given:
        return [["writeonly", "allocate"] if x is None else ["readonly"] for x in xs]
    roles = [given] * len(xs) if isinstance(given[0], str) else [[*role] for role in given]
    for role in roles:
        for flag in role:
            if flag not in _ROLES:
                raise _refuse(f"the flag {flag!r} of an operand")
    return roles


def _dtypes(op_dtypes: Any, xs: Sequence[Any]) -> list[np.dtype]:
    """The dtypes of the operands; a new array has the requested one, or the common one."""
    own = [None if x is None else np.dtype(x.dtype) for x in xs]
    listed = isinstance(op_dtypes, (list, tuple))
    asked = [*op_dtypes] if listed else [op_dtypes] * len(xs)
    if len(asked) != len(xs) or any(
        mine is not None and given is not None and mine != np.dtype(given)
        for mine, given in zip(own, asked, strict=False)
    ):
        raise _refuse("op_dtypes= other than those of the arrays")
    common = common_dtype(*[x for x in xs if x is not None])
    return [
        mine or (common if given is None else np.dtype(given))
        for mine, given in zip(own, asked, strict=True)
    ]


def _new(like: Tracer, plain: Any, dtype: np.dtype) -> Any:
    """A new array allocated by the iterator, with NumPy's memory layout."""
    plain[...] = np.arange(plain.size).reshape(plain.shape)
    out = uniform(innermost([like]), plain.shape, 0, dtype)
    out._value = laid_out_like(out._value, np.empty_like(plain, dtype))
    return out


_NAMES = ("op", "flags", "op_flags", "op_dtypes", "order", "casting", "op_axes", "itershape")


@unobserved
def _nditer(*args: Any, **kwargs: Any) -> Any:
    given = {**dict(zip((*_NAMES, "buffersize"), args, strict=False)), **kwargs}
    op = given.pop("op", None)
    xs = [*op] if isinstance(op, (list, tuple)) else [op]
    if not any(map(has_tracer, xs)):
        return np.nditer(*args, **kwargs)
    arrays = [x if x is None else np.asarray(x) if not has_tracer(x) else _array(x) for x in xs]
    return Walk(arrays, **given)


def declare_all() -> None:
    """Register the replacements."""
    declare(np, "ndenumerate", _ndenumerate)
    declare(np, "broadcast", _broadcast)
    declare(np, "nditer", _nditer)
