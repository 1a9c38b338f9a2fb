"""Entries of a proxy of a Series or DataFrame, by keys and by pandas' own methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import Tracer, dispatch
from tapegrad.extending.tables import (
    Column,
    built,
    copies_on_write,
    index_key,
    is_frame,
    is_series,
    pandas,
    turned,
)
from tapegrad.pandas.dataframes import made_of_columns
from tapegrad.pandas.labelled import Labelled, TracedSeries, refused, stood_in
from tapegrad.pandas.numbering import Looks, drawn, moved


@unobserved
def by_pandas(x: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """The result of a pandas method that moves entries, perhaps within the table itself."""
    real = getattr(getattr(pandas(), x._kind), name)
    if "aggfunc" in inspect.signature(real).parameters:
        return dispatch.table_aggregated(real, f"{x._kind}.{name}", (x, *args), kwargs)
    own: list[bool] = []

    def called(table: Any, args: Any, kwargs: Any) -> Any:
        before = table.copy()
        t = table.copy() if copies_on_write() else table  # views may be made of it
        found = drawn(getattr(t, name)(*args, **kwargs))
        own.append(_is_same(t, before))
        return (found,) if own[0] else (found, t)

    found = asked(called, f"{x._kind}.{name}", x, args, kwargs)
    if len(found) == 2:
        _check_alone(f"{x._kind}.{name}, which changes it,")
        becomes(x, found[1])
    return iter(found[0]) if name in _DRAWN else found[0]


_DRAWN = ("itertuples", "iterrows")


def _is_same(x: Any, y: Any) -> bool:
    """Whether a table is unchanged."""
    keys = [(index_key(t.index), index_key(t.columns) if is_frame(t) else t.name) for t in (x, y)]
    return keys[0] == keys[1] and bool(x.equals(y))


def _check_alone(what: str) -> None:
    """Raise an error where tables may share memory."""
    if not copies_on_write():
        raise refused(
            f"{what} of which others may show the memory",
            "Let pandas share none: pandas.options.mode.copy_on_write = True",
        )


def becomes(x: Any, table: Any) -> None:
    """Replace the entries and labels of a proxy by those of `table`."""
    table = stood_in(table)
    x._labels, x._branches = table._labels, table._branches


def asked(f: Callable[..., Any], what: str, *given: Any, proven: bool = False) -> Any:
    try:
        return moved(f, *given, proven=proven)
    except Looks:
        raise refused(f"{what} of traced numbers, or by a column of traced numbers,") from None


# ---- keys


@unobserved
def chosen(x: Any, how: str, key: Any) -> Any:
    """`x[key]`, `x.loc[key]` or `x.iloc[key]`."""
    plain = tuple(map(_plain_key, key)) if type(key) is tuple else _plain_key(key)

    def taken(table: Any) -> Any:
        return getattr(table, how)[plain] if how else table[plain]

    return asked(taken, f"{x._kind}.{how or '[...]'}", x, proven=True)


@unobserved
def written(x: Any, how: str, key: Any, value: Any) -> None:
    """`x[key] = value`, `x.loc[key] = value` or `x.iloc[key] = value`."""
    whole = how == "setattr" or (
        not how and x._labels.columns is not None and isinstance(key, (str, list))
    )
    if not whole:
        _check_alone(f"writing to entries of a {x._kind}")

    def put(table: Any, key: Any, value: Any) -> Any:
        t = table.copy()
        if how == "setattr":
            setattr(t, key, value)
        else:
            (getattr(t, how) if how else t)[key] = value
        return t

    def result(key: Any) -> Any:
        return asked(put, f"writing to a {x._kind} by this key", x, key, value)

    parts = key if type(key) is tuple else (key,)
    masks = [k for k in parts if _is_mask(k)]
    # pandas refuses a value with labels for rows with equal labels, unless it is for all rows.
    by_label = isinstance(value, Labelled) and x._labels.index.is_unique
    if len(masks) == 1 and (by_label or (np.ndim(value) == 0 and not isinstance(value, Labelled))):
        (mask,) = masks
        flags = mask.to_numpy() if isinstance(mask, Labelled) else mask
        for_all = [
            result(_with(key, mask, full(flags.shape, bool))) for full in (np.ones, np.zeros)
        ]
        if (found := _chosen_between(flags, *for_all)) is not None:
            becomes(x, found)
            return
    plain = tuple(map(_plain_key, key)) if type(key) is tuple else _plain_key(key)
    becomes(x, result(plain))


def _is_mask(key: Any) -> bool:
    """Whether a key is a traced boolean for each row."""
    if isinstance(key, Tracer):
        return bool(key.dtype.kind == "b" and key.ndim == 1)
    return isinstance(key, TracedSeries) and _is_mask(key._branches[0])


def _with(key: Any, mask: Any, flags: np.ndarray) -> Any:
    if type(key) is tuple:
        return tuple([flags if k is mask else k for k in key])
    return flags


def _chosen_between(flags: Any, x: Any, y: Any) -> Any:
    """The table with `x` in the rows whose flag is set, and `y` in the others; None if the labels
    or dtypes of the two differ."""
    x, y = stood_in(x), stood_in(y)
    if _labels_key(x) != _labels_key(y):
        return None
    found: list[Any] = []
    for a, b in zip(_columns(x), _columns(y), strict=True):
        if isinstance(a, Column) or isinstance(b, Column):
            if not (isinstance(a, Column) and isinstance(b, Column) and a.key == b.key):
                return None
            found.append(a)
        elif a.dtype != b.dtype:
            return None
        elif isinstance(a, Tracer) or isinstance(b, Tracer) or not np.array_equal(a, b):
            found.append(np.where(flags, a, b))
        else:
            found.append(a)
    if isinstance(x, TracedSeries):
        return x._with(found[0])
    return made_of_columns(x._labels.index, x._labels.columns, found)


def _columns(x: Any) -> list[Any]:
    if isinstance(x, TracedSeries):
        return x._branches
    return [b if isinstance(b, Column) else x._column(k) for k, b in x._parts()]


def _labels_key(x: Any) -> Any:
    labels = x._labels
    return index_key(labels.index), index_key(labels.columns) if labels.columns is not None else 0


def _plain_key(key: Any) -> Any:
    """A key with plain numbers, which are guarded."""
    if isinstance(key, Labelled) and not is_series(key) and key._branches:
        (values,) = key._branches
        return built(key._labels, turned(key._labels, [_guarded(values)]))
    return _guarded(key) if isinstance(key, Tracer) else key


def _guarded(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    if x.dtype.kind not in "iub":
        raise refused("entries of a Series or DataFrame by traced numbers")
    return x._guarded_array() if x.ndim else dispatch.whole(x)
