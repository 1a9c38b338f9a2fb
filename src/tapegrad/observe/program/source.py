"""The line of the user's program that is running."""

from __future__ import annotations

import builtins
import dis
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType

from tapegrad.core.installed import is_installed, is_pythons
from tapegrad.core.listing import instructions_of
from tapegrad.ir.tape import Source


def _folder(package: str) -> str:
    """The folder of a package, found without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return os.path.dirname(os.path.abspath(spec.origin)) + os.sep


# The user calls NumPy, SciPy and numba; lines inside them say nothing about the user's program.
_OWN = tuple(map(_folder, ("tapegrad", "numpy", "scipy", "numba")))
TAPEGRAD, SCIPY = _OWN[0], _OWN[2]
# NumPy's classes written in Python, which are followed as a library's.
_CLASSES = tuple([os.path.join(_OWN[1], name, "") for name in ("polynomial", "matrixlib", "ma")])
_CALLERS = {_OWN[2]: "SciPy", _OWN[3]: "numba"}
# Files of tapegrad's that count as the user's program; `WRITTEN_OUT` counts as Python's library.
WRITTEN_OUT = os.path.join(_OWN[0], "tracing", "frontend", "python", "in_python.py")
_COPYING = os.path.join(_OWN[0], "nn", "copying.py")
_PROGRAMS = (os.path.join(_OWN[0], "autograd", ""), WRITTEN_OUT, _COPYING)
_MACHINERY = tuple([_PROGRAMS[0] + name for name in ("boxes.py", "objects.py", "spaces.py")])
_users: dict[str, bool] = {}  # whether a file is the user's, by its path
CACHED_LINES = 100_000  # maximal number of cached lines
_sources: dict[tuple[str, int, str], Source] = {}
MOST_PLACES = 10_000  # maximal number of cached positions in codes
_places: dict[tuple[int, int], tuple[Source, CodeType]] = {}
_told: dict[str, bool] = {}  # whether a file is shown as the user's: none of Python's library is


def is_users_path(file: str) -> bool:
    """Whether a file is not part of tapegrad, NumPy, SciPy or numba."""
    if file.startswith((*_PROGRAMS, *_CLASSES)):
        return file not in _MACHINERY
    return not file.startswith((*_OWN, "<__array_function__"))


def is_numpys_class(file: str) -> bool:
    """Whether a file holds classes of NumPy's that are followed."""
    return file.startswith(_CLASSES)


def comes_back(frame: FrameType) -> bool:
    """Whether NumPy calls a method of a followed class of its own, as `np.sum(m)` calls
    `m.sum()`."""
    caller = "" if frame.f_back is None else frame.f_back.f_code.co_filename
    back = caller.startswith(_OWN[:2]) and not is_numpys_class(caller)
    return back and is_numpys_class(frame.f_code.co_filename)


def is_users(code: CodeType) -> bool:
    known = _users.get(code.co_filename)
    if known is None:
        known = _users[code.co_filename] = is_users_path(code.co_filename)
    return known


@lru_cache(maxsize=1024)
@lru_cache(maxsize=1024)
def declared_in(kind: type) -> str:
    """The module of a class whose `__module__` is `builtins`. That is wrong for a class written in
    C that was declared without a module: then it is the module of an installed package that holds
    the class."""
    name = kind.__name__
    if getattr(builtins, name, None) is kind or getattr(types, name, None) is kind:
        return "builtins"
    for home, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None))
        in_c = file.endswith((".so", ".pyd")) and is_installed(file)
        if in_c and vars(module).get(name) is kind:
            return home
    return "builtins"


def is_compat(module: object) -> bool:
    """Whether a module of this name is array-api-compat, or a copy of it in another package."""
    return isinstance(module, str) and "array_api_compat" in module.split(".")


def is_told(file: str) -> bool:
    """Whether tapes and messages show lines of this file as the user's."""
    known = _told.get(file)
    if known is None:
        library = is_pythons(file) or file.startswith("<frozen ")
        others = library or file.startswith((*_CLASSES, *_PROGRAMS))
        known = _told[file] = is_users_path(file) and not others
    return known


def is_users_line() -> bool:
    """Whether the running line is the user's, and not one of Python's library."""
    frame = _user_frame()
    return frame is not None and is_told(frame.f_code.co_filename)


