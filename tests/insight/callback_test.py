"""`tapegrad.debug`: values at each call, once, in the order of plain Python."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.debugged import unobserved

import tapegrad
from tapegrad import (
    checkpoint,
    cond,
    debug,
    defvjp,
    grad,
    hessian,
    jit,
    jvp,
    linearize,
    primitive,
    scan,
    trace,
    value_and_grad,
    vjp,
    vmap,
)
from tapegrad.errors import ArgumentError, UnsupportedError

MODES = pytest.mark.parametrize("mode", ["never", "always"])
N = 200
X = np.linspace(0, 1, N)
seen: list = []


def tell(*values):
    seen.append(values if len(values) > 1 else values[0])


def told(f, *args):
    """What a call tells."""
    seen.clear()
    f(*args)
    return list(seen)


def agree(a, b, rtol=1e-13):
    """Whether the same was told in the same order, up to the last bits."""
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        if isinstance(x, (tuple, list)):
            agree(x, y, rtol)
        elif isinstance(x, str):
            assert x == y
        else:
            np.testing.assert_allclose(x, y, rtol)


def loop(x):
    s = 0.0
    for k in range(N):
        s = np.sin(s) * x[k] + x[k]
        debug.callback(tell, k, s)
    return s


def recurrence(x):
    return checkpoint(loop)(x) * 2.0


WAYS = {
    "jit": lambda mode: jit(loop, compile=mode),
    "value and gradient": lambda mode: value_and_grad(loop, compile=mode),
    "Hessian": lambda mode: hessian(loop, compile=mode),
    "few checkpoints": lambda mode: grad(loop, compile=mode, checkpoint=8),
    "segments": lambda mode: grad(loop, compile=mode, checkpoint="sqrt"),
    "little memory": lambda mode: grad(loop, compile=mode, max_bytes=4 * X.nbytes),
    "run again": lambda mode: grad(recurrence, compile=mode),
    "jvp": lambda mode: lambda x: jvp(loop, (x,), (x,)),
    "linearize": lambda mode: lambda x: linearize(loop, x)[1](x),
    "vjp": lambda mode: lambda x: vjp(loop, x)[1](1.0),
}


@MODES
@pytest.mark.parametrize("way", WAYS)
def test_each_round_once(way, mode):
    """In order, and not again for the reverse pass, nor where it runs rounds again."""
    g = WAYS[way](mode)
    for x in (X, X + 0.1):
        agree(told(g, x), told(loop, x))


@pytest.mark.every(2)
@pytest.mark.parametrize("size", [3, 80])
def test_what_runs_several_times(size):
    """Once for all directions."""

    def f(x):
        y = x
        for _ in range(20):
            y = np.sin(y) + y
            debug.callback(tell, y)
        return y

    x = X[:size]
    ways = (
        tapegrad.jacrev(f),
        tapegrad.jacfwd(f),
        hessian(lambda x: np.sum(f(x) ** 2)),
        tapegrad.laplacian(lambda x: np.sum(f(x) ** 2)),
        lambda x: tapegrad.gauss_newton_vp(f, lambda y: np.sum(y**2))(x, x),
        lambda x: tapegrad.jet(f, x, 3, x),
        lambda x: tapegrad.hvp(lambda x: np.sum(f(x) ** 2))(x, x),
    )
    for g in ways:
        for y in (x, x + 0.1):
            agree(told(g, y), told(f, y))


def test_what_is_said_of_traces_tells_nothing():
    """Why a call is traced again is found by running the tapes of others."""

    def f(x, n):
        debug.callback(tell, "a", x)
        y = x * n if x > n else -x
        for k in range(3):
            y = y * 2 if y > k else y + 1
            debug.callback(tell, y)
        return y

    g = grad(f)
    for x in (5.0, 0.5, 2.5, 9.0, -7.0, 1.5):
        for n in (1.0, 3.0):
            agree(told(g, x, n), told(f, x, n))
    agree(told(unobserved(g), 5.0, 1.0), told(f, 5.0, 1.0))
    agree(told(g, 5.0, 1.0), told(f, 5.0, 1.0))


def test_a_loop_stays_one():
    """With functions that are made anew in each round, too, whose variables are the same."""

    def f(x):
        s, name = 0.0, "s"
        for k in range(N):
            s = np.sin(s) * x[k] + x[k]
            debug.callback(lambda k, s: tell(name, k, s), k, s)
        return s

    g = grad(f, compile="never")
    for x in (X, X + 0.1):
        agree(told(g, x), told(f, x))
    assert len(g.tape) < 10


def test_texts_of_rounds():
    """What isn't traced differs from round to round: then each round is made."""

    def f(x):
        s = 0.0
        for name in ["a", "b", "c"] * 20:
            s = s * x + x
            debug.callback(tell, name, s)
        return s

    g = grad(f, compile="never")
    agree(told(g, 0.5), told(f, 0.5))


