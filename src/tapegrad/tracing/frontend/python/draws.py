"""Random numbers that a traced program draws: inputs of the tape, drawn anew at each call.

A call of a generator's method is executed, and its result becomes an input. A later call of the
gradient finds the generator where the program found it, repeats the same draws in the same order,
and so leaves it in the state of plain NumPy. If the tape's guards then fail for these numbers, the
generator's state is restored, and the next tape draws.

A traced parameter isn't part of the draw: numbers of the standard distribution are drawn, as NumPy
does, and transformed on the tape (Kingma and Welling, 2014, Auto-Encoding Variational Bayes: the
derivative of a location and a scale). Where numbers jump with the parameter, or are accepted and
rejected by it, there is no such derivative, and the draw is refused.

A generator that the program makes itself, from a seed, draws the same numbers at each call, which
are constants; its draws are handled here if a parameter is traced.

A draw that can't be an input, such as shuffling a list, is executed as it is; the program is then
traced at each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects import randomness
from tapegrad.observe.objects.purity import is_numpys_module
from tapegrad.observe.observer import unobserved
from tapegrad.observe.sides.effects import Stopped
from tapegrad.tracing.draws.distributions import (
    NUMPYS,
    OF_LISTS,
    PYTHONS,
    REQUIRED,
    STATES,
    WITH_OUT,
    followed,
    real,
)
from tapegrad.tracing.draws.recorded import Draw, as_input, valued_as
from tapegrad.tracing.memory.created import is_created
from tapegrad.tracing.recording.trace import Trace, traces_under_way, untraced
from tapegrad.tracing.statements.streams import Stream, stream_of
from tapegrad.tracing.tracers.error_notes import explain_call
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand


class _Unknown(Exception):
    """The value of a parameter isn't known yet."""


class _Plain(Exception):
    """The result of this draw can't be an input."""


# ---- while a program is traced


