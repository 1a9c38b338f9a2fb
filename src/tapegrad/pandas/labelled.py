"""Proxies of pandas' Series and DataFrames while a function is traced.

They have the labels, and traced values instead of the numbers. The most common operations are
traced: arithmetic, NumPy's ufuncs, selection of columns and entries, sums, means and other
reductions, products, and `.to_numpy()`. Labels are pandas' own objects, and pandas computes with
them. All other operations are refused, by name.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.extending import at_line, unobserved
from tapegrad.extending.arrays import Tracer, dispatch
from tapegrad.extending.runs import refusing, tell
from tapegrad.extending.tables import (
    Column,
    Labels,
    built,
    copies_on_write,
    is_frame,
    is_of_numbers,
    is_series,
    pandas,
    taken_apart,
    turned,
)
from tapegrad.pandas.labels import At, of_table, places


def refused(what: str, fix: str = "") -> UnsupportedError:
    """The error for an operation that isn't traced."""
    fix = fix or "Take the numbers out first, by x.to_numpy()"
    return refusing(UnsupportedError(f"{what} isn't followed{at_line()}. {fix}"))


def made(labels: Labels, branches: Sequence[Any]) -> Labelled:
    """A proxy of a Series or DataFrame."""
    kind = dispatch.frame
    if labels.columns is None:
        kind = dispatch.objects if hasattr(branches[0], "entries") else TracedSeries
    found: Labelled = kind(labels, list(branches))
    return found


def stood_in(x: Any) -> Any:
    """A proxy of a Series or DataFrame of pandas'; anything else unchanged."""
    if not (is_series(x) or is_frame(x)):
        return x
    branches, labels = taken_apart(x)
    return made(labels, turned(labels, branches))


def same_index(x: Any, y: Any) -> bool:
    """Whether pandas treats two indices as equal, so that either may be kept."""
    return x is y or (x.dtype == y.dtype and list(x.names) == list(y.names) and x.equals(y))


def check_index(x: Any, y: Any, what: str) -> None:
    """Raise an error unless the labels are the same."""
    if not same_index(x, y):
        raise refused(
            f"{what} of Series or DataFrames with different labels",
            "Bring them into one order first, or take the numbers out, by x.to_numpy()",
        )


def _binary(op: Callable[[Any, Any], Any], turned: bool = False) -> Any:
    @unobserved
    def method(self: Any, other: Any) -> Any:
        if not _is_operand(other):
            if op in (operator.eq, operator.ne):  # or Python would answer by identity
                raise refused(f"a {self._kind} that is compared to a {type(other).__name__}")
            return NotImplemented
        return dispatch.labelled(op, (other, self) if turned else (self, other))

    return method


