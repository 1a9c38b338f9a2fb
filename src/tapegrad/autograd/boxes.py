"""Boxes that a program makes: a tape that grows in pieces as the program runs.

    start = new_box(x, 0, VJPNode.new_root())        start = new_box(x, 0, JVPNode.new_root(t))
    end = f(start)                                   end = f(start)
    backward_pass(ct, end._node)    # ct^T J         end._node.g    # J t

Each tape is used once, so nothing that the program does needs to be observed or compared.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tapegrad.core.late import CALLS, load
from tapegrad.core.request import Request, check_leaf
from tapegrad.core.trees import is_traced
from tapegrad.errors import ArgumentError, UnsupportedError
from tapegrad.ir.inputs import renumbered, with_inputs
from tapegrad.ir.tape import Builder, Literal, Source
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.observe.values.proxy import Proxy
from tapegrad.runtime.directional import Pushforward
from tapegrad.runtime.pullback import Pulling
from tapegrad.tracing.recording.trace import Trace, current_trace, running
from tapegrad.tracing.runs.run import own_result, replay
from tapegrad.tracing.runs.traced import input_aval, plain_value
from tapegrad.tracing.tracers.tracer import Tracer, stand_in

__all__ = ["JVPNode", "VJPNode", "backward_pass", "new_box", "trace", "trace_stack"]


class OpenTrace(Trace):
    """A trace without a function: it is open as long as any of its values is alive. It can be
    entered any number of times, by code that looks up the current trace."""

    is_open = True
    walk: Any = None  # the walk that it is part of: see `autograd.objects`

    def __init__(self, node: Place | None = None) -> None:
        super().__init__(Builder("box"))
        self._root = node
        self.starts: list[Any] = []  # the input values
        _open.add(self)
        running[self.level] = None
        weakref.finalize(self, running.pop, self.level, None)

    def begin(self, value: Any) -> Any:
        """A traced value, as an input, for this value."""
        aval = input_aval(value)
        self.starts.append(value)
        x = self.builder.input(aval, f"x{len(self.starts)}")
        return stand_in(self, x, plain_value(value), aval.weak)

    def of_starts(self, operand: Any, value: Any) -> Callable[..., Any]:
        """A traced value, given as `_read` returns it, as a function of the trace's inputs."""
        self.check_captured()
        captured = [*self.captured.values()]
        if isinstance(operand, Literal):
            return lambda *xs: value
        names = [f"c{k}" for k in range(len(captured))]
        raw = with_inputs(self.builder.finish([operand]), [var for var, _ in captured], names)
        tape, outside = renumbered(raw), [x for _, x in captured]
        return lambda *xs: own_result(replay(tape, [*xs, *outside])[0])

    def place(self, tracer: Proxy) -> Any:
        if self._root is None:
            return super().place(tracer)
        return type(self._root)(self._root, tracer)

    def _end(self) -> None: ...

    def close(self) -> None:
        """Note that no running function can reach the trace's values any more without being passed
        them."""
        running.pop(self.level, None)
        _open.discard(self)

    def note_write(self, tracer: Proxy, src: Source | None = None) -> None:
        """Note a write. Places that were taken before keep their values.

        It is an error if the array is the one that a box was made of, may be aliased, or belongs to
        a walk, whose steps are traversed backwards.
        """
        if self.walk is not None or tracer._may_alias or tracer._read()[0] in self.builder.inputs:
            raise UnsupportedError(
                f"a value of a box that was made by hand is written to in place{at_line()}. Write "
                "to a copy, make another array with np.where, np.stack or np.concatenate, or take "
                "make_vjp(f, x), which follows writes"
            )
        super().note_write(tracer, src)


_open: weakref.WeakSet[OpenTrace] = weakref.WeakSet()


def _forked() -> None:
    """Restore the open traces in the child of a fork."""
    running.update((trace.level, None) for trace in _open)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Place:
    """The position of a value on a tape. A root is at the tape's start, where a box was made with
    it."""

    box: Any = None  # the traced value; after a later write it is at another place
    start: Any = None  # the root's value before it was boxed
    root: Place

    def __init__(self, root: Place | None = None, box: Any = None) -> None:
        self.root = self if root is None else root
        self.hold(box)

    def hold(self, box: Any) -> None:
        """Put a traced value here, as it is now."""
        self.box = box
        if box is not None:
            self._read = box._read()

    def _function(self) -> Callable[[Any], Any]:
        """The value as a function of the root's."""
        found: Callable[[Any], Any] = self.box._trace.of_starts(*self._read)
        return found


class VJPNode(Place):
    """A place on a tape, for reverse mode."""

    @classmethod
    def new_root(cls) -> VJPNode:
        """The start of a tape."""
        return cls()


class JVPNode(Place):
    """A place on a tape, for forward mode."""

    tangent: Any = None

    @classmethod
    def new_root(cls, g: Any) -> JVPNode:
        """The start of a tape, with the tangent of the value there."""
        found = cls()
        found.tangent = g
        return found

    @property
    def g(self) -> Any:
        """The tangent of the value here."""
        if self.root is self:
            return self.tangent
        root: Any = self.root
        return Pushforward(1).inside(Request(self._function(), [root.start, root.tangent]))[1]


@unobserved
def new_box(value: Any, trace: Any, node: Any) -> Any:
    """A traced value that starts a tape at `node`, a root without a box. `trace` is ignored: values
    of all tapes may meet."""
    load(CALLS)
    if not isinstance(node, Place) or node.box is not None:
        raise ArgumentError(
            "new_box: a box is made with a new root, VJPNode.new_root() or JVPNode.new_root(t), "
            "for each"
        )
    # Values that a program takes out of boxes aren't recorded by a trace around it.
    if isinstance(value, Tracer) or current_trace() is not None:
        raise UnsupportedError(
            f"new_box: a box is made by hand inside of a function that is traced, or of a traced "
            f"value{at_line()}. Take tapegrad.autograd.core.make_vjp(f, x) or make_jvp(f, x) "
            "there: the value of f, and its derivative"
        )
    if not is_traced(value):
        raise ArgumentError(
            f"new_box: a {type(value).__name__} can't be boxed: box the arrays and numbers in it"
        )
    check_leaf(value, "new_box: the value")
    node.start = value
    node.hold(OpenTrace(node).begin(value))
    return node.box


@unobserved
def backward_pass(g: Any, end_node: VJPNode) -> Any:
    """The cotangent of the value at the tape's start, for the cotangent `g` of the value at
    `end_node`."""
    start: Any = end_node.root.start
    _, pull = Pulling("never").inside(Request(end_node._function(), [start]))
    (found,) = pull(g)
    return found


def trace(start_node: Any, fun: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The value of `fun(x)`, and its place on the tape that starts with `x` at `start_node`; None
    if the value doesn't depend on `x`."""
    start = new_box(x, 0, start_node)
    end = fun(start)
    if isinstance(end, Tracer) and end._trace is start._trace:
        return end._value, end._node
    warnings.warn("Output seems independent of input.", stacklevel=2)
    return end, None


class _Levels:
    """Numbers of tapes, which tapegrad doesn't use."""

    @contextlib.contextmanager
    def new_trace(self) -> Iterator[int]:
        """The number of a tape, for as long as it is open."""
        yield 0


trace_stack = _Levels()
