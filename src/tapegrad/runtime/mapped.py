"""Functions of many rows: `vmap`.

The function is traced for one row, and its tape becomes that of all rows. A row that takes another
path through the function is traced by itself; the tapes of all paths stand one after the other, and
masks say which rows took which:

    m1 = x > 0                          the guards of the first path
    y1 = f1(where(m1, x, a))            a is a row that took this path
    y2 = f2(where(m2, x, b))
    y  = where(m1, y1, y2)              guard: each row has one of these paths

So a function's Python control flow may depend on the row, and the tape holds for all rows whose
paths are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tapegrad.backends.numpy.play import run
from tapegrad.core.request import Request
from tapegrad.core.trees import children, flatten, is_number, is_traced, unflatten
from tapegrad.differentiate.batching import batch
from tapegrad.errors import ArgumentError, RandomnessError, TraceError, UnsupportedError
from tapegrad.ir.tape import Builder, Guard, Literal, Operand, Tape, Var
from tapegrad.optimize.dce import remove_dead
from tapegrad.primitives.base import Node, Writer
from tapegrad.primitives.batches import repeated
from tapegrad.primitives.elementwise import AsType, logical_and, logical_not, logical_or, where
from tapegrad.primitives.reductions import All, Any_, ArgMax
from tapegrad.primitives.scatter import gather
from tapegrad.primitives.views import Reshape, Transpose
from tapegrad.runtime.transformations import Derivation, Selection, Transformation
from tapegrad.tracing.run import Traced, plain_value

MAX_PATHS = 16  # of one call


@dataclass(frozen=True)
class Rows(Selection):
    """The call, whose leaves have their rows along `axes`, None of those that are the same for all
    of the `size` rows."""

    request: Any = None
    axes: Sequence[int | None] = ()
    size: int = 0


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


class Path(NamedTuple):
    """What the rows have in common that take one path: its trace, and one of these rows."""

    traced: Traced
    example: list[Any]


@dataclass(frozen=True)
class VMap(Transformation):
    """The function of rows along `in_axes` of its arguments; results stand along `out_axes`."""

    in_axes: Axes
    out_axes: Axes

    name = "vmap"

    def within(self, request: Request, row: int = 0) -> Request:
        """The call for one row."""
        axes, _ = self._axes(request)
        leaves = [_row(x, axis, row) for x, axis in zip(request.leaves, axes, strict=True)]
        args, kwargs = unflatten(request.structure, leaves)
        return Request(request.f, args, kwargs)

    def select(self, request: Request) -> Rows:
        axes, size = self._axes(request)
        return Rows(request=request, axes=axes, size=size)

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

        paths = self._paths(traced, selection)
        mixed = _Mixed(paths, selection, inlined)
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
        tape = playable(tape) if final else finished(tape)
        return Derivation(self, tape, done.without_values(), Selection(), range(count))

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
            traced = trace(self.within(request, row))


def spread(spec: Any, tree: Any, label: str) -> list[Any]:
    """For each leaf of a tree what a prefix of it says: a number, or None."""
    if spec is None or (isinstance(spec, (int, np.integer)) and not isinstance(spec, bool)):
        axis = None if spec is None else int(spec)
        return [axis] * len(flatten(tree)[0])
    parts, specs = children(tree), children(spec)
    if isinstance(tree, dict) and isinstance(spec, dict) and tree.keys() == spec.keys():
        return [x for key in sorted(tree) for x in spread(spec[key], tree[key], label)]
    if parts is None or specs is None or len(parts) != len(specs):
        raise ArgumentError(f"{label} isn't put together as what it is about: {spec!r}")
    return [x for s, t in zip(specs, parts, strict=True) for x in spread(s, t, label)]


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
    if traced.draws is not None:
        raise RandomnessError(
            f"vmap of {traced.name}: it draws random numbers. Draw them outside, for all rows, and "
            "pass them with a row for each"
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


class _Mixed:
    """The tape of all rows, of the tapes of their paths."""

    def __init__(
        self, paths: Sequence[Path], selection: Rows, inline: Callable[[Tape], Tape]
    ) -> None:
        self.paths, self.size = paths, selection.size
        self.inline = inline
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
        """The tape, the structure of its result, and what it captures."""
        first = self.paths[0].traced
        count = len(self.axes)
        inputs = self._inputs(first.tape)
        places = []
        for path in self.paths:
            tape = path.traced.tape
            taken = []
            for var, name, x in zip(
                tape.inputs[count:], tape.names[count:], path.traced.captured, strict=True
            ):
                taken.append(self.writer.node(self.builder.input(var.aval, name)))
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
        """The result's leaves for all rows, each with whether it has rows."""
        tape = self.inline(traced.tape)
        if not guards:
            tape = replace(tape, guards=())
        rows, have = batch(tape, self.rows, self.size)
        values = self._recorded(rows, nodes)
        return [
            (self.writer.node(_constant(traced, k)) if _is_constant(traced, k) else None, False)
            if at is None
            else (values[at], have[at])
            for k, at in enumerate(traced.outputs)
        ]

    def _recorded(self, tape: Tape, nodes: Sequence[Node]) -> list[Node]:
        """The outputs of a tape's calls, recorded here."""
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
        taken: Any = None  # by a path before
        for path, captured in zip(self.paths, places, strict=True):
            mask = self._mask(path.traced, [*nodes, *captured])
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

    def _mask(self, traced: Traced, nodes: Sequence[Node]) -> Node:
        tape = self.inline(replace(traced.tape, outputs=(), output_names=()))
        if any(call.primitive.checks for call in tape.calls):
            raise TraceError(
                f"vmap of {traced.name}: rows take different paths, and one of them has a loop "
                "with conditions of its own. Choose by np.where in the loop"
            )
        rows, _ = batch(tape, self.rows, self.size, masks=True)
        (found,) = self._recorded(remove_dead(rows), nodes)
        return found

    def _given(self, path: Path, nodes: Sequence[Node], mask: Any) -> list[Node]:
        """The inputs with a row that takes the path in the place of those that don't: one of these
        rows, or that of the trace where there is none."""
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
        """A row as the trace had it, as an array of one row that the tape captures."""
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
                if shapes[0] != shapes[1]:
                    raise TraceError(
                        f"vmap of {first.name}: result {k} has shape {shapes[0]} for some rows, "
                        f"and {shapes[1]} for others. Rows must give arrays of one shape"
                    )

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
        """The tape's outputs, with rows along the axes that are wanted."""
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


def _is_constant(traced: Traced, k: int) -> bool:
    x = traced.leaves[k]
    return isinstance(x, (bool, int, float, complex, np.number, np.bool_))


def _constant(traced: Traced, k: int) -> Literal:
    value: Any = np.asarray(traced.leaves[k])[()]
    return Literal(value)
