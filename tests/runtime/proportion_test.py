"""Work in proportion: a program that is twice as long takes twice as many steps.

Counted are calls of functions, Python's and C's, from the first call of a gradient to its result:
tracing, finding loops, differentiating, playing; and up to the source of its kernels: optimizing,
scheduling, emitting. No clock is read. Python counts none in what observes a run.
"""

import cProfile
import linecache
import warnings

import numpy as np
import pytest

from tapegrad import jit, pipeline, value_and_grad
from tapegrad.observe.packages import library_calls
from tapegrad.runtime import variant

MOST = 2.3  # what twice the length may take: there may be a logarithm in it
THREE = np.array([0.3, 0.5, 0.7])


def mixed(k, *choices):
    """One of these, in an order that doesn't repeat itself."""
    return choices[(k * k + k // 3) % len(choices)]


def function(start, lines, result):
    """A function of the text of its statements, which are lines of a file."""
    text = "\n    ".join([f"def f({start}):", *lines, f"return {result}"]) + "\n"
    file = f"<proportion {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names = {"np": np}
    exec(compile(text, file, "exec"), names)
    return names["f"]


def chain(n):
    """Functions of functions."""
    lines = [
        f"x = {mixed(k, 'np.sin(x)', 'x * 1.5', 'np.exp(-x)', 'np.cos(x) * x')}" for k in range(n)
    ]
    return function("x", lines, "np.sum(x)"), (THREE,)


def unlike_writes(n):
    """Rounds that differ, and write to an array."""
    lines = ["y = x.copy()"]
    for k in range(n // 2):
        name = mixed(k, "sin", "cos", "tanh")
        lines.append(f"y[{k * 7 % 3}] = np.{name}(y[{(k * k + 1) % 3}]) * x[{k**3 % 3}]")
    return function("x", lines, "np.sum(y)"), (THREE,)


def nested(n):
    """A loop in a loop, with another number of rounds each time."""

    def f(x):
        s = 0.0
        for i in range(n):
            for j in range(i % 3 + 1):
                s = s + x[j] * np.sin(s + i)
        return s

    return f, (THREE,)


def parameters(n):
    """As many arguments as operations."""
    names = [f"p{k}" for k in range(n)]
    lines = ["s = 0.0"]
    lines += [f"s = s + np.sin({p}) * {names[(k * k + 1) % n]}" for k, p in enumerate(names)]
    return function(", ".join(names), lines, "s"), (0.1,) * n


def layers(n):
    """Arrays in a dict."""

    def f(weights):
        return sum(np.sum(np.sin(w) * k) for k, w in enumerate(weights.values()))

    return f, ({f"w{k}": THREE for k in range(n)},)


def comprehension(n):
    """A long comprehension, and the largest of its list."""

    def f(x):
        found = [x[i % 3] * (i + 1.0) if i % 4 else np.sin(x[i * i % 3]) for i in range(n)]
        return max(abs(v) for v in found) + sum(found)

    return f, (THREE,)


def slices(n):
    """Slices that are written in place."""
    lines = ["y = np.zeros(60)", "y[:3] = x"]
    for k in range(n // 2):
        lines.append(f"y[{k % 57}:{k % 57 + 3}] += np.sin(y[{k * k % 57}:{k * k % 57 + 3}])")
    return function("x", lines, "np.sum(y)"), (THREE,)


def outputs(n):
    """As many results as operations."""
    lines = ["out = []"]
    lines += [
        f"out.append(np.{mixed(k, 'sin', 'cos', 'exp')}(x[{k * k % 3}]) * {k})" for k in range(n)
    ]
    return function("x", lines, "out"), (THREE,)


def conditionals(n):
    """Branches."""
    lines = ["s = x[0]"]
    for k in range(n // 2):
        lines.append(f"if s > {k * k % 5 - 2}.5: s = np.sin(s) * x[{k * k % 3}]")
        lines.append(f"else: s = s * 0.5 - x[{(k * k + 1) % 3}]")
    return function("x", lines, "s"), (THREE,)


def matrices(n):
    """Products, inverses, transposes."""
    lines = ["A = np.outer(x, x) / 9"]
    for k in range(n // 2):
        step = mixed(k, "A @ A / 4", "A.T + A", "np.linalg.inv(np.eye(3) + A)", "A[::-1] @ A")
        lines.append(f"A = {step}")
    return function("x", lines, "np.trace(A)"), (THREE,)


def scalars(n):
    """A recurrence of two numbers."""
    lines = [f"s, t = {mixed(k, 't + s * 0.5, s', 's * t, t - s', 't, s / (1 + t * t)')}"
             for k in range(n)]  # fmt: skip
    return function("s, t", lines, "s + t"), (0.3, 0.4)


def printing(n):
    """A loop each round of which is run, since it does something besides."""

    def f(x):
        out, s = [], x[0]
        for i in range(n):
            s = s * x[1] + np.sin(s) * i
            out.append(s)
            print(end="")
        return np.sum(np.array(out))

    return f, (THREE,)


def rows(n):
    """A list in which any entry may be made of any other."""

    def f(x):
        rows = [x * k for k in range(n // 2)]
        for i in range(n // 2):
            rows[i * 7 % len(rows)] = np.sin(rows[i]) + rows[i * i % len(rows)]
        return np.sum(np.array(rows))

    return f, (THREE,)


def whiles(n):
    """Long loops that each differ, left by tests of what isn't traced."""
    lines = ["s = x[0]"]
    for k in range(n // 8):
        step = f"np.{mixed(k, 'sin', 'cos', 'tanh')}(x[0]) * {n + k}"
        lines += ["t = 0.0", "while t < 1.0:", f"    t = t + 0.01; s = s * 0.5 + {step}"]
    return function("x", lines, "s"), (THREE,)


def places(n):
    """An array as long as the program, written in any order."""
    lines = [f"y = np.zeros({n})"]
    for k in range(n):
        name = mixed(k, "sin", "cos", "tanh")
        lines.append(f"y[{(k * k + k // 3) % n}] = np.{name}(x[{k % 3}]) * {k}")
    return function("x", lines, "np.sum(y * y)"), (THREE,)


def numbers(n):
    """A list of numbers as an argument, each with a derivative of its own."""

    def f(xs):
        return sum(np.sin(x) * (k % 7) for k, x in enumerate(xs))

    return f, ([0.1 * k for k in range(n)],)


def places_of_x(n):
    """Elements of a long argument."""
    lines = ["s = 0.0"]
    for k in range(n):
        lines.append(f"s = s + np.{mixed(k, 'sin', 'cos', 'tanh')}(x[{k * k % n}] * x[{k}])")
    return function("x", lines, "s"), (np.linspace(0.1, 1, n),)


def joined(n):
    """A long concatenation."""
    lines = ["p = []"]
    for k in range(n):
        lines.append(f"p.append(np.{mixed(k, 'sin', 'cos', 'tanh')}(x[{k % 2}:]) * {k})")
    return function("x", lines, "np.sum(np.concatenate(p) ** 2)"), (THREE,)


def rounds(n):
    """Loops that each differ."""
    lines = ["s = x[0]"]
    for k in range(n // 8):
        step = f"np.{mixed(k, 'sin', 'cos', 'tanh')}(x[i % 3]) * {n + k}"
        lines += ["for i in range(20):", f"    s = s * 0.5 + {step}"]
    return function("x", lines, "s"), (THREE,)


PROGRAMS = [
    chain, unlike_writes, nested, parameters, layers, comprehension, slices, outputs, conditionals,
    matrices, scalars, printing, rows, whiles, places, numbers, places_of_x, joined, rounds,
]  # fmt: skip


def steps(program, n, source=False):
    """The calls of functions that the first gradient of a program takes, or its source."""
    f, args = program(n)
    if program is outputs:
        g = jit(f, compile="never")
    else:
        g = value_and_grad(f, argnums=tuple(range(len(args))), compile="never")
    profile = cProfile.Profile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that rounds differ
        profile.runcall((lambda *args: g.lower(*args).source) if source else g, *args)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.fixture(autouse=True)
def optimised_at_once(monkeypatch):
    """Played tapes are optimised after their first call, and not once that took long: on a loaded
    machine the longer program was optimised within the steps that were counted, and the shorter one
    wasn't."""
    monkeypatch.setattr(variant, "PASSES", 0.0)


@pytest.mark.every(8)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_twice_the_program_takes_twice_the_steps(program, monkeypatch):
    """Nothing is compared with all else, be it arguments, results, calls or rounds."""
    monkeypatch.setattr(pipeline, "DEBUG", False)
    for n in (10, 80):  # what is loaded and made for the first time, of loops too
        steps(program, n)
    assert steps(program, 320) < MOST * steps(program, 160)


@pytest.mark.every(16)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_twice_the_program_is_planned_in_twice_the_steps(program, monkeypatch):
    """Kernels are as many as steps: nothing goes through all that stand before."""
    monkeypatch.setattr(pipeline, "DEBUG", False)
    for n in (10, 80):
        steps(program, n, source=True)
    assert steps(program, 400, source=True) < MOST * steps(program, 200, source=True)


class Particle:
    def __init__(self, x):
        self.x = x


def test_the_length_of_a_list_is_no_search_through_its_objects(monkeypatch):
    asked = []
    monkeypatch.setattr(library_calls, "is_inside", lambda kind: asked.append(kind))

    def f(x):
        particles = [Particle(x * k) for k in range(50)]
        return sum(particles[k * k % len(particles)].x.sum() for k in range(50))

    value_and_grad(f, compile="never")(THREE)
    assert len(asked) < 10 * 50


def test_objects_whose_numbers_change_are_told_apart_at_once(monkeypatch):
    """Compared in pairs, twice as many took four times the steps."""
    monkeypatch.setattr(pipeline, "DEBUG", False)

    def steps_then(n):
        particles = [Particle(0.1 * k) for k in range(n)]

        def f(x):
            s = 0.0
            for p in particles:
                s += p.x * np.sin(x)
            return s

        g, profile = value_and_grad(f, compile="never"), cProfile.Profile()

        def calls():
            for k, x in enumerate((1.0, 2.0, 3.0, 4.0)):
                particles[k].x = x
                np.testing.assert_allclose(g(x)[0], f(x), rtol=1e-12)

        profile.runcall(calls)
        assert g.cache_info().traces <= 2
        particles[4] = particles[3]  # one object in two places, and then another one again
        np.testing.assert_allclose(g(1.0)[0], f(1.0), rtol=1e-12)
        particles[4] = Particle(-1.0)
        np.testing.assert_allclose(g(1.0)[0], f(1.0), rtol=1e-12)
        return sum(entry.callcount for entry in profile.getstats())

    for n in (10, 80):
        steps_then(n)
    assert steps_then(200) < MOST * steps_then(100)


def test_many_objects_are_no_reason_to_trace_again():
    """Some guards each: they were 5,000 at the most."""
    particles = [Particle(0.1 * k) for k in range(1500)]

    def f(x):
        s = 0.0
        for p in particles:
            s += p.x * np.sin(x)
        return s

    g = value_and_grad(f, compile="never")
    for x in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(g(x)[0], f(x), rtol=1e-12)
    assert g.cache_info().traces == 1
    particles[1200].x = 7.0
    np.testing.assert_allclose(g(1.0)[0], f(1.0), rtol=1e-12)
