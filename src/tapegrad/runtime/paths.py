"""The tape of many rows, from the tapes of the paths that they take.

m1 = x > 0                          the guards of the first path y1 = f1(where(m1, x, a))
a is a row that took this path y2 = f2(where(m2, x, b)) y  = where(m1, y1, y2)              guard:
each row takes one of these paths
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.core.trees import children, flatten, is_traced, unflatten
from tapegrad.differentiate.batching import batch
from tapegrad.errors import ArgumentError, TraceError
from tapegrad.ir.tape import Builder, Guard, Literal, Operand, Tape, Var
from tapegrad.observe.guards.queried import same
from tapegrad.optimize.dce import remove_dead
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.batches import repeated
from tapegrad.primitives.elementwise import AsType, logical_and, logical_not, logical_or, where
from tapegrad.primitives.kinds import (
    Contraction,
    Extremal,
    Library,
    Reduction,
    Running,
    View,
)
from tapegrad.primitives.reductions import All, Any_, ArgMax
from tapegrad.primitives.scatter import gather
from tapegrad.primitives.views import Reshape, Transpose
from tapegrad.runtime.transformations import Selection
from tapegrad.tracing.runs.traced import Traced


@dataclass(frozen=True)
class Rows(Selection):
    """The call. Its leaves have `size` rows along `axes`; None for a leaf that is the same for all
    rows."""

    request: Any = None
    axes: Sequence[int | None] = ()
    size: int = 0


class Path(NamedTuple):
    """One path: its trace, and the leaves of one row that takes it."""

    traced: Traced
    example: list[Any]


def is_axis(spec: Any) -> bool:
    """Whether this is an axis of rows: a number, or None."""
    return spec is None or (isinstance(spec, (int, np.integer)) and not isinstance(spec, bool))


def spread(spec: Any, tree: Any, label: str) -> list[Any]:
    """The axis of each leaf of a tree, given a prefix of the tree with axes."""
    if is_axis(spec):
        axis = None if spec is None else int(spec)
        return [axis] * len(flatten(tree)[0])
    parts, specs = children(tree), children(spec)
    if isinstance(tree, dict) and isinstance(spec, dict) and tree.keys() == spec.keys():
        return [x for key in sorted(tree) for x in spread(spec[key], tree[key], label)]
    if parts is None or specs is None or len(parts) != len(specs):
        raise ArgumentError(f"{label} isn't put together as what it is about: {spec!r}")
    return [x for s, t in zip(specs, parts, strict=True) for x in spread(s, t, label)]


class MixedPaths:
    """Builds the tape of all rows from the tapes of their paths.

    Captured values in `drawn` have a row each. `inline` inlines sub-tapes. `settle` also inlines
    users' primitives, since their guards decide which rows take a path.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        selection: Rows,
        inline: Callable[[Tape], Tape],
        settle: Callable[[Tape], Tape],
        drawn: dict[int, Any],
    ) -> None:
        self.paths, self.size, self.drawn = paths, selection.size, drawn
        self.inline, self.settle = inline, settle
        self.axes = [
            axis
            for x, axis in zip(selection.request.leaves, selection.axes, strict=True)
            if is_traced(x)
        ]
        self.rows = [k for k, axis in enumerate(self.axes) if axis is not None]
        self.outputs: list[int | None] = []
        self.leaves: list[Any] = []
        self.captured: list[Any] = []
        self.name = f"vmap_{paths[0].traced.name}"
        self.builder = Builder(self.name)
        self.writer = Writer(self.builder)

    def tape(self, out_axes: Any) -> tuple[Tape, Any, tuple[Any, ...]]:
        """The tape, the structure of its result, and the captured arrays."""
        first = self.paths[0].traced
        count = len(self.axes)
        inputs = self._inputs(first.tape)
        places = []
        for path in self.paths:
            tape = path.traced.tape
            taken = []
            further = zip(
                tape.inputs[count:], tape.names[count:], path.traced.captured, strict=True
            )
            for k, (var, name, x) in enumerate(further):
                aval = var.aval
                if k in self.drawn:
                    aval, x = aval.with_shape((self.size, *aval.shape)), self.drawn[k]
                taken.append(self.writer.node(self.builder.input(aval, name)))
                self.captured.append(x)
            places.append(taken)
        nodes = [self._rows_first(x, axis) for x, axis in zip(inputs, self.axes, strict=True)]
        if len(self.paths) == 1:
            results = self._path(self.paths[0].traced, [*nodes, *places[0]], guards=True)
        else:
            results = self._choice(nodes, places)
        found = self._results(results, out_axes)
        return self.builder.finish(found), first.structure, tuple(self.captured)

    def _inputs(self, tape: Tape) -> list[Node]:
        found = []
        for var, axis, name in zip(tape.inputs, self.axes, tape.names, strict=False):
            shape = list(var.aval.shape)
            aval = var.aval
            if axis is not None:
                shape.insert(axis, self.size)
                aval = aval.with_shape(shape)
            found.append(self.writer.node(self.builder.input(aval, name)))
        return found

    def _rows_first(self, x: Node, axis: int | None) -> Node:
        if not axis:
            return x
        rest = [k for k in range(x.ndim) if k != axis]
        found: Node = Transpose((axis, *rest))(x)
        return found

    def _path(self, traced: Traced, nodes: Sequence[Node], guards: bool) -> list[Any]:
        """The leaves of the result for all rows, each with whether it has rows."""
        tape = self.inline(traced.tape)
        if not guards:
            tape = replace(tape, guards=())
        those = [*self.rows, *[len(self.axes) + k for k in self.drawn]]
        rows, have = batch(tape, those, self.size)
        values = self._recorded(rows, nodes)
        return [
            (self.writer.node(_constant(traced, k)) if _is_constant(traced, k) else None, False)
            if at is None
            else (values[at], have[at])
            for k, at in enumerate(traced.outputs)
        ]

    def _recorded(self, tape: Tape, nodes: Sequence[Node]) -> list[Node]:
        """Record the calls of a tape here, and return its outputs."""
        env: dict[Var, Operand] = {v: x.operand for v, x in zip(tape.inputs, nodes, strict=True)}

        def operand(x: Operand) -> Operand:
            return x if isinstance(x, Literal) else env[x]

        for call in tape.calls:
            outs = self.builder.again(call, [operand(x) for x in call.operands])
            env.update(zip(call.outs, outs, strict=True))
        self.builder.guards += [replace(g, operand=operand(g.operand)) for g in tape.guards]
        return [self.writer.node(operand(x)) for x in tape.outputs]

    # ---- several paths

    def _choice(self, nodes: Sequence[Node], places: Sequence[Sequence[Node]]) -> list[Any]:
        masks: list[Any] = []
        taken: Any = None  # rows that take an earlier path
        for path, captured in zip(self.paths, places, strict=True):
            mask = self._mask(path, nodes, captured)
            if taken is None:
                masks.append(mask)
                taken = mask
            else:
                masks.append(logical_and(mask, logical_not(taken)))
                taken = logical_or(taken, mask)
        every = All((0,))(taken).operand
        self.builder.guards.append(Guard(every, Literal(np.bool_(True)), "paths of rows"))
        each = []
        for path, captured, mask in zip(self.paths, places, masks, strict=True):
            given = self._given(path, nodes, mask)
            each.append(self._path(path.traced, [*given, *captured], guards=False))
        self._check_alike()
        return [self._chosen([leaves[k] for leaves in each], masks) for k in range(len(each[0]))]

    def _mask(self, path: Path, nodes: Sequence[Node], captured: Sequence[Node]) -> Node:
        """The mask of rows that take a path.

        A row that leaves the path might raise an error in the calls after that. So before such
        calls it is replaced by a row that stays on the path.
        """
        tape = self.settle(replace(path.traced.tape, outputs=(), output_names=()))
        mask: Any = None
        for guards in _stages(tape):
            given = nodes if mask is None else self._given(path, nodes, mask)
            rows, _ = batch(replace(tape, guards=guards), self.rows, self.size, masks=True)
            (found,) = self._recorded(remove_dead(rows), [*given, *captured])
            mask = found if mask is None else logical_and(mask, found)
        done: Node = mask
        return done

    def _given(self, path: Path, nodes: Sequence[Node], mask: Any) -> list[Node]:
        """The inputs with rows off the path replaced by one on it: the first such row, or else that
        of the trace."""
        first = Reshape((1,))(ArgMax(0)(mask))
        some = Any_((0,))(mask)
        found = []
        for x, axis, example in zip(nodes, self.axes, path.example, strict=True):
            if axis is None:
                found.append(x)
                continue
            one = self._example(x, example)
            row = where(some, gather(x, first), one)
            flags = mask if x.ndim == 1 else Reshape((self.size, *(1,) * (x.ndim - 1)))(mask)
            found.append(where(flags, x, row))
        return found

    def _example(self, x: Node, example: Any) -> Node:
        """The row of the trace, as a captured array with one row."""
        self.captured.append(np.array(example, x.dtype)[None])
        aval = x.aval.with_shape((1, *x.shape[1:]))
        return self.writer.node(self.builder.input(aval, f"row{len(self.captured)}"))

    def _check_alike(self) -> None:
        first = self.paths[0].traced
        for path in self.paths[1:]:
            other = path.traced
            if other.structure != first.structure:
                raise TraceError(
                    f"vmap of {first.name}: its result is put together in one way for some rows, "
                    "and in another for others"
                )
            for k, (a, b) in enumerate(zip(first.outputs, other.outputs, strict=True)):
                shapes = [
                    () if at is None else t.tape.outputs[at].shape
                    for t, at in ((first, a), (other, b))
                ]
                label = f"vmap of {first.name}: result {k}"
                if shapes[0] != shapes[1]:
                    raise _shapes(label, *shapes)
                if not _same_object(first, other, k):
                    raise _differ(label, first.leaves[k], other.leaves[k])

    def _chosen(self, leaves: Sequence[tuple[Any, bool]], masks: Sequence[Any]) -> tuple[Any, bool]:
        if any(x is None for x, _ in leaves):
            return None, False
        dtype = np.result_type(*[x.dtype for x, _ in leaves])
        full = []
        for x, has in leaves:
            y = x if has else repeated(x, self.size)
            full.append(y if y.dtype == dtype else AsType(dtype)(y))
        found = full[-1]
        for x, mask in reversed(list(zip(full[:-1], masks[:-1], strict=True))):
            flags = mask if x.ndim == 1 else Reshape((self.size, *(1,) * (x.ndim - 1)))(mask)
            found = where(flags, x, found)
        return found, True

    # ---- the results

    def _results(self, results: Sequence[tuple[Any, bool]], out_axes: Any) -> list[Operand]:
        """The outputs of the tape, with rows along the requested axes."""
        first = self.paths[0].traced
        tree = unflatten(first.structure, list(range(len(results))))
        axes = spread(out_axes, tree, f"vmap of {first.name}: out_axes")
        found: list[Operand] = []
        for k, ((x, has), axis) in enumerate(zip(results, axes, strict=True)):
            if x is None:
                self.outputs.append(None)
                self.leaves.append(first.leaves[k])
                continue
            self.outputs.append(len(found))
            self.leaves.append(None)
            found.append(self._placed(first, k, x, has, axis).operand)
        return found

    def _placed(self, first: Traced, k: int, x: Any, has: bool, axis: int | None) -> Any:
        label = f"vmap of {first.name}: out_axes of result {k}"
        if axis is None:
            if has:
                raise ArgumentError(f"{label} is None, and the result differs from row to row")
            return x
        y = x if has else repeated(x, self.size)
        if not -y.ndim <= axis < y.ndim:
            raise ArgumentError(f"{label} is {axis}, and it has {y.ndim} axes")
        axis %= y.ndim
        if not axis:
            return y
        order = list(range(1, y.ndim))
        order.insert(axis, 0)
        return Transpose(tuple(order))(y)


