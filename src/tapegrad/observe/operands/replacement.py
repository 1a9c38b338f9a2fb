"""Replacement of the callable or container that an instruction is about to use.

The replacement answers a call of the user's code where NumPy, Python or another library couldn't
follow a traced value. The record of the call is that of the original, unless the original is
written in Python and would be followed.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from tapegrad.core.values import stood_for
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.generators import generator_drawn_from, generator_of
from tapegrad.observe.answers.answers import UNKNOWN, Answer, answer_of, is_answered, operand_of
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.clocks import is_clock
from tapegrad.observe.objects.purity import (
    DISPATCHER,
    INERT,
    is_pythons_class,
    is_silent,
    module_of,
)
from tapegrad.observe.objects.randomness import is_maker
from tapegrad.observe.operands import table_writes
from tapegrad.observe.operands.plain_operands import (
    called_plainly,
    is_foreign,
    place_of_keys,
    plain_of,
    takes_numbers,
)
from tapegrad.observe.packages.opaque import is_asked_anew, is_opaque, is_scipys_own
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import operand_at
from tapegrad.observe.program.joins import operands_of, sides_of
from tapegrad.observe.values.texts import SHOWING, is_only_shown, say_once
from tapegrad.primitives.base import Value
from tapegrad.primitives.elementwise import stop_gradient


def put(
    a: Activation,
    f: Any,
    at: int,
    args: Sequence[Any],
    places: Sequence[int] = (),
    together: int | None = None,
    named: int = 0,
) -> Any:
    """Replace the callable `f`, operand number `at`, if its call is answered. The arguments are the
    operands at `places`, the last `named` of them by name, or those in a tuple and dict at
    `together`. Returns the callable to record: `f`, except for a Python function or class that
    won't run."""
    if type(f) is MethodWrapperType and f.__name__ == "__call__" and type(f.__self__) in _IN_C:
        f = f.__self__  # `np.zeros.__call__(n)`
        frames.replace(operand_at(a.stack, at), f)
    if tells(f):
        a.o.told += 1
        a.o.shown()
        if f is print:
            say_once(a.frame, args)
        if a.o.told <= a.o.silent:
            frames.replace(operand_at(a.stack, at), _told_before)
        return f
    if f is super:
        _put_super(a, at, args, places)
        return f
    if f is range and any(isinstance(x, Value) for x in args):
        counted = dispatch.ranged(a, args)
        if counted is not None:
            frames.replace(operand_at(a.stack, at), counted)
            return f
    if f is len and len(args) == 1 and hasattr(type(args[0]), "_length"):
        frames.replace(operand_at(a.stack, at), type(args[0])._length)
        return f
    if table_writes.is_refused(a, f, args):
        frames.replace(operand_at(a.stack, at), table_writes.refused_write)
        return f
    if table_writes.put_method(a, f, args, at):
        return f
    exhausted = dispatch.exhausted(a.frame, f, args)
    if exhausted is not None:
        frames.replace(operand_at(a.stack, at), exhausted)
        return f
    answer = answer_of(f)
    if answer is not None and _put_answer(a, at, answer, args):
        # The answer is returned without the object that it is bound to.
        known = _is_pythons(f) or is_foreign(f)  # an unknown function in C
        return getattr(answer.by, "func", answer.by) if known else f
    plain = plain_of(f, args)
    if plain is not None:
        key = place_of_keys(f)
        if key is None:
            put_plain(a, places, together, plain)
        elif together is None:  # arguments by name are values
            k = len(args) - 1 - key
            put_plain(a, places[k : k + 1] if k >= named else (), None, plain)
        else:
            put_plain(a, (), together, plain, key)
    if any(x is UNKNOWN for x in args) and takes_numbers(f):
        frames.replace(operand_at(a.stack, at), called_plainly(f))
        return f
    if type(f) in _UNBOUND and f.__objclass__ in _NUMBERS and args and isinstance(args[0], Value):
        if plain is None or plain(args[0]) is None:
            frames.replace(operand_at(a.stack, at), functools.partial(_method_of, f.__name__))
    elif args and isinstance(args[0], Value) and _is_of_descriptor(f):
        frames.replace(operand_at(a.stack, at), _of_descriptor(f, args[0]))
    elif type(f) is functools.partial or any(f is x for x in _CALLERS) or _sorts(f):
        _put_answers(a, at, f, places)
    elif generator_of(f, args) is not None:
        _put_draw(a, at, f, args)
    elif is_clock(f):
        _put_clock(a, at, f)
    elif is_asked_anew(f):
        put_plain(a, places, together, dispatch.plain)
        asked = functools.partial(dispatch.ask, a.o, f)
        frames.replace(operand_at(a.stack, at), asked)
    elif is_maker(f):
        put_plain(a, places, together, dispatch.seed)
    elif is_foreign(f) or any(f is x for x in _OF_MEMORY) or is_opaque(f, args):
        put_plain(a, places, together, dispatch.plain)
        if (f is bytes or f is bytearray) and len(places) == 1:
            x = a.top(places[0])
            if isinstance(x, Value) and isinstance(x, np.ndarray):  # else it would be iterated over
                frames.replace(operand_at(a.stack, at), lambda x: f(x.tobytes()))
    return f


