"""Losses whose data come in parts: equal to the whole, in any scheduler, with the same bits."""

import os
import subprocess
import sys
import textwrap
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse

import tapegrad
import tapegrad.dask as td
from tapegrad.errors import ArgumentError, RandomnessError, UnsupportedError

rng = np.random.default_rng(5)
w, x, y = rng.normal(size=4), rng.normal(size=(103, 4)), rng.normal(size=103)
START = w.copy()
X, Y = da.from_array(x, chunks=(20, 3)), da.from_array(y, chunks=35)
OVER = ("x", "y")


def loss(w, x, y):
    return np.sum((np.tanh(x @ w) - y) ** 2)


def mean(w, x, y):
    return np.mean((np.tanh(x @ w) - y) ** 2)


def penalty(w):
    return 0.1 * np.sum(w**2)


def close(found, wanted):
    assert tapegrad.trees.tree_paths(found) == tapegrad.trees.tree_paths(wanted)
    for a, b in zip(*map(tapegrad.trees.tree_leaves, (found, wanted)), strict=True):
        rtol = 1e-5 if np.asarray(a).dtype == np.float32 else 1e-10
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def parts_of(kind):
    if kind == "dask":
        return X, Y
    if kind == "arrays":
        return x, y
    if kind == "lists":
        return np.array_split(x, 5), np.array_split(y, 5)
    if kind == "delayed":
        return [*map(dask.delayed, np.array_split(x, 5))], np.array_split(y, 5)
    if kind == "mixed":
        return X, y
    return iter(np.array_split(x, 30)), (part for part in np.array_split(y, 30))


@pytest.mark.parametrize("compile", ["always", "never"])
@pytest.mark.parametrize("kind", ["dask", "arrays", "lists", "delayed", "mixed", "batches"])
def test_sum_of_parts_is_the_whole(kind, compile):
    g = td.value_and_grad(loss, over=OVER, rows=17, compile=compile)
    close(g(w, *parts_of(kind)), tapegrad.value_and_grad(loss)(w, x, y))


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", ["dask", "lists", "batches"])
def test_mean_weighs_by_rows(kind):
    g = td.value_and_grad(mean, over=OVER, reduce="mean", plus=penalty)
    whole = tapegrad.value_and_grad(lambda w: mean(w, x, y) + penalty(w))(w)
    close(g(w, *parts_of(kind)), whole)


def test_other_derivatives():
    v = rng.normal(size=4)
    whole = lambda w, *args: loss(w, *args) + penalty(w)  # noqa: E731
    options = {"over": OVER, "plus": penalty}
    close(td.grad(loss, **options)(w, X, Y), tapegrad.grad(whole)(w, x, y))
    close(td.hvp(loss, **options)(w, X, Y, v), tapegrad.hvp(whole)(w, x, y, v))
    close(td.hessian(loss, **options)(w, X, Y), tapegrad.hessian(whole)(w, x, y))


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", ["dask", "arrays", "batches"])
def test_rows_of_parts(kind):
    def model(w, x):
        return np.tanh(x @ w)

    data = parts_of(kind)[0]
    found = td.jacobian(model, over="x", rows=17)(w, data)
    assert isinstance(found, da.Array if kind == "dask" else np.ndarray)
    if kind == "dask":
        assert found.chunks == (X.chunks[0], (4,))
    close(np.asarray(found), tapegrad.jacobian(model)(w, x))
    close(np.asarray(td.jit(model, over="x", rows=17)(w, parts_of(kind)[0])), model(w, x))


