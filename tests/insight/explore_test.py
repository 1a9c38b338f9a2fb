"""The explorer: what its page holds, that lines that belong together are linked, and what a browser
makes of it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.insight.browser import CHROMIUM, Browser

import tapegrad
from tapegrad import grad, jit, pipeline, value_and_grad
from tapegrad.__main__ import main
from tapegrad.errors import ArgumentError, TraceError
from tapegrad.insight.explorer.graph import HEIGHT, WIDTH, drawing
from tapegrad.insight.explorer.links import linked, numbered
from tapegrad.insight.explorer.passes import compared, seen

X = np.linspace(0.1, 1, 30)


def inner(x):
    """It has </script><script>alert(1)</script> & "quotes"."""
    return np.exp(np.sin(x))


def loss(x, w):
    total = 0.0
    for k in range(30):
        total = total + np.sin(x[k]) * total + w[k]
    return total + np.sum(inner(x * w) ** 2)


def of_loss(compile="never"):
    return value_and_grad(loss, compile=compile).explore(X, X + 1, calls=2)


def line_of(function, text):
    """Where a line of a function stands in this file."""
    lines = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    return next(k for k in range(first, first + 20) if text in lines[k - 1])


# ---- which lines belong together


def test_a_line_its_calls_their_steps_and_the_source():
    data = of_loss().to_dict()
    place = {row[1]: k for k, row in enumerate(data["program"])}
    line = place[line_of(inner, "np.exp(np.sin(x))")]
    calls = [k for k, at in enumerate(data["calls"]) if at == line]
    assert {"sin", "exp"} <= {
        word for text, k in data["tape"] if k in calls for word in words(text)
    }
    steps = {k for k, own in enumerate(data["steps"]) if set(own) & set(calls)}
    shown = [text for text, k in data["plan"] if k in steps]
    assert any("sin(" in text for text in shown) and any("exp(" in text for text in shown)
    rows = [text for text, own in data["source"] if set(own) & steps]
    assert any("exp(" in text for text in rows)
    # And back: what computes an exponential comes from that line alone.
    of_exp = [own for text, own in data["source"] if "exp(" in text.split("#")[0]]
    assert of_exp and all(line in lines_of(data, own) for own in of_exp)


def lines_of(data, steps):
    return {data["calls"][call] for step in steps for call in data["steps"][step]}


def words(text):
    return re.findall(r"\w+", text)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_numbers_change_no_plan_and_no_source(compile):
    df = value_and_grad(loss, compile=compile)
    df(X, X)
    best = pipeline.at_its_best(df.tape)
    marked, calls = numbered(best)
    program, plain = pipeline.schedule(marked), pipeline.schedule(best)
    found = linked(marked, calls, program)
    assert [k.text for k in program.kernels] == [k.text for k in plain.kernels]
    assert "\n".join(text for text, _ in found.tape) == str(best)
    assert "\n".join(text for text, _ in found.plan).startswith(f"plan {best.name}(")
    source = "\n".join(text for text, _ in found.source)
    assert all(kernel.text in source for kernel in plain.kernels)
    assert marked == best and {k for _, k in found.tape} >= set(range(len(best.calls)))


def test_each_line_of_a_kernel_has_the_step_that_wrote_it():
    df = value_and_grad(loss, compile="never")
    df(X, X)
    for kernel in pipeline.schedule(pipeline.at_its_best(df.tape)).kernels:
        lines = kernel.text.splitlines()[-len(kernel.steps) :]
        for text, step in zip(lines, kernel.steps, strict=True):
            if re.match(r"\s+for ", text):
                assert step.text is not None and "Comp" not in type(step).__name__
            if "reshaped(" in text:
                assert step is None


def test_calls_of_numpy_between_kernels_are_linked():
    def f(x):
        return np.sum(np.fft.fft(x).real * x)

    data = grad(f, compile="never").explore(X, calls=1).to_dict()
    rows = [own for text, own in data["source"] if "= fft(" in text or "fft(" in text.split("#")[0]]
    assert rows and any(rows)


# ---- passes


def test_passes_lead_from_the_traced_tape_to_the_one_that_is_compiled():
    df = value_and_grad(loss, compile="never")
    best, stages = seen(lambda: pipeline.at_its_best(df.lower(X, X)._variant.tape))
    names = [stage.name for stage in stages]
    assert names.index("reverse") < names.index("reorder") and "simplify" in names
    assert all(a.after == b.before for a, b in itertools.pairwise(stages))
    assert not any(call.is_cotangent for call in stages[0].before.calls)
    assert stages[-1].after == best
    assert pipeline.shown.get() is None


def test_what_a_pass_has_changed_is_marked():
    def f(x):
        return np.sum((x * 1.0) ** 2)

    _, tape = tapegrad.trace(f, X)
    after = pipeline.run_passes(tape, pipeline.BEFORE)
    gone, made = ([row.text for row in rows if row.changed] for rows in compared(tape, after))
    assert any("mul(%1, 1.0)" in text for text in gone)
    assert not any("sum(" in text for text in (*gone, *made))  # it only has another number
    assert all(not row.changed for rows in compared(tape, tape) for row in rows)


# ---- the graph


@pytest.mark.parametrize("wide", [False, True])
def test_nodes_stand_apart(wide):
    def f(x):
        parts = [np.sin(x * k) for k in range(60)] if wide else [inner(inner(x))]
        return np.sum(sum(parts))

    tape = grad(f, compile="never").lower(X).tape
    found = drawing(tape)
    places = {(node.x, node.y) for node in found.nodes}
    assert len(places) == len(found.nodes) == len(tape.calls) + len(tape.inputs)
    for lane in found.lanes:
        assert lane.right - lane.left < (WIDTH + 20) * (12 if wide else 5)
    ordered = sorted(found.nodes, key=lambda node: (node.y, node.x))
    for a, b in itertools.pairwise(ordered):
        assert a.y != b.y or b.x >= a.x + WIDTH
    assert all(b.y - a.y >= HEIGHT for a, b in itertools.pairwise(ordered) if a.y != b.y)


def test_functions_of_the_program_have_lanes_in_each_half():
    lanes = of_loss().to_dict()["graph"]["lanes"]
    names = {(name, is_reverse) for name, is_reverse, *_ in lanes}
    assert {("inner", 0), ("inner", 1), ("loss", 0), ("loss", 1)} <= names


# ---- the page


def test_the_page_is_one_file_whatever_the_program_says():
    text = of_loss().html
    assert text.count("<script") == text.count("</script>") == 2
    assert "alert(1)" not in text and "http" not in text.split("<body>")[0].split("</style>")[0]
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', text)[1]
    data = json.loads(zlib.decompress(base64.b64decode(packed)))
    html = "".join(row[2] for row in data["program"])
    assert "&lt;/script&gt;" in html and "</script>" not in html


def test_it_shows_what_explain_and_profile_know():
    data = of_loss(compile="always").to_dict()
    assert data["answered"].startswith("variant 1 of 1, by machine code") and data["kernels"] >= 1
    assert data["why"][1][1][0].endswith("is a loop of the tape, of up to 30 rounds")
    assert len(data["memory"]["live"]) == len(data["memory"]["half"]) > 10
    assert data["memory"]["peak"] == sum(x.nbytes for x in data["memory"]["buffers"])
    assert data["memory"]["played"] == ("played" in data["answered"])
    kernel = next(part for part in data["speed"]["parts"] if part["name"] == "kernel 1")
    assert kernel["flops"] > 0 and kernel["nbytes"] > 0
    assert sum(row[3] for row in data["program"]) > 0 and sum(row[6] for row in data["program"]) > 0
    if data["machine"]["note"]:
        assert "tapegrad[explore]" in data["machine"]["note"]
    else:
        assert any("ret" in line for line, _ in data["machine"]["kernels"][0][2])


def test_machine_code_has_the_lines_of_its_source():
    """The code that answers, with LLVM's own lines: of products multiply-adds, of calls calls."""
    pytest.importorskip("capstone")
    data = of_loss(compile="always").to_dict()
    assert data["machine"]["kernels"]
    for name, _, rows, _, is_another in data["machine"]["kernels"]:
        assert not is_another
        of = {row for _, row in rows if row >= 0}
        source = [k for k, (text, _) in enumerate(data["source"]) if f"def {name}(" in text]
        assert min(of) >= source[0] and len(of) > 5
    lines = [(text, data["source"][row][0]) for text, row in rows if row >= 0]
    called = {source for text, source in lines if re.search(r"\bcall|\bbl", text)}
    assert any("exp(" in x or "sin(" in x for x in called)
    linked = {k for _, row in rows if row >= 0 for k in lines_of(data, data["source"][row][1])}
    at = {row[1]: k for k, row in enumerate(data["program"])}
    assert at[line_of(inner, "np.exp(np.sin(x))")] in linked