def tells(f: Any) -> bool:
    """Whether this prints, logs or warns, and returns nothing."""
    if f is print or f is warnings.warn:
        return True
    function = f.__func__ if type(f) is MethodType else f
    known = type(function) is FunctionType  # others may create attributes on access
    return known and function.__name__ in SHOWING and is_silent(function.__code__)


def _told_before(*args: Any, **kwargs: Any) -> None:
    """The replacement of `print` in a repeated run, for output that was printed before."""


def put_class(a: Activation, k: int, kind: Any, x: Any) -> Any:
    """For `super(kind, x)` of a traced array of an ndarray subclass, replace operand number `k`,
    `kind`, by its class of tracers. Returns the operand after that."""
    known = _standing_for(kind, x)
    if known is not None:
        frames.replace(operand_at(a.stack, k), known)
    return known or kind


def _standing_for(kind: Any, x: Any) -> Any:
    if stood_for(type(x)) is None:
        return None
    return next((c for c in type(x).__mro__ if vars(c).get("_subclass") is kind), None)


def _put_super(a: Activation, at: int, args: Sequence[Any], places: Sequence[int]) -> None:
    """Prepare a call of `super`, with a class and an object, or without arguments."""
    if len(args) == 2 and places:
        put_class(a, places[-1], *args)
        return
    code = a.frame.f_code
    if args or "__class__" not in code.co_freevars or a.function is None:
        return
    kind = a.function.__closure__[code.co_freevars.index("__class__")].cell_contents
    x = frames.local(a.address, 0)
    x = x.cell_contents if type(x) is CellType else x
    put_super(operand_at(a.stack, at), kind, x)


def put_super(at: int, kind: Any, x: Any) -> Any:
    """For `super()`, which reads `kind` and `x` from the frame, replace `super` at `at` by one of
    the class of tracers. Returns the class that is searched then."""
    known = _standing_for(kind, x)
    if known is not None:
        frames.replace(at, functools.partial(super, known, x))
    return known or kind


def _sorts(f: Any) -> bool:
    """Whether this is `sort` of a list, which calls a key function."""
    return type(f) is BuiltinFunctionType and f.__name__ == "sort" and type(f.__self__) is list


_IN_C = (BuiltinFunctionType, DISPATCHER, np.ufunc)
_UNBOUND = (MethodDescriptorType, WrapperDescriptorType)
_NUMBERS = (np.ndarray, np.generic, int, float, complex)


