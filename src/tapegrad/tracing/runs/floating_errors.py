"""Floating-point errors that a program watches for: whether one occurs is a branch.

Under `np.errstate(divide="raise")` a division by zero is an exception. If the function turns
warnings into errors, or records them, so is NumPy's warning. Such a call of NumPy is repeated at
each call of the derivative, on the operands' values then, and a guard compares which errors occur.
All other calls run without warnings, as the tape does.

The same holds for `scipy.special.errstate(all="raise")` and SciPy's special functions.
"""

from __future__ import annotations

import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.arrays import computed_in, is_known
from tapegrad.core.handlers import let_through, quiet
from tapegrad.core.trees import flatten
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval
from tapegrad.observe.program.source import at_line
from tapegrad.primitives.control import ForeignCall
from tapegrad.tracing.operators.inline_cache import errors_now
from tapegrad.tracing.recording.trace import Trace, innermost, refusing
from tapegrad.tracing.runs.mixed_trees import MixedTree, mixed_tree
from tapegrad.tracing.runs.traced import input_aval
from tapegrad.tracing.tracers.tracer import Tracer, record

_FLAGS = {"divide": 1, "over": 2, "under": 4, "invalid": 8}  # NumPy's own numbers


def watching(func: Any, args: Sequence[Any], kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
    """The result of `run()`, which records `func(*args, **kwargs)`, a call of NumPy. If the program
    watches for its errors, there is a guard on them."""
    if isinstance(func, np.ufunc):
        run = watching_special(func, args, kwargs, run)
    direct, nested = [], False
    for x in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(x, Tracer):
            direct.append(x)
        elif isinstance(x, (list, tuple, dict)):
            nested = True
    if direct and not nested and not watched(innermost(direct)):
        return run()
    leaves, structure = flatten((tuple(args), kwargs))
    tracers = [x for x in leaves if isinstance(x, Tracer)]
    if not tracers:
        return run()
    trace = innermost(tracers)
    mask = watched(trace)
    if not mask or not _can_be_repeated(leaves):
        return run()
    call, operands = _repeated(WatchedCall, func, leaves, structure, mask)
    found = _guarded(call, operands, "an error of floating point")
    if found > 0:
        _refuse_effects(func, np.geterr(), found)
        call.repeat([x._read()[1] if isinstance(x, Tracer) else x for x in operands])  # may raise
    result = quiet(run)()
    if found < 0:
        raise UnsupportedError(
            f"whether np.{_name(func)} of this form has an error of floating point can't be "
            f"followed{at_line()}, and np.errstate or a filter of warnings makes a branch of it. "
            "Leave it outside of the with block"
        )
    return result


def watching_special(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], run: Callable[[], Any]
) -> Callable[[], Any]:
    """The function to run in place of `run`. If the program watches for errors of SciPy's special
    functions, a guard on this call's error is added. An error that occurs now is raised, or warned
    of, here, and not again by the returned function."""
    special: Any = sys.modules.get("scipy.special")
    modes = {} if special is None else special.geterr()
    modes = {kind: x for kind, x in modes.items() if x != "ignore" and kind != "memory"}
    if not modes or (isinstance(func, np.ufunc) and hasattr(np, func.__name__)):
        return run
    leaves, structure = flatten((tuple(args), kwargs))
    tracers = [x for x in leaves if isinstance(x, Tracer)]
    if not tracers:
        return run
    if not _warnings_matter(innermost(tracers), special.SpecialFunctionWarning):
        modes = {kind: "raise" for kind, x in modes.items() if x == "raise"}
    if not modes:
        return run
    found = -1
    if _can_be_repeated(leaves):
        call, operands = _repeated(SpecialCall, func, leaves, structure, modes)
        found = _guarded(call, operands, "an error of scipy.special")
    if found > 0:
        call.repeat([x._read()[1] if isinstance(x, Tracer) else x for x in operands])  # may raise
    if found < 0:
        raise refusing(
            UnsupportedError(
                f"whether {_name(func)} has an error of scipy.special can't be followed"
                f"{at_line()}, and scipy.special.errstate or seterr makes a branch of it. Leave it "
                "outside of the with block, and test the arguments"
            )
        )

    def quietly() -> Any:
        with special.errstate(all="ignore"):
            return run()

    return quietly


def watched(trace: Trace) -> int:
    """The errors that the program of a trace watches for now, as NumPy's flags."""
    state = errors_now()
    matter = _warnings_matter(trace)
    if state is trace.calm and not matter:  # the most frequent case
        return 0
    modes: dict[str, Any] = {**np.geterr()}
    if trace.idle:  # errors are ignored there
        modes = {kind: "warn" if mode == "ignore" else mode for kind, mode in modes.items()}
    kinds = ["raise", "call", "log"]
    if "warn" in modes.values() and matter:
        kinds.append("warn")
    found = sum(_FLAGS[kind] for kind, mode in modes.items() if mode in kinds)
    if not found and not matter:
        trace.calm = state
    return found


def guard_refusal(func: Any, args: Sequence[Any], kwargs: dict[str, Any], refusal: Any) -> bool:
    """Guard that the library refuses `func(*args, **kwargs)` with this message again. Returns
    whether that was possible."""
    leaves, structure = flatten((tuple(args), kwargs))
    if not _can_be_repeated(leaves):
        return False
    call, operands = _repeated(RefusedCall, func, leaves, structure, type(refusal), str(refusal))
    return _guarded(call, operands, "an error that the function catches") == 1


