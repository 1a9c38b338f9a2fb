"""Functions of the user's that are called with traced values at each call: `tapegrad.debug`.

    debug.callback(f, x)          %4 = debug.callback(%3) : i8[]
    y = debug.cotangent(f, x)     %4 = debug.cotangent(%3) : f8[]     its reverse rule calls f

Each is a call of NumPy between the kernels, with an effect, so it stays though nothing reads its
result. A trace records the call without making it: the trace may be repeated, and its rounds and
sides of branches are run with other values. The recorded call is made when the tape or its compiled
code runs. If the program has raised an error, the trace makes the calls recorded until then.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tapegrad.core import callback_log
from tapegrad.core.installed import is_installed
from tapegrad.core.listing import instructions_of
from tapegrad.core.named import own_attribute
from tapegrad.core.request import describe
from tapegrad.core.statics import static_key
from tapegrad.core.trees import flatten, unflatten
from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Aval, Builder
from tapegrad.observe.activations.error_handlers import is_caught_from
from tapegrad.observe.objects.purity import CONTAINERS
from tapegrad.observe.observer import following, note_told, observed, unobserved
from tapegrad.observe.program.source import at_line, user_frames
from tapegrad.primitives.control import Custom, ForeignCall
from tapegrad.tracing.recording.trace import (
    Trace,
    current_trace,
    innermost,
    is_untraced,
    traces_under_way,
    tracing_depth,
)
from tapegrad.tracing.runs.floating_errors import RepeatedCall, is_operand
from tapegrad.tracing.runs.mixed_trees import mixed_tree, value_of
from tapegrad.tracing.runs.traced import input_aval
from tapegrad.tracing.tracers.tracer import Tracer, stand_in, to_operand

COTANGENT = "debug.cotangent"  # the label of what the reverse half calls
TOKEN = Aval((), np.dtype(np.int64))


@dataclass(frozen=True, eq=False)
class Callback(RepeatedCall):
    """Calls a function of the user's with copies of the values. An error says `where`, too."""

    where: str

    @property
    def __name__(self) -> str:
        return describe(self.func)

    def __call__(self, *values: Any) -> list[Any]:
        if not tracing_depth():
            callback_log.current().tell(partial(self.run, [np.array(x) for x in values]))
        return [np.int64(0)]

    def run(self, values: Sequence[Any]) -> None:
        try:
            self.repeat(values)
        except Exception as error:
            error.add_note(f"in {self.where}")
            raise


@unobserved
def callback(f: Callable[..., Any], args: Any, kwargs: dict[str, Any], label: str) -> None:
    """Call `f` with these arguments: now, or if a function is traced, at each call of it."""
    trace = _trace(args, kwargs)
    if trace is None:
        if is_untraced((args, kwargs)):
            leaves, structure = flatten((args, kwargs))
            args, kwargs = unflatten(structure, [_copied(x) for x in leaves])
            with observed():
                f(*args, **kwargs)
        return
    telling, operands = _told(_as_now(f, label), args, kwargs, label)
    trace.record(_call(telling, label), [to_operand(trace, x)[0] for x in operands])
    values = [value_of(x) for x in operands]
    if [trace] == traces_under_way() and all(x is not None for x in values):
        values = [np.array(x) for x in values]
        callback_log.current().recorded.append(partial(telling.run, values))


@unobserved
def cotangent(f: Callable[..., Any], x: Any, label: str) -> Any:
    """The same tree; in reverse mode `f` is called with the cotangents of its traced leaves."""
    leaves, structure = flatten(x)
    moving = [isinstance(leaf, Tracer) and leaf.dtype.kind in "fc" for leaf in leaves]
    tracers = [leaf for leaf, yes in zip(leaves, moving, strict=True) if yes]
    if tracers:
        trace = _trace(tracers, {}) or innermost(tracers)
        avals = [leaf._aval for leaf in tracers]
        arguments = mixed_tree(flatten(((x,), {}))[1], leaves, moving, avals)
        arguments = replace(arguments, static=tuple([None] * len(leaves)))
        telling = Callback(_as_now(f, label), arguments, f"{label}{at_line()}")
        builder = Builder(label)
        tape = builder.finish([builder.input(aval) for aval in avals])
        primitive = Custom(label, tape, _Pulled(_call(telling, label)), _pushed)
        read = [to_operand(trace, leaf) for leaf in tracers]
        outs = iter(trace.record(primitive, [operand for operand, _ in read]))
        values = iter([value for _, value in read])
        leaves = [
            stand_in(trace, next(outs), _copied(next(values)), leaf._aval.weak) if yes else leaf
            for leaf, yes in zip(leaves, moving, strict=True)
        ]
    return unflatten(structure, [x if isinstance(x, Tracer) else _copied(x) for x in leaves])