def asks_itself() -> bool:
    """Whether tapegrad's own code reads the attribute whose getter calls this."""
    file = sys._getframe(2).f_code.co_filename
    return file.startswith(_OWN[0]) and not file.startswith(_PROGRAMS)


def asks_for(name: str) -> bool:
    """Whether a program reads an attribute by name, in the getter that calls this: by `x.name`,
    `hasattr(x, "name")` and the like. A name that NumPy's C code reads is in no Python code."""
    frame = sys._getframe(2)
    code = frame.f_code
    if name not in code.co_consts and name not in code.co_names:
        return False
    told = [i.argval for i in instructions_of(code) if i.offset <= frame.f_lasti]
    return name in told[-4:]  # the name, a default, PRECALL, CALL


def _user_frame() -> FrameType | None:
    """The innermost frame that isn't of tapegrad, NumPy, SciPy or numba."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    return frame


def user_frames() -> Iterator[FrameType]:
    """The frames of the user's program, innermost first."""
    frame = _user_frame()
    while frame is not None:
        if is_users(frame.f_code):
            yield frame
        frame = frame.f_back


def user_source() -> Source | None:
    """The line that the user's program is at. For a line in Python's library, the line that called
    it."""
    frame = told_frame(sys._getframe(1)) or _user_frame()
    return None if frame is None else source_at(frame)


def line_in_trace() -> Source | None:
    """The running line of the user's program in the traced function. If there is none, the line of
    the installed package that runs there. None outside of a traced function."""
    frame, found = told_frame(sys._getframe(1)), None
    while frame is not None and frame.f_code.co_name != "trace_function":
        if is_told(frame.f_code.co_filename):
            found = found or frame
            if not is_installed(frame.f_code.co_filename):
                found = frame
                break
        frame = frame.f_back
    return None if frame is None or found is None else source_at(found)


def is_in_package() -> bool:
    """Whether the running line is an installed package's, and not the program's own."""
    frame = told_frame(sys._getframe(1))
    return frame is not None and is_installed(frame.f_code.co_filename)


def told_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from `frame` outwards, whose lines are shown as the user's."""
    while frame is not None:
        told = _told.get(frame.f_code.co_filename)
        if is_told(frame.f_code.co_filename) if told is None else told:
            break
        frame = frame.f_back
    return frame


def source_at(frame: FrameType) -> Source:
    """The line that a frame is at."""
    code = frame.f_code
    place = id(code), frame.f_lasti
    known = _places.get(place)
    if known is None:
        if len(_places) >= MOST_PLACES:
            _places.clear()
        known = _places[place] = source_of(code, frame.f_lineno), code
    return known[0]


def source_of(code: CodeType, line: int) -> Source:
    """The `Source` of a line of this code."""
    place = code.co_filename, line, code.co_name
    known = _sources.get(place)
    if known is None:
        if len(_sources) >= CACHED_LINES:
            _sources.clear()
        known = _sources[place] = Source(*place)
    return known


def caller() -> str:
    """The library that runs on behalf of the user's program: "SciPy", "numba", or an empty text."""
    frame, users = sys._getframe(1), _user_frame()
    while frame is not users and frame is not None:
        for folder, name in _CALLERS.items():
            if frame.f_code.co_filename.startswith(folder):
                return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def assigns_item() -> bool:
    """Whether the user's program is executing an assignment `a[k] = x` or `a[i:j] = x`."""
    frame = _user_frame()
    if frame is None or frame.f_lasti < 0:
        return False
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("STORE_SUBSCR", "STORE_SLICE")


def at_line() -> str:
    """The running line as the end of a message, ` (model.py:12: h = math.exp(x))`. Empty if there
    is none. For a line of an installed package, the program's own line that called it is added."""
    src = user_source()
    own = None if src is None or not is_installed(src.file) else line_in_trace()
    if own is None or is_installed(own.file):
        return at_source(src)
    return f"{at_source(src)[:-1]}, called at{at_source(own).replace(' (', ' ', 1)}"


def at_source(src: Source | None) -> str:
    """A known line as the end of a message."""
    if src is None:
        return ""
    text = src.text
    return f" ({src}: `{text}`)" if text else f" ({src})"
