"""Tapes as graphs, and as drawings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from textwrap import dedent

import networkx
import numpy as np
import pytest
from tests.tapes import tape

import tapegrad as tg
from tapegrad.errors import TapeError
from tapegrad.ir.tape import Source, Tape

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


# ---- JSON, and back

C = np.linspace(-1.0, 1.0, 12).reshape(3, 4)[::-1, ::2].T  # which lies otherwise than in order
F = np.linspace(0, 1, 3).astype(np.float32)


def _loops(x):
    h, s = np.tanh(C @ x) + np.float32(0.1), 0.0
    for k in range(50):
        s = np.sin(s) * x[k % 3] + h[k % 2]
        if s > 1:
            s = s * 0.5
    return np.sum(h) * s + np.sum(np.sort(x) * F)


def _guarded(x):
    matrix = np.outer(x, x) + np.eye(3)
    return np.linalg.cholesky(matrix)[1, 1] * (2.0 if x[0] > 0 else -1.0)


PROGRAMS = {
    "loops and captured arrays": _loops,
    "gradient": lambda x: tg.value_and_grad(_loops)(x),
    "Hessian": lambda x: tg.hessian(_loops)(x),
    "guards": _guarded,
    "complex numbers": lambda x: np.abs(np.fft.fft(x)[1]) + np.real(np.exp(1j * x[0])),
    "integers and masks": lambda x: np.sum(np.where(x > 0.2, x, -0.0)) + np.argmax(x) - np.inf,
    "gathers and writes": lambda x: tg.grad(lambda y: np.sum(y[np.array([0, 2, 2])] ** 3))(x),
    "float32": lambda x: np.sum(x.astype(np.float32) * np.float32(0.1)),
    "scan": lambda x: tg.scan(lambda h, v: (h * v, h), 1.0, x),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("what", PROGRAMS)
def test_tapes_come_back_from_json(what):
    """Equal, with lines and reasons, and to the last bit when they are played and compiled."""
    x = np.array([0.3, -0.2, 0.9])
    _, made = tg.trace(PROGRAMS[what], x)
    again = Tape.from_json(made.to_json())
    assert again == made and str(again) == str(made)
    assert [call.reason for call in again.calls] == [call.reason for call in made.calls]
    assert [guard.error for guard in again.guards] == [guard.error for guard in made.guards]
    for run in (Tape.play, lambda tape, x: tape.compile()(x)):
        found, expected = (
            [np.asarray(v).tobytes() for v in _flat(run(t, x))] for t in (again, made)
        )
        assert found == expected
    assert again.to_json() == made.to_json()


def _flat(x):
    return x if isinstance(x, tuple) else (x,)


def test_odd_names_come_back_from_json():
    odd = replace(SMALL, name='a (b), "c"\n', names=("x[0, 1]", "#"))
    assert Tape.from_json(odd.to_json()) == odd
    assert Tape.from_json(odd.to_json()).names == odd.names


def test_what_is_no_tape_in_json():
    _, made = tg.trace(lambda x: (tg.debug.callback(print, x), x * x)[1], 1.0)
    with pytest.raises(TapeError, match=r"user's function 'print', which a text can't hold"):
        Tape.from_json(made.to_json())
    wrong = SMALL.to_json().replace("mul(%1, %1) : f8[3]", "mul(%1, %1) : f8[4]")
    with pytest.raises(TapeError, match=r"a tape of JSON: mul should give f8\[3\]"):
        Tape.from_json(wrong)
    _, guarded = tg.trace(lambda x: x * 2.0 if x > 0.5 else x, 1.0)
    held = json.loads(guarded.to_json())
    for odd in (
        {**held, "text": 3},
        {**held, "notes": []},
        {**held, "notes": [held["notes"][0][:-1]]},
        {**held, "notes": [[*held["notes"][0], *held["notes"][0]]]},
    ):
        with pytest.raises(TapeError, match="isn't JSON of a tape"):
            Tape.from_json(json.dumps(odd))
    for text in ("", "[]", "{}", '{"captured": 3}', "null"):
        with pytest.raises(TapeError, match="isn't JSON of a tape"):
            Tape.from_json(text)
