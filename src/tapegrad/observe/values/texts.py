"""The use of a text that is made of traced values.

A text that is printed, logged or part of an error message shows the user what the trace sees. Any
other text may influence the function's result: it may be compared, stored, or be a dict's key.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import io
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tapegrad.core.installed import PYTHONS, is_installed, is_pythons
from tapegrad.core.log import warn
from tapegrad.errors import ConversionError
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.objects.loggers import logs_elsewhere
from tapegrad.observe.objects.progress_bars import is_bar, is_bars, is_screen
from tapegrad.observe.program.source import (
    at_line,
    is_users,
    source_at,
    user_frames,
    user_source,
)
from tapegrad.observe.program.syntax import down, enclosing, span_of
from tapegrad.observe.values.exact import is_exact
from tapegrad.observe.values.proxy import Proxy

_LOGGING = ("log", "debug", "info", "warning", "warn", "error", "critical", "exception", "fail")
WRITING = frozenset(["write"])
SHOWING = frozenset(["print", "pprint", "pp", "display", *_LOGGING]) | WRITING
_REMAINDER = [k for k, (_, sign) in enumerate(getattr(dis, "_nb_ops", ())) if sign in ("%", "%=")]


def formats_text() -> bool:
    """Whether a program is evaluating `text % x`, as logging does. It isn't arithmetic: for that
    Python would have called `__rmod__` of a traced operand."""
    frame = next(user_frames(), None)
    if frame is None or frame.f_lasti < 0:
        return False
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] == dis.opmap["BINARY_OP"] and code[at + 1] in _REMAINDER


@dataclass(eq=False)
class Shown:
    """A traced value that is shown, and so isn't guarded: its operand, value, text if known, and
    line."""

    operand: Any
    value: Any
    text: str | None
    src: Any

    @cached_property
    def _numbers(self) -> set[str]:
        return numbers_in(self.text or "")

    def may_be_among(self, found: set[str]) -> bool:
        """Whether one of these numbers, read from a text, is one of this value's numbers as
        shown."""
        if self.text is not None:
            text = self.text
            return any(x in self._numbers or (_is_long(x) and x in text) for x in found)
        values = np.abs(np.ravel(self.value)[:MAX_TEXTS])
        values = values if values.dtype.kind != "c" else np.abs([values.real, values.imag]).ravel()
        return any(
            _is_long(x) and np.any(np.abs(values - number) <= unit)
            for x in found
            for number, unit in _read_in(x)
        )


MAX_TEXTS = 10_000  # maximal number of an array's elements, and of shown texts


def numbers_in(text: str) -> set[str]:
    """The numbers written in a text, without signs."""
    return set(_NUMBER.findall(text))


def _is_long(number: str) -> bool:
    return sum(map(str.isdigit, number)) > 2


def tell(x: Any) -> None:
    """Guard the value of a tracer that a text is made of, unless the text is only shown."""
    if not x._trace.alive:
        return
    if _is_shown():
        operand, value = x._read()
        if value is not None and x.dtype.kind in "iufc" and len(x._trace.shown) < MAX_TEXTS:
            x._trace.shown.append(Shown(operand, value, None, user_source()))
        return
    if not is_certain(x):
        raise x._trace.refused(refusal(str(x._aval)))
    if x.ndim:
        x._guarded_array()
    else:
        entry = x._trace.guard(x, x._read()[1], _IN_TEXT)
        if entry is not None and x.dtype.kind in "fc":
            x._trace.texts.append(entry)


_IN_TEXT = "a number in a text"


def say_once(frame: FrameType, args: Sequence[Any]) -> None:
    """Warn once, for the first traced `print` of a traced value, that later calls won't print."""
    if _said or any(hasattr(x, "write") for x in args):
        return
    src = source_at(frame)
    held = [y for x in args for y in (x if type(x) in (tuple, list) else [x])]
    if any(isinstance(x, Proxy) for x in held) or any(x.src == src for _, x in that_are_shown()):
        _said.append(src)
        warn(
            f"{src}: print shows the values of the call that is traced. Later calls print nothing: "
            'debug.print("{}", x) of tapegrad prints at each'
        )


_said: list[Any] = []


def of_texts() -> list[tuple[Any, Any]]:
    """The guards of real numbers in texts, in the running traces."""
    return [(trace, guard) for trace in dispatch.running() for guard in trace.texts]


def that_are_shown() -> list[tuple[Any, Shown]]:
    """The values whose texts are only shown, in the running traces."""
    return [(trace, shown) for trace in dispatch.running() for shown in trace.shown]


