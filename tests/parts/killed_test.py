"""Clusters that lose workers: what comes of a call is what came without, or a clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import dask
import numpy as np
import pytest

import tapegrad.dask as td

distributed = pytest.importorskip("distributed")

rng = np.random.default_rng(5)
w, x, y = rng.normal(size=4), rng.normal(size=(80, 4)), rng.normal(size=80)
X, Y = np.array_split(x, 4), np.array_split(y, 4)
RUNS, TOGETHER = 200, 4


def loss(w, x, y):
    return np.sum((np.tanh(x @ w) - y) ** 2)


@pytest.mark.every(RUNS // TOGETHER)
@pytest.mark.parametrize("first", range(0, RUNS, TOGETHER))
def test_what_workers_had_that_are_killed_is_computed_again_and_counted_once(first, tmp_path):
    program = [sys.executable, str(Path(__file__).with_name("killed.py"))]
    (tmp_path / "runs").mkdir()
    environment = {**os.environ, "TAPEGRAD_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [*program, str(tmp_path / "runs"), str(first), str(first + TOGETHER)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == TOGETHER
    print(done.stdout, end="")


@pytest.fixture
def cluster():
    """A function that makes a cluster of so many workers, in threads of this process."""
    opened = []

    def made(workers):
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=":0"
        )
        opened.append(cluster)
        opened.append(distributed.Client(cluster))
        return opened

    yield made
    for x in opened[::-1]:
        x.close()


def test_a_call_waits_for_workers_as_long_as_is_said(cluster):
    g = td.value_and_grad(loss, over=("x", "y"), compile="never", check=False)
    wanted = g(w, X, Y)
    ours, _ = cluster(0)
    soon = dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"})
    with (
        soon,
        pytest.raises(TimeoutError, match=r"value_and_grad_loss: .* no worker for 1 seconds"),
    ):
        g(w, X, Y)
    assert not [key for key in ours.scheduler.tasks if not str(key).startswith("sent-")]
    threading.Timer(1.5, ours.scale, [1]).start()
    value, slope = g(w, X, Y)  # the worker comes meanwhile
    assert value == wanted[0] and np.array_equal(slope, wanted[1])


def test_workers_that_do_nothing_are_not_waited_for_either(cluster):
    g = td.value_and_grad(loss, over=("x", "y"), compile="never", check=False)
    wanted = g(w, X, Y)
    cluster(1)
    soon = dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"})
    with soon, dask.annotate(resources={"GPU": 1}):  # which no worker has
        bad = [dask.delayed(np.copy)(part) for part in X]
        with pytest.raises(TimeoutError, match="none of the cluster's 1 workers has done anything"):
            g(w, bad, Y)
    assert g(w, X, Y)[0] == wanted[0]


def test_lost_parts_that_can_not_be_made_again_are_an_error(cluster):
    g = td.value_and_grad(loss, over=("x", "y"), compile="never", check=False)
    ours, client = cluster(2)
    held = client.scatter(X, direct=True, workers=[ours.workers[0].address])
    wanted = g(w, held, Y)
    assert wanted[0] == g(w, X, Y)[0]
    ours.sync(ours.workers[0].close)
    with pytest.raises(CancelledError) as caught:
        g(w, held, Y)
    assert "data of client.scatter" in caught.value.__notes__[0]
    assert g(w, client.scatter(X), Y)[0] == wanted[0]


def killing(part, number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def test_a_pool_of_processes_that_loses_one_is_an_error():
    g = td.value_and_grad(loss, over=("x", "y"), compile="never", check=False)
    bad = [dask.delayed(killing)(part, k) for k, part in enumerate(X)]
    with dask.config.set(scheduler="processes", num_workers=2):
        with pytest.raises(BrokenProcessPool):
            g(w, bad, Y)
        value, _ = g(w, X, Y)
    assert value == g(w, X, Y)[0]