@dataclass(frozen=True)
class _Pulled:
    """The reverse rule: return the cotangents unchanged, and call the function with them."""

    call: ForeignCall

    def __call__(self, cts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Any:
        self.call(*cts)
        return cts


def _pushed(ts: Sequence[Any], outs: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
    return ts


def _copied(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def _trace(args: Any, kwargs: dict[str, Any]) -> Trace | None:
    """The trace that records a call with these arguments now; None if there is none."""
    trace = current_trace()
    if trace is None:
        tracers = [x for x in flatten((args, kwargs))[0] if isinstance(x, Tracer)]
        return innermost(tracers) if tracers else None
    return trace if trace.inside is None else trace.inside


def _told(
    f: Callable[..., Any], args: Any, kwargs: dict[str, Any], label: str
) -> tuple[Callback, list[Any]]:
    leaves, structure = flatten((tuple(args), kwargs))
    on_tape = [is_operand(x) for x in leaves]
    operands = [x for x, yes in zip(leaves, on_tape, strict=True) if yes]
    for x, yes in zip(leaves, on_tape, strict=True):
        held = [] if yes or isinstance(x, type) else getattr(x, "__dict__", {}).values()
        if any(isinstance(leaf, Tracer) for leaf in flatten([*held])[0]):
            raise UnsupportedError(
                f"{label} is passed an object of the class {type(x).__qualname__} that holds "
                f"traced values{at_line()}, and later calls have other ones. Pass these "
                "themselves, or declare the class by tapegrad.register_tree"
            )
    arguments = mixed_tree(structure, leaves, on_tape, [input_aval(x) for x in operands])
    return Callback(f, arguments, f"{label}{at_line()}{_caught()}"), operands


def _caught() -> str:
    """What an error that a callback raises says of the program's `except` around the call."""
    o, frame = following.observer, next(user_frames(), None)
    if o is None or frame is None or not is_caught_from(frame, o.managed):
        return ""
    return (
        ". The except around it doesn't catch this: the call is made when the function is over. "
        "Catch it in what is called, or have the function decide by a value that it computes"
    )


def _call(telling: Callback, label: str) -> ForeignCall:
    arguments = telling.arguments
    static = tuple(map(static_key, arguments.static))
    key = _key(telling.func, label), str(arguments.structure), static
    return ForeignCall(label, telling, (TOKEN,), 0, of_complex=True, effect=key)


def _as_now(f: Any, label: str) -> Any:
    """A function that has the variables of a call that is traced as they are now: when it is
    called, that call is over."""
    if type(f) is partial:
        _check_outside([*f.args, *f.keywords.values()], label)
        return partial(_as_now(f.func, label), *f.args, **f.keywords)
    if type(f) is not types.FunctionType or not _is_new(f):
        _check_outside([f, own_attribute(f, "__self__")], label)
        return f
    _check_outside([*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()], label)
    frame: Any = sys._getframe(1)
    while frame is not None and f.__code__ not in frame.f_code.co_consts:
        frame = frame.f_back
    if frame is None or not f.__closure__:
        return f
    own, code, cells = frame.f_code.co_cellvars, f.__code__, []
    for name, cell in zip(code.co_freevars, f.__closure__, strict=True):
        if name in own and _sets(code, name):
            raise UnsupportedError(
                f"the function of {label} sets {name!r}, a variable of the function that is "
                f"traced{at_line()}. It is called when that is over: have it change an object of "
                "the outside, such as a list, in its place"
            )
        now = name in own and cell != types.CellType()
        _check_outside([cell.cell_contents] if now else [], label)
        cells.append(types.CellType(cell.cell_contents) if now else cell)
    made = types.FunctionType(code, f.__globals__, f.__name__, f.__defaults__, tuple(cells))
    made.__kwdefaults__ = f.__kwdefaults__
    return made


def _check_outside(reached: Sequence[Any], label: str) -> None:
    for x in reached:
        if _is_made_here(x) and not any(isinstance(leaf, Tracer) for leaf in flatten(x)[0]):
            raise UnsupportedError(
                f"the function of {label} reaches an object of the class {type(x).__qualname__} "
                f"that the function that is traced has created{at_line()}. It is called when that "
                "is over, so neither sees what the other does with it. Create it outside, or pass "
                f"what the function needs of it: {label}(f, x)"
            )


def _is_new(x: Any) -> bool:
    """Whether the observed run didn't come to an object by a read: it has created it."""
    return following.observer is not None and following.observer.reads.place(x) is None


def _is_made_here(x: Any) -> bool:
    """Whether the run has created this container, or this object of a class of the program's."""
    kind = type(x)
    if not _is_new(x) or isinstance(x, (tuple, frozenset, type, partial)):
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    return kind in CONTAINERS or bool(file and not is_installed(file) and not is_frozen)


def _sets(code: types.CodeType, name: str) -> bool:
    """Whether a code sets a variable of the function around it, or one that is inside does."""
    sets = any(i.opname == "STORE_DEREF" and i.argval == name for i in instructions_of(code))
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType) and name in x.co_freevars]
    return (name in code.co_freevars and sets) or any(_sets(x, name) for x in inner)


def _key(f: Any, label: str) -> Any:
    """A key of a function. Functions created anew in each round, with equal contents, have equal
    keys."""
    for x in flatten(f)[0]:
        if isinstance(x, Tracer):
            raise UnsupportedError(
                f"the function of {label} reaches a traced value ({x._aval}){at_line()}, and later "
                f"calls have other values. Pass it as an argument: {label}(f, x)"
            )
    note_told(f, label == COTANGENT)
    if type(f) is partial:
        parts = (f.func, *f.args, *f.keywords.values())
        return partial, tuple(f.keywords), *[_key(x, label) for x in parts]
    if type(f) is types.MethodType:
        return types.MethodType, _key(f.__func__, label), static_key(f.__self__)
    if type(f) is types.FunctionType:
        cells = [x.cell_contents for x in f.__closure__ or () if x != types.CellType()]
        held = (*cells, *(f.__defaults__ or ()))
        return f.__code__, *[_key(x, label) for x in held if x is not f]
    return static_key(f)
