"""Training on data in parts: what is found on the whole; killed runs go on bit for bit."""

import os
import subprocess
import sys
import textwrap

import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.utils import key_split

import tapegrad.dask as td
from tapegrad import optim
from tapegrad.dask import running
from tapegrad.errors import ArgumentError

rng = np.random.default_rng(5)
x, y = rng.normal(size=(103, 3)), np.sign(rng.normal(size=103))
X, Y = da.from_array(x, chunks=(20, 3)), da.from_array(y, chunks=35)
OVER = ("x", "y")


def start():
    return {"w": np.zeros(3), "b": 0.1}


def loss(p, x, y):
    return np.sum(np.log1p(np.exp(-y * (x @ p["w"] + p["b"]))))


def mean(p, x, y):
    return loss(p, x, y) / len(y)


def penalty(p):
    return 0.5 * np.sum(p["w"] ** 2)


def close(found, wanted, rtol=1e-9):
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=rtol)


@pytest.mark.every(2)
@pytest.mark.parametrize("optimiser", [optim.sgd(0.1, momentum=0.5), optim.adam(0.1)])
def test_steps_are_those_on_the_whole(optimiser):
    found = td.fit(mean, start(), X, Y, over=OVER, reduce="mean", optimiser=optimiser, steps=7)
    whole = optim.fit(mean, start(), (x, y), optimiser, epochs=7, batch_size=None, shuffle=False)
    close(found.params, whole.params)
    assert [e["epoch"] for e in found.history] == [1, 2, 3, 4, 5, 6, 7]
    losses = [[e["loss"] for e in run.history] for run in (found, whole)]
    np.testing.assert_allclose(*losses, rtol=1e-9)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "method", ["L-BFGS-B", "trust-ncg", "Newton-CG", "trust-constr", "trust-exact", "dogleg"]
)
def test_minimisers_find_what_they_find_on_the_whole(method):
    found = td.minimise(loss, start(), X, Y, over=OVER, plus=penalty, method=method)
    whole = optim.minimise(lambda p: loss(p, x, y) + penalty(p), start(), method=method)
    slope = found.grad if method == "trust-constr" else found.jac
    assert found.success and set(slope) == {"w", "b"}
    close(found.x, whole.x, rtol=1e-4)
    bounds = ({"w": -0.01, "b": -1.0}, 0.01)
    found = td.minimise(loss, start() | {"b": 0.0}, X, Y, over=OVER, bounds=bounds)
    assert np.all(np.abs(found.x["w"]) <= 0.01)


def test_each_step_draws_anew_and_the_seed_says_what():
    def noisy(p, x, rng):
        return np.sum((x @ p - rng.normal(size=len(x))) ** 2)

    def run(seed):
        fitted = td.fit(noisy, np.zeros(3), X, over="x", seed=seed, steps=3, optimiser=optim.sgd(0))
        return [entry["loss"] for entry in fitted.history]

    first = run(1)
    assert len({*first}) == 3 and run(1) == first != run(2)


PROGRAM = """
    import os, sys
    import numpy as np
    from tapegrad import optim
    import tapegrad.dask as td

    rng = np.random.default_rng(5)
    x = np.array_split(rng.normal(size=(90, 4)), 3)
    kind, path, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
    calls = 0

    def loss(p, x, rng=None):
        kept = 1.0 if rng is None else rng.random(len(x)) < 0.8
        return np.sum(kept * np.log(1.0 + (x @ p - 1.0) ** 2))

    def after(*_):
        global calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), 9)

    p, options = np.full(4, 0.3), dict(over="x", checkpoint=path, callback=after)
    if kind == "fit":
        fitted = td.fit(loss, p, x, optimiser=optim.adam(0.1), steps=6, **options)
        print(fitted.params.tobytes().hex(), fitted.history)
    else:
        fitted = td.minimise(loss, p, x, method=kind, **options)
        print(fitted.x.tobytes().hex(), fitted.fun, fitted.nfev, fitted.nit)
"""


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", ["fit", "L-BFGS-B", "trust-ncg"])
def test_a_run_that_is_killed_goes_on_bit_for_bit(kind, tmp_path):
    def run(file, last):
        program = [sys.executable, "-c", textwrap.dedent(PROGRAM), kind]
        arguments = [str(tmp_path / file), str(last)]
        return subprocess.run(
            [*program, *arguments], capture_output=True, text=True, env={**os.environ}
        )

    whole = run("whole", 0)
    assert whole.returncode == 0, whole.stderr
    for last in (2, 3):
        assert run("killed", last).returncode == -9
    assert run("killed", 0).stdout == whole.stdout


