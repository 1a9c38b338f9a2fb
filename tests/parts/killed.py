"""Sums over parts in a cluster whose workers are killed, each run in its own way:

    python killed.py FOLDER FIRST LAST

A run counts what workers do: a task is begun, data are sent, a worker starts. At some of these
events that worker gets SIGKILL, at once or some milliseconds later, so anywhere in what it does.
What comes of a run has to be what comes without: the bits, the warning that names a part, the error
that a part raises. Only data that lay in one worker alone, and all workers gone, may be errors.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import CancelledError
from pathlib import Path
from typing import NamedTuple

import numpy as np

KINDS = ("lists", "made", "stream", "scattered", "nan", "raises", "late")  # of parts
EVENTS = {"computing": 12, "sending": 5, "starting": 1}  # numbered up to these, in a run
BAD = 5  # the part that isn't finite, or raises
PARTS, WORKERS = 8, 2


# ---- in workers: this file is preloaded there


class Kill(NamedTuple):
    event: str
    number: int
    delay: float  # seconds


class Plan:
    """A run's events, which all workers count in its folder, and those at which one is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, run: int, kills: list[Kill]) -> None:
        (self.folder / str(run)).mkdir()
        lines = [str(run), *(" ".join(map(str, kill)) for kill in kills)]
        (self.folder / "new").write_text("\n".join(lines))
        (self.folder / "new").replace(self.folder / "plan")  # at once

    def end(self, run: int) -> list[str]:
        """The events at which workers were killed."""
        (self.folder / "plan").unlink()
        return sorted(path.name[1:] for path in (self.folder / str(run)).glob("!*"))

    def note(self, event: str) -> None:
        try:
            run, *lines = (self.folder / "plan").read_text().split("\n")
        except FileNotFoundError:
            return
        number = 0
        while True:
            try:
                (self.folder / run / f"{event} {number}").touch(exist_ok=False)
                break
            except FileExistsError:
                number += 1
        for name, at, delay in map(str.split, lines):
            if (name, int(at)) == (event, number):
                (self.folder / run / f"!{event} {number}").touch()
                if not float(delay):
                    kill()
                threading.Timer(float(delay), kill).start()


def kill(pid: int | None = None) -> None:
    os.kill(pid or os.getpid(), signal.SIGKILL)


async def dask_setup(worker):
    """What Dask calls when a worker starts."""
    plan = Plan(Path(os.environ["KILLED"]))
    plan.note("starting")
    get_data = worker.handlers["get_data"]

    @functools.wraps(get_data)
    async def sending(*args, **kwargs):
        plan.note("sending")
        return await get_data(*args, **kwargs)

    class Counted:
        def transition(self, key, start, finish, **kwargs):
            if finish == "executing":
                plan.note("computing")

    worker.handlers["get_data"] = sending
    worker.plugins["counted"] = Counted()


# ---- the program


def loss(w, x, y):
    if np.any(x > 90.0):
        raise ValueError("too large")  # the user's line
    return np.sum((np.tanh(x @ w) - y) ** 2)


def mean(w, x, y):
    return np.mean((np.tanh(x @ w) - y) ** 2)


def slow(part):
    time.sleep(0.3)
    return part