def _in_place(op: Callable[[Any, Any], Any]) -> Any:
    """`x += y`, which all references to the table see. It keeps its labels and its name. Before
    pandas 3, a Series also keeps its memory, which arrays and columns may share."""

    @unobserved
    def method(self: Any, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        found = dispatch.labelled(op, (self, other))
        if found._kind != self._kind:
            raise refused(f"a Series that is changed in place by a {found._kind}")
        own = self._labels
        if own.columns is None and not copies_on_write():
            (x,), (y,) = self._branches, found._branches
            if isinstance(x, Tracer) and x.dtype == y.dtype:
                x[...] = y
                return self
        self._labels = Labels(own.index, own.columns, own.name, found._labels.whole)
        self._branches = found._branches
        return self

    return method


def _method(name: str) -> Any:
    """The operator as a method, with pandas' further parameters."""

    @unobserved
    def method(
        self: Any, other: Any, axis: Any = None, level: Any = None, fill_value: Any = None
    ) -> Any:
        if level is not None:
            raise refused(f"{self._kind}.{name} with a level")
        x, other = self, stood_in(other)
        if fill_value is not None and np.ndim(other) == 0:
            x = dispatch.table_method(x, "fillna")(fill_value)
        elif fill_value is not None:
            x, other = dispatch.table_filled(x, other, fill_value)
        by_rows = axis in (0, "index", "rows") and np.ndim(other) == 1
        if by_rows and x._labels.columns is not None:
            return getattr(x.T, f"__{name}__")(other).T
        return getattr(x, f"__{name}__")(other)

    return method


def _unary(op: Callable[[Any], Any]) -> Any:
    @unobserved
    def method(self: Any) -> Any:
        return dispatch.labelled(op, (self,))

    return method


def _is_operand(x: Any) -> bool:
    kinds = (Labelled, Tracer, np.ndarray, np.generic, int, float, list, tuple)
    return isinstance(x, kinds) or is_series(x) or is_frame(x)


class Labelled:
    """The operators and protocols of proxies of Series and DataFrames."""

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 2000.0
    _answers_first = True  # traced arrays defer NumPy's functions to this class
    _labels_first = True
    _built: Any  # builds pandas' own object from labels and arrays
    __pandas_priority__ = 10000  # pandas' own operators defer to this class

    def __init__(self, labels: Labels, branches: list[Any]) -> None:
        self._labels, self._branches = labels, branches

    __add__, __radd__ = _binary(operator.add), _binary(operator.add, True)
    __sub__, __rsub__ = _binary(operator.sub), _binary(operator.sub, True)
    __mul__, __rmul__ = _binary(operator.mul), _binary(operator.mul, True)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _binary(operator.truediv, True)
    __pow__, __rpow__ = _binary(operator.pow), _binary(operator.pow, True)
    __and__, __rand__ = _binary(operator.and_), _binary(operator.and_, True)
    __or__, __ror__ = _binary(operator.or_), _binary(operator.or_, True)
    __xor__, __rxor__ = _binary(operator.xor), _binary(operator.xor, True)
    __mod__, __rmod__ = _binary(operator.mod), _binary(operator.mod, True)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _binary(operator.floordiv, True)
    __divmod__, __rdivmod__ = _binary(divmod), _binary(divmod, True)
    __iadd__, __isub__ = _in_place(operator.add), _in_place(operator.sub)
    __imul__, __itruediv__ = _in_place(operator.mul), _in_place(operator.truediv)
    __ipow__, __imod__ = _in_place(operator.pow), _in_place(operator.mod)
    __ifloordiv__, __iand__ = _in_place(operator.floordiv), _in_place(operator.and_)
    __ior__, __ixor__ = _in_place(operator.or_), _in_place(operator.xor)
    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)
    __eq__, __ne__ = _binary(operator.eq), _binary(operator.ne)
    __neg__, __abs__ = _unary(operator.neg), _unary(operator.abs)
    __pos__, __invert__ = _unary(operator.pos), _unary(operator.invert)
    add, radd, sub, rsub = map(_method, ("add", "radd", "sub", "rsub"))
    mul, rmul, pow, rpow = map(_method, ("mul", "rmul", "pow", "rpow"))
    truediv, rtruediv, div, rdiv = map(_method, ("truediv", "rtruediv") * 2)
    lt, le, gt, ge, eq, ne = map(_method, ("lt", "le", "gt", "ge", "eq", "ne"))
    subtract, multiply, divide, abs = sub, mul, div, __abs__

    @unobserved
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            how = f".{method}" if method != "__call__" else f" with {', '.join(kwargs)}="
            raise refused(f"np.{ufunc.__name__}{how} of a {self._kind}")
        return dispatch.labelled(ufunc, inputs)

    @unobserved
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        reduced = _REDUCTIONS.get(func)
        if reduced is not None and args and args[0] is self:
            return self._numpys(reduced, args[1:], kwargs)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            plain = func(*map(plain_of, args), **plain_of(kwargs))  # raises NumPy's own errors
        if is_series(plain) or is_frame(plain):  # NumPy calls pandas' own method
            if not (args and args[0] is self and hasattr(self, func.__name__)):
                raise refused(f"np.{func.__name__} of a {self._kind}")
            return getattr(self, func.__name__)(*args[1:], **kwargs)
        found = func(*map(_as_array, args), **{k: _as_array(v) for k, v in kwargs.items()})
        if not _agree(found, plain):
            raise refused(f"np.{func.__name__} of a {self._kind}")
        return found

    @unobserved
    def __matmul__(self, other: Any) -> Any:
        return dispatch.labelled(operator.matmul, (self, other))

    @unobserved
    def __rmatmul__(self, other: Any) -> Any:
        return dispatch.labelled(operator.matmul, (other, self))

    dot = __matmul__

    loc = property(lambda self: At(self, "loc"))
    iloc = property(lambda self: At(self, "iloc"))
    at = property(lambda self: At(self, "at"))
    iat = property(lambda self: At(self, "iat"))

    def _numpys(self, name: str, args: Any, kwargs: Any) -> Any:
        """A sum or another reduction, where NumPy calls the object's own method."""
        raise NotImplementedError

    @property
    def _kind(self) -> str:
        return "Series" if self._labels.columns is None else "DataFrame"

    @property
    def index(self) -> Any:
        return self._labels.index

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.to_numpy(), *args, **kwargs)  # a traced array raises the error

    def to_numpy(self, dtype: Any = None, copy: bool = False) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._labels.index)

    def __bool__(self) -> bool:
        raise ValueError(
            f"The truth value of a {self._kind} is ambiguous. Use a.empty, a.bool(), a.item(), "
            "a.any() or a.all()."
        )

    def _item(self, key: Any) -> Any:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        return self._item(of_table(key, self))

    def __setitem__(self, key: Any, value: Any) -> None:
        dispatch.table_write(self, "", of_table(key, self), value)

    @unobserved
    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_labels", "_branches"):
            object.__setattr__(self, name, value)
        elif self._labels.columns is not None and name in self._labels.columns:
            self[name] = value
        else:
            dispatch.table_write(self, "setattr", name, value)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __getattr__(self, name: str) -> Any:
        if name in ("_labels", "_branches"):  # the object isn't initialised yet
            raise AttributeError(name)
        real = getattr(pandas(), self._kind)
        if name.startswith("__") or not hasattr(real, name):
            raise AttributeError(f"{self._kind!r} object has no attribute {name!r}")
        found = dispatch.table_method(self, name)
        if found is not None:
            return found
        if name.startswith("_"):
            raise refused(f"what pandas does with a traced {self._kind}")
        raise refused(f"{self._kind}.{name}")

    def __repr__(self) -> str:
        """pandas' text, of the current values."""
        for x in self._branches:
            if isinstance(x, Tracer):
                tell(x)
        return repr(plain_of(self))