@MODES
def test_branches(mode):
    """In a loop, both ways; and as `while` and `cond`."""

    def branches(x):
        s = 0.0
        for k in range(N):
            if x[k] > 0.5:
                s = s + x[k]
                debug.callback(tell, "above", k, s)
            else:
                s = s * 0.9
                debug.callback(tell, "below", s)
        return s

    def turns(x):
        s, n = x[0] + 1.0, 0
        while s > 0.1:
            s = s * 0.9
            n += 1
            debug.callback(tell, n, s)
        return s

    def chosen(x):
        def up(v):
            debug.callback(tell, "up", v)
            return v * 2

        def down(v):
            debug.callback(tell, "down", v)
            return v * 3

        return cond(x[0] > 0.5, up, down, x[0])

    def scanned(x):
        def step(c, v):
            c = c * 0.5 + v
            debug.callback(tell, c)
            return c, c

        return scan(step, 0.0, x)[0]

    def some(x):
        for k in range(N):
            if k % 50 == 0:
                debug.callback(tell, k, x[k])
        return np.sum(x)

    def nothing(x):
        cond(x[0] > 0.5, lambda v: debug.callback(tell, v), lambda v: None, x[0])
        checkpoint(lambda v: debug.callback(tell, "run", v))(x[1])
        return np.sum(x)

    for f in (branches, turns, chosen, scanned, some, nothing):
        g = grad(f, compile=mode)
        for x in (X, X + 1.0, X - 0.3, X + 3.0):
            agree(told(g, x), told(f, x))
        assert g.cache_info().traces == 1


@MODES
def test_a_guard_that_fails_midway(mode):
    """What was told before it isn't told again by the next tape, or the trace."""

    def f(x):
        y = x * 2
        debug.callback(tell, "a", y)
        if y > 3:
            z = y * y
            debug.callback(tell, "b", z)
        else:
            z = -y
            debug.callback(tell, "c", z)
        debug.callback(tell, "d", z)
        return z

    g = grad(f, compile=mode)
    for x in (1.0, 2.0, 1.5, 3.0, 0.5, 5.0, 1.0, 2.0):
        agree(told(g, x), told(f, x))
    assert g.cache_info().traces == 2
    nested = grad(lambda x: grad(f)(x) * x, compile=mode)
    agree(told(nested, 1.0), told(f, 1.0))
    inside = grad(lambda x: grad(f)(2.0) * x, compile=mode)
    for _ in range(2):
        agree(told(inside, 1.0), told(f, 2.0))


@MODES
def test_cotangents(mode):
    def f(x):
        s = 0.0
        for k in range(N):
            s = np.sin(s) * x[k] + x[k]
            s = debug.cotangent(tell, s)
        return s

    states = [0.0]
    for k in range(N):
        states.append(np.sin(states[-1]) * X[k] + X[k])
    expected, ct = [], 1.0
    for k in reversed(range(N)):
        expected.append(ct)
        ct *= np.cos(states[k]) * X[k]
    for kept in ("auto", 8, "sqrt"):
        g = grad(f, compile=mode, checkpoint=kept)
        for _ in range(2):
            agree(told(g, X), expected, 1e-10)
    assert told(lambda x: jvp(f, (x,), (x,)), X) == []


