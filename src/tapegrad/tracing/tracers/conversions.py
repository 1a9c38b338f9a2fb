"""Conversions of tracers to plain values: a truth value, an integer, a text, an array.

The value of an integer or boolean is guarded. A real number would lose its derivative: converting
it to a plain float or array is an error that the program can't catch. If the program catches it, or
a library replaces it by another error, the execution has left the path of plain NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import ConversionError
from tapegrad.ir.plain_numbers import PLAIN
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import note_test, unobserved
from tapegrad.observe.program.source import asks_for, assigns_item, at_line, caller
from tapegrad.observe.queries import note_turn
from tapegrad.observe.values.exact import is_exact, is_of_integers, made_of
from tapegrad.observe.values.texts import formats_text, tell
from tapegrad.tracing.operators.deciding import TO_FLOAT
from tapegrad.tracing.operators.integer_bounds import whole
from tapegrad.tracing.recording.decisions import check_decision, may_decide
from tapegrad.tracing.tracers.alternatives import call_text, called_now
from tapegrad.tracing.tracers.hashing import notes_about

_tell = unobserved(tell)


def _advice() -> str:
    """The alternative to the call that the program is making."""
    name, advice = called_now()
    if name:
        return f"Instead of {name}, use {advice}"
    return (
        "For np.array([a, b]) of traced values, import tapegrad.numpy as np, or use "
        "np.stack([a, b]); drop np.array(x) and np.asarray(x) of one"
    )


class Conversions:
    """Mixin of all tracers."""

    __slots__ = ()
    __pandas_priority__ = 9000  # pandas' operators yield to those of tracers
    _trace: Any
    _value: Any
    _aval: Any

    def _scalar_value(self: Any, kind: str) -> Any:
        if self._aval.size != 1:
            raise TypeError(f"only an array of one element can be converted to {kind}")
        if self._aval.shape and kind != "bool":
            float(np.asarray(self._concrete))  # NumPy's own error, if it raises one
        return np.asarray(self._concrete).reshape(())[()]

    def _as_integer(self) -> Any:
        """The integer value of a Python boolean."""
        from tapegrad.primitives.elementwise import AsType

        return AsType(np.dtype(np.int64))(self)._as_pythons()

    def _as_scalar(self: Any) -> Any:
        from tapegrad.primitives.views import Reshape

        return self if self._aval.shape == () else Reshape(())(self)

    @unobserved
    def __bool__(self: Any) -> bool:
        if self._aval.size != 1:
            return bool(np.asarray(self._concrete))  # NumPy's own error
        found = bool(self._scalar_value("bool")) and not self._trace.presuming
        condition = self._as_scalar()
        if self._aval.dtype != np.bool_:
            condition = condition != 0
        self._trace.check_alive()
        heard = note_turn(self, condition, found)
        if heard is not None:
            return heard
        note_test(self, self._trace, self._trace.guard(condition, found, "a condition"))
        return found

    @unobserved
    def _guarded(self: Any, what: str) -> Any:
        """The value of a number without a derivative, which is guarded."""
        value = self._scalar_value(what)
        if formats_text():
            check_decision(self._trace, self._read()[0], "a number in a text")
            tell(self)
            return value
        self._trace.check_alive()
        self._trace.guard(self._as_scalar(), value, what)
        return value

    @unobserved
    def _guarded_array(self: Any) -> np.ndarray:
        """The values of integers or booleans, which are guarded."""
        if self._aval.shape == ():
            return np.array(self._guarded("an integer or a boolean in a plain array"))
        found = np.array(self._concrete)
        same: Any = np.all(np.equal(self, found.copy()))
        self._trace.guard(same, True, "integers or booleans in a plain array")
        return found

    def _guarded_int(self, what: str) -> int:
        if self._aval.dtype.kind == "c":
            raise self._trace.refused(self._of_complex(what))
        if self._aval.dtype.kind != "f":
            return int(self._guarded(what))
        if not np.isfinite(self._scalar_value(what)):  # Python's own error
            return int(np.nan if np.isnan(self) or not np.isinf(self) else np.inf)
        whole: Any = np.trunc(self)
        return int(whole._guarded(what))

    def _of_complex(self, what: str) -> ConversionError:
        """The error for converting a complex number to a real Python number."""
        return ConversionError(
            f"a traced complex number was converted to a plain Python number{at_line()}, by "
            f"{what}, which carries no derivative. Use z.real and z.imag"
        )

    def _can_be_plain(self: Any) -> bool:
        """Whether a real number can be guarded by its value: played and compiled code compute the
        same bits, and it has one value in each call."""
        return self._stands_for_one() and is_exact(self._trace, self._read()[0])

    def _stands_for_one(self: Any) -> bool:
        trace = self._trace
        if trace.repeats or self._aval.size != 1 or self._aval.dtype.kind != "f":
            return False
        operand, value = self._read()
        return value is not None and may_decide(trace, operand)

    def _taken_for_plain(self: Any, why: str) -> Any:
        """The value of a real number where it can be assumed. The values that it is computed from
        are guarded; `why` is the error for differentiating with respect to them. None if it can't
        be assumed."""
        from tapegrad.primitives.views import Reshape

        trace, operand = self._trace, self._read()[0]
        if not self._stands_for_one() or (found := made_of(trace, operand)) is None:
            return None
        for x, value in found.items():
            (scalar,) = [x] if not x.shape else trace.record(Reshape(()), [x])
            trace.guard(scalar, np.asarray(value).reshape(()), PLAIN + why)
        return self._scalar_value("float")

    @unobserved
    def _as_plain(self: Any, what: str) -> Any:
        """The guarded value of a real number for which `_can_be_plain` holds."""
        self._trace.check_alive()
        value = self._scalar_value("float")
        self._trace.guard(self._as_scalar(), value, what)
        return value

    def __array__(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._trace.check_alive()
        if not args and not kwargs and asks_for("__array__"):  # called by a program, not in C
            return dispatch.with_bare(lambda x: x, self)
        if self._aval.dtype.kind in "iub" and not (self._aval.shape and self._trace.opaque):
            return np.array(self._guarded_array(), *args[:1])
        if assigns_item():
            raise self._assigned()
        if caller() == "SciPy":
            message = (
                f"SciPy makes a plain NumPy array of a traced one ({self._aval}){at_line()}, "
                "which carries no derivative. docs/scipy.md says which of SciPy's functions "
                "can be traced; others can be declared with tapegrad.primitive and defvjp"
            )
            if not self._aval.shape and (value := self._taken_for_plain(message)) is not None:
                return np.array(value, *args[:1])
            raise self._trace.refused(ConversionError(message))
        call = call_text()
        by = f", in `{call}`" if call else ""
        raise self._trace.refused(
            ConversionError(
                f"a traced array ({self._aval}) can't become a plain NumPy array{at_line()}{by}, "
                f"which carries no derivative. {_advice()}. A function that needs plain arrays can "
                "be declared with tapegrad.primitive"
            )
        )

    def _assigned(self) -> ConversionError:
        """The error for `a[k] = self` where `a` is a plain array, or a SciPy matrix."""
        if caller() == "SciPy":
            return self._trace.refused(
                ConversionError(
                    f"a traced value ({self._aval}) is assigned into a sparse matrix{at_line()}, "
                    "whose elements are plain; it carries no derivative. Make the matrix of all "
                    "elements, with scipy.sparse.csr_array((values, (rows, columns)))"
                )
            )
        what = self._trace.unfilled or (
            "that the function hasn't made, or that code has which isn't traced"
        )
        return self._trace.refused(
            ConversionError(
                f"a traced value ({self._aval}) is assigned into an array of plain numbers"
                f"{at_line()}, {what}; it carries no derivative. Make the array in the function, "
                "with np.zeros(n) or np.array(a), or put the parts together with np.stack or "
                "np.concatenate"
            )
        )

    # ---- texts and copies

    def __repr__(self: Any) -> str:
        return self._text(repr)

    def __str__(self: Any) -> str:
        return self._text(str)

    def __format__(self: Any, spec: str) -> str:
        return self._text(format, spec)

    def _text(self: Any, made: Callable[..., str], *spec: str) -> str:
        """The text of the value, as in plain Python. A value that is unknown, or left over from
        another trace, is shown as a tracer."""
        known = len(self._trace.shown)
        _tell(self)
        value = self._value if may_decide(self._trace, self._read()[0]) else None
        if value is None or (made is repr and not self._trace.alive):
            found = "" if value is None else f", value={np.array2string(np.asarray(value))}"
            return f"Tracer({self._aval}{found})"
        value = self._concrete
        if self._weak:
            if self._trace.mixed:  # a number computed from mixed ones may be NumPy's
                self._trace.reconsidered = True
            value = np.asarray(value).item()
        text = made(value, *spec)
        for shown in self._trace.shown[known:]:
            shown.text = text
        return text

    def __reduce__(self) -> Any:
        raise ConversionError(
            f"a traced array can't be pickled{at_line()}: its bytes would be those of this call. "
            "Pickle what the function returns (has_aux=True)"
        )


class AsReal:
    """Mixin of values that Python converts to int or float: all but its complex numbers."""

    __slots__ = ()

    def __int__(self: Any) -> int:
        return self._guarded_int("int(...)")

    def __float__(self: Any) -> float:
        if formats_text():
            check_decision(self._trace, self._read()[0], "a number in a text")
            tell(self)
            return float(self._scalar_value("float"))
        if self._aval.dtype.kind == "c":
            raise self._trace.refused(self._of_complex("float(...)"))
        if self._aval.dtype.kind in "iub" or is_of_integers(self._trace, self._read()[0]):
            return float(self._guarded(TO_FLOAT))
        self._trace.check_alive()
        if assigns_item():
            raise self._assigned()
        return self._plain_float()

    @unobserved
    def _plain_float(self: Any, by: str = "") -> float:
        """The plain number, without a derivative. If the conversion is for a C function (`by`) or
        for SciPy, the number is guarded, and it is an error to differentiate with respect to it;
        otherwise the conversion is an error."""
        named = by
        scipy = not named and caller() == "SciPy"
        if scipy:
            by = "SciPy"
            advice = (
                "docs/scipy.md says which of SciPy's functions can be traced; others can be "
                "declared with tapegrad.primitive and defvjp"
            )
        elif named:
            advice = (
                f"{named} is written in C, and takes plain numbers. Use NumPy's functions, or "
                "declare one that needs plain numbers with tapegrad.primitive"
            )
        else:
            name, instead = called_now()
            call = call_text()
            drop = "" if call and "float" not in call else "drop float(...), and "
            drop = f"use {instead}" if name else f"{drop}use NumPy's functions"
            advice = (
                f"{drop}. A function that needs plain numbers can be declared with "
                "tapegrad.primitive"
            )
            by = name or (f"`{call}`" if call else "float(x) or code in C")
        message = (
            f"a traced number was converted to a plain Python float{at_line()}, by {by}. A "
            f"plain float carries no derivative: {advice}"
        )
        if (scipy or named) and (value := self._taken_for_plain(message)) is not None:
            return float(value)
        error = ConversionError(message)
        error.notes = notes_about(self)
        raise self._trace.refused(error)


class AsIndex:
    """Mixin of values that Python and NumPy accept as an index."""

    __slots__ = ()

    def __index__(self: Any) -> int:
        if self._aval.dtype.kind not in ("iub" if self._weak else "iu"):
            raise TypeError(f"only integer arrays can be used as an index, not {self._aval}")
        if self._aval.shape != ():
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self._guarded_int("an integer used as an index, a length or a range"))


class Rounds:
    """Mixin of NumPy scalars that support `round`."""

    __slots__ = ()

    def __round__(self: Any, digits: int | None = None) -> Any:
        if digits is not None:
            return np.round(self, digits)
        return whole(np.rint(self) if self.dtype.kind == "f" else self)


class Complexes:
    """Mixin of arrays and NumPy's complex scalars."""

    __slots__ = ()

    def __complex__(self: Any) -> complex:
        raise self._trace.refused(self._of_complex("complex(...)"))