def test_tables_of_lines_are_those_of_the_files():
    """As another reader has them, byte for byte; no table, and one of another version, are none."""
    from tapegrad.insight.explorer.numbers import _read, table

    steps = bytes(
        [0, 9, 2, *bytes(8), 3, 6, 1, 2, 0x80, 1, 3, 0x7F, 1, 8, 1, 0x4B, 9, 5, 0, 1, 0, 1, 1]
    )
    head = bytes([1, 1, 1, 0xFB, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0])
    for version, rest in ((4, head), (3, head[:1] + head[2:])):
        body = version.to_bytes(2, "little") + len(rest).to_bytes(4, "little") + rest + steps
        data = len(body).to_bytes(4, "little") + body
        rows = [(0x30, 7), (0xB0, 6), (0xC1, 6), (0xC5, 7), (0xCA, 7), (0xCA, 0)]
        assert _read(data, {len(data) - len(steps) + 3: 0x30}) == rows
    assert _read(data[:4] + b"\x05" + data[5:], {}) == []
    (code,) = value_and_grad_kernels()
    assert table(code) == []


def value_and_grad_kernels():
    df = grad(lambda x: np.sum(x * x), compile="always")
    df(X)
    return df._last().tier.found.kernels.values()


def test_guards_have_their_lines():
    def f(x):
        return np.sum(np.sin(x)) if x[0] > 0 else np.sum(x)

    (guard,) = grad(f, compile="never").explore(X, calls=1).to_dict()["guards"]
    assert guard[0].endswith("= True") and guard[2].startswith("explore_test.py:") and guard[3] >= 0


