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
from typing import Any

import numpy as np

from tapegrad.errors import TapeError
from tapegrad.ir.tape import Aval, Call, Guard, Literal, Operand, Tape, Var, dtype_name

# ---- printing


def show(tape: Tape) -> str:
    """The tape as text."""
    nested: list[Tape] = []
    blocks = [_block(tape, nested)]
    done = 0
    while done < len(nested):
        done += 1
        blocks.append(f"@{done} = " + _block(nested[done - 1], nested))
    return "\n\n".join(blocks)


def _block(tape: Tape, nested: list[Tape]) -> str:
    names = [n or f"x{k}" for k, n in enumerate(tape.names or ("",) * len(tape.inputs))]
    rows: list[tuple[str, str]] = []
    free = len(tape.free_inputs)
    for position, var in enumerate(tape.inputs):
        word = "inp" if position < free else "cap"
        label = "" if names[position] == f"x{position}" else names[position]
        rows.append((f"  {word:5} {var} : {var.aval}", label))
    for call in tape.calls:
        rows.append((f"        {show_call(call, nested)}", _comment(call)))
    for guard in tape.guards:
        left = f"  guard {guard.operand} = {guard.expected}"
        rows.append((left, " ".join(filter(None, [str(guard.src or ""), guard.what]))))
    width = min(56, max((len(left) for left, _ in rows), default=0))
    lines = [f"tape {tape.name}({', '.join(names)})"]
    lines += [f"{left:{width}}  # {note}".rstrip() if note else left for left, note in rows]
    lines.append("  out   " + ", ".join(map(str, tape.outputs)))
    return "\n".join(lines)


def show_call(call: Call, nested: list[Tape] | None = None) -> str:
    """One call as text, without its comment."""
    nested = [] if nested is None else nested
    parts = [str(x) for x in call.operands]
    parts += [f"{k}={_show_parameter(v, nested)}" for k, v in call.primitive.parameters()]
    outs = ", ".join(map(str, call.outs))
    avals = ", ".join(str(v.aval) for v in call.outs)
    return f"{outs} = {call.primitive.name}({', '.join(parts)}) : {avals}"