def plain_of(x: Any) -> Any:
    """The current values of proxies and traced numbers, also in lists and dicts."""
    if isinstance(x, Labelled):
        return built(x._labels, turned(x._labels, [*map(plain_of, x._branches)]))
    if isinstance(x, dict):
        return {key: plain_of(value) for key, value in x.items()}
    if type(x) in (list, tuple):
        return type(x)(map(plain_of, x))
    return x._concrete if isinstance(x, Tracer) else x


def _as_array(x: Any) -> Any:
    """An argument of a NumPy function, as the array that NumPy makes of it."""
    x = stood_in(x)
    if isinstance(x, Labelled):
        return x.to_numpy()
    if isinstance(x, (list, tuple)):
        return type(x)(map(_as_array, x))
    return x


def _agree(x: Any, y: Any) -> bool:
    """Whether results are of one kind, and equal up to rounding."""
    if isinstance(x, (list, tuple)):
        alike = type(x) is type(y) and len(x) == len(y)
        return alike and all(map(_agree, x, y))
    if np.shape(x) != np.shape(y):
        return False
    x, y = np.asarray(plain_of(x)), np.asarray(y)
    if x.dtype.kind not in "fiubc":
        return bool(np.array_equal(x, y))
    return bool(x.dtype == y.dtype and np.allclose(x, y, rtol=1e-4, atol=1e-8, equal_nan=True))