def test_what_has_no_machine_code(monkeypatch):
    from tapegrad.errors import UnsupportedError
    from tapegrad.insight.explorer import page

    def refuses(tape):
        raise UnsupportedError("not this one")

    monkeypatch.setattr(page, "schedule", refuses)
    data = of_loss().to_dict()
    assert not data["plan"] and not data["source"] and data["kernels"] == 0
    assert "NumPy plays" in data["machine"]["note"] and data["tape"]


def test_ways_to_ask(tmp_path):
    class Model:
        scale = 2.0

        @grad
        def slope(self, x):
            return np.sum(x**2) * self.scale

    found = tapegrad.explore(inner, X, calls=1)
    assert found.to_dict()["name"] == "inner"
    assert repr(found).startswith("<the page of inner")
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == found.html
    assert found._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert jit(inner).explore(X, calls=1).to_dict()["name"] == "inner"
    with pytest.raises(ArgumentError, match="from 1 up, not 0"):
        grad(loss).explore(X, X, calls=0)
    with pytest.raises(TraceError, match="explored inside of a function that is traced"):
        grad(lambda x: np.sum(x) * len(grad(loss).explore(x, x).html))(X)


def test_places_of_results_are_written():
    out = np.zeros(30)
    df = grad(loss, out=out, compile="never")
    assert df.explore(X, X + 1, calls=1).to_dict()["name"]
    np.testing.assert_allclose(out, grad(loss)(X, X + 1))


def test_libraries_that_are_missing_are_named(monkeypatch):
    for name in ("jinja2", "pygments"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(ImportError, match=rf"needs {name}.*tapegrad\[explore\]"):
                grad(loss).explore(X, X)
    monkeypatch.setitem(sys.modules, "capstone", None)
    note = of_loss(compile="always").to_dict()["machine"]["note"]
    assert "capstone" in note and "tapegrad[explore]" in note


# ---- the command line

PROGRAM = """
import sys
import numpy as np
from tapegrad import grad

def f(x, n):
    return np.sum(np.sin(x) * n)

def other(x):
    return np.sum(x)

df = grad(f, compile="never")
if __name__ == "__main__":
    df(np.ones(5), 4)
    df(np.ones(7), 4)
    sys.exit()
"""


def has_input(page, shape):
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', page.read_text())[1]
    data = json.loads(zlib.decompress(base64.b64decode(packed)))
    return any(f"inp   %1 : {shape}" in text for text, _ in data["tape"])


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("said", "shape"),
    [
        (["f"], "f8[7]"),
        (["df"], "f8[7]"),
        (["df", "np.ones(3)", "2"], "f8[3]"),
        (["other", "np.ones(2)"], "f8[2]"),
    ],
)
def test_command(said, shape, tmp_path, monkeypatch):
    """Of the program's own call, or of arguments that are said."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    name, *arguments = said
    found = CliRunner().invoke(main, ["explore", f"program.py:{name}", *arguments])
    written = f"program-{name}.html"
    assert found.output == f"{written}: open it in a browser\n" and found.exit_code == 0
    assert has_input(tmp_path / written, shape)
    assert getattr(sys.modules["__main__"], "__file__", "") != "program.py"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("program.py:other", r"makes no call of other .* arguments \(x\) as expressions"),
        ("program.py:none", "program.py has nothing called none"),
        ("absent.py:f", "absent.py can't be read: No such file"),
        ("program.py", "say the program and the function: program.py:f"),
    ],
)
def test_what_the_command_refuses(target, message, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["explore", target])
    assert found.exit_code and re.search(message, found.output)


FAILS = """
import numpy as np
from tapegrad import grad