def planned(run: int) -> tuple[str, list[Kill]]:
    """The kind of a run's parts, and whom it kills when: one worker, or one after the other."""
    rng, kind = random.Random(run), KINDS[run % len(KINDS)]
    events = [("computing", "sending")[run // len(KINDS) % 2]]
    if run % 4 == 0:
        events.append(rng.choice([*EVENTS]))
    return kind, [
        Kill(
            event,
            rng.randrange(min(EVENTS[event], BAD if kind == "raises" else 99)),
            rng.choice([0, rng.uniform(0, 0.01)]),
        )
        for event in events
    ]


def begun(kind: str, client, w, x, y):
    """The parts of both arguments."""
    import dask
    import dask.array as da

    x, y = np.array_split(x, PARTS), np.array_split(y, PARTS)
    if kind in ("nan", "raises"):
        x[BAD] = x[BAD].copy()
        x[BAD][0] = np.nan if kind == "nan" else 99.0
    if kind == "stream":
        return iter(x), iter(y)
    if kind == "late" and client is not None:  # a worker less, which comes while parts are computed
        client.cluster.scale(WORKERS)
        return [dask.delayed(slow)(part) for part in x], y
    if kind == "scattered" and client is not None:
        return client.scatter(x), y
    if kind == "made":  # arrays of Dask's that workers hold, and can make again
        made = [da.from_delayed(dask.delayed(np.copy)(part), part.shape, float) for part in x]
        together = da.concatenate(made)
        return (together if client is None else client.persist(together)), np.concatenate(y)
    return x, y


def outcome(function, kind: str, client, *args):
    """What comes of a run: bits, a warning's text, an error's type and where it says it was."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, slope = function(args[0], *begun(kind, client, *args))
        except Exception as error:
            if kind == "raises" and type(error) is ValueError:
                text = "".join(traceback.format_exception(error))
                return "raised", f"part {BAD}" in text and "the user's line" in text
            if kind == "scattered" and isinstance(error, CancelledError):
                return "lost", "client.scatter" in "".join(error.__notes__)
            if isinstance(error, TimeoutError) and "no worker" in str(error):
                return "alone", not client.nthreads()
            if isinstance(error, TimeoutError) and "has done anything" in str(error):
                return "stalled", bool(client.nthreads())  # by Dask, some once in 200 kills
            raise
    said = {str(x.message) for x in caught if issubclass(x.category, RuntimeWarning)}
    named = any(f"of part {BAD}, counted from 0" in text for text in said)
    return "value", np.asarray(value).tobytes(), slope.tobytes(), named


def refilled(cluster, client) -> None:
    """Wait until there are all workers again. Dask starts none for one that died as it started."""
    try:
        client.wait_for_workers(WORKERS, timeout=10)
    except TimeoutError:
        cluster.scale(0)
        while cluster.workers:
            time.sleep(0.1)
        cluster.scale(WORKERS)
        client.wait_for_workers(WORKERS, timeout=90)


def forgotten(cluster) -> bool:
    """Whether nothing is left of what was to be computed but what is kept for the next call."""
    for _ in range(100):
        gc.collect()  # Dask's arrays are in cycles
        if not [key for key in cluster.scheduler.tasks if not str(key).startswith("sent-")]:
            return True
        time.sleep(0.1)
    return False


def main(folder: Path, first: int, last: int) -> None:
    import dask
    from distributed import Client, LocalCluster

    import tapegrad.dask as td

    rng = np.random.default_rng(0)
    args = rng.normal(size=4), rng.normal(size=(400, 4)), rng.normal(size=400)
    plan = Plan(folder)
    options = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": ":0"}
    options |= {"silence_logs": 50, "preload": [__file__]}
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})  # `refilled` is quicker
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        dask.config.set({"distributed.scheduler.no-workers-timeout": "40s"})  # the client's alone
        for run in range(first, last):
            kind, kills = planned(run)
            f, reduce = (mean, "mean") if kind != "raises" and run % 3 == 2 else (loss, "sum")
            mode = ("always", "never")[run % 2]
            g = td.value_and_grad(f, over=("x", "y"), reduce=reduce, compile=mode, check=False)
            with dask.config.set(scheduler="synchronous"):
                wanted = outcome(g, kind, None, *args)
            assert wanted[0] == ("raised" if kind == "raises" else "value"), wanted
            assert wanted[-1] is (kind in ("nan", "raises")), wanted
            refilled(cluster, client)
            if kind == "late":
                cluster.scale(WORKERS - 1)
                while len(client.nthreads()) == WORKERS:
                    time.sleep(0.1)
            plan.begin(run, kills)
            found = outcome(g, kind, client, *args)
            killed = plan.end(run)
            may_be = [wanted, ("alone", True), ("stalled", True)]
            may_be += [("lost", True)] * (kind == "scattered")
            assert found in may_be, (run, kind, killed, found, wanted)
            assert forgotten(cluster), (run, [*cluster.scheduler.tasks])
            if found != wanted:
                refilled(cluster, client)
                again = outcome(g, kind, client, *args)
                assert again == wanted, (run, kind, killed, found, again)
            print(run, kind, found[0], *killed, sep=", ", flush=True)


if __name__ == "__main__":
    os.environ["KILLED"] = sys.argv[1]
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
