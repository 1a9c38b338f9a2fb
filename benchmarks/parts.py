"""Time losses whose data are in parts (docs/dask.md): what a part costs beyond its compiled call,
how passes scale over threads and processes, data that are streamed, and other engines beside.

python benchmarks/parts.py
python benchmarks/parts.py --stream 20 --jax PYTHON --torch PYTHON

JAX shards over virtual devices, and PyTorch's DistributedDataParallel runs over gloo, each in
processes of the Python that is named, the same as this one if none is.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # a core for each part, which NumPy has to know when it is imported
    for library in ("TAPEGRAD", "OPENBLAS", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import click
import numpy as np

ROWS, COLUMNS, ROUNDS = 1_000_000, 50, 20


def loss(w, x, y):
    return np.sum(np.logaddexp(0.0, -y * (x @ w)))


def data(rows=ROWS):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, COLUMNS))
    return np.zeros(COLUMNS), x, np.sign(x[:, 0] + rng.standard_normal(rows))


def seconds(call, rounds=ROUNDS, clock=time.perf_counter):
    """The shortest time of a call, which what else runs here doesn't make shorter."""
    found = []
    for _ in range(rounds):
        start = clock()
        call()
        found.append(clock() - start)
    return min(found)


# ---- tapegrad


def overhead(parts=64, rows=2_000):
    """Seconds of processor time that a part costs beyond its compiled call, in one thread."""
    import dask

    import tapegrad.dask as td
    from tapegrad import value_and_grad

    w, x, y = data(parts * rows)
    lists = np.array_split(x, parts), np.array_split(y, parts)
    whole, pieces = value_and_grad(loss, compile="always"), td.value_and_grad(loss, over=("x", "y"))
    alone = seconds(
        lambda: [whole(w, *part) for part in zip(*lists, strict=True)], 9, time.process_time
    )
    with dask.config.set(scheduler="synchronous"):
        together = seconds(lambda: pieces(w, *lists), 9, time.process_time)
    return {"a part": (together - alone) / parts, "its compiled call": alone / parts}


def threads(count, parts=8):
    """Seconds of a pass in so many threads."""
    import dask

    import tapegrad.dask as td

    w, x, y = data()
    lists = np.array_split(x, parts), np.array_split(y, parts)
    g = td.value_and_grad(loss, over=("x", "y"))
    with dask.config.set(scheduler="threads", num_workers=count):
        return seconds(lambda: g(w, *lists))


def processes(count, parts=8, rows=ROWS, clock=time.perf_counter, rounds=ROUNDS):
    """Seconds of a pass over data that so many workers hold, a thread each; they have made them."""
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    import tapegrad.dask as td

    options = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        rng = da.random.default_rng(0)
        X = rng.standard_normal((rows, COLUMNS), chunks=(rows // parts, COLUMNS))
        X, Y = client.persist([X, da.sign(X[:, 0])])
        wait([X, Y])
        g = td.value_and_grad(loss, over=("x", "y"))
        return seconds(lambda: g(np.zeros(COLUMNS), X, Y), rounds, clock)


def cluster_overhead(parts=500):
    """Seconds of processor time that a part costs the client and the scheduler, which are one
    process here: its parts have ten rows."""
    return processes(1, parts, 10 * parts, time.process_time, 5) / parts


def streamed(gigabytes, rows=100_000):
    """A pass over rows that are made where they are used, and never all in memory."""
    import dask.array as da

    import tapegrad.dask as td

    parts = max(1, round(gigabytes * 1e9 / (8 * rows * COLUMNS)))
    rng = da.random.default_rng(0)
    X = rng.standard_normal((parts * rows, COLUMNS), chunks=(rows, COLUMNS))
    Y = da.sign(X[:, 0])
    g = td.value_and_grad(loss, over=("x", "y"))
    g(np.zeros(COLUMNS), X[:rows], Y[:rows])  # compiled off the clock
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    value, _ = g(np.zeros(COLUMNS), X, Y)
    spent = time.perf_counter() - start
    assert np.isclose(value, np.log(2.0) * X.shape[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": X.shape[0],
        "gigabytes": X.nbytes / 1e9,
        "seconds": spent,
        "megabytes before": before / 1e3,
        "megabytes at most": peak / 1e3,
    }


# ---- others: each prints the seconds of a pass


def jax_sharded(count):
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_enable_x64", True)
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rows, same = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("rows",), ()))

    def loss(w, x, y):
        return jnp.sum(jnp.logaddexp(0.0, -y * (x @ w)))

    w, x, y = data()
    args = jax.device_put(w, same), jax.device_put(x, rows), jax.device_put(y, rows)
    g = jax.jit(jax.value_and_grad(loss))
    return seconds(lambda: jax.block_until_ready(g(*args)))


def torch_ddp(count):
    import torch.multiprocessing

    folder = Path(os.environ["PARTS_MEET"])
    torch.multiprocessing.spawn(_torch_worker, (count, str(folder)), count)
    return json.loads((folder / "seconds").read_text())


def _torch_worker(rank, count, folder):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count
    )
    _, x, y = data()
    x, y = (torch.from_numpy(np.array_split(a, count)[rank].copy()) for a in (x, y))
    model = torch.nn.Linear(COLUMNS, 1, bias=False, dtype=torch.float64)
    model = DistributedDataParallel(model)

    def call():
        model.zero_grad()
        zero = torch.zeros((), dtype=torch.float64)
        value = torch.logaddexp(zero, -y * model(x)[:, 0]).sum()
        value.backward()
        torch.distributed.all_reduce(value.detach())

    found = seconds(call)
    if rank == 0:
        (Path(folder) / "seconds").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


# ---- the command

OTHERS = {"jax": jax_sharded, "torch": torch_ddp}


def beside(name, python, count):
    """Seconds of a pass of another engine; why there are none, where there are none."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [python, __file__, "--engine", name, "--count", str(count)]
        env = {**os.environ, "PARTS_MEET": folder}
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True)
        except OSError as error:
            return f"not here: {error}"
    if done.returncode:
        return f"not here: {done.stderr.strip().splitlines()[-1]}"
    return float(done.stdout.split()[-1])


def show(title, found):
    if isinstance(found, float):
        found = f"{1e3 * found:.1f} ms"
    elif isinstance(found, dict):
        found = ", ".join(f"{k} {v:.4g}" for k, v in found.items())
    print(f"{title:40} {found}", flush=True)


@click.command(help=__doc__)
@click.option("--stream", default=0.0, help="gigabytes of rows to stream")
@click.option("--jax", default=sys.executable, help="a Python that has JAX")
@click.option("--torch", default=sys.executable, help="a Python that has PyTorch")
@click.option("--engine", type=click.Choice([*OTHERS]), hidden=True)
@click.option("--count", default=2, help="threads, processes, devices at most")
def main(stream, jax, torch, engine, count):
    if engine:
        print(OTHERS[engine](count))
        return
    show("seconds beyond the compiled call", overhead())
    show("of client and scheduler, a part", cluster_overhead())
    for n in range(1, count + 1):
        show(f"tapegrad.dask, threads: {n}", threads(n))
    for n in range(1, count + 1):
        show(f"tapegrad.dask, processes: {n}", processes(n))
    for n in range(1, count + 1):
        show(f"JAX, sharded over devices: {n}", beside("jax", jax, n))
    for n in range(1, count + 1):
        show(f"PyTorch, DDP over gloo, processes: {n}", beside("torch", torch, n))
    if stream:
        show("streamed", streamed(stream))


if __name__ == "__main__":
    main()
