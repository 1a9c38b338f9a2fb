"""What stands for a function of another module while a program is traced.

NumPy hands a traced argument on to us; `np.zeros(n)`, `np.array([a, b])` and `math.exp(x)` don't.
So there is a table: a module, a name in it, and what answers the user's calls of that. A call is
answered where it is made. Of a run that is observed each call is seen before it is made, and ours
is put in the place of what is called (`observe.instructions`): no name is changed, whichever way
the program came by the function. Where a run isn't observed the names are (`swapping.py`).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, TypeVar

import numpy as np

from tapegrad.core import late
from tapegrad.core.tables import is_pandas_file
from tapegrad.core.values import Value
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.program import frames
from tapegrad.observe.program.heights import heights_of
from tapegrad.observe.program.source import is_users

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Answer:
    """A row: `by` answers the user's calls of `original`, the attribute `name` of `module`; with
    `lists`, only of those that are passed a list or tuple, with `traced` a traced value, a list or
    an object that may say it is one, and with `when` those of which that says so, given the
    arguments; functions that are handed on, with arguments that aren't known yet, are answered too,
    unless they are answered `here` alone. `looked_up` is what stands for an object that isn't
    called but indexed."""

    module: ModuleType | type
    name: str
    original: Any
    by: Any
    lists: bool = False
    looked_up: bool = False
    traced: bool = False
    when: Callable[[Sequence[Any]], bool] | None = None
    here: bool = False


_Test = Callable[[Sequence[Any]], bool]
UNKNOWN: list[Any] = []  # among arguments: others will be passed, too

_rows: dict[int, Answer] = {}  # by the id of the original, which is held
_late: dict[str, list[Callable[[], object]]] = {}  # what adds the rows of a module, by its name
_modules = 0  # so many were loaded when it was last looked for these
# For calls of a type's instances: what answers, of whom with lists, and of which arguments
_of_kinds: dict[type, tuple[Callable[..., Any], bool, _Test | None]] = {}
_of_operands: dict[type, tuple[Callable[[Any], Any], _Test]] = {}
_operands: dict[type, Any] = {}  # the same, by the very classes that were met
_classes: set[type] = set()  # of which methods have rows
_declared: list[None] = []  # one for each time that one was added


def declare(
    module: ModuleType | type,
    name: str,
    by: Any,
    lists: bool = False,
    looked_up: bool = False,
    traced: bool = False,
    when: Callable[[Sequence[Any]], bool] | None = None,
    here: bool = False,
) -> None:
    """Add a row to the table, in the place of one for the same."""
    original = original_of(getattr(module, name))  # it may be swapped just now
    original = original.__func__ if type(original) is MethodType else original  # of the class
    if type(original) is FunctionType and isinstance(module, type):
        by.notes = (*getattr(by, "notes", ()), module)  # it notes what it reads of such an object
    _declared.append(None)
    if isinstance(module, type):
        _classes.add(module)
    _rows[id(original)] = Answer(module, name, original, by, lists, looked_up, traced, when, here)


def declare_late(module: str, load: Callable[[], object]) -> None:
    """`load` declares the rows of a module, once a program has imported that: it isn't imported for
    them."""
    _late.setdefault(module, []).append(load)


def look_for_modules() -> None:
    """Add the rows of the modules that were imported since this was last called."""
    global _modules
    count = len(sys.modules)
    if count == _modules:
        return
    for name, loads in [*_late.items()]:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None and not getattr(spec, "_initializing", False):
            with late.no_forks():  # whose children would wait for what is half imported
                for load in loads:
                    load()
            _late.pop(name, None)
    _modules = count


def declare_calls(
    kind: type, by: Callable[..., Any], lists: bool = False, when: _Test | None = None
) -> None:
    """`by(x, *args)` answers the user's calls `x(*args)` of what is of this type, where a run is
    observed; with `lists` and `when` as above."""
    _of_kinds[kind] = by, lists, when


def declare_operands(kind: type, by: Callable[[Any], Any], when: _Test) -> None:
    """`by(x)` stands for an operand `x` of this class or one below it, where `when` says so, given
    the other operand, and a run is observed. A class whose operators are written in Python has rows
    for these, too, for runs that aren't."""
    _of_operands[kind] = by, when
    _operands.clear()


def operand_of(x: Any) -> tuple[Callable[[Any], Any], _Test] | None:
    """What stands for an operand, and when."""
    if len(sys.modules) != _modules:
        look_for_modules()
    kind = type(x)
    if kind not in _operands:
        found = [row for known, row in _of_operands.items() if issubclass(kind, known)]
        _operands[kind] = found[0] if found else None
    return _operands[kind]


