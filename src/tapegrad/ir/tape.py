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
from tapegrad.core.values import Aval as Aval  # exported here too, for modules that work on tapes
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
from tapegrad.ir.exporting import Drawn
from tapegrad.ir.report import MemoryReport
from tapegrad.ir.traits import PLAIN, SMOOTH, Algebra, Ties

# Printed name -> primitive, or class of primitives with parameters. Each enters itself.
DECLARED: dict[str, Any] = {}


class Primitive:
    """The operation that a call applies. `primitives/base.py` describes the kinds and what rules
    work on."""

    name: Any  # a string, on the class or on the instance
    results: ClassVar[int] = 1
    absent: ClassVar[bool] = False  # whether `vjp` accepts None for a result without cotangent
    factors: ClassVar[bool] = False  # whether readers' rules give cotangents to its operand instead
    memory: ClassVar[Memory] = UNKNOWN  # whether the result has its own memory or an operand's
    pointwise: ClassVar[bool] = False  # whether each element depends on the operands' same element
    scalar: Any = ""  # that function as an emitted expression
    cost: Any = 1  # of an element, in additions
    algebra: Algebra = PLAIN  # in which operands it is linear, and similar facts
    ties: Ties = SMOOTH  # how its derivatives behave at kinks
    foreign: ClassVar[bool] = False  # a user's function, which may have side effects
    visible: Any = None  # the number of results with derivatives; the others are kept for a rule
    tapes: tuple[Tape, ...] = ()  # the sub-tapes among its parameters
    inlined: ClassVar[bool] = False  # whether their calls will replace this call
    flat: Any = False  # whether its derivative is zero everywhere
    checks: Any = False  # whether it has guards, so that it is kept although its result isn't read
    of_complex: Any = False  # whether its rules and results are right for complex numbers
    repeats: ClassVar[bool] = False  # whether it is a loop, which updates its loop-carried values

    def with_tapes(self, tapes: Sequence[Tape]) -> Primitive:
        """This primitive with other sub-tapes."""
        return self

    def aval(self, *xs: Aval) -> Any:
        """The result's type. Raises a ValueError if the operands don't fit."""
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
        """Whether operands of these types never fit, whatever their values."""
        try:
            self.avals(*xs)
        except (TypeError, ValueError):  # LinAlgError is a ValueError
            return True
        return False

    def evaluate(self, *xs: Any) -> Any:
        """The result as NumPy computes it: the oracle of the tests, and what `play` runs."""
        raise NotImplementedError

    def showing(self, m: int) -> Sequence[int]:
        """The positions of the results that may share memory with operand `m`."""
        return range(self.results)

    def updating(self) -> Callable[..., Any]:
        """For a primitive that updates: `evaluate` in the memory of the first operand."""
        raise NotImplementedError

    def for_types(self, *avals: Aval) -> Callable[..., Any]:
        """A version of `evaluate` for operands of these types, which it needn't check."""
        return self.evaluate

    def played(self, run: Callable[[Tape, Sequence[Any]], list[Any]], *xs: Any) -> Any:
        """`evaluate`, with `run` to run the sub-tapes."""
        return self.evaluate(*xs)

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """The cotangent of each operand, None where there is none."""
        raise GradientError(f"{self.name} has no reverse rule")

    def kink(self, operands: Sequence[Any]) -> Any:
        """The key of this call's kink, or None if it has none. A function and its pullback at the
        same operands have equal keys."""
        return None

    def vjp_along(self, directions: Any, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        """`vjp` on the side of the kink to which the first nonzero direction points."""
        return self.vjp(ct, out, *xs)

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        """The tangent of the result; `ts` holds None where an operand has no tangent."""
        raise GradientError(f"{self.name} has no forward rule")

    def keeps_zeros(self, xs: Sequence[Operand], kept: Sequence[bool]) -> bool:
        """Whether derivatives keep zeros of the result (see `masks`), if they keep those of `kept`
        operands."""
        return False

    def template(self, dtype: np.dtype, given: Sequence[Any]) -> str:
        """The emitted expression for this dtype. `given` holds the literal operands, and Nones."""
        return str(self.scalar)

    def numpy_text(self, outs: Sequence[str], xs: Sequence[str], call: Call) -> list[str]:
        """The lines of NumPy source that define `outs`. If there are none, the primitive is called
        by name."""
        return []

    def quick_text(self, xs: Sequence[str]) -> str:
        """A Python expression for `evaluate` (for `updating`, if it updates) of operands with these
        names; "" if nothing is quicker than the call."""
        return ""

    def filling_text(self, out: str, xs: Sequence[str]) -> str:
        """Python that writes the result into `out`, of `fill` or zeros; "" if it isn't made so."""
        return ""

    def scalar_text(self, xs: Sequence[str]) -> str:
        """`quick_text` for operands without axes: Python's or NumPy's numbers, and truth values."""
        return ""

    def parameters(self) -> tuple[tuple[str, Any], ...]:
        """The static parameters by name, as printed on the tape."""
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

    `src` is the user's line; `reason` says why a derived call exists ("cotangent of %3, via exp").
    Neither is compared when tapes are compared."""

    primitive: Primitive
    operands: tuple[Operand, ...]
    outs: tuple[Var, ...]
    src: Source | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)

    @property
    def out(self) -> Var:
        """The variable that this call defines, if there is only one."""
        (out,) = self.outs
        return out

    @property
    def is_cotangent(self) -> bool:
        """Whether the call belongs to the backward half of a derivative."""
        return self.reason.startswith("cotangent")


@immutable
class Guard:
    """An assumption of the trace: the scalar `operand` has the value `expected`."""

    operand: Operand
    expected: Literal
    what: str = field(default="", compare=False)
    src: Source | None = field(default=None, compare=False)

    @property
    def error(self) -> str:
        """NumPy's error, as source, that a call raises if this guard fails; "" if there is none."""
        raises = self.what.startswith("LinAlgError(") and not self.expected.value
        return self.what if raises else ""


@dataclass(frozen=True, eq=False)
class Tape(Drawn, Editable):
    """A straight-line program: `inputs`, then `calls`, then `outputs`.

    `names` are the names of the inputs. `captured` are the values of the last inputs: arrays that
    the function used without being passed them. The tape is the user's function where all `guards`
    hold. `form` is how it was called, with the arguments that aren't inputs. If `ordered`, sums
    keep their order. If the results are `matrices` of derivatives, little memory is used beside
    them. `axes` are pairs (input number, axis) of any length in the tape's machine code. `into` are
    pairs (output number, input number): machine code may write the output into the memory of the
    input; where the tape is played, the caller copies it there. Each call
    reads as its last inputs arrays that were made at the lines `outside`, as far as known; their
    values aren't here."""

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
    outside: tuple[Source | None, ...] = ()

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
        """The pickled state: the fields, without cached properties."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        return str(METHODS["show"](self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(METHODS["html"](self, "tape"))

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def free_inputs(self) -> tuple[Var, ...]:
        """The inputs that a caller passes, without the captured ones."""
        return self.inputs[: len(self.inputs) - len(self.captured)]

    def play(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tape with NumPy, call by call, and return its output (a tuple, if several).

        The arguments have the structure of the traced ones, with the same keywords and the same
        static values. A tape that wasn't made by `trace` takes its inputs, in order or by name.
        Raises `TapeError` if shapes or dtypes differ from the inputs', or if a guard fails for
        these values.

        With `debug=True` each call is printed, with a summary of its value; of a loop the first
        rounds are.
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

    @property
    def last(self) -> int:
        """The highest number of any variable."""
        return max(
            [v.id for v in self.inputs] + [v.id for c in self.calls for v in c.outs], default=0
        )

    def memory_report(self) -> MemoryReport:
        """Counts and bytes of parameters, constants and intermediates, the peak of live memory, and
        the planned scratch memory of the compiled code."""
        report: MemoryReport = METHODS["memory_report"](self)
        return report


def with_inner(tape: Tape, change: Callable[[Tape], Tape], inlined: bool = True) -> Tape:
    """The tape with `change` applied to its calls' sub-tapes. Those that will be inlined are left
    out unless `inlined`."""
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
    """Apply a pass to sub-tapes as well, innermost first, but not to those that will be inlined.

    The pass must keep inputs, outputs and their values: the call that holds a sub-tape reads them
    by position, and a rule of that call may use them."""

    @functools.wraps(step)
    def deep(tape: Tape) -> Tape:
        return step(with_inner(tape, deep, inlined=False))

    return deep


class Builder:
    """Appends calls and hands out variables in order. `finish` makes the tape."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Var] = []
        self.names: list[str] = []
        self.calls: list[Call] = []
        self.guards: list[Guard] = []
        self._next = 1

    @classmethod
    def after(cls, tape: Tape, name: str) -> Builder:
        """A builder that continues a tape, with its inputs, calls and variable numbers."""
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
        """A new variable without a definition."""
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
        """Append a call. The primitive determines the types of its outputs."""
        avals = primitive.avals(*[x.aval for x in operands])
        return self.define(primitive, operands, avals, src, reason)

    def again(self, call: Call, operands: Sequence[Operand]) -> tuple[Var, ...]:
        """Append a copy of another tape's call, with other operands."""
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
        """Append a call whose outputs have the types `avals`."""
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
    """Rebuilds a tape call by call; the frame of every rewriting pass.

    `env` maps the old tape's variables to the new one's operands. Inputs are copied first, in
    order, so a pass never changes a tape's signature."""

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
            return [self.operand(x) for x in call.operands]  # raises the error

    def copy(self, call: Call) -> None:
        """Copy a call to the new tape."""
        outs = self.builder.again(call, self.operands(call))
        for before, after in zip(call.outs, outs, strict=True):
            self.env[before] = after

    def finish(self) -> Tape:
        for g in self.tape.guards:
            self.builder.guards.append(Guard(self.operand(g.operand), g.expected, g.what, g.src))
        outputs = [self.operand(x) for x in self.tape.outputs]
        return self.builder.finish(outputs, self.tape.captured, self.tape.output_names)