# Operators that pandas uses for NumPy's functions
OPERATORS = {
    getattr(np, name): getattr(operator, op)
    for name, op in (
        *(("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "truediv")),
        *(("power", "pow"), ("negative", "neg"), ("positive", "pos"), ("absolute", "abs")),
        *(("less", "lt"), ("less_equal", "le"), ("greater", "gt"), ("greater_equal", "ge")),
        *(("equal", "eq"), ("not_equal", "ne"), ("matmul", "matmul")),
        *(("bitwise_and", "and_"), ("bitwise_or", "or_"), ("invert", "invert")),
    )
}
# Functions for which NumPy calls the object's own method, with other arguments
_NAMES = ("sum", "mean", "prod", "max", "min", "std", "var")
_REDUCTIONS = {getattr(np, n): n for n in _NAMES} | {np.amax: "max", np.amin: "min"}
_NANS: dict[str, Callable[..., Any]] = {name: getattr(np, f"nan{name}") for name in _NAMES}


def reduced(name: str, x: Any, skipna: bool, axis: int | None = None, **given: Any) -> Any:
    """A sum or another reduction along an axis. pandas leaves out NaN."""
    if x.size == 0 and name in ("max", "min"):
        raise refused(f"{name} of an empty Series or DataFrame")
    if x.dtype.kind == "f" and skipna:
        return _NANS[name](x, axis=axis, **given)
    return getattr(np, name)(x, axis=axis, **given)


def _reduction(name: str) -> Any:
    @unobserved
    def method(self: Any, *args: Any, skipna: Any = True, **kwargs: Any) -> Any:
        allowed = ("axis", "ddof") if name in ("std", "var") else ("axis",)
        if kwargs.pop("numeric_only", False):
            return getattr(of_numbers(self), name)(*args, skipna=skipna, **kwargs)
        if len(args) > 1 or not set(kwargs) <= set(allowed) or not isinstance(skipna, bool):
            raise refused(f"{self._kind}.{name} with these arguments")
        if args:
            kwargs["axis"] = args[0]
        ddof = {"ddof": kwargs.get("ddof", 1)} if name in ("std", "var") else {}
        return self._reduced(name, kwargs.get("axis", 0), skipna, ddof)

    return method


def of_numbers(x: Any) -> Any:
    """A table with only the numeric columns."""
    return x if x._labels.columns is None else x.select_dtypes(["number", "bool"])


class Reductions:
    """A mixin with sums and other reductions."""

    sum, mean, prod = _reduction("sum"), _reduction("mean"), _reduction("prod")
    max, min, product = _reduction("max"), _reduction("min"), _reduction("prod")
    std, var = _reduction("std"), _reduction("var")


class TracedSeries(Reductions, Labelled):
    """A proxy of a Series."""

    __class__ = property(lambda self: pandas().Series)

    @property
    def _numbers(self) -> Any:
        (x,) = self._branches
        if isinstance(x, Column):
            raise refused(f"a Series of dtype {x.series.dtype} among traced values")
        return x

    name = property(lambda self: self._labels.name)
    values = property(lambda self: self._numbers)
    dtype = property(lambda self: self._numbers.dtype)
    shape = property(lambda self: (len(self),))
    ndim = property(lambda self: 1)
    size = property(lambda self: len(self))
    empty = property(lambda self: len(self) == 0)
    T = property(lambda self: self)

    def keys(self) -> Any:
        return self._labels.index

    def __getattr__(self, name: str) -> Any:
        real = hasattr(pandas().Series, name)
        if not name.startswith("_") and not real and name in self._labels.index:
            return self[name]
        return super().__getattr__(name)

    def _with(self, values: Any, index: Any = None, name: Any = ...) -> Any:
        index = self._labels.index if index is None else index
        return made(Labels(index, name=self._labels.name if name is ... else name), [values])

    @unobserved
    def to_numpy(self, dtype: Any = None, copy: bool = False) -> Any:
        x = self._numbers if dtype is None else self._numbers.astype(dtype)
        return x.copy() if copy else x

    @unobserved
    def astype(self, dtype: Any, copy: Any = None) -> Any:
        x = self._numbers
        is_whole = is_of_numbers(np.dtype(dtype)) and np.dtype(dtype).kind in "iu"
        if is_whole and x.dtype.kind == "f" and not np.all(np.isfinite(x)):
            pandas().Series([np.nan]).astype(dtype)  # raises pandas' own error
        return self._with(x.astype(dtype))

    @unobserved
    def copy(self, deep: bool = True) -> Any:
        x = self._numbers
        return self._with(x.copy() if deep or copies_on_write() else x)

    def _reduced(self, name: str, axis: Any, skipna: bool, ddof: Any) -> Any:
        if axis not in (0, None, "index"):
            raise ValueError(f"No axis named {axis} for object type Series")
        return reduced(name, self._numbers, skipna, **ddof)

    def _numpys(self, name: str, args: Any, kwargs: Any) -> Any:
        ddof = {"ddof": kwargs.pop("ddof", 0)} if name in ("std", "var") else {}
        if args or {k: v for k, v in kwargs.items() if k != "axis" or v not in (None, 0)}:
            raise refused(f"np.{name} of a Series with further arguments")
        return reduced(name, self._numbers, True, **ddof)

    # ---- entries

    @unobserved
    def _item(self, key: Any) -> Any:
        return self.loc[key] if type(key) is str else dispatch.table_item(self, "", key)

    def __contains__(self, key: Any) -> bool:
        return key in self._labels.index

    def __iter__(self) -> Iterator[Any]:
        """The entries, as Python numbers."""
        return (x.item() for x in self._numbers)

    def items(self) -> Iterator[Any]:
        return iter(zip(self._labels.index, self, strict=True))

    def _entry(self, how: str, key: Any) -> Any:
        """An entry, or a few rows, where that doesn't need pandas; else None."""
        if how == "loc" and isinstance(at := places(self._labels.index, key), int):
            return self._numbers[at]
        if how == "iloc" and isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            return self._numbers[key]
        if how == "iloc" and isinstance(key, slice):
            return self._with(self._numbers[key], self._labels.index[key])
        return None


TracedSeries.__name__ = "Series"  # for messages