def test_trees_of_parameters_and_of_parts():
    def of_batch(params, batch, *, scale=1.0):
        return np.sum((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2) * scale

    params = {"w": w.astype(np.float32), "b": 0.5}
    batches = [{"x": a, "y": b} for a, b in zip(*parts_of("lists"), strict=True)]
    whole = tapegrad.value_and_grad(of_batch)(params, {"x": x, "y": y}, scale=2.0)
    for data in (batches, iter(batches), {"x": X, "y": Y}, {"x": x, "y": Y}):
        found = td.value_and_grad(of_batch, over="batch")(params, data, scale=2.0)
        close(found, whole)


def test_derivative_by_several_arguments():
    def scaled(w, s, x, y):
        return np.sum((s * (x @ w) - y) ** 2)

    add = lambda w, s: s**2 * np.sum(w)  # noqa: E731
    whole = lambda w, s: scaled(w, s, x, y) + add(w, s)  # noqa: E731
    found = td.value_and_grad(scaled, ("s", "w"), over=OVER, plus=add)(w, 2.0, X, Y)
    close(found, tapegrad.value_and_grad(whole, (1, 0))(w, 2.0))
    found = td.grad(scaled, "s", over=OVER, plus=lambda w: penalty(w))(w, 2.0, X, y=Y)
    close(found, tapegrad.grad(scaled, "s")(w, 2.0, x, y))


def test_bits_are_those_of_the_tree_whoever_computes():
    g = td.value_and_grad(loss, over=OVER)
    found = [g(w, *parts_of("lists")), g(w, *map(iter, parts_of("lists")))]
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(g(w, *parts_of("lists")))
    for value, slope in found[1:]:
        assert value == found[0][0]
        assert np.array_equal(slope, found[0][1])


def test_bits_are_the_same_of_parts_that_are_not_aligned():
    """Arrays from another process lie where they came in, and NumPy adds their numbers up in
    another order."""

    def moved(a):
        found = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
        found[...] = a
        return found

    g = td.grad(loss, over=OVER, compile="never")
    parts = parts_of("lists")
    lists = [[moved(part) for part in one] for one in parts]
    assert not lists[0][0].flags.aligned
    assert np.array_equal(g(w, *lists), g(w, *parts))


def test_chunks_of_other_lengths_find_the_same_code():
    g = td.grad(loss, over=OVER)
    for size in (30, 29, 28, 17, 5):
        g(w, da.from_array(x, chunks=(size, 4)), Y)
    info = g.derived.cache_info()
    assert info.kernels <= 3 < info.compiles


def test_each_part_draws_from_a_child():
    def noisy(w, x, rng):
        return np.sum((x @ w + rng.normal(size=len(x))) ** 2)

    def by_hand(seed):
        children = np.random.default_rng(seed).spawn(3)
        parts = np.array_split(x, 3)
        return sum(noisy(w, part, child) for part, child in zip(parts, children, strict=True))

    g, generator = td.value_and_grad(noisy, over="x"), np.random.default_rng(3)
    first = g(w, np.array_split(x, 3), generator)[0]
    np.testing.assert_allclose(first, by_hand(3))
    assert g(w, np.array_split(x, 3), generator)[0] != first  # other children


def test_parts_that_are_not_finite_are_named():
    bad = [part.copy() for part in np.array_split(x, 5)]
    bad[3][0] = np.inf
    with pytest.warns(RuntimeWarning, match="part 3, counted from 0"):
        td.grad(loss, over=OVER)(w, bad, np.array_split(y, 5))


def test_an_error_says_which_part():
    def refusing(w, x):
        if np.any(x > 90.0):
            raise ValueError("too large")
        return np.sum(x @ w)

    bad = [part.copy() for part in np.array_split(x, 5)]
    bad[3][0] = 99.0
    with pytest.raises(ValueError, match="too large") as caught:
        td.grad(refusing, over="x")(w, bad)
    assert caught.value.__notes__ == ["This was part 3, counted from 0, of shapes: x (20, 4)"]


class Counter:
    calls = 0


counter = Counter()


def counting(w, x, y):
    counter.calls += 1
    return loss(w, x, y)


def writing(w, x, y):
    y -= x @ w
    return np.sum(y**2)


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("f", "options", "kind", "says"),
    [
        (lambda w, x, y: loss(w, x, y) + penalty(w), {}, ArgumentError, "plus=penalty"),
        (lambda w, x, y: loss(w, x, y) + penalty(w - w), {}, None, ""),
        (lambda w, x, y: loss(w, x, y) + penalty(w - 0.3), {}, ArgumentError, "plus=penalty"),
        (mean, {}, ArgumentError, 'reduce="mean"'),
        (loss, {"reduce": "mean"}, ArgumentError, 'reduce="sum"'),
        (lambda w, x, y: np.sum((x @ w) * y.mean()), {}, ArgumentError, "no row may contribute"),
        (lambda w, x, y: np.sum(x @ (w - START)) * y.mean(), {}, ArgumentError, "may contribute"),
        (lambda w, x, y: np.sum(x @ w * np.random.rand()), {}, RandomnessError, "argument"),
        (counting, {}, UnsupportedError, "calls"),
        (writing, {}, UnsupportedError, "Write to a copy"),
        (loss, {"argnums": "x"}, ArgumentError, "comes in parts"),
        (loss, {"over": "z"}, ArgumentError, "It has w, x, y"),
        (loss, {"over": ()}, ArgumentError, "at least one"),
        (loss, {"over": 1}, ArgumentError, "over"),
        (loss, {"reduce": "max"}, ArgumentError, "reduce"),
        (loss, {"rows": 0}, ArgumentError, "rows"),
        (loss, {"plus": loss}, ArgumentError, "takes 3 arguments"),
    ],
)
def test_what_parts_cannot_be(f, options, kind, says):
    def run():
        g = td.value_and_grad(f, **{"over": OVER, **options})
        return g(w, np.array_split(x, 4), np.array_split(y.copy(), 4))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if kind is None:
            run()
            return
        with pytest.raises(kind, match=says):
            run()


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (X, da.from_array(y[:-1]), "103 of 'x' and 102 of 'y'"),
        ([x, x], [y], "2 of 'x' and 1 of 'y'"),
        ([x], y, "lists for both"),
        ([x], [y[:-1]], "103 of 'x' and 102 of 'y'"),
        (iter([x, x]), iter([y]), "'y' has fewer parts"),
        (3.0, Y, "comes in parts"),
        ("xy", Y, "comes in parts"),
        (dask.delayed(x), Y, "to_dask_array"),
        (X, np.array(3.0), "no rows"),
        ([], [], "no parts"),
    ],
)
def test_parts_that_do_not_belong_together(a, b, says):
    with pytest.raises(ArgumentError, match=says):
        td.grad(loss, over=OVER, check=False)(w, a, b)


