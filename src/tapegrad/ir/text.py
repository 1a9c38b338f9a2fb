"""Tapes as text, and back.

    tape loss(x)
      inp   %1 : f8[5]
            %2 = exp(%1) : f8[5]                # model.py:12
            %3 = sum(%2, axes=(0,)) : f8[]      # model.py:12
      guard %4 = True                           # model.py:14
      out   %3

A sub-tape among a call's parameters prints as `@1`, and below the tape as `@1 = tape ...`.
`parse(show(tape))` is equal to `tape`; the comments aren't part of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.core.values import (
    Aval,
    Literal,
    Operand,
    Slice,
    Span,
    Var,
    dtype_called,
    dtype_name,
    literal,
)
from tapegrad.errors import TapeError
from tapegrad.ir.memory import constants, first_read, made_at
from tapegrad.ir.tape import DECLARED, Call, Guard, Tape

# ---- printing


def show(tape: Tape) -> str:
    """The tape as text."""
    return "\n".join([text for text, _ in shown_lines(tape)])


def shown_lines(tape: Tape) -> list[tuple[str, Call | None]]:
    """The lines of that text, each with the call that it shows."""
    nested: list[Tape] = []
    return with_nested(_block(tape, nested), nested, _block)


def with_nested(lines: list[Any], nested: list[Any], block: Callable[[Any, list[Any]], Any]) -> Any:
    """Lines, and behind them those of the `nested` tapes or plans, numbered. `block` returns the
    lines of one, and adds those that are nested in it."""
    done = 0
    while done < len(nested):
        done += 1
        (head, _), *others = block(nested[done - 1], nested)
        lines += [("", None), (f"@{done} = {head}", None), *others]
    return lines


def _block(tape: Tape, nested: list[Tape]) -> list[tuple[str, Call | None]]:
    given = dict(enumerate(tape.names))  # a malformed tape may have fewer names, and still prints
    names = [given.get(k) or f"x{k}" for k in range(len(tape.inputs))]
    rows: list[tuple[str, str, Call | None]] = []
    free = len(tape.free_inputs)
    for position, var in enumerate(tape.inputs):
        word = "inp" if position < free else "cap"
        label = "" if names[position] == f"x{position}" else names[position]
        open_ = [str(axis) for k, axis in tape.axes if k == position]
        if open_:
            label = f"{names[position]}, axis {' and '.join(open_)} of any length"
        if var in constants(tape):
            label += _where(tape, var)
        rows.append((f"  {word:5} {var} : {var.aval}", label, None))
    for call in tape.calls:
        rows.append((f"        {show_call(call, nested)}", _comment(call), call))
    for guard in tape.guards:
        left = f"  guard {guard.operand} = {guard.expected}"
        rows.append((left, " ".join(filter(None, [str(guard.src or ""), guard.what])), None))
    width = min(56, max((len(left) for left, *_ in rows), default=0))
    return [
        (f"tape {tape.name}({', '.join(names)})", None),
        *[(f"{x:{width}}  # {note}".rstrip() if note else x, call) for x, note, call in rows],
        ("  out   " + ", ".join(map(str, tape.outputs)), None),
    ]


def _where(tape: Tape, var: Var) -> str:
    """Where an array was made, or where it is first read."""
    if (src := made_at(tape, var)) is not None:
        return f", made at {src}"
    return f", read at {src}" if (src := first_read(tape, var)) is not None else ""


def show_call(call: Call, nested: list[Tape] | None = None) -> str:
    """One call as text, without its comment."""
    nested = [] if nested is None else nested
    parts = [str(x) for x in call.operands]
    parts += [f"{k}={show_parameter(v, nested)}" for k, v in call.primitive.parameters()]
    outs = ", ".join(map(str, call.outs))
    avals = ", ".join(str(v.aval) for v in call.outs)
    return f"{outs} = {call.primitive.name}({', '.join(parts)}) : {avals}"


def show_parameter(value: Any, nested: list[Tape] | None = None) -> str:
    """A parameter as text. A sub-tape prints as its number in `nested`, and is added there if it is
    new."""
    nested = [] if nested is None else nested
    if isinstance(value, Tape):
        if value not in nested:
            nested.append(value)
        return f"@{nested.index(value) + 1}"
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, tuple):
        inner = ", ".join(show_parameter(v, nested) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if callable(value):
        return f"<{getattr(value, '__name__', 'function')}>"
    return str(value) if not isinstance(value, str) else repr(value)


def _comment(call: Call) -> str:
    return "  ".join(filter(None, [str(call.src or ""), call.reason]))


# ---- parsing

# Tokens with a meaning of their own: strings (kept), variables, sub-tapes, functions, comments.
_TOKENS = re.compile(
    r"""(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|%(?P<var>\d+)|@(?P<tape>\d+)|=<(?P<function>[^>]*)>|(?P<comment>\#.*)"""
)


def parse(text: str, captured: tuple[np.ndarray, ...] = ()) -> Tape:
    """The tape that prints as `text`. `captured` are the values of its `cap` inputs.

    Without values, `cap` inputs become ordinary inputs. Raises a `TapeError` that names the line if
    the text isn't a tape, or if it refers to a user's function, which text can't hold.
    """
    head, *others = re.split(r"\n\s*\n(?=@\d+ = )", text.strip())
    blocks = dict(block.split(" = ", 1) for block in others)
    return _parse_block(head, _SubTapes(blocks), captured)


class _SubTapes:
    """The sub-tapes of a text by number, parsed when a call first refers to them."""

    def __init__(self, blocks: dict[str, str]) -> None:
        self.blocks = blocks
        self.parsed: dict[str, Tape] = {}

    def __getitem__(self, label: str) -> Tape:
        if label not in self.parsed:
            if label not in self.blocks:
                raise TapeError(f"there is no sub-tape {label}, or it holds itself")
            self.parsed[label] = _parse_block(self.blocks.pop(label), self, (), f"{label}, ")
        return self.parsed[label]


class _Parser:
    """Reads the lines of one tape. `vars` are the variables defined so far."""

    def __init__(self, tapes: _SubTapes) -> None:
        self.tapes = tapes
        self.vars: dict[int, Var] = {}

    def define(self, token: str, aval: Aval) -> Var:
        var = Var(int(token.strip().removeprefix("V_")), aval)
        self.vars[var.id] = var
        return var

    def operand(self, node: ast.expr) -> Operand:
        if isinstance(node, ast.Name) and node.id.startswith("V_"):
            try:
                return self.vars[int(node.id[2:])]
            except KeyError:
                raise TapeError(f"%{node.id[2:]} is used before it is defined") from None
        return self.literal(node)

    def literal(self, node: ast.expr) -> Literal:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            parts = [_number(part) for part in node.args]
            value = parts[0] if len(parts) == 1 else complex(*parts)
            return literal(value, dtype_called(node.func.id))
        value = _number(node)
        return literal(value, type(value))

    def parameter(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self.parameter(e) for e in node.elts)
        if isinstance(node, ast.Name) and node.id.startswith("T_"):
            return self.tapes["@" + node.id[2:]]
        if isinstance(node, ast.UnaryOp) or getattr(node, "id", "") in ("inf", "nan"):
            return _number(node)
        if isinstance(node, ast.Name):
            return dtype_called(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("Slice", "Span"):
                kind = Slice if node.func.id == "Slice" else Span
                return kind(*[ast.literal_eval(a) for a in node.args])
            raise TapeError(f"unknown parameter {ast.unparse(node)}")
        return ast.literal_eval(node)

    def call(self, line: str) -> Call:
        left, _, right = line.partition(" = ")
        right, _, types = right.rpartition(" : ")
        node = _expression(right)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise TapeError(f"{right!r} isn't a call")
        operands = tuple(self.operand(a) for a in node.args)
        parameters = {str(k.arg): self.parameter(k.value) for k in node.keywords}
        try:
            declared = DECLARED[node.func.id]
        except KeyError:
            raise TapeError(f"there is no primitive called {node.func.id}") from None
        if parameters and not isinstance(declared, type):
            raise TapeError(f"{node.func.id} has no parameters")
        primitive = declared(**parameters) if isinstance(declared, type) else declared
        tokens = left.split(",")
        outs = tuple(
            self.define(token, aval) for token, aval in zip(tokens, _avals(types), strict=True)
        )
        return Call(primitive, operands, outs)


def _expression(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _number(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.Name):
        return float(node.id)  # nan, inf
    return ast.literal_eval(node)


def _as_python(line: str) -> str:
    """A line as Python can parse it: `%1` becomes V_1, `@1` becomes T_1, the comment is dropped."""

    def plain(match: re.Match[str]) -> str:
        if match["function"] is not None:
            raise TapeError(
                f"it refers to the user's function {match['function']!r}, which a text can't hold"
            )
        if match["comment"] is not None:
            return ""
        prefix = {"var": "V_", "tape": "T_", "string": ""}[str(match.lastgroup)]
        return prefix + match[str(match.lastgroup)]

    return _TOKENS.sub(plain, line).strip()


def _avals(text: str) -> list[Aval]:
    avals = []
    for name, weak, dims in re.findall(r"([a-z]+\d+)(\*?)\[([\d,]*)\]", text):
        shape = tuple(int(n) for n in dims.split(",") if n)
        avals.append(Aval(shape, dtype_called(name), weak=bool(weak)))
    return avals


def _parse_block(
    text: str, tapes: _SubTapes, captured: tuple[np.ndarray, ...], where: str = ""
) -> Tape:
    header, *lines = text.strip().splitlines() or [""]
    match = re.fullmatch(r"tape (.*)\((.*)\)", header.strip())
    if match is None:
        raise TapeError(f"{where}line 1 is not the head of a tape: {header!r}")
    parser = _Parser(tapes)
    inputs: list[Var] = []
    calls: list[Call] = []
    guards: list[Guard] = []
    outputs: tuple[Operand, ...] | None = None
    caps = 0
    for number, line in enumerate(lines, start=2):
        try:
            body = _as_python(line)
            word, _, rest = body.partition(" ")
            if not body:
                continue
            if word in ("inp", "cap"):
                token, types = rest.split(":")
                inputs.append(parser.define(token, *_avals(types)))
                caps += word == "cap"
            elif word == "guard":
                left, right = rest.split(" = ")
                operand = parser.operand(_expression(left))
                guards.append(Guard(operand, parser.literal(_expression(right))))
            elif word == "out":
                tree = _expression(f"({rest},)" if rest else "()")
                assert isinstance(tree, ast.Tuple)
                outputs = tuple(parser.operand(e) for e in tree.elts)
            else:
                calls.append(parser.call(body))
        except TapeError as error:
            raise TapeError(f"{where}line {number}: {error}: {line.strip()}") from None
        except (SyntaxError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise TapeError(
                f"{where}line {number} doesn't parse as a line of a tape: {line.strip()}"
            ) from error
    if outputs is None:
        raise TapeError(f"{where}the tape has no line `out`")
    if captured and len(captured) != caps:
        raise TapeError(f"the tape has {caps} captured inputs, and {len(captured)} were given")
    names = [n.strip() for n in match[2].split(",") if n.strip()]
    given = tuple("" if n == f"x{k}" else n for k, n in enumerate(names))
    return Tape(match[1], tuple(inputs), tuple(calls), outputs, tuple(guards), captured, given)
