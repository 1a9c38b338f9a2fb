"""Calls whose results aren't used for computing: each call of a derivative repeats them with its
own numbers.

    with open("log.txt", "a") as log:          a file is written to,
        log.write(f"{loss:.3f}")
    self.took = datetime.now() - began         or a date is stored, and values derived from it

The trace makes them where the program does. A later call makes them after its result, in order and
with its own numbers. The result of one is a *later value*, known by its identity. Calls of library
code with a later value are repeated. After any other use, as in a comparison, the tape isn't kept.
"""

from __future__ import annotations

import functools
import gc
import io
import operator
import pprint
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.installed import is_installed
from tapegrad.core.named import own_attribute
from tapegrad.core.tables import is_pandas_object
from tapegrad.errors import ConversionError
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.error_handlers import is_caught
from tapegrad.observe.activations.later_values import (
    AtTheTime,
    Attribute,
    Formatting,
    Later,
    Method,
    Text,
    calls_in,
    held_in,
    is_later,
    joining,
    left_by,
    now_of,
    parts_of,
    read_back,
    read_error,
    text_in_list,
)
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.guards.descriptions import is_source, stays
from tapegrad.observe.guards.queried import OF_FILES, OF_PLOTS, OF_STREAMS, OF_TIME, is_date
from tapegrad.observe.guards.snapshots import Holding
from tapegrad.observe.guards.uses import Then
from tapegrad.observe.objects.files import is_path, may_write, writes
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.objects.progress_bars import is_screen, is_unused, plots
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    DISPATCHER,
    INERT,
    PLAIN_TYPES,
    is_file,
    is_pure,
    is_users_file,
)
from tapegrad.observe.operands.replacement import put, tells
from tapegrad.observe.packages.opaque import FOLLOWED, generators_in
from tapegrad.observe.program import frames
from tapegrad.observe.program.frames import MISSING, operand_at
from tapegrad.observe.program.source import TAPEGRAD, at_line, user_source
from tapegrad.observe.values.texts import (
    SHOWING,
    WRITING,
    is_certain,
    is_shown_by,
    is_to_show,
    refusal,
)
from tapegrad.primitives.base import Value

# ---- instructions


def call(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any], at: int) -> Any:
    """The recorder of a call, the operand number `at`, if each call of the derivative repeats it;
    else `FOLLOWED`."""
    held = f.__self__ if isinstance(f, _BOUND) else None
    draws = plots(type(held)) or plots(f) or (bool(args) and plots(type(args[0])))
    has_name = isinstance(f, _NAMED) or type(f).__name__ == "cython_function_or_method"
    if not (draws or a.o.reads.anew or (has_name and may_begin(f.__name__))):
        return FOLLOWED
    if held is not None and not isinstance(held, (types.ModuleType, type)):
        args, f = [held, *args], _method(f)
    values = [*args, *kwargs.values()]
    goes_on = any(is_later(a.o, x) for x in parts_of(values))
    begins = _draws(a, f, values) if draws else _begins(a, f, args, kwargs)
    if not (goes_on or begins):
        return FOLLOWED
    library = _is_librarys(a.o, type(args[0]) if type(f) is Method else f)
    if goes_on and (tells(f) or is_screen(values[0])) and "file" not in kwargs:
        put(a, f, at, [])  # it is shown
        return None
    if not (library or (is_later(a.o, values[0]) and _is_method(f))):
        return FOLLOWED
    made = made_later(a, f, args, kwargs)
    if made is None:
        for x in filter(functools.partial(is_later, a.o), parts_of(values)):
            a.o.kind(x)
        alone = any(map(_is_in_memory, values)) or generators_in(values, packages=True) == []
        return _drawn(a, f) if draws and alone else FOLLOWED
    later, given, named = made
    later.draws = draws
    later.has_effect = later.has_effect or later.draws
    now = now_of(a.o, later, f, given, named)
    frames.replace(operand_at(a.stack, at), lambda *_, **__: now())
    return _noted(a, later, values)