def f(x):
    if len(x) == 3:
        raise ValueError("three are too few")
    return np.sum(np.linalg.inv(x))

df = grad(f, compile="never")
CALLS
"""


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("calls", "arguments", "shape"),
    [
        ("df(np.eye(5))\ndf(np.eye(3))", [], "f8[5,5]"),
        ("df(np.eye(3))", ["np.eye(4)"], "f8[4,4]"),
    ],
)
def test_a_program_that_raises_has_a_page(calls, arguments, shape, tmp_path, monkeypatch):
    """Of the last call before, or of arguments that are said; and the error is said in a line."""
    (tmp_path / "program.py").write_text(FAILS.replace("CALLS", calls))
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["explore", "program.py:f", *arguments])
    assert found.exit_code == 0
    assert "program.py raised ValueError: three are too few\n" in found.output
    assert has_input(tmp_path / "program-f.html", shape)


@pytest.mark.every(2)
@pytest.mark.parametrize("arguments", [[], ["np.eye(3)"]])
def test_without_a_page_the_traceback_is_that_of_the_program(arguments, tmp_path):
    (tmp_path / "program.py").write_text(FAILS.replace("CALLS", "df(np.eye(3))"))
    command = [sys.executable, "-m", "tapegrad", "explore", "program.py:f", *arguments]
    env = {k: v for k, v in os.environ.items() if k not in ("TAPEGRAD_DEBUG", "TAPEGRAD_TRACEBACK")}
    found = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1 and not list(tmp_path.glob("*.html"))
    frames = re.findall(r'File "([^"]+)"', found.stderr.partition("ValueError")[0])
    assert frames and {Path(x).name for x in frames} <= {"program.py", "<string>"}
    assert found.stderr.endswith("ValueError: three are too few\n")


# ---- in a browser


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.fixture
def page(browser, tmp_path):
    of_loss(compile="always").save(tmp_path / "page.html")
    browser.errors.clear(), browser.asked.clear()
    browser.open(tmp_path / "page.html")
    yield browser
    assert browser.errors == []
    assert [url for url in browser.asked if not url.startswith(("file:", "blob:", "data:"))] == []


def marked(browser, pane, cls="near"):
    """The rows of a pane that are marked."""
    return browser.value(
        f"[...document.querySelectorAll('#{pane} .row.{cls}')].map(x => x.textContent)"
    )


def row(browser, pane, text):
    """The place of the first row of a pane that has this text."""
    found = browser.value(
        f"[...document.querySelectorAll('#{pane} .row')]"
        f".findIndex(x => x.textContent.includes({text!r}))"
    )
    assert found >= 0, (pane, text)
    return browser.place(f"#{pane} .row", found)


@pytest.mark.every(2)
@needs_browser
@pytest.mark.parametrize(
    ("pane", "text"),
    [("program", "np.exp(np.sin(x))"), ("tape", "= exp("), ("plan", "= exp("), ("source", "exp(")],
)
def test_hovering_links_all_ways(page, pane, text):
    page.move(*row(page, pane, text))
    assert any("np.exp(np.sin(x))" in line for line in marked(page, "program"))
    for other in ("tape", "plan", "source"):
        assert any("exp(" in line for line in marked(page, other)), other
    page.move(5, 5)
    assert marked(page, "tape") == []


@needs_browser
def test_a_click_keeps_lines_marked_until_escape(page):
    page.click(*row(page, "tape", "= exp("))
    page.move(5, 5)
    assert any("exp(" in line for line in marked(page, "source", "chosen"))
    page.press("3")
    assert page.value("document.querySelector('#graph').hidden") is False
    page.press("Escape")
    assert marked(page, "program", "chosen") == []


@needs_browser
def test_tabs_by_key_and_click(page):
    tabs = page.value("[...document.querySelectorAll('nav button')].map(x => x.textContent)")
    assert tabs == ["Code", "Passes", "Graph", "Memory", "Speed", "Machine code", "Why"]
    for k, name in enumerate(tabs):
        page.press(str(k + 1))
        assert selected(page) == [name]
        page.click(*page.place("nav button", len(tabs) - 1 - k))
        assert selected(page) == [tabs[-1 - k]]


def selected(browser):
    return browser.value(
        "[...document.querySelectorAll('nav button[aria-selected=true]')].map(x => x.textContent)"
    )


@needs_browser
def test_lines_by_arrows(page):
    page.click(*row(page, "tape", "inp "))
    page.value("document.querySelector('#tape .list').focus()")
    while "= exp(" not in " ".join(marked(page, "tape", "cursor")):
        page.press("ArrowDown")
    assert any("exp(" in line for line in marked(page, "plan"))
    page.press("Enter")
    assert any("exp(" in line for line in marked(page, "source", "chosen"))


@needs_browser
def test_passes_with_what_they_change(page):
    page.press("2")
    title = page.value("document.querySelector('#after h2').textContent")
    page.press("]")
    assert page.value("document.querySelector('#after h2').textContent") != title
    names = page.value(
        "[...document.querySelectorAll('#passes .steps button')].map(x => x.textContent)"
    )
    page.click(
        *page.place("#passes .steps button", next(k for k, x in enumerate(names) if "reverse" in x))
    )
    assert len(marked(page, "after", "made")) > 3
    assert all("loop(" in text for text in marked(page, "before", "gone"))  # it keeps more
    page.move(*row(page, "after", "cotangent via exp"))
    assert any("np.exp(np.sin(x))" in line for line in marked(page, "program"))


@needs_browser
def test_graph_zooms_and_links(page):
    page.press("3")
    canvas = "document.querySelector('#graph canvas')"
    page.wait(f"{canvas}.width > 300")
    drawn = page.value(f"{canvas}.toDataURL()")
    x, y = page.place("#graph canvas")
    page.send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-400)
    page.wait(f"{canvas}.toDataURL() !== {drawn!r}")
    left, top, width, height = page.value(
        f"(b => [b.left, b.top, b.width, b.height])({canvas}.getBoundingClientRect())"
    )
    page.value(f"{canvas}.focus()")
    page.press("0")
    for k in range(400):  # somewhere there is a call
        page.move(left + width * (0.05 + 0.9 * (k % 20) / 20), top + height * (k // 20) / 20)
        if marked(page, "program"):
            break
    assert marked(page, "program") and page.value("document.querySelector('#tip').textContent")


@needs_browser
def test_machine_code_links_with_its_kernel(browser, tmp_path):
    found = of_loss()
    (name,) = [
        text[4:].partition("(")[0] for text, _ in found.to_dict()["source"] if "def " in text
    ]
    rows = [["     0  push       rbp", -1], ["     1  ret", -1]]
    kernels = [[name, 8, rows, 3, 0]]
    found.to_dict()["machine"] = {"note": "", "kernels": kernels}
    found.save(tmp_path / "machine.html")
    browser.errors.clear()
    browser.open(tmp_path / "machine.html")
    browser.press("6")
    shown = "[...document.querySelectorAll('#instructions .row')].map(x => x.textContent)"
    assert browser.value(shown) == ["     0  push       rbp", "     1  ret", "... 3 more"]
    browser.move(*browser.place("#instructions .row", 1))
    assert any("np.exp(np.sin(x))" in line for line in marked(browser, "program"))
    browser.move(*row(browser, "program", "np.exp(np.sin(x))"))
    buttons = (
        "[...document.querySelectorAll('#machine .steps button.near')].map(x => x.textContent)"
    )
    assert browser.value(buttons) == [f"{name}  8 B"]
    browser.move(5, 5)
    assert browser.value(buttons) == [] and browser.errors == []


@needs_browser
def test_machine_code_links_both_ways(browser, tmp_path):
    """An instruction and its line of source, and those of the tape, the plan and the program."""
    pytest.importorskip("capstone")
    found = of_loss(compile="always")
    found.save(tmp_path / "lines.html")
    data = found.to_dict()
    browser.errors.clear()
    browser.open(tmp_path / "lines.html")
    browser.press("6")
    line = line_of(inner, "np.exp(np.sin(x))")
    (_, _, rows, *_), *_ = data["machine"]["kernels"]
    place = {row[1]: k for k, row in enumerate(data["program"])}[line]
    k = next(
        k
        for k, (_, row) in enumerate(rows)
        if row >= 0 and lines_of(data, data["source"][row][1]) == {place}
    )
    browser.value(f"document.querySelector('#instructions .list').scrollTop = {max(0, k - 8) * 18}")
    at = (
        f"[...document.querySelectorAll('#instructions .row')].findIndex(x => +x.dataset.k === {k})"
    )
    browser.wait(f"{at} >= 0")
    browser.click(*browser.place("#instructions .row", browser.value(at)))
    assert any("np.exp(np.sin(x))" in text for text in marked(browser, "program", "chosen"))
    assert marked(browser, "of", "chosen") and marked(browser, "instructions", "chosen")
    browser.press("1")
    for panel in ("tape", "plan", "source"):
        assert marked(browser, panel, "chosen"), panel
        place = f"document.querySelector('#{panel} .row.chosen').getBoundingClientRect()"
        assert 0 < browser.value(f"{place}.top") < browser.value("innerHeight"), panel
    browser.press("Escape")
    browser.move(*row(browser, "program", "np.exp(np.sin(x))"))
    browser.press("6")
    assert browser.value("links.near && links.near.row.size > 0")
    browser.click(*row(browser, "program", "np.exp(np.sin(x))"))
    browser.wait("document.querySelector('#instructions .row.chosen')")
    assert browser.errors == []


@needs_browser
def test_dark_and_light(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.value(colour)
    page.press("t")
    assert page.value(colour) != before
    page.press("t")
    assert page.value(colour) == before


@needs_browser
def test_print_has_all_of_it(page):
    assert page.printed().startswith(b"%PDF")
    rows = "document.querySelectorAll('#tape .row').length"
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value(rows) == page.value("data.tape.length")
    assert page.value("document.querySelectorAll('[role=tabpanel][hidden]').length") == 0


@needs_browser
def test_large_programs(browser, tmp_path):
    """500 calls are less than 1 MB; of 10,000 the page holds those that are seen."""

    parts = ["np.sin(y)", "np.exp(-y * y)", "y * x + 0.25", "np.tanh(y) - y", "np.sqrt(y * y + 2)"]
    rng = np.random.default_rng(0)
    lines = [f"    y = {parts[k]}" for k in rng.integers(0, 5, 130)]
    text = "\n".join(
        ["import numpy as np", "def f(x):", "    y = x", *lines, "    return np.sum(y)"]
    )
    (tmp_path / "program.py").write_text(text)
    names = runpy.run_path(str(tmp_path / "program.py"))
    found = value_and_grad(names["f"], compile="never").explore(X, calls=1)
    data = found.to_dict()
    assert len(data["calls"]) > 500 and len(found.html) < 1_000_000
    times = -(-10_000 // len(data["calls"]))
    data["tape"] = data["tape"] * times
    data["source"] = data["source"] * times
    data["memory"]["live"], data["memory"]["half"] = [
        [*data["memory"][x] * times] for x in ("live", "half")
    ]
    nodes, edges, size = data["graph"]["nodes"], data["graph"]["edges"], len(data["graph"]["nodes"])
    high = max(node[1] for node in nodes) + 60
    data["graph"]["nodes"] = [
        [x, y + k * high, *rest] for k in range(times) for x, y, *rest in nodes
    ]
    data["graph"]["edges"] = [[a + k * size, b + k * size] for k in range(times) for a, b in edges]
    found.save(tmp_path / "large.html")
    browser.errors.clear()
    browser.open(tmp_path / "large.html")
    assert browser.value("data.tape.length") > 10_000
    assert browser.value("document.querySelectorAll('.row').length") < 600
    for key in "234567":
        browser.press(key)
    browser.press("1")
    browser.value("document.querySelector('#tape .list').scrollTop = 1e9")
    browser.wait(
        "[...document.querySelectorAll('#tape .row')].some(x => x.textContent.includes('out '))"
    )
    assert browser.errors == []
