"""A loop of another length, which finds the machine code of the first."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from tests.loops import growing, rolled_test
from tests.loops.programs import PROGRAMS

from tapegrad import grad, pipeline, scan, trace
from tapegrad.backends.cpu import kernel_cache, support
from tapegrad.backends.cpu.linking import ENTRY
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.templates import template
from tapegrad.backends.source.program import Kernel
from tapegrad.backends.target import one_by_one
from tapegrad.compiler import client, disk, key
from tapegrad.compiler.packed import pack
from tapegrad.compiler.templates import with_templates
from tapegrad.core.trees import flatten
from tapegrad.ir.cells import Cell
from tapegrad.observe.program.joins import sides_of
from tapegrad.runtime.entry import compiled_text

# Twenty-four rounds apart: arrays that turn round in two or three places end where they did.
SHORT, LONG = 53, 77

UNROLLED = "rounds that differ, or all of them, are unrolled: the tape is as long as there are some"
ROOM = (
    "its inner loop has room for 64 rounds: that fits into one of the lengths, not into the other"
)
GROWS = "its state grows with the rounds, so each round goes along it"
TWICE = "its arrays are twice as long as its loop: other numbers are taken for lengths"
NEST = "its inner loops grow with the rounds: the rows of its tables lie as far apart"
OWN = {
    "neville": UNROLLED,
    "newton_until": ROOM,
    "written_where_it_is_read": TWICE,
    "triangular_solve": NEST,
    "cholesky": NEST,
    "gram_schmidt": NEST,
    "triangle": NEST,
    "forward_substitution": NEST,
    "back_substitution": NEST,
    "gauss_elimination": NEST,
    "orthogonal_rows": NEST,
    "forces_of_pairs": NEST,
    "levinson": NEST,
    "matrix_chain": NEST,
    "pascal": NEST,
    "divided_differences": NEST,
    "de_casteljau": NEST,
    "shifted_polynomial": NEST,
    "bubble_sort": NEST,
    "sums_of_prefixes": NEST,
    "skipping": NEST,
    **dict.fromkeys(
        ("option_tree", "attended", "substitution_by_slices", "levinson_durbin"), GROWS
    ),
    **{program.name: GROWS for program in growing.PROGRAMS},
}

by_name = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def derivative(f, args) -> Any:
    """The tape of a value and of its derivatives with respect to all floats."""
    tape = trace(f, *args)[1]
    floats = [k for k, v in enumerate(tape.free_inputs) if v.dtype.kind == "f"]
    return pipeline.gradient(tape, floats)


def scheduled(tape) -> Any:
    return pipeline.schedule(pipeline.finished(tape))


def lines(program) -> int:
    """How many lines its kernels have that don't only say something."""
    source = "".join(kernel.text for kernel in program.kernels).splitlines()
    return sum("#" not in line for line in source)


def identities(program) -> list[Any]:
    """What the kernels of a scheduled tape are, up to numbers of a length."""
    names = {**support.namespace(), **program.constants, "nan": np.nan, "inf": np.inf}
    found = []
    for kernel in program.kernels:
        lifted = template(kernel, program.lengths, program.constants)
        source = kernel.text if lifted is None else lifted.module
        types = kernel.types() if lifted is None else lifted.types
        numbers = None if lifted is None else lifted.kinds
        function = kernel_function(source, kernel.name, names)
        found.append(kernel_cache.identity(function, types, program.constants, numbers))
    return found


def compiles(tape, build=one_by_one) -> int:
    """Compile a tape; how many kernels that took."""
    before = kernel_cache.kernels.compiles
    pipeline.compile(tape, build)
    return kernel_cache.kernels.compiles - before