def _drawn(a: Activation, f: Any) -> Then:
    """The recorder of a plotting call that can't be repeated, with plain arguments. It isn't
    followed, since C code that draws takes no traced arrays."""
    a.o.reads.use_once(name_of(f), OF_PLOTS)
    a.is_opaque = True

    def then(result: Any) -> None:
        a.is_opaque = False

    return then


def instruction(a: Activation, f: Any, args: Sequence[Any], begins: bool = False) -> Any:
    """Record an instruction that is equivalent to `f(*args)` of the topmost operands."""
    if not (begins or (a.o.reads.anew and any(is_later(a.o, x) for x in parts_of(args)))):
        return FOLLOWED
    made = made_later(a, f, args, {})
    if made is None:
        return FOLLOWED
    later, given, _ = made
    for k, (x, now) in enumerate(zip(reversed(args), reversed(given), strict=True)):
        if x is not now:
            frames.replace(operand_at(a.stack, k), now)
    return _noted(a, later, args)


def attribute(a: Activation, x: Any, name: str) -> Any:
    """Record the look-up of a later value's attribute: a method, which is called next, or another
    one."""
    if not is_later(a.o, x):
        read_error(a, [x], name)
        return FOLLOWED
    found = getattr(type(x), name, None)
    if callable(found):
        return None
    return instruction(a, Attribute(name), [x])


def operation(a: Activation, x: Any, y: Any) -> Any:
    """Record an operator on two values."""
    makes_text = type(x) is str and any(_is_number_to_write(a, v) for v in parts_of([y]))
    if not (makes_text or is_later(a.o, x) or is_later(a.o, y)):
        read_error(a, [y])
        return FOLLOWED
    f = frames.operator_of(a.frame, x)
    return FOLLOWED if f is None else instruction(a, f, [x, y], makes_text)


def item(a: Activation, x: Any, key: Any) -> Any:
    """Record the look-up of a later value's item, by the topmost operands."""
    return instruction(a, operator.getitem, [x, key]) if is_later(a.o, x) else FOLLOWED


def set_item(a: Activation) -> Any:
    """Record `x[key] = value` with the topmost operands."""
    value, x, key = a.top(2), a.top(1), a.top()
    return instruction(a, _set, [value, x, key]) if is_later(a.o, x) else FOLLOWED


def _set(value: Any, x: Any, key: Any) -> None:
    x[key] = value


def enter_with(a: Activation, x: Any) -> Any:
    """Record that `with x` begins."""
    made = made_later(a, _entered, [x], {}) if is_later(a.o, x) else None
    if made is None:
        return FOLLOWED
    a.o.managed.add((id(a.frame.f_code), a.frame.f_lasti))
    manager = _Manager(x, now_of(a.o, made[0], _entered, [x], {}))
    a.o.later(manager, *a.o.reads.anew[id(x)][1:], "", None)
    frames.replace(operand_at(a.stack, 0), manager)
    return _noted(a, made[0], [x])


def _entered(x: Any) -> Any:
    return type(x).__enter__(x)


class _Manager:
    """The replacement of an object that a `with` statement enters by the function `enter`."""

    def __init__(self, x: Any, enter: Callable[[], Any]) -> None:
        self.x, self.enter = x, enter

    def __enter__(self) -> Any:
        return self.enter()

    def __exit__(self, *error: Any) -> Any:
        return type(self.x).__exit__(self.x, *error)


def formatted(a: Activation, depth: int, conversion: int) -> Any:
    """Record that the text of an operand is about to be made."""
    x = a.top(depth)
    begins = _is_number_to_write(a, x)
    read_error(a, [x])
    return instruction(a, Formatting(conversion), [x, a.top()][: 1 + depth], begins)


