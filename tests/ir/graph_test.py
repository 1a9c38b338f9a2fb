"""Tapes as graphs, and as drawings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from textwrap import dedent

import networkx
import numpy as np
from tests.tapes import tape

import tapegrad as tg
from tapegrad.ir.tape import Source

SMALL = tape("f8[3] f8[]", "%3 = mul(%1, %1) : f8[3]\n%4 = add(%3, 2.0) : f8[3]\nout %4, %2, 1.0")


def test_values_and_calls_are_nodes_and_edges_run_along_the_data():
    graph = SMALL.to_networkx()
    assert isinstance(graph, networkx.DiGraph)
    assert list(graph.edges) == [
        ("%1", "call 0"),
        ("call 0", "%3"),
        ("%3", "call 1"),
        ("call 1", "%4"),
    ]
    assert networkx.is_directed_acyclic_graph(graph)


def test_nodes_say_what_they_are():
    nodes = SMALL.to_networkx().nodes
    assert {name: data["kind"] for name, data in nodes.items()} == {
        "%1": "input",
        "%2": "input",
        "call 0": "call",
        "%3": "value",
        "call 1": "call",
        "%4": "value",
        "1.0": "literal",
    }
    assert nodes["%3"]["aval"] == SMALL.calls[0].out.aval
    assert nodes["call 1"]["label"] == "add(%3, 2.0)"
    assert [name for name, data in nodes.items() if data["output"]] == ["%2", "%4", "1.0"]


def test_an_edge_knows_where_a_call_reads_its_operand():
    assert SMALL.to_networkx().edges["%1", "call 0"]["positions"] == (0, 1)


def test_calls_know_their_line_and_their_half():
    df = tg.grad(lambda x: np.sin(x) * x, compile="never")
    df(1.0)
    calls = [d for _, d in df.tapes[0].to_networkx().nodes(data=True) if d["kind"] == "call"]
    assert {data["backward"] for data in calls} == {True, False}
    assert calls[0]["src"].text.startswith("df = tg.grad")
    assert all(data["backward"] == ("cotangent" in data["reason"]) for data in calls)


def test_captured_inputs_and_names_are_shown():
    c = np.ones(3)
    _, made = tg.trace(lambda weights: weights * c, np.ones(3))
    nodes = made.to_networkx().nodes
    assert nodes["%1"]["label"] == "%1 weights : f8[3]"
    assert nodes["%2"]["kind"] == "captured"


def test_a_drawing_has_ellipses_boxes_and_octagons():
    assert SMALL.to_dot() == dedent(
        """\
        digraph "f" {
          node [fontname=monospace];
          "%1" [label="%1 : f8[3]", shape="ellipse", style="bold"];
          "%2" [label="%2 : f8[]", shape="octagon", style="bold"];
          "call 0" [label="mul(%1, %1)", shape="box", color="darkgreen"];
          "%3" [label="%3 : f8[3]", shape="ellipse"];
          "call 1" [label="add(%3, 2.0)", shape="box", color="darkgreen"];
          "%4" [label="%4 : f8[3]", shape="octagon"];
          "1.0" [label="1.0", shape="octagon"];
          "%1" -> "call 0";
          "call 0" -> "%3";
          "%3" -> "call 1";
          "call 1" -> "%4";
        }
        """
    )


def test_the_graph_as_json():
    read = json.loads(SMALL.to_json())
    assert read["name"] == "f"
    graph = SMALL.to_networkx()
    assert [node["id"] for node in read["nodes"]] == list(graph)
    assert [(edge["source"], edge["target"]) for edge in read["edges"]] == list(graph.edges)
    (call,) = [node for node in read["nodes"] if node["id"] == "call 1"]
    assert call["label"] == "add(%3, 2.0)" and call["primitive"] == "add"
    _, made = tg.trace(lambda x: tg.scan(lambda h, _: (h * x, None), x, length=9)[0], np.ones(3))
    assert "scan" in made.to_json() or "loop" in made.to_json()


def test_the_backward_half_is_blue():
    backward = replace(SMALL.calls[1], reason="cotangent via exp", src=Source("model.py", 12))
    drawing = replace(SMALL, calls=(SMALL.calls[0], backward)).to_dot()
    assert 'shape="box", color="blue", tooltip="model.py:12  cotangent via exp"' in drawing


def test_quotes_backslashes_and_line_ends_are_escaped():
    odd = 'a "name"\\with\nall'
    drawing = replace(SMALL, name=odd, names=(odd, "")).to_dot()
    assert drawing.startswith(r'digraph "a \"name\"\\with\nall" {')
    assert r'label="%1 a \"name\"\\with\nall : f8[3]"' in drawing


def test_networkx_is_imported_when_it_is_needed():
    program = "import sys, tapegrad; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
