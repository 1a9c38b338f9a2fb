"""The closed set of kinds, and what their primitives declare. The kind decides how code is emitted.

    Reduction     folds axes with an associative operation
    Running       the same along one axis, keeping every step
    Extremal      the position of the largest or smallest element along an axis
    View          an index map from the result to the operand; never a copy
    Region        a region of a matrix, with zeros elsewhere
    Scatter       writes or adds its operands into a larger result
    Lookup        reads at index arrays
    Indexed       a view or a scatter at an index
    Fixed         the same at a static index
    Moving        the same at an index that moves with the rounds of a loop
    Growing       the same at an index whose extents change too
    Taking        a Growing view, with a fill value behind its elements
    Unset         memory that is written before it is read
    Contraction   a sum of products over shared axes
    Routine       a call of LAPACK, or of another kernel on whole arrays
    Library       a call that only NumPy can make
    Composite     replaced by a few other calls after the last differentiation
    Control       holds sub-tapes
    Repeated      holds a sub-tape that runs repeatedly

Elementwise primitives are in `base`. A stage queries the kind of a primitive and its declared
facts, never its class.

Names: `at` an index with one entry for each axis; an entry is an integer or an affine number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.values import OWN, UNSET, VIEW
from tapegrad.ir.affine import MovingIndex
from tapegrad.ir.fold import Fold
from tapegrad.ir.tape import METHODS, Aval, Builder, Call, Operand, Tape, aval_of
from tapegrad.ir.traits import Algebra
from tapegrad.primitives.base import Parametric, Slice, Writer, broadcast_shapes, parametric, total
from tapegrad.primitives.texts import axes_text, dtype_text

At = Sequence[Any]
StaticIndex = tuple[int | Slice, ...]


class Linear(Parametric):
    """Mixin: a linear map of one operand. `transpose` is its reverse rule, the map its forward
    rule."""

    algebra = Algebra(additive=(0,))

    def transpose(self, ct: Any, x: Aval) -> Any:
        """The transposed map, applied to a cotangent; `x` is the operand's type."""
        raise NotImplementedError

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return (self.transpose(ct, xs[0].aval),)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return None if ts[0] is None else self(ts[0])


class Bilinear(Parametric):
    """Mixin: linear in each of two operands; the forward rule is the product rule."""

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        (x, y), (tx, ty) = xs, ts
        terms = ([] if tx is None else [self(tx, y)]) + ([] if ty is None else [self(x, ty)])
        return terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else None


