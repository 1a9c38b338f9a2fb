"""Time how long programs without loops take to compile, beside JAX, and where the time goes.

    python benchmarks/compiling.py
    python benchmarks/compiling.py --only attention --rounds 5

Each is the call that traces and compiles, with nothing known from before and the compiler's process
running; the engines take turns, and the least of several rounds counts. The parts are the
compiler's, from the round that counts: its passes, the schedule, the kernels.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Any

import click
import numpy as np
from engines import Jax, Tapegrad
from tiers import attention, convolutions, normal
from workloads import WORKLOADS, Workload


def layers(xp: Any, ws: Any, x: Any) -> Any:
    for w in ws:
        x = xp.tanh(x @ w)
    return xp.sum(x)


def transformer(xp: Any, w: Any, x: Any) -> Any:
    """A block with its norms, attention of four heads, and a network of two layers."""

    def norm(x: Any, scale: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) * scale

    n = norm(x, w["n1"])
    q, k, v = ((n @ w[part]).reshape(32, 4, 16).transpose(1, 0, 2) for part in "qkv")
    scores = q @ k.transpose(0, 2, 1) / 4.0
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    heads = (e / xp.sum(e, axis=-1, keepdims=True)) @ v
    x = x + heads.transpose(1, 0, 2).reshape(32, 64) @ w["o"]
    h = norm(x, w["n2"]) @ w["up"]
    h = 0.5 * h * (1 + xp.tanh(0.7978845608 * (h + 0.044715 * h**3)))
    return xp.mean((x + h @ w["down"]) ** 2)


def autoencoder(xp: Any, w: Any, x: Any) -> Any:
    """A variational one: the reconstruction's error and the divergence from the prior."""
    h = xp.maximum(x @ w["enc"] + w["b"], 0.0)
    mean, log_var = h @ w["mean"], h @ w["var"]
    z = mean + xp.exp(0.5 * log_var) * x[:, :4]
    y = 1 / (1 + xp.exp(-(xp.tanh(z @ w["dec"]) @ w["out"])))
    divergence = -0.5 * xp.sum(1 + log_var - mean**2 - xp.exp(log_var))
    return xp.sum((y - x) ** 2) + divergence


def programs() -> list[Workload]:
    def made(name: str, loss: Callable[..., Any], *args: Any) -> Workload:
        return Workload(name, name, "ml", loss, lambda rng: args)

    block = {part: normal(64, 64 + k)[:, :64] for k, part in enumerate("qkvo")}
    block |= {"up": normal(64, 256), "down": normal(256, 64), "n1": normal(64), "n2": normal(64)}
    vae = {"enc": normal(20, 32), "b": normal(32), "mean": normal(32, 4), "var": normal(32, 4)}
    vae |= {"dec": normal(4, 32), "out": normal(32, 20)}
    return [
        *(w for w in WORKLOADS if w.family not in ("loop", "stencil")),
        made("attention", attention, block, normal(64, 64)),
        made("transformer", transformer, block, normal(32, 64)),
        made("autoencoder", autoencoder, vae, normal(64, 20)),
        made("layers_50", layers, [normal(16, 16) for _ in range(50)], normal(8, 16)),
        made(
            "convolutions",
            convolutions,
            [normal(3, 3, 1, 8), normal(3, 3, 8, 16)],
            normal(8, 16, 16, 1),
        ),
    ]


def seconds(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


@click.command()
@click.option("--only", default="*", help="Programs of this name; a pattern.")
@click.option("--rounds", default=3)
def main(only: str, rounds: int) -> None:
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "off")
    engines = [Tapegrad()]
    with suppress(ImportError):
        Jax().load("auto")
        engines.append(Jax())
    engines[0].load("always")
    jobs = record_jobs()
    parts = ("all", "passes", "schedule", "kernels")
    print(
        f"{'program':<26}{'tapegrad':>10}{'jax':>8}{'ratio':>8}  "
        + "".join(f"{p:>10}" for p in parts)
    )
    for program in programs():
        if not fnmatchcase(program.name, only):
            continue
        args = program.make(np.random.default_rng(0))
        spent: dict[str, list[float]] = {engine.name: [] for engine in engines}
        compilers = []
        for _ in range(rounds):
            for engine in engines:
                call = engine.prepare(program, args, "always")
                spent[engine.name].append(seconds(call))
                if engine.name == "tapegrad":
                    compilers.append(jobs[-1].times)
        ours = min(spent["tapegrad"])
        times = compilers[spent["tapegrad"].index(ours)]
        theirs = min(spent.get("jax", [float("nan")]))
        print(
            f"{program.name:<26}{ours:>10.3f}{theirs:>8.3f}{ours / theirs:>8.2f}  "
            + "".join(f"{times.get(part, 0.0):>10.3f}" for part in parts),
            flush=True,
        )


def record_jobs() -> list[Any]:
    """A list that each program which is sent to the compiler is added to."""
    from tapegrad.compiler.client import client

    jobs: list[Any] = []
    submit = client.submit

    def recording(*args: Any) -> Any:
        jobs.append(submit(*args))
        return jobs[-1]

    client.submit = recording
    return jobs


if __name__ == "__main__":
    main()
