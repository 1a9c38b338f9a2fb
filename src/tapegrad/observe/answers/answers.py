"""The table of answers: replacements of other modules' functions in a traced program.

NumPy dispatches a call with a traced argument to us, but not `np.zeros(n)`, `np.array([a, b])` or
`math.exp(x)`. So there is a table of rows: a module, a name in it, and the answer, a function that
is called instead. In an observed run, each call is seen before it is made, and the answer replaces
the function on the frame's stack (`observe.instructions`). No name changes, whichever way the
program came by the function. In a run that isn't observed, names are swapped (`swapping.py`).
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
from tapegrad.observe.program.source import is_users
from tapegrad.observe.program.stack_heights import heights_of

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Answer:
    """One row of the table: `by` answers the user's calls of `original`, the attribute `name` of
    `module`.

    It answers only calls with a list or tuple if `lists` is set; with a traced value, a list, or an
    object that may convert itself to one, if `traced` is set; and calls for whose arguments `when`
    is true. A function that is passed on, whose arguments aren't known yet, is replaced too, unless
    it is `here`. If `looked_up`, the object is indexed, not called.
    """

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
UNKNOWN: list[Any] = []  # an argument that isn't known yet

_rows: dict[int, Answer] = {}  # by the id of the original, which the row keeps alive
_late: dict[str, list[Callable[[], object]]] = {}  # functions that add a module's rows, by its name
_modules = 0  # the number of loaded modules at the last check
# Answers to calls of a type's instances, whether they need lists, and the test of arguments.
_of_kinds: dict[type, tuple[Callable[..., Any], bool, _Test | None]] = {}
_of_operands: dict[type, tuple[Callable[[Any], Any], _Test]] = {}
_operands: dict[type, Any] = {}  # the same, by the exact classes that were met
_classes: set[type] = set()  # classes whose methods have rows
_declared: list[None] = []  # one entry per declaration


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
    """Add a row to the table, or replace the row of the same function."""
    original = original_of(getattr(module, name))  # it may be swapped at this moment
    original = original.__func__ if type(original) is MethodType else original  # of the class
    if type(original) is FunctionType and isinstance(module, type):
        by.notes = (*getattr(by, "notes", ()), module)  # it records its reads itself
    _declared.append(None)
    if isinstance(module, type):
        _classes.add(module)
    _rows[id(original)] = Answer(module, name, original, by, lists, looked_up, traced, when, here)


def declare_late(module: str, load: Callable[[], object]) -> None:
    """Have `load` declare the rows of a module once a program has imported it."""
    _late.setdefault(module, []).append(load)


def look_for_modules() -> None:
    """Add the rows of the modules that were imported since the last call."""
    global _modules
    count = len(sys.modules)
    if count == _modules:
        return
    for name, loads in [*_late.items()]:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None and not getattr(spec, "_initializing", False):
            with late.no_forks():  # a child would wait for the half-imported module
                for load in loads:
                    load()
            _late.pop(name, None)
    _modules = count


def declare_calls(
    kind: type, by: Callable[..., Any], lists: bool = False, when: _Test | None = None
) -> None:
    """Answer calls `x(*args)` of instances of `kind` by `by(x, *args)`, in observed runs; `lists`
    and `when` as in `Answer`."""
    _of_kinds[kind] = by, lists, when


def declare_operands(kind: type, by: Callable[[Any], Any], when: _Test) -> None:
    """Replace an operand `x` of this class or a subclass by `by(x)` in observed runs, where `when`
    is true for the other operand. If the class's operators are written in Python, rows for these
    cover runs that aren't observed."""
    _of_operands[kind] = by, when
    _operands.clear()


def operand_of(x: Any) -> tuple[Callable[[Any], Any], _Test] | None:
    """The replacement of an operand, and its test; None if there is none."""
    if len(sys.modules) != _modules:
        look_for_modules()
    kind = type(x)
    if kind not in _operands:
        found = [row for known, row in _of_operands.items() if issubclass(kind, known)]
        _operands[kind] = found[0] if found else None
    return _operands[kind]