def may_hold(text: str, number: Any) -> bool:
    """Whether a number, up to its sign, can be read from a text: 1.234 from "[1.2, 5.0]", from
    "0x1.3be7p+0", and from a piece of its digits, "234"."""
    if not np.isfinite(number):
        return re.search("inf|nan", text, re.I) is not None
    for x in {abs(number.real), abs(number.imag)}:
        if any(abs(found - x) <= unit for found, unit in _read_in(text)):
            return True
        digits = f"{x:.16e}".partition("e")[0].replace(".", "")
        runs = (run.strip("0") for run in _DIGITS.findall(_BETWEEN_DIGITS.sub("", text)))
        if any(piece in digits for run in runs for piece in _pieces(run)):
            return True
    return False


def _pieces(run: str) -> Iterator[str]:
    """The pieces of a run of digits that any text of the number contains; the last digit may be
    rounded."""
    if len(run) > 2:
        yield run[:-1]
    for k in range(len(run) - 4):
        yield run[k : k + 4]


def _read_in(text: str) -> Iterator[tuple[float, float]]:
    """The numbers written in a text, each with the unit of its last digit."""
    for found in _HEXADECIMAL.findall(text):
        yield float.fromhex(found), 0.0
    for found in _DECIMAL.findall(text):
        digits, _, power = found.lower().partition("e")
        yield float(found), 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


_HEXADECIMAL = re.compile(r"0x[\da-f.]+p[+-]?\d+", re.I)
_DECIMAL = re.compile(r"(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.I)
_NUMBER = re.compile(r"\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf|nan", re.I)
_DIGITS = re.compile(r"\d{3,}")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[.,_ ](?=\d)")


def is_certain(x: Any) -> bool:
    """Whether a value may be guarded: it has the same bits at later calls."""
    operand, value = x._read()
    if value is None:
        return False
    return x.dtype.kind in "iub" or (not x.ndim and is_exact(x._trace, operand))


def refusal(kind: str) -> ConversionError:
    """The error for a text of such a value."""
    return ConversionError(
        f"a text is made of a traced value ({kind}){at_line()}, and isn't known to be only shown, "
        "or written to a file where it is made. It would be the same at each later call. Print or "
        "write the value itself, or make the text outside of the function, of what it returns"
    )


def _is_shown() -> bool:
    """Whether the text that is being made is printed, logged or raised, possibly by a library."""
    users = next(user_frames(), None)
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame is not users:
        if _is_for_error(frame):
            return True
        frame = frame.f_back
    return users is None or is_to_show(users, SHOWING)  # no frame of a program


def is_to_show(frame: FrameType | None, known: frozenset[str]) -> bool:
    """Whether a text that a frame of the program makes now is printed, logged or raised by calls of
    these names; or is returned to a caller that does so."""
    while frame is not None and frame.f_code.co_name != "trace_function":
        file = frame.f_code.co_filename
        if is_pythons(file):
            folder, name = os.path.split(file)
            if os.path.basename(folder) == "logging" or name == "bdb.py":  # a debugger shows it
                return True
            if _is_for_error(frame):
                return True
        elif is_users(frame.f_code):  # for Python's library its caller decides
            if is_bars(file) or is_shown_by(frame, known):
                return True
            if not _is_handed_on(frame):
                return is_installed(file) and _is_for_assert(frame)
            known = known - WRITING  # files would get the same text at each call
        frame = frame.f_back
    return False


def _is_for_error(frame: FrameType) -> bool:
    """Whether a library's frame is about to raise an error, or constructs one: the function that it
    calls contributes to the message."""
    for node in enclosing(frame):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = _found(node.func, frame) or getattr(builtins, node.func.id, None)
            if isinstance(kind, type) and issubclass(kind, BaseException):
                return True
    return False


def _is_for_assert(frame: FrameType | None) -> bool:
    """Whether an `assert` itself calls a package, as pytest's does, and not the asserted
    expression."""
    while frame is not None and _is_of_library(frame.f_code.co_filename):
        frame = frame.f_back
    nodes = [] if frame is None else [*enclosing(frame)]
    return bool(nodes) and isinstance(nodes[-1], ast.Assert)


def _is_of_library(file: str) -> bool:
    return file.startswith(PYTHONS) or is_installed(file)


def _is_in_error(frame: FrameType) -> bool:
    """Whether an exception class of the user's is building its message in its constructor."""
    code = frame.f_code
    if code.co_name not in ("__init__", "__post_init__"):
        return False
    self = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return isinstance(self, BaseException)


def _shows(nodes: Sequence[ast.AST], frame: FrameType, names: frozenset[str]) -> bool:
    """Whether these nodes are a raised error, `print`, or a similar call with an unused result: a
    statement, perhaps behind `verbose and`, or the body of a lambda."""
    if nodes and isinstance(nodes[-1], ast.Assert):
        return True  # a test tool shows failing conditions
    unused = False
    for node in nodes:
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call):
            named = node.func
            name = getattr(named, "id", None) or getattr(named, "attr", None)
            known = _found(named.value, frame) if isinstance(named, ast.Attribute) else None
            if unused and is_bar(type(known)):
                return True
            files = [k.value for k in node.keywords if k.arg in ("file", "stream")]
            if name in _TO_FILES and not all(_is_screen(x, frame) for x in files):
                name, unused = "write", True
            if logs_elsewhere(known, str(name)):
                name, unused = "write", True
            files += [named.value] if isinstance(named, ast.Attribute) else []
            shows = name in names and (unused or name == "print")
            if WRITING.isdisjoint(names) and _is_programs(named, frame):
                shows = False  # it may store the text
            if shows and not any(_is_text(x, frame) for x in files):
                return True
        unused = isinstance(node, (ast.Expr, ast.Lambda)) or (
            unused and isinstance(node, (ast.BoolOp, ast.IfExp, ast.Await))
        )
    return False


