"""The tape: a typed, immutable, straight-line program over whole arrays.

A tape is a list of calls in static single assignment form. Each call applies a primitive to
operands (variables and scalar literals) and defines one or more variables. A primitive may hold
sub-tapes among its static parameters, so tapes nest.

Short names: `aval` abstract value, `var` variable, `src` the user's source line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.errors import TapeError
from tapegrad.locks import cached_property

if TYPE_CHECKING:
    from tapegrad.ir.report import MemoryReport
    from tapegrad.primitives.base import Primitive


def dtype_name(dtype: np.dtype) -> str:
    """The short name of a dtype: kind and bytes, as in `f8`, `i4`, `b1`."""
    return f"{dtype.kind}{dtype.itemsize}"


@dataclass(frozen=True, slots=True)
class Aval:
    """Shape and dtype of a value that isn't there yet. Prints as `f8[3,4]`.

    `weak` marks a Python number: it takes the dtype of what it meets (NEP 50).
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool = False

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype.num))  # dtypes themselves take long to hash

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> Aval:
        return Aval(tuple(shape), self.dtype)

    def with_dtype(self, dtype: Any) -> Aval:
        return Aval(self.shape, np.dtype(dtype))

    def __str__(self) -> str:
        weak = "*" if self.weak else ""
        return f"{dtype_name(self.dtype)}{weak}[{','.join(map(str, self.shape))}]"


def aval_of(value: Any) -> Aval:
    """The abstract value of a number or an array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return Aval(value.shape, value.dtype)
    return Aval((), np.asarray(value).dtype, weak=True)


@dataclass(frozen=True, slots=True)
class Var:
    """A variable: the name `%id` that one call, or the list of inputs, defines."""

    id: int
    aval: Aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype

    def __hash__(self) -> int:
        return self.id  # equal variables have equal ids, and hashing their types too is slow

    def __str__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A scalar constant. Two literals are equal when their bits are: 0.0 is not -0.0.

    Only NaN is one value, whatever its bits: which NaN an operation gives depends on the machine.
    """

    value: np.generic

    @property
    def aval(self) -> Aval:
        return Aval((), self.value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def _key(self) -> tuple[np.dtype, bytes]:
        nan = self.value != self.value
        return self.value.dtype, b"nan" if nan else self.value.tobytes()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Literal) and self._key() == other._key())

    def __hash__(self) -> int:
        value = self.value
        return hash(value) if value == value else 0  # NaNs hash by where they are

    def __str__(self) -> str:
        text = str(self.value)
        plain = self.dtype in (np.float64, np.bool_, np.int64) and np.isfinite(self.value)
        return text if plain else f"{dtype_name(self.dtype)}({text})"


def literal(value: Any, dtype: Any) -> Literal:
    """The scalar constant `value`, of the given dtype."""
    return Literal(np.dtype(dtype).type(value))


Operand = Var | Literal


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def text(self) -> str:
        """The line itself, without its indentation; empty if the file can't be read."""
        import linecache

        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Guard:
    """A fact that the trace took for granted: the scalar `operand` had the value `expected`."""

    operand: Operand
    expected: Literal
    what: str = field(default="", compare=False)
    src: Source | None = field(default=None, compare=False)

    @property
    def error(self) -> str:
        """NumPy's error, as Python, that a call raises where this doesn't hold; mostly there is
        none, and the function takes another path."""
        raises = self.what.startswith("LinAlgError(") and not self.expected.value
        return self.what if raises else ""


@dataclass(frozen=True, slots=True)
class Form:
    """How a traced function was called: all that later calls of its tape must have alike.

    `structure` is that of the positional and the keyword arguments. `statics` are the leaves that
    aren't inputs: where, what, and by which key.
    """

    structure: Any
    statics: tuple[tuple[str, str, Any], ...]


@dataclass(frozen=True, eq=False)
class Tape:
    """A straight-line program: `inputs`, then `calls`, then `outputs`.

    `captured` holds the arrays that the traced function used without being passed them; they are
    the values of the last inputs. `names` are the inputs' names in the user's program. `guards`
    are the facts under which the tape is the user's function. `form` is how it was called: the
    structure of the arguments, and what in it isn't an input.
    """

    name: str
    inputs: tuple[Var, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Operand, ...]
    guards: tuple[Guard, ...] = ()
    captured: tuple[np.ndarray, ...] = ()
    names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    form: Form | None = None

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.inputs, self.calls, self.outputs, self.guards

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tape)
            and hash(self) == hash(other)
            and self._key() == other._key()
            and len(self.captured) == len(other.captured)
            and all(
                a is b
                or (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
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
        from tapegrad.ir.text import show

        return show(self)

    def __repr__(self) -> str:
        return str(self)

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
        from tapegrad.runtime.play import play

        results = play(self, args, kwargs)
        return results[0] if len(results) == 1 else tuple(results)

    def compile(self) -> Any:
        """The tape as a compiled function of the same arguments as `play`."""
        from tapegrad.pipeline import compile_tape

        return compile_tape(self)

    @property
    def source(self) -> str:
        """The Python source of the loops that `compile` hands to numba."""
        from tapegrad.pipeline import source_of

        return source_of(self)

    @property
    def numpy_source(self) -> str:
        """The tape as plain NumPy, one statement a call; the compiled loops must agree with it."""
        from tapegrad.pipeline import numpy_source_of

        return numpy_source_of(self)

    def to_networkx(self) -> Any:
        """The tape as a `networkx.DiGraph`: a node for each variable and call, edges along data."""
        from tapegrad.ir.graph import to_networkx

        return to_networkx(self)

    def to_dot(self) -> str:
        """The tape in Graphviz's language: ellipses are values, boxes are calls."""
        from tapegrad.ir.graph import to_dot

        return to_dot(self)

    @property
    def last(self) -> int:
        """The highest number of a variable."""
        return max(
            [v.id for v in self.inputs] + [v.id for c in self.calls for v in c.outs], default=0
        )

    def memory_report(self) -> MemoryReport:
        """Counts and bytes of parameters, constants and intermediates, their peak, and what the
        compiled code is planned to need."""
        from tapegrad.ir.report import memory_report
        from tapegrad.pipeline import scratch_bytes_of

        return memory_report(self, scratch_bytes_of(self))


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

    def fresh(self, aval: Aval) -> Var:
        """A variable that nothing defines yet."""
        var = Var(self._next, aval)
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
        return self._append(primitive, operands, avals, src, reason)

    def again(self, call: Call, operands: Sequence[Operand]) -> tuple[Var, ...]:
        """Append a call of another tape, with other operands."""
        for x, y in zip(operands, call.operands, strict=True):
            if x is not y and x.aval is not y.aval:
                return self.call(call.primitive, operands, call.src, call.reason)
        avals = [out.aval for out in call.outs]  # of the same types as before
        return self._append(call.primitive, operands, avals, call.src, call.reason)

    def _append(
        self,
        primitive: Primitive,
        operands: Sequence[Operand],
        avals: Sequence[Aval],
        src: Source | None,
        reason: str,
    ) -> tuple[Var, ...]:
        first = self._next
        self._next = first + len(avals)
        outs = tuple([Var(first + k, aval) for k, aval in enumerate(avals)])
        self.calls.append(Call(primitive, tuple(operands), outs, src, reason))
        return outs

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
        for guard in self.tape.guards:
            self.builder.guards.append(
                Guard(self.operand(guard.operand), guard.expected, guard.what, guard.src)
            )
        return self.builder.finish(
            [self.operand(x) for x in self.tape.outputs],
            self.tape.captured,
            self.tape.output_names,
        )
