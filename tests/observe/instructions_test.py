"""What is known of each of Python's instructions, in the Python that runs this."""

from __future__ import annotations

import contextlib
import dis
import opcode
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from tests.observe.programs import EACH_TIME, PROGRAMS, RUN, SETTING

import tapegrad
from tapegrad import grad
from tapegrad.core.listing import NAMES
from tapegrad.observe import programs
from tapegrad.observe.program import frames, watching
from tapegrad.observe.program.stack_heights import heights_of

VERSION = sys.version_info[:2]
# What `dis.opmap` has besides instructions: those that compilers use, and what they become.
PSEUDO = {name for name, k in dis.opmap.items() if k > 255 or name.startswith("INSTRUMENTED_")}
INTRINSICS = {f"CALL_INTRINSIC_{k}": f"_intrinsic_{k}_descs" for k in (1, 2)}
TABLES = (programs.SILENT, programs.ANYTHING, set(programs.HANDLERS), programs.DETAILED)


def instructions() -> list[str]:
    """The names of this Python's instructions, and of what the intrinsic ones do."""
    found = [name for name in dis.opmap if name not in PSEUDO and name not in INTRINSICS]
    for name, names in INTRINSICS.items():
        found += getattr(opcode, names) if name in dis.opmap else ()
    return sorted({NAMES.get(name, name) for name in found})


def codes_in(code):
    yield code
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from codes_in(x)


@pytest.mark.parametrize("name", instructions())
def test_each_instruction_is_in_one_table(name):
    assert sum(name in table for table in TABLES) == 1


def test_operators_have_their_signs():
    assert programs._INPLACE
    assert all(opcode._nb_ops[k][1].endswith("=") for k in programs._INPLACE)


def test_this_python_can_be_watched():
    assert watching.can_watch()
    assert frames.has_versions()


# ---- what programs read by them


def made(text):
    """What a program finds, and itself: `f`."""
    found = {"__name__": "observed_program"}
    exec(compiled(SETTING + text), found)
    return found


def compiled(text, file="<observed>"):
    return compile(text, file, "exec", dont_inherit=True)  # annotations aren't texts


def slope(f):
    return f(1.0) - f(0.0)


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    module = types.ModuleType("observed_settings")
    module.rate, module.other = 2.0, 3.0
    monkeypatch.setitem(sys.modules, "observed_settings", module)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_is_seen(name):
    text, change = PROGRAMS[name]
    found = made(text)
    df = grad(found["f"], compile="never")
    before = slope(found["f"])
    for x in (1.0, 2.0, 3.0):
        assert df(x) == pytest.approx(before)
    assert df.cache_info().traces == 1
    exec(change, found)
    after = slope(found["f"])
    assert after != pytest.approx(before)
    for x in (1.0, 2.0, 3.0):
        assert df(x) == pytest.approx(after)
    assert df.cache_info().traces <= 2


@pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
@pytest.mark.parametrize("name", EACH_TIME)
def test_what_cannot_be_checked_is_traced_anew(name):
    text, change = EACH_TIME[name]
    found = made(text)
    df = grad(found["f"], compile="never")
    for _ in range(2):
        for x in (1.0, 2.0):
            assert df(x) == pytest.approx(found["f"](1.0))
        exec(change, found)


def test_programs_use_each_instruction_that_is_noted():
    used = set()
    texts = [SETTING + text for text, _ in [*PROGRAMS.values(), *EACH_TIME.values()]]
    for code in (c for text in [RUN, *texts] for c in codes_in(compiled(text))):
        for i in dis.get_instructions(code):
            names = getattr(opcode, INTRINSICS.get(i.opname, ""), None)
            used.add(names[i.arg] if names else i.opname)
    noted = set(programs.HANDLERS) | programs.DETAILED
    assert noted & set(instructions()) - used == set()


# ---- where their operands are


def some_files():
    """Of tapegrad and these tests some, and of Python's library what has much of everything."""
    files = sorted(Path(tapegrad.__file__).parent.rglob("*.py"))[::9]
    files += sorted(Path(__file__).parent.parent.rglob("*_test.py"))[::9]
    library = Path(contextlib.__file__).parent
    return files + sorted(library.glob("[ac]*.py")) + sorted(library.glob("asyncio/*.py"))


