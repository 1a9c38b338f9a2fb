"""Transformations of functions, such as `Gradient` and `Jit`, each of which is a class.

A transformation selects among a call's arguments, before the call is traced. It derives a tape,
whose outputs are all that the result needs. It assembles the result from the values of these
outputs. The pipeline is loaded at the first call.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, cast

import numpy as np

from tapegrad.core.request import Request, describe, is_differentiable, leaf_key, without_derivative
from tapegrad.core.trees import flatten, is_traced, unflatten
from tapegrad.errors import ArgumentError, TapeError
from tapegrad.ir.opened import closed
from tapegrad.ir.tape import Builder, Literal, Tape, with_inner
from tapegrad.observe.observer import note_root, observed
from tapegrad.primitives.control import has_effects
from tapegrad.primitives.views import Reshape
from tapegrad.runtime.argnums import Argnum, Chosen
from tapegrad.runtime.checks import check_scalar_result
from tapegrad.tracing.runs.run import own_result, replay
from tapegrad.tracing.runs.traced import Computed, Traced, kept_as, plain_value
from tapegrad.tracing.tracers.tracer import Tracer

Halves = Sequence[np.dtype | None]  # dtypes of half precision, and None for all others


@dataclass(frozen=True)
class Selection:
    """The arguments with respect to which a derivative is taken: the numbers of the tape's inputs,
    the structure of each argument, and which of its leaves have a derivative."""

    wrt: Sequence[int] = ()
    structures: Sequence[Any] = ()
    real: Sequence[Sequence[bool]] = ()


_TOLD = {"argnums", "has_aux", "checkpoint", "max_bytes"}


class Transformation:
    """A way to derive a function from another one. Instances are keys of caches."""

    name: ClassVar[str]
    mirrors: ClassVar[bool] = True  # whether results are plain trees of the tape's outputs
    alike: ClassVar[bool] = False  # whether Python's floats are taken for np.float64
    pulls: ClassVar[bool] = False  # whether the tape's further outputs are cotangents of the inputs
    further: ClassVar[Sequence[str]] = ()  # names of arguments after the function's own

    @property
    def told(self) -> str:
        """The name, with those of the user's choices that aren't the defaults."""
        defaults = [(x.name, x.default) for x in fields(cast(Any, self)) if x.name in _TOLD]
        chosen = [(name, getattr(self, name), default) for name, default in defaults]
        told = [f"{name}={value!r}" for name, value, default in chosen if value != default]
        return f"{self.name}({', '.join(told)})" if told else self.name

    def check(self, f: Callable[..., Any]) -> None:
        """Raise an `ArgumentError` if the transformation doesn't apply to this function."""

    def numbers_names(self) -> bool:
        """Whether a call's arguments are the function's, so that keyword arguments may be passed by
        position."""
        return False

    def completed(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments, completed by the defaults that the transformation selects."""
        return args, kwargs

    def within(self, request: Request) -> Request:
        """The call of the function that is traced, for a call of the derived function."""
        return request

    def select(self, request: Request) -> Selection:
        """The selected arguments. Raises an `ArgumentError` if that fails."""
        return Selection()

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        """The derivation of a trace. If it isn't `final` it becomes part of another trace, where it
        may be differentiated again: then users' rules and stopped gradients stay on it."""
        raise NotImplementedError

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        """The result, from the values of the tape's outputs."""
        raise NotImplementedError

    def written(self, derivation: Derivation, marks: Sequence[Any]) -> Any:
        """The result with `marks` in place of the values, for generated source."""
        return self.assemble(derivation, marks)

    def halves(self, derivation: Derivation, given: Halves) -> Halves:
        """The half-precision dtypes in which the first outputs are stored, and cotangents of
        arguments; None for others."""
        results = dict(enumerate(derivation.traced.halves))
        kept = [results.get(k) for k in derivation.kept]
        return [*kept, *[given[k] for k in derivation.selection.wrt if self.pulls]]

    # ---- inside another trace

    def inside(self, request: Request) -> Any:
        """The result of a call within another trace."""
        from tapegrad.pipeline import trace

        selection = self.select(request.check(self.name))
        call = self.within(request)
        call.passes_on = True
        return self.recorded(request, self.derive(trace(call), selection, final=False))

    def recorded(self, request: Request, derivation: Derivation) -> Any:
        """The result of a call whose tape is recorded in the running trace."""
        inputs = [x if isinstance(x, Tracer) else plain_value(x) for x in request.inputs]
        values = replay(derivation.tape, [*inputs, *derivation.traced.captured])
        results = [own_result(x) for x in values]
        kept = self.halves(derivation, [kept_as(x) for x in self.within(request).inputs])
        for x, dtype in zip(results, kept, strict=False):
            if isinstance(x, Tracer):
                x._trace.keep_as(x, dtype)
        if derivation.traced.keeping is not None:
            derivation.traced.keeping.pass_on([results[k] for k in derivation.left])
        return derivation.assemble(results)


@dataclass(eq=False)
class Derivation:
    """The tape that a transformation derives from a trace. Its first outputs are the trace's
    outputs numbered `kept`. Its inputs are the trace's, including captured ones."""

    transformation: Transformation
    tape: Tape
    traced: Traced
    selection: Selection
    kept: Sequence[int]
    computed: Computed | None = None  # the trace's own values, if the tape computes nothing else
    opened: Tape | None = None  # the tape with marks where a length is one of any: see `ir.opened`

    def __post_init__(self) -> None:
        # The keys of captured arrays: all that the trace depends on except their values. A tape
        # that captures an outer trace's values is part of that trace, and isn't kept.
        captured = () if self.traced.has_tracers else self.traced.captured
        self.outside = [leaf_key(x) for x in captured]
        self.tells = has_effects(self.tape)
        if self.tells:  # it has yet to do so
            self.computed = None
        first = len(self.traced.tape.outputs) - self.traced.left
        # The outputs whose values a call leaves outside.
        self.left = [k for k, at in enumerate(self.kept) if at >= first]

    def closed(self) -> Derivation:
        """The same of tapes with marks, which are for who compiles."""
        traced = replace(self.traced, tape=closed(self.traced.tape))
        return replace(self, tape=closed(self.tape), traced=traced, opened=self.tape)

    def with_arrays(self, captured: tuple[Any, ...]) -> Derivation:
        """The derivation with other captured arrays of the same kinds, or without any."""
        found = copy.copy(self)
        found.traced = replace(self.traced, captured=captured)
        return found

    def assemble(self, values: Sequence[Any]) -> Any:
        """The result for the user, from the values of the tape's outputs."""
        return self.transformation.assemble(self, values)

    def result(self, values: Sequence[Any]) -> Any:
        """The function's own result, from the values of the tape's outputs. None for values that
        weren't kept."""
        at = dict(zip(self.kept, values, strict=False))
        return self.traced.rebuild([at.get(k) for k in range(len(self.traced.tape.outputs))])

    def gradients(self, values: Sequence[Any]) -> list[Any]:
        """The cotangent of each selected argument. None for leaves without one."""
        found = iter(values[len(self.kept) :])
        each = zip(self.selection.structures, self.selection.real, strict=True)
        return [unflatten(s, [next(found) if yes else None for yes in real]) for s, real in each]


@dataclass(frozen=True)
class Jit(Transformation):
    """The function itself."""

    name = "jit"

    def numbers_names(self) -> bool:
        return type(self) in (Jit, Changed)

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.pipeline import playable

        tape = playable(traced.tape) if final else traced.tape
        kept = range(len(tape.outputs))
        computed = traced.computed if final else None
        return Derivation(self, tape, traced.without_values(), selection, kept, computed)

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        return derivation.result(values)


@dataclass(frozen=True)
class Linear(Jit):
    """A linear tape on its own, whose inputs have known types."""

    alike = True


@dataclass(frozen=True)
class Changed(Jit):
    """A function whose tape is replaced by `change` of it."""

    change: Callable[[Tape], Tape] = field(kw_only=True, default=lambda tape: tape)
    inner: bool = field(kw_only=True, default=True)  # whether sub-tapes are changed, too

    name = "transform"

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.checking.tape_verify import checked
        from tapegrad.pipeline import TRACED, run_passes

        what = f"transform of {traced.name} by {describe(self.change)}"
        note_root(self.change)
        with observed():
            after = self._changed(run_passes(traced.tape, TRACED), what)
        tape, traced = with_captured(checked(after, what), traced)
        found = replace(traced.without_values(), tape=tape)
        return replace(super().derive(found, selection, final), computed=None)

    def _changed(self, before: Tape, what: str) -> Tape:
        """The changed tape, whose sub-tapes were changed first."""
        if self.inner:
            before = with_inner(before, lambda tape: self._changed(tape, what))
        after = self.change(before)
        if not isinstance(after, Tape):
            raise TapeError(f"{what}: it returned {after!r}, which isn't a tape")
        kinds = [[(x.shape, x.dtype) for x in t.outputs] for t in (before, after)]
        if after.inputs[: len(before.inputs)] != before.inputs or kinds[0] != kinds[1]:
            raise TapeError(
                f"{what}: the tape has to have the same inputs, and outputs of the same shapes and "
                f"dtypes. It was\n{before}\nand is\n{after}"
            )
        return after


@dataclass(frozen=True)
class Inputs(Selection):
    """The number of the tape's input for each leaf of each positional argument."""

    numbers: Sequence[Sequence[int | None]] = ()


@dataclass(frozen=True)
class Into(Jit):
    """The function itself, whose result is a tuple. Parts of the result may be written into
    arguments of the same structure: `into` has (number of the part, number of the argument)."""

    into: tuple[tuple[int, int], ...] = ()

    def select(self, request: Request) -> Selection:
        trees = list(map(flatten, request.args))
        inputs = itertools.count()
        numbers = [[next(inputs) if is_traced(x) else None for x in leaves] for leaves, _ in trees]
        return Inputs(structures=[structure for _, structure in trees], numbers=numbers)

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        found = super().derive(traced, selection, final)
        if final and isinstance(selection, Inputs):
            into = tuple(self._pairs(traced, selection))
            found = replace(found, tape=replace(found.tape, into=into))
        return found

    def _pairs(self, traced: Traced, selection: Inputs) -> Iterator[tuple[int, int]]:
        """(output, input) numbers of the tape's outputs that may be written into inputs."""
        outputs = [_Output(k) for k in range(len(traced.tape.outputs))]
        parts = traced.rebuild(outputs)
        for number, argument in self.into:
            leaves, structure = flatten(parts[number])
            if structure == selection.structures[argument]:
                for leaf, at in zip(leaves, selection.numbers[argument], strict=True):
                    if isinstance(leaf, _Output) and at is not None:
                        yield leaf.number, at


class _Output:
    """A leaf that stands for an output of a tape."""

    def __init__(self, number: int) -> None:
        self.number = number


FEWER = ("sqrt", 16, 4, 2)  # values of `checkpoint` with which loops keep less and less


@dataclass(frozen=True)
class Gradient(Transformation):
    """The gradient of a scalar function, by reverse mode. With `has_aux` the function's auxiliary
    result is returned too."""

    name = "grad"
    argnums: Argnum | tuple[Argnum, ...] = 0
    has_aux: bool = False
    checkpoint: str | int = "auto"
    max_bytes: int | None = field(default=None, kw_only=True)
    compile: str = field(default="auto", kw_only=True)  # the mode for which `max_bytes` holds
    watched: bool = field(default=False, kw_only=True)  # by a hook, which is shown the value too

    pulls: ClassVar[bool] = True
    second: ClassVar[bool] = False  # whether this is a second derivative

    @property
    def _chosen(self) -> Chosen:
        return Chosen(self.name, self.argnums)

    def check(self, f: Callable[..., Any]) -> None:
        self._chosen.check(f)

    def numbers_names(self) -> bool:
        return not self.further and all(isinstance(a, str) or a >= 0 for a in self._chosen.each)

    def completed(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._chosen.completed(f, args, kwargs)

    def select(self, request: Request) -> Selection:
        named = [request.kwargs[name] for name in sorted(request.kwargs)]
        trees = list(map(flatten, [*request.args, *named]))
        sizes = [len(leaves) for leaves, _ in trees]
        inputs = itertools.count()
        numbers = [[next(inputs) if is_traced(x) else None for x in leaves] for leaves, _ in trees]
        places = self._chosen.places(request)
        if self.second and len(set(places)) < len(places):  # mixed or repeated?
            raise ArgumentError(
                f"{self.name} of {request.name}: argnums is {self.argnums}, which says an argument "
                "twice. Say each once"
            )
        wrt: list[Any] = []
        for p in places:
            leaves, _ = trees[p]
            if leaves and not any(map(is_differentiable, leaves)):
                raise without_derivative(
                    request.f, leaves[0], request.words[sum(sizes[:p])], self.name
                )
            pairs = zip(numbers[p], leaves, strict=True)
            wrt += [number for number, leaf in pairs if is_differentiable(leaf)]
        real = [[*map(is_differentiable, trees[p][0])] for p in places]
        return Selection(wrt, [trees[p][1] for p in places], real)

    def arguments(self, request: Request) -> list[Any]:
        """The arguments with respect to which the derivative is taken."""
        each = [*request.args, *[request.kwargs[name] for name in sorted(request.kwargs)]]
        return [each[p] for p in self._chosen.places(request)]

    def derive(self, traced: Traced, selection: Selection, final: bool) -> Derivation:
        from tapegrad.pipeline import derive, finished, playable

        check_scalar_result(traced, self.has_aux, self.name)
        kept = self.kept(traced)
        loss, before = with_loss(traced)
        kept_there = [k + before for k in kept]

        def derived(checkpoint: str | int) -> Tape:
            tape = derive(loss, selection.wrt, keep=kept_there, checkpoint=checkpoint)
            return playable(tape) if final else finished(tape)

        if self.max_bytes is None:
            tape = derived(self.checkpoint)
        else:
            tape = self._within(derived, self.max_bytes, traced.name)
        tape, traced = with_captured(tape, traced)
        return Derivation(self, tape, traced.without_values(), selection, kept)

    def _within(self, derived: Callable[..., Tape], most: int, name: str) -> Tape:
        """A finished tape that takes at most `most` bytes: the first one found, with loops that
        keep less and less."""
        from tapegrad.differentiate.budget import MemoryNeeded
        from tapegrad.pipeline import finished, within

        least = []
        tape = finished(derived(self.checkpoint))
        loops = self.checkpoint == "auto" and any(call.primitive.repeats for call in tape.calls)
        fewer = (finished(derived(checkpoint)) for checkpoint in FEWER if loops)
        for each in itertools.chain([tape], fewer):
            try:
                return within(each, most, self.compile)
            except MemoryNeeded as found:
                least.append(found.nbytes)
        raise ArgumentError(
            f"{self.name} of {name}: max_bytes is {most:,}, and a call takes {min(least):,} bytes "
            "at a time at least, beside its arguments and results. Pass as many, or divide the "
            "arguments into parts whose gradients add up"
        )

    def kept(self, traced: Traced) -> list[int]:
        """The trace's outputs that are needed besides the gradients: parts of its result, and
        values that a call leaves outside."""
        count = len(traced.tape.outputs)
        left = range(count - traced.left, count)
        return sorted({at for at in (*self._wanted(traced.outputs), *left) if at is not None})

    def _wanted(self, outputs: Sequence[int | None]) -> Sequence[int | None]:
        """The outputs of the result that are needed besides the gradients."""
        if self.watched:
            return outputs
        return [at for at in outputs if at != outputs[0]] if self.has_aux else []

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        gradient = self._gradient(derivation, values)
        return (gradient, derivation.result(values)[1]) if self.has_aux else gradient

    def _gradient(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        gradients = derivation.gradients(values)
        return tuple(gradients) if isinstance(self.argnums, tuple) else gradients[0]


@dataclass(frozen=True)
class ValueAndGradient(Gradient):
    """The value and the gradient; see `Gradient`."""

    name = "value_and_grad"

    def _wanted(self, outputs: Sequence[int | None]) -> Sequence[int | None]:
        return outputs

    def assemble(self, derivation: Derivation, values: Sequence[Any]) -> Any:
        result = derivation.result(values)
        if self.has_aux:
            result = tuple(result)
        return result, self._gradient(derivation, values)


def with_loss(traced: Traced) -> tuple[Tape, int]:
    """The tape with the loss, which the function returned first, as a scalar first output; and the
    number of outputs before the function's own.

    If the loss is a plain number, it is a constant without dependence on any argument. An array of
    one element counts as the scalar in it.
    """
    tape, at = traced.tape, traced.outputs[0]
    if at is None:
        number = traced.leaves[0]
        kind = np.complex128 if np.iscomplexobj(number) else np.float64
        return replace(tape, outputs=(Literal(kind(number)), *tape.outputs)), 1
    if tape.outputs[at].aval.shape == ():
        return tape, 0
    builder = Builder.after(tape, tape.name)
    builder.guards += tape.guards
    (loss,) = builder.call(Reshape(()), [tape.outputs[at]])
    return builder.finish([loss, *tape.outputs], tape.captured), 1


def with_constants(traced: Traced) -> Traced:
    """The trace with an output for each real or complex number in the result that doesn't depend on
    the arguments. So these have derivatives, which are zeros."""
    tape, count = traced.tape, len(traced.tape.outputs) - traced.left
    outputs = list(traced.outputs)
    numbers: list[Literal] = []
    for k, at in enumerate(outputs):
        x = traced.leaves[k]
        if at is None and isinstance(x, (float, complex, np.inexact)):
            outputs[k] = count + len(numbers)
            value: Any = np.asarray(x)[()]
            numbers.append(Literal(value))
    if not numbers:
        return traced
    every = (*tape.outputs[:count], *numbers, *tape.outputs[count:])
    tape = replace(tape, outputs=every, output_names=())
    return replace(traced, tape=tape, outputs=outputs)


def with_captured(tape: Tape, traced: Traced) -> tuple[Tape, Traced]:
    """The derived tape and the trace, where arrays that users' rules captured become captured
    inputs like those that the function captured."""
    if not tape.captured:
        return tape, traced
    traced = replace(traced, captured=(*traced.captured, *tape.captured))
    return replace(tape, captured=()), traced
