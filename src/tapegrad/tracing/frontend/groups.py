"""Series and DataFrames by groups of rows. Which row is in which group pandas says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegrad.core.tables import Labels
from tapegrad.tracing.frontend.arranging import Entries
from tapegrad.tracing.frontend.labelled import (
    Labelled,
    TracedSeries,
    made,
    plain_of,
    reduced,
    refused,
)
from tapegrad.tracing.observe.observer import unobserved
from tapegrad.tracing.tracer import Tracer

MOST = 1000  # groups of which each is a step of its own
_NAMES = ("sum", "mean", "std", "var", "min", "max", "prod")


@unobserved
def groupby(x: Any, by: Any = None, *, sort: bool = True, level: Any = None) -> Any:
    keys = [] if isinstance(x, TracedSeries) else [k for k in _listed(by) if isinstance(k, str)]
    plain = [_plain(x, key) for key in _listed(by)]
    entries = Entries()
    grouped = plain if isinstance(by, list) else plain[0]
    rows = entries.table(x).groupby(grouped, sort=sort, level=level)
    place, labels = rows.ngroup().to_numpy(), rows.size().index
    return Groups(x, place, labels, keys, (entries, rows))


def _listed(by: Any) -> list[Any]:
    return by if isinstance(by, list) else [by]


def _plain(x: Any, key: Any) -> Any:
    """A key of groups, with its plain numbers in the place of a column's name."""
    if isinstance(key, str) and not isinstance(x, TracedSeries) and key in x._labels.columns:
        key = x[key]
    if isinstance(key, Tracer) or (isinstance(key, Labelled) and _is_traced(key)):
        raise refused(
            f"{x._kind}.groupby by a column of traced numbers", "Pass its plain numbers: by=array"
        )
    if callable(key) and not isinstance(key, Labelled):
        raise refused(f"{x._kind}.groupby by a function")
    return plain_of(key)


def _is_traced(x: Any) -> bool:
    return any(isinstance(b, Tracer) for b in x._branches)


class Groups:
    """`x.groupby(...)`: the `place` of each row's group, and the `labels` of the groups. As pandas
    has them, they are `rows` with the numbers of `entries`."""

    def __init__(
        self, x: Any, place: np.ndarray, labels: Any, keys: list[str], pandas: tuple[Entries, Any]
    ) -> None:
        if np.any(place < 0):
            raise refused(f"{x._kind}.groupby by what is missing")
        self._x, self._place, self._labels, self._keys = x, place, labels, keys
        self._entries, self._rows = pandas

    @unobserved
    def __getitem__(self, key: Any) -> Any:
        found = self._entries, self._rows[key]
        return Groups(self._x[key], self._place, self._labels, [], found)

    @unobserved
    def __iter__(self) -> Iterator[Any]:
        return iter([(name, self._entries.put(part)) for name, part in self._rows])

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            return unobserved(lambda: self._made(self._labels, self._each(name)))
        if not isinstance(self._x, TracedSeries) and name in self._x._labels.columns:
            return self[name]
        raise refused(f"{self._x._kind}.groupby(...).{name}")

    @unobserved
    def transform(self, name: Any) -> Any:
        if name not in _NAMES:
            raise refused(f"{self._x._kind}.groupby(...).transform by this")
        return self._made(self._x._labels.index, self._each(name)[self._place])

    def agg(self, name: Any) -> Any:
        if name not in _NAMES:
            raise refused(f"{self._x._kind}.groupby(...).agg by this")
        return getattr(self, name)()

    def _numbers(self) -> Any:
        """What is grouped, without the columns that say how."""
        x = self._x
        if self._keys:
            x = x[[c for c in x._labels.columns if c not in self._keys]]
        return x, x.to_numpy()

    def _each(self, name: str) -> Any:
        _, values = self._numbers()
        count = len(self._labels)
        is_linear = name in ("sum", "mean") and values.dtype == np.float64
        if is_linear and not bool(np.any(np.isnan(values))):
            member = (np.arange(count)[:, None] == self._place).astype(float)
            return (
                member / member.sum(axis=1, keepdims=True) if name == "mean" else member
            ) @ values
        if count > MOST:
            raise refused(f"{self._x._kind}.groupby of more than {MOST} groups")
        ddof = {"ddof": 1} if name in ("std", "var") else {}
        places = [np.flatnonzero(self._place == k) for k in range(count)]
        axis = {} if values.ndim == 1 else {"axis": 0}
        return np.stack([reduced(name, values[k], True, **axis, **ddof) for k in places])

    def _made(self, index: Any, values: Any) -> Any:
        x, _ = self._numbers()
        if isinstance(x, TracedSeries):
            return made(Labels(index, name=x.name), [values])
        return x._like(index, x._labels.columns, values)