def test_traced_values_are_refused():
    with pytest.raises(UnsupportedError, match="hvp"):
        tapegrad.grad(lambda w: td.value_and_grad(loss, over=OVER)(w, X, Y)[0])(w)


def test_arrays_on_disk(tmp_path):
    for name, array in (("x", x), ("y", y)):
        mapped = np.memmap(tmp_path / name, array.dtype, "w+", shape=array.shape)
        mapped[:] = array
        mapped.flush()
    a = np.memmap(tmp_path / "x", float, "r", shape=x.shape)
    b = np.memmap(tmp_path / "y", float, "r", shape=y.shape)
    close(td.grad(loss, over=OVER, rows=20)(w, a, b), tapegrad.grad(loss)(w, x, y))


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_of_zarr(tmp_path, version):
    zarr = pytest.importorskip("zarr")
    stored = []
    for name, array, chunk in (("x", x, 7), ("y", y, 16)):
        made = zarr.create_array(
            tmp_path / name,
            shape=array.shape,
            chunks=(chunk, *array.shape[1:]),
            dtype=array.dtype,
            zarr_format=version,
        )
        made[:] = array
        stored.append(zarr.open_array(tmp_path / name, mode="r"))
    close(td.grad(loss, over=OVER, rows=20)(w, *stored), tapegrad.grad(loss)(w, x, y))
    close(td.grad(loss, over=OVER)(w, stored[0], y), tapegrad.grad(loss)(w, x, y))


