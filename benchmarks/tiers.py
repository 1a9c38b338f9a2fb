"""Time the way of a gradient from its first call to machine code, in the default mode.

    python benchmarks/tiers.py
    python benchmarks/tiers.py --beside /another/checkout/src

Each program runs in a process of its own, from cold and with nothing on disk: the first result, the
time until the first call of machine code, the longest call on the way there, what the first calls
take together, and the memory of the process and of the compiler's. `--beside` runs each program
with another version of tapegrad too, in turns.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from show import readable
from workloads import WORKLOADS

COUNTS = (1, 10, 100, 1_000, 10_000)
HERE = Path(__file__).parent


def attention(xp: Any, w: Any, x: Any) -> Any:
    q, k, v = ((x @ w[part]).reshape(64, 4, 16).transpose(1, 0, 2) for part in "qkv")
    scores = q @ k.transpose(0, 2, 1) / 4.0
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    heads = (e / xp.sum(e, axis=-1, keepdims=True)) @ v
    return xp.mean((heads.transpose(1, 0, 2).reshape(64, 64) @ w["o"]) ** 2)


def convolutions(xp: Any, w: Any, x: Any) -> Any:
    for kernel in w:
        n = x.shape[1] - 2
        shifted = (x[:, i : i + n, j : j + n, :] @ kernel[i, j] for i in range(3) for j in range(3))
        x = xp.maximum(sum(shifted), 0.0)
    return xp.mean(x**2)


def filtered(xp: Any, p: Any, ys: Any) -> Any:
    """A Kalman filter of 20 steps: the log likelihood of what was observed."""
    mean, cov = xp.zeros(2), xp.eye(2)
    step = xp.array([[1.0, 0.1], [0.0, 1.0]])
    total = 0.0
    for y in ys:
        mean, cov = step @ mean, step @ cov @ step.T + xp.exp(p[0]) * xp.eye(2)
        s = cov[0, 0] + xp.exp(p[1])
        gain = cov[:, 0] / s
        total = total - 0.5 * ((y - mean[0]) ** 2 / s + xp.log(s))
        mean, cov = mean + gain * (y - mean[0]), cov - gain[:, None] * cov[0]
    return total


def normal(*shape: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(sum(shape)).standard_normal(shape)


def programs() -> dict[str, Any]:
    """Functions, and what makes their arguments, by name."""
    chosen = ("sigmoid_sum_5", "mlp_f64_b128", "gmm_diag_n1000_d10_k25")
    found = {
        w.name: (w.loss, w.make(np.random.default_rng(0))) for w in WORKLOADS if w.name in chosen
    }
    weights = {part: normal(64, 64 + k)[:, :64] for k, part in enumerate("qkvo")}
    found["attention"] = attention, (weights, normal(64, 64))
    kernels = [normal(3, 3, 1, 8), normal(3, 3, 8, 16)]
    found["convolutions"] = convolutions, (kernels, normal(8, 16, 16, 1))
    found["kalman_20"] = filtered, (np.zeros(2), normal(20))
    return found


def measured(name: str, seconds: float) -> dict[str, Any]:
    """What one program takes, in this process."""
    start = time.perf_counter()
    from tapegrad import value_and_grad

    imported = time.perf_counter() - start
    f, args = programs()[name]
    derivative: Any = value_and_grad(lambda *args: f(np, *args))
    spent: list[float] = []
    compiled = None
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds and len(spent) < COUNTS[-1]:
        at = time.perf_counter()
        derivative(*args)
        spent.append(time.perf_counter() - at)
        if compiled is None and derivative.cache_info().compiles:
            compiled = len(spent) - 1
    after = sorted(spent[-max(1, len(spent) // 10) :])
    rate = after[len(after) // 2]
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    totals = [sum(spent[:n]) + rate * max(0, n - len(spent)) for n in COUNTS]
    return {
        "import": imported,
        "first": spent[0],
        "compiled": None if compiled is None else sum(spent[: compiled + 1]),
        "longest": max(spent[1:]),
        "call": rate,
        "totals": totals,
        "memory": own,
        "compiler": _memory_of_the_worker(),
    }


def _memory_of_the_worker() -> float:
    """Megabytes, now."""
    try:
        from tapegrad.compiler.client import client

        status = Path(f"/proc/{client.worker.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024
    except (ImportError, AttributeError, OSError, IndexError):
        return 0.0


@click.command()
@click.option("--beside", default="", help="The sources of another version of tapegrad.")
@click.option("--seconds", default=10.0, help="Of calls of each program.")
@click.option("--only", default="", help="The name of one program.")
@click.option("--one", hidden=True, default="", help="Measure this here.")
def main(beside: str, seconds: float, only: str, one: str) -> None:
    if one:
        print(json.dumps(measured(one, seconds)))
        return
    import tapegrad

    folders = {"here": str(Path(tapegrad.__file__).parents[1])}
    folders |= {"beside": beside} if beside else {}
    heads = ["first", "compiled", "longest", "call", *(f"{n:,}" for n in COUNTS), "MB", "and MB"]
    print(f"{'program':<24}{'version':<8}" + "".join(f"{head:>10}" for head in heads))
    for name in [only] if only else programs():
        for version, folder in folders.items():
            found = subprocess.run(
                [sys.executable, __file__, "--one", name, "--seconds", str(seconds)],
                env={
                    **os.environ,
                    "PYTHONPATH": f"{folder}{os.pathsep}{HERE}",
                    "TAPEGRAD_CACHE_DIR": "off",
                },
                capture_output=True,
                text=True,
                check=True,
            )
            row = json.loads(found.stdout.splitlines()[-1])
            times = [row[key] for key in ("first", "compiled", "longest", "call")]
            cells = [readable(t) for t in (*times, *row["totals"])]
            cells += [f"{row[key]:.0f}" for key in ("memory", "compiler")]
            print(f"{name:<24}{version:<8}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
