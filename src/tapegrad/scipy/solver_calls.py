"""Calls of SciPy's solvers on a tape.

The NumPy part of a compiled program calls SciPy's solver again at each call, with the values of
that call, so the result is SciPy's own. The result is defined by an equation, which is
differentiated (`primitives/implicit.py`). If the solver raises an error, or its status differs
from the traced one, the program is traced again: so the error is raised in the user's line.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tapegrad.errors import TapegradError
from tapegrad.extending import unobserved
from tapegrad.extending.arrays import (
    Tracer,
    kinds_of,
    of_kinds,
    record,
    stand_in,
    to_operand,
    value_of,
)
from tapegrad.extending.primitives import BroadcastTo
from tapegrad.extending.runs import answers, aside, let_through
from tapegrad.extending.solvers import Implicit, called, real
from tapegrad.extending.tapes import (
    METHODS,
    Aval,
    Builder,
    CallTape,
    ForeignCall,
    Literal,
    Request,
    Tape,
    innermost,
    input_aval,
    trace_function,
)
from tapegrad.scipy.callbacks import Callback, Runner, UntracedPath, values_of

OFF = -1  # the status of a call without a result
Solver = Callable[[Sequence[Callable[..., Any]], Sequence[Any]], Sequence[Any]]


class SolverCall:
    """A call of a solver. `solver(fs, values)` takes functions and plain values and returns arrays
    and numbers. The last one is the solver's status: an integer, which is guarded."""

    def __init__(
        self,
        label: str,
        solver: Solver,
        callbacks: Sequence[Callback],
        lead: Sequence[Any] = (),
        given: Sequence[Any] = (),
        at: Sequence[int] = (),
        draws: bool = False,
    ) -> None:
        """The values are `lead`, on which the result doesn't depend, and `given`.

        The callbacks numbered in `at` are evaluated at the first result while tracing, so that
        their branches there are known; callbacks of several arguments take further results. A
        solver that `draws` random numbers isn't called again only to repeat a result.
        """
        self.label, self.solver, self.callbacks = label, solver, callbacks
        self.lead, self.given = list(map(operand, lead)), list(map(operand, given))
        self.at, self.repeatable = at, not draws
        self.structure: list[Any] = []  # operands after all others
        values = values_of([*self.lead, *self.given])
        try:
            solved = self._solved(callbacks, values)
            self._kinds = [kinds_of(x) for x in solved]
            self.values = [np.asarray(x)[()] for x in solved]
        except TapegradError:
            raise
        except Exception as error:
            let_through(error)
            self.values = [np.asarray(_number_of(error))[()]]
            self.record()  # a later call may raise no error
            raise

    def _solved(self, fs: Sequence[Callable[..., Any]], values: Sequence[Any]) -> Sequence[Any]:
        with aside():  # inside of the solver only callbacks are traced
            found = self.solver(fs, values)
        for k in self.at:
            fs[k](*found[: len(self.callbacks[k].xs)])
        return found

    @property
    def state(self) -> int:
        """The solver's status."""
        return int(self.values[-1])

    @property
    def p(self) -> list[Any]:
        """The values that the callbacks read."""
        return [x for c in self.callbacks for x in c.p]

    def rule(
        self,
        write: Callable[..., Any],
        further: int = 0,
        solve: Any = None,
        is_sparse: bool = False,
    ) -> Implicit:
        """The implicit rule by F(x, further results, given, p) = 0: `write(equations, x, ...)`
        returns F.

        Linear systems are solved by `solve` if it isn't None. `is_sparse`: try whether F_x has few
        entries.
        """
        equations = Equations(self.label, self.callbacks)
        builder = equations.builder
        xs = [builder.input(Aval(np.shape(x), x.dtype)) for x in self.values[: 1 + further]]
        xs += [builder.input(_strong(x)) for x in self.given]
        for c in self.callbacks:
            equations.p.append([builder.input(_strong(x)) for x in c.p])
        tape = builder.finish([write(equations, *xs)])
        colouring = _colouring(tape) if is_sparse else None
        if colouring is None:
            return Implicit(tape, further, len(self.lead), solve)
        pattern = colouring.pattern
        parts = colouring.columns, colouring.index, pattern.indices, pattern.indptr
        self.structure = [np.asarray(x, np.int64) for x in parts]
        unread = [builder.input(Aval(x.shape, x.dtype)) for x in self.structure]
        tape = replace(tape, inputs=(*tape.inputs, *unread), names=())
        return Implicit(tape, further, len(self.lead), products=colouring.count)

    def record(self, rule: Any = None, why: str = "", visible: int = 1) -> list[Any]:
        """The recorded results without the status."""
        runners = [Runner(c) for c in self.callbacks]
        ends = [len(c.p) for c in self.callbacks]
        types = tuple([Aval(x.shape, x.dtype) for x in self.values])
        first = len(self.lead) + len(self.given)
        traced = [(answers.given, values_of([*self.lead, *self.given, *self.p]))]

        def function(*xs: Any) -> Any:
            if traced and _is_the_same_call(*traced.pop(), xs):
                return [np.array(x) for x in self.values]
            start, fs = first, []
            for runner, count in zip(runners, ends, strict=True):
                fs.append(runner.on(xs[start : start + count]))
                start += count
            try:
                found = [np.asarray(x) for x in self._solved(fs, xs[:first])]
                if all(map(_is_of, found, types)):
                    return found
            except UntracedPath:
                pass
            except Exception as error:
                let_through(error)
                if len(types) == 1:
                    return [np.int64(_number_of(error))]
            return [*[np.zeros(x.shape, x.dtype) for x in types[:-1]], np.int64(OFF)]

        function.__name__ = self.label
        backward = None if rule is None else rule.backward
        forward = None if rule is None else rule.forward
        rules = backward, why, forward
        primitive = ForeignCall(
            *(self.label, function, types, visible, *rules), repeatable=self.repeatable
        )
        operands = [*self.lead, *self.given, *self.p, *self.structure]
        found = recorded(primitive, operands, self.values)
        found[-1]._trace.guard(found[-1], self.state, f"how {self.label} has ended")
        return found[:-1]

    def own(self, x: Any, k: int = 0) -> Any:
        """The result numbered k, in the type that the solver returns."""
        return of_kinds(x, self._kinds[k])

    def value(self, k: int, x: Any, value: Any) -> Any:
        """The first result of callback k for a traced x, recorded with this known value."""
        c = self.callbacks[k]
        return recorded(CallTape(_first(c.tape)), [x, *c.p], [value])[0]

    def defined(self, value: Any, x: Any, write: Callable[..., Any]) -> Any:
        """A further result with the derivative of `write(value, x, f, J, 1, *given)`, where f is
        the first callback's result for x, and J its Jacobian with a column for each element of x.
        `write` is traced only if it is differentiated."""
        c, count = self.callbacks[0], len(self.given)
        tape = _first(c.tape)

        @unobserved
        def body(value: Any, x: Any, eye: Any, *rest: Any) -> Any:
            given, p = rest[:count], rest[count:]
            pushed = CallTape(METHODS["pushed"](tape, (0,)))
            columns = [record(x._trace, pushed, [x, *p, seed]) for seed in eye]
            f = record(x._trace, CallTape(tape), [x, *p])
            return write(value, x, f, np.stack(columns, -1), eye, *given)

        operands = [value, x, np.eye(x.size), *self.given, *c.p]
        rules = Deferred(body, values_of(operands))
        types = (_strong(value),)
        call = ForeignCall("defined", _kept, types, 1, rules.backward, forward=rules.forward)
        return recorded(call, operands, [value_of(value)])[0]


