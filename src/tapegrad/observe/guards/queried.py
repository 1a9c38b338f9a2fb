"""Functions that report something about Python, the system or a file, and change nothing.

Their result is a guard: a later call calls them again, and is traced anew if the result differs.
"""

from __future__ import annotations

import datetime
import inspect
import os
import time
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.handlers import let_through
from tapegrad.core.named import own_attribute
from tapegrad.observe.guards.uses import Then, Uses, both
from tapegrad.observe.objects import inspection
from tapegrad.observe.objects.files import (
    are_changed,
    asked_by,
    contents_of,
    is_path,
    is_read,
    only_reads,
    told_of,
)
from tapegrad.observe.objects.purity import (
    DISPATCHER,
    PLAIN_TYPES,
    is_numpys_module,
    is_own,
    is_silent,
    module_of,
)
from tapegrad.observe.objects.settings import note_settings
from tapegrad.observe.program.frames import MISSING

_SYS = """
    getdefaultencoding getfilesystemencodeerrors getfilesystemencoding getrecursionlimit getsizeof
    getswitchinterval get_int_max_str_digits is_finalizing
"""
_SYSTEM = """
    access cpu_count get_terminal_size getcwd getegid geteuid getgid getlogin getpid getppid
    getuid listdir lstat readlink sched_getaffinity stat strerror sysconf uname
"""
_NAMES = {
    "sys": _SYS,
    "posix": _SYSTEM,
    "nt": _SYSTEM,
    "gc": "get_debug get_threshold isenabled",
    "_socket": "gethostname",
    "_locale": "localeconv nl_langinfo",
    "time": "asctime ctime gmtime localtime mktime strftime strptime",
    **dict.fromkeys(["io", "_io"], "text_encoding"),  # "_io" from Python 3.13 on
    "_pickle": "dumps loads",
    "logging": "isEnabledFor getEffectiveLevel hasHandlers getLevelName",
    "pkgutil": "get_data",
    "importlib.metadata": "version",
    "_tracemalloc": "is_tracing",
    "faulthandler": "is_enabled",
    "importlib.resources._common": "files",
    **dict.fromkeys([f"importlib.resources.{x}" for x in ("_legacy", "_functional")], "read_text"),
    "numpy": "genfromtxt get_printoptions geterr getbufsize fromfile load loadtxt",
}
_ASKED = {module: frozenset(names.split()) for module, names in _NAMES.items()}


class Queried:
    """A repeatable call and its result: a value, or an error's class."""

    def __init__(self, f: Any, args: Sequence[Any], kwargs: dict[str, Any], answer: Any) -> None:
        self.f, self.args, self.kwargs = f, args, kwargs
        self.answer = self._now() if answer is MISSING else answer

    def _now(self) -> Any:
        try:
            return self.f(*self.args, **self.kwargs)
        except Exception as error:
            let_through(error)
            return type(error)

    def again(self) -> bool:
        """Whether the call has the same result now."""
        return same(self._now(), self.answer)


def queried(
    o: Uses, f: Any, args: Sequence[Any], kwargs: dict[str, Any], word: str, frame: Any
) -> Then | None:
    """The recorder of a call, made by this frame, that later calls of the derivative repeat. None
    if `f(*args, **kwargs)` isn't such a call."""
    if not (_is_asked(f) or _reads_place(f) or f is open):
        return None
    if args and args[0] is datetime.datetime is getattr(
        f, "__self__", None
    ):  # a class method, which is bound
        args = args[1:]
    given = [_plain(x) for x in args]
    named = {name: _plain(x) for name, x in kwargs.items()}
    if any(x is MISSING for x in (*given, *named.values())):
        return None
    if f is open and not only_reads(given, named):
        return None
    if are_changed(o.reads.effects, given[:1]):
        return lambda answer: o.reads.use_once(word, OF_FILES)

    def then(answer: Any) -> None:
        question = Queried(f, given, named, _kept(answer))
        if f in (os.stat, os.lstat) and (name := asked_by(frame)):
            question = Queried(told_of, [name, f, *given], named, MISSING)
        elif f is open or own_attribute(f, "__name__", "") == "load":  # the contents are read, too
            question = Queried(contents_of, given[:1], {}, MISSING)
        if same(question.answer, question.answer):
            o.reads.found(f"{o.reads._value(question)}.again()", True, word)
        else:
            o.reads.use_once(word)

    return both(o.taken([*args, *kwargs.values()]), then)


