"""Polars' Series and DataFrames as pytrees, and their proxies while a function is traced.

Each operation on a proxy is computed twice: by Polars, on the present numbers, for the name, the
dtype and the errors; and by NumPy, on the traced arrays. Both results have to agree. Operations
that aren't declared here are refused by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tapegrad.errors import ArgumentError
from tapegrad.extending import as_parameter, at_line, is_traced, refusal, unobserved
from tapegrad.extending.arrays import Tracer, value_of
from tapegrad.extending.runs import tell
from tapegrad.extending.tables import Functions, Returnable, declare, exact_key, unlike

_SERIES: Any = pl.Series  # a class that mypy may not know
_FRAME: Any = pl.DataFrame
_FLOATS = pl.Float32, pl.Float64
_WHOLE = pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64
_NUMBERS = frozenset([*_FLOATS, *_WHOLE, pl.Boolean])
_COMPARED = pl.String, pl.Categorical, pl.Enum, pl.Date, pl.Time, pl.Datetime, pl.Duration


class Column(Returnable):
    """A column without numbers, as it is now."""

    def __init__(self, series: Any) -> None:
        self.series = series.clone()
        known = [exact_key(x) for x in series.to_list()] if series.dtype in _COMPARED else [None]
        codes = series.to_physical().to_list() if series.dtype == pl.Categorical else ()
        same = unlike() if None in known else (*known, *codes)
        self.key = series.name, series.dtype, repr(series.flags), same

    def __repr__(self) -> str:
        return f"a column of dtype {self.series.dtype}"


class Labels(NamedTuple):
    """The structure of a Series or DataFrame: all but the numbers in its columns."""

    kind: str
    height: int
    names: tuple[str, ...]

    @property
    def key(self) -> Any:
        return tuple(self)

    def __repr__(self) -> str:
        if self.kind == "Series":
            return f"Series of {self.height}"
        return f"DataFrame of {self.height} rows with the columns {list(self.names)}"


def _labels(x: Any) -> Labels:
    is_series = isinstance(x, _SERIES)
    return Labels(
        "Series" if is_series else "DataFrame", len(x), (x.name,) if is_series else (*x.columns,)
    )


def taken_apart(x: Any) -> tuple[list[Any], Any]:
    """The leaves of an object, the numbers of its columns, and its labels."""
    if isinstance(x, _StandIn):
        return list(x._branches), x._labels.key
    return [*map(_numbers, x.get_columns() if type(x) is _FRAME else [x])], _labels(x).key


def _numbers(series: Any) -> Any:
    if series.dtype not in _NUMBERS:
        return Column(series)
    if series.null_count():
        raise ArgumentError(
            f"the column {series.name!r} has nulls, for which NumPy's arrays have no place. Fill "
            "them by fill_null, or leave their rows out by drop_nulls"
        )
    return series.to_numpy()


def put_together(key: Any, branches: Sequence[Any]) -> Any:
    """Polars' object if the leaves are arrays; else a proxy."""
    labels = Labels(*key)
    if branches and all(x is None for x in branches):
        return None  # integers have no cotangents
    for x in branches:
        if isinstance(x, (np.ndarray, np.generic, Tracer)) and x.shape != (labels.height,):
            raise ArgumentError(
                f"{labels!r} would get numbers of shape {x.shape} in the place of a column. A "
                "derivative that has more axes than its argument is one of its numbers: pass "
                "x.to_numpy(), and make the Series of that in the function"
            )
    plain = all(isinstance(x, (np.ndarray, Column, type(None))) for x in branches)
    if not plain or is_traced([*branches]):
        return _stand_in(labels, branches)
    return _built(labels, branches)


def _built(labels: Labels, branches: Sequence[Any]) -> Any:
    columns = [
        x.series.clone() if isinstance(x, Column) else pl.Series(name, np.ascontiguousarray(x))
        for name, x in zip(labels.names, branches, strict=True)
        if x is not None
    ]
    return pl.DataFrame(columns) if labels.kind == "DataFrame" else columns[0]


def _stand_in(labels: Labels, branches: Sequence[Any]) -> Any:
    kind: Any = TracedFrame if labels.kind == "DataFrame" else TracedSeries
    return kind(labels, list(branches))