def test_cotangents_of_trees():
    """They mirror what was passed; integers have none."""

    def f(x, n):
        held = debug.cotangent(tell, {"x": x, "pair": (x * 2, n), "name": "tree"})
        assert held["name"] == "tree" and held["pair"][1] == 3
        return np.sum(held["x"] * held["pair"][0])

    x = np.array([1.0, 2.0])
    (found,) = told(grad(f), x, 3)
    np.testing.assert_array_equal(found["x"], 2 * x)
    np.testing.assert_array_equal(found["pair"][0], x)
    assert found["pair"][1] is None and found["name"] is None
    assert debug.cotangent(tell, (1.0, "a")) == (1.0, "a")


def test_cotangents_have_second_derivatives():
    def f(x):
        return debug.cotangent(tell, np.sin(x)) ** 2

    assert np.isclose(grad(grad(f))(0.3), 2 * np.cos(0.6))
    rows = told(tapegrad.jacrev(lambda x: debug.cotangent(tell, np.sin(x)) * 2), X[:3])
    np.testing.assert_array_equal(rows, 2 * np.eye(3))


def test_entries_behind_one_that_decides():
    """`any` and `all` ask no more of them than Python does."""

    def f(x):
        def big(v, least):
            debug.callback(tell, v)
            return v > least

        s = x[0] if any(big(v, 0.5) for v in x) else x[1]
        for k in range(30):
            if not all(not big(v, x[k]) for v in x[k : k + 5]):
                s = s + x[k]
        return s

    g = grad(f, compile="never")
    for x in (X[:40], X[:40] + 0.45, X[:40][::-1].copy()):
        agree(told(g, x), told(f, x))


def test_rows():
    """Row after row; and where rows take different paths, each as a call of its own."""

    def f(x):
        debug.callback(tell, "a", x)
        y = x * 2 if x > 1 else -x
        debug.callback(tell, "b", y)
        return y

    v = vmap(f)
    for _ in range(2):
        expected = [("a", 0.5), ("a", 0.25), ("b", -0.5), ("b", -0.25)]
        assert told(v, np.array([0.5, 0.25])) == expected
        mixed = np.array([0.5, 2.0, 0.25])
        agree(told(v, mixed), told(lambda x: [f(row) for row in x], mixed))
    agree(told(vmap(grad(loop)), X[None]), told(loop, X))


@MODES
def test_errors_reach_the_caller(mode):
    def check(v):
        tell(v)
        if v > 1:
            raise KeyError("too large")

    def f(x):
        y = x * 2
        debug.callback(check, y)
        debug.callback(tell, "behind")
        return y * y

    g = grad(f, compile=mode)
    for x in (0.1, 3.0, 0.2, 4.0):
        seen.clear()
        if x > 1:
            with pytest.raises(KeyError, match="too large") as error:
                g(x)
            assert seen == [2 * x]
            (note,) = error.value.__notes__
            assert "debug.callback (callback_test.py:" in note and "check, y" in note
        else:
            g(x)
            assert seen == [2 * x, "behind"]
    assert g.cache_info().traces == 1


def test_an_error_of_the_function():
    """What it had come past is told before, once."""

    def f(x):
        debug.callback(tell, "before", x)
        return x.missing

    g = grad(f)
    seen.clear()
    for _ in range(2):
        with pytest.raises(AttributeError):
            g(1.0)
    assert seen == [("before", 1.0)] * 2