def _kept(x: Any) -> Any:
    """A result with copies of its arrays, which the program may write to."""
    if type(x) is np.ndarray and not x.dtype.hasobject:
        return x.copy()
    if type(x) is dict:
        return {key: _kept(part) for key, part in x.items()}
    return type(x)(map(_kept, x)) if type(x) in (list, tuple) else x


CALLED_OUTSIDE = (
    "Call it outside, and pass what it returns; a function of the program's that calls it and "
    "depends on its arguments alone can be declared with tapegrad.primitive"
)
OF_FILES = (
    "Read or write files outside: pass what is in them, return what goes there (has_aux=True)"
)
OF_STREAMS = "Print outside of the function, of what it returns (has_aux=True)"
OF_PLOTS = "Draw outside of the function, of what it returns (has_aux=True)"
OF_THREADS = (
    "Other threads aren't followed, and need not run: call the functions one after another, in a "
    "plain loop (of joblib n_jobs=1). What is compiled uses several cores by itself"
)
_OF_PICKLES = (
    "What is written for another process or for a cache, as dask does, is more than the function "
    "computes with: call plain functions in it, one after another, and copy by copy.deepcopy"
)
_OF_EVENT_LOOPS = (
    "An event loop reads the clock and the system at each call: await outside, and compute with "
    "what was awaited in a plain function"
)
_BY_MODULE = {
    "_asyncio": _OF_EVENT_LOOPS,
    **dict.fromkeys(("io", "_io", "posix", "nt"), OF_FILES),
    **dict.fromkeys(("_queue", "_thread", "threading", "queue"), OF_THREADS),
    **dict.fromkeys(("_pickle", "pickle"), _OF_PICKLES),
}
_BY_NAME = {
    "urandom": "It is another one at each call: make it outside, and pass it as an argument",
    **dict.fromkeys(("putenv", "unsetenv"), "Set the environment outside, before the first call"),
}
OF_TIME = "Ask for the time outside, and pass it as an argument, or only print or log it"


def advice_about(f: Any, otherwise: str = CALLED_OUTSIDE) -> str:
    """Advice to the user where a function or class in C has a program traced at each call."""
    held = own_attribute(f, "__self__")  # not as a text, which would read its contents
    module = str(own_attribute(f, "__module__") or type(held).__module__)
    named = _BY_NAME.get(own_attribute(f, "__name__", ""))
    return OF_TIME if is_date(f) else named or _BY_MODULE.get(module, otherwise)


def _is_asked(f: Any) -> bool:
    module, name = str(own_attribute(f, "__module__", "")), own_attribute(f, "__name__", "")
    if type(f) is types.FunctionType:
        numpys = is_own(f.__code__) and is_numpys_module(module)
        module = "numpy" if numpys else module if is_silent(f.__code__) else ""
    elif type(f) is DISPATCHER:
        module = "numpy"
    elif not isinstance(f, types.BuiltinFunctionType):
        return False
    return name in _ASKED.get(module, ())


def _reads_place(f: Any) -> bool:
    """Whether this is a method of Python's dates that may read the time zone or the locale."""
    if own_attribute(f, "__name__", "") not in (
        "astimezone",
        "timestamp",
        "fromtimestamp",
        "strptime",
    ):
        return False
    of = own_attribute(f, "__objclass__") or own_attribute(f, "__self__")
    return of is datetime.datetime or _is_time(of)