class Underived(Parametric):
    """Mixin: no derivative. Results are integers or booleans, or nothing needs a derivative."""

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return (None,) * len(xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return None if self.results == 1 else (None,) * self.results


class _Carrying(Parametric):
    """A primitive that moves elements: zeros of its operands are zeros of its result."""

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        return any(kept)


class AlongAxes(Parametric):
    """Mixin: a primitive that works along `axes`, separately for each index of the other axes."""

    axes: tuple[int, ...]

    def of_rows(self, size: int) -> Any:
        return self.changed(axes=tuple([a + 1 for a in self.axes]))


class AlongAxis(Parametric):
    """Mixin: a primitive that works along `axis`."""

    axis: int

    def of_rows(self, size: int) -> Any:
        return self.changed(axis=self.axis + 1)


class Reduction(AlongAxes):
    """A fold of `axes` by `fold`; they disappear from the shape. Named like NumPy's function."""

    fold: ClassVar[Fold]
    typed: ClassVar[bool] = False  # whether NumPy's function may choose another dtype by default
    memory = OWN

    def kept(self, x: Aval) -> tuple[int, ...]:
        return tuple(n for axis, n in enumerate(x.shape) if axis not in self.axes)

    def aval(self, *xs: Aval) -> Aval:
        return xs[0].with_shape(self.kept(xs[0]))

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        (x,) = call.operands
        chosen = self.typed and x.dtype not in (np.float32, np.int64)
        dtype = dtype_text(x.dtype, ", dtype=") if chosen else ""
        return [f"{outs[0]} = np.{self.name}({xs[0]}{axes_text(self.axes, x.shape)}{dtype})"]


class Running(AlongAxis):
    """A fold of the last operand along `axis` that keeps every step; from the end, if `reverse`. If
    there is another operand, its entries multiply the partial result between two steps. Named like
    NumPy's function."""

    reverse: bool = False

    fold: ClassVar[Fold]

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        name, axis, dtype = self.name, self.axis, call.out.dtype
        given = "" if dtype == np.float32 else dtype_text(dtype, ", dtype=")
        if not self.reverse:
            return [f"{outs[0]} = np.{name}({xs[0]}, {axis}{given})"]
        inner = f"np.{name}(np.flip({xs[0]}, {axis}), {axis}{given})"
        return [f"{outs[0]} = np.flip({inner}, {axis})"]


class Extremal(AlongAxis):
    """The position along `axis` of the first element that is `better` (`<` or `>`) than all others;
    NaN wins. Named like NumPy's function."""

    better: ClassVar[str]

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        return [f"{outs[0]} = np.{self.name}({xs[0]}, {self.axis})"]


class View(_Carrying):
    """An index map: for each element of the result, its position in the operand. Never a copy."""

    memory = VIEW
    of_complex = True
    relabels: ClassVar[bool] = False  # whether the result is the operand's memory in another shape

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The order of axes, if the view only permutes axes; else None."""
        return None

    def read(self, at: At, shape: tuple[int, ...]) -> At | None:
        """The position of the result's element `at` in an operand of this `shape`. None if the
        entries of the position don't follow from those of `at` one by one."""
        raise NotImplementedError


class Region(Parametric):
    """The elements of the last two axes on the diagonal `offset` and below it, or above it without
    `lower`; zeros elsewhere."""

    lower: bool
    offset: int


class Scatter(Parametric):
    """Writes or adds operands into a larger result: those after the first if the result starts as
    that, else all. Their places are boxes, or given by `write`. If `indexed`, one operand is
    written, and the operands after it are the index arrays of its places."""

    of_complex = True
    onto: ClassVar[str] = "zeros"  # the result's initial elements: "zeros", "first" or "nothing"
    indexed: ClassVar[bool] = False
    sure: Any = False  # whether index arrays are known to be in range

    def boxes(self, *xs: Any) -> Sequence[StaticIndex]:
        """The index of each written operand in the result; empty if the places aren't boxes."""
        return ()

    def write(self, at: At) -> At:
        """The position in the result of the operand's element `at`."""
        raise NotImplementedError

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        return self.onto != "nothing" or any(kept)


class Lookup(_Carrying):
    """The elements of the first operand at index arrays, which are the other operands."""

    of_complex = True
    sure: Any = False  # whether the index arrays are known to be in range


class Indexed(Parametric):
    """Mixin: a primitive on the elements of a larger array at `index`, which has an integer or a
    `Slice` for each axis."""

    index: StaticIndex
    moves: Any  # for each step, how the index moves

    of_complex = True
    adds: ClassVar[bool] = False  # whether it adds to the elements instead of replacing them

    @property
    def where(self) -> MovingIndex:
        return MovingIndex(self.index, self.moves)

    def steps(self, xs: Sequence[Any]) -> Sequence[Any]:
        """The operands that are steps."""
        return xs[len(xs) - len(self.moves) :]

    def of_rows(self, size: int) -> Any:
        fields: dict[str, Any] = {"index": (Slice(0, size), *self.index)}
        if self.moves:
            fields["moves"] = tuple([(0, *move) for move in self.moves])
        if hasattr(self, "shape"):
            fields["shape"] = (size, *self.shape)
        return self.changed(**fields)

    def check(self, shape: tuple[int, ...], steps: Sequence[Aval], y: Aval | None = None) -> None:
        """Raise a ValueError if the index doesn't fit an array of this shape, or `y` doesn't fit
        the index. Machine code would access other memory."""
        raise NotImplementedError

    def taking(self) -> Any:
        """The primitive that reads the elements at the index."""
        raise NotImplementedError

    def placing(self, shape: tuple[int, ...]) -> Any:
        """The primitive that places the elements at the index of an array of zeros."""
        raise NotImplementedError

    def front(self) -> Callable[..., tuple[Any, Any]]:
        """A function of a smaller array and steps. It returns the index in the larger array, and
        the elements of the smaller one that belong there."""
        where = self.where.numpy()
        return lambda y, *steps: (where(*steps)[0], y)

    def texts(self, y: str, steps: Sequence[str]) -> tuple[str, str]:
        """The same as two texts."""
        return self.where.text(steps)[0], y


class Fixed(Indexed):
    """Mixin: a primitive at a static index."""

    moves = ()

    def check(self, shape: tuple[int, ...], steps: Sequence[Aval], y: Aval | None = None) -> None:
        if y is not None and y.shape != self.where.extents:
            raise ValueError(f"{self.name}: {y} doesn't fit the index {self.index}")
        for k, n in zip(self.index, shape, strict=True):
            first, last = (
                (k, k) if isinstance(k, int) else (k.start, k.start + k.step * (k.count - 1))
            )
            if (isinstance(k, int) or k.count) and not (0 <= first < n and 0 <= last < n):
                raise ValueError(f"the index {self.index} isn't within the shape {shape}")


class Moving(Indexed):
    """Mixin: a primitive at an index that moves by `moves[k]` along the larger array's axes for
    each unit of step k. The steps are the last operands."""

    moves: tuple[tuple[int, ...], ...]

    def chosen(self, number: int) -> int | None:
        """The axis whose entry of the index is the step `number`. None if there isn't one axis, or
        the entry depends on more."""
        axes = [axis for axis, far in enumerate(self.moves[number]) if far]
        if len(axes) != 1 or self.moves[number][axes[0]] != 1 or self.index[axes[0]] != 0:
            return None
        alone = sum(1 for moves in self.moves if moves[axes[0]]) == 1
        return axes[0] if alone else None

    def check(self, shape: tuple[int, ...], steps: Sequence[Aval], y: Aval | None = None) -> None:
        where = self.where
        fits = len(self.index) == len(shape) and len(steps) == len(self.moves)
        if not fits or any(len(move) != len(where.start) for move in self.moves):
            raise ValueError(f"{self.name}: the index {self.index} doesn't fit the shape {shape}")
        if any(step.shape != () or step.dtype.kind != "i" for step in steps):
            raise ValueError(f"{self.name}: its steps aren't integers: {list(steps)}")
        if y is not None and y.shape != where.extents:
            raise ValueError(f"{self.name}: {y} doesn't fit the index {self.index}")


class Spanning(Moving):
    """Mixin: a primitive at an index with spans, whose lengths move too. `moves` has the moves of
    all starts, then those of the spans' lengths. The elements of a span are the first ones along an
    axis of the smaller array."""

    index: Any

    def chosen(self, number: int) -> int | None:
        return None  # several steps may determine an entry

    def front(self) -> Callable[..., tuple[Any, Any]]:
        where = self.where.numpy()
        return lambda y, *steps: ((at := where(*steps))[0], y[at[1]])

    def texts(self, y: str, steps: Sequence[str]) -> tuple[str, str]:
        outer, inner = self.where.text(steps)
        return outer, y + inner


class ReadPart(Spanning):
    """A part of its operand, followed by `fill` up to the extent."""

    fill: Any


class Unset(Parametric):
    """An array without operands, all of whose elements are set before they are read."""

    memory = UNSET
    of_complex = True


class Contraction(Parametric):
    """A sum of products of two operands. `terms` are the letters of the axes of both and of the
    result."""

    terms: Any

    memory = OWN
    of_complex = True


class Library(Parametric):
    """A call that only NumPy can make."""

    absent = True
    trusts: ClassVar[bool] = False  # whether it reads unchecked positions from integer operands

    def parts(self, known: Sequence[Any], *xs: Aval) -> Sequence[Any] | None:
        """For each operand a pair of arrays: positions in the result and the positions in the
        operand on which they depend. None instead of a pair if all depend on all; None instead of
        the list if nothing is known. `known` has the values of integer operands that are known."""
        return None


class Routine(Library):
    """A kernel of `cpu.support` that works in place on vectors or on each matrix of a batch.

    Its arguments are the arrays that it overwrites and that hold results in the end, work space,
    and the arrays that it only reads. It returns the results that are numbers. Arrays of int32 are
    pivots and have one axis a matrix.
    """

    kernel: Any  # its name
    overwrites: ClassVar[tuple[int | None, ...]] = ()  # the operand that each starts as
    turned: ClassVar[bool] = False  # whether these operands are transposed first
    reads: ClassVar[tuple[int, ...]] = ()  # the other operands that the kernel takes
    strided: ClassVar[bool] = False  # whether it also takes transposed views of these
    numbers: ClassVar[tuple[str, ...]] = ()  # names for the results that are numbers

    @property
    def settings(self) -> tuple[int, ...]:
        """Further integer arguments of the kernel, after the arrays."""
        return ()

    def work(self, *xs: Aval) -> int:
        """The number of elements of work space."""
        return 0

    @property
    def started(self) -> list[int]:
        """The positions of the operands that are overwritten."""
        return [k for k in self.overwrites if k is not None]

    def replayed(self, *arrays: Any) -> Any:
        """The results for the arrays `started` and `reads`, which the kernel would read."""
        xs: dict[int, Any] = dict(zip((*self.started, *self.reads), arrays, strict=True))
        if self.turned:
            xs.update((k, np.swapaxes(xs[k], -1, -2)) for k in self.started)
        return self.evaluate(*[xs.get(k) for k in range(max(xs) + 1)])


class Composite(Library):
    """A call that is replaced by a few others after the last differentiation. If it is `ordered`,
    it stays until the tape is compiled, with a guard that the others' result `fits`."""

    ordered: ClassVar[bool] = False

    def fits(self, found: Any, *xs: Any) -> Any:
        """Whether the expanded result `found` differs by rounding only, for an `ordered`
        composite."""
        raise NotImplementedError

    def expand(self, *xs: Any) -> Any:
        """The results in terms of other primitives."""
        raise NotImplementedError

    def evaluate(self, *xs: Any) -> Any:
        results = expanded_tape(self, tuple(map(aval_of, xs))).play(*xs)
        return results if self.results > 1 else results[0] if type(results) is tuple else results


@lru_cache(maxsize=256)
def expanded_tape(primitive: Composite, avals: tuple[Aval, ...]) -> Tape:
    """The tape of the calls that replace a composite."""
    builder = Builder(str(primitive.name))
    writer = Writer(builder)
    found = primitive.expand(*[writer.node(builder.input(aval)) for aval in avals])
    return builder.finish([x.operand for x in (found if primitive.results > 1 else (found,))])


class Control(Parametric):
    """A primitive with sub-tapes among its parameters."""

    @property
    def tapes(self) -> tuple[Tape, ...]:  # type: ignore[override]
        return tuple([x for x in vars(self).values() if isinstance(x, Tape)])

    def with_tapes(self, tapes: Sequence[Tape]) -> Control:
        held = [name for name, x in vars(self).items() if isinstance(x, Tape)]
        return type(self)(**{**vars(self), **dict(zip(held, tapes, strict=True))})

    def played(self, run: Callable[[Tape, Sequence[Any]], list[Any]], *xs: Any) -> Any:
        raise NotImplementedError

    def evaluate(self, *xs: Any) -> Any:
        return self.played(METHODS["run"], *xs)


class Repeated(Control):
    """A loop over its sub-tape (see `primitives.loops`)."""

    body: Tape
    carried: int
    most: int
    backwards: bool
    until: bool
    recomputed: bool
    instead: bool
    later: bool
    keep: tuple[str, ...]
    own: tuple[int, ...]

    repeats = True
    of_complex = True

    @property
    def checks(self) -> bool:
        return bool(self.body.guards) or any(c.primitive.checks for c in self.body.calls)

    def heads(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands that determine the rounds."""
        return operands[: 1 + self.until + self.later]

    def going(self, operands: Sequence[Any]) -> Any:
        """The operand that says whether there is a first round, for a loop with `until`; else
        None."""
        return operands[1] if self.until else None

    def first(self, operands: Sequence[Any]) -> Any:
        """The first step, for a loop with `later`; else None."""
        return operands[1 + self.until] if self.later else None

    def given(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands of the body's inputs, without the step."""
        return operands[1 + self.until + self.later :]


@parametric
class ByPartials(Library):
    """An elementwise function that declares its partial derivatives."""

    cores = 0

    def aval(self, *xs: Aval) -> Aval:
        return Aval(broadcast_shapes(*[x.shape for x in xs]), xs[-1].dtype)

    def partials(self, out: Any, *xs: Any) -> Sequence[Any]:
        raise NotImplementedError

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Any:
        return [ct * partial for partial in self.partials(out, *xs)]

    def jvp(self, ts: Any, out: Any, *xs: Any) -> Any:
        pairs = zip(ts, self.partials(out, *xs), strict=True)
        return total(None if t is None else t * partial for t, partial in pairs)