def check(f, args) -> int:
    """A compiled tape computes what it computes played; how many kernels were compiled."""
    tape = derivative(f, args)
    before = kernel_cache.kernels.compiles
    text = compiled_text(pipeline.compile(tape))
    leaves = flatten(args)[0]
    given = [x if np.ndim(x) or type(x) in (int, float) else np.asarray(x).item() for x in leaves]
    given = [np.ascontiguousarray(x) if np.ndim(x) else x for x in given]
    captured = map(np.ascontiguousarray, tape.captured)
    found = text.flat(text.driver.inputs)(*given, *captured)
    expected = tape.play(*leaves)
    for one, other in zip(found, expected, strict=True):
        single = np.asarray(other).dtype == np.float32
        np.testing.assert_allclose(one, other, *((1e-3, 1e-4) if single else (1e-8, 1e-11)))
    return kernel_cache.kernels.compiles - before


@pytest.fixture
def nothing_known():
    kernel_cache.kernels.clear()


# ---- which loops


BRANCHING = ("adaptive", "both_ways", "turning_point", "bisection")


@pytest.mark.every(48)
@by_name
def test_another_length_has_the_same_code(program):
    """Which programs of the suite find their machine code, and which don't, with the reasons.

    Where loops are found, tape and source are as long for one number of rounds as for the other.
    """
    sides_of.cache_clear()  # what traces of other tests have found out about the code
    if program.name in BRANCHING:  # which of its branches go both ways is known from here on
        for n in (SHORT, LONG):
            trace(program.function, *program.make(np.random.default_rng(0), n))
    short, long = (
        derivative(program.function, program.make(np.random.default_rng(0), n))
        for n in (SHORT, LONG)
    )
    if program.name in rolled_test.NAMES:
        assert len(long) <= len(short) + 2
    if OWN.get(program.name) is UNROLLED:
        assert len(short.calls) != len(long.calls)
        return
    some, more = scheduled(short), scheduled(long)
    assert (identities(some) == identities(more)) == (program.name not in OWN)
    if program.name in rolled_test.NAMES:
        assert lines(more) <= lines(some) + 6


def filtered(x, rate):
    """The mean of what a filter leaves, whose factor is one over the length."""
    h, total = 0.0, 0.0
    for t in range(len(x)):
        h = rate * h + np.tanh(x[t])
        total = total + h * h / len(x)
    return total


def of_filter(n):
    return np.random.default_rng(n).standard_normal(n), 0.9


def test_one_compilation_serves_all_lengths(nothing_known):
    assert check(filtered, of_filter(50)) == 1
    for n in (73, 20, 17, 51, 1000):
        assert check(filtered, of_filter(n)) == 0


def test_second_derivatives_too(nothing_known):
    def steepness(x, rate):
        dx, drate = grad(filtered, (0, 1))(x, rate)
        return np.sum(dx * dx) + drate * drate

    assert check(steepness, of_filter(30)) > 0
    assert check(steepness, of_filter(41)) == 0