def is_shown_by(frame: FrameType, known: frozenset[str] = SHOWING) -> bool:
    """Whether a text that a frame makes now is printed, logged or raised there, by calls of these
    names."""
    return _is_in_error(frame) or _leads_out([*enclosing(frame)], frame, known, returned=False)


def _is_handed_on(frame: FrameType) -> bool:
    """Whether a text that a frame makes now is returned, or shown: then the caller's use of it
    decides. A generated method has no source, and does nothing else."""
    nodes = [*enclosing(frame)]
    if not nodes:
        return frame.f_code.co_name in ("__repr__", "__str__")
    return _leads_out(nodes, frame, SHOWING - WRITING, returned=True)


def _leads_out(
    nodes: Sequence[ast.AST],
    frame: FrameType,
    known: frozenset[str],
    returned: bool,
    seen: tuple[str, ...] = (),
) -> bool:
    """Whether the text made by the last of these nodes is only shown, or `returned`: directly, or
    through local variables that hold it, or a list of such texts."""
    if _shows(nodes, frame, known):
        return True
    k = len(nodes) - 1
    while k > 0 and _makes_text_of(nodes[k - 1], nodes[k], frame):
        k -= 1
    around = nodes[k - 1] if k > 0 else None
    if isinstance(around, (ast.Return, ast.Lambda)):
        return returned
    home = next((n for n in reversed(nodes[:k]) if isinstance(n, ast.FunctionDef)), None)
    name = _holder(nodes, k)
    if home is None or name not in frame.f_code.co_varnames:
        return False
    if name in seen:
        return True
    uses = [n for n in ast.walk(home) if isinstance(n, ast.Name) and n.id == name]
    read = [[*down(home, *span_of(n))] for n in uses if isinstance(n.ctx, ast.Load)]
    return all(_leads_out(x, frame, known, returned, (*seen, name)) for x in read)


def _makes_text_of(around: ast.AST, inner: ast.AST, frame: FrameType) -> bool:
    """Whether an expression is a text, or a list of texts, that contains an inner one."""
    if isinstance(around, ast.IfExp):
        return inner is not around.test
    if isinstance(around, (ast.ListComp, ast.GeneratorExp)):
        return inner is around.elt
    if isinstance(around, ast.Attribute):
        return around.attr in _OF_TEXTS
    if isinstance(around, ast.Call):
        f = around.func
        own = isinstance(f, ast.Name) and f.id in _MAKING_TEXTS and _is_builtin(f.id, frame)
        return own or (isinstance(f, ast.Attribute) and f.attr in _OF_TEXTS)
    return isinstance(around, (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.List))


def _holder(nodes: Sequence[ast.AST], k: int) -> str | None:
    """The variable that holds expression number `k`: `s = ...`, `s += ...` or `s.append(...)`."""
    around = nodes[k - 1] if k > 0 else None
    if isinstance(around, ast.Assign) and len(around.targets) == 1:
        return getattr(around.targets[0], "id", None)
    if isinstance(around, ast.AugAssign):
        return getattr(around.target, "id", None)
    f = around if isinstance(around, ast.Attribute) else getattr(around, "func", None)
    if isinstance(f, ast.Attribute) and f.attr == "append":
        unused = any(isinstance(n, ast.Expr) for n in nodes[max(0, k - 3) : k])
        return getattr(f.value, "id", None) if unused else None
    return None