def _stages(tape: Tape) -> list[tuple[Guard, ...]]:
    """The guards in stages. Guards of a later stage need calls that may raise an error, unless
    earlier guards hold."""
    needs: dict[Any, set[int]] = {}  # variable -> calls that it needs and that may raise an error
    for number, call in enumerate(tape.calls):
        found = set().union(*[needs.get(x, set()) for x in call.operands])
        if not (call.primitive.pointwise or isinstance(call.primitive, _NEVER_RAISING)):
            found.add(number)
        needs.update(dict.fromkeys(call.outs, found))
    stages: list[list[Guard]] = [[]]
    known: set[int] = set()
    for guard in tape.guards:
        further = needs.get(guard.operand, set()) - known
        if further and stages[-1]:
            stages.append([])
        known |= further
        stages[-1].append(guard)
    return [tuple(stage) for stage in stages]


_NEVER_RAISING = (Reduction, Running, Extremal, View, Contraction, Library)  # never raise an error


def _is_constant(traced: Traced, k: int) -> bool:
    x = traced.leaves[k]
    return isinstance(x, (bool, int, float, complex, np.number, np.bool_))


def _same_object(first: Traced, other: Traced, k: int) -> bool:
    """Whether result k is the same on both paths, if it is a string or another object on one."""
    if all(t.outputs[k] is not None or _is_constant(t, k) for t in (first, other)):
        return True
    if first.outputs[k] is not None or other.outputs[k] is not None:
        return False
    return first.leaves[k] is other.leaves[k] or same(first.leaves[k], other.leaves[k])


