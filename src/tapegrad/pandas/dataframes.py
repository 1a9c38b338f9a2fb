"""Proxies of pandas' DataFrames while a function is traced, and operations on everything with
labels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.extending import declare, declare_late, declare_operands, unobserved
from tapegrad.extending.arrays import ArrayTracer, Tracer, dispatch
from tapegrad.extending.tables import (
    Column,
    Labels,
    as_trees,
    built,
    is_frame,
    is_series,
    pandas,
    turned,
)
from tapegrad.pandas.labelled import (
    OPERATORS,
    Labelled,
    Reductions,
    TracedSeries,
    check_index,
    made,
    reduced,
    refused,
    same_index,
    stood_in,
)
from tapegrad.pandas.labels import places


class TracedFrame(Reductions, Labelled):
    """A proxy of a DataFrame: its numbers are one array, or a list of columns."""

    __class__ = property(lambda self: pandas().DataFrame)

    columns = property(lambda self: self._labels.columns)
    shape = property(lambda self: (len(self), len(self._labels.columns)))
    ndim = property(lambda self: 2)
    size = property(lambda self: len(self) * len(self._labels.columns))
    empty = property(lambda self: self.size == 0)
    values = property(lambda self: self._array())

    def _column(self, k: int) -> Any:
        """The numbers of a column."""
        x = self._branches[0][:, k] if self._labels.whole else self._branches[k]
        if isinstance(x, Column):
            name = self._labels.columns[k]
            raise refused(
                f"the column {name!r} of dtype {x.series.dtype} among traced values",
                "Choose the columns of numbers first: df[['a', 'b']]",
            )
        return x

    def _each(self) -> list[Any]:
        return [self._column(k) for k in range(len(self._labels.columns))]

    def _array(self) -> Any:
        if self._labels.whole:
            return self._branches[0]
        columns = self._each()
        if not columns:
            raise refused("the array of a DataFrame without columns")
        kinds = {x.dtype.kind == "b" for x in columns}
        if len(kinds) > 1:
            raise refused("the array of a DataFrame with columns of booleans and of numbers")
        dtype = np.result_type(*[x.dtype for x in columns])
        return np.stack([x if x.dtype == dtype else x.astype(dtype) for x in columns], axis=1)

    @unobserved
    def to_numpy(self, dtype: Any = None, copy: bool = False) -> Any:
        x = self._array() if dtype is None else self._array().astype(dtype)
        return x.copy() if copy else x

    def _like(self, index: Any, columns: Any, values: Any) -> Any:
        return made(Labels(index, columns), [values])

    @unobserved
    def copy(self, deep: bool = True) -> Any:
        return made(
            self._labels, [x if isinstance(x, Column) else x.copy() for x in self._branches]
        )

    @unobserved
    def astype(self, dtype: Any, copy: Any = None) -> Any:
        def own(name: Any) -> Any:
            return dtype.get(name) if isinstance(dtype, dict) else dtype

        columns = [c if own(n) is None else c.astype(own(n)) for n, c in self.items()]
        each = [stood_in(c)._branches[0] for c in columns]
        return made_of_columns(self._labels.index, self._labels.columns, each)

    @property
    def T(self) -> Any:
        return self._like(self._labels.columns, self._labels.index, self._array().T)

    # ---- columns and entries

    def _series(self, k: int) -> Any:
        name, x = self._labels.columns[k], self._branches[0 if self._labels.whole else k]
        if isinstance(x, Column):
            return x.series
        return made(Labels(self._labels.index, name=name), [self._column(k)])

    def _chosen(self, key: Any) -> Any:
        """Columns by their positions."""
        if isinstance(key, (int, np.integer)):
            return self._series(int(key))
        columns = self._labels.columns[key]
        if self._labels.whole:
            return self._like(self._labels.index, columns, self._branches[0][:, key])
        return made_of_columns(self._labels.index, columns, [self._branches[k] for k in key])

    @unobserved
    def _item(self, key: Any) -> Any:
        at = places(self._labels.columns, key)
        return dispatch.table_item(self, "", key) if at is None else self._chosen(at)

    def __getattr__(self, name: str) -> Any:
        real = hasattr(pandas().DataFrame, name)
        if not name.startswith("_") and not real and name in self._labels.columns:
            return self[name]
        return super().__getattr__(name)

    def __contains__(self, key: Any) -> bool:
        return key in self._labels.columns

    def __iter__(self) -> Iterator[Any]:
        return iter(self._labels.columns)

    def keys(self) -> Any:
        return self._labels.columns

    def items(self) -> Iterator[Any]:
        return iter((c, self._series(k)) for k, c in enumerate(self._labels.columns))

    def _parts(self) -> list[tuple[int, Any]]:
        whole = self._labels.whole
        return [(k, self._branches[0 if whole else k]) for k in range(len(self._labels.columns))]

    def assign(self, **columns: Any) -> Any:
        found = self.copy()
        for name, value in columns.items():
            found[name] = value(found) if callable(value) else value
        return found

    # ---- sums and products

    def _reduced(self, name: str, axis: Any, skipna: bool, ddof: Any) -> Any:
        if axis in (1, "columns"):
            found = reduced(name, self._array(), skipna, 1, **ddof)
            return made(Labels(self._labels.index), [found])
        if axis not in (0, "index"):
            raise refused(f"DataFrame.{name} over both axes")
        if self._labels.whole:
            found = reduced(name, self._branches[0], skipna, 0, **ddof)
        else:
            each = [reduced(name, x, skipna, **ddof) for x in self._each()]
            if any(x.dtype.kind == "b" for x in each) or not each:
                raise refused(f"DataFrame.{name} of columns of booleans")
            found = np.stack(each)
        return made(Labels(self._labels.columns), [found])

    def _numpys(self, name: str, args: Any, kwargs: Any) -> Any:
        given = dict(zip(["axis"], args, strict=False)) | kwargs
        if given.get("axis") is None or len(args) > 1:
            raise refused(
                f"np.{name} of a DataFrame", f"Use df.{name}(), or np.{name}(df.to_numpy(), ...)"
            )
        return getattr(self, name)(**({"ddof": 0} if name in ("std", "var") else {}) | given)


def _labels_of(index: Any, columns: Any, branches: Sequence[Any]) -> Labels:
    return Labels(index, columns, whole=_is_whole(branches))


def _is_whole(columns: Sequence[Any]) -> bool:
    """Whether columns can be one array: all of one dtype, and all traced or all plain."""
    return len({isinstance(x, Tracer) for x in columns}) == 1 and _are_alike(columns)


def _are_alike(columns: Sequence[Any]) -> bool:
    """Whether all columns hold numbers of one dtype."""
    return all(not isinstance(x, Column) and x.dtype == columns[0].dtype for x in columns)


def together(x: Any) -> Any:
    """A frame as one array, if its columns have one dtype."""
    if x._labels.columns is None or x._labels.whole or not x._branches:
        return x
    return x._like(x.index, x.columns, x._array()) if _are_alike(x._branches) else x


def _as_whole(columns: Sequence[Any]) -> list[Any]:
    return [np.stack(columns, axis=1)] if _is_whole(columns) else list(columns)


def made_of_columns(index: Any, columns: Any, found: Sequence[Any]) -> Any:
    """A proxy of a DataFrame with these columns."""
    return made(_labels_of(index, columns, found), _as_whole(found))


TracedFrame.__name__ = "DataFrame"


# ---- operations


def labelled(op: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """The result of an operator or a NumPy ufunc on operands with labels."""
    op, xs = OPERATORS.get(op, op), [stood_in(x) for x in inputs]
    if op is operator.matmul:
        return _product(*xs)
    if op not in _KNOWN and not isinstance(op, np.ufunc):
        raise refused(f"{op.__name__} of a Series or DataFrame")
    signs = op is operator.neg or op is operator.pos
    if signs and any(x.dtype == np.bool_ for x in _arrays(xs)):
        raise refused("the sign of booleans")
    with np.errstate(all="ignore") if op in _KNOWN else np.errstate():  # as pandas does
        if any(isinstance(x, TracedFrame) for x in xs):
            return _on_frames(op, xs)
        return _on_series(op, xs)


def _arrays(xs: Sequence[Any]) -> list[Any]:
    """The arrays of operands with labels."""
    found = [b for x in xs if isinstance(x, Labelled) for b in x._branches]
    return [b for b in found if not isinstance(b, Column)]


_KNOWN = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.neg),
    *(operator.pos, operator.abs, operator.lt, operator.le, operator.gt, operator.ge),
    *(operator.eq, operator.ne, operator.and_, operator.or_, operator.xor, operator.invert),
}


def _on_series(op: Any, xs: Sequence[Any]) -> Any:
    series = [x for x in xs if isinstance(x, TracedSeries)]
    first, name = series[0], series[0].name
    if len(series) == 2 and not same_index(first.index, series[1].index):
        return _on_series(op, _brought_together(op, *xs))
    for x in series[1:]:
        if not (x.name is name or (type(x.name) is type(name) and x.name == name)):
            name = None
    values = [_values(_prepared(op, x), (len(first),), first.dtype) for x in xs]
    results = op(*values)
    if isinstance(results, tuple):
        return tuple([first._with(x, name=name) for x in results])
    return first._with(results, name=name)


def _brought_together(op: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Operands with different labels, aligned as in pandas."""
    if op in _COMPARING:
        raise ValueError(f"Can only compare identically-labeled {x._kind} objects")
    if op in (operator.and_, operator.or_, operator.xor):
        check_index(x.index, y.index, "an operation")
        check_index(x._labels.columns, y._labels.columns, "an operation")
    return aligned(x, y)