def test_heights_follow_from_the_code():
    count = 0
    for path in some_files():
        for code in codes_in(compile(path.read_text("utf8"), str(path), "exec")):
            heights = heights_of(code)
            assert heights is not None, code
            variables = len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
            assert variables <= max(heights) <= variables + code.co_stacksize
            count += 1
    assert count > 2000


# When Python stores a frame's height, which it does for a trace function.
_STORED = {(3, 11): "opcode"}.get(VERSION, "line")


def test_heights_are_those_that_python_stores(tmp_path):
    """Where each line begins, in the middle of expressions too; in Python 3.11 everywhere."""
    texts = [SETTING + text for text, _ in PROGRAMS.values()]
    texts.append(
        "def f(x):\n total = x\n for k, item in enumerate(\n  [1.0, 2.0]\n ):\n  try:\n"
        "   total += max(\n    total,\n    [\n     v\n     * item\n     for v in [\n      k,\n"
        "      2.0\n     ]\n     if v\n    ][-1],\n    key=lambda v: (\n     v,\n     total"
        "\n    ),\n   )\n"
        "  finally:\n   total = {\n    'a': total,\n    'b': (\n     total\n    )\n   }[\n"
        "    'a'\n   ]\n return total\n"
    )
    seen, differ = 0, []
    heights = {}

    def watch(frame, event, arg):
        nonlocal seen
        if not frame.f_code.co_filename.startswith("<observed"):
            return None
        frame.f_trace_opcodes = True
        code = frame.f_code
        if id(code) not in heights:
            heights[id(code)] = code, heights_of(code)
        if event == _STORED:
            stored = frames.live(frames.address_of(frame))
            followed = heights[id(code)][1][frame.f_lasti >> 1]
            seen += 1
            if stored != followed:
                differ.append((code.co_name, frame.f_lineno, stored, followed))
        return watch

    for k, text in enumerate(texts):
        found = {"__name__": "observed_program"}
        exec(compiled(text, f"<observed {k}>"), found)
        before = sys.gettrace()
        sys.settrace(watch)
        try:
            found["f"](2.0)
        finally:
            sys.settrace(before)
    assert not differ
    assert seen > 300


class Told(watching.Follower):
    """Notes where a function is, each time Python calls back."""

    def __init__(self, code):
        self.code, self.codes, self.offsets = code, {}, []

    def enter(self, frame, event, arg):
        if frame.f_code is not self.code:
            return None
        frame.f_trace_lines = False
        watching.follow(frame, self.codes)
        return self.step

    def step(self, frame, event, arg):
        if event == "opcode":
            self.offsets.append(frame.f_lasti)
        return self.step


def many_names():
    """A function whose instructions have arguments that don't fit into a byte."""
    found = {"box": types.SimpleNamespace()}
    lines = [f" box.a{k} = {k}.5" for k in range(300)]
    text = "\n".join(["def f(x):", *lines, " return x * box.a299 + box.a298 + box.a0"])
    exec(text, found)
    return found


def test_each_instruction_is_told_once():
    f = many_names()["f"]
    told = Told(f.__code__)
    assert watching.can_watch()
    before = sys.gettrace()
    sys.settrace(told.enter)
    try:
        f(1.0)
    finally:
        sys.settrace(before)
        watching.release(told.codes)
    program, _ = programs.program_of(f.__code__)
    noted = [k for k in told.offsets if program[k >> 1] is not None]
    stores = [i for i in dis.get_instructions(f) if i.opname == "STORE_ATTR"]
    assert [program[k >> 1][1] for k in noted][::2][:300] == ["box"] * 300
    assert [program[k >> 1][1] for k in noted][1::2][:300] == [i.argval for i in stores]


def test_names_beyond_a_byte():
    found = many_names()
    found["f"](1.0)

    def f(x):
        return x * found["box"].a299 + found["f"](x)

    df = grad(f, compile="never")
    assert df(1.0) == df(2.0) == 599.0


# ---- who is told


