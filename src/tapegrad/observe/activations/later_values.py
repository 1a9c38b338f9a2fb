"""Later values: objects that each call of a derivative creates anew after its result, by repeating
the program's calls that create them. See `waiting/repeated_calls.py`."""

from __future__ import annotations

import _json
import functools
import io
import os
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegrad.core.named import own_attribute
from tapegrad.errors import ConversionError
from tapegrad.ir.tape import Source
from tapegrad.observe.activations.activation import Activation
from tapegrad.observe.activations.run_record import RunRecord
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.files import path_of
from tapegrad.observe.objects.inspection import found_in_class
from tapegrad.observe.objects.naming import name_of
from tapegrad.observe.objects.purity import (
    CONTAINERS,
    METHODS_OF,
    MODULES_IN_C,
    READERS,
    functions_in_c,
    is_file,
    is_pure,
    is_pythons_class,
    module_of,
)
from tapegrad.observe.program.source import at_line, at_source, is_users_path, user_source
from tapegrad.observe.values.texts import (
    SHOWING,
    Shown,
    is_to_show,
    may_hold,
    numbers_in,
    of_texts,
    that_are_shown,
)
from tapegrad.primitives.base import Value


class Text(str):
    """A text that each call of the derivative creates anew."""


@dataclass(eq=False)
class AtTheTime:
    """A traced value at one moment: its operand, and the value that the trace sees."""

    operand: Any
    value: Any
    aval: Any
    weak: bool
    is_array: bool