def joined(a: Activation, count: int) -> Any:
    """Record that a text is joined from `count` operands."""
    found = instruction(a, joining, [a.top(count - 1 - k) for k in range(count)])
    return None if found is FOLLOWED else found


def _is_number_to_write(a: Activation, x: Any) -> bool:
    """Whether a text of this traced value is made for a file or the like, and not to be shown. If
    the text isn't for a file, values that can be guarded are."""
    if not isinstance(x, Value) or not _may(a) or is_to_show(a.frame, SHOWING - WRITING):
        return False
    return not is_certain(x) or is_shown_by(a.frame, WRITING)


def _is_number_in_text(a: Activation, x: Any) -> bool:
    """Whether a text of this traced value is made, shown or not, without a guard."""
    return isinstance(x, Value) and _may(a) and (not is_certain(x) or is_to_show(a.frame, SHOWING))


# ---- which calls


def _begins(a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call with plain arguments is one that each call of the derivative repeats."""
    if _makes_text(f):
        begins = _is_number_to_write if any(f is x for x in _TEXTS) else _is_number_in_text
        return any(begins(a, x) for x in parts_of([*args, *kwargs.values()]))
    if is_date(f):
        of = args[0] if args else own_attribute(f, "__self__")
        return isinstance(of, type) or isinstance(own_attribute(f, "__self__"), type)
    return writes(f, args, kwargs, a.frame)


_TEXTS: tuple[Any, ...] = (str, repr, format, str.format, str.join, pprint.pformat)
_TEXTS += (np.array2string, np.array_repr, np.array_str)
# They take plain numbers alone, also for texts that are only shown, as json.dumps does.
_TEXTS_OF_PLAIN: tuple[Any, ...] = (np.format_float_positional, np.format_float_scientific)


def _makes_text(f: Any) -> bool:
    dumps = getattr(sys.modules.get("json"), "dumps", ...)
    return any(f is x for x in (dumps, *_TEXTS, *_TEXTS_OF_PLAIN))


def _draws(a: Activation, f: Any, values: Sequence[Any]) -> bool:
    """Whether a call of a plotting package is repeated: it makes a figure, draws a traced value,
    has an unused result, or something was drawn before."""
    module, name = str(own_attribute(f, "__module__", "")), str(own_attribute(f, "__name__", ""))
    if module == "matplotlib.pyplot" and not name.startswith("get_"):
        return True
    objects = any(plots(type(x)) for x in values)
    if (objects and any(call.draws for call in a.o.reads.effects)) or is_unused(a.frame):
        return True
    return any(isinstance(x, Value) and not dispatch.is_made(x) for x in parts_of(values))


_BOUND = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
# Other callables may create a name on access.
_NAMED = (
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, type, DISPATCHER),
    *(types.MethodDescriptorType, Method),
)


@functools.lru_cache(maxsize=8192)
def may_begin(name: str) -> bool:
    """Whether a function of this name may be one whose calls are repeated."""
    return name in _BEGINNING or may_write(name)


_BEGINNING = {"now", "today", "utcnow", "dumps"} | {f.__name__ for f in _TEXTS + _TEXTS_OF_PLAIN}


def _is_librarys(o: RunRecord, f: Any) -> bool:
    """Whether a callable is a library's, and does more than read or store its arguments."""
    if _makes_text(f) or f is print:
        return True
    if is_pure(f) or own_attribute(f, "__module__") == "builtins":  # `eval`, for instance
        return False
    function = f.__func__ if type(f) is types.MethodType else f
    python = type(function) is types.FunctionType
    file = function.__code__.co_filename if python else _file_of(f)
    return not (is_users_file(file, o.home) or str(file).startswith(TAPEGRAD))


def _file_of(f: Any) -> str | None:
    """The file of a class, or of a function in C."""
    return getattr(sys.modules.get(str(own_attribute(f, "__module__"))), "__file__", None)


def _is_method(f: Any) -> bool:
    """Whether this is a method in C that is passed its object as first argument."""
    return type(f) is Method or isinstance(f, types.MethodDescriptorType)


def _method(f: Any) -> Any:
    """A method of a library's object as a function of any object; for containers and texts, the
    class's function."""
    kind: Any = type(f.__self__)
    if kind in CONTAINERS or kind in PLAIN_TYPES:
        return getattr(kind, f.__name__, f)
    return Method(f.__name__)


def _may(a: Activation) -> bool:
    """Whether this is the program's own run, possibly inside Python's library."""
    o = a.o
    own = a.users or not is_installed(a.frame.f_code.co_filename)
    return o.again and o.trace is not None and o.apart is None and o.library is None and own


def is_once(a: Activation) -> bool:
    """Whether later calls couldn't repeat a call as this run makes it: in rounds of a loop, where
    the trace is repeated then, and in inner derivatives."""
    trace = a.o.trace
    return not trace.is_innermost or trace.inside is not None or a.turning is not None


# ---- notes


def _noted(a: Activation, later: Later, values: Sequence[Any]) -> Then:
    """The recorder of a repeated call, which the trace makes here."""
    o = a.o
    if o.effects is not None:
        o.effects.changed()
    kept = [x for x in values if not (INERT[type(x)] or is_later(o, x) or plots(type(x)))]
    before = Holding(kept)
    unused, begun = is_unused(a.frame), later.has_effect
    caught, once = begun and is_caught(a), is_once(a)
    o.quiet = True

    def then(result: Any) -> None:
        o.quiet = False
        if begun and result is not MISSING:
            o.done.append((later.word, left_by(values), result))
        if result is MISSING or caught or once or not before.is_now():
            o.reads.use_once(later.word, _advice(later))
        kept = _keep(a, later, result, unused)
        later.has_effect = later.has_effect or result is None or unused
        if later.has_effect:
            o.reads.effects.append(later)
        if not kept:
            o.reads.use_once(later.word, _advice(later))

    return then


def _keep(a: Activation, later: Later, result: Any, unused: bool, is_part: bool = False) -> bool:
    """Record the identity of the result; `is_part` if it is an item of one, which can't be
    replaced. Returns whether it is known how later calls create it."""
    o, kind = a.o, type(result)
    if result is None or unused or result is MISSING or is_later(o, result):
        return True
    plain = INERT[kind] or kind in CONTAINERS or isinstance(result, np.ndarray)
    written = later.has_effect and not later.draws and type(later.f) is not Attribute
    if written and plain and kind not in (int, bool):
        read_back(o)
    if kind is str:
        text = Text(result)
        frames.replace(a.stack, text)
        o.later(text, later, _advice(later), _refusal_of(later))
        return True
    is_number = kind in (int, float) and not is_part
    if is_number and not later.has_effect and _refusal_of(later) is None:
        frames.replace(a.stack, dispatch.clock(o, later.again, later))
        return True
    if kind in (list, tuple) or (kind is np.ndarray and result.dtype.hasobject):
        kept = [_keep_part(a, later, k, x) for k, x in enumerate(result)]
        return all(kept)
    if plain or kind is types.FunctionType:
        drawn = [call for call in o.reads.effects if later.draws and call.draws]
        errors = (_refusal_of(call) for call in (later, *drawn) if kind is not int)
        if (error := next(filter(None, errors), None)) is not None:
            o.refuse(error)  # it has no derivative
        return False
    o.later(result, later, _advice(later), _refusal_of(later))
    return True


def _keep_part(a: Activation, later: Later, k: int, x: Any) -> bool:
    """Record item number `k` of the result in the same way."""
    a.o.laters += 1
    part = Later(a.o.laters, operator.getitem, [later, k], {})
    part.has_effect, part.draws = later.has_effect, later.draws
    if type(x) is str:
        text_in_list(a.o, later, x)
        return False
    return _keep(a, part, x, unused=False, is_part=True)


def _advice(later: Later) -> str:
    if later.draws:
        return OF_PLOTS
    if later.has_effect:
        return OF_FILES
    return OF_TIME if any(is_date(call.f) for call in calls_in([later])) else OF_STREAMS


def _refusal_of(later: Later) -> ConversionError | None:
    """The error for another use of a call's result that depends on a traced value; None if there is
    none."""
    found = next((x for x in held_in([later]) if isinstance(x, AtTheTime)), None)
    if found is None or not (later.has_effect or later.draws):
        return None if found is None else refusal(str(found.aval))
    return ConversionError(
        f"what {later.word} gives is computed with{at_line()}. It carries no derivative, though a "
        f"traced value ({found.aval}) was passed. Compute with that value itself"
    )


def made_later(
    a: Activation, f: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Later, list[Any], dict[str, Any]] | None:
    """The call as each call of the derivative repeats it, and its present arguments; None if that
    isn't possible."""
    o = a.o
    if not _may(a):
        return None
    if any(is_source(x) for x in (*args, *kwargs.values())):
        return None
    parts = parts_of([*args, *kwargs.values()])
    if any(map(_is_in_memory, parts)):
        return None
    if generators_in([x for x in parts if not _is_known(o, x)], packages=True) != []:
        return None
    pairs = [_then_and_now(o, x) for x in args]
    named = {name: _then_and_now(o, x) for name, x in kwargs.items()}
    if any(pair is None for pair in (*pairs, *named.values())):
        return None
    given = [now for _, now in pairs]  # type: ignore[misc]
    words = {name: now for name, (_, now) in named.items()}  # type: ignore[misc]
    o.laters += 1
    later = Later(
        o.laters,
        f,
        [then for then, _ in pairs],  # type: ignore[misc]
        {name: then for name, (then, _) in named.items()},  # type: ignore[misc]
    )
    before = calls_in([*later.args, *later.kwargs.values()])
    later.has_effect = any(x.has_effect for x in before) or writes(f, args, kwargs, a.frame)
    return later, given, words


def _is_in_memory(x: Any) -> bool:
    """Whether this is a stream in memory, or writes to one, as a writer of `csv` does."""
    bound = [m.__self__ for m in gc.get_referents(x) if isinstance(m, types.BuiltinMethodType)]
    return any(isinstance(stream, (io.StringIO, io.BytesIO)) for stream in (x, *bound))


def _is_known(o: RunRecord, x: Any) -> bool:
    """Whether it is known how each call of the derivative creates this object, or its parts."""
    if type(x) in (list, tuple, dict) and o.reads.place(x) is None:
        return True
    there = o.reads.place(x) is not None and (is_file(type(x)) or plots(type(x)))
    return isinstance(x, Value) or is_later(o, x) or is_path(x) or stays(x) or there


def _then_and_now(o: RunRecord, x: Any) -> tuple[Any, Any] | None:
    """An argument as later calls create it, and as it is now; None if later calls can't create
    it."""
    kind: Any = type(x)
    if is_later(o, x):
        return o.reads.anew[id(x)][1], str(x) if kind is Text else x
    if isinstance(x, Value):
        traced: Any = x
        o.sent.append((traced._trace, traced._read()[0], user_source()))
        return dispatch.at_the_time(o.trace, x)
    if is_pandas_object(x) and o.reads.place(x) is None:
        return x.copy(), x
    if kind not in (list, tuple, dict) or o.reads.place(x) is not None:
        return x, x
    parts = [_then_and_now(o, y) for y in (x.values() if kind is dict else x)]
    if any(part is None for part in parts):
        return None
    then, now = [p[0] for p in parts], [p[1] for p in parts]  # type: ignore[index]
    same = all(p is y for p, y in zip(now, x.values() if kind is dict else x, strict=True))
    make = (lambda held: dict(zip(x, held, strict=True))) if kind is dict else kind
    return make(then), x if same else make(now)
