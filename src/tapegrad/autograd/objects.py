"""Derivatives with respect to objects that are vectors: of classes with a `VSpace` of their own.

Nothing looks into such an object. A function uses it by primitives, whose rules say what cotangents
there are. It is run on boxes: each call of a primitive with a box is a step, whose result is in
boxes too, and arrays between steps have a tape.

    f(x) - 3.0    -->    step: f(x) = w      tape: w - 3.0

Back from the function's value, cotangents of arrays go through the tape, and through the rules of
steps, the last one first. They are added in the objects' spaces. Each derivative is one run of the
function, and nothing of it is kept. Walks nest: to the inner one, boxes of the outer are constants.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tapegrad.autograd.boxes import OpenTrace
from tapegrad.autograd.spaces import Boxed, is_object, walk_at
from tapegrad.autograd.vspace import vspace
from tapegrad.core.request import Request, is_differentiable
from tapegrad.core.trees import flatten, flatten_up_to, unflatten
from tapegrad.errors import GradientError, UnsupportedError
from tapegrad.observe.program.source import at_line
from tapegrad.runtime.directional import Pushforward
from tapegrad.runtime.pullback import Pulling
from tapegrad.tracing.recording.trace import current_trace
from tapegrad.tracing.rules.custom import CustomPrimitive
from tapegrad.tracing.tracers.tracer import Tracer

_depth = ContextVar("walks that are under way", default=0)
kinds: dict[type, type[Boxed]] = {}  # the class of boxes for objects of a class


@dataclass(frozen=True)
class Step:
    """A call of a primitive, with its arguments and its value out of the walk's boxes."""

    primitive: CustomPrimitive
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    passed: list[Any]  # the arguments as they were passed, those by name last
    result: Any  # the value, in boxes

    def pull_back(self, ct: Any, walk: Walk) -> Sequence[Any]:
        """The cotangent of each argument in a box, for that of the value."""
        primitive, at = self.primitive, (self.args, self.kwargs)
        wanted = [any(walk.holds(leaf) for leaf in flatten(x)[0]) for x in self.passed]
        self.check(primitive.missing(*at), wanted)
        if primitive.reverse.joint is not None:
            return primitive.pull_back(ct, self.value, *at, ())
        pairs = zip(primitive.reverse.of(*at), wanted, strict=True)
        return [
            rule(ct, self.value, *self.args, **self.kwargs) if yes and rule is not None else None
            for rule, yes in pairs
        ]

    def check(self, missing: Sequence[Any], wanted: Sequence[bool]) -> None:
        """An error if an argument has no rule that is wanted."""
        for lacks, yes in zip(missing, wanted, strict=True):
            if yes and lacks is not None:
                raise GradientError(lacks.message)


class Walk:
    """A run of a function on boxes."""

    def __init__(self) -> None:
        self.trace = OpenTrace()
        self.trace.walk = self
        self.steps: list[Step] = []

    def box(self, value: Any) -> Any:
        """A value whose leaves are in boxes, where they are vectors."""
        leaves, structure = flatten(value)
        return unflatten(structure, [self._boxed(x) for x in leaves])

    def _boxed(self, x: Any) -> Any:
        if is_object(x):
            kind = type(x) if isinstance(x, Boxed) else kinds.get(type(x), Boxed)
            box = object.__new__(kind)
            box._value, box._walk = x, self
            return box
        return self.trace.begin(x) if is_differentiable(x) else x

    def holds(self, x: Any) -> bool:
        """Whether a leaf is in one of this walk's boxes."""
        return walk_at(x) is self

    def plain(self, value: Any) -> Any:
        """A value out of this walk's boxes."""
        leaves, structure = flatten(value)
        return unflatten(structure, [self._unboxed(x) if self.holds(x) else x for x in leaves])

    def _unboxed(self, x: Any) -> Any:
        if isinstance(x, Boxed):
            return x._value
        outside = [*self.trace.starts, *[y for _, y in self.trace.captured.values()]]
        if any(isinstance(y, Tracer) for y in outside):
            return self.trace.of_starts(*x._read())(*self.trace.starts)
        return x._read()[1]

    def step(self, primitive: CustomPrimitive, args: Any, kwargs: Any) -> Any:
        """Call a primitive, of whose arguments some are in boxes."""
        if primitive.signature is not None:
            bound = primitive.signature.bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        plain, named = self.plain(args), self.plain(kwargs)
        value = primitive(*plain, **named)
        if any(self.holds(x) for x in flatten(value)[0]):
            raise _hidden(f"an argument of {primitive.label}")
        result = self.box(value)
        passed = [*args, *[kwargs[name] for name in sorted(kwargs)]]
        self.steps.append(Step(primitive, plain, named, value, passed, result))
        return result