_COMPARING = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}


def aligned(x: Any, y: Any, axis: int | None = None) -> tuple[Any, Any]:
    """Two tables with the union of their labels, in pandas' order."""
    found = dispatch.table_method(x, "align")(y, axis=axis)
    return stood_in(found[0]), stood_in(found[1])


def filled(x: Any, y: Any, value: Any) -> tuple[Any, Any]:
    """Two tables with the same labels, with `value` where exactly one of them is NaN."""
    x, y = aligned(x, y)
    a, b = x.to_numpy(), y.to_numpy()
    only_a, only_b = np.isnan(a) & ~np.isnan(b), np.isnan(b) & ~np.isnan(a)
    filled = np.where(only_a, value, a), np.where(only_b, value, b)
    return made(x._labels, [filled[0]]), made(y._labels, [filled[1]])


def _prepared(op: Any, x: Any) -> Any:
    """An operand of arithmetic. pandas treats a NumPy scalar like a Python number there."""
    if op not in _KNOWN or op in _COMPARING:
        return x
    is_number = isinstance(x, (np.generic, np.ndarray)) or (isinstance(x, Tracer) and not x._weak)
    return x.item() if is_number and np.ndim(x) == 0 and x.dtype.kind in "fiu" else x


def _values(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An operand's numbers: as many as those of the other operand, or one."""
    if isinstance(x, Labelled):
        return x.to_numpy()
    x = np.asarray(x) if isinstance(x, (list, tuple)) and not _has_tracers(x) else x
    x = dispatch.as_operand(x)
    if np.ndim(x) == 0:
        if isinstance(x, (np.generic, np.ndarray)) or (isinstance(x, Tracer) and not x._weak):
            number = 0.0 if x.dtype.kind == "f" else x.dtype.type(0).item()
            if np.result_type(dtype, x.dtype) != np.result_type(dtype, number):
                raise refused(
                    f"a {x.dtype} number with a Series of {dtype}, which pandas takes for a number "
                    "of Python's,"
                )
        return x
    if len(shape) == 2 and x.shape != (1, 1) and x.shape in ((shape[0], 1), (1, shape[1])):
        return np.broadcast_to(x, shape)
    if x.shape != shape and x.size == 1:
        raise refused(f"an array of shape {x.shape} with a Series or DataFrame of shape {shape}")
    if x.shape != shape:
        raise ValueError(f"a Series or DataFrame of shape {shape} meets an array of {x.shape}")
    return x


def _has_tracers(x: Any) -> bool:
    return isinstance(x, Tracer) or (isinstance(x, (list, tuple)) and any(map(_has_tracers, x)))


def _on_frames(op: Any, xs: Sequence[Any]) -> Any:
    xs = [together(x) if isinstance(x, TracedFrame) else x for x in xs]
    first = next(x for x in xs if isinstance(x, TracedFrame))
    index, columns = first._labels.index, first._labels.columns
    if isinstance(op, np.ufunc) and any(isinstance(x, TracedSeries) for x in xs):
        raise refused(f"np.{op.__name__} of a DataFrame and a Series")
    for k, x in enumerate(xs):
        if isinstance(x, TracedFrame):
            if not (same_index(index, x.index) and same_index(columns, x.columns)):
                return _on_frames(op, _brought_together(op, *xs))
        elif isinstance(x, TracedSeries) and not same_index(columns, x.index):
            both = aligned(first, x, axis=1)
            return _on_frames(op, both[::-1] if k == 0 else both)
    own_dtype = first._labels.whole and first._branches[0].dtype == np.float64
    if isinstance(op, np.ufunc) and op.nin > 1 and not own_dtype:  # numbers become float64
        raise refused(f"np.{op.__name__} of a DataFrame that isn't one of float64")
    xs = [dispatch.as_operand(x) if isinstance(x, (list, tuple)) else x for x in xs]
    xs = [_prepared(op, x) for x in xs]
    if all(x._labels.whole for x in xs if isinstance(x, TracedFrame)):
        dtype = first._branches[0].dtype
        results = op(*[_across(x, first.shape, dtype) for x in xs])
        if isinstance(results, tuple):
            return tuple([first._like(index, columns, x) for x in results])
        return first._like(index, columns, results)
    if op not in _KNOWN:
        raise refused(f"np.{op.__name__} of a DataFrame with columns of several dtypes")
    found = []
    for k in range(len(columns)):
        own = [_of_column(x, k, first) for x in xs]
        found.append(op(*own))
    return made_of_columns(index, columns, found)


def _across(x: Any, shape: tuple[int, int], dtype: Any) -> Any:
    """An operand's numbers, broadcast along the rows of a frame."""
    if isinstance(x, TracedSeries):
        return x.to_numpy()[None, :]
    if isinstance(x, (np.ndarray, Tracer)) and x.shape == shape[1:]:
        return x[None, :]
    return _values(x, shape, dtype)


def _of_column(x: Any, k: int, frame: TracedFrame) -> Any:
    """The part of an operand that is combined with column `k` of a frame."""
    if isinstance(x, TracedFrame):
        return x._column(k)
    if isinstance(x, TracedSeries):
        return x.to_numpy()[k]
    if isinstance(x, (np.ndarray, Tracer)) and x.shape == frame.shape[1:]:
        return x[k]
    values = _values(x, frame.shape, frame._column(k).dtype)
    return values if np.ndim(values) == 0 else values[:, k]


def _product(x: Any, y: Any) -> Any:
    """x @ y. Operands with labels pass on those of the remaining axes."""
    if isinstance(x, Labelled) and isinstance(y, Labelled):
        inner = x._labels.index if isinstance(x, TracedSeries) else x._labels.columns
        check_index(inner, y._labels.index, "a product")
    a, b = (v.to_numpy() if isinstance(v, Labelled) else dispatch.as_operand(v) for v in (x, y))
    if np.ndim(a) == 0 or np.ndim(b) == 0 or np.ndim(a) > 2 or np.ndim(b) > 2:
        raise refused("a product with an array of this many axes")
    found = a @ b
    rows = x._labels.index if isinstance(x, TracedFrame) else None
    columns = y._labels.columns if isinstance(y, TracedFrame) else None
    if isinstance(x, Labelled) and isinstance(y, Labelled):
        if rows is not None and columns is not None:
            return made(Labels(rows, columns), [found])
        kept = rows if rows is not None else columns
        return found if kept is None else made(Labels(kept), [found])
    if rows is not None:  # y is an array: its columns are numbered
        if np.ndim(b) == 1:
            return made(Labels(rows), [found])
        return made(Labels(rows, pandas().RangeIndex(b.shape[1])), [found])
    if columns is not None:
        if np.ndim(a) == 1:
            return made(Labels(columns), [found])
        return made(Labels(pandas().RangeIndex(a.shape[0]), columns), [found])
    return found


def has_labels(x: Any) -> bool:
    """Whether this is a Series or DataFrame, or a proxy of one."""
    kind = type(x)
    if str(kind.__module__).partition(".")[0] == "pandas":  # in some types it is a descriptor
        return is_series(x) or is_frame(x)
    return kind is TracedSeries or kind is TracedFrame


dispatch.frame, dispatch.series = TracedFrame, TracedSeries
for _kind in (TracedSeries, TracedFrame):
    as_trees(_kind, made)
    _kind._built = staticmethod(lambda labels, branches: built(labels, turned(labels, branches)))


def _is_array(args: Sequence[Any]) -> bool:
    return any(isinstance(x, ArrayTracer) and not dispatch.is_made(x) for x in args)


def _is_traced(args: Sequence[Any]) -> bool:
    return _is_array(args) or any(type(x) in (TracedSeries, TracedFrame) for x in args)


def _method(name: str) -> Any:
    @unobserved
    def by(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(stood_in(self), name)(*args, **kwargs)

    return by


def _declare() -> None:
    """Declare plain Series and DataFrames as operands beside traced arrays: their numbers are
    captured."""
    for kind in (pandas().Series, pandas().DataFrame):
        declare_operands(kind, stood_in, when=_is_traced)
        for name in _METHODS.split():
            declare(kind, name, _method(name), when=_is_traced)


_METHODS = "dot add radd sub rsub mul rmul truediv rtruediv div rdiv pow rpow lt le gt ge eq ne"
_METHODS += " subtract multiply divide corr cov"


declare_late("pandas", _declare)