def test_arrays_that_turn_round_have_code_for_even_and_for_odd_lengths(nothing_known):
    def heat(u, steps):
        for _ in range(steps):
            new = u.copy()
            new[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
            u = new
        return u @ u

    u = np.random.default_rng(0).standard_normal(9)
    assert [check(heat, (u, n)) for n in (50, 51, 74, 73)] == [1, 1, 0, 0]


def recurrent(xs, w):
    """A network whose outputs are multiplied together: a product as long as the loop."""
    h, states = np.zeros(w.shape[0], xs.dtype), []
    for x in xs:
        h = np.tanh(w @ h + x)
        states.append(h)
    return np.mean((np.stack(states) @ w - xs) ** 2)


def of_network(n, width=3, dtype=np.float64):
    rng = np.random.default_rng(n)
    w = rng.standard_normal((width, width)) / width
    return rng.standard_normal((n, width)).astype(dtype), w.astype(dtype)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_over_all_rounds(dtype, nothing_known):
    assert check(recurrent, of_network(98, dtype=dtype)) == 1
    for n in (122, 350):
        assert check(recurrent, of_network(n, dtype=dtype)) == 0


@pytest.mark.every(8)
@pytest.mark.parametrize("n", [1, 4, 16, 17, 31, 32, 33, 34, 64])
def test_sizes_that_are_lengths_by_coincidence(n):
    check(recurrent, of_network(n, width=32))


@pytest.mark.every(4)
@pytest.mark.parametrize("n", [5, 8, 17, 24])
def test_square_states(n):
    check(recurrent, of_network(n, width=n))


def test_loops_of_several_lengths(nothing_known):
    def both(x, y, rate):
        h = 0.0
        for t in range(len(x)):
            h = rate * h + np.tanh(x[t])
        g = h
        for t in range(len(y) - 1, -1, -1):
            g = np.sin(g) * y[t] + t / len(y)
        return g * h

    def args(n, m):
        rng = np.random.default_rng(n)
        return rng.standard_normal(n), rng.standard_normal(m), 0.9

    assert check(both, args(50, 91)) == 1
    assert check(both, args(73, 130)) == 0
    check(both, args(40, 40))
    check(both, args(40, 41))


def test_rounds_inside_rounds_belong_to_the_body(nothing_known):
    def nested(x, y):
        total = 0.0
        for i in range(len(x)):
            a = x[i]
            for j in range(len(y)):
                a = np.tanh(a * y[j] + total)
            total = total + a
        return total

    def args(n, m):
        rng = np.random.default_rng(n)
        return rng.standard_normal(n), rng.standard_normal(m)

    assert check(nested, args(50, 20)) == 1
    assert check(nested, args(73, 20)) == 0
    assert check(nested, args(50, 30)) == 1


def test_independent_rounds(nothing_known):
    def shown(x, c):
        _, ys = scan(lambda h, a: (h, np.exp(np.sin(a) * c)), 0.0, x)
        return np.sum(ys * ys)

    def args(n):
        return np.random.default_rng(n).standard_normal(n), 0.3

    assert check(shown, args(50)) == 1
    assert check(shown, args(500)) == 0


# ---- where the code is found


def test_the_worker_finds_it(next_door):
    client.client.clear()
    compiled = []
    for n in (50, 73, 20):
        job = client.client.submit(pack(derivative(filtered, of_filter(n))), None)
        assert client.client.wait(job) and not job.error
        compiled.append(job.kernels)
    assert compiled[0] <= 1 and compiled[1:] == [0, 0]  # another test may have been first


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache; sources that somebody edits meanwhile are taken for those that run."""
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk, "_written", None)
    monkeypatch.setattr(key, "LOADED", float("inf"))
    key._sources.cache_clear()
    yield tmp_path / "cache"
    key._sources.cache_clear()


def kept_kernels(folder) -> list[Any]:
    """The files of kernels, which have an entry, as what they share has not."""
    found = [path for path in folder.glob("*/*") if path.is_file()]
    return [path for path in found if ENTRY.encode() in path.read_bytes()]


def test_another_process_finds_it_on_disk(folder, nothing_known):
    build = with_templates(one_by_one)
    assert compiles(derivative(filtered, of_filter(50)), build) == 1
    kernel_cache.kernels.clear()  # as in another process
    assert compiles(derivative(filtered, of_filter(73)), build) == 0
    (kept,) = kept_kernels(folder)
    kernel_cache.kernels.clear()
    assert compiles(derivative(filtered, of_filter(73)), with_templates(one_by_one, True)) == 1
    kept.write_bytes(kept.read_bytes()[:-1])  # torn
    kernel_cache.kernels.clear()
    assert compiles(derivative(filtered, of_filter(73)), build) == 1


def test_kernels_of_no_loop_are_kept_with_their_programs_only(folder, nothing_known):
    tape = derivative(lambda x: np.sum(np.sin(x)), (np.ones(50),))
    assert compiles(tape, with_templates(one_by_one)) == 1
    assert not kept_kernels(folder)


def another_process(monkeypatch) -> None:
    monkeypatch.setattr(kernel_cache, "kernels", kernel_cache.Memo())


def test_what_kernels_share_is_compiled_once_and_kept(folder, nothing_known, monkeypatch):
    compiled = []
    another_process(monkeypatch)
    code_of = support.shared_code
    monkeypatch.setattr(support, "shared_code", lambda x: compiled.append(x) or code_of(x))
    programs = [
        derivative(
            lambda x, y, s=s: np.sum(np.tanh(np.sin(x * s) @ y)),
            (np.ones((40, 50)), np.ones((50, n))),
        )
        for s, n in ((2.0, 30), (3.0, 46))
    ]
    for tape in programs:
        compiles(tape, with_templates(one_by_one))
    assert len(compiled) == len({*compiled}) > 2
    del compiled[:]
    kernel_cache.kernels.clear()
    for tape in programs:
        compiles(tape)  # without the disk
    assert not compiled
    another_process(monkeypatch)
    for tape in programs:
        compiles(tape, with_templates(one_by_one))
    assert not compiled


# ---- templates


def of_text(text: str, lengths=(50,), rounds=(), names=(), constants=None) -> Any:
    cells = [Cell((50, 3), np.dtype(float)) for _ in names]
    listed = ", ".join(names)
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    kernel = Kernel("k", [*cells], [*names], f"def k({listed}):\n{lines}", rounds)
    return template(kernel, lengths, constants or {})


@pytest.mark.parametrize(
    "text, lifted, numbers",
    [
        ("t = 50 - i", "t = #0 - i", [50]),
        ("t = s * 0.02 + 2.0 * 0.5", "t = s * #0 + 2.0 * 0.5", [0.02]),
        ("t = s * (-0.02)", "t = s * #0", [-0.02]),
        ("t = 1 if True else 5", "t = 1 if True else 5", []),
        ("return 50", "return 50", []),
        ("t = s + c", "t = s + #0", [np.float32(0.3)]),
        ("t = s + e", "t = s + e", []),
        ("if n != 400:\n    return 1", "if n != #0:\n    return 1", [400]),
    ],
)
def test_numbers_that_are_taken(text, lifted, numbers):
    constants = {"c": np.float32(0.3), "e": np.float32(0.5)}
    found = of_text(text, constants=constants)
    assert "\n".join(map(ast.unparse, found.module.body[0].body)) == lifted
    assert list(found.numbers) == numbers


def test_loops_inside_rounds_keep_their_bounds():
    text = """for i in range(50):
    for j in range(50):
        x[i, j] = 0.0
for i in range(50):
    for j in range(49):
        y[j] = 0.0"""
    found = of_text(text, rounds=(True, False, False, False))
    shown = ast.unparse(found.module)
    assert shown.count("range(50)") == 1
    assert shown.count("range(#0)") == 2 and shown.count("range(#1)") == 1


def test_shapes_are_told_where_something_depends_on_them():
    text = """t = reshaped(a, (50, 3))
u = reshaped(b, (50, 3))
v = part(c, 100, (50, 3))
w = part(c, 100, (3, 3))
t[0, 1] = a[1, 1]
matmul(u, c.T, d)
cholesky(v)
exchanged(e[:, 1])"""
    found = of_text(text, names="abcde")
    lines = list(map(ast.unparse, found.module.body[0].body))
    assert lines[:4] == [
        "t = reshaped(a, (None, 3))",
        "u = reshaped(b, ('#0', 3))",
        "v = part(c, #1, (50, 3))",
        "w = part(c, 100, (None, 3))",
    ]
    assert [shape for _, shape, _ in found.types] == [
        *[(None, 3), (None, 3), ("#0", 3), ("#0", 3)],
        (50, 3),
    ]


def test_short_loops_have_no_template():
    assert of_text("t = 16 - i", lengths=(16,)) is None
    assert of_text("t = 16 - i", lengths=()) is None


def test_machine_code_of_one_length_takes_no_other_arrays():
    tape = derivative(filtered, of_filter(50))
    text = compiled_text(pipeline.compile(tape))
    call = text.flat(text.driver.inputs)
    call(np.ones(50), 0.9)
    with pytest.raises(BufferError):
        call(np.ones(73), 0.9)


def test_code_without_the_places_is_refused():
    with pytest.raises(RuntimeError, match="no place for 1 numbers"):
        support.completed(b"nothing", [np.int64(1)], [])
