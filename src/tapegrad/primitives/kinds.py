"""The closed set of kinds: what the primitives of each declare, which decides how they are emitted.

    Reduction     folds axes with an associative operation
    Running       the same along one axis, each step of which is kept
    Extremal      where the largest or smallest element of an axis is
    View          an index map: which element of the operand stands where; never a copy
    Region        the elements of some region of a matrix, and zeros elsewhere
    Scatter       writes or adds its operands into a larger result
    Lookup        reads where index arrays say
    Indexed       a view or a scatter of the elements at an index
    Fixed         one whose place stays where it is
    Moving        one whose place moves with the rounds of a loop
    Growing       one whose extents move with them, too
    Taking        such a part of an array, and what stands for elements behind it
    Unset         memory that others write to before it is read
    Contraction   a product that sums over a shared axis
    Routine       a call of LAPACK, or of another kernel on whole arrays
    Library       what NumPy has to do itself
    Composite     stands for a few other calls, until nothing is differentiated any more
    Control       holds sub-tapes
    Repeated      holds a sub-tape that runs again and again

Elementwise primitives are in `base`. A stage asks for the kind of a primitive and for what it
declares, never for its class.

Names: `at` an index, of one entry for each axis; an entry is an integer or an affine number.
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
    """Mixin: a linear map of one operand. `transpose` gives the reverse rule; the map is its own
    forward rule."""

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
    """Mixin: has no derivative, since its results are integers or booleans, or nobody asks."""

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        return (None,) * len(xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        return None if self.results == 1 else (None,) * self.results


class _Carrying(Parametric):
    """Moves elements: zeros of its operands are zeros of its result."""

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        return any(kept)


class AlongAxes(Parametric):
    """Mixin: does something along `axes`, whatever the others are."""

    axes: tuple[int, ...]

    def of_rows(self, size: int) -> Any:
        return self.changed(axes=tuple([a + 1 for a in self.axes]))


class AlongAxis(Parametric):
    """Mixin: does something along `axis`."""

    axis: int

    def of_rows(self, size: int) -> Any:
        return self.changed(axis=self.axis + 1)


class Reduction(AlongAxes):
    """Folds `axes`, which disappear from the shape, with `fold`. Called like NumPy's function."""

    fold: ClassVar[Fold]
    typed: ClassVar[bool] = False  # whether NumPy's function would choose another dtype by itself
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
    """Folds the last operand along `axis` and keeps every step; from the end, if it has `reverse`.
    If there is another operand, what is folded so far is multiplied by it between two steps. Called
    like NumPy's function."""

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
    """Where the first of the elements along `axis` is that are `better` than all others, in terms
    of `<` or `>`; NaN wins. Called like NumPy's function."""

    better: ClassVar[str]

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        return [f"{outs[0]} = np.{self.name}({xs[0]}, {self.axis})"]


class View(_Carrying):
    """Which element of the operand stands where in the result; never a copy."""

    memory = VIEW
    of_complex = True
    relabels: ClassVar[bool] = False  # whether the result is the operand's memory in another shape

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The order of axes, of what does no more than to put them in order."""
        return None

    def read(self, at: At, shape: tuple[int, ...]) -> At | None:
        """Where the element `at` of the result is in an operand of this shape; None if it can't be
        told entry by entry."""
        raise NotImplementedError


class Region(Parametric):
    """The elements of the last two axes on the diagonal `offset` and below it, if `lower`, or
    above; zeros elsewhere."""

    lower: bool
    offset: int


class Scatter(Parametric):
    """Writes operands into a larger result, or adds them to it: after the first one, if the result
    starts as that, and else all of them. They stand in boxes, or where `write` says, or the
    operands after the first written are `indexed`, index arrays of where it stands."""

    of_complex = True
    onto: ClassVar[str] = "zeros"  # what is there before: "zeros", "first" or "nothing"
    indexed: ClassVar[bool] = False
    sure: Any = False  # whether index arrays are known to be in range

    def boxes(self, *xs: Any) -> Sequence[StaticIndex]:
        """Where each operand that is written stands; nothing if that isn't a box."""
        return ()

    def write(self, at: At) -> At:
        """Where the element `at` of the operand is put."""
        raise NotImplementedError

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        return self.onto != "nothing" or any(kept)


class Lookup(_Carrying):
    """Elements of the first operand at index arrays, the others."""

    of_complex = True
    sure: Any = False  # whether these are known to be in range


class Indexed(Parametric):
    """Mixin: what works on the elements of a larger array at `index`, an integer or a `Slice` for
    each axis."""

    index: StaticIndex
    moves: Any  # of what moves

    of_complex = True
    adds: ClassVar[bool] = False  # whether what is there is added to

    @property
    def where(self) -> MovingIndex:
        return MovingIndex(self.index, self.moves)

    def steps(self, xs: Sequence[Any]) -> Sequence[Any]:
        """The steps among the operands."""
        return xs[len(xs) - len(self.moves) :]

    def of_rows(self, size: int) -> Any:
        fields: dict[str, Any] = {"index": (Slice(0, size), *self.index)}
        if self.moves:
            fields["moves"] = tuple([(0, *move) for move in self.moves])
        if hasattr(self, "shape"):
            fields["shape"] = (size, *self.shape)
        return self.changed(**fields)

    def check(self, shape: tuple[int, ...], steps: Sequence[Aval], y: Aval | None = None) -> None:
        """A ValueError if it doesn't fit an array of this shape, or what is put in it: machine code
        would read or write other memory."""
        raise NotImplementedError

    def taking(self) -> Any:
        """What takes the elements there."""
        raise NotImplementedError

    def placing(self, shape: tuple[int, ...]) -> Any:
        """What places them among zeros."""
        raise NotImplementedError

    def front(self) -> Callable[..., tuple[Any, Any]]:
        """A function of a smaller array and steps: where in the larger one its elements are, and
        those of it that are there."""
        where = self.where.numpy()
        return lambda y, *steps: (where(*steps)[0], y)

    def texts(self, y: str, steps: Sequence[str]) -> tuple[str, str]:
        """The same as text."""
        return self.where.text(steps)[0], y