def while_traced(module: ModuleType, name: str) -> Callable[[F], F]:
    """Declare what answers calls of `module.name` while a function is traced.

        @tapegrad.while_traced(scipy.special, "expit")
        def expit(x):
            return 1 / (1 + np.exp(-x))

    Parameters
    ----------
    module : the module.
    name : the name of a function there.

    Returns
    -------
    A decorator. What it is applied to is called in the place of `module.name` where the traced
    program calls that, and nowhere else: outside of a trace, in other threads, and in the code of
    NumPy and SciPy, `module.name` stays what it is. The answer is traced as the program's own code
    is, and may itself call `module.name`.

    Raises
    ------
    TypeError : `module` is not a module.
    AttributeError : it has no such name.
    """
    if not isinstance(module, ModuleType):
        raise TypeError(f"while_traced: {module!r} is not a module")
    if not hasattr(module, name):
        raise AttributeError(f"while_traced: module {module.__name__!r} has no attribute {name!r}")

    def declared(function: F) -> F:
        declare(module, name, function)
        return function

    return declared


def version() -> int:
    """How often the table was added to."""
    look_for_modules()
    return len(_declared)


def rows() -> list[Answer]:
    return list(_rows.values())


class _Beside(threading.local):
    rows: Mapping[int, Answer] = {}  # in the place of the table's, by the id of the original


_beside = _Beside()


@contextmanager
def beside(rows: Iterable[Answer]) -> Iterator[None]:
    """In here, and in this thread, these rows are in the place of those of the table."""
    before, _beside.rows = _beside.rows, {id(row.original): row for row in rows}
    try:
        yield
    finally:
        _beside.rows = before


def row_of(x: Any) -> Answer | None:
    """The row that is about this very object, or a part of a class, if there is one."""
    return _rows.get(id(x))


def answer_of(x: Any) -> Answer | None:
    """The row for what a program is about to call, if there is one."""
    if len(sys.modules) != _modules:
        look_for_modules()
    if _beside.rows and id(x) in _beside.rows:
        return _beside.rows[id(x)]
    kind: Any = type(x)
    if kind is MethodType:
        row = _rows.get(id(x.__func__))
        if row is not None:
            return replace(row, original=x, by=functools.partial(row.by, x.__self__))
        return None
    row = _rows.get(id(x))
    if kind in _METHODS and type(x.__self__) in _classes:  # a method in C
        row = _rows.get(id(getattr(type(x.__self__), x.__name__)))
        if row is None:
            return None
        own, test = x.__self__, row.when
        when = None if test is None else lambda args: test((own, *args))
        return replace(row, original=x, by=functools.partial(row.by, own), when=when)
    if row is None and isinstance(x, type) and issubclass(x, np.ndarray):
        by = dispatch.made_of(x)
        return None if by is None else Answer(x, "__call__", x, by)
    if row is None and kind in _of_kinds:
        by, lists, when = _of_kinds[kind]
        return Answer(kind, "__call__", x, functools.partial(by, x), lists, when=when)
    if row is None and type(call := getattr(kind, "__call__", None)) is FunctionType:  # noqa: B004
        row = _rows.get(id(call))
        return None if row is None else replace(row, original=x, by=functools.partial(row.by, x))
    return row


_METHODS = (BuiltinFunctionType, MethodWrapperType)


def is_answered(answer: Answer, code: CodeType, args: Sequence[Any]) -> bool:
    """Whether a call that this code makes is answered: it is the user's, and a trace is running."""
    if dispatch.trace() is None or not is_users(code):
        return False
    if code.co_name == "__array__" and not telling.now:
        return False  # NumPy takes what it returns for a plain array
    if is_pandas_file(code.co_filename):
        return False  # its blocks hold plain arrays alone
    if answer.when is None and not answer.lists and not answer.traced:
        return getattr(answer.by, "__code__", None) is not code  # it calls what it stands for
    return _is_meant(answer, args)


def _is_meant(answer: Answer, args: Sequence[Any]) -> bool:
    if answer.when is not None:
        return answer.when(args) or (not answer.here and any(x is UNKNOWN for x in args))
    if answer.lists or answer.traced:
        lists = any(isinstance(x, (list, tuple, deque)) or tells_itself(x) for x in args)
        return lists or (answer.traced and any(isinstance(x, Value) or says(x) for x in args))
    return True


class _Telling(threading.local):
    now = False  # whether tapegrad, and not NumPy, has called an object's `__array__`


telling = _Telling()
_PROTOCOLS = ("__array_function__", "__array_ufunc__")


def tells_itself(x: Any) -> bool:
    """Whether an object makes an array of itself by Python code, which can be followed. A class
    that NumPy's functions turn to says itself what they come to."""
    kind: Any = type(x)
    own = getattr(kind, "__array__", None)
    return type(own) is FunctionType and not any(hasattr(kind, name) for name in _PROTOCOLS)