def while_traced(module: ModuleType, name: str) -> Callable[[F], F]:
    """Declare a function that answers calls of `module.name` while a function is traced.

        @tapegrad.while_traced(scipy.special, "expit")
        def expit(x):
            return 1 / (1 + np.exp(-x))

    Parameters
    ----------
    module : the module.
    name : the name of a function there.

    Returns
    -------
    A decorator. The decorated function is called in place of `module.name` where the traced
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
    """The number of declarations so far."""
    look_for_modules()
    return len(_declared)


def rows() -> list[Answer]:
    return list(_rows.values())


class _Beside(threading.local):
    rows: Mapping[int, Answer] = {}  # take precedence over the table; by the id of the original


_beside = _Beside()


@contextmanager
def beside(rows: Iterable[Answer]) -> Iterator[None]:
    """A context in which these rows take precedence over the table, in this thread."""
    before, _beside.rows = _beside.rows, {id(row.original): row for row in rows}
    try:
        yield
    finally:
        _beside.rows = before


def row_of(x: Any) -> Answer | None:
    """The row for this very object, or for a method of a class, if there is one."""
    return _rows.get(id(x))


def answer_of(x: Any) -> Answer | None:
    """The row for a callable that a program is about to call, if there is one."""
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
    """Whether a call made by this code is answered: the code is the user's, and a trace is
    running."""
    if dispatch.trace() is None or not is_users(code):
        return False
    if code.co_name == "__array__" and not telling.now:
        return False  # NumPy takes the result for a plain array
    if is_pandas_file(code.co_filename):
        return False  # its blocks hold plain arrays alone
    if answer.when is None and not answer.lists and not answer.traced:
        return getattr(answer.by, "__code__", None) is not code  # it calls the original
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
    """Whether an object converts itself to an array by Python code, which can be followed, and
    doesn't implement NumPy's protocols."""
    kind: Any = type(x)
    own = getattr(kind, "__array__", None)
    return type(own) is FunctionType and not any(hasattr(kind, name) for name in _PROTOCOLS)


def says(x: Any, names: Sequence[str] = ("__float__", "__complex__")) -> str:
    """The Python-written method by which an object converts itself to a number; empty if there is
    none. The number may be traced, and C code takes only plain ones."""
    return next((k for k in names if type(getattr(type(x), k, None)) is FunctionType), "")


def to_be_called(f: Any, args: Sequence[Any]) -> Any:
    """The callable for `f(*args)` where no code of the user's makes the call, as in
    `grad(scipy.special.logsumexp)`."""
    if type(f) is functools.partial:
        inner = to_be_called(f.func, (*f.args, *args))
        return f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
    answer = answer_of(f)
    return f if answer is None or not _is_meant(answer, args) else answer.by


def as_called(f: Any) -> Callable[..., Any]:
    """A function passed by the user, as a function that tapegrad's code can call as the user's
    would."""

    def called(*args: Any, **kwargs: Any) -> Any:
        meant = to_be_called(original_of(f), (*args, *kwargs.values()))
        dispatch.root(meant)  # also a library's own function
        return meant(*args, **kwargs)

    return called


def compiled_as_called(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same as `as_called` for a function compiled by numba; any other is returned unchanged."""
    if not type(f).__module__.startswith("numba."):
        return f
    return functools.wraps(f, updated=())(as_called(f))


class Swapped:
    # The replacement of a row's original in its module. The user's calls in a trace are answered;
    # all others reach the original, at the cost of one check.

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
        """Whether the user's code makes this call. C code has no frame of its own, so a frame may
        be the user's although C code calls: a generator's `rng.normal` calls `np.empty`, and needs
        its plain result. So this object must be among the operands of the running instruction."""
        code = frame.f_code
        if not is_answered(self.answer, code, args) or not frames.is_described():
            return False
        if getattr(frame.f_globals.get("__spec__"), "_initializing", False):
            return False  # values that a module creates at import are plain
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
        """The original's type, for a function that numba compiles meanwhile."""
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
    """The replacement of a method of a Python class. It must be a function, to bind as one. No C
    code calls it that needs a plain result."""
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


_stand_ins: dict[int, Any] = {}  # by the ids of rows, which they keep alive


def stand_in(row: Answer) -> Any:
    """The replacement of a row's original where names are swapped."""
    made = _method if isinstance(row.module, type) else Swapped
    return _stand_ins.get(id(row)) or _stand_ins.setdefault(id(row), made(row))


def answered_by(x: Any) -> Answer | None:
    """The row whose replacement `x` is; None if it isn't one."""
    if type(x) is Swapped:
        return x.answer
    known = vars(x).get("answer") if type(x) is FunctionType else None
    return known if type(known) is Answer else None


def original_of(x: Any) -> Any:
    """The original of `x` if it is a replacement; else `x` itself."""
    row = answered_by(x)
    return x if row is None else row.original