def _kept(value: Any, *xs: Any) -> list[Any]:
    return [value]


class Deferred:
    """The rules of a call that returns its first operand, and has the derivative of `f` of the
    others."""

    def __init__(self, f: Callable[..., Any], values: Sequence[Any]) -> None:
        self.f, self.values = f, values

    @cached_property
    def tape(self) -> Tape:
        traced = trace_function(Request(self.f, self.values), repeats=True, apart=True)
        return replace(traced.tape, guards=())

    def backward(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        found: list[Any] = [None] * len(xs)
        active = real(self.tape, 1)
        pulled = called(METHODS["pulled"](self.tape, active), [*xs, cts[0]])
        for k, ct in zip(active, pulled, strict=True):
            found[k] = ct
        return found

    def forward(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        moving = [k for k in real(self.tape, 1) if ts[k] is not None]
        if not moving:
            return [None]
        tangents = [BroadcastTo(xs[k].shape)(ts[k]) for k in moving]
        return [*called(METHODS["pushed"](self.tape, moving), [*xs, *tangents])]


def _is_of(x: Any, aval: Aval) -> bool:
    return x.shape == aval.shape and np.can_cast(x.dtype, aval.dtype, "same_kind")


class Equations:
    """The builder of a solver's equations, with the operands of its callbacks."""

    def __init__(self, label: str, callbacks: Sequence[Callback]) -> None:
        self.builder = Builder(f"equations of {label}")
        self.callbacks = callbacks
        self.p: list[list[Any]] = []

    def apply(self, primitive: Any, *xs: Any) -> Any:
        (out,) = self.builder.call(primitive, xs)
        return out

    def value(self, k: int, *xs: Any) -> Any:
        """The first result of the callback numbered k."""
        tape = _first(self.callbacks[k].tape)
        return self.apply(CallTape(tape), *xs, *self.p[k])

    def gradient(self, k: int, x: Any, seed: Any = None) -> Any:
        """The cotangent of x by callback k; for a scalar the seed is 1 by default."""
        tape = _first(self.callbacks[k].tape)
        if seed is None:
            shape, dtype = tape.outputs[0].shape, tape.outputs[0].dtype
            seed = self.apply(BroadcastTo(shape), Literal(dtype.type(1)))
        return self.apply(CallTape(METHODS["pulled"](tape, (0,))), x, *self.p[k], seed)


def _colouring(tape: Tape) -> Any:
    """A colouring by which the Jacobian along a tape's first input is found from few products;
    None if it needs many, as when the sparsity pattern is unknown."""
    from tapegrad.extending.sparsity import choose, pattern
    from tapegrad.extending.tapes import inline_calls

    found = choose(pattern(inline_calls(tape), [0]), reverse=False)
    return found if 2 * found.count < tape.inputs[0].aval.size else None


def recorded(primitive: Any, operands: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results of a call, recorded with known values."""
    trace = innermost([x for x in operands if isinstance(x, Tracer)])
    outs = trace.record(primitive, [to_operand(trace, x)[0] for x in operands])
    return [stand_in(trace, out, np.array(x)[()]) for out, x in zip(outs, values, strict=True)]


def _number_of(error: Exception) -> int:
    """A number for an error that a solver has raised, as its status."""
    return -2 - zlib.crc32(repr(error).encode())


def operand(x: Any) -> Any:
    return x if isinstance(x, Tracer) else np.asarray(x)[()]


class Constant:
    """The rules of a call whose results are constants for derivatives."""

    def backward(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return [None] * len(xs)

    def forward(self, ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        return [None] * len(outs)


def valued(value: Any, x: Any) -> Any:
    """`value` with the derivative of `x`."""
    call = ForeignCall(
        "valued",
        lambda value, x: [value],
        (_strong(x),),
        1,
        lambda cts, outs, xs: [None, cts[0]],
        forward=lambda ts, outs, xs: [ts[1]],
    )
    return recorded(call, [value, x], [value_of(value)])[0]


def stopped(x: Any) -> Any:
    """A value without a derivative."""
    from tapegrad.extending.primitives import stop_gradient

    return stop_gradient(x) if isinstance(x, Tracer) else x


def _first(tape: Tape) -> Tape:
    return replace(tape, outputs=tape.outputs[:1], output_names=(), guards=())


def _is_the_same_call(call: Any, before: Sequence[Any], xs: Sequence[Any]) -> bool:
    """Whether the traced call is requested again by the same call of a derivative. Its result is
    then reused, so that the solver doesn't run, or print, twice."""
    return call is not None and call is answers.given and all(map(_is_same, before, xs))


def _is_same(x: Any, y: Any) -> bool:
    a, b = np.asarray(x), np.asarray(y)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _strong(x: Any) -> Aval:
    aval = input_aval(x)
    return Aval(aval.shape, aval.dtype)
