"""What a primitive is, and the closed set of kinds.

One declaration answers every question that the stages ask: shape and dtype (`aval`), NumPy's
answer (`evaluate`), reverse and forward rule (`vjp`, `jvp`), what passes may do with it, how NumPy
writes it (`numpy_text`), and what is emitted: the kind decides how, by what its primitives declare.

    Elementwise   one scalar expression an element; operands broadcast
    the others    see `primitives.kinds`

An *instance* is a primitive with its static parameters. Instances are frozen and hashable: they
are the key of common subexpressions, part of the cache key, and what the tape prints.

Rules are written in terms of primitives. Applied to `Node`s they append calls to a tape, so the
derivative of a derivative works by construction. A rule returns the cotangents of all operands
and never asks which are wanted: dead-code elimination removes the rest. Rules may ignore
broadcasting; `differentiate.reverse` undoes it in one place.

Names: `x`, `y` primals; `out` the result; `t` tangent; `ct` cotangent.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from tapegrad.core.values import Slice as Slice
from tapegrad.core.values import Value as Value
from tapegrad.errors import GradientError, InternalError
from tapegrad.ir.tape import (
    DECLARED,
    Aval,
    Builder,
    Call,
    Literal,
    Operand,
    Source,
    Tape,
    Var,
    aval_of,
    dtype_name,
    literal,
)
from tapegrad.ir.tape import Primitive as Primitive  # whoever declares primitives finds these here
from tapegrad.ir.traits import PLAIN, SMOOTH, Algebra, Ties


class Parametric(Primitive):
    """A primitive with static parameters: subclasses are frozen dataclasses, by `parametric`."""

    # How many of the last axes of each operand are the primitive's own, or of all operands. Those
    # before them are a batch, for each index of which it does the same, and broadcast.
    cores: ClassVar[int | tuple[int, ...] | None] = None

    def aval(self, *xs: Aval) -> Any:
        """The result's type: that of the first operand, where nothing else is said."""
        return xs[0].with_shape(xs[0].shape)

    def of_rows(self, size: int) -> Any:
        """What does to each of `size` rows, along a new first axis of all operands but steps, what
        this does to one; None of a primitive of which that isn't another one."""
        return None

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        """The result for rows, in calls of its own; None of a primitive that needs none."""
        return None

    def changed(self, **fields: Any) -> Any:
        """The same primitive with other parameters."""
        return type(self)(**{**vars(self), **fields})

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        return tuple((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={x!r}" for name, x in vars(self).items())
        return f"{type(self).__qualname__}({given})"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):  # each is set once, by `__init__`
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


P = TypeVar("P", bound=Parametric)


@dataclass_transform(frozen_default=True)
def parametric(cls: type[P]) -> type[P]:
    """A primitive whose static parameters are the fields of its class: a frozen dataclass.

    `dataclass` would write six methods for each class, which took a third of tapegrad's import. Of
    these only `__init__` is another for each; the rest are those of `Parametric`.
    """
    made = dataclass(eq=False, repr=False)(cls)
    if isinstance(getattr(made, "name", None), str):
        DECLARED.setdefault(made.name, made)
    return made


# ---- values that rules work on


class Node(Value):
    """A variable or literal of a tape under construction, with the operators rules use.

    Numbers in arithmetic with a node take the node's dtype.
    """

    __slots__ = ("aval", "operand", "writer")

    def __init__(self, writer: Writer, operand: Operand) -> None:
        self.writer = writer
        self.operand = operand
        self.aval = operand.aval

    def _bind(self, primitive: Primitive, operands: Sequence[Any]) -> Any:
        return self.writer.apply(primitive, operands)

    def constant(self, value: Any) -> Node:
        """A scalar constant of this node's dtype."""
        return Node(self.writer, literal(value, self.dtype))

    def _number(self, x: Any) -> Any:
        return x if isinstance(x, Value) else self.constant(x)

    def __add__(self, y: Any) -> Any:
        return DECLARED["add"](self, self._number(y))

    def __radd__(self, y: Any) -> Any:
        return DECLARED["add"](self._number(y), self)

    def __sub__(self, y: Any) -> Any:
        return DECLARED["sub"](self, self._number(y))

    def __rsub__(self, y: Any) -> Any:
        return DECLARED["sub"](self._number(y), self)

    def __mul__(self, y: Any) -> Any:
        return DECLARED["mul"](self, self._number(y))

    def __rmul__(self, y: Any) -> Any:
        return DECLARED["mul"](self._number(y), self)

    def __truediv__(self, y: Any) -> Any:
        return DECLARED["div"](self, self._number(y))

    def __rtruediv__(self, y: Any) -> Any:
        return DECLARED["div"](self._number(y), self)

    def __neg__(self) -> Any:
        return DECLARED["neg"](self)

    def __lt__(self, y: Any) -> Any:
        return DECLARED["less"](self, self._number(y))

    def __le__(self, y: Any) -> Any:
        return DECLARED["less_equal"](self, self._number(y))

    def __gt__(self, y: Any) -> Any:
        return DECLARED["greater"](self, self._number(y))

    def __ge__(self, y: Any) -> Any:
        return DECLARED["greater_equal"](self, self._number(y))

    def equals(self, y: Any) -> Any:
        """Elementwise `==`; the operator keeps its usual meaning for nodes."""
        return DECLARED["equal"](self, self._number(y))


class Writer:
    """Applies primitives to nodes by appending calls to `builder`.

    `src` and `reason` are stamped on each call: the differentiator sets them, call by call.
    `captured` are the arrays that users' rules reached without being passed them, by id, with the
    variables that stand for them.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.captured: dict[int, tuple[Var, Any]] = {}
        self.src: Source | None = None
        self.reason = ""

    def node(self, operand: Operand) -> Node:
        return Node(self, operand)

    def capture(self, array: Any) -> Node:
        """An array as a value of the tape, which captures it."""
        if id(array) not in self.captured:
            self.captured[id(array)] = self.builder.fresh(aval_of(array)), array
        return self.node(self.captured[id(array)][0])

    def apply(self, primitive: Primitive, operands: Sequence[Any]) -> Any:
        plain = [x.operand if isinstance(x, Node) else self._literal(x) for x in operands]
        outs = self.builder.call(primitive, plain, self.src, self.reason)
        if primitive.results == 1:
            return Node(self, outs[0])
        return tuple([Node(self, out) for out in outs])

    @staticmethod
    def _literal(x: Any) -> Literal:
        if isinstance(x, Literal):
            return x
        if isinstance(x, np.generic):
            return Literal(x)
        raise InternalError(f"a rule applied a primitive to {x!r}, which isn't a node")


# ---- shapes


@functools.lru_cache(maxsize=2048)
def tape_of_rule(primitive: Any, types: tuple[Aval, ...], moved: tuple[int, ...]) -> Tape | None:
    """A primitive's forward rule as a tape: of the tangents of the operands numbered `moved`, of
    all operands and of the results. None if there is no rule, or a result has no tangent."""
    builder = Builder(str(primitive.name))
    writer = Writer(builder)
    ts: list[Any] = [None] * len(types)
    for k in moved:
        ts[k] = writer.node(builder.input(types[k]))
    xs = [writer.node(builder.input(aval)) for aval in types]
    outs = [writer.node(builder.input(aval)) for aval in primitive.avals(*types)]
    try:
        found = primitive.jvp(ts, outs[0] if len(outs) == 1 else tuple(outs), *xs)
    except GradientError:
        return None
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(outs) or any(x is None for x in results):
        return None
    return builder.finish([x.operand for x in results])


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcasting rule; a ValueError that shows the shapes if they don't fit."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    ndim = max(map(len, shapes))
    result = [1] * ndim
    for shape in shapes:
        for axis, extent in enumerate(shape, start=ndim - len(shape)):
            if extent != 1:
                if result[axis] not in (1, extent):
                    raise ValueError(
                        "operands could not be broadcast together with shapes "
                        + " ".join(str(s).replace(" ", "") for s in shapes)
                    )
                result[axis] = extent
    return tuple(result)


# ---- the kinds


@dataclass(frozen=True)
class Kink:
    """Where the first `points` operands of an elementwise primitive have a kink: the reverse rule,
    `rule(directions, ct, out, *xs)` (see `kinks`), and the `origin` (see `Ties`)."""

    rule: Callable[..., Sequence[Any]]
    points: int = 1
    origin: int | None = None


class Elementwise(Primitive):
    """`out[i] = scalar(x[i], y[i], ...)`, operands broadcast against each other.

    Its `name` is that of `function`, if it isn't given, and `scalar`, the emitted expression, a
    call by that name: `{0}` stands for the first operand, names are those of the emitter's
    vocabulary, and without an expression NumPy is called between the kernels. `numpy` is NumPy's
    expression, if that isn't a call of `function`, `quick` one that scalars are quicker at. With
    `of_all` the emitter has `all_name(x, first, count, y)`, which asks it of many numbers at once.

    What it says of its derivative, which is zero everywhere if it says nothing:

    - `partials(out, *xs)`: d out / d operand, one each: a node, the number 1 or -1, or None for an
      operand without derivative. Both modes follow.
    - `times(t, out, *xs)`: `t` times each of them, where a product with the partial would make NaN
      of 0 * inf. Both modes follow.
    - `vjp` and `jvp`, where they differ; `kink` in the place of the first of these.

    The other facts are those of `Primitive`, and checked. Operands have one dtype, which is the
    result's, unless `dtype` says otherwise. Complex ones are left to NumPy by what is `numpys`.
    """

    pointwise = True

    def __init__(
        self,
        function: Callable[..., Any],
        partials: Callable[..., Sequence[Any]] | None = None,
        *,
        name: str = "",
        scalar: str | None = None,
        times: Callable[..., Sequence[Any]] | None = None,
        vjp: Callable[..., Sequence[Any]] | None = None,
        jvp: Callable[..., Any] | None = None,
        kink: Kink | None = None,
        dtype: Any = None,
        cost: int = 1,
        numpy: str = "",
        quick: str = "",
        of_all: bool = False,
        algebra: Algebra = PLAIN,
        of_complex: bool = False,
        numpys: bool = False,
    ) -> None:
        self.name = name or function.__name__
        self.ufunc = function
        self.partials, self._times, self._vjp, self._jvp = partials, times, vjp, jvp
        self._along = kink.rule if kink else None
        self.points, self.ties = (kink.points, Ties(kink.origin)) if kink else (1, SMOOTH)
        self.flat = not (partials or times or vjp or jvp or kink)
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.cost = cost
        self._numpy, self._quick, self.of_all = numpy, quick, of_all
        self.algebra = algebra
        self.of_complex, self.numpys = of_complex, numpys
        count = self._operands() if scalar is None or algebra is not PLAIN else 0
        if scalar is None and count:
            scalar = f"{self.name}({', '.join([f'{{{k}}}' for k in range(count)])})"
        self.scalar = scalar
        self._check(count)
        DECLARED.setdefault(self.name, self)

    def _operands(self) -> int:
        """How many there are; 0 if that isn't known."""
        if isinstance(self.ufunc, np.ufunc):
            return self.ufunc.nin
        code = getattr(inspect.unwrap(self.partials or self._times or len), "__code__", None)
        return 0 if code is None or code.co_flags & inspect.CO_VARARGS else code.co_argcount - 1

    def _check(self, count: int) -> None:
        """That its facts fit together."""
        partials, times, vjp = self.partials, self._times, self._vjp
        if self.scalar is None:
            wrong = "say what its `scalar` is"
        elif (partials and (times or vjp)) or (times and vjp):
            wrong = "give partials, times, or vjp and jvp"
        elif (vjp or self._along) and not (self._jvp or partials):
            wrong = "a `vjp` or `kink` needs a `jvp`, or partials"
        elif self.algebra.commutative and count not in (0, 2):
            wrong = "what is commutative has two operands"
        elif count and not self.algebra.holds(count):
            wrong = "it is `linear` and `additive` in operands that it has"
        else:
            return
        raise ValueError(f"the elementwise primitive {self.name!r}: {wrong}")

    def aval(self, *xs: Aval) -> Aval:
        last = xs[-1]
        dtype = last.dtype if self.dtype is None else self.dtype
        shape = xs[0].shape if len(xs) == 1 else broadcast_shapes(*[x.shape for x in xs])
        if shape == last.shape and dtype is last.dtype and not last.weak:
            return last  # one object for one type makes tapes small, and types quick to compare
        return Aval(shape, dtype)

    def evaluate(self, *xs: Any) -> Any:
        return self.ufunc(*xs)

    def for_types(self, *avals: Aval) -> Any:
        return self.ufunc

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        linear, additive = self.algebra.linear, self.algebra.additive
        if linear:
            return any(kept[k] for k in linear)
        return bool(additive) and all(kept[k] for k in additive)

    def template(self, dtype: np.dtype, given: Sequence[Any]) -> str:
        text = str(self.scalar)
        inexact = dtype.kind in "iu" and dtype != np.int64
        return f"as_{dtype_name(dtype)}({text})" if inexact else text

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        if self._numpy:
            return [f"{outs[0]} = {self._numpy.format(*xs)}"]
        ufunc = self.ufunc
        module = "np" if isinstance(ufunc, np.ufunc) else ufunc.__module__
        if module.startswith("tapegrad."):  # it is called by the primitive's name
            return []
        return [f"{outs[0]} = {module}.{ufunc.__name__}({', '.join(xs)})"]

    def quick_text(self, xs: Sequence[str]) -> str:
        """In terms of operators, which scalars of NumPy's are ten times as quick at."""
        text = self._numpy.format(*xs)
        has_names = any(map(str.isalpha, self._numpy))  # of functions
        return "" if has_names or text == xs[0] else text

    def scalar_text(self, xs: Sequence[str]) -> str:
        text = self._quick.format(*xs) or self.quick_text(xs)
        return "" if "/" in text and not self._quick else text  # Python's numbers raise there

    def kink(self, operands: Sequence[Any]) -> Any:
        if self._along is None:
            return None
        return self.ties.origin is not None, *operands[: self.points]

    def length(self, *xs: Any) -> Any:
        """Of what is 0 at its kink alone, as a distance is: the value for these operands."""
        return self(*xs)

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        if self._along is None:
            return self.vjp(ct, out, *xs)
        return self._along(directions, ct, out, *xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        if self._along is not None:
            return self._along((), ct, out, *xs)
        if self._vjp is not None or self._times is not None:
            return (self._vjp or self._times)(ct, out, *xs)  # type: ignore[misc]
        if self.partials is None:
            return (None,) * len(xs)
        return [_times(ct, partial) for partial in self.partials(out, *xs)]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        if self._jvp is not None:
            return self._jvp(ts, out, *xs)
        if self._times is not None:
            moved = [(k, t) for k, t in enumerate(ts) if t is not None]
            return total(self._times(t, out, *xs)[k] for k, t in moved)
        if self.partials is None:
            return None
        pairs = zip(ts, self.partials(out, *xs), strict=True)
        terms = [None if t is None else _times(t, partial) for t, partial in pairs]
        for term in terms:
            if isinstance(term, Missing):
                raise GradientError(term.message)
        return total(terms)

    def __repr__(self) -> str:
        return str(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        # There is one object of each elementwise primitive; a pickle refers to it by name.
        return by_name, (self.name,)


def total(terms: Iterable[Any]) -> Any:
    """The sum of the terms that there are; None of none."""
    found = [term for term in terms if term is not None]
    return functools.reduce(operator.add, found) if found else None


def by_name(name: str) -> Any:
    """The primitive, or class of primitives, that was declared under this name."""
    return DECLARED[name]


@dataclass(frozen=True)
class Missing:
    """What a rule returns for an operand that it doesn't cover: an error, if it is wanted."""

    message: str


def _times(ct: Any, partial: Any) -> Any:
    """`ct * partial`, without a call where the partial is 1, -1, absent or missing."""
    if partial is None or isinstance(partial, Missing):
        return partial
    if isinstance(partial, int):
        return ct if partial == 1 else -ct
    return ct * partial