@dataclass
class Vectors:
    """The cotangents, or the tangents, of the values in a walk's boxes, as far as they are known:
    those of objects, and those of the arrays with which the tape begins."""

    walk: Walk

    def __post_init__(self) -> None:
        self.of_objects: dict[int, Any] = {}
        self.of_starts: list[Any] = [None] * len(self.walk.trace.starts)

    def leaves(self, value: Any, given: Any = None) -> Iterator[tuple[Any, Any]]:
        """The boxes among a value's leaves, each with its leaf of what is given for the value."""
        leaves, structure = flatten(value)
        rows = [None] * len(leaves) if given is None else flatten_up_to(structure, given)
        for x, y in zip(leaves, rows, strict=True):
            if self.walk.holds(x):
                yield x, y
            elif is_object(x) and not isinstance(x, Boxed) and _holds_traced(x):
                raise _hidden(f"a {type(x).__name__}")

    def _start(self, x: Tracer) -> int:
        return self.walk.trace.builder.inputs.index(x._read()[0])  # type: ignore[arg-type]

    def put(self, value: Any, given: Any) -> None:
        """This is given for an argument of the function, or the result of a step."""
        for x, found in self.leaves(value, given):
            if isinstance(x, Boxed):
                self.of_objects[id(x)] = found
            else:
                self.of_starts[self._start(x)] = found

    def at(self, x: Any) -> Any:
        """The vector of one box, which the tape begins with if it is an array's."""
        return (
            self.of_objects.get(id(x)) if isinstance(x, Boxed) else self.of_starts[self._start(x)]
        )

    def tangent(self, x: Any) -> Any:
        """The tangent of any box, by the tape if it is an array's."""
        if isinstance(x, Boxed):
            return self.of_objects.get(id(x))
        trace = self.walk.trace
        if all(t is None for t in self.of_starts):
            return None
        request = Request(trace.of_starts(*x._read()), [*trace.starts, *self.of_starts])
        return Pushforward(len(trace.starts)).inside(request)[1]

    def add(self, value: Any, given: Any) -> None:
        """Add cotangents of the leaves of any value; those of arrays go back through the tape."""
        trace = self.walk.trace
        for x, ct in self.leaves(value, given):
            if ct is not None and isinstance(x, Boxed):
                old = self.of_objects.get(id(x))
                self.of_objects[id(x)] = ct if old is None else vspace(x).add(old, ct)
            elif ct is not None:
                _, pull = Pulling("never").inside(
                    Request(trace.of_starts(*x._read()), trace.starts)
                )
                both = zip(self.of_starts, pull(ct), strict=True)
                self.of_starts = [b if a is None else a if b is None else a + b for a, b in both]

    def whole(self, value: Any, at: Callable[[Any], Any]) -> Any:
        """The vectors of a value's leaves, put together; 0 for those that aren't known, and None
        for leaves that are no vectors."""
        leaves, structure = flatten(value)
        found: list[Any] = []
        for x in leaves:
            y = at(x) if self.walk.holds(x) else None
            vector = is_differentiable(x) or is_object(x)
            found.append(vspace(self.walk.plain(x)).zeros() if y is None and vector else y)
        return unflatten(structure, found)

    def is_known(self, value: Any, at: Callable[[Any], Any]) -> bool:
        """Whether any leaf's is known."""
        return any(at(x) is not None for x, _ in self.leaves(value))


