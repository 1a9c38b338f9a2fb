"""The tape: a typed, immutable, straight-line program over whole arrays.

A tape is a list of calls in static single assignment form. Each call applies a primitive to
operands (variables and scalar literals) and defines one or more variables. A primitive may hold
sub-tapes among its static parameters, so tapes nest.

Short names: `aval` abstract value, `var` variable, `src` the user's source line.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from tapegrad.core.locks import cached_property
from tapegrad.core.request import Form as Form
from tapegrad.core.values import UNKNOWN, Memory, immutable, one_type
from tapegrad.core.values import Aval as Aval  # whoever works on tapes finds these here too
from tapegrad.core.values import Literal as Literal
from tapegrad.core.values import Operand as Operand
from tapegrad.core.values import Source as Source
from tapegrad.core.values import Value as Value
from tapegrad.core.values import Var as Var
from tapegrad.core.values import aval_of as aval_of
from tapegrad.core.values import dtype_name as dtype_name
from tapegrad.core.values import literal as literal
from tapegrad.errors import GradientError, TapeError, UnsupportedError
from tapegrad.ir.editable import METHODS as METHODS
from tapegrad.ir.editable import Editable
from tapegrad.ir.report import MemoryReport
from tapegrad.ir.traits import PLAIN, SMOOTH, Algebra, Ties

# The primitives, and classes of those with parameters, as tapes print them: each puts itself in.
DECLARED: dict[str, Any] = {}


class Primitive:
    """What a call applies. `primitives/base.py` says what the kinds are, and what rules work on."""

    name: Any  # a string, on the class or on the instance
    results: ClassVar[int] = 1
    absent: ClassVar[bool] = False  # whether `vjp` takes None for a result without cotangent
    factors: ClassVar[bool] = False  # who reads them differentiates with respect to its operand
    memory: ClassVar[Memory] = UNKNOWN  # whose memory the result is
    pointwise: ClassVar[bool] = False  # whether each element is a function of the operands' own
    scalar: Any = ""  # that function as an emitted expression
    cost: Any = 1  # of an element, in additions
    algebra: Algebra = PLAIN  # in which operands it is linear, and the like
    ties: Ties = SMOOTH  # what its derivatives are like at kinks
    foreign: ClassVar[bool] = False  # a user's function: it may do more than compute
    visible: Any = None  # how many results have derivatives; the others are kept for a rule
    tapes: tuple[Tape, ...] = ()  # those among its parameters: programs that a call runs
    inlined: ClassVar[bool] = False  # whether their calls will stand in the place of this one's
    flat: Any = False  # whether its derivative is zero everywhere
    checks: Any = False  # whether it has guards of its own, and stays though nobody reads it
    of_complex: Any = False  # whether its rules and results are right for complex numbers
    repeats: ClassVar[bool] = False  # whether it is a loop, which updates what it carries

    def with_tapes(self, tapes: Sequence[Tape]) -> Primitive:
        """This primitive with others in the place of the tapes that it holds."""
        return self

    def aval(self, *xs: Aval) -> Any:
        """The result's type, or a ValueError if the operands don't fit."""
        raise NotImplementedError

    def avals(self, *xs: Aval) -> tuple[Aval, ...]:
        """The types of all results, as a tuple."""
        result = self.aval(*xs)
        results = result if isinstance(result, tuple) else (result,)
        if not self.of_complex:
            for x in (*xs, *results):
                if x.dtype.kind == "c":
                    raise UnsupportedError(
                        f"{self} of complex numbers isn't supported. Use z.real and z.imag"
                    )
        return results

    def refuses(self, *xs: Aval) -> bool:
        """Whether operands of these types don't fit, whatever their values are."""
        try:
            self.avals(*xs)
        except (TypeError, ValueError):  # LinAlgError is one, too
            return True
        return False

    def evaluate(self, *xs: Any) -> Any:
        """NumPy's answer: the oracle of the tests and what `play` runs."""
        raise NotImplementedError

    def showing(self, m: int) -> Sequence[int]:
        """The results, by their numbers, that may share memory with an operand."""
        return range(self.results)

    def updating(self) -> Callable[..., Any]:
        """`evaluate` of what `updates`, in the memory of the first operand."""
        raise NotImplementedError

    def for_types(self, *avals: Aval) -> Callable[..., Any]:
        """`evaluate` of arrays and scalars of these types, which it needn't look at."""
        return self.evaluate

    def played(self, run: Callable[[Tape, Sequence[Any]], list[Any]], *xs: Any) -> Any:
        """`evaluate`, with `run` for the tapes that this holds."""
        return self.evaluate(*xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """One cotangent an operand, None where there is none."""
        raise GradientError(f"{self.name} has no reverse rule")

    def kink(self, operands: Sequence[Any]) -> Any:
        """What has a kink, as a key, which begins with whether it is that of a point, the origin;
        None of a primitive that has none."""
        return None

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """`vjp`, where a kink takes the side to which the first direction points that isn't 0."""
        return self.vjp(ct, out, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """The tangent of the result; `ts` holds None where an operand has no tangent."""
        raise GradientError(f"{self.name} has no forward rule")

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        """Whether derivatives keep zeros of the result (see `masks`), if they keep those `kept`."""
        return False

    def template(self, dtype: np.dtype, given: Sequence[Any]) -> str:
        """The emitted expression for results of this dtype; `given` are the operands that are
        numbers, and None for the others."""
        return str(self.scalar)

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        """The lines of NumPy that define `outs`; if there aren't any, it is called by its name."""
        return []

    def quick_text(self, xs: Sequence[str]) -> str:
        """Python for what `evaluate` gives of operands with these names, or, of what `updates`, for
        what that does; "" where nothing is quicker than to call them."""
        return ""

    def scalar_text(self, xs: Sequence[str]) -> str:
        """The same where none has axes, of numbers of Python's or NumPy's, and truth values."""
        return ""

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        """The static parameters by name, as the tape prints them."""
        return ()

    def __call__(self, *xs: Any) -> Any:
        for x in xs:
            if isinstance(x, Value):
                return x._bind(self, xs)
        return self.evaluate(*xs)

    def __str__(self) -> str:
        return str(self.name)


@immutable
class Call:
    """One line of the tape: `outs = primitive(*operands)`.

    `src` is the user's line; `reason` says why a derived call is there ("cotangent of %3, via
    exp"). Neither takes part in comparing tapes.
    """

    primitive: Primitive
    operands: tuple[Operand, ...]
    outs: tuple[Var, ...]
    src: Source | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)

    @property
    def out(self) -> Var:
        """The variable that this call defines, where it is only one."""
        (out,) = self.outs
        return out

    @property
    def is_cotangent(self) -> bool:
        """Whether the call belongs to the backward half of a derivative."""
        return self.reason.startswith("cotangent")


@immutable
class Guard:
    """A fact that the trace took for granted: the scalar `operand` had the value `expected`."""

    operand: Operand
    expected: Literal
    what: str = field(default="", compare=False)
    src: Source | None = field(default=None, compare=False)

    @property
    def error(self) -> str:
        """NumPy's error, as Python, that a call raises where this doesn't hold, if there is one."""
        raises = self.what.startswith("LinAlgError(") and not self.expected.value
        return self.what if raises else ""


@dataclass(frozen=True, eq=False)
class Tape(Editable):
    """A straight-line program: `inputs`, then `calls`, then `outputs`.

    `captured` are arrays that the function used without being passed them, the last inputs' values;
    `names` are the inputs', `guards` facts under which the tape is the user's function. `form` is
    how it was called, with what isn't an input. If `ordered`, sums keep their order; if the
    results are `matrices` of derivatives, little memory is used beside them. `axes`, with their
    inputs' numbers, are of any length in the tape's machine code. That may write the outputs named
    in `into` where an input lies, both by number, and the caller does so elsewhere."""

    name: str
    inputs: tuple[Var, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Operand, ...]
    guards: tuple[Guard, ...] = ()
    captured: tuple[np.ndarray, ...] = ()
    names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    form: Form | None = None
    ordered: bool = False
    matrices: bool = False
    axes: tuple[tuple[int, int], ...] = ()
    into: tuple[tuple[int, int], ...] = ()

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.inputs, self.calls, self.outputs, self.guards, self.into

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tape)
            and hash(self) == hash(other)
            and self._key() == other._key()
            and len(self.captured) == len(other.captured)
            and all(
                a is b
                or (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
                for a, b in zip(self.captured, other.captured, strict=True)
            )
        )

    @cached_property
    def _hash(self) -> int:
        return hash(self._key())

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: the fields, and nothing that was worked out from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        return str(METHODS["show"](self))

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def free_inputs(self) -> tuple[Var, ...]:
        """The inputs whose values a caller passes, without the captured ones."""
        return self.inputs[: len(self.inputs) - len(self.captured)]

    def play(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tape with NumPy, call by call, and return its output (a tuple, if several).

        The arguments are put together as those that were traced, with the same keywords and the
        same static values. A tape that wasn't made by `trace` takes its inputs, in order or by
        name. Raises `TapeError` if the shapes or dtypes aren't the inputs', or if a guard doesn't
        hold for these values.
        """
        results = METHODS["play"](self, args, kwargs)
        return results[0] if len(results) == 1 else tuple(results)

    def compile(self) -> Any:
        """The tape as a compiled function of the same arguments as `play`."""
        return METHODS["compile"](self)

    @property
    def source(self) -> str:
        """The Python source of the loops that `compile` hands to numba."""
        return str(METHODS["source"](self))

    @property
    def numpy_source(self) -> str:
        """The tape as plain NumPy, one statement a call; the compiled loops must agree with it."""
        return str(METHODS["numpy_source"](self))

    def to_networkx(self) -> Any:
        """The tape as a `networkx.DiGraph`: a node for each variable and call, edges along data."""
        return METHODS["to_networkx"](self)

    def to_json(self) -> str:
        """The same graph as JSON: `{"name": ..., "nodes": [...], "edges": [...]}`."""
        return str(METHODS["to_json"](self))

    def to_dot(self) -> str:
        """The tape in Graphviz's language: ellipses are values, boxes are calls."""
        return str(METHODS["to_dot"](self))

    @property
    def last(self) -> int:
        """The highest number of a variable."""
        return max(
            [v.id for v in self.inputs] + [v.id for c in self.calls for v in c.outs], default=0
        )

    def memory_report(self) -> MemoryReport:
        """Counts and bytes of parameters, constants and intermediates, their peak, and what the
        compiled code is planned to need."""
        report: MemoryReport = METHODS["memory_report"](self)
        return report


def with_inner(tape: Tape, change: Callable[[Tape], Tape], inlined: bool = True) -> Tape:
    """The tape with what `change` makes of those that its calls hold, but for `inlined` ones."""
    if not any(map(_TAPES, tape.calls)):
        return tape
    changed = {}
    for position, call in enumerate(tape.calls):
        held = call.primitive.tapes
        if held and (inlined or not call.primitive.inlined):
            new = [change(inner) for inner in held]
            if not all(map(operator.is_, new, held)):
                changed[position] = replace(call, primitive=call.primitive.with_tapes(new))
    if not changed:
        return tape
    calls = [changed.get(position, call) for position, call in enumerate(tape.calls)]
    return replace(tape, calls=tuple(calls))


_TAPES = operator.attrgetter("primitive.tapes")


def everywhere(step: Callable[[Tape], Tape]) -> Callable[[Tape], Tape]:
    """A pass that goes through the tapes that calls hold too, the innermost first. Those that will
    be inlined wait for that. For what keeps all that a tape computes, its inputs and its outputs:
    the call that holds it reads them by their places, and a rule of that call may look into it.
    """

    @functools.wraps(step)
    def deep(tape: Tape) -> Tape:
        return step(with_inner(tape, deep, inlined=False))

    return deep


class Builder:
    """Records calls and hands out variables, in order; `finish` makes the tape."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Var] = []
        self.names: list[str] = []
        self.calls: list[Call] = []
        self.guards: list[Guard] = []
        self._next = 1

    @classmethod
    def after(cls, tape: Tape, name: str) -> Builder:
        """A builder that goes on where a tape ends: with its inputs, its calls, its variables."""
        builder = cls(name)
        builder.inputs += tape.inputs
        builder.names += tape.names or ("",) * len(tape.inputs)
        builder.calls += tape.calls
        builder._next = 1 + tape.last
        return builder

    @property
    def following(self) -> int:
        """The number of the next variable."""
        return self._next

    def fresh(self, aval: Aval) -> Var:
        """A variable that nothing defines yet."""
        var = Var(self._next, one_type(aval))
        self._next += 1
        return var

    def input(self, aval: Aval, name: str = "") -> Var:
        var = self.fresh(aval)
        self.inputs.append(var)
        self.names.append(name)
        return var

    def call(
        self,
        primitive: Primitive,
        operands: Sequence[Operand],
        src: Source | None = None,
        reason: str = "",
    ) -> tuple[Var, ...]:
        """Append a call; its outputs' types come from the primitive."""
        avals = primitive.avals(*[x.aval for x in operands])
        return self.define(primitive, operands, avals, src, reason)

    def again(self, call: Call, operands: Sequence[Operand]) -> tuple[Var, ...]:
        """Append a call of another tape, with other operands."""
        first = self._next
        is_next = [out.id for out in call.outs[:1]] == [first]
        if is_next and all(map(operator.is_, operands, call.operands)):
            self._append(call)
            return call.outs
        for x, y in zip(operands, call.operands, strict=True):
            if x is not y and x.aval is not y.aval:
                return self.call(call.primitive, operands, call.src, call.reason)
        outs = tuple([Var(first + k, out.aval) for k, out in enumerate(call.outs)])
        self._append(Call(call.primitive, tuple(operands), outs, call.src, call.reason))
        return outs

    def define(
        self,
        primitive: Primitive,
        operands: Sequence[Operand],
        avals: Sequence[Aval],
        src: Source | None,
        reason: str,
    ) -> tuple[Var, ...]:
        """Append a call whose outputs have these types."""
        first = self._next
        outs = tuple([Var(first + k, one_type(aval)) for k, aval in enumerate(avals)])
        self._append(Call(primitive, tuple(operands), outs, src, reason))
        return outs

    def _append(self, call: Call) -> None:
        self._next += len(call.outs)
        self.calls.append(call)

    def finish(
        self,
        outputs: Sequence[Operand],
        captured: Sequence[np.ndarray] = (),
        output_names: Sequence[str] = (),
    ) -> Tape:
        return Tape(
            self.name,
            tuple(self.inputs),
            tuple(self.calls),
            tuple(outputs),
            tuple(self.guards),
            tuple(captured),
            tuple(self.names),
            tuple(output_names),
        )


class Rewriter:
    """Rebuilds a tape call by call: the frame that every pass hangs its rewrites in.

    `env` maps the old tape's variables to the new one's operands. Inputs are carried over first,
    in their order, so a pass never changes a tape's signature.
    """

    def __init__(self, tape: Tape, name: str | None = None) -> None:
        self.tape = tape
        self.builder = Builder(tape.name if name is None else name)
        self.env: dict[Var, Operand] = {}
        names = tape.names or ("",) * len(tape.inputs)
        for var, given in zip(tape.inputs, names, strict=True):
            self.env[var] = self.builder.input(var.aval, given)

    def operand(self, x: Operand) -> Operand:
        if isinstance(x, Literal):
            return x
        try:
            return self.env[x]
        except KeyError:
            raise TapeError(f"{x} is used before the call that defines it") from None

    def operands(self, call: Call) -> list[Operand]:
        try:
            return [x if type(x) is Literal else self.env[x] for x in call.operands]  # type: ignore[index]
        except KeyError:
            return [self.operand(x) for x in call.operands]  # which says what is wrong

    def copy(self, call: Call) -> None:
        """Carry a call over as it is."""
        outs = self.builder.again(call, self.operands(call))
        for before, after in zip(call.outs, outs, strict=True):
            self.env[before] = after

    def finish(self) -> Tape:
        for g in self.tape.guards:
            self.builder.guards.append(Guard(self.operand(g.operand), g.expected, g.what, g.src))
        outputs = [self.operand(x) for x in self.tape.outputs]
        return self.builder.finish(outputs, self.tape.captured, self.tape.output_names)