def _show_parameter(value: Any, nested: list[Tape]) -> str:
    if isinstance(value, Tape):
        if value not in nested:
            nested.append(value)
        return f"@{nested.index(value) + 1}"
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, tuple):
        inner = ", ".join(_show_parameter(v, nested) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if callable(value):
        return f"<{getattr(value, '__name__', 'function')}>"
    return str(value) if not isinstance(value, str) else repr(value)


def _comment(call: Call) -> str:
    return "  ".join(filter(None, [str(call.src or ""), call.reason]))


# ---- parsing


def parse(text: str, captured: tuple[np.ndarray, ...] = ()) -> Tape:
    """The tape that prints as `text`; `captured` are the values of its `cap` inputs.

    Raises `TapeError` that names the line if the text isn't a tape, or if it refers to a user's
    function, which a text can't hold.
    """
    head, *others = re.split(r"\n\s*\n(?=@\d+ = )", text.strip())
    tapes: dict[str, Tape] = {}
    for block in reversed(others):  # a sub-tape only refers to later ones
        label, body = block.split(" = ", 1)
        tapes[label] = _parse_block(body, tapes, ())
    return _parse_block(head, tapes, captured)


class _Parser:
    def __init__(self, tapes: dict[str, Tape]) -> None:
        self.tapes = tapes
        self.vars: dict[int, Var] = {}

    def define(self, token: str, aval: Aval) -> Var:
        var = Var(int(token.strip().lstrip("%")), aval)
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
            dtype = np.dtype(node.func.id)
            return Literal(dtype.type(_number(node.args[0])))
        value = _number(node)
        kind = np.bool_ if isinstance(value, bool) else np.dtype(type(value)).type
        return Literal(kind(value))

    def parameter(self, node: ast.expr) -> Any:
        from tapegrad.primitives.base import Slice

        if isinstance(node, ast.Tuple):
            return tuple(self.parameter(e) for e in node.elts)
        if isinstance(node, ast.Name) and node.id.startswith("T_"):
            return self.tapes["@" + node.id[2:]]
        if isinstance(node, ast.Name):
            return np.dtype(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "Slice":
                return Slice(*[ast.literal_eval(a) for a in node.args])
            raise TapeError(f"unknown parameter {ast.unparse(node)}")
        return ast.literal_eval(node)

    def call(self, left: str, right: str, types: str) -> Call:
        from tapegrad.primitives import by_name

        node = ast.parse(_as_python(right), mode="eval").body
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise TapeError(f"not a call: {right}")
        operands = tuple(self.operand(a) for a in node.args)
        parameters = {str(k.arg): self.parameter(k.value) for k in node.keywords}
        try:
            declared = by_name(node.func.id)
        except KeyError:
            raise TapeError(f"there is no primitive called {node.func.id}") from None
        primitive = declared(**parameters) if isinstance(declared, type) else declared
        avals = _parse_avals(types)
        outs = tuple(
            self.define(token, aval) for token, aval in zip(left.split(","), avals, strict=True)
        )
        return Call(primitive, operands, outs)


def _number(node: ast.expr) -> Any:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.Name):
        return float(node.id)  # nan, inf
    return ast.literal_eval(node)


def _as_python(text: str) -> str:
    return re.sub(r"@(\d+)", r"T_\1", re.sub(r"%(\d+)", r"V_\1", text))


def _parse_avals(text: str) -> list[Aval]:
    avals = []
    for name, weak, dims in re.findall(r"([a-z]\d+)(\*?)\[([\d,]*)\]", text):
        shape = tuple(int(n) for n in dims.split(",") if n)
        avals.append(Aval(shape, np.dtype(name), weak=bool(weak)))
    return avals


def _parse_block(text: str, tapes: dict[str, Tape], captured: tuple[np.ndarray, ...]) -> Tape:
    header, *lines = text.strip().splitlines()
    match = re.fullmatch(r"tape (.*)\((.*)\)", header.strip())
    if match is None:
        raise TapeError(f"line 1 is not the head of a tape: {header!r}")
    parser = _Parser(tapes)
    names = [n.strip() for n in match[2].split(",") if n.strip()]
    inputs: list[Var] = []
    calls: list[Call] = []
    guards: list[Guard] = []
    outputs: tuple[Operand, ...] | None = None
    for number, line in enumerate(lines, start=2):
        body = line.split("#", 1)[0].strip()
        word, _, rest = body.partition(" ")
        try:
            if not body:
                continue
            if word in ("inp", "cap"):
                token, types = rest.split(":")
                inputs.append(parser.define(token, *_parse_avals(types)))
            elif word == "guard":
                left, right = _as_python(rest).split("=")
                operand = parser.operand(ast.parse(left.strip(), mode="eval").body)
                expected = parser.literal(ast.parse(right.strip(), mode="eval").body)
                guards.append(Guard(operand, expected))
            elif word == "out":
                tree = ast.parse(f"({_as_python(rest)},)", mode="eval").body
                assert isinstance(tree, ast.Tuple)
                outputs = tuple(parser.operand(e) for e in tree.elts)
            else:
                left, _, right = body.partition(" = ")
                right, _, types = right.rpartition(" : ")
                calls.append(parser.call(left, right, types))
        except TapeError as error:
            raise TapeError(f"line {number}: {error}: {line.strip()}") from None
        except (SyntaxError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise TapeError(f"line {number} doesn't parse as a call: {line.strip()}") from error
    if outputs is None:
        raise TapeError("the tape has no line `out`")
    plain = tuple("" if n == f"x{k}" else n for k, n in enumerate(names))
    return Tape(match[1], tuple(inputs), tuple(calls), outputs, tuple(guards), captured, plain)
