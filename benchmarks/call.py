"""Time the parts of a warm call of `grad(f)`, in nanoseconds.

    python benchmarks/call.py

A call is timed as a whole, and with less and less in it; a part is the difference of two of these
times. So the parts add up to the last but one line, `sum`. The last one, `whole`, is a call of the
derivative as users have it, which none of the other lines is made of.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from clock import repeats, seconds
from workloads import make_two_layers, sigmoid_sum, two_layers

ROUNDS = 300

PARTS = (
    "look-up, and a call of Python's",
    "guards: does what it reached hold?",
    "taking the arguments apart",
    "allocating results",
    "the kernel's call, argument checks",
    "the kernel",
    "putting the results together",
)


@dataclass(frozen=True)
class Program:
    """A function, and the arguments that its gradient is called with."""

    name: str
    what: str
    f: Callable[..., Any]
    args: tuple


class Model:
    """Weights, hyperparameters and a flag, which the loss reaches without being passed them."""

    def __init__(self) -> None:
        self.rate, self.power, self.centred = 0.5, 3, False
        self.weights = np.array([1.0, -2.0, 0.5])

    def loss(self, x: np.ndarray) -> Any:
        y = self.rate * self.weights * (x - x.mean() if self.centred else x)
        return np.sum(y**self.power) if y[0] > 0 else np.sum(y**2)


def perceptron(params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> Any:
    h = np.tanh(x @ params["W1"] + params["b1"])
    h = np.tanh(h @ params["W2"] + params["b2"])
    return np.mean((h @ params["W3"] + params["b3"] - y) ** 2)


def programs() -> Iterator[Program]:
    rng = np.random.default_rng(0)
    shapes = {"W1": (4, 8), "b1": (8,), "W2": (8, 8), "b2": (8,), "W3": (8, 1), "b3": (1,)}
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    data = rng.standard_normal((16, 4)), rng.standard_normal((16, 1))
    yield Program("scalar", "a number", lambda x: np.sin(x) * x, (0.5,))
    yield Program("sigmoid", "5 numbers", partial(sigmoid_sum, np), (rng.standard_normal(5),))
    yield Program("model", "3 numbers, and a model with its weights", Model().loss, (np.ones(3),))
    yield Program("mlp", "a dict of 6 arrays, on 16 examples", perceptron, (params, *data))
    network = partial(two_layers, np)
    yield Program(
        "network", "torch-autograd's README's, a tuple of 4", network, make_two_layers(rng)
    )


@dataclass(frozen=True)
class StandIn:
    """What a derivative calls in place of a compiled entry."""

    call: Callable[..., Any]


def parts_of(program: Program) -> tuple[list[float], float]:
    """Nanoseconds of each part of a call, and of the whole of it.

    The versions are timed in turns, another one first each time; the fastest sample counts.
    """
    from tapegrad import clear_cache, grad

    clear_cache()
    derivative: Any = grad(program.f, compile="always")
    derivative(*program.args)
    (entry,) = derivative.cache.front.recent
    versions = [(entry,), *((x,) for x in shortened(entry))]
    whole = partial(derivative, *program.args)
    best = [float("inf")] * len(versions)
    counts = []  # of calls in a sample
    for version in versions:
        derivative.cache.front.recent = version
        counts.append(repeats(whole))
    order = list(range(len(versions)))
    for turn in range(ROUNDS):
        for k in order[turn % len(order) :] + order[: turn % len(order)]:
            derivative.cache.front.recent = versions[k]
            best[k] = min(best[k], seconds(whole, counts[k]) / counts[k])
    full, *steps = [1e9 * time for time in best]
    return [b - a for a, b in zip([0.0, *steps], steps, strict=False)], full


def shortened(entry: Any) -> Iterator[StandIn]:
    """The entry with nothing in it, and then with one part more at a time."""
    head, *lines = entry.text.splitlines()
    guards, (tried, *body, result, caught, missed) = lines[: entry.guards], lines[entry.guards :]
    driver = entry.driver
    borrowed, returned = (2, 1) if driver.scratch else (0, 0)
    start = len(body) - len(driver.lines) - borrowed - returned
    unpacking, calling = body[:start], body[start:]
    outputs = len(driver.outputs) + borrowed
    idle, kernels = {**entry.names, **idle_kernels(entry)}, dict(entry.names)

    def version(lines: list[str], names: dict[str, Any], guarded: bool = True) -> StandIn:
        checked = guards if guarded else []
        exec("\n".join([head, *checked, tried, *lines, caught, missed]), names)
        return StandIn(names[head.split()[1].partition("(")[0]])

    nothing = "        return None"
    allocating = [*unpacking, *calling[:outputs]]
    yield version([nothing], kernels, guarded=False)
    yield version([nothing], kernels)
    yield version([*unpacking, nothing], kernels)
    yield version([*allocating, nothing], kernels)
    yield version([*body, nothing], idle)
    yield version([*body, nothing], kernels)
    yield version([*body, result], kernels)


def idle_kernels(entry: Any) -> dict[str, Any]:
    """Kernels that take the same arguments, check them, and do nothing."""
    from tapegrad.backends.cpu import support
    from tapegrad.backends.cpu.machine_code import kernel_function
    from tapegrad.pipeline import finished, schedule

    found = {}
    for kernel in schedule(finished(entry.derivation.tape)).kernels:
        names: dict[str, Any] = {"__name__": "idle"}
        text = f"def {kernel.name}({', '.join(kernel.names)}): return 0"
        function = kernel_function(text, kernel.name, names)
        types = [kernel.type_of(k) for k in range(len(kernel.parameters))]
        found[kernel.name] = support.compiled(function, types)
    return found


def main() -> None:
    os.environ.setdefault("TAPEGRAD_CACHE_DIR", "")
    chosen = list(programs())
    for program in chosen:
        print(f"{program.name:<12}{program.what}")
    print(f"\n{'nanoseconds':<36}" + "".join(f"{program.name:>10}" for program in chosen))
    columns = [parts_of(program) for program in chosen]
    for k, part in enumerate(PARTS):
        print(f"{part:<36}" + "".join(f"{parts[k]:>10,.0f}" for parts, _ in columns))
    print(f"{'sum':<36}" + "".join(f"{sum(parts):>10,.0f}" for parts, _ in columns))
    print(f"{'whole':<36}" + "".join(f"{whole:>10,.0f}" for _, whole in columns))


if __name__ == "__main__":
    main()
