"""Tapes as graphs: for networkx, and as a drawing in Graphviz's language.

Values and calls are both nodes; edges run along the data, from operands to calls to results.
Literals are part of a call's label and have no node of their own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegrad.core.values import dtype_called
from tapegrad.errors import TapeError
from tapegrad.ir.tape import Call, Literal, Source, Tape, Var, dtype_name
from tapegrad.ir.text import parse, show, show_call

if TYPE_CHECKING:
    import networkx

EMPTY: Mapping[tuple[Var, ...], str] = {}
FORWARD = "darkgreen"
BACKWARD = "blue"


def to_networkx(tape: Tape) -> networkx.DiGraph:
    """The tape as a graph whose nodes are named `%3` (a value) and `call 2` (the third call).

    Nodes have a `kind` ("input", "captured", "value", "call", or "literal" for an output that is
    one), a `label`, and whether they are an `output`. Values have their `aval`; calls have their
    `primitive`, `src`, `reason` and `backward`. An edge into a call has the `positions` at which
    the call reads the value.
    """
    import networkx

    graph = networkx.DiGraph(name=tape.name)
    outputs = set(tape.outputs)

    def value(var: Var, kind: str, name: str = "") -> None:
        label = f"{var} {name}".rstrip() + f" : {var.aval}"
        graph.add_node(str(var), kind=kind, label=label, aval=var.aval, output=var in outputs)

    names = tape.names or ("",) * len(tape.inputs)
    free = len(tape.free_inputs)
    for position, (var, name) in enumerate(zip(tape.inputs, names, strict=True)):
        value(var, "input" if position < free else "captured", name)
    nested: list[Tape] = []  # sub-tapes, in the order of the numbers with which they print
    for number, call in enumerate(tape.calls):
        node = f"call {number}"
        graph.add_node(
            node,
            kind="call",
            label=call_label(call, nested),
            primitive=call.primitive,
            src=call.src,
            reason=call.reason,
            backward=call.is_cotangent,
            output=False,
        )
        for x in dict.fromkeys(call.operands):
            if isinstance(x, Var):
                positions = tuple(k for k, y in enumerate(call.operands) if y == x)
                graph.add_edge(str(x), node, positions=positions)
        for out in call.outs:
            value(out, "value")
            graph.add_edge(node, str(out))
    for x in tape.outputs:
        if isinstance(x, Literal):
            graph.add_node(str(x), kind="literal", label=str(x), aval=x.aval, output=True)
    return graph


def call_label(call: Call, nested: list[Tape]) -> str:
    """The call as the tape prints it, without its results: `mul(%2, 2.0)`."""
    return show_call(call, nested).partition(" = ")[2].rpartition(" : ")[0]


def to_json(tape: Tape) -> str:
    """The graph as JSON, in which types, primitives and source lines are strings, with the tape as
    text, by which `from_json` makes it again."""
    graph = to_networkx(tape)
    nodes = [{"id": node, **data} for node, data in graph.nodes(data=True)]
    edges = [{"source": a, "target": b, **data} for a, b, data in graph.edges(data=True)]
    found: dict[str, Any] = {"name": tape.name, "nodes": nodes, "edges": edges}
    found["text"] = show(replace(tape, name="tape", names=()))
    found["captured"] = [_array_text(x) for x in tape.captured]
    found["notes"] = list(_notes(tape))
    found["outside"] = [_line(src) for src in tape.outside]
    found["fields"] = {name: getattr(tape, name) for name in _FIELDS}
    return json.dumps(found, default=str)


_FIELDS = ("names", "output_names", "ordered", "matrices", "into")


def from_json(text: str) -> Tape:
    """The tape that `to_json` has written."""
    try:
        found = json.loads(text)
        captured = tuple(map(_array, found["captured"]))
        tape = parse(found["text"], captured)
        tape = _with_notes(tape, iter(found["notes"]))
        fields = {name: found["fields"][name] for name in _FIELDS}
        fields["outside"] = tuple([src and Source(*src) for src in found["outside"]])
        fields["into"] = tuple(map(tuple, fields["into"]))
        fields.update(names=tuple(fields["names"]), output_names=tuple(fields["output_names"]))
        return replace(tape, name=found["name"], **fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, TapeError):
            raise
        raise TapeError(
            f"this isn't JSON of a tape, as tape.to_json() writes it: {error}"
        ) from None


def _notes(tape: Tape) -> Iterator[Any]:
    """Of this tape, and of those that its calls hold: of each call and guard the line, and why it
    is there."""
    noted = [(c.src, c.reason) for c in tape.calls] + [(g.src, g.what) for g in tape.guards]
    yield [[_line(src), why] for src, why in noted]
    for call in tape.calls:
        for inner in call.primitive.tapes:
            yield from _notes(inner)


def _line(src: Source | None) -> list[Any] | None:
    return None if src is None else [src.file, src.line, src.function]


def _with_notes(tape: Tape, notes: Iterator[Any]) -> Tape:
    """The tape with the next notes, in the same order."""
    mine = [(src and Source(*src), why) for src, why in next(notes, ())]
    first = len(tape.calls)
    of_calls = zip(tape.calls, mine[:first], strict=True)
    of_guards = zip(tape.guards, mine[first:], strict=True)
    calls = [replace(c, src=src, reason=why) for c, (src, why) in of_calls]
    guards = [replace(g, src=src, what=why) for g, (src, why) in of_guards]
    for k, call in enumerate(calls):
        if held := call.primitive.tapes:
            inner = [_with_notes(each, notes) for each in held]
            calls[k] = replace(call, primitive=call.primitive.with_tapes(inner))
    return replace(tape, calls=tuple(calls), guards=tuple(guards))


def _array_text(x: np.ndarray) -> list[Any]:
    return [dtype_name(x.dtype), x.shape, x.strides, base64.b64encode(x.tobytes()).decode()]


def _array(held: Any) -> np.ndarray:
    """The array, which lies in memory as it did: the last bits of products depend on that."""
    name, shape, strides, content = held
    found = np.frombuffer(base64.b64decode(content), dtype_called(name)).reshape(shape)
    ends = [step * (n - 1) for step, n in zip(strides, shape, strict=True) if n]
    first = -sum(end for end in ends if end < 0)
    memory = np.zeros(first + sum(end for end in ends if end > 0) + found.itemsize, np.uint8)
    laid: np.ndarray = np.ndarray(shape, found.dtype, memory, first, strides)
    laid[...] = found
    return laid


def to_dot(tape: Tape, marked: Mapping[tuple[Var, ...], str] = EMPTY) -> str:
    """The tape in Graphviz's language: `dot -Tsvg` draws it.

    Ellipses are values, octagons outputs and boxes calls; the forward half is green, the backward
    half blue. A call's tooltip is the user's line and the reason for the call. Those that define
    what is `marked` are red, with this text.
    """
    lines = [f"digraph {_quoted(tape.name)} {{", "  node [fontname=monospace];"]
    graph = to_networkx(tape)
    texts = {f"call {k}": marked[c.outs] for k, c in enumerate(tape.calls) if c.outs in marked}
    for node, data in graph.nodes(data=True):
        lines.append(f"  {_quoted(node)} [{_attributes(data, texts.get(node))}];")
    lines += [f"  {_quoted(start)} -> {_quoted(end)};" for start, end in graph.edges]
    return "\n".join([*lines, "}", ""])


def _attributes(data: dict[str, Any], marked: str | None = None) -> str:
    attributes = {"label": data["label"]}
    if data["kind"] == "call":
        attributes["shape"] = "box"
        attributes["color"] = BACKWARD if data["backward"] else FORWARD
        note = "  ".join(filter(None, [str(data["src"] or ""), data["reason"]]))
        if note:
            attributes["tooltip"] = note
        if marked is not None:
            attributes["label"] += f"\n{marked}"
            attributes.update(color="red", style="filled", fillcolor="mistyrose")
    else:
        attributes["shape"] = "octagon" if data["output"] else "ellipse"
        if data["kind"] in ("input", "captured"):
            attributes["style"] = "bold" if data["kind"] == "input" else "dashed"
    return ", ".join(f"{key}={_quoted(text)}" for key, text in attributes.items())


def _quoted(text: str) -> str:
    """A string of Graphviz: only quotes and backslashes are special, and line ends are `\\n`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