if VERSION >= (3, 12):  # where `sys.monitoring` tells

    def test_nobody_is_told_when_the_trace_is_over():
        found = made("def f(x): return x * box.scale")
        assert grad(found["f"], compile="never")(1.0) == 2.0
        assert sys.monitoring.get_local_events(watching._tool, found["f"].__code__) == 0
        assert not watching._watched


@pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
def test_other_threads_run_the_same_code():
    """They aren't followed, and what is followed goes on being so."""
    found = made(
        "def g(k):\n y = 1.0\n for _ in range(50):\n  y = y * 1.0\n return y * box.scale\n"
        "def f(x):\n y = x\n for k in range(20):\n  y = y * g(k) / g(k)\n return y * box.scale"
    )
    stop = threading.Event()

    def run():
        while not stop.is_set():
            found["f"](1.0)

    others = [threading.Thread(target=run) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        df = grad(found["f"], compile="never")
        for traces, scale in enumerate((2.0, 3.0, 5.0), 1):
            found["box"].scale = scale
            assert df(1.0) == df(2.0) == pytest.approx(scale)
            assert df.cache_info().traces == min(traces, 2)  # from then on it is an input
    finally:
        stop.set()
        for thread in others:
            thread.join()


def test_frames_of_the_same_code_that_are_not_followed():
    """NumPy calls a function that the program calls too."""
    found = made(
        "def g(v):\n if v > 2.0:\n  np.apply_along_axis(g, 0, np.zeros(1) + v - 1.0)\n"
        " return v * 1.0\n"
        "def f(x):\n g(3.0)\n y = g(1.0)\n return x * y * box.scale"
    )
    df = grad(found["f"], compile="never")
    assert df(1.0) == df(2.0) == 2.0
    found["box"].scale = 7.0
    assert df(1.0) == 7.0


def test_a_function_that_calls_itself():
    found = made("def f(x, n=3): return x * box.scale if n == 0 else f(x, n - 1) * box.scale")
    df = grad(found["f"], compile="never")
    assert df(1.0) == df(2.0) == 16.0
    assert df.cache_info().traces == 1
    found["box"].scale = 3.0
    assert df(1.0) == 81.0


@pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
def test_what_cannot_be_watched_is_traced_at_each_call(monkeypatch):
    monkeypatch.setattr(watching, "can_watch", lambda: False)
    found = made("def f(x): return x * box.scale")
    df = grad(found["f"], compile="never")
    assert df(1.0) == df(2.0) == 2.0
    assert df.cache_info().traces == 2
    found["box"].scale = 3.0
    assert df(1.0) == 3.0


if VERSION >= (3, 12):  # where `sys.monitoring` tells

    @pytest.mark.filterwarnings("ignore:.*traced for three calls in a row")
    def test_somebody_takes_what_calls_back():
        """A program that frees the tool's number on the way -> the tape is used once."""
        found = made("def f(x):\n take()\n return x * box.scale")
        tool = watching._tool

        def take():
            sys.monitoring.free_tool_id(tool)

        found["take"] = take
        df = grad(found["f"], compile="never")
        try:
            assert df(1.0) == 2.0
            found["box"].scale = 3.0
            assert df(1.0) == 3.0
        finally:
            watching._tool = None
            watching.can_watch.cache_clear()
        assert watching.can_watch()


def test_a_code_is_taken_apart_once(monkeypatch):
    """For all that a trace asks of it: loops, branches, the places of operands."""
    taken = []
    for name in ("Bytecode", "get_instructions"):
        one = getattr(dis, name)
        monkeypatch.setattr(dis, name, lambda code, one=one: (taken.append(code), one(code))[1])

    def f(x):
        for _ in range(3):
            x = np.sin(x) if x > 0.5 else x * 2
        while x > 1:
            x = x / 2
        return x

    grad(f, compile="never")(0.3)
    assert taken.count(f.__code__) == 1
    assert len(set(taken)) == len(taken)


def test_an_array_matches_what_numpys_matches():
    def f(x):
        match x:
            case [_, _]:
                return 2.0 * x.sum()
            case np.ndarray():
                return 3.0 * x.sum()

    x = np.ones(2)
    assert grad(f)(x)[0] * 2 == f(x)