def is_only_shown(frame: FrameType) -> bool:
    """Whether the result of a frame's running call is printed or logged, directly or by a variable,
    after nothing but arithmetic, its own methods, and conversions to numbers and texts."""
    nodes = [*enclosing(frame)]
    while nodes and not isinstance(nodes[-1], ast.Call):
        nodes.pop()
    return bool(nodes) and (_is_told(nodes, frame) or _is_named_to_be_told(nodes, frame))


def _is_told(nodes: list[ast.AST], frame: FrameType) -> bool:
    """Whether the value of the last of these nodes is printed or logged by the nodes around it."""
    inner = nodes[-1]
    for node in reversed(nodes[:-1]):
        if isinstance(node, ast.Call):
            if inner is not node.func and _tells(node, frame):
                return True
            if inner is not node.func and not _makes(node.func, frame):
                return False
        elif not isinstance(node, _COMPUTING):
            return False
        inner = node
    return False


def _makes(f: ast.expr, frame: FrameType) -> bool:
    """Whether a callable makes numbers and texts, and stores nothing: some builtins, and the
    functions of the module `time`."""
    if isinstance(f, ast.Name):
        return f.id in _MAKING and _is_builtin(f.id, frame)
    return isinstance(f, ast.Attribute) and _found(f.value, frame) is time


def _found(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of an attribute of one, in a frame; None for other expressions."""
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_found(node.value, frame), node.attr, None)
    name = str(getattr(node, "id", ""))
    return frame.f_locals.get(name, frame.f_globals.get(name))


_TO_FILES = ("print", "pprint", "pp")
_MAKING_TEXTS = ("str", "repr", "format")
_OF_TEXTS = ("join", "format", "ljust", "rjust", "center", "strip", "lstrip", "rstrip", "replace")
_MAKING = ("str", "repr", "format", "round", "int", "float", "abs")
_COMPUTING = (ast.BinOp, ast.UnaryOp, ast.Attribute, ast.JoinedStr, ast.FormattedValue, ast.Tuple)


def _tells(call: ast.Call, frame: FrameType) -> bool:
    """Whether this is a call of the builtin `print` to the screen, or of a logger."""
    f = call.func
    if isinstance(f, ast.Name):
        return f.id == "print" and _is_builtin("print", frame) and not call.keywords
    if not isinstance(f, ast.Attribute):
        return False
    known = _found(f.value, frame)
    logging = sys.modules.get("logging")
    loggers = (getattr(logging, "Logger", ()), getattr(logging, "LoggerAdapter", ()))
    shows = f.attr in SHOWING and logging is not None
    known_one = known is logging or type(known) in loggers
    return shows and known_one and not logs_elsewhere(known, f.attr)


def _is_builtin(name: str, frame: FrameType) -> bool:
    if name in frame.f_locals or name in frame.f_globals or name in frame.f_code.co_freevars:
        return False
    return hasattr(builtins, name)


def _is_named_to_be_told(nodes: list[ast.AST], frame: FrameType) -> bool:
    home = next((n for n in reversed(nodes) if isinstance(n, ast.FunctionDef)), None)
    assigned = nodes[-2] if len(nodes) > 1 else None
    if home is None or not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
        return False
    target = assigned.targets[0]
    if not isinstance(target, ast.Name) or target.id not in frame.f_code.co_varnames:
        return False
    uses = [n for n in ast.walk(home) if isinstance(n, ast.Name) and n.id == target.id]
    read = [n for n in uses if not isinstance(n.ctx, ast.Store)]
    around = [list(down(home, *span_of(n))) for n in read]
    return all(x and x[-1] is n and _is_told(x, frame) for x, n in zip(around, read, strict=True))


def _is_programs(node: ast.expr, frame: FrameType) -> bool:
    """Whether a function or a method of the program's own is called."""
    found = _found(node, frame)
    code = getattr(getattr(found, "__func__", found), "__code__", None)
    return isinstance(code, CodeType) and not _is_of_library(code.co_filename)


def _is_screen(node: ast.expr, frame: FrameType) -> bool:
    """Whether an argument `file=` is the screen, as `None` is."""
    if isinstance(node, ast.Constant):
        return node.value is None
    return is_screen(_found(node, frame))


def _is_text(node: ast.expr, frame: FrameType) -> bool:
    """Whether a name is bound to a buffer that collects text, to be read later."""
    return isinstance(_found(node, frame), io.StringIO)
