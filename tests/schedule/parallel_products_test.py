"""Long products of matrices are shared out among cores: by rows, by columns, by terms, by batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.emit.check import assert_agree

from tapegrad import jit, set_num_threads, trace, value_and_grad
from tapegrad.checking.plan_run import run_plan
from tapegrad.checking.plan_verify import verify_plan
from tapegrad.errors import InternalError
from tapegrad.ir.affine import Affine, Index
from tapegrad.ir.cells import COLUMNS, ROWS, TERMS, Cell, Read, Share
from tapegrad.ir.panels import Panel
from tapegrad.ir.plan import Plan, is_parallel, walk
from tapegrad.ir.plan_text import show_plan
from tapegrad.ir.steps import Compute, Gemm, Loop
from tapegrad.pipeline import at_its_best, schedule
from tapegrad.primitives.elementwise import copy
from tapegrad.schedule.parallelise import parallelise

GOLDEN = Path(__file__).parents[1] / "ir" / "plans" / "shares.txt"
RNG = np.random.default_rng(0)
F8 = np.dtype(float)


def normal(*shape):
    return RNG.normal(size=shape)


@pytest.fixture
def short_chunks(monkeypatch):
    """Products are shared out that wouldn't be worth it."""
    shortest = {"LEAST_SIDE": 2, "LEAST_TERMS": 12, "BLOCK": 1}
    for name, value in {"GRAIN": 64, **shortest}.items():
        monkeypatch.setattr(f"tapegrad.schedule.parallelise.{name}", value)
    monkeypatch.setattr("tapegrad.schedule.products.SMALL_OF_BATCH", 1)
    yield
    set_num_threads()