def says(x: Any, names: Sequence[str] = ("__float__", "__complex__")) -> str:
    """By which method a class written in Python says which number an object is; empty if by none.
    That number may be traced, and code in C takes none but plain ones."""
    return next((k for k in names if type(getattr(type(x), k, None)) is FunctionType), "")


def to_be_called(f: Any, args: Sequence[Any]) -> Any:
    """What is called for `f(*args)` where no code of the user's makes the call, as in
    `grad(scipy.special.logsumexp)`."""
    if type(f) is functools.partial:
        inner = to_be_called(f.func, (*f.args, *args))
        return f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
    answer = answer_of(f)
    return f if answer is None or not _is_meant(answer, args) else answer.by


def as_called(f: Any) -> Callable[..., Any]:
    """A function that the user passes, for ours to call as the user's code would."""

    def called(*args: Any, **kwargs: Any) -> Any:
        meant = to_be_called(original_of(f), (*args, *kwargs.values()))
        dispatch.root(meant)  # a library's own, too
        return meant(*args, **kwargs)

    return called


def compiled_as_called(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a function that numba compiled; any other as it is."""
    if not type(f).__module__.startswith("numba."):
        return f
    return functools.wraps(f, updated=())(as_called(f))


class Swapped:
    # Stands for what a row is about in its module. The user's calls in a trace are answered; all
    # others get the original, at the cost of one look.

    __slots__ = ("__weakref__", "answer")

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        answer = self.answer
        given = (*args, *kwargs.values())
        if dispatch.trace() is not None and self._is_called(sys._getframe(1), given):
            return answer.by(*args, **kwargs)
        return answer.original(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        answer = self.answer
        if dispatch.trace() is not None and self._is_called(sys._getframe(1), ()):
            return answer.by[key]
        return answer.original[key]

    def _is_called(self, frame: FrameType, args: Sequence[Any]) -> bool:
        """Whether it is the user's code that calls this. Code in C, which has no frame of its own,
        may as well: a generator's `rng.normal` calls `np.empty`, and takes for granted what comes
        of it. So it must be among the operands of the instruction that runs."""
        code = frame.f_code
        if not is_answered(self.answer, code, args) or not frames.is_described():
            return False
        if getattr(frame.f_globals.get("__spec__"), "_initializing", False):
            return False  # what a module holds once it is imported is plain
        heights, at = heights_of(code), frame.f_lasti >> 1
        if heights is None:
            return False
        top = frames.address_of(frame) + frames.top_of(heights[at])
        count = code.co_code[2 * at + 1] + 2
        return any(frames.operand(top, k) is self for k in range(min(count, heights[at])))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.answer.original, name)

    @property
    def __doc__(self) -> Any:  # type: ignore[override] # numpy.ma looks into it when it is imported
        return self.answer.original.__doc__

    @property
    def _numba_type_(self) -> Any:
        """The original's, for a function that numba compiles meanwhile."""
        target: Any = sys.modules["numba.core.registry"]
        return target.cpu_target.typing_context.resolve_value_type(self.answer.original)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self.answer.original)

    def __subclasscheck__(self, kind: Any) -> bool:
        return issubclass(kind, self.answer.original)

    def __mro_entries__(self, bases: Any) -> Any:
        return (self.answer.original,)

    def __repr__(self) -> str:
        return repr(self.answer.original)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.answer.original

    def __hash__(self) -> int:
        return hash(self.answer.original)

    def __reduce__(self) -> Any:
        return getattr, (self.answer.module, self.answer.name)

    def __dir__(self) -> list[str]:
        return dir(self.answer.original)


def _method(row: Answer) -> Any:
    """The same for a method of a class written in Python, which has to bind as a function does.
    Nothing in C calls it and takes for granted what comes of it."""
    original = row.original

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        if dispatch.trace() is not None:
            given = (*args, *kwargs.values())
            if is_answered(row, sys._getframe(1).f_code, given):
                return row.by(*args, **kwargs)
        return original(*args, **kwargs)

    called.answer = row  # type: ignore[attr-defined]
    return called


_stand_ins: dict[int, Any] = {}  # by the id of a row, which they hold


def stand_in(row: Answer) -> Any:
    """What stands for a row's original where names are swapped."""
    made = _method if isinstance(row.module, type) else Swapped
    return _stand_ins.get(id(row)) or _stand_ins.setdefault(id(row), made(row))


def answered_by(x: Any) -> Answer | None:
    """The row of what stands for something, if `x` does."""
    if type(x) is Swapped:
        return x.answer
    known = vars(x).get("answer") if type(x) is FunctionType else None
    return known if type(known) is Answer else None


def original_of(x: Any) -> Any:
    """What `x` stands for, if it is swapped; else itself."""
    row = answered_by(x)
    return x if row is None else row.original
