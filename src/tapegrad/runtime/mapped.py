"""Functions of many rows: `vmap`.

The function is traced for one row, and its tape becomes that of all rows. A row that takes another
path through the function is traced by itself; the tapes of all paths stand one after the other, and
masks say which rows took which (`runtime.paths`). So a function's Python control flow may depend on
the row, and the tape holds for all rows whose paths are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.core.request import Request, describe
from tapegrad.core.trees import is_number, is_traced, unflatten
from tapegrad.differentiate.batching import batch
from tapegrad.errors import ArgumentError, RandomnessError, TraceError, UnsupportedError
from tapegrad.optimize.dce import remove_dead
from tapegrad.runtime.derived import Derived
from tapegrad.runtime.paths import Mixed, Path, Rows, spread
from tapegrad.runtime.transformations import Derivation, Selection, Transformation
from tapegrad.tracing.drawn import Drawn
from tapegrad.tracing.draws import Calls
from tapegrad.tracing.observe.observer import following
from tapegrad.tracing.run import Traced, plain_value
from tapegrad.tracing.tracer import Tracer

MAX_PATHS = 16  # of one call


class Axes:
    """Where rows are: a number, None, or a tree of them that is a prefix of what it is about."""

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
    if isinstance(spec, dict):
        return "dict", tuple([(key, _hashable(x)) for key, x in spec.items()])
    if isinstance(spec, (tuple, list)):
        return type(spec).__name__, tuple(map(_hashable, spec))
    if spec is None or (isinstance(spec, (int, np.integer)) and not isinstance(spec, bool)):
        return spec
    raise ArgumentError(f"vmap: an axis is a number, or None where there are no rows, not {spec!r}")


@dataclass(frozen=True)
class VMap(Transformation):
    """The function of rows along `in_axes` of its arguments; results stand along `out_axes`."""

    in_axes: Axes
    out_axes: Axes

    name = "vmap"

    def within(self, request: Request, final: bool) -> Request:
        """The call of all rows, in whose trace there is one for a row: so what rows draw is drawn
        there, a row after the other."""
        if not final:
            return self.of_row(request, 0)
        return Request(_OfRows(request.f, self), request.args, request.kwargs, request.names)

    def of_row(self, request: Request, row: int) -> Request:
        """The call for one row."""
        axes, _ = self._axes(request)
        leaves = [_row(x, axis, row) for x, axis in zip(request.leaves, axes, strict=True)]
        args, kwargs = unflatten(request.structure, leaves)
        return Request(request.f, args, kwargs)

    def select(self, request: Request) -> Rows:
        axes, size = self._axes(request)
        observer = following.observer
        before = 0 if observer is None else len(observer.drawn)
        return Rows(request=request, axes=axes, size=size, before=before)

    def _axes(self, request: Request) -> tuple[list[int | None], int]:
        """The axis of each leaf along which its rows are, from 0 on, and how many there are."""
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
            each = [in_axes] * len(request.args)
        axes: list[int | None] = []
        for k, (arg, spec) in enumerate(zip(request.args, each, strict=True)):
            axes += spread(spec, arg, f"{label}: in_axes of argument {k}")
        for name in sorted(request.kwargs):
            axes += spread(0, request.kwargs[name], f"{label}: argument {name!r}")
        sizes = {}
        for n, (x, axis) in enumerate(zip(request.leaves, axes, strict=True)):
            if axis is None:
                continue
            word = request.words[n]
            if not is_traced(x) or is_number(x) or np.ndim(x) == 0:
                raise ArgumentError(
                    f"{label}: {word} is {_shown(x)}, which has no rows. Say None for it in "
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
        size = next(iter(sizes.values()))
        if not size:
            raise ArgumentError(f"{label}: there are no rows to trace")
        return axes, size

    def derive(self, traced: Traced, selection: Any, final: bool) -> Derivation:
        from tapegrad.pipeline import finished, inlined, playable

        if final:  # the trace has all rows
            kept = range(len(traced.tape.outputs))
            tape = playable(traced.tape)
            return Derivation(self, tape, traced.without_values(), Selection(), kept)
        paths = self._paths(traced, selection)
        mixed = Mixed(paths, selection, inlined)
        mixed.drawn = _drawn(paths, selection)
        tape, structure, captured = mixed.tape(self.out_axes.spec)
        count = len(tape.outputs)
        done = replace(
            traced,
            tape=tape,
            captured=captured,
            structure=structure,
            outputs=mixed.outputs,
            leaves=mixed.leaves,
            weak=[False] * len(mixed.outputs),
            written=(),
        )
        return Derivation(self, finished(tape), done.without_values(), Selection(), range(count))

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        return derivation.result(values)

    def _paths(self, traced: Traced, selection: Rows) -> list[Path]:
        """The paths of all rows: the first one is traced already."""
        from tapegrad.pipeline import trace

        request, size = selection.request, selection.size
        inputs = [
            (plain_value(x), axis)
            for x, axis in zip(request.leaves, selection.axes, strict=True)
            if is_traced(x)
        ]
        pending = np.ones(size, bool)
        row, paths = 0, []
        while True:
            _check(traced)
            example = [_row(x, axis, row) for x, axis in inputs]
            paths.append(Path(traced, example))
            if not traced.tape.guards:
                return paths
            holds = _rows_on(traced, inputs, size)
            if not holds[row]:
                raise TraceError(
                    f"vmap of {request.name}: row {row} took another path when its guards were "
                    "looked at again: its control flow depends on something that isn't an argument"
                )
            pending &= ~holds
            if not pending.any():
                return paths
            if len(paths) == MAX_PATHS:
                guard = traced.tape.guards[-1]
                at = f" ({guard.src}: `{guard.src.text}`)" if guard.src else ""
                raise TraceError(
                    f"vmap of {request.name}: rows take more than {MAX_PATHS} paths through it"
                    f"{at}. Compute with arrays where it takes a number for a plain one, or choose "
                    "by np.where"
                )
            row = int(np.argmax(pending))
            traced = trace(self.of_row(request, row))


def _row(x: Any, axis: int | None, row: int) -> Any:
    if axis is None:
        return x
    found = np.take(plain_value(x), row, axis)
    return np.array(found) if found.ndim else found[()]


def _shown(x: Any) -> str:
    return f"the number {x!r}" if is_traced(x) else f"{x!r} ({type(x).__name__})"


def _check(traced: Traced) -> None:
    """An error for what a row does beside computing, which rows would do in turn."""
    if traced.left:
        word, src = next(iter(traced.lines), ("an object", None))
        at = f" ({src}: `{src.text}`)" if src else ""
        raise UnsupportedError(
            f"vmap of {traced.name}: it leaves a value in {word!r}{at}. Of many rows there are "
            "many. Return the value"
        )


def _rows_on(traced: Traced, inputs: Sequence[tuple[Any, int | None]], size: int) -> Any:
    """Which rows are on the path of a trace."""
    tape = replace(traced.tape, outputs=(), output_names=())
    rows = [k for k, (_, axis) in enumerate(inputs) if axis is not None]
    masks, _ = batch(tape, rows, size, masks=True)
    values = [x if axis is None else np.moveaxis(x, axis, 0) for x, axis in inputs]
    captured = [plain_value(x) for x in traced.captured]
    found, _ = run(remove_dead(masks), [*values, *captured])
    return np.broadcast_to(found[0], (size,))


class _OfRows:
    """A function whose call is traced as that of a function of rows."""

    def __init__(self, f: Callable[..., Any], transformation: VMap) -> None:
        self.f, self.transformation = f, transformation
        self.__name__ = describe(f)
        self.__wrapped__ = f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Derived(self.f, self.transformation, "never")(*args, **kwargs)


def _drawn(paths: Sequence[Path], selection: Rows) -> dict[int, Any]:
    """What the rows draw, as a loop over them would, one after the other: by the numbers of the
    captured values of the first row's trace, those of all rows."""
    observer: Any = following.observer
    entries = [] if observer is None else observer.drawn[selection.before :]
    entries = [entry for entry in entries if isinstance(entry, Drawn)]
    if not entries:
        return {}
    traced, trace = paths[0].traced, observer.trace
    own = [x for x in traced.captured if isinstance(x, Tracer)]
    if len(paths) > 1 or any(x._trace is not trace for x in own):
        raise RandomnessError(
            f"vmap of {traced.name}: it draws random numbers, and "
            + ("rows take different paths" if len(paths) > 1 else "is part of a loop")
            + ". Draw them outside, for all rows, and pass them with a row for each"
        )
    columns: list[list[Any]] = [[_standing(entry, traced, trace)] for entry in entries]
    for _ in range(selection.size - 1):
        for entry, column in zip(entries, columns, strict=True):
            calls = Calls(observer, trace, entry.generator)
            found = calls.number(entry.method, *entry.args, **entry.kwargs)
            column.append(found)
    return {
        column[0]: np.stack([traced.captured[column[0]], *column[1:]])
        for column in columns
        if column[0] is not None
    }


def _standing(entry: Drawn, traced: Traced, trace: Any) -> int | None:
    """The number of the captured value that a draw gave; None if nothing reads it."""
    if entry.value is None:
        return None
    var, _ = trace.captured[id(entry.value)]
    places = [
        k for k, x in enumerate(traced.captured) if isinstance(x, Tracer) and x._read()[0] == var
    ]
    return places[0] if places else None