@MODES
def test_types_are_those_of_plain_python(mode):
    def f(x, n, b, a):
        values = x, n, b, a, x * 2.0, a * 2, a[0], a.sum(), n + 1, a[:1], {"x": x}
        debug.callback(lambda *v: tell([type(y) for y in v]), *values)
        return a.sum() * x

    args = 1.0, 2, True, np.ones(2, np.float32)
    g = grad(f, compile=mode)
    for _ in range(2):
        assert told(g, *args) == told(f, *args)


@MODES
def test_values_are_copies(mode):
    def spoil(y):
        y[:] = 0
        seen.append(y)

    def f(x):
        y = np.sin(x)
        debug.callback(spoil, y)
        debug.callback(seen.append, y)
        return np.sum(y * y)

    g = value_and_grad(f, compile=mode)
    for k in range(2):
        seen.clear()
        value, _ = g(X + k)
        np.testing.assert_allclose(value, np.sum(np.sin(X + k) ** 2))
        np.testing.assert_allclose(seen[1], np.sin(X + k))


def test_whom_it_tells():
    """Which function or object that is, is part of what a later call finds as it was."""

    class Recorder:
        def __init__(self):
            self.values = []

        def __call__(self, x):
            self.values.append(x)

        def loss(self, x):
            debug.callback(self, x)
            debug.callback(self.values.append, x * x)
            debug.callback(functools.partial(self.__call__), x)
            return x * x

    recorder = Recorder()
    g = grad(recorder.loss)
    for k in range(3):
        g(float(k))
    assert recorder.values == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 4.0, 2.0]
    assert g.cache_info().traces == 1

    lists = [[]]
    g = grad(lambda x: (debug.callback(lists[0].append, x), x * x)[1])
    g(1.0)
    first = lists[0]
    lists[0] = []
    g(2.0)
    assert first == [1.0] and lists[0] == [2.0]


def test_rules_and_bodies_of_primitives():
    @primitive
    def square(x):
        debug.callback(tell, "body", x)
        return x * x

    def rule(ct, out, x):
        debug.callback(tell, "rule", ct)
        return 2 * x * ct

    defvjp(square, rule)
    g = value_and_grad(lambda x: square(x) * 3)
    unread = grad(lambda x: (square(x), x)[1])
    for _ in range(2):
        assert told(g, 2.0) == [("body", 2.0), ("rule", 3.0)]
        assert told(unread, 2.0) == [("body", 2.0)]


def test_random_numbers():
    """Each call draws once, and tells what it has drawn."""
    rng = np.random.default_rng(0)

    def f(x):
        e = rng.normal()
        debug.callback(tell, e)
        return x * e

    g = grad(f)
    for _ in range(3):
        state = rng.bit_generator.state
        found = told(g, 1.0)
        after = rng.bit_generator.state
        rng.bit_generator.state = state
        assert found == told(f, 1.0) and rng.bit_generator.state == after


def test_tapes():
    def f(x):
        debug.callback(tell, np.sin(x))
        return x * x

    _, tape = trace(f, 1.0)
    for run in (tape.play, tape.compile()):
        assert told(run, 0.5) == [np.sin(0.5)]
    for refusal in (tapegrad.simplegrad, tapegrad.standalone):
        with pytest.raises(UnsupportedError, match=r"debug\.callback"):
            refusal(grad(f) if refusal is tapegrad.standalone else f, 1.0)


def test_texts(capsys):
    def f(x):
        y = debug.cotangent("ct {:.1f}", x * 2)
        debug.print("x is {:.2f}, {name} {}", x, y, name="so")
        return y * y

    g = grad(f)
    for _ in range(2):
        g(1.0)
    f(1.0)
    one = "x is 1.00, so 2.0\nct 4.0\n"
    assert capsys.readouterr().out == one * 2 + "x is 1.00, so 2.0\n"
    with pytest.raises(IndexError) as error:
        jit(lambda x: debug.print("{} {}", x))(1.0)
    assert "debug.print (callback_test.py:" in error.value.__notes__[0]


