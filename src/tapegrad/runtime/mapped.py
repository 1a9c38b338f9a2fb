"""Functions of many rows: `vmap`.

The function is traced for one row, and its tape is batched for all rows. A row that takes another
path through the function is traced by itself (`runtime.rows`). The tapes of all paths are combined,
and masks say which rows take which path (`runtime.paths`). So the function's control flow may
depend on the row, and the tape serves all rows whose paths are known. If rows have side effects,
they run one after the other, as in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.core.request import Request, describe
from tapegrad.core.trees import children, flatten, is_number, is_of_texts, is_traced, unflatten
from tapegrad.errors import ArgumentError
from tapegrad.observe.observer import unobserved
from tapegrad.runtime.paths import MixedPaths, Rows, is_axis, spread, together
from tapegrad.runtime.rows import Runs, row_of
from tapegrad.runtime.transformations import Derivation, Selection, Transformation
from tapegrad.tracing.runs.traced import Traced
from tapegrad.tracing.tracers.tracer import Tracer


class Axes:
    """The axes of rows: a number, None, or a tree of these that is a prefix of another tree."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self._key = _hashable(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axes) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> Any:
        return Axes, (self.spec,)


def _hashable(spec: Any) -> Any:
    axes, structure = flatten(spec)
    for axis in axes:
        if not is_axis(axis):
            raise ArgumentError(
                f"vmap: an axis is a number, or None where there are no rows, not {axis!r}"
            )
    return structure, tuple(axes)


@dataclass(frozen=True)
class VMap(Transformation):
    """The function of rows along `in_axes` of positional arguments, and along axis `named` of
    keyword arguments. Results have rows along `out_axes`."""

    in_axes: Axes
    out_axes: Axes
    named: int | None = 0

    name = "vmap"

    def within(self, request: Request) -> Request:
        """The call for all rows, in whose trace each row is traced. So random draws and side
        effects of rows happen there, row by row."""
        return Request(_OfRows(request.f, self), request.args, request.kwargs, request.names)

    def select(self, request: Request) -> Rows:
        axes, size = self._axes(request)
        return Rows(request=request, axes=axes, size=size)

    def _axes(self, request: Request) -> tuple[list[int | None], int]:
        """The axis of rows of each leaf, nonnegative or None, and the number of rows."""
        label = f"vmap of {request.name}"
        in_axes = self.in_axes.spec
        if isinstance(in_axes, (tuple, list)):
            if len(in_axes) != len(request.args):
                raise ArgumentError(
                    f"{label}: in_axes has {len(in_axes)} entries, and {len(request.args)} "
                    "positional arguments were passed. Give an entry for each, or one number"
                )
            each = list(in_axes)
        else:
            each = [None if _has_no_axes(arg) else in_axes for arg in request.args]
        axes: list[int | None] = []
        for k, (arg, spec) in enumerate(zip(request.args, each, strict=True)):
            axes += spread(spec, arg, f"{label}: in_axes of argument {k}")
        positional = len(axes)
        for name in sorted(request.kwargs):
            arg = request.kwargs[name]
            named = None if _has_no_axes(arg) else self.named
            axes += spread(named, arg, f"{label}: argument {name!r}")
        sizes = {}
        for n, (x, axis) in enumerate(zip(request.leaves, axes, strict=True)):
            if axis is None:
                continue
            word = request.words[n]
            if not is_traced(x) or is_number(x) or np.ndim(x) == 0:
                how = "Say" if n < positional else "Pass it by position, and say"
                raise ArgumentError(
                    f"{label}: {word} is {_shown(x)}, which has no rows. {how} None for it in "
                    "in_axes: then it is the same for all rows"
                )
            if not -x.ndim <= axis < x.ndim:
                raise ArgumentError(f"{label}: {word} has {x.ndim} axes, and in_axes says {axis}")
            axes[n] = axis % x.ndim
            sizes[word] = x.shape[axis]
        if not sizes:
            raise ArgumentError(
                f"{label}: no argument has rows. At least one entry of in_axes is a number"
            )
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{word} has {n}" for word, n in sizes.items())
            raise ArgumentError(f"{label}: arguments have different numbers of rows: {told}")
        return axes, next(iter(sizes.values()))

    def derive(self, traced: Traced, selection: Any, final: bool) -> Derivation:
        from tapegrad.pipeline import playable

        kept = range(len(traced.tape.outputs))
        tape = playable(traced.tape)
        computed = traced.computed if final else None
        return Derivation(self, tape, traced.without_values(), Selection(), kept, computed)

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        return derivation.result(values)

    # ---- in a trace of all rows

    def inside(self, request: Request) -> Any:
        rows = self.select(request.check(self.name))

        def row(k: int, part: Callable[[Any, int | None, int], Any]) -> Request:
            leaves = [part(x, axis, k) for x, axis in zip(request.leaves, rows.axes, strict=True)]
            args, kwargs = unflatten(request.structure, leaves)
            return Request(request.f, args, kwargs)

        runs = Runs(request, rows, lambda k: row(k, row_of), lambda k: row(k, _part))
        found = runs.in_turn()
        if found is not None:
            return together(found, self.out_axes.spec, f"vmap of {request.name}")
        return self.recorded(request, self._mixed(runs, rows))

    def _mixed(self, runs: Runs, rows: Rows) -> Derivation:
        """The derivation for all rows, from the tapes of their paths."""
        from tapegrad.optimize.inline import inline_calls
        from tapegrad.pipeline import finished, settled

        mixed = MixedPaths(runs.paths, rows, inline_calls, settled, runs.drawn)
        tape, structure, captured = mixed.tape(self.out_axes.spec)
        count = len(tape.outputs)
        done = replace(
            runs.paths[0].traced,
            tape=tape,
            captured=captured,
            structure=structure,
            outputs=mixed.outputs,
            leaves=mixed.leaves,
            weak=[False] * len(mixed.outputs),
            written=(),
        )
        return Derivation(self, finished(tape), done.without_values(), Selection(), range(count))


def _has_no_axes(arg: Any) -> bool:
    """Whether an argument is neither an array or a number nor made of such; for example a
    string."""
    return children(arg) is None and not (is_traced(arg) or is_of_texts(arg))


def _part(x: Any, axis: int | None, row: int) -> Any:
    """A row of a value of the trace."""
    if axis is None or not isinstance(x, Tracer):
        return row_of(x, axis, row)
    return x[(slice(None),) * axis + (row,)]


def _shown(x: Any) -> str:
    return f"the number {x!r}" if is_traced(x) else f"{x!r} ({type(x).__name__})"


class _OfRows:
    """A function of rows, as the function that is traced."""

    def __init__(self, f: Callable[..., Any], transformation: VMap) -> None:
        self.f, self.transformation = f, transformation
        self.__name__ = describe(f)
        self.__wrapped__ = f

    @unobserved
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.transformation.inside(Request(self.f, args, kwargs))
