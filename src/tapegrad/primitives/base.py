"""The base classes of primitives, and the kind of elementwise primitives.

One declaration answers every question that the stages ask: the result's type (`aval`), its value by
NumPy (`evaluate`), the reverse and the forward rule (`vjp`, `jvp`), the facts that passes use, the
NumPy source (`numpy_text`) and the emitted code. How code is emitted depends on the kind and on
what the primitives of this kind declare.

    Elementwise   one scalar expression an element; operands broadcast
    the others    see `primitives.kinds`

An *instance* is a primitive with its static parameters. Instances are frozen and hashable: they are
the key of common subexpressions, part of the cache key, and what the tape prints.

Rules are written in terms of primitives. Applied to `Node`s they append calls to a tape, so the
derivative of a derivative works by construction. A rule returns the cotangents of all operands,
whether they are needed or not: dead-code elimination removes the rest. Rules may ignore
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
from tapegrad.ir.tape import Primitive as Primitive  # exported here too, for declarations
from tapegrad.ir.traits import PLAIN, SMOOTH, Algebra, Ties


class Parametric(Primitive):
    """A primitive with static parameters. Subclasses are frozen dataclasses, made by
    `parametric`."""

    # The number of trailing axes of each operand, or of every operand, on which the primitive
    # works. The axes before them are a batch and broadcast.
    cores: ClassVar[int | tuple[int, ...] | None] = None

    def aval(self, *xs: Aval) -> Any:
        """The result's type. By default it is the type of the first operand."""
        return xs[0].with_shape(xs[0].shape)

    def of_rows(self, size: int) -> Any:
        """The primitive that applies this one to each of `size` rows. The rows are along a new
        first axis of all operands except steps. None if there is no such primitive."""
        return None

    def batched(self, size: int, mapped: Sequence[bool], xs: Sequence[Any]) -> Any:
        """The result for `size` rows, by calls of this primitive's own. None if it has no own
        way."""
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
    """Make a class a primitive whose static parameters are its fields: a frozen dataclass.

    `dataclass` would write six methods for each class, which took a third of tapegrad's import
    time. Of these only `__init__` differs between classes. The others are inherited from
    `Parametric`.
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

    Each call gets the current `src` and `reason`, which the differentiator sets call by call.
    `captured` maps the id of an array that a user's rule captured to its variable and the array.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.captured: dict[int, tuple[Var, Any]] = {}
        self.src: Source | None = None
        self.reason = ""

    def node(self, operand: Operand) -> Node:
        return Node(self, operand)

    def capture(self, array: Any) -> Node:
        """The node of an array that a rule captures. It becomes an input of the tape."""
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
    """A primitive's forward rule as a tape. The inputs are the tangents of the operands numbered
    `moved`, then all operands, then the results. None if there is no rule, or a result has no
    tangent."""
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
    """The kink of an elementwise primitive, in its first `points` operands. `rule(directions, ct,
    out, *xs)` is the reverse rule (see `kinks`). For `origin` see `Ties`."""

    rule: Callable[..., Sequence[Any]]
    points: int = 1
    origin: int | None = None


class Elementwise(Primitive):
    """`out[i] = scalar(x[i], y[i], ...)`, operands broadcast against each other.

    `name` is that of `function` by default. `scalar` is the emitted expression, by default a call
    of `name`. In it `{0}` is the first operand, and function names are the emitter's vocabulary. If
    it is "", NumPy is called between the kernels. `numpy` is the NumPy expression, if it isn't a
    call of `function`; `quick` is an expression that is faster for scalars. With `of_all` the
    emitter has `all_name(x, first, count, y)`, a test of many numbers at once.

    The derivative is zero everywhere unless one of these is declared:

    - `partials(out, *xs)`: d out / d operand, one each: a node, the number 1 or -1, or None for an
      operand without derivative. Both modes follow.
    - `times(t, out, *xs)`: `t` times each partial, where a product with the partial would be NaN,
      0 * inf. Both modes follow.
    - `vjp` and `jvp`, if the two modes differ; `kink` may replace `vjp`.

    The other facts are those of `Primitive`. They are checked. Operands have one dtype. It is the
    result's too, unless `dtype` is given. With `numpys` NumPy computes complex numbers.
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
        """The number of operands; 0 if it isn't known."""
        if isinstance(self.ufunc, np.ufunc):
            return self.ufunc.nin
        code = getattr(inspect.unwrap(self.partials or self._times or len), "__code__", None)
        return 0 if code is None or code.co_flags & inspect.CO_VARARGS else code.co_argcount - 1

    def _check(self, count: int) -> None:
        """Raise a ValueError if the declared facts contradict each other."""
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
            return last  # sharing one object keeps tapes small and makes types quick to compare
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
        """The call as an expression of operators, or "". NumPy's scalars are ten times as fast with
        operators as with functions."""
        text = self._numpy.format(*xs)
        has_names = any(map(str.isalpha, self._numpy))  # the names of functions
        return "" if has_names or text == xs[0] else text

    def scalar_text(self, xs: Sequence[str]) -> str:
        text = self._quick.format(*xs) or self.quick_text(xs)
        return "" if "/" in text and not self._quick else text  # Python's x / 0 raises

    def kink(self, operands: Sequence[Any]) -> Any:
        if self._along is None:
            return None
        return self.ties.origin is not None, *operands[: self.points]

    def length(self, *xs: Any) -> Any:
        """The distance from a kink that is a point, for operands `xs`. It is 0 at the kink only."""
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
        # Each elementwise primitive is one object, so a pickle refers to it by name.
        return by_name, (self.name,)


def total(terms: Iterable[Any]) -> Any:
    """The sum of the terms that aren't None; None if there are none."""
    found = [term for term in terms if term is not None]
    return functools.reduce(operator.add, found) if found else None


def by_name(name: str) -> Any:
    """The primitive, or class of primitives, that is declared under `name`."""
    return DECLARED[name]


@dataclass(frozen=True)
class Missing:
    """A rule's result for an operand whose derivative isn't known. It is an error if it is
    needed."""

    message: str


def _times(ct: Any, partial: Any) -> Any:
    """`ct * partial`, without a call where the partial is 1, -1, absent or missing."""
    if partial is None or isinstance(partial, Missing):
        return partial
    if isinstance(partial, int):
        return ct if partial == 1 else -ct
    return ct * partial