def _can_be_repeated(leaves: Sequence[Any]) -> bool:
    """Whether all values are known, and none is a function of the user's, which is followed."""
    known = all(not isinstance(x, Tracer) or x._read()[1] is not None for x in leaves)
    return known and not any(map(_is_users, leaves))


def _repeated(
    kind: Any, func: Any, leaves: Sequence[Any], structure: Any, *about: Any
) -> tuple[Any, list[Any]]:
    """A call that each call of the derivative repeats, and its operands."""
    on_tape = [is_operand(x) for x in leaves]
    operands = [x for x, yes in zip(leaves, on_tape, strict=True) if yes]
    arguments = mixed_tree(structure, leaves, on_tape, [input_aval(x) for x in operands])
    return kind(func, arguments, *about), operands


def _guarded(call: Any, operands: Sequence[Any], what: str) -> int:
    """The number that such a call returns now, which is guarded."""
    trace, name = innermost([x for x in operands if isinstance(x, Tracer)]), _name(call.func)
    types = (Aval((), np.dtype(np.int64)),)
    foreign = ForeignCall(f"errors_of_{name}", call, types, 1, of_complex=True)
    number = quiet(record)(trace, foreign, operands)
    found = int(number._concrete)
    trace.guard(number, found, what)
    return found


@dataclass(frozen=True, eq=False)
class RepeatedCall:
    """A call of NumPy that is repeated to see its errors."""

    func: Any
    arguments: MixedTree

    def repeat(self, values: Sequence[Any]) -> None:
        """Make the call with copies of these values."""
        copies = []
        for value, aval in zip(values, self.arguments.avals, strict=True):
            x = np.array(value)
            copies.append(x.item() if aval.weak else x if aval.shape else x[()])
        args, kwargs = self.arguments.fill(copies)
        self.func(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class WatchedCall(RepeatedCall):
    """A repeated call that is watched for floating-point errors."""

    mask: int

    @quiet
    def __call__(self, *values: Any) -> list[Any]:
        """The flags of the errors that occur; -1 if the call raises another error."""
        found = 0

        def note(kind: str, flags: int) -> None:
            nonlocal found
            found |= flags

        try:
            with warnings.catch_warnings(), np.errstate(all="call", call=note):
                warnings.simplefilter("ignore")
                self.repeat(values)
        except Exception as error:
            let_through(error)
            return [np.int64(-1)]
        return [np.int64(found & self.mask)]


@dataclass(frozen=True, eq=False)
class SpecialCall(RepeatedCall):
    """A repeated call that is watched for errors of SciPy's special functions."""

    modes: dict[str, str]

    @quiet
    def __call__(self, *values: Any) -> list[Any]:
        """A number for the error that occurs, 0 for none; -1 if the call raises another error."""
        special = sys.modules["scipy.special"]
        try:
            with warnings.catch_warnings(), special.errstate(**self.modes):
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", special.SpecialFunctionWarning)
                self.repeat(values)
        except (special.SpecialFunctionError, special.SpecialFunctionWarning) as error:
            return [np.int64(1 + zlib.crc32(str(error).encode()))]
        except Exception as error:
            let_through(error)
            return [np.int64(-1)]
        return [np.int64(0)]


@dataclass(frozen=True, eq=False)
class RefusedCall(RepeatedCall):
    """A repeated call that the library refuses, after which the program may go on."""

    kind: type
    text: str

    @quiet
    def __call__(self, *values: Any) -> list[Any]:
        """1 if it is refused again with the same message, else 0."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                self.repeat(values)
        except Exception as error:
            let_through(error)
            return [np.int64(type(error) is self.kind and str(error) == self.text)]
        return [np.int64(0)]


def _warnings_matter(trace: Trace, category: Any = RuntimeWarning) -> bool:
    """Whether the function turns such warnings into errors, or reads those that are issued.

    The settings of its caller hold for the traced call alone.
    """
    filters, were, show = trace.warned
    if vars(warnings).get("_showwarnmsg_impl") is not show:
        return True
    if warnings.filters is filters and filters == were:
        return False
    first = _first_filter(warnings.filters, category)
    if warnings.filters is filters and first == _first_filter(were, category):
        return False  # an imported library may have added filters of its own
    return first is not None and first[0] == "error"


def _first_filter(filters: Sequence[Any], category: type[Warning]) -> Any:
    """The first filter that applies to warnings of this category, if there is one."""
    return next((f for f in filters if issubclass(category, f[2])), None)


def _refuse_effects(func: Any, modes: Any, found: int) -> None:
    """Raise an error where NumPy calls a function of the user's, which a tape doesn't."""
    for kind, mode in modes.items():
        if found & _FLAGS[kind] and mode in ("call", "log"):
            raise UnsupportedError(
                f"np.errstate({kind}={mode!r}) calls a function for an error in "
                f"np.{_name(func)}{at_line()}, and a tape calls none. Use {kind}='raise', or test "
                "the operands"
            )


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", "a function"))


def is_operand(x: Any) -> bool:
    """Whether something can be an operand of calls on a tape: traced, or an array of numbers."""
    return isinstance(x, Tracer) or (type(x) is np.ndarray and is_known(computed_in(x.dtype)))


def _is_users(x: Any) -> bool:
    """Whether NumPy would call this function of the user's."""
    return callable(x) and not isinstance(x, (type, np.ufunc, Tracer))


def method(name: str) -> Callable[..., Any]:
    """The method of this name, as a function."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    call.__name__ = name
    return call


def cast_of(value: Any, dtype: Any) -> Any:
    """The value that an assignment to an array of this dtype stores."""
    return np.asarray(value).astype(dtype)