@unobserved
def draw(
    observer: RunRecord, generator: Any, method: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """The result of a generator's method that the user's program calls."""
    given = args[1:] if args and args[0] is generator else args
    name = method.__name__
    traces, outside = traces_under_way(), observer.is_outside(generator)

    def plainly() -> Any:
        if observer.effects is not None:
            observer.effects.changed()
        if outside or observer.stream_of(generator) is not None:
            observer.before_draw(generator)
            observer.reads.use_once(type(generator).__name__)
        if name in ("shuffle", "permuted") or kwargs.get("out") is not None:
            for x in (*given, *kwargs.values()):  # they may be reordered or filled
                observer.changes(x)
        return method(*args, **kwargs)

    if not traces or traces[0] is not observer.trace:  # in a user's rule, for example
        return plainly()
    refused = [t for t in traces if t.repeats and not (t.in_frame or t.once)]
    if refused:
        raise traces[0].refused(randomness.drawn_once(refused[0].label, generator))
    calls = (Calls if outside else _Own)(observer, holder_of_draws(traces), generator)
    if traces[-1] is not calls.trace and all(t.drawing is not None for t in traces[1:]):
        calls.rounds = traces[-1].drawing if calls.trace is traces[0] else None
    calls.stream = stream_of(observer, calls.trace, generator, traces, calls.rounds)
    if calls.stream is None or calls.rounds is None:  # the sides of a branch don't draw alike
        if observer.apart is not None:
            raise Stopped
        if observer.effects is not None:
            observer.effects.count += 1
    try:
        return calls.made(name, given, kwargs)
    except _Plain:
        if calls.stream is not None:
            calls.stream.close()
        return plainly()


@unobserved
def read_clock(observer: RunRecord, clock: Callable[[], Any], of: Any = time, /) -> Any:
    """The value of a clock that the user's program reads: an input, read anew at each call."""
    traces = traces_under_way()
    outer = traces and traces[0] is observer.trace and observer.apart is None
    if not (outer and observer.clocks.are_inputs) or any(
        t.repeats and not (t.in_frame or t.once) for t in traces
    ):
        observer.reads.use_once(f"time.{clock.__name__}")
        return clock()
    if observer.effects is not None:
        observer.effects.changed()
    observer.clocks.are_read = True
    return Calls(observer, holder_of_draws(traces), of).number(clock.__name__)


def holder_of_draws(traces: Sequence[Trace]) -> Trace:
    """The trace whose inputs the drawn numbers are: the outermost one, or that of one row, since
    further rows draw their own."""
    return next((t for t in reversed(traces) if t.holds_draws), traces[0])


@unobserved
def ask(observer: RunRecord, f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The result of an installed package's C function, which is called anew at each call."""
    if observer.apart is not None:
        raise Stopped
    given, named = tuple(map(_integer, args)), {key: _integer(x) for key, x in kwargs.items()}
    try:
        return observer.questions.call(f, given, named)
    except (TypeError, ValueError) as error:
        if any(isinstance(x, Tracer) for x in (*given, *named.values())):
            explain_call(error, f)
        raise


def _integer(x: Any) -> Any:
    """An integer argument of C code: guarded and plain, if traced."""
    if not isinstance(x, Tracer) or not x._is_scalar() or x.dtype.kind not in "iub":
        return x
    return bool(x) if x._weak and x.dtype.kind == "b" else _plain(x)


class Calls:
    """The calls of one generator's methods in a trace."""

    def __init__(self, observer: RunRecord, trace: Trace, generator: Any) -> None:
        self.observer, self.trace, self.generator = observer, trace, generator
        self.rounds: Any = None  # the draws of the rounds of the loop around the call
        self.stream: Stream | None = None  # for draws ahead

    def made(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        python = not is_numpys_module(type(self.generator).__module__)
        if python and name in OF_LISTS:
            raise _Plain
        if name == "shuffle":
            return self._shuffled(*args, **kwargs)
        if name in ("permutation", "choice") and args and _is_traced(args[0]):
            return self._picked(name, dispatch.as_operand(args[0]), *args[1:], **kwargs)
        if name == "permuted" and args and _is_traced(args[0]):
            return self._permuted(dispatch.as_operand(args[0]), *args[1:], **kwargs)
        order = () if python else WITH_OUT.get(name, ())
        if len(args) == len(order):  # the last one is `out`
            args, kwargs = (), dict(zip(order, args, strict=True)) | kwargs
        out = kwargs.get("out")
        if isinstance(out, Tracer):
            kwargs = dict(zip(order, args, strict=False)) | kwargs
            return self._written(out, name, {k: x for k, x in kwargs.items() if k != "out"})
        if any(map(_is_traced, (*args, *kwargs.values()))):
            return self._of_standard(name, args, kwargs)
        if out is not None or name not in followed(self.generator):
            raise _Plain
        return self.number(name, *args, **kwargs)

    def _written(self, out: Any, name: str, kwargs: dict[str, Any]) -> Any:
        """Fill `out` with drawn numbers, in memory order, as NumPy does."""
        value = out._read()[1]
        if value is None or not out._owner._ordered or any(map(_is_traced, kwargs.values())):
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        copied = np.array(value) if value.flags.forc else np.ones((2, 2, 2))[::2, ::2]
        named = {key: _plain(x) for key, x in kwargs.items()}
        getattr(_like(self.generator), name)(**named, out=copied)  # NumPy's own errors
        rows = value.flags.c_contiguous
        kwargs = {**kwargs, "size": out.shape if rows else out.shape[::-1]}
        (out if rows else out.T)[...] = self.number(name, **kwargs)
        return out

    def number(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """The input for a draw with plain parameters."""
        given = tuple(map(_plain, args))
        named = {key: _plain(x) for key, x in kwargs.items()}
        if any(type(x) is int and abs(x) > _MAX_DRAWN for x in (*given, *named.values())) or (
            name == "getrandbits" and given and given[0] > 62
        ):
            raise _Plain  # it may draw more than 64 bits
        return self.called(name, given, named)

    def called(self, name: str, given: Any, named: dict[str, Any]) -> Any:
        """The traced result of a draw with plain parameters."""
        if self.stream is not None:
            if name in STATES:
                self.stream.give_up()
            return self.stream.draw(Draw(self.generator, name, given, named, None))
        rounds = self.rounds if name not in STATES else None
        if rounds is not None and rounds.is_again:
            known = rounds.again(Draw(self.generator, name, given, named, None))
            if known is not None:
                return known
            rounds = None
        self.observer.before_draw(self.generator)
        found = getattr(self.generator, name)(*given, **named)
        value, weak = valued_as(found)
        if rounds is not None and value is not None:
            call = Draw(self.generator, name, given, named, value)
            return rounds.first(call, weak, isinstance(found, np.ndarray), self)
        if self.observer.effects is not None:
            self.observer.effects.changed()
        return self.drawn(name, given, named, found)

    def drawn(self, name: str, given: Any, named: dict[str, Any], found: Any) -> Any:
        """The input for a draw with plain parameters, whose result is `found`."""
        if name in STATES:
            self.note(Draw(self.generator, name, given, named, None))
            return found
        value, weak = valued_as(found)
        if value is None:
            self.observer.reads.use_once(type(self.generator).__name__)
            return found
        self.note(Draw(self.generator, name, given, named, value))
        is_array, inner = isinstance(found, np.ndarray), traces_under_way()[-1]
        drawn = as_input(self.trace, value, weak, is_array)
        if not is_array:
            return drawn
        if inner is self.trace or inner.repeats:
            return drawn
        # The array belongs to the inner trace, and may be written to there.
        operand, value = to_operand(inner, drawn)
        return stand_in(inner, operand, value)

    def note(self, call: Draw) -> None:
        """Record the call, which later calls of the tape repeat."""
        self.observer.drawn.append(call)

    # ---- traced parameters

    def _of_standard(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        python = not is_numpys_module(type(self.generator).__module__)
        form = (PYTHONS if python else NUMPYS).get(name)
        if (
            form is None
            and name in followed(self.generator)
            and all(x.dtype.kind in "iub" for x in _traced([*args, *kwargs.values()]))
        ):
            return self.number(name, *args, **kwargs)  # a traced count or range is guarded
        if form is None:
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        refusal = None if python else self._refusal(name, args, kwargs)
        if isinstance(refusal, TypeError):
            raise refusal
        names = [key for key, _ in form.parameters]
        given = dict(form.parameters) | dict(zip(names, args, strict=False))
        size = args[len(names)] if len(args) > len(names) else kwargs.get("size")
        given |= {key: x for key, x in kwargs.items() if key in names}
        given = {key: dispatch.as_operand(x) if _is_list(x) else x for key, x in given.items()}
        rest = {k: x for k, x in kwargs.items() if k not in names and k != "size"}
        for key in names:
            if given[key] is REQUIRED:
                raise TypeError(f"{name}() missing required argument {key!r}")
        held = {key: given[key] for key in form.held}
        if any(map(_is_traced, held.values())):
            raise self.trace.refused(randomness.no_derivative(self.trace.label, name))
        moved = [given[key] for key in names if key not in held]
        if not python:  # Python's code computes with its arguments as they are
            given |= {key: real(given[key]) for key in names if key not in held}
            moved = [given[key] for key in names if key not in held]
        for key in form.positive:
            if np.any(np.signbit(given[key])):
                raise ValueError(f"{key} < 0")
        may_fall = name == "uniform" and hasattr(self.generator, "bit_generator")
        if may_fall and np.any(np.signbit(moved[1] - moved[0])):
            raise ValueError("high - low < 0")
        if refusal is not None:
            self.trace.note_raised(name)
            raise refusal
        if not python and name != "multivariate_normal":
            shapes = [np.shape(x) for x in given.values()]
            shape = np.broadcast_shapes(*shapes)
            rest["size"] = size if size is not None or not shape else shape
        elif size is not None:
            rest["size"] = size
        z = self.number(form.standard, *form.given(list(held.values()), moved), **rest)
        return form.formula(z, *moved)

    def _refusal(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """NumPy's error for the present values, raised by another generator; None without one."""
        try:
            given, named = [*map(_valued, args)], {key: _valued(x) for key, x in kwargs.items()}
            with untraced():
                getattr(_like(self.generator), name)(*given, **named)
        except _Unknown:
            return None
        except Exception as error:
            let_through(error)
            return error.with_traceback(None)

    # ---- draws from traced arrays

    def _picked(self, name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
        """`choice` or `permutation` of a traced array: the indices are drawn."""
        if not x.ndim:
            return self.number(name, x, *args, **kwargs)
        self._check(name, x, args, kwargs)
        axis = kwargs.pop("axis", 0)
        if name == "permutation" and args:
            axis = args[0]
        size = x.shape[axis]
        given = args if name == "choice" else ()
        return np.take(x, self.number(name, size, *given, **kwargs), axis=axis)

    def _permuted(self, x: Any, axis: Any = None, out: Any = None) -> Any:
        """`permuted` of a traced array: indices are drawn, for all elements in memory order, or for
        each line along an axis."""
        value = x._read()[1]
        known = isinstance(value, np.ndarray) and x._owner._ordered
        if not known or not (out is None or isinstance(out, Tracer)):
            raise self.trace.refused(randomness.no_derivative(self.trace.label, "permuted"))
        self._check("permuted", x, (), {"axis": axis})
        if axis is None:
            order = sorted(range(x.ndim), key=lambda k: -abs(value.strides[k]))
            inner = np.transpose(x, order)
            places = np.arange(x.size).reshape(inner.shape)
            found = np.ravel(inner)[self.number("permuted", places)]
            found = np.transpose(found, np.argsort(order))
        else:
            places = np.empty(x.shape, np.int64)
            np.moveaxis(places, axis, -1)[...] = np.arange(x.shape[axis])
            found = np.take_along_axis(x, self.number("permuted", places, axis=axis), axis)
        if out is None:
            return found
        out[...] = found
        return out

    def _shuffled(self, x: Any, axis: int = 0) -> None:
        if not isinstance(x, Tracer) or is_created(x):
            raise _Plain
        self._check("shuffle", x, (), {"axis": axis} if axis else {})
        if x.size:  # NumPy draws nothing for an empty array
            x[...] = np.take(x, self.number("permutation", x.shape[axis]), axis=axis)

    def _check(self, name: str, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise NumPy's own errors, by the same call on an array of zeros."""
        zeros = np.zeros(x.shape)
        named = {key: _plain(value) for key, value in kwargs.items()}
        method = getattr(_like(self.generator), name)
        method(zeros[()] if x._is_scalar() else zeros, *map(_plain, args), **named)


class _Own(Calls):
    """The calls of a generator that the program has made."""

    def note(self, call: Draw) -> None:
        """Record nothing: the result of a draw with plain parameters is a constant."""

    def drawn(self, name: str, given: Any, named: dict[str, Any], found: Any) -> Any:
        return found


def _like(generator: Any) -> Any:
    """Another generator of this kind, which raises NumPy's own errors."""
    found = getattr(generator, "bit_generator", None)
    return np.random.RandomState(0) if found is None else type(generator)(type(found)(0))


def _traced(x: Any) -> list[Tracer]:
    """The traced values in nested lists, without made arrays."""
    if isinstance(x, (list, tuple)):
        return [found for part in x for found in _traced(part)]
    return [x] if isinstance(x, Tracer) and not is_created(x) else []


def _is_traced(x: Any) -> bool:
    return bool(_traced(x))


def _is_list(x: Any) -> bool:
    return type(x) in (list, tuple) and _is_traced(x)


def _plain(x: Any) -> Any:
    """An argument of a draw. Traced integers are guarded."""
    if isinstance(x, Tracer):
        if not x._is_scalar() or is_created(x):
            return np.array(x.__array__())
        return int(x) if x._weak else x.dtype.type(int(x))
    if type(x) in (list, tuple):
        return type(x)(map(_plain, x))
    return x.copy() if isinstance(x, np.ndarray) else x


def _valued(x: Any) -> Any:
    """The present value of a parameter."""
    if isinstance(x, Tracer):
        value = x._read()[1]
        if value is None:
            raise _Unknown
        return np.asarray(value).item() if x._weak else np.array(value)[()]
    return type(x)(map(_valued, x)) if type(x) in (list, tuple) else x


def seed(x: Any) -> Any:
    """The guarded plain value of a seed with traced integers; None for all else."""
    traced = [e for e in (x if type(x) in (list, tuple) else [x]) if _is_traced(e)]
    whole = all(isinstance(e, Tracer) and e.dtype.kind in "iu" for e in traced)
    return _plain(x) if traced and whole else None


_MAX_DRAWN = 2**62  # the bound on integers in a draw that can be an input