def _is_time(x: Any) -> bool:
    """Whether this is a date, a time or a time zone of Python's own, which its text describes
    completely."""
    kind = type(x)
    if kind in (datetime.datetime, datetime.time) and x.tzinfo is not None:
        return _is_time(x.tzinfo)
    return kind in _TIMES or (module_of(kind), kind.__name__) == ("zoneinfo", "ZoneInfo")


_TIMES = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone)


def reads_own(o: Uses, f: Any, args: Sequence[Any]) -> bool:
    """Whether a NumPy function reads a file, or a text, that the run has opened."""
    file = args[0] if args else None
    if not is_read(file) or o.reads.place(file) is not None:
        return False
    return _is_asked(f) or (type(f) is types.FunctionType and is_own(f.__code__))


_DECIMAL = ("decimal", "_decimal")  # the latter from Python 3.14 on
_OF_CONTEXTS = ("getcontext", "setcontext", "localcontext", "Context")


def sets_options(o: Uses, f: Any) -> bool:
    """Whether this sets NumPy's print options or error handling, or is about the context of decimal
    numbers. Their values before are guarded."""
    if getattr(f, "__module__", None) in _DECIMAL and f.__name__ in _OF_CONTEXTS:
        note_settings(o.reads, "decimal")
    elif f is np.seterr:
        note_settings(o.reads, "errors")
    elif f is np.set_printoptions or f is inspect.unwrap(np.printoptions):
        note_settings(o.reads, "numpy")
    else:
        return False
    return True


def advice_about_draw(frame: Any) -> str:
    """Advice to the user where Python's own library, called from this frame, draws random
    numbers."""
    while frame is not None and frame.f_globals.get("__name__") == "random":
        frame = frame.f_back
    is_for_name = frame is not None and frame.f_globals.get("__name__") == "tempfile"
    return OF_FILES if is_for_name else ""


def is_date(f: Any) -> bool:
    """Whether this returns the date or time in another form than as a number."""
    if own_attribute(f, "__name__", "") in ("now", "utcnow", "today"):
        return True
    return own_attribute(f, "__module__") == "time" and _is_asked(f)


def _plain(x: Any) -> Any:
    """An argument that is immutable and can be compared; `MISSING` for all others."""
    if is_path(x):
        return str(x)
    return (
        x
        if type(x) in (*PLAIN_TYPES, time.struct_time)
        or any(x is kind for kind in TYPES)
        or type(x) is types.ModuleType
        or inspection.is_plain(x)
        or _is_time(x)
        or module_of(type(x)) == "logging"
        else MISSING
    )


TYPES = (float, int, complex, bool, str)


def bytes_of(x: np.ndarray) -> bytes:
    """The bytes of an array. A subclass may override the method."""
    return np.ndarray.tobytes(x)


class Leaf:
    """Represents an object in a copy of arguments or results; equal leaves are interchangeable."""


def same(x: Any, y: Any) -> bool:
    """Whether two results are equal: numbers, texts, arrays of these, and containers of them."""
    kind = type(x)
    if kind is not type(y):
        return False
    if isinstance(x, Leaf):
        return bool(x == y)
    if isinstance(x, np.ndarray):
        if x.dtype != y.dtype or x.shape != y.shape or x.dtype.hasobject:
            return False
        return x.strides == y.strides and bytes_of(x) == bytes_of(y)
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(map(same, x, y))
    if kind is dict:
        return [*x] == [*y] and all(map(same, x.values(), y.values()))
    if kind in (set, frozenset):
        return bool(x == y)
    if isinstance(x, np.generic):
        return bool(x.tobytes() == y.tobytes()) and not x.dtype.hasobject
    if isinstance(x, (type, np.dtype)):
        return bool(x == y)
    if kind is range:
        return bool(x == y)
    if kind is slice:
        return same((x.start, x.stop, x.step), (y.start, y.stop, y.step))
    return (kind in PLAIN_TYPES or _is_time(x) or is_path(x)) and repr(x) == repr(y)