def evaluated(path, parts=(x[:50], x[50:]), **options):
    """The result of a run with this file."""

    def valley(p, x):
        return np.sum(np.log(1.0 + (x @ p - 1.0) ** 2))

    options = {"compile": "never", "check": False, "over": "x", "checkpoint": path, **options}
    return td.minimise(valley, np.full(3, 0.3), parts, **options)


def test_what_is_known_is_not_computed_again(tmp_path, monkeypatch):
    counted = []
    summed = running._summed
    monkeypatch.setattr(running, "_summed", lambda *args: counted.append(1) or summed(*args))
    whole = evaluated(tmp_path / "run")
    assert len(counted) == whole.nfev > 5
    counted.clear()
    again = evaluated(tmp_path / "run")
    assert len(counted) == 1 and again.x.tobytes() == whole.x.tobytes()
    held = (tmp_path / "run").read_bytes()
    (tmp_path / "run").write_bytes(held[:-5])  # as if the machine had stopped amid a write
    counted.clear()
    again = evaluated(tmp_path / "run")
    assert len(counted) == 2 and again.x.tobytes() == whole.x.tobytes()
    assert (tmp_path / "run").read_bytes() == held


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"parts": [x[:50] + 1e-3, x[50:]]}, "is another one now"),
        ({"method": "CG"}, "isn't the file of such a run"),
        ({"bounds": (0.31, 1.0)}, "was at another point"),
    ],
)
def test_a_file_of_another_run_is_refused(changed, says, tmp_path):
    evaluated(tmp_path / "run")
    held = (tmp_path / "run").read_bytes()
    with pytest.raises(ArgumentError, match=says):
        evaluated(tmp_path / "run", **changed)
    assert (tmp_path / "run").read_bytes() == held
    optim.fit(mean, start(), (x, y), epochs=1, checkpoint=tmp_path / "fit")
    with pytest.raises(ArgumentError, match="isn't the file"):
        evaluated(tmp_path / "fit")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"args": ([x[:50], x[50:] + 1e-3],)}, "the loss of its last step was"),
        ({"loss": lambda p, x, rng: np.sum((x @ p) ** 2) + 0 * rng.normal()}, "of its last step"),
        ({"optimiser": optim.sgd(0.02)}, "first steps"),
        ({"seed": 1}, "seed is 0, and not 1"),
        ({}, ""),
    ],
)
def test_steps_go_on_with_what_they_began_with(changed, says, tmp_path):
    def noisy(p, x, rng):
        return np.sum((x @ p - rng.normal(size=len(x))) ** 2)

    def run(steps, loss=noisy, args=([x[:50], x[50:]],), path=tmp_path / "run", **options):
        given = {"over": "x", "optimiser": optim.sgd(0.01), "seed": 0, "compile": "never"}
        return td.fit(loss, np.zeros(3), *args, steps=steps, checkpoint=path, **(given | options))

    run(2)
    if says:
        with pytest.raises(ArgumentError, match=says):
            run(4, **changed)
        return
    whole = run(4, path=tmp_path / "whole")
    assert run(4).params.tobytes() == whole.params.tobytes()


def test_minimisers_of_whole_losses_keep_evaluations_too(tmp_path):
    options = {"method": "trust-ncg", "checkpoint": tmp_path / "run"}
    found = [optim.minimise(loss, start(), x, y, **options) for _ in range(2)]
    assert found[0].x["w"].tobytes() == found[1].x["w"].tobytes()


def test_arguments_that_can_not_be_gone_through_again(tmp_path):
    parts = [x[:50], x[50:]]
    for train in (td.fit, td.minimise):
        with pytest.raises(ArgumentError, match="list_iterator is exhausted"):
            train(lambda p, x: np.sum(p * x), np.zeros(3), iter(parts), over="x")
        with pytest.raises(ArgumentError, match="generator among the arguments"):
            given = [parts, np.random.default_rng(0)]
            train(loss, start(), *given, over="x", checkpoint=tmp_path / "run")


def test_a_bar_shows_the_loss(capsys):
    td.fit(mean, start(), X, Y, over=OVER, reduce="mean", steps=3, progress=True)
    assert "3/3" in capsys.readouterr().err
    td.minimise(loss, start(), X, Y, over=OVER, plus=penalty, progress=True)
    assert "evaluation" in capsys.readouterr().err


def test_the_dashboard_has_names_of_the_loss():
    seen = set()
    with Callback(pretask=lambda key, *_: seen.add(key_split(key))):
        td.value_and_grad(loss, over=OVER)(start(), X, Y)
        td.hvp(loss, over=OVER)(start(), X, Y, start())
    assert {"value_and_grad_loss", "hvp_loss", "together"} <= seen