def _stood_in(x: Any) -> Any:
    branches, key = taken_apart(x)
    return _stand_in(Labels(*key), branches)


# ---- operations that are computed twice


def _refused(what: str) -> Exception:
    return refusal(f"{what} isn't followed{at_line()}. Take the numbers out first, by x.to_numpy()")


def _plain(x: Any) -> Any:
    """x with the present values in place of traced ones."""
    if isinstance(x, _StandIn):
        return _built(x._labels, [*map(value_of, x._branches)])
    if isinstance(x, (list, tuple)):
        return type(x)(map(_plain, x))
    return value_of(x)


def _array(x: Any) -> Any:
    """x with the arrays of Series and DataFrames."""
    if isinstance(x, _StandIn):
        return x._array()
    if isinstance(x, (list, tuple)):
        return type(x)(map(_array, x))
    return x


def _twice(
    what: str, ask: Callable[..., Any], of_arrays: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    """The result of an operation for traced arrays, in Polars' form. Refused if NumPy's values
    differ from Polars'."""
    if any(_is_series(x) and not isinstance(x, _StandIn) for x in (*args, *named.values())):
        raise refusal(
            f"a Series that isn't traced meets one that is{at_line()}. Pass it, too, or take its "
            "numbers, by to_numpy()"
        )
    with np.errstate(all="ignore"):
        by_name = {key: _plain(x) for key, x in named.items()}
        plain = ask(*map(_plain, args), **by_name)  # raises Polars' own error
    if not is_traced([*map(_branches, args), *named.values()]):  # only columns that are compared
        if not all(isinstance(x, (_StandIn, *_SURE)) for x in (*args, *named.values())):
            raise _refused(what)
        return _stood_in(plain) if _is_series(plain) else plain
    series = _is_series(plain)
    if series and plain.dtype in _NUMBERS and not plain.null_count():
        expected = plain.to_numpy()
    elif isinstance(plain, (np.ndarray, np.generic, float, int)):
        expected = np.asarray(plain)
    else:
        raise _refused(what)
    try:
        found = of_arrays(*map(_array, args), **{key: _array(x) for key, x in named.items()})
    except TypeError:  # NumPy's function has no such argument
        raise _refused(what) from None
    if type(plain) in (float, int, bool):
        found = found.item() if hasattr(found, "item") else found
    seen = np.asarray(value_of(found))
    alike = seen.shape == expected.shape and seen.dtype == expected.dtype
    if not (alike and np.allclose(seen, expected, rtol=1e-4, atol=1e-8, equal_nan=True)):
        raise _refused(what)
    return _stand_in(_labels(plain), [found]) if series else found


_SURE = int, float, str, slice, type(None)  # types whose values never change


def _branches(x: Any) -> Any:
    return x._branches if isinstance(x, _StandIn) else x


def _is_series(x: Any) -> bool:
    return isinstance(x, _SERIES)


def _operator(name: str, reflected: bool = False) -> Any:
    op = getattr(operator, name)

    @unobserved
    def method(self: Any, other: Any) -> Any:
        what = f"{name} of a Series and a {type(other).__name__}"
        both = (other, self) if reflected else (self, other)
        found = _twice(what, op, op, *both)
        if _is_series(found) and found.dtype not in _FLOATS:
            raise _refused(f"{name} of a Series that comes to {found.dtype}")
        return found

    return method


def _parameter(x: Any) -> Any:
    """A traced integer as a Python integer, which is guarded."""
    found = as_parameter(x)
    return found.item() if isinstance(x, Tracer) and np.ndim(found) == 0 else found


def _method(name: str, of_array: Callable[..., Any]) -> Any:
    @unobserved
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple([x if isinstance(x, _StandIn) else _parameter(x) for x in args])
        kwargs = {key: _parameter(x) for key, x in kwargs.items()}
        what = f"Series.{name} with these arguments"
        return _twice(what, getattr(_SERIES, name), of_array, self, *args, **kwargs)

    return method


def _refusing(kind: str, name: str) -> Any:
    """The attribute that refuses a method or property of Polars."""

    @unobserved
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        hidden = name.startswith("_") and not name.startswith("__")
        raise _refused(f"what Polars does with a traced {kind}" if hidden else f"{kind}.{name}")

    return refuse if name.startswith("__") else property(refuse)


class _StandIn:
    """The base of proxies of Series and DataFrames, which hold traced values for the numbers."""

    _answers_first = True  # NumPy's functions call this class, not the traced array
    _labels_first = True

    def __init__(self, labels: Labels, branches: list[Any]) -> None:
        self._labels, self._branches = labels, branches

    __hash__ = None  # type: ignore[assignment]

    @unobserved
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            how = f".{method}" if method != "__call__" else f" with {', '.join(kwargs)}="
            raise _refused(f"np.{ufunc.__name__}{how} of a {self._labels.kind}")
        return _twice(f"np.{ufunc.__name__}", ufunc, ufunc, *inputs)

    @unobserved
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        what = f"np.{func.__name__} of a {self._labels.kind}"
        found = _twice(what, func, func, *args, **kwargs)
        if _is_series(found):  # NumPy calls Polars' method, which may treat NaN differently
            raise _refused(what)
        return found

    @unobserved
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self._array(), *args, **kwargs)  # raises the traced array's error

    @unobserved
    def to_numpy(self, *, writable: bool = False, **how: Any) -> Any:
        return _twice(
            f"{self._labels.kind}.to_numpy with these arguments",
            lambda x: x.to_numpy(writable=writable, **how),
            lambda x: x.copy(),  # writable, unlike a Series
            self,
        )

    def _array(self) -> Any:
        if any(isinstance(x, Column) for x in self._branches):
            raise _refused("an array of a DataFrame that has columns besides numbers")
        return np.stack(self._branches).T

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._labels.kind!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return self._labels.height

    def __repr__(self) -> str:
        for x in self._branches:
            if isinstance(x, Tracer):
                tell(x)
        return repr(_plain(self))

    def __copy__(self) -> Any:
        return _stand_in(self._labels, self._branches)

    __deepcopy__ = lambda self, memo: self.__copy__()  # noqa: E731
    __str__ = __repr__
    clone = __copy__