class Later:
    """A call `f(*args, **kwargs)` with its arguments at that time: traced values by their
    variables, later values by their calls. If it `has_effect`, each call of the derivative makes
    it, whether or not the result is stored. `draws` is set for calls of plotting packages."""

    __slots__ = ("args", "draws", "f", "has_effect", "kwargs", "number", "src", "word")

    def __init__(
        self, number: int, f: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self.number, self.f, self.args, self.kwargs = number, f, args, kwargs
        self.has_effect = self.draws = False
        self.word = name_of(f)
        self.src: Source | None = user_source()

    def getstate(self) -> None:
        """None: it draws from no generator, see `randomness.state_of`."""

    def again(self) -> Any:
        """The result of the call now, where it depends on clocks alone."""
        made: dict[Later, Any] = {}
        for call in sorted(calls_in([self]), key=lambda call: call.number):
            args, kwargs = _filled(call.args, made), _filled(call.kwargs, made)
            made[call] = call.f(*args, **kwargs)
        return made[self]


def calls_in(values: Sequence[Any]) -> set[Later]:
    """The repeated calls that values come from, directly and indirectly."""
    return {x for x in held_in(values) if isinstance(x, Later)}


def held_in(values: Sequence[Any]) -> set[Any]:
    """These calls, and the traced values that were passed to them."""
    found: set[Any] = set()
    todo = [*values]
    while todo:
        x = todo.pop()
        if isinstance(x, (Later, AtTheTime)) and x not in found:
            found.add(x)
            todo += [*x.args, *x.kwargs.values()] if isinstance(x, Later) else ()
        elif type(x) in (list, tuple, dict):
            todo += x.values() if type(x) is dict else x
    return found


def read_back(o: RunRecord) -> None:
    """Record a read that may return what the run has written before. The written values have no
    derivative any more: those passed to repeated calls, and those that texts were made of."""
    for trace, operand, src in o.sent:
        _end(o, trace, operand, f"what a traced value is written to{at_source(src)} is read again")
    for trace, guard in of_texts():
        _end(o, trace, guard.operand, f"{_A_TEXT}{at_source(guard.src)} may be read again")


def text_in_list(o: RunRecord, later: Later, text: str) -> None:
    """Record that a text is an item of a list that a repeated call returns. It isn't guarded, like
    a text that is shown."""
    for x in held_in([later]):
        if isinstance(x, AtTheTime):
            o.trace.shown.append(Shown(x.operand, x.value, text, later.src))


def pass_texts(a: Activation, f: Any, values: Sequence[Any], as_one: bool = False) -> None:
    """Record that texts are passed to code that may turn them into numbers: `float`, `eval`,
    `np.array`, another process, or a package's function that is one step (`as_one`). Their values
    have no derivative any more."""
    if not _holds_errors(f):
        read_error(a, values)
    o = a.o
    known, shown = of_texts(), that_are_shown()
    if not (known or shown) or (_keep_texts(f, values) and not as_one):
        return
    found = [*_texts_in(values)]
    unseen = any(isinstance(x, Iterator) and not is_file(type(x)) for x in values)
    for trace, guard in known:
        if unseen or any(may_hold(text, guard.expected.value) for text in found):
            of = f"{_A_TEXT}{at_source(guard.src)}"
            fact = f"{name_of(f)} may make {of} a number again"
            _end(o, trace, guard.operand, fact)
    numbers = set().union(*map(numbers_in, found)) if shown else set()
    for trace, told in shown if numbers else ():
        if told.may_be_among(numbers):
            o.reads.use_once(_A_TEXT)  # it has no guard
            fact = f"{name_of(f)} may make {_A_TEXT}{at_source(told.src)} a number again"
            _end(o, trace, told.operand, fact)


def read_error(a: Activation, values: Sequence[Any], name: str = "") -> None:
    """Record that code may read a traced value's text from an error among these values, or from the
    error's attribute `name`. The function is then traced at each call, unless the text is only
    shown again."""
    for x in parts_of(values) if that_are_shown() else ():
        is_read = isinstance(x, BaseException) and may_show(_held_by(x, name))
        if is_read and not is_to_show(a.frame, SHOWING):
            a.o.reads.use_once(_A_TEXT)


def _held_by(x: BaseException, name: str) -> list[Any]:
    """The contents of an error, or of an attribute of it. Nothing for a method, which is
    followed."""
    if name in ("", "__str__", "__repr__", "__reduce__"):
        return [*x.args, *vars(x).values()]
    in_class = found_in_class(type(x), name)
    is_data = type(in_class) in _IN_C or (in_class is None and name in vars(x))
    return [getattr(x, name)] if is_data else []


_IN_C = (types.MemberDescriptorType, types.GetSetDescriptorType)


def _holds_errors(f: Any) -> bool:
    """Whether a callable reads only an error's type, or stores the error, or is followed."""
    if isinstance(f, type):
        return issubclass(f, (type, BaseException, *CONTAINERS))
    if type(f) in (types.FunctionType, types.MethodType) or id(f) in _LOOKING_AT_TYPES:
        return True
    return type(f) is types.BuiltinMethodType and type(f.__self__) in CONTAINERS


_LOOKING_AT_TYPES = {*map(id, (isinstance, issubclass, callable, hasattr, id))}


def may_show(values: Sequence[Any]) -> bool:
    """Whether one of these values contains part of a text that shows a traced value."""
    shown = that_are_shown()
    pieces = {x for text in _texts_in(values) for x in _PIECE.findall(text)} if shown else ()
    return any(told.text is None or x in told.text for x in pieces for _, told in shown)


_PIECE = re.compile(r"\d+|inf|nan")


def _texts_in(values: Sequence[Any]) -> Iterator[str]:
    """The texts among values, in containers and arrays, and in objects that are read as files."""
    for x in parts_of(values):
        if isinstance(x, (io.StringIO, io.BytesIO)):
            x = "" if x.closed else x.getvalue()
        elif isinstance(x, np.ndarray) and x.dtype.kind in "SUO" and not isinstance(x, Value):
            x = " ".join(map(str, x.ravel()[:MAX_PARTS]))
        if isinstance(x, str):
            yield x
        elif isinstance(x, (bytes, bytearray)):
            yield x.decode("latin-1")


_A_TEXT = "the text of a traced value"


def _keep_texts(f: Any, values: Sequence[Any]) -> bool:
    """Whether a callable that is passed these values turns no text among them into a number,
    unseen. That holds for Python code, which is followed, and for code that only looks texts up,
    stores or shows them."""
    if f is isinstance or f is issubclass:
        return True
    return all(_keeps_texts(x) for x in (f, *values) if callable(x))


def _keeps_texts(f: Any) -> bool:
    kind: Any = type(f)
    if kind is types.MethodType:
        return _keeps_texts(f.__func__)
    if kind is types.FunctionType:
        file = f.__code__.co_filename
        return is_users_path(file) and f"{os.sep}pandas{os.sep}" not in file
    if isinstance(f, type):
        if issubclass(f, (str, bytes, BaseException, *CONTAINERS)) or f in _LOOKING:
            return True
        known = module_of(f) in ("_io", "itertools")
        return known or (is_pythons_class(f) and not issubclass(f, _NUMERIC))
    if (
        id(f) in functions_in_c()
        or id(f) in READERS
        or kind in (functools._lru_cache_wrapper, _ENCODER)
    ):
        return True
    of = own_attribute(f, "__objclass__") or own_attribute(f, "__self__")
    if isinstance(of, types.ModuleType):
        in_c = of.__name__ in MODULES_IN_C and of.__name__ not in _MAKING and is_pure(f)
        return in_c or f.__name__ in _OF_PATHS
    if of is None:
        call = kind.__call__
        return type(call) is types.FunctionType and _keeps_texts(call)
    of = of if isinstance(of, type) else type(of)
    if issubclass(of, _NUMERIC):
        return False
    return of in METHODS_OF or is_pythons_class(of) or module_of(of) in ("_io", "re", "_hashlib")


_NUMERIC = (int, float, complex, np.ndarray, np.generic)
_ENCODER = _json.make_encoder
_LOOKING = (type, object, super, enumerate, filter, map, reversed, slice, zip, _ENCODER)
_MAKING = ("math", "cmath", "_statistics", "_struct", "binascii", "zlib")  # make numbers, or bytes
_OF_PATHS = ("open", "stat", "lstat", "access", "listdir", "scandir", "readlink", "getcwd")


def _end(o: RunRecord, trace: Any, operand: Any, fact: str) -> None:
    """Forbid derivatives through a traced value; `fact` is the reason."""
    if (trace, operand) in o.ended:
        return
    o.ended.add((trace, operand))
    why = (
        f"{fact}{at_line()}, which carries no derivative. Compute with the value itself, or pass "
        "on tapegrad.stop_gradient(x) where no derivative is wanted"
    )
    if trace.alive:
        dispatch.end_derivative(trace, operand, why)
    else:
        o.refuse(ConversionError(why))


def _filled(x: Any, made: dict[Later, Any]) -> Any:
    """Arguments with the results of repeated calls filled in."""
    if isinstance(x, Later):
        return made[x]
    if type(x) in (list, tuple):
        return type(x)(_filled(y, made) for y in x)
    return {k: _filled(y, made) for k, y in x.items()} if type(x) is dict else x


# ---- repeated traces


def now_of(
    o: RunRecord, later: Later, f: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[[], Any]:
    """The function that makes the call in this trace. In a repeated trace, the first calls with an
    effect are already made, and their former results are returned. A file that was closed is opened
    to append. A call whose file has disappeared since, with a temporary folder for instance, is
    made again."""
    k, left = len(o.done), left_by([*args, *kwargs.values()])
    if later.has_effect and k < len(o.known):
        word, known, found = o.known[k]
        if word == later.word and known == left and o.redone.isdisjoint(left):
            if not (getattr(found, "closed", False) or word.endswith(("close", "__exit__"))):
                return lambda: found
            if not word.endswith("open"):
                return functools.partial(f, *args, **kwargs)
            mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
            args = [args[0], mode.replace("w", "a").replace("x", "a"), *args[2:]]
            kwargs = {name: x for name, x in kwargs.items() if name != "mode"}
        else:
            o.redone.update(left)
    return functools.partial(f, *args, **kwargs)


def left_by(values: Sequence[Any]) -> dict[str, bool]:
    """The files and folders that values name, and whether they exist. A call that writes to an open
    file names only that."""
    values = values[:1] if values and is_file(type(values[0])) else parts_of(values)
    named = [x for x in values if type(x) is not str or os.sep in x]
    return {path: os.path.exists(path) for path in filter(None, map(path_of, named))}


def parts_of(values: Sequence[Any]) -> list[Any]:
    """Arguments, and the contents of lists, tuples and dicts among them."""
    found: list[Any] = []
    for x in values:
        found.append(x)
        if type(x) in (list, tuple, dict) and len(found) < MAX_PARTS:
            found += parts_of([*(x.values() if type(x) is dict else x)])
    return found


MAX_PARTS = 10_000


def is_later(o: RunRecord, x: Any) -> bool:
    return id(x) in o.reads.anew


class Attribute:
    """A look-up of an attribute, by its name."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, x: Any) -> Any:
        return getattr(x, self.__name__)


class Method:
    """A call of a method, by its name: of another object at each call."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, self.__name__)(*args, **kwargs)


class Formatting:
    """The text that an f-string makes of a value: `{x!r:spec}` if the conversion is `repr`."""

    __name__ = __qualname__ = "an f-string"
    __module__ = ""

    def __init__(self, conversion: int) -> None:
        self.convert = (lambda x: x, str, repr, ascii)[conversion]

    def __call__(self, x: Any, spec: str = "") -> str:
        return format(self.convert(x), spec)


def joining(*texts: str) -> str:
    """The f-string of these parts."""
    return "".join(texts)
