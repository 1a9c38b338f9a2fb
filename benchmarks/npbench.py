"""Gradients of the kernels of NPBench, which lies in a folder of yours: held against differences,
and timed beside JAX's of the same kernels where JAX is installed.

python benchmarks/npbench.py CLONE
python benchmarks/npbench.py CLONE --only 'jacobi*,go_fast' --preset M

What is differentiated is a weighted sum of all that a kernel returns or writes, by its arrays of
floats.
"""

import fnmatch
import importlib.util
import json
import math
import time
from pathlib import Path

import click
import numpy as np
from clock import OutOfTime, time_limit


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Kernel:
    """A kernel as NPBench describes it: its arguments by name, and its code in a dialect."""

    def __init__(self, description, clone, preset):
        self.info = json.loads(description.read_text())["benchmark"]
        self.name = description.stem
        self.folder = clone / "npbench" / "benchmarks" / self.info["relative_path"]
        self.given = dict(self.info["parameters"][preset])
        if init := self.info.get("init"):
            make = module(self.folder / f"{self.info['module_name']}.py").initialize
            found = make(*(self.given[name] for name in init["input_args"]))
            found = found if isinstance(found, tuple) else (found,)
            self.given.update(zip(init["output_args"], found, strict=True))
        inputs = [(name, self.given[name]) for name in self.info["input_args"]]
        self.floats = {n: x for n, x in inputs if isinstance(x, np.ndarray) and x.dtype.kind == "f"}

    @property
    def digits(self):
        """How near results may be expected to be, relative to their size."""
        return 1e-6 if all(x.dtype == np.float64 for x in self.floats.values()) else 1e-3

    def loss(self, xp, dialect):
        """A function of the arrays of floats, which the kernel may write to."""
        f = getattr(
            module(self.folder / f"{self.info['module_name']}_{dialect}.py"), self.info["func_name"]
        )
        inputs = self.info["input_args"]
        copies = {name: np.array(x) for name, x in self.floats.items()}
        if xp is np:  # what it writes is seen, since not all that is written is described
            f(*({**self.given, **copies}[name] for name in inputs))
        written = [name for name, x in copies.items() if not np.array_equal(x, self.floats[name])]

        def loss(floats):
            given = {**self.given, **{name: xp.array(x) for name, x in floats.items()}}
            result = f(*(given[name] for name in inputs))
            outs = [] if result is None else list(result) if isinstance(result, tuple) else [result]
            if xp is np:
                outs += [given[name] for name in written]
            return sum(xp.sum(xp.real(x) * weights(np.shape(x))) for x in outs)

        return loss


def weights(shape):
    """Of the elements of a result: a plain sum may be the same whatever the arguments are."""
    return np.cos(np.arange(math.prod(shape))).reshape(shape)


def seconds(call, budget=1.0):
    """The shortest time of a call."""
    found, until = [], time.perf_counter() + budget
    while len(found) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def by_tapegrad(kernel):
    """Value, gradients, seconds of a call and of the plain kernel, and how far differences are."""
    import tapegrad

    loss = kernel.loss(np, "numpy")
    g = tapegrad.value_and_grad(loss, compile="always")
    value, slopes = g(kernel.floats)
    np.testing.assert_allclose(value, loss(kernel.floats), rtol=kernel.digits)
    rng = np.random.default_rng(0)
    along = {n: rng.standard_normal(x.shape) * (1 + np.abs(x)) for n, x in kernel.floats.items()}
    wanted = sum(float(np.sum(slopes[n] * d)) for n, d in along.items())
    errors = []
    for step in (1e-4, 1e-5, 1e-6, 1e-7):
        ends = [
            loss({n: x + s * along[n] for n, x in kernel.floats.items()}) for s in (step, -step)
        ]
        found = (float(ends[0]) - float(ends[1])) / (2 * step)
        least = 1e-6 * abs(float(value))  # a derivative that is zero is rounding, here and there
        errors.append(abs(found - wanted) / max(abs(found), abs(wanted), least, 1e-300))
    spent = seconds(lambda: g(kernel.floats)), seconds(lambda: loss(kernel.floats))
    return float(value), slopes, *spent, min(errors)


def by_jax(kernel):
    """Value, gradients and seconds of a call."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    g = jax.jit(jax.value_and_grad(kernel.loss(jnp, "jax")))
    floats = {n: jnp.asarray(x) for n, x in kernel.floats.items()}
    value, slopes = g(floats)
    return float(value), slopes, seconds(lambda: jax.block_until_ready(g(floats)))


def attempt(f, kernel, limit):
    """What it gives, or why not, in a few words."""
    try:
        with time_limit(limit):
            return f(kernel), ""
    except OutOfTime:
        return None, f"no answer in {limit:.0f} s"
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def row(kernel, limit):
    """A line of the table, and whether the gradient is right."""
    if not kernel.floats:
        return "no floats to differentiate by", None
    ours, why = attempt(by_tapegrad, kernel, limit)
    if ours is None:
        return why[:90], False
    value, slopes, spent, plain, error = ours
    text = f"{1e3 * spent:9.2f} ms  {spent / plain:6.2f} x NumPy's value  differences {error:.0e}"
    theirs, why = attempt(by_jax, kernel, limit)
    if theirs is None:
        return f"{text}  JAX: {why[:40]}", error < 1e-4
    if not np.isclose(theirs[0], value, rtol=1e-4):
        return f"{text}  JAX's returns another sum", error < 1e-4
    digits = kernel.digits
    least = 1e-6 * abs(value)  # of a gradient that is zero, rounding is what differs
    near = all(
        np.allclose(slopes[n], x, digits, digits * np.max(np.abs(x), initial=least))
        for n, x in theirs[1].items()
    )
    text += f"  {spent / theirs[2]:6.2f} x JAX's, {'the same' if near else 'ANOTHER'} gradient"
    return text, near or error < 1e-4


@click.command(help=__doc__)
@click.argument("clone", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default="*", help="names and patterns, with commas between")
@click.option("--preset", default="S", help="size: S, M, L or paper")
@click.option("--limit", default=60.0, help="seconds for a kernel and an engine")
def main(clone, only, preset, limit):
    right, wrong = 0, 0
    for description in sorted((clone / "bench_info").glob("*.json")):
        if not any(fnmatch.fnmatch(description.stem, pattern) for pattern in only.split(",")):
            continue
        kernel, why = attempt(lambda path: Kernel(path, clone, preset), description, limit)
        text, good = row(kernel, limit) if kernel else (why[:90], None)
        right, wrong = right + (good is True), wrong + (good is False)
        print(f"{description.stem:22} {text}", flush=True)
    print(f"{right} gradients are right, {wrong} kernels have none that is held to be")


if __name__ == "__main__":
    main()