PRODUCTS = {
    "rows": (lambda x, y: x @ y, (8, 5), (5, 4), [ROWS]),
    "rows that don't come out even": (lambda x, y: x @ y, (7, 5), (5, 3), [ROWS]),
    "columns": (lambda x, y: x @ y, (3, 5), (5, 9), [COLUMNS]),
    "terms": (lambda x, y: x @ y, (3, 70), (70, 3), [TERMS]),
    "transposes": (lambda x, y: x.T @ y.T, (5, 8), (4, 5), [ROWS]),
    "transposed columns": (lambda x, y: x.T @ y.T, (5, 3), (9, 5), [COLUMNS]),
    "transposed terms": (lambda x, y: x.T @ y.T, (70, 3), (3, 70), [TERMS]),
    "added terms": (lambda x, y: x @ y + np.exp(x) @ y, (3, 70), (70, 3), [TERMS] * 2),
    "one after another": (lambda x, y: x @ y @ x, (8, 6), (6, 8), [ROWS] * 2),
    "with what is computed of it": (lambda x, y: np.tanh(x @ y + y[0]), (8, 5), (5, 4), [ROWS]),
    "rows of joined axes": (lambda x, y: x @ y, (3, 4, 5), (5, 4), [ROWS]),
    "an axis of one among them": (lambda x, y: x @ y, (3, 1, 3, 5), (5, 4), [ROWS]),
    "joined axes that lie crosswise": (
        lambda x, y: np.moveaxis(x, 0, -1) @ y,
        *((5, 3, 4), (5, 4), [ROWS]),
    ),
    "joined columns": (lambda x, y: np.tensordot(x, y, 1), (3, 5), (5, 4, 3), [COLUMNS]),
    "joined terms": (
        lambda x, y: np.tensordot(x, y, ((0, 1), (0, 1))),
        *((7, 10, 3), (7, 10, 3), [TERMS]),
    ),
    "a part of joined rows": (lambda x, y: np.tanh(x[1:] @ y), (5, 4, 5), (5, 4), [ROWS]),
    "a batch": (lambda x, y: x @ y, (5, 4, 3), (5, 3, 4), []),
    "a batch of batches": (lambda x, y: x @ y, (4, 2, 4, 3), (2, 3, 4), []),
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", PRODUCTS)
def test_they_are_what_they_were(name, short_chunks):
    """Run as it is written, which is held against the tape as tests run, and compiled; whatever
    the threads, to the last bit."""
    f, *shapes, axes = PRODUCTS[name]
    dtype = np.float32 if "transposed" in name else np.float64
    values = [normal(*shape).astype(dtype) for shape in shapes]
    _, tape = trace(f, *values)
    steps = schedule(tape).plan.steps
    shares = [s.share for s in walk(steps) if isinstance(s, Gemm)]
    assert [share.axis for share in shares if share is not None] == axes
    assert any(map(is_parallel, steps))
    assert_agree(tape, values)
    compiled, found = jit(f, compile="always"), []
    for count in (1, 2, 5):
        set_num_threads(count)
        found.append(compiled(*values))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


@pytest.mark.every(4)
@pytest.mark.parametrize("number", range(4))
def test_programs_of_products(number, short_chunks):
    """Layers and heads with sizes at random, and their gradients."""
    rng = np.random.default_rng(number)
    n, d, heads, wide = rng.integers(2, 9, size=4)
    x, V = rng.normal(size=(n, heads * d)), rng.normal(size=(heads * d, wide))

    def f(x, V):
        h = np.transpose(np.reshape(x, (n, heads, d)), (1, 0, 2))
        scores = np.exp(h @ np.swapaxes(h, 1, 2) / 9.0)
        mixed = np.transpose(scores @ h, (1, 0, 2))
        return np.sum(np.tanh(np.reshape(mixed, (n, heads * d)) @ V) ** 2)

    expected, slopes = value_and_grad(f, (0, 1), compile="never")(x, V)
    compiled, known = value_and_grad(f, (0, 1), compile="always"), []
    for count in (1, 2):
        set_num_threads(count)
        value, found = compiled(x, V)
        known.append((value, *found))
        np.testing.assert_allclose(value, expected, 1e-12)
        for a, b in zip(found, slopes, strict=True):
            np.testing.assert_allclose(a, b, 1e-9, 1e-12)
    for a, b in zip(*known, strict=True):
        np.testing.assert_array_equal(a, b)


def test_how_they_read(short_chunks, request):
    _, tape = trace(lambda x, y: (x @ y, x.T @ x), normal(9, 5), normal(5, 4))
    found = schedule(tape)
    kernels = "\n".join(kernel.text for kernel in found.kernels)
    text = "\n".join(line.split("  #")[0].rstrip() for line in str(found.plan).splitlines())
    text = f"{text}\n\n{kernels}"
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def attended(x, V):
    """Softmax of scores, of each head by itself."""
    scores = x @ np.swapaxes(x, 1, 2)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return np.tanh(e / np.sum(e, axis=-1, keepdims=True) @ V)


TOGETHER = {
    "several of one factor": (lambda x, y, z: (x @ y, x @ z), (8, 5), (5, 4), (5, 4)),
    "what is computed of rows": (
        lambda x, y, z: np.abs(np.abs(x @ y + z) @ x),
        *((8, 5), (5, 8), (8,)),
    ),
    "heads": (attended, (4, 6, 3), (4, 6, 3)),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_follows_on_the_same_rows_is_one_loop(name, short_chunks):
    f, *shapes = TOGETHER[name]
    _, tape = trace(f, *(normal(*shape) for shape in shapes))
    (step,) = schedule(tape).plan.steps
    assert is_parallel(step)


def distances(mean, precision, x):
    """A log is computed for tiles of rows, and each chunk has sums of its own for the mean."""
    d = x - mean
    return np.sum(np.log(1.0 + np.sum((d @ precision) * d, axis=1)))


def test_tiles_of_rows_are_in_the_chunks_of_what_makes_these(monkeypatch):
    monkeypatch.setattr("tapegrad.schedule.parallelise.GRAIN", 1 << 14)
    args = normal(5), np.eye(5) + 0.1, normal(10_000, 5)  # of the last chunk there is a part
    lowered = value_and_grad(distances, (0, 1)).lower(*args)
    steps = schedule(at_its_best(lowered.tape)).plan.steps
    products = [s for s in steps if any(isinstance(x, Gemm) for x in walk([s]))]
    inside = list(walk(products[:1]))
    assert any(isinstance(step, Loop) and step.step > 1 for step in inside)
    df = value_and_grad(distances, (0, 1), compile="always")
    played = value_and_grad(distances, (0, 1), compile="never")(*args)
    for count in (1, 3):
        set_num_threads(count)
        value, gradients = df(*args)
        np.testing.assert_allclose(value, played[0], rtol=1e-12)
        for a, b in zip(gradients, played[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    set_num_threads()


def loss(x, y):
    return np.sum(np.log(1.0 + (x @ y) ** 2))


def centred(x, y):
    """The second product needs a number that all rows add to."""
    z = x @ y
    return np.tanh(z - np.sum(z)) @ y.T


def weighted(x, y):
    """And the number that is between is of one that they add to."""
    z = x @ y
    total = np.sum(z) / 3.0
    return np.sum(np.abs(z @ y.T)) * total, total


NUMBERS = {"a loss": (loss, 2), "one that rows need": (centred, 1), "two": (weighted, 2)}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_in_between(name, short_chunks, monkeypatch):
    """Products that follow each other on the same rows are one loop, unless they need a number of
    all of these."""
    monkeypatch.setattr("tapegrad.schedule.parallelise.LEAST_SIDE", 1)
    f, together = NUMBERS[name]
    args = normal(16, 5), normal(5, 4)
    if f is loss:
        df = value_and_grad(f, 0, compile="never")
        df(*args)
        (tape,) = df.tapes
    else:
        tape = trace(f, *args)[1]
    assert_agree(tape, args)
    steps = [step for step in schedule(tape).plan.steps if is_parallel(step)]
    assert max(sum(isinstance(s, Gemm) for s in walk([step])) for step in steps) == together
    run = jit(f, compile="always") if f is not loss else value_and_grad(f, compile="always")
    found = []
    for count in (1, 2, 5):
        set_num_threads(count)
        found.append(str(run(*args)))
    assert len({*found}) == 1


def test_what_reads_the_rows_of_others_is_another_loop(short_chunks):
    _, tape = trace(lambda x, y: (x @ y) @ np.tanh(x @ y), normal(8, 8), normal(8, 8))
    assert len(schedule(tape).plan.steps) > 1


def test_none_is_cut_into_fewer_chunks_for_that(short_chunks, monkeypatch):
    _, tape = trace(lambda x, y: np.exp(x @ y), normal(64, 3), normal(3, 4))
    monkeypatch.setattr("tapegrad.schedule.parallelise.LEAST_SIDE", 16)
    chunks = [step.index.extent for step in schedule(tape).plan.steps]
    assert chunks[0] < chunks[1]


def test_an_axis_without_entries():
    """Among others that are long enough to be shared."""

    def attention(q, k, v):
        return np.sum(np.exp(q @ np.swapaxes(k, -1, -2) / 100.0) @ v)

    args = normal(5, 100, 17), normal(5, 70, 17), normal(5, 70, 0)
    value, slopes = value_and_grad(attention, (0, 1, 2), compile="always")(*args)
    assert value == 0.0
    for found, x in zip(slopes, args, strict=True):
        np.testing.assert_array_equal(found, np.zeros_like(x))


def test_short_ones_and_fronts_stay_whole():
    _, tape = trace(lambda x, y: x @ y, normal(64, 64), normal(64, 64))
    assert not any(map(is_parallel, schedule(tape).plan.steps))


# ---- a sum over a batch


def summed(batch: int = 4) -> Plan:
    """out = sum over b of x[b] @ y[b], added to what is there."""
    x, y = (Cell((batch, *shape), F8, "input") for shape in ((3, 5), (5, 2)))
    start, out = Cell((3, 2), F8, "input"), Cell((3, 2), F8, "output")
    b, i, j = Index(batch), Index(3), Index(2)
    at, each = (Affine.of(b),), (Affine.of(i), Affine.of(j))
    fill = Loop(i, (Loop(j, (copied(out, start, each),)),))
    term = Gemm(Panel.of(out), Panel.of(x, at), Panel.of(y, at), adds=True)
    return Plan("f", (x, y, start), (out,), (fill, Loop(b, (term,))))


def copied(out, source, at):
    return Compute(out, at, copy, (Read(source, at),))


def test_a_sum_over_a_batch(short_chunks):
    """Each chunk adds to a matrix of its own."""
    plan = summed()
    cut = verify_plan(parallelise(plan))
    (loop,) = [s for s in cut.steps if is_parallel(s)]
    assert loop.index.extent > 1
    x, y, start = normal(4, 3, 5), normal(4, 5, 2), normal(3, 2)
    (found,) = run_plan(cut, (x, y, start)).results
    np.testing.assert_allclose(found, start + np.sum(x @ y, axis=0), 1e-12)


def test_a_matrix_of_each_iteration(short_chunks):
    """Each chunk computes it in memory of its own."""
    x, y = (Cell((4, *shape), F8, "input") for shape in ((3, 5), (5, 2)))
    t, out = Cell((3, 2), F8), Cell((4, 3, 2), F8, "output")
    b, i, j = Index(4), Index(3), Index(2)
    at, each = (Affine.of(b),), (Affine.of(i), Affine.of(j))
    term = Gemm(Panel.of(t), Panel.of(x, at), Panel.of(y, at))
    inner = Loop(i, (Loop(j, (Compute(out, (*at, *each), copy, (Read(t, each),)),)),))
    cut = verify_plan(parallelise(Plan("f", (x, y), (out,), (Loop(b, (term, inner)),))))
    assert any(map(is_parallel, cut.steps))
    values = normal(4, 3, 5), normal(4, 5, 2)
    (found,) = run_plan(cut, values).results
    np.testing.assert_allclose(found, np.matmul(*values), 1e-12)


# ---- malformed plans


def shared(share: Share | None, chunk: Index, swapped: bool = False, **changed) -> Plan:
    x, y = Cell((6, 5), F8, "input"), Cell((5, 4), F8, "input")
    out = Cell((6, 4), F8, "output")
    step = Gemm(Panel.of(out), Panel.of(x, swapped=swapped), Panel.of(y), share=share, **changed)
    return Plan("f", (x, y), (out,), (Loop(chunk, (step,), parallel=True),))


CHUNK = Index(3)
SHARE = Share(ROWS, CHUNK, 2)
MALFORMED = {
    "whole products": (None, {}, "out: two chunks meet in it"),
    "terms, into one result": (Share(TERMS, CHUNK, 2), {}, "out: two chunks meet in it"),
    "too few rows": (Share(ROWS, CHUNK, 1), {}, "its chunks don't cover it"),
    "chunks behind the end": (Share(ROWS, CHUNK, 3), {}, "its chunks don't cover it"),
    "another loop's chunks": (Share(ROWS, Index(3), 2), {}, "two chunks|loop over its chunks"),
    "chunks of a front": (
        SHARE,
        {"sizes": (Affine((), 6), Affine((), 4), Affine((), 5))},
        "its chunks don't cover it",
    ),
    "factors the other way round": (
        Share(ROWS, CHUNK, 2),
        {"swapped": True},
        "doesn't fit",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_chunks_that_meet_are_found(name):
    share, changed, message = MALFORMED[name]
    verify_plan(shared(SHARE, CHUNK))
    with pytest.raises(InternalError, match=message):
        verify_plan(shared(share, CHUNK, **changed))


def test_a_chunk_that_reads_the_rows_of_another_is_found():
    """h = x @ y and out = h @ z by rows is right, by columns of h it isn't."""
    x, h, out = Cell((6, 6), F8, "input"), Cell((6, 6), F8), Cell((6, 6), F8, "output")
    first = Gemm(*map(Panel.of, (h, x, x)), share=SHARE)

    def plan(second: Gemm) -> Plan:
        return Plan("f", (x,), (out,), (Loop(CHUNK, (first, second), parallel=True),))

    good = Gemm(*map(Panel.of, (out, h, x)), share=SHARE)
    assert show_plan(verify_plan(plan(good)))
    for bad in (replace(good, x=good.y, y=good.x), replace(good, x=good.x.T)):
        with pytest.raises(InternalError, match="two chunks meet in it"):
            verify_plan(plan(bad))


def test_so_is_one_that_reads_rows_of_joined_axes_from_elsewhere():
    """h = x @ y and out = h @ y, where the rows of h are two axes of it."""
    x, h = (Cell((3, 2, 6), F8, role) for role in ("input", "temporary"))
    y, out = Cell((6, 6), F8, "input"), Cell((2, 2, 6), F8, "output")
    chunk = Index(2)

    def rows(cell: Cell, start: int) -> Panel:
        return Panel(cell, (Affine((), start), Affine(), Affine()), (0, 1), (2,), (4, 6))

    def plan(start: int) -> Plan:
        share = Share(ROWS, chunk, 2)
        first = Gemm(rows(h, 0), rows(x, 0), Panel.of(y), share=share)
        second = Gemm(rows(out, 0), rows(h, start), Panel.of(y), share=share)
        return Plan("f", (x, y), (out,), (Loop(chunk, (first, second), parallel=True),))

    verify_plan(plan(0))
    with pytest.raises(InternalError, match="two chunks meet in it"):
        verify_plan(plan(1))


def test_rows_of_two_axes_are_no_rows_of_one():
    """Chunks of as many, and as many of them: but those of h[:2] are its elements [n, i], and those
    of h[:, 0] its elements [n, 0]."""
    x, h, out = (
        Cell(shape, F8, role)
        for shape, role in (((5, 4, 6), "input"), ((5, 4, 6), "output"), ((5, 6), "output"))
    )
    y, chunk = Cell((6, 6), F8, "input"), Index(2)
    share, start = Share(ROWS, chunk, 4), (Affine(), Affine(), Affine())
    first = Gemm(
        *(Panel(cell, start, (0, 1), (2,), (8, 6)) for cell in (h, x)), Panel.of(y), share=share
    )
    second = Gemm(Panel.of(out), Panel(h, start, (0,), (2,), (5, 6)), Panel.of(y), share=share)

    def plan(source: Cell) -> Plan:
        steps = first, replace(second, x=replace(second.x, cell=source))
        return Plan("f", (x, y), (h, out), (Loop(chunk, steps, parallel=True),))

    verify_plan(plan(x))
    with pytest.raises(InternalError, match="two chunks meet in it"):
        verify_plan(plan(h))


def test_a_share_that_a_loop_moves_is_nobodys():
    """out[j:j + 6] is that of other chunks in other rounds of j."""
    j, chunk = Index(2), Index(3)
    at = (Affine.of(j), Affine())
    x, y = Cell((6, 5), F8, "input"), Cell((5, 4), F8, "input")
    out = Cell((7, 4), F8, "output")
    share = Share(ROWS, chunk, 2)
    step = Gemm(Panel(out, at, (0,), (1,), (6, 4)), Panel.of(x), Panel.of(y), True, share=share)
    loop = Loop(chunk, (Loop(j, (step,)),), parallel=True)
    with pytest.raises(InternalError, match="two chunks meet in it"):
        verify_plan(Plan("f", (x, y), (out,), (loop,)))