def _method_of(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a traced value's own method for `np.ndarray.sum(x)` or `float.is_integer(x)`."""
    method = getattr(x, name) if x._subclass is None else x._as_numpys(name)
    return method(*args, **kwargs)


def _is_of_descriptor(f: Any) -> bool:
    """Whether this is `np.ndarray.shape.__set__` or the like."""
    own = f.__self__ if type(f) is MethodWrapperType else None
    return type(own) is GetSetDescriptorType and own.__objclass__ is np.ndarray


def _of_descriptor(f: Any, x: Any) -> Any:
    """The same method for a traced array `x`, of the attribute that it has in place of
    ndarray's."""
    tracers = next(kind for kind in type(x).__mro__ if "_subclass" not in vars(kind))
    return getattr(getattr(tracers, f.__self__.__name__), f.__name__)


def _is_pythons(f: Any) -> bool:
    owner = f.__objclass__ if type(f) is MethodDescriptorType else type(f)  # `reduce` of numba's
    if type(f) in (FunctionType, MethodType) or f"{module_of(owner)}.".startswith("numba."):
        return True
    if isinstance(f, type):
        return is_pythons_class(f)
    return is_scipys_own(f)


def put_traced(a: Activation, k: int, x: Any, key: Any) -> Any:
    """Replace the indexed object, operand number `k`: a plain array by a traced one if the index is
    traced, and `np.r_` by its answer. Returns the object."""
    if type(x) is np.ndarray and (type(key) is tuple or isinstance(key, Value)):
        traced = dispatch.gathered(x, key)
        if traced is not None:
            frames.replace(operand_at(a.stack, k), traced)
            return traced
    if type(x) in (list, tuple) and isinstance(key, Value):
        shared = bool(x) and type(x[0]) is list and not _is_taken_apart(a)
        entry = None if shared else dispatch.entry(x, key)
        if entry is not None:
            a.o.read_all(x)
            frames.replace(operand_at(a.stack, k), _Holding(entry))
            return entry
    answer = answer_of(x)
    if answer is not None and answer.looked_up:
        _put_answer(a, k, answer, ())
    return x


def _is_taken_apart(a: Activation) -> bool:
    """Whether the item that a frame looks up is only used to look up its own items, so that a
    temporary object may replace it."""
    flow = (a.sides or sides_of(a.frame.f_code)).flow
    offset = a.frame.f_lasti
    if flow.heights is None:
        return False
    place = flow.height(offset) - 2
    while len(after := flow.after(offset)) == 1:
        (offset,) = after
        i = flow.at[offset]
        if flow.height(offset) - operands_of(i) <= place:
            takes = i.opname == "BINARY_SUBSCR" and place == flow.height(offset) - 2
            return takes or i.opname in ("UNPACK_SEQUENCE", "GET_ITER")
    return False


class _Holding:
    """The replacement of a list, for the look-up of one entry."""

    def __init__(self, entry: Any) -> None:
        self._entry = entry

    def __getitem__(self, key: Any) -> Any:
        return self._entry


def put_without_derivative(a: Activation, x: Any, name: str) -> None:
    """Prepare `x._value`, by which programs for HIPS autograd unbox a traced value. The number
    isn't plain, as later calls would repeat it, but has no derivative."""
    if name == "_value":
        frames.replace(operand_at(a.stack, 0), SimpleNamespace(_value=stop_gradient(x)))


def put_operands(a: Activation, x: Any, y: Any) -> list[Any]:
    """Replace an operand beside a traced one if a replacement is declared, and a list of traced
    values beside a plain array by an array. Returns the operands that are read."""
    for k, operand, other in ((0, y, x), (1, x, y)):
        if type(other) is np.ndarray and _holds_traced(operand):
            stacked = dispatch.as_operand(operand)
            frames.replace(operand_at(a.stack, k), stacked)
            return [x, y, stacked]
    if isinstance(x, np.ndarray) and stood_for(type(y)) is not None:
        beside = dispatch.beside(x, y)  # Python calls its operators first
        if beside is not None:
            frames.replace(operand_at(a.stack, 1), beside)
    for k, operand, other in ((1, x, y), (0, y, x)):
        if isinstance(operand, (Value, np.ndarray)) or INERT[type(operand)]:
            continue
        found = operand_of(operand)
        if found is None:
            continue
        if (plain := dispatch.plain(other)) is not None:
            frames.replace(operand_at(a.stack, 1 - k), plain)
        by, when = found
        row = Answer(type(operand), "operand", operand, by, when=when)
        if is_answered(row, a.frame.f_code, (other if plain is None else plain,)):
            frames.replace(operand_at(a.stack, k), by(operand))
    return [x, y]


def _holds_traced(x: Any) -> bool:
    """Whether nested lists hold a traced value."""
    if type(x) not in (list, tuple):
        return False
    return any(isinstance(entry, Value) or _holds_traced(entry) for entry in x)


def _put_answer(a: Activation, k: int, answer: Answer, args: Sequence[Any]) -> bool:
    """Replace the callable, operand number `k`, by its answer, if this call is answered. Returns
    whether it is."""
    answered = is_answered(answer, a.frame.f_code, args)
    if answered:
        frames.replace(operand_at(a.stack, k), _told(answer, args))
    return answered


def _told(answer: Answer, args: Sequence[Any]) -> Any:
    """The answering function. SciPy and `math` return base-class arrays and numbers for
    subclasses."""
    traced = any(stood_for(type(x)) is not None for x in args)
    module = answer.module
    name = module_of(module) if isinstance(module, type) else module.__name__
    if traced and name.partition(".")[0] in ("scipy", "math", "cmath", "numba"):
        return functools.partial(dispatch.with_bare, answer.by)
    return answer.by


# They call their arguments, and are written in C.
_CALLERS = (
    *(map, filter, sorted, min, max, functools.partial, functools.reduce, list.sort),
    *(itertools.starmap, itertools.accumulate, itertools.takewhile, itertools.dropwhile),
    *(itertools.filterfalse, itertools.groupby),
)

_FIRST = (map, filter, functools.partial, functools.reduce, itertools.starmap)  # callable first


def _put_answers(a: Activation, k: int, f: Any, places: Sequence[int]) -> None:
    """Replace callables whose inner function is answered: a partial, or an argument that a C
    function calls."""
    if type(f) is functools.partial:
        by = _going_on(a, f, (UNKNOWN,))
        if by is None and takes_numbers(f.func):
            by = functools.partial(called_plainly(f.func), *f.args, **f.keywords)
        if by is not None:
            frames.replace(operand_at(a.stack, k), by)
        return
    for at in places:
        x = a.top(at)
        # A type may also be an ordinary argument: `partial(np.array, dtype=float)`.
        if isinstance(x, type) and not (at == places[-1] and f in _FIRST):
            continue
        by = _going_on(a, x, (UNKNOWN,))
        if by is None and f is not functools.partial and takes_numbers(x):
            by = called_plainly(x)
        if by is not None:
            frames.replace(operand_at(a.stack, at), by)


def _going_on(a: Activation, f: Any, args: Sequence[Any]) -> Any:
    """The answer to a call `f(*args)` that C code makes for this frame, also through partials; None
    if there is none."""
    if type(f) is functools.partial:
        by = _going_on(a, f.func, (*f.args, *args))
        return None if by is None else functools.partial(by, *f.args, **f.keywords)
    answer = answer_of(f)
    if answer is None or not is_answered(answer, a.frame.f_code, args):
        return None
    return answer.by


def _put_draw(a: Activation, k: int, f: Any, args: Sequence[Any]) -> None:
    """Replace a generator's method that the user's code calls by a function that records the
    draw."""
    generator = generator_drawn_from(a, f, args)
    if generator is not None:
        frames.replace(operand_at(a.stack, k), functools.partial(dispatch.draw, a.o, generator, f))
        a.o.drawing = generator


def _put_clock(a: Activation, k: int, f: Any) -> None:
    """Replace a clock by a function whose reading is an input of the tape."""
    a.o.drawing = f  # nothing else is recorded
    if not is_only_shown(a.frame):
        frames.replace(operand_at(a.stack, k), functools.partial(dispatch.clock, a.o, f))


_OF_MEMORY = (memoryview, bytes, bytearray, np.frombuffer)


def put_plain(
    a: Activation,
    places: Sequence[int],
    together: int | None,
    plain_of: Callable[[Any], Any],
    only: int | None = None,
) -> None:
    """Replace the operands at these places by plain values, if they have one, for code compiled by
    numba or Cython, which doesn't call `__array__`. Of the arguments in the tuple at `together`,
    replace `only` this one if given."""
    for k in places:
        plain = plain_of(a.top(k))
        if plain is not None:
            frames.replace(operand_at(a.stack, k), plain)
    if together is None:
        return
    args, named = a.top(together), a.top(0) if together else None
    if type(args) in (list, tuple):
        asked = [plain_of(x) if only in (None, k) else None for k, x in enumerate(args)]
        found = [x if plain is None else plain for x, plain in zip(args, asked, strict=True)]
        frames.replace(operand_at(a.stack, together), tuple(found))
    if type(named) is dict and only is None:
        new = {n: x if (plain := plain_of(x)) is None else plain for n, x in named.items()}
        frames.replace(operand_at(a.stack, 0), new)