def run(program, tmp_path):
    (tmp_path / "model.py").write_text(
        textwrap.dedent(
            """
            import numpy as np

            FACTOR = 1.0

            def helper(z):
                return np.tanh(FACTOR * z)

            def loss(w, x, y):
                if np.any(x > 90.0):
                    raise ValueError("too large")  # line 11
                return np.sum((helper(x @ w) - y) ** 2)
            """
        )
    )
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    environment = {**os.environ, "TAPEGRAD_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HEAD = """
import os, signal, sys, threading, time, traceback
import dask, model
import numpy as np
import tapegrad, tapegrad.dask as td

rng = np.random.default_rng(0)
w, x, y = rng.normal(size=4), rng.normal(size=(400, 4)), rng.normal(size=400)
parts = np.array_split(x, 8), np.array_split(y, 8)
g = td.value_and_grad(model.loss, over=("x", "y"))

def same(a, b):
    assert a[0] == b[0] and np.array_equal(a[1], b[1]), (a, b)

def close(a, b):
    np.testing.assert_allclose(a[0], b[0]), np.testing.assert_allclose(a[1], b[1])
"""


def test_processes_see_the_globals_of_now(tmp_path):
    """Workers that have seen others, as a pool of one's own keeps them."""
    program = HEAD + textwrap.dedent(
        """
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        if __name__ == "__main__":
            here = g(w, *parts)
            pool = ProcessPoolExecutor(2, get_context("spawn"))
            with pool, dask.config.set(scheduler="processes", pool=pool):
                same(g(w, *parts), here)
                model.FACTOR = 2.0
                close(g(w, *parts), tapegrad.value_and_grad(model.loss)(w, x, y))
                big = [part.copy() for part in parts[0]]
                big[5][0] = 99.0
                try:
                    g(w, big, parts[1])
                except ValueError as error:
                    text = "".join(traceback.format_exception(error))
                    assert "part 5" in text, text
                else:
                    raise AssertionError
        """
    )
    run(program, tmp_path)


def test_a_cluster_with_workers_that_are_killed(tmp_path):
    pytest.importorskip("distributed")
    program = HEAD + textwrap.dedent(
        """
        from distributed import Client, LocalCluster

        def kill(cluster):
            time.sleep(0.05)
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

        if __name__ == "__main__":
            here = g(w, *parts)
            options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
            with LocalCluster(**options, silence_logs=50) as cluster, Client(cluster):
                same(g(w, *parts), here)
                model.FACTOR = 2.0
                here = tapegrad.value_and_grad(model.loss)(w, x, y)
                close(g(w, *parts), here)
                first = g(w, *parts)
                slow = [dask.delayed(lambda part: time.sleep(0.02) or part)(p) for p in parts[0]]
                for _ in range(2):
                    thread = threading.Thread(target=kill, args=(cluster,))
                    thread.start()
                    same(g(w, slow, parts[1]), first)
                    thread.join()
                    cluster.scale(2)
                big = [part.copy() for part in parts[0]]
                big[5][0] = 99.0
                try:
                    g(w, big, parts[1])
                except ValueError as error:
                    text = "".join(traceback.format_exception(error))
                    assert "part 5" in text and 'model.py", line 11' in text, text
                else:
                    raise AssertionError
        """
    )
    run(program, tmp_path)


@pytest.mark.every(2)
@pytest.mark.parametrize("check", [True, False])
def test_sparse_parts_count_by_their_rows(check):
    X = np.array([[1.0, 0, 2], [0, 0, 3], [4, 5, 6], [0, 1, 0], [2, 0, 0]])
    parts = [scipy.sparse.csr_array(X[:2]), scipy.sparse.csr_array(X[2:])]

    def loss(w, x):
        return np.mean((x @ w) ** 2)

    mean = td.value_and_grad(loss, over="x", reduce="mean", check=check)
    value, slope = mean(np.ones(3), parts)
    expected = tapegrad.value_and_grad(loss)(np.ones(3), X)
    np.testing.assert_allclose(value, expected[0], rtol=1e-14)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-14)
    of_dicts = td.value_and_grad(
        lambda w, part: loss(w, part["x"]), over="part", reduce="mean", check=check
    )
    np.testing.assert_allclose(
        of_dicts(np.ones(3), [{"x": part} for part in parts])[0], expected[0], rtol=1e-14
    )


