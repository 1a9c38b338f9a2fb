"""A proxy of a Series of objects, some of which are traced numbers: a row of a table that also has
texts. pandas moves its entries like those of other tables; it can't be computed with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegrad.extending import unobserved
from tapegrad.extending.arrays import dispatch
from tapegrad.extending.tables import Column, pandas
from tapegrad.pandas.labelled import TracedSeries, plain_of, refused
from tapegrad.pandas.labels import places


class Objects(Column):
    """The entries of such a Series."""

    def __init__(self, entries: Sequence[Any]) -> None:
        self.entries = list(entries)

    @property
    def series(self) -> Any:
        """pandas' Series of the current values."""
        return pandas().Series(plain_of(self.entries), dtype=object)

    @property
    def key(self) -> Any:
        raise refused("a Series of texts and traced numbers, where it is compared or returned,")


class TracedObjects(TracedSeries):
    """A proxy of such a Series."""

    dtype = property(lambda self: np.dtype(object))

    @property
    def _entries(self) -> list[Any]:
        found: list[Any] = self._branches[0].entries
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    @unobserved
    def copy(self, deep: bool = True) -> Any:
        return self._with(Objects(self._entries))

    @unobserved
    def astype(self, dtype: Any, copy: Any = None) -> Any:
        found = dispatch.table_method(self, "infer_objects")()
        if isinstance(found, TracedObjects):
            raise refused("astype of a Series of texts and traced numbers")
        return found.astype(dtype)

    @unobserved
    def to_numpy(self, dtype: Any = None, copy: bool = False) -> Any:
        return super().to_numpy() if dtype is None else self.astype(dtype).to_numpy(copy=copy)

    def _reduced(self, name: str, axis: Any, skipna: bool, ddof: Any) -> Any:
        return getattr(self.astype(float), name)(axis, skipna=skipna, **ddof)

    def _entry(self, how: str, key: Any) -> Any:
        if how in ("loc", "at") and isinstance(at := places(self._labels.index, key), int):
            return self._entries[at]
        if how in ("iloc", "iat") and isinstance(key, (int, np.integer)):
            return self._entries[key]
        return None


TracedObjects.__name__ = "Series"  # for messages
dispatch.objects = TracedObjects
