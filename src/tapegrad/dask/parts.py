"""Arguments in parts: dask arrays, arrays in memory or on disk, lists, batches.

    x: dask array, chunks (3, 3, 2)    -->    x[0:3]   x[3:6]   x[6:8]     as delayed values
    y: np.memmap of 8 rows             -->    y[0:3]   y[3:6]   y[6:8]     read where they are used

Arrays are cut along their first axis, at the borders of the dask array or list beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.core.tables import is_table
from tapegrad.core.trees import mapped
from tapegrad.errors import ArgumentError
from tapegrad.trees import tree_flatten, tree_unflatten

BYTES = 32 << 20  # size of a part, for arrays that no dask array or list divides


def parts_of(
    named: Mapping[str, Any], label: str, rows: int | None = None
) -> Iterator[dict[str, Any]]:
    """The parts of these arguments in order: arrays, or objects that Dask computes to arrays."""
    trees = {name: _tree_of_arrays(x) for name, x in named.items()}
    columns: dict[str, Any] = {}
    for name, (leaves, _) in trees.items():
        for k, x in enumerate(leaves):
            word = name if len(leaves) == 1 else f"{name}: array {k}"
            columns[word] = _checked(x, label, word)
    cut = {word: x for word, x in columns.items() if is_array(x)}
    lengths = _common_lengths(cut, _len_of_lists(columns, label), label, rows)
    for word, x in columns.items():
        columns[word] = iter(x if word not in cut else _cut(x, lengths))
    for row in _in_step(columns, label):
        parts = iter(row)
        yield {
            name: _part(structure, [next(parts) for _ in leaves])
            for name, (leaves, structure) in trees.items()
        }


def _tree_of_arrays(x: Any) -> tuple[list[Any], Any]:
    """An argument as its single leaf; a tree of arrays as its leaves and its structure."""
    if is_array(x) or type(x) in (list, tuple):
        return [x], None
    leaves: list[Any] = []

    def noted(leaf: Any) -> int:
        leaves.append(leaf)
        return 0

    structure = tree_flatten(mapped(noted, x, is_array))[1]  # a table is one leaf of it
    return ([x], None) if len(leaves) == 1 and leaves[0] is x else (leaves, structure)


def _part(structure: Any, leaves: list[Any]) -> Any:
    if structure is None:
        return leaves[0]
    from dask.delayed import delayed

    return delayed(tree_unflatten)(structure, leaves)


def _checked(x: Any, label: str, name: str) -> Any:
    """An argument in parts: an array with whole rows, or an iterable of parts."""
    if is_array(x):
        return _whole_rows(x, label, name)
    if hasattr(x, "__dask_graph__"):
        raise ArgumentError(
            f"{label}: argument {name!r} is a {type(x).__name__} of Dask's, not an array. For "
            "a DataFrame, pass x.to_dask_array(lengths=True)"
        )
    if isinstance(x, (str, bytes)) or not hasattr(x, "__iter__") or hasattr(x, "columns"):
        raise ArgumentError(
            f"{label}: argument {name!r} comes in parts, so it is a dask array, an array, a list "
            f"of parts, an iterable of them or a tree of arrays, not a {type(x).__name__}"
        )
    return x


def _in_step(columns: Mapping[str, Iterator[Any]], label: str) -> Iterator[list[Any]]:
    """The next entries of all columns; an error unless all end together."""
    while True:
        row, missing = [], []
        for word, column in columns.items():
            try:
                row.append(next(column))
            except StopIteration:
                missing.append(word)
        if missing and row:
            there = next(word for word in columns if word not in missing)
            raise ArgumentError(f"{label}: argument {missing[0]!r} has fewer parts than {there!r}")
        if missing:
            return
        yield row


def rows_of(part: Mapping[str, Any], label: str) -> int:
    """The number of rows of one part; an error unless all its arrays have the same."""
    found: dict[int, str] = {}
    for name, tree in part.items():
        arrays: list[Any] = []
        mapped(arrays.append, tree, is_array)  # a sparse array is one array
        for x in arrays:
            if np.ndim(x) == 0:
                raise ArgumentError(f"{label}: argument {name!r} has no rows: its shape is ()")
            found.setdefault(np.shape(x)[0], name)
    if len(found) > 1:
        said = " and ".join(f"{n} of {name!r}" for n, name in found.items())
        raise ArgumentError(f"{label}: a part has {said} rows")
    return next(iter(found), 0)


def rows_between(x: Any, start: int, stop: int) -> Any:
    """Some rows of an array or a pandas table; the table's rows are numbered from 0."""
    return x.iloc[start:stop].reset_index(drop=True) if is_table(x) else x[start:stop]


def is_dask(x: Any) -> bool:
    """Whether this is a dask array; other collections of Dask aren't arrays."""
    return hasattr(x, "__dask_graph__") and hasattr(type(x), "rechunk")


def _len_of_lists(named: Mapping[str, Any], label: str) -> int | None:
    """The number of parts of the lists; None without a list."""
    lists = {name: len(x) for name, x in named.items() if isinstance(x, (list, tuple))}
    if len(set(lists.values())) > 1:
        said = " and ".join(f"{n} of {name!r}" for name, n in lists.items())
        raise ArgumentError(f"{label}: lists of parts have one length, not {said}")
    return next(iter(lists.values()), None)


def is_array(x: Any) -> bool:
    """Whether this has rows: an array, or a pandas table."""
    # The types are asked, since a delayed value has any attribute.
    return is_table(x) or (hasattr(type(x), "shape") and hasattr(type(x), "dtype"))


def _whole_rows(x: Any, label: str, name: str) -> Any:
    """An array with whole rows: a dask array is rechunked to be cut along its first axis only."""
    if len(x.shape) == 0:
        raise ArgumentError(f"{label}: argument {name!r} has no rows: its shape is ()")
    if is_dask(x) and any(n > 1 for n in x.numblocks[1:]):
        return x.rechunk(dict.fromkeys(range(1, x.ndim), -1))
    return x


def _common_lengths(
    cut: Mapping[str, Any], lists: int | None, label: str, rows: int | None
) -> Sequence[float]:
    """The number of rows of each part."""
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
    width = 8 if is_table(x) else x.dtype.itemsize
    row = int(np.prod(x.shape[1:], dtype=np.int64)) * width
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


def _read(array: Any, start: int, stop: int) -> Any:
    rows = rows_between(array.value, start, stop)
    return rows if is_table(rows) else np.asarray(rows)  # the array may be on disk
