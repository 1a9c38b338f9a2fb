"""Derivatives with respect to objects that are vectors: their classes have a `VSpace` of their own.

Such an object is opaque. A function uses it through primitives, whose rules define the cotangents.
The function runs on boxes: each call of a primitive with a box is a step, whose result is boxed,
too. Array operations between steps are recorded on a tape.

    f(x) - 3.0    -->    step: f(x) = w      tape: w - 3.0

In reverse mode, cotangents of arrays go back through the tape, and through the rules of the steps,
the last one first. They are added in the objects' spaces. Each derivative is one run of the
function, and nothing is cached. Walks nest: to an inner walk, the boxes of an outer one are
constants.
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
kinds: dict[type, type[Boxed]] = {}  # the class of the boxes for each class of objects


@dataclass(frozen=True)
class Step:
    """A call of a primitive, with its unboxed arguments and value."""

    primitive: CustomPrimitive
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    passed: list[Any]  # the arguments as passed, keyword arguments last
    result: Any  # the value, boxed

    def pull_back(self, ct: Any, walk: Walk) -> Sequence[Any]:
        """The cotangent of each boxed argument, for that of the value."""
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
        """Raise an error if an argument whose derivative is wanted has no rule."""
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
        """A value whose leaves are boxed, if they are vectors."""
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
        """A value, unboxed from this walk's boxes."""
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
        """Call a primitive, some of whose arguments are boxed."""
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
    """The known cotangents, or tangents, of the values in a walk's boxes: those of objects, and
    those of the arrays that are the tape's inputs."""

    walk: Walk

    def __post_init__(self) -> None:
        self.of_objects: dict[int, Any] = {}
        self.of_starts: list[Any] = [None] * len(self.walk.trace.starts)

    def leaves(self, value: Any, given: Any = None) -> Iterator[tuple[Any, Any]]:
        """The boxes among a value's leaves, each with the matching leaf of `given`."""
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
        """Set the vectors of an argument of the function, or of a step's result."""
        for x, found in self.leaves(value, given):
            if isinstance(x, Boxed):
                self.of_objects[id(x)] = found
            else:
                self.of_starts[self._start(x)] = found

    def at(self, x: Any) -> Any:
        """The vector of a box; an array's box must be an input of the tape."""
        return (
            self.of_objects.get(id(x)) if isinstance(x, Boxed) else self.of_starts[self._start(x)]
        )

    def tangent(self, x: Any) -> Any:
        """The tangent of any box; for an array's, computed by the tape."""
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
        """The vectors of a value's leaves, in its structure: 0 where none is known, and None for
        leaves that aren't vectors."""
        leaves, structure = flatten(value)
        found: list[Any] = []
        for x in leaves:
            y = at(x) if self.walk.holds(x) else None
            vector = is_differentiable(x) or is_object(x)
            found.append(vspace(self.walk.plain(x)).zeros() if y is None and vector else y)
        return unflatten(structure, found)

    def is_known(self, value: Any, at: Callable[[Any], Any]) -> bool:
        """Whether the vector of any leaf is known."""
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
    """Whether any of these values is a boxed object."""
    return any(isinstance(x, Boxed) for x in flatten(values)[0])


def plain(values: Any) -> Any:
    """These values, with objects in the place of their boxes."""
    leaves, structure = flatten(values)
    found = [x._walk.plain(x) if isinstance(x, Boxed) else x for x in leaves]
    return plain(unflatten(structure, found)) if in_boxes(found) else unflatten(structure, found)


def needs_walk(values: Any) -> bool:
    """Whether a derivative with respect to these values needs a walk: some are objects whose class
    has a vector space, or another walk is running."""
    return _depth.get() > 0 or holds_objects(values)


def holds_objects(values: Any) -> bool:
    """Whether any of these values is an object whose class has a vector space."""
    return any(is_object(x) for x in flatten(values)[0])


def _walked(
    f: Callable[..., Any], numbers: Sequence[int], args: Sequence[Any], kwargs: Any
) -> tuple[Walk, list[Any], Any]:
    """A walk, the arguments with these numbers, boxed, and the function's boxed value."""
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
    """The map from the cotangent of the value to that of the argument `argnum`, or to a tuple for
    several; and the value."""
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