class TracedSeries(_StandIn, _SERIES):
    """The proxy of a Series."""

    name = property(lambda self: self._labels.names[0])
    dtype = property(lambda self: _plain(self).dtype)
    shape = property(lambda self: (self._labels.height,))
    len = _StandIn.__len__

    for _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
        locals()[f"__{_name}__"] = _operator(_name)
        locals()[f"__r{_name}__"] = _operator(_name, reflected=True)
    pow = __pow__  # type: ignore[name-defined]  # noqa: F821
    dot = __matmul__  # type: ignore[name-defined]  # noqa: F821
    __neg__, __pos__ = _method("__neg__", operator.neg), _method("__pos__", operator.pos)
    __abs__, abs = _method("__abs__", np.abs), _method("abs", np.abs)
    exp, sqrt = _method("exp", np.exp), _method("sqrt", np.sqrt)
    log = _method("log", lambda x, base=math.e: np.log(x) / np.log(base))
    cum_sum, product = _method("cum_sum", np.cumsum), _method("product", np.prod)
    sum, mean = _method("sum", np.sum), _method("mean", np.mean)
    std = _method("std", lambda x, ddof=1: np.std(x, ddof=ddof))
    var = _method("var", lambda x, ddof=1: np.var(x, ddof=ddof))
    max, min = _method("max", np.fmax.reduce), _method("min", np.fmin.reduce)  # skip NaN
    __getitem__ = _method("__getitem__", lambda x, key: x[key])
    item = _method("item", lambda x, index=0: x[index])
    head = _method("head", lambda x, n=10: x[:n])
    tail = _method("tail", lambda x, n=10: x[max(len(x) - n, 0) :] if n >= 0 else x[-n:])
    alias, rename = _method("alias", lambda x, name: x), _method("rename", lambda x, name: x)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    @unobserved
    def to_list(self) -> list[Any]:
        """The entries as a list of numbers."""
        x = self._branches[0]
        return x.series.to_list() if isinstance(x, Column) else [number.item() for number in x]

    def _array(self) -> Any:
        (x,) = self._branches
        if isinstance(x, Column):
            raise _refused("a Series of what isn't numbers among traced values")
        return x