def _holds_traced(x: Any) -> bool:
    """Whether there are traced values in an object's attributes, or in containers there."""
    seen, reached = {id(x)}, [x]
    while reached:
        at = reached.pop()
        if isinstance(at, (Tracer, Boxed)):
            return True
        if at is x or isinstance(at, (dict, list, tuple, set)) or is_object(at):
            new = [y for y in gc.get_referents(at) if id(y) not in seen]
            seen.update(map(id, new))
            reached += [y for y in new if not isinstance(y, type)]
    return False


def _hidden(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} holds traced values, where no derivative is seen{at_line()}. Make the object in a "
        "primitive that is passed them, and give it a rule"
    )


def in_boxes(values: Any) -> bool:
    """Whether there are objects in boxes among these."""
    return any(isinstance(x, Boxed) for x in flatten(values)[0])


def plain(values: Any) -> Any:
    """These, with objects in the places of their boxes."""
    leaves, structure = flatten(values)
    found = [x._walk.plain(x) if isinstance(x, Boxed) else x for x in leaves]
    return plain(unflatten(structure, found)) if in_boxes(found) else unflatten(structure, found)


def needs_walk(values: Any) -> bool:
    """Whether a derivative with respect to these takes a walk: there are objects among them whose
    class has a vector space, or it is part of one that takes one."""
    return _depth.get() > 0 or holds_objects(values)


def holds_objects(values: Any) -> bool:
    """Whether there are objects among these whose class has a vector space."""
    return any(is_object(x) for x in flatten(values)[0])


def _walked(
    f: Callable[..., Any], numbers: Sequence[int], args: Sequence[Any], kwargs: Any
) -> tuple[Walk, list[Any], Any]:
    """A walk, the arguments with these numbers in boxes, and the value in boxes."""
    if current_trace() is not None:
        raise UnsupportedError(
            f"a derivative with respect to an object with a VSpace is taken inside of a function "
            f"that is traced{at_line()}. Take it outside, or say with tapegrad.register_tree what "
            "the object holds"
        )
    walk, passed = Walk(), [*args]
    for k in numbers:
        passed[k] = walk.box(args[k])
    before = _depth.set(_depth.get() + 1)
    try:
        value = f(*passed, **kwargs)
    finally:
        _depth.reset(before)
        walk.trace.close()
    return walk, [passed[k] for k in numbers], value


def pulled(
    f: Callable[..., Any], argnum: int | Sequence[int], args: Sequence[Any], kwargs: Any
) -> tuple[Callable[[Any], Any], Any]:
    """The map from the cotangent of the value to that of the argument with this number, or to a
    tuple of those with these numbers; and the value."""
    single = isinstance(argnum, int)
    numbers = (argnum,) if isinstance(argnum, int) else argnum
    walk, passed, result = _walked(f, numbers, args, kwargs)

    def pull(ct: Any) -> Any:
        cts = Vectors(walk)
        cts.add(result, ct)
        for step in reversed(walk.steps):
            if cts.is_known(step.result, cts.at):
                out = cts.whole(step.result, cts.at)
                for x, ct in zip(step.passed, step.pull_back(out, walk), strict=True):
                    cts.add(x, ct)
        found = tuple([cts.whole(x, cts.at) for x in passed])
        return found[0] if single else found

    return pull, walk.plain(result)


def pushed(
    f: Callable[..., Any], numbers: Sequence[int], args: Sequence[Any], kwargs: Any, given: Any
) -> tuple[Any, Any]:
    """The value, and its tangent for these tangents of the arguments with these numbers."""
    walk, passed, result = _walked(f, numbers, args, kwargs)
    ts = Vectors(walk)
    for x, t in zip(passed, given, strict=True):
        ts.put(x, t)
    for step in walk.steps:
        moving = [ts.is_known(x, ts.tangent) for x in step.passed]
        if any(moving):
            step.check(step.primitive.missing_forward(step.args, step.kwargs), moving)
            own_ts = [ts.whole(x, ts.tangent) if yes else None
                      for x, yes in zip(step.passed, moving, strict=True)]  # fmt: skip
            found = step.primitive.push_forward(own_ts, step.value, step.args, step.kwargs, ())
            out = None
            for t in found:
                out = t if out is None else vspace(step.value).add(out, t)
            ts.put(step.result, out)
    return walk.plain(result), ts.whole(result, ts.tangent)