def _constant(traced: Traced, k: int) -> Literal:
    value: Any = np.asarray(traced.leaves[k])[()]
    return Literal(value)


# ---- rows that went in turn


def together(results: Sequence[Any], out_axes: Any, label: str) -> Any:
    """The results of all rows combined, with rows along the requested axes."""
    trees = [flatten(x) for x in results]
    structure = trees[0][1]
    if any(other != structure for _, other in trees):
        raise TraceError(
            f"{label}: its result is put together in one way for some rows, and in another for "
            "others"
        )
    axes = spread(out_axes, results[0], f"{label}: out_axes")
    columns = zip(*[leaves for leaves, _ in trees], strict=True)
    return unflatten(
        structure,
        [
            _one(column, axis, f"{label}: result {k}")
            for k, (column, axis) in enumerate(zip(columns, axes, strict=True))
        ],
    )


def _one(column: Sequence[Any], axis: int | None, label: str) -> Any:
    first = column[0]
    numbers = [is_traced(x) or isinstance(x, (bool, complex, np.bool_)) for x in column]
    if not any(numbers) or axis is None:
        for x in column[1:]:
            if x is not first and not (numbers[0] and axis is not None) and not same(first, x):
                raise (
                    _differ(label, first, x)
                    if axis is not None
                    else ArgumentError(
                        f"{label}: out_axes is None, and the result differs from row to row"
                    )
                )
        return first
    for x, yes in zip(column, numbers, strict=True):
        if not yes or not numbers[0]:
            raise _differ(label, first, x)
        if np.shape(x) != np.shape(first):
            raise _shapes(label, np.shape(first), np.shape(x))
    if not -np.ndim(first) - 1 <= axis <= np.ndim(first):
        raise ArgumentError(f"{label}: out_axes is {axis}, and it has {np.ndim(first) + 1} axes")
    return np.stack(column, axis)


def _shapes(label: str, first: Any, other: Any) -> TraceError:
    return TraceError(
        f"{label} has shape {first} for some rows, and {other} for others. Rows must give arrays "
        "of one shape"
    )


def _differ(label: str, first: Any, other: Any) -> TraceError:
    return TraceError(
        f"{label} is {first!r} for some rows, and {other!r} for others. What isn't a number has no "
        "rows: return a number in its place, or loop over the rows"
    )
