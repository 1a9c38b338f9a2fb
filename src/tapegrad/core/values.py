"""Values on tapes: types, variables, literals, slices of axes; and the user's source lines.

Short names: `aval` abstract value, `var` variable, `src` the user's source line.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from tapegrad.core.late import HALVES, load
from tapegrad.core.lines import text_of

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[T]) -> type[T]:
    """Make an immutable dataclass for objects that tapes hold by the thousand. The type checker
    ensures that no field is set. A frozen dataclass checks that at run time, and takes three times
    as long to make."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in vars(cls))(cls)


def dtype_name(dtype: np.dtype) -> str:
    """The short name of a dtype: kind and bytes, as in `f8`, `i4`, `b1`."""
    return "bf16" if dtype.kind == "V" else f"{dtype.kind}{dtype.itemsize}"


def dtype_called(name: str) -> np.dtype:
    """The dtype with this short name, or NumPy's own name."""
    if name in ("bfloat16", "bf16", "<V2"):
        load(HALVES)
        return np.dtype("bfloat16")
    return np.dtype(name)


@immutable
class Aval:
    """The type of a value: its shape and dtype. Prints as `f8[3,4]`.

    `weak` marks a Python number, which takes the dtype of the values that it is combined with (NEP
    50).
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool = False

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype.num))  # hashing a dtype is slow

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(math.prod(self.shape))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> Aval:
        return Aval(tuple(shape), self.dtype)

    def with_dtype(self, dtype: Any) -> Aval:
        return Aval(self.shape, np.dtype(dtype))

    def __str__(self) -> str:
        weak = "*" if self.weak else ""
        return f"{dtype_name(self.dtype)}{weak}[{','.join(map(str, self.shape))}]"


MOST_TYPES = 10_000
_TYPES: dict[Aval, Aval] = {}


def one_type(aval: Aval) -> Aval:
    """The shared object for a type. It keeps tapes small and comparisons of types fast."""
    if len(_TYPES) > MOST_TYPES:
        _TYPES.clear()
    return _TYPES.setdefault(aval, aval)


def aval_of(value: Any) -> Aval:
    """The abstract value of a number or an array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return Aval(value.shape, value.dtype)
    return Aval((), np.asarray(value).dtype, weak=True)


class Length(int):
    """A number of elements, 0 or 1, of which other calls have more: it is equal to no number of the
    code's own. So what is done for it is what is done for any number."""

    __slots__ = ()
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Length and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __mul__(self, other: Any) -> Any:
        return self if type(other) is int and other == 1 else int(self) * other

    __rmul__ = __mul__


@immutable
class Var:
    """A variable: the name `%id`, which one call or the list of inputs defines."""

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


@immutable
class Literal:
    """A scalar constant. Two literals are equal if their bits are: 0.0 is not -0.0.

    All NaNs are equal, whatever their bits: which NaN an operation returns depends on the machine.
    For complex numbers this holds for each part.
    """

    value: np.generic
    open: bool = False  # whether it depends on a `Length`: another call has another number

    @property
    def aval(self) -> Aval:
        return Aval((), self.value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def _key(self) -> tuple[np.dtype, Any]:
        if self.value.dtype.kind == "c":
            return self.value.dtype, tuple([part._key()[1] for part in self.parts])
        nan = self.value != self.value
        return self.value.dtype, b"nan" if nan else self.value.tobytes()

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Literal) or self.open != other.open:
            return self is other
        x, y = self.value, other.value
        if type(x) is type(y) and x.dtype.kind in "fiub":
            if x or y:  # nonzero; zeros may differ in their signs
                return bool(x == y) or bool(x != x and y != y)
            return x.tobytes() == y.tobytes()
        return self._key() == other._key()

    def __hash__(self) -> int:
        value = self.value
        return hash(value) if value == value else 0  # the hash of a NaN depends on its identity

    @property
    def parts(self) -> tuple[Literal, Literal]:
        """The real and imaginary parts of a complex number."""
        return Literal(self.value.real), Literal(self.value.imag)

    def __str__(self) -> str:
        if self.dtype.kind == "c":
            return f"{dtype_name(self.dtype)}({self.value.real}, {self.value.imag})"
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
        cell = _cell(self.file)
        return f"{cell}, line {self.line}" if cell else f"{os.path.basename(self.file)}:{self.line}"

    @property
    def quoted(self) -> str:
        """The line with its text, as far as that can be read: fit.py:7: `y = np.sin(x)`."""
        return f"{self}: `{text}`" if (text := self.text) else str(self)

    @property
    def text(self) -> str:
        """The source line, without its indentation; all of what begins there, if that is on several
        lines. Empty if the file can't be read."""
        return text_of(self.file, self.line)


def _cell(file: str) -> str:
    """`Cell In[14]` if the file is a notebook's cell, by the name that the notebook displays;
    otherwise ""."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)(file)
    return " ".join(named) if named else ""


def same_bits(found: Any, expected: Literal) -> bool:
    """Whether a guarded scalar still has the value that the trace saw."""
    return Literal(expected.dtype.type(found)) == expected


class Value:
    """A stand-in for an array, to which primitives can be applied: applying one records a call."""

    __slots__ = ()
    aval: Aval
    _subclass: Any = None  # the subclass of ndarray that it stands for, if any: see `subclassed`

    def _bind(self, primitive: Any, operands: Sequence[Any]) -> Any:
        """Record `primitive(*operands)`, where one operand is this value."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return self.aval.size


def stood_for(kind: type) -> Any:
    """The subclass of ndarray for which this class stands, or None."""
    return kind._subclass if issubclass(kind, Value) else None


@dataclass(frozen=True)
class Slice:
    """`start : stop : step` along an axis, as `count` elements from `start` on.

    Python's slices don't hash before 3.12. These are never clipped: every index is in range.
    """

    start: int
    count: int
    step: int = 1

    def __str__(self) -> str:
        return f"Slice({self.start}, {self.count}, {self.step})"

    __repr__ = __str__

    @property
    def extent(self) -> int:
        """The extent of the resulting axis."""
        return self.count

    def as_slice(self) -> slice:
        if self.count == 0:
            return slice(0, 0, 1)
        stop: int | None = self.start + self.count * self.step
        if stop is not None and stop < 0:
            stop = None
        return slice(self.start, stop, self.step)


@dataclass(frozen=True)
class Span:
    """A slice whose number of elements varies between rounds: `count` elements from `start` on,
    stored at the front of an axis of `extent` elements."""

    start: int
    count: int
    step: int
    extent: int

    def __str__(self) -> str:
        return f"Span({self.start}, {self.count}, {self.step}, {self.extent})"

    __repr__ = __str__


@dataclass(frozen=True)
class Memory:
    """The owner of a primitive's result memory. The constants below are the only instances."""

    owns: bool = False  # new memory, which `evaluate` makes
    unset: bool = False  # new memory that is still to be filled
    is_view: bool = False  # the operand's memory
    picks: bool = False  # a view, unless it has no axes: then it is a scalar
    updates: bool = False  # the first operand's, with a part changed


UNKNOWN, OWN, UNSET = Memory(), Memory(owns=True), Memory(owns=True, unset=True)
VIEW, PICKED, UPDATED = Memory(is_view=True), Memory(is_view=True, picks=True), Memory(updates=True)