@pytest.mark.every(2)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_half_precision_is_added_up_in_float32(reduce):
    """A sum in float16 would overflow, or lose what is small beside it."""
    kept = [a.astype(np.float16) for a in (w, x, y)]
    wide = [a.astype(np.float32) for a in kept]
    f = loss if reduce == "sum" else mean
    parts = [np.array_split(a, 20) for a in kept[1:]]
    value, found = td.value_and_grad(f, over=OVER, reduce=reduce)(kept[0], *parts)
    expected, gradient = tapegrad.value_and_grad(f)(*wide)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, gradient, rtol=2e-3)

    many = np.ones((20, 3000), np.float16)
    total = td.grad(lambda w, x: np.sum(w * x), over="x", reduce=reduce, check=False)
    expected = 60_000 if reduce == "sum" else 3000
    assert total(np.float16(1), list(many)) == np.float16(expected)


def test_parts_without_rows_are_nothing_in_a_mean():
    def mean(w, x):
        return np.mean((x @ w) ** 2)

    x, w = np.random.default_rng(0).normal(size=(20, 3)), np.ones(3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty|invalid value", RuntimeWarning)
        value, slope = td.value_and_grad(mean, over="x", reduce="mean")(w, [x[:5], x[5:5], x[5:]])
    expected, expected_slope = tapegrad.value_and_grad(mean)(w, x)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-12)


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_part_with_two_rows_says_whether_rows_mix(first):
    def centred(w, x):
        return np.sum((x @ w - np.sum(x @ w) / max(len(x), 1)) ** 2)

    x = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ArgumentError, match="no row may contribute to the loss of another"):
        td.grad(centred, over="x")(np.ones(3), [x[:first], x[first:]])


@pytest.mark.parametrize("make", [td.jit, td.jacobian])
@pytest.mark.parametrize("f", [lambda w, x: np.sum(x @ w), lambda w, x: (x * w).sum(0)])
def test_what_gives_no_row_for_each_row(make, f):
    x = np.random.default_rng(0).normal(size=(20, 3))
    synchronous = dask.config.set(scheduler="synchronous")  # an error leaves no thread to wait for
    with synchronous, pytest.raises(ArgumentError, match="are concatenated"):
        make(f, over="x")(np.ones(3), [x[:5], x[5:]])


@pytest.mark.every(2)
@pytest.mark.parametrize("rows", [20, 200])
def test_tables_are_cut_by_their_rows(rows):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(x, columns=[*"abcd"][: x.shape[1]], index=np.arange(len(x)) * 2.0)
    answers = pd.Series(y, index=table.index)
    expected = tapegrad.value_and_grad(loss)(w, x, y)

    def of_columns(w, table, y):
        return loss(w, np.stack([table[name] for name in table.columns], axis=1), y)

    def of_both(w, data):
        return of_columns(w, data["x"], data["y"])

    over = ("table", "y")
    halves = [[a[:50], a[50:]] for a in (table, answers)]
    for value, slope in (
        td.value_and_grad(of_columns, over=over, rows=rows)(w, table, answers),
        td.value_and_grad(of_columns, over=over)(w, table, da.from_array(y, chunks=30)),
        td.value_and_grad(of_columns, over=over)(w, *halves),
        td.value_and_grad(of_both, over="data", rows=rows)(w, {"x": table, "y": answers}),
    ):
        np.testing.assert_allclose(value, expected[0], rtol=1e-12)
        np.testing.assert_allclose(slope, expected[1], rtol=1e-12)
    first = td.jit(lambda w, table: w[0] * table["a"], over="table", rows=rows)(w, table)
    np.testing.assert_array_equal(first, w[0] * x[:, 0])