@MODES
def test_breakpoints(mode, monkeypatch):
    """They pause at the user's line, with the values of each call, by name."""
    paused = []

    def hook():
        frame = sys._getframe(1)
        code = frame.f_code
        paused.append((code.co_filename, code.co_name, frame.f_lineno, dict(frame.f_locals)))

    def f(x, n):
        y = np.sin(x)
        parts = {"twice": y * 2, "n": n}
        debug.breakpoint()
        debug.breakpoint(only=y)
        return y * parts["twice"]

    monkeypatch.setattr(sys, "breakpointhook", hook)
    g = grad(f, compile=mode)
    line = f.__code__.co_firstlineno + 3
    for x in (0.5, 1.0):
        paused.clear()
        g(x, 3)
        first, second = paused
        y = first[3]["y"]
        assert np.isclose(y, np.sin(x)) and type(y) is np.float64
        values = {"x": x, "n": 3, "y": y, "parts": {"twice": 2 * y, "n": 3}}
        assert first == (__file__, "f", line, values)
        assert second == (__file__, "f", line + 1, {"only": y})
    f(0.5, 3)
    assert len(paused) == 4


PDB = """
import numpy as np
from tapegrad import debug, grad
def f(x):
    y = np.sin(x)
    debug.breakpoint()
    return y * y
g = grad(f)
g(0.5)
g(0.25)
f(0.5)
print("done", g.cache_info().traces)
"""


def test_pdb(tmp_path):
    """Python's own debugger, which stands at the program's lines; and none where that is asked."""
    path = tmp_path / "program.py"
    path.write_text(PDB)

    def run(typed, **environment):
        found = subprocess.run(
            [sys.executable, str(path)],
            input=typed,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout

    out = run("p y\nc\n" * 3)
    assert out.count("-> return y * y") == 3 and out.count("program.py(7)f()") == 3
    values = [repr(np.sin(x)) for x in (0.5, 0.25, 0.5)]
    assert [out.count(x) for x in values] == [2, 1, 2] and "done 1" in out
    assert run("", PYTHONBREAKPOINT="0") == "done 1\n"


def test_what_is_refused():
    def reaches(x):
        y = np.sin(x)
        debug.callback(lambda: y)
        return y

    def reaches_parts(x):
        parts = {"x": [x]}
        debug.callback(lambda: parts)
        return x

    for f in (reaches, reaches_parts):
        with pytest.raises(UnsupportedError, match=r"reaches a traced value \(f8.*Pass it as an"):
            grad(f)(1.0)
    for call in (debug.callback, debug.print, lambda x: debug.cotangent(x, 1.0)):
        with pytest.raises(ArgumentError, match=r"debug\."):
            call(1.0)


PRINT = """
import numpy as np
from tapegrad import grad
def f(x):
    print("plain")
    print(x)
    print(f"{x:.1f}")
    return x * x
g = grad(f)
g(1.0)
g(2.0)
"""


def test_print_says_once_what_it_is(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PRINT)
    found = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert found.stdout == "plain\n1.0\n1.0\n"
    assert found.stderr.count("\n") == 1
    assert "program.py:6: print shows the values of the call that is traced" in found.stderr
    assert "debug.print(" in found.stderr


def test_an_error_that_the_program_would_catch():
    """It reaches who has called, and says why the program's `except` doesn't."""

    def refuse(x):
        raise ValueError("no")

    def f(x):
        try:
            debug.callback(refuse, np.sum(x))
        except ValueError:
            return np.sum(x)
        return np.sum(x**2)

    for g in (grad(f, compile="never"), grad(lambda x: (debug.callback(refuse, x), x**2)[1])):
        with pytest.raises(ValueError, match="no") as error:
            g(2.0)
        is_told = "The except around it doesn't catch this" in error.value.__notes__[0]
        assert is_told == ("Catch it in what is called" in error.value.__notes__[0])
        assert is_told == (g.__name__ == "grad_f")
