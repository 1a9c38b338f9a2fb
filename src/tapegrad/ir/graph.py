"""Tapes as graphs: for networkx, and as a drawing in Graphviz's language.

Values and calls are both nodes; edges run along the data, from operands to calls to results.
Literals are part of a call's label and have no node of their own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tapegrad.ir.tape import Call, Literal, Tape, Var
from tapegrad.ir.text import show_call

if TYPE_CHECKING:
    import networkx

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
    """The graph as JSON. Types, primitives and source lines become strings."""
    graph = to_networkx(tape)
    nodes = [{"id": node, **data} for node, data in graph.nodes(data=True)]
    edges = [{"source": a, "target": b, **data} for a, b, data in graph.edges(data=True)]
    return json.dumps({"name": tape.name, "nodes": nodes, "edges": edges}, default=str)


def to_dot(tape: Tape) -> str:
    """The tape in Graphviz's language: `dot -Tsvg` draws it.

    Ellipses are values, octagons outputs and boxes calls; the forward half is green, the backward
    half blue. A call's tooltip is the user's line and the reason for the call.
    """
    lines = [f"digraph {_quoted(tape.name)} {{", "  node [fontname=monospace];"]
    graph = to_networkx(tape)
    for node, data in graph.nodes(data=True):
        lines.append(f"  {_quoted(node)} [{_attributes(data)}];")
    lines += [f"  {_quoted(start)} -> {_quoted(end)};" for start, end in graph.edges]
    return "\n".join([*lines, "}", ""])


def _attributes(data: dict[str, Any]) -> str:
    attributes = {"label": data["label"]}
    if data["kind"] == "call":
        attributes["shape"] = "box"
        attributes["color"] = BACKWARD if data["backward"] else FORWARD
        note = "  ".join(filter(None, [str(data["src"] or ""), data["reason"]]))
        if note:
            attributes["tooltip"] = note
    else:
        attributes["shape"] = "octagon" if data["output"] else "ellipse"
        if data["kind"] in ("input", "captured"):
            attributes["style"] = "bold" if data["kind"] == "input" else "dashed"
    return ", ".join(f"{key}={_quoted(text)}" for key, text in attributes.items())


def _quoted(text: str) -> str:
    """A string of Graphviz: only quotes and backslashes are special, and line ends are `\\n`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