class Fixed(Indexed):
    """Mixin: at an index that stays where it is."""

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
    """Mixin: the place in the larger array moves by `moves[k]` along its axes for each unit of the
    k-th of the last operands, the steps."""

    moves: tuple[tuple[int, ...], ...]

    def chosen(self, number: int) -> int | None:
        """The axis along which a step says which entry it is, all by itself; None if it does
        anything else."""
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


class Growing(Moving):
    """Mixin: the index takes spans, whose lengths move, too; `moves` are those of its starts along
    all axes, and then those of the lengths of spans. The elements of a span stand at the front of
    an axis of the smaller array."""

    index: Any

    def chosen(self, number: int) -> int | None:
        return None  # places are numbers of loops' steps

    def front(self) -> Callable[..., tuple[Any, Any]]:
        where = self.where.numpy()
        return lambda y, *steps: ((at := where(*steps))[0], y[at[1]])

    def texts(self, y: str, steps: Sequence[str]) -> tuple[str, str]:
        outer, inner = self.where.text(steps)
        return outer, y + inner


class Taking(Growing):
    """A part of its operand, with `fill` behind the front."""

    fill: Any


class Unset(Parametric):
    """An array whose elements are all set before they are read: no operands."""

    memory = UNSET
    of_complex = True


class Contraction(Parametric):
    """A sum of products of two operands; `terms` are the letters of their axes and the result's."""

    terms: Any

    memory = OWN
    of_complex = True


class Library(Parametric):
    """A call that only NumPy can make."""

    absent = True
    trusts: ClassVar[bool] = False  # whether it reads where integers say, unchecked

    def parts(self, known: Sequence[Any], *xs: Aval) -> Sequence[Any] | None:
        """Of each operand, which of its elements an element of the result is made of: two arrays of
        numbers, those of the result's elements and those of the operand's, or None for all of all.
        None, if nothing more is known. Operands that are integers may be `known`."""
        return None


class Routine(Library):
    """A kernel of `cpu.support` that works in place, on each matrix of a batch, or on vectors.

    It takes the arrays that it overwrites, which hold results in the end, work space, and those
    that it only reads; and returns the results that are numbers. Arrays of int32, which are pivots,
    have one axis a matrix.
    """

    kernel: Any  # its name
    overwrites: ClassVar[tuple[int | None, ...]] = ()  # the operands that results start as, if any
    turned: ClassVar[bool] = False  # whether these start transposed
    reads: ClassVar[tuple[int, ...]] = ()  # the other operands that the kernel takes
    strided: ClassVar[bool] = False  # whether it takes transposes of them, too
    numbers: ClassVar[tuple[str, ...]] = ()  # names for the results that are numbers

    @property
    def settings(self) -> tuple[int, ...]:
        """What the kernel is told besides, after the arrays."""
        return ()

    def work(self, *xs: Aval) -> int:
        """How many elements of work space there are."""
        return 0

    @property
    def started(self) -> list[int]:
        """The operands that are overwritten."""
        return [k for k in self.overwrites if k is not None]

    def replayed(self, *arrays: Any) -> Any:
        """The results, for the arrays that the kernel takes and doesn't just write."""
        xs: dict[int, Any] = dict(zip((*self.started, *self.reads), arrays, strict=True))
        if self.turned:
            xs.update((k, np.swapaxes(xs[k], -1, -2)) for k in self.started)
        return self.evaluate(*[xs.get(k) for k in range(max(xs) + 1)])


class Composite(Library):
    """A call that stands for a few others, until nothing is differentiated any more. One whose
    order counts (`ordered`) stays until it is compiled, with a guard that the others fit."""

    ordered: ClassVar[bool] = False

    def fits(self, found: Any, *xs: Any) -> Any:
        """Whether what the others give differs by its rounding alone, of one that is `ordered`."""
        raise NotImplementedError

    def expand(self, *xs: Any) -> Any:
        """The result, or results, in terms of other primitives."""
        raise NotImplementedError

    def evaluate(self, *xs: Any) -> Any:
        results = expanded_tape(self, tuple(map(aval_of, xs))).play(*xs)
        return results if self.results > 1 else results[0] if type(results) is tuple else results


@lru_cache(maxsize=256)
def expanded_tape(primitive: Composite, avals: tuple[Aval, ...]) -> Tape:
    """The calls for which a composite stands."""
    builder = Builder(str(primitive.name))
    writer = Writer(builder)
    found = primitive.expand(*[writer.node(builder.input(aval)) for aval in avals])
    return builder.finish([x.operand for x in (found if primitive.results > 1 else (found,))])


class Control(Parametric):
    """Holds sub-tapes among its parameters."""

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
    """Runs its sub-tape again and again: `primitives.loops` says how."""

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
        """The operands that say which rounds there are."""
        return operands[: 1 + self.until + self.later]

    def going(self, operands: Sequence[Any]) -> Any:
        """Whether there is a first round, of one that runs `until`; else None."""
        return operands[1] if self.until else None

    def first(self, operands: Sequence[Any]) -> Any:
        """The first step, of one that starts `later`; else None."""
        return operands[1 + self.until] if self.later else None

    def given(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands for which the body has inputs, after the step."""
        return operands[1 + self.until + self.later :]


@parametric
class ByPartials(Library):
    """A function of numbers, element by element, that says its partial derivatives."""

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
