"""Arguments that come in parts: dask arrays, arrays in memory or on disk, lists, batches.

    x: dask array, chunks (3, 3, 2)    -->    x[0:3]   x[3:6]   x[6:8]     as delayed values
    y: np.memmap of 8 rows             -->    y[0:3]   y[3:6]   y[6:8]     read where they are used

Arrays are cut along their first axis, in the parts of the dask array or list beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError
from tapegrad.trees import tree_leaves

BYTES = 32 << 20  # of a part of an array that nothing else cuts


def parts_of(
    named: Mapping[str, Any], label: str, rows: int | None = None
) -> Iterator[dict[str, Any]]:
    """The parts of these arguments, one after the other: arrays, or what Dask makes arrays of."""
    cut = {name: _whole_rows(x, label, name) for name, x in named.items() if _is_array(x)}
    for name, x in named.items():
        if not _is_array(x) and not hasattr(x, "__iter__"):
            raise ArgumentError(
                f"{label}: argument {name!r} comes in parts, so it is a dask array, an array, a "
                f"list of parts or an iterable of them, not {x!r}"
            )
    lengths = _common_lengths(cut, len_of_lists(named, label), label, rows)
    columns: dict[str, Any] = {}
    for name, x in named.items():
        columns[name] = iter(x if name not in cut else _cut(cut[name], lengths))
    while True:
        part, missing = {}, []
        for name, column in columns.items():
            try:
                part[name] = next(column)
            except StopIteration:
                missing.append(name)
        if missing and part:
            raise ArgumentError(
                f"{label}: argument {missing[0]!r} has fewer parts than {next(iter(part))!r}"
            )
        if missing:
            return
        yield part


def rows_of(part: Mapping[str, Any], label: str) -> int:
    """How many rows the arguments of one part have: all arrays have as many."""
    found: dict[int, str] = {}
    for name, tree in part.items():
        for x in tree_leaves(tree):
            if np.ndim(x) == 0:
                raise ArgumentError(f"{label}: argument {name!r} has no rows: its shape is ()")
            found.setdefault(np.shape(x)[0], name)
    if len(found) > 1:
        said = " and ".join(f"{n} of {name!r}" for n, name in found.items())
        raise ArgumentError(f"{label}: a part has {said} rows")
    return next(iter(found), 0)


def rows_between(array: Any, start: int, stop: int) -> np.ndarray:
    """Some rows of an array that is in memory, or on disk."""
    return np.asarray(array[start:stop])


def is_dask(x: Any) -> bool:
    """Whether this is a dask array. Other collections of Dask's are no arrays."""
    return hasattr(x, "__dask_graph__") and hasattr(x, "rechunk")


def len_of_lists(named: Mapping[str, Any], label: str) -> int | None:
    """The number of parts that lists have; None if there is no list."""
    lists = {name: len(x) for name, x in named.items() if isinstance(x, (list, tuple))}
    if len(set(lists.values())) > 1:
        said = " and ".join(f"{n} of {name!r}" for name, n in lists.items())
        raise ArgumentError(f"{label}: lists of parts have one length, not {said}")
    return next(iter(lists.values()), None)


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _whole_rows(x: Any, label: str, name: str) -> Any:
    """An array whose rows are whole: of a dask array, cut along its first axis alone."""
    if len(x.shape) == 0:
        raise ArgumentError(f"{label}: argument {name!r} has no rows: its shape is ()")
    if is_dask(x) and any(n > 1 for n in x.numblocks[1:]):
        return x.rechunk(dict.fromkeys(range(1, x.ndim), -1))
    return x


def _common_lengths(
    cut: Mapping[str, Any], lists: int | None, label: str, rows: int | None
) -> Sequence[float]:
    """How many rows each part has."""
    if not cut:
        return ()
    if lists is not None:
        raise ArgumentError(
            f"{label}: {', '.join(map(repr, cut))} is an array and another argument is a list of "
            "parts. Pass lists for both, or arrays"
        )
    totals = {name: x.shape[0] for name, x in cut.items() if not math.isnan(x.shape[0])}
    if len(set(totals.values())) > 1:
        said = " and ".join(f"{n} of {name!r}" for name, n in totals.items())
        raise ArgumentError(f"{label}: arguments in parts have the same number of rows, not {said}")
    chunks = [x.chunks[0] for x in cut.values() if is_dask(x)]
    unknown = [c for c in chunks if any(map(math.isnan, c))]
    if unknown:
        if len(unknown) < len(cut) or len(set(map(len, unknown))) > 1:
            raise ArgumentError(
                f"{label}: chunks of unknown lengths can't be compared with others. Call "
                "compute_chunk_sizes() of the dask array"
            )
        return unknown[0]
    if chunks:
        return chunks[0]
    total = next(iter(totals.values()))
    size = rows or max(1, min(map(_rows_of_bytes, cut.values())))
    return [min(size, total - k) for k in range(0, total, size)] or [0]


def _rows_of_bytes(x: Any) -> int:
    row = int(np.prod(x.shape[1:], dtype=np.int64)) * x.dtype.itemsize
    return BYTES // max(row, 1)


def _cut(x: Any, lengths: Sequence[float]) -> Iterator[Any]:
    if is_dask(x):
        wanted = tuple(lengths)
        if x.chunks[0] != wanted and not any(map(math.isnan, wanted)):
            x = x.rechunk({0: wanted})
        yield from x.to_delayed().ravel()
        return
    from dask.delayed import delayed

    from tapegrad.dask.sending import Sent

    array, start = delayed(Sent(x), traverse=False), 0
    for n in map(int, lengths):
        yield delayed(_read)(array, start, start + n)
        start += n


def _read(array: Any, start: int, stop: int) -> np.ndarray:
    return rows_between(array.value, start, stop)