class TracedFrame(_StandIn, _FRAME):
    """The proxy of a DataFrame."""

    columns = property(lambda self: list(self._labels.names))
    dtypes = property(lambda self: _plain(self).dtypes)
    height = property(lambda self: self._labels.height)
    width = property(lambda self: len(self._labels.names))
    shape = property(lambda self: (self.height, self.width))
    schema = property(lambda self: _plain(self).schema)

    def __contains__(self, name: Any) -> bool:
        return name in self._labels.names

    def _column(self, name: str) -> Any:
        place = self._labels.names.index(name)
        return _stand_in(Labels("Series", self.height, (name,)), [self._branches[place]])

    def _of(self, columns: Sequence[Any]) -> Any:
        """A DataFrame of these columns, with the labels that Polars computes."""
        labels = _labels(pl.DataFrame([*map(_plain, columns)]))
        return _stand_in(labels, [x._branches[0] for x in columns])

    @unobserved
    def __getitem__(self, key: Any) -> Any:
        texts = isinstance(key, str) or (
            isinstance(key, (list, tuple)) and bool(key) and all(isinstance(k, str) for k in key)
        )
        rows, which = (slice(None), key) if texts else key if type(key) is tuple else (key, None)
        which = slice(None) if which is None else which
        if type(rows) not in (slice, int) or not _is_choice(which):
            raise _refused("DataFrame[...] by this")
        chosen = _plain(self)[key]  # raises Polars' own error
        names = _plain(self)[:, list(which) if type(which) is tuple else which]
        if _is_series(names):
            column = self._column(names.name)
            return column if rows == slice(None) else column[rows]
        places = rows if type(rows) is slice else slice(rows, rows + 1 or None)
        found = self._of([self._column(name)[places] for name in names.columns])
        if found._labels.key != _labels(chosen).key:
            raise _refused("DataFrame[...] by this")
        return found

    @unobserved
    def get_column(self, name: str) -> Any:
        return self._column(_plain(self).get_column(name).name)

    @unobserved
    def get_columns(self) -> list[Any]:
        return [*map(self._column, self._labels.names)]

    @unobserved
    def select(self, *names: Any) -> Any:
        """The columns with these names, and the given Series."""
        return self._of(self._asked("select", names, {}))

    @unobserved
    def with_columns(self, *columns: Any, **named: Any) -> Any:
        """The DataFrame with added or replaced columns."""
        found = self._asked("with_columns", columns, named)
        new = {name: self._column(name) for name in self.columns} | {x.name: x for x in found}
        self._of(found)  # raises an error for a duplicate name
        return self._of([*new.values()])

    def _asked(self, what: str, asked: Any, named: dict[str, Any]) -> list[Any]:
        listed = asked[0] if len(asked) == 1 and isinstance(asked[0], (list, tuple)) else asked
        found = []
        for name, x in [*[(None, x) for x in listed], *named.items()]:
            if isinstance(x, str):
                _plain(self).select(x)  # raises Polars' own error
            if isinstance(x, str) and x in self:
                x = self._column(x)
            elif not isinstance(x, TracedSeries) or len(x) != self.height:
                raise _refused(f"DataFrame.{what} of anything but names of columns and Series")
            found.append(x if name is None else x.alias(name))
        return found


def _is_choice(key: Any) -> bool:
    keys = key if isinstance(key, (list, tuple)) else [key]
    return all(type(k) in (int, str) for k in keys) or type(key) is slice


for _kind, _polars in ((TracedSeries, _SERIES), (TracedFrame, _FRAME)):
    _own = {name for c in _kind.__mro__[:-2] if c is not _polars for name in vars(c)}
    for _name in vars(_polars).keys() - _own - {"__init__", "__module__", "__doc__", "__dict__"}:
        setattr(_kind, _name, _refusing(_polars.__name__, _name))
    _kind.__name__, _kind._built = _polars.__name__, staticmethod(_built)


def key_of(cls: type, key: Any) -> Any:
    return key


def names_of(key: Any) -> list[str]:
    """The names of the leaves in messages."""
    labels = Labels(*key)
    return [""] if labels.kind == "Series" else list(labels.names)


for _kind in (TracedSeries, TracedFrame):
    declare(_kind, Functions(taken_apart, put_together, key_of, names_of))


def how(cls: type) -> Functions | None:
    """The tree functions of one of Polars' classes; None for other classes."""
    if cls not in (_SERIES, _FRAME):
        return None
    return Functions(taken_apart, put_together, key_of, names_of, _stood_in)
