"""The work for one part: a call of the derived function; and checks of functions in parts."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tapegrad.core.arrays import read
from tapegrad.core.handlers import let_through
from tapegrad.core.tables import is_table
from tapegrad.core.trees import mapped
from tapegrad.dask.parts import is_array, rows_between, rows_of
from tapegrad.dask.sending import Sent
from tapegrad.dask.sums import Share, share_of
from tapegrad.errors import ArgumentError, RandomnessError, UnsupportedError
from tapegrad.observe.program.source import at_source
from tapegrad.runtime.derived import Derived
from tapegrad.trees import tree_leaves, tree_map

ROWS = 64  # most rows in the check of a loss against the sum of its halves


class Job:
    """A derived function, and the names of its positional arguments in order."""

    def __init__(self, derived: Derived, loss: Any, names: Sequence[str]) -> None:
        self.derived, self.loss, self.names = derived, loss, names
        self._checked: weakref.WeakSet[Any] = weakref.WeakSet()

    def __reduce__(self) -> Any:
        return Job, (self.derived, self.loss, self.names)

    def __call__(self, given: Mapping[str, Any], own: Sequence[Any]) -> Any:
        """The derived function at these arguments; `own` are the generators among them."""
        more = {name: x for name, x in given.items() if name not in self.names}
        args = [given[name] for name in self.names]
        result = self.derived(*args, **more)
        for variant in self.derived.cache.all_variants():
            if variant not in self._checked:
                _check_outside(variant, self.derived, args, more, own)
                self._checked.add(variant)
        return result


def part_result(
    job: Sent, others: Sent, own: Mapping[str, Any], part: Mapping[str, Any], number: int
) -> Any:
    """The derived function at one part; `own` are generators for this part alone."""
    try:
        return job.value({**others.value, **own, **_aligned(part)}, [*own.values()])
    except Exception as error:
        shapes = ", ".join(f"{name} {_shapes(x)}" for name, x in part.items())
        error.add_note(f"This was part {number}, counted from 0, of shapes: {shapes}")
        raise


def part_rows(
    job: Sent, others: Sent, own: Mapping[str, Any], part: Mapping[str, Any], number: int
) -> Any:
    """The result of one part, for a function that returns one row for each row."""
    result, name = part_result(job, others, own, part, number), job.value.derived.__name__
    result = mapped(lambda x: np.asarray(x) if is_table(x) else x, result, is_table)
    rows = rows_of(part, name)
    for x in tree_leaves(result):
        if np.shape(x)[:1] != (rows,):
            raise ArgumentError(
                f"{name}: part {number}, counted from 0, has {rows} rows, and gives an array of "
                f"shape {np.shape(x)}. The results of parts are concatenated, so each row must "
                "give one. For a sum over rows, use tapegrad.dask.value_and_grad"
            )
    return result


def part_share(
    job: Sent,
    others: Sent,
    own: Mapping[str, Any],
    part: Mapping[str, Any],
    number: int,
    is_mean: bool,
) -> Share:
    """The contribution of one part to a sum or a mean over all rows."""
    rows = rows_of(part, job.value.derived.__name__)
    return share_of(part_result(job, others, own, part, number), rows, number, is_mean)


def check_loss(job: Sent, others: Sent, part: Mapping[str, Any], label: str, is_mean: bool) -> bool:
    """Raise an ArgumentError if a loss isn't the sum, or the mean, of the losses of its rows.

    Two properties are tested: the loss of no rows is 0 (unless a term doesn't depend on rows), and
    the loss of some rows is the sum, or the mean, of the losses of their halves. Returns whether
    the part could tell: a part of one row has no halves.
    """
    loss = job.value.loss
    part_result(job, others, {}, part, 0)  # errors of the loss itself come first
    rows = rows_of(part, label)
    if not is_mean:
        _check_no_rows(loss, others, part, label)
    part, others = tree_map(read, part), Sent(tree_map(read, others.value))
    half = min(rows, ROWS) // 2
    if half == 0:
        return False
    for moved in _there_and_elsewhere(others):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                both, one, two = (
                    np.asarray(loss(**moved, **_between(part, *ends)))
                    for ends in ((0, 2 * half), (0, half), (half, 2 * half))
                )
        except Exception as error:  # the loss doesn't accept a few rows
            let_through(error)
            return True
        halves = (one + two) / 2 if is_mean else one + two
        size = max(float(np.max(np.abs(x), initial=0.0)) for x in (both, one, two))
        digits = 1e-2 if both.dtype.itemsize <= 4 else 1e-6
        if np.all(np.isfinite(both)) and np.any(np.abs(both - halves) > digits * max(size, 1e-30)):
            word = "mean" if is_mean else "sum"
            raise ArgumentError(
                f"{label}: the loss of {2 * half} rows is {both:.6g}, and the {word} of the losses "
                f"of their halves, {one:.6g} and {two:.6g}, is {halves:.6g}. In parts, losses are "
                "added up, so no row may contribute to the loss of another. "
                + (
                    'A loss that is a sum over rows goes with reduce="sum"'
                    if is_mean
                    else 'A loss that is a mean over rows goes with reduce="mean"'
                )
                + "; check=False leaves this check out"
            )
    return True


def _there_and_elsewhere(others: Sent) -> Iterator[Any]:
    """The other arguments, and a shifted copy: at the arguments themselves a penalty, or an
    interaction of rows, may happen to be 0."""
    yield others.value
    yield tree_map(lambda x: x + 0.75 if np.asarray(x).dtype.kind == "f" else x, others.value)


def _check_no_rows(loss: Any, others: Sent, part: Mapping[str, Any], label: str) -> None:
    nothing = _between(part, 0, 0)
    for moved in _there_and_elsewhere(others):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                value = np.asarray(loss(**moved, **nothing))
        except Exception as error:  # not every function accepts an array of no rows
            let_through(error)
            return
        if value.dtype.kind in "fc" and np.any(np.isfinite(value) & (value != 0)):
            raise ArgumentError(
                f"{label}: the loss of no rows is {value:.6g}, not 0. A term that doesn't depend "
                "on the rows would count once for each part: take it out of the loss, and pass it "
                "as plus=penalty, a function of the other arguments, which is added once"
            )


def _between(part: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
    def rows(x: Any) -> Any:
        return rows_between(x, start, stop)

    return {name: mapped(rows, x, is_array) for name, x in part.items()}


def _check_outside(
    variant: Any, derived: Derived, args: Sequence[Any], more: Mapping[str, Any], own: Sequence[Any]
) -> None:
    """Raise an error for side effects, which parts can't have since they run anywhere."""
    traced, name = variant.traced, derived.__name__
    if traced.draws is not None and traced.draws.random:
        objects = variant.state.objects(derived.root, tuple(args), dict(more))
        if any(all(objects[k] is not g for g in own) for k in traced.draws.random):
            raise RandomnessError(
                f"{name} draws random numbers from a generator that isn't an argument, and its "
                "parts run in several threads or processes, which would draw in any order. Pass a "
                "numpy.random.Generator as an argument: each part gets a child that it spawns"
            )
    for word, src in traced.lines:
        raise UnsupportedError(
            f"{name} leaves a value in {word!r}{at_source(src)}, and its parts run in several "
            "threads or processes, which don't share that object. Return the value"
        )
    if traced.written:
        raise UnsupportedError(
            f"{name} writes to an array that it was passed or reached, and its parts run in "
            "several threads or processes, which don't share it. Write to a copy"
        )


def _aligned(tree: Any) -> Any:
    """A tree with aligned arrays, copied if necessary.

    Arrays from another process lie at arbitrary addresses, and NumPy may sum unaligned arrays in
    another order.
    """
    if all(x.flags.aligned for x in tree_leaves(tree) if isinstance(x, np.ndarray)):
        return tree
    return tree_map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, tree)


def _shapes(tree: Any) -> str:
    return ", ".join(str(np.shape(x)) for x in tree_leaves(tree))
