"""Time value and gradient of functions of `tapegrad.nn` beside PyTorch's, in one process.

    python benchmarks/nn.py
    python benchmarks/nn.py --only "softmax*,cross*" --source

Both have as many threads as there are cores, and float32. Calls take turns; the ratio is that of
the medians, and beside it that of the shortest ones. Where others use the machine, too, the CPU
time of one thread says more: `--cpu`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import click
import numpy as np

from tapegrad import nn, set_num_threads, value_and_grad


@dataclass
class Program:
    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]  # of torch.nn.functional, and the rest
    make: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    moved: int  # how many of the arrays are differentiated


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def lenet(F: Any, x: Any, labels: Any, *weights: Any) -> Any:
    """Two convolutions with pools and three layers, of images of 28 x 28; `F` has the functions."""
    w1, b1, w2, b2, *layers = weights
    h = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, padding=2)), 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, w2, b2)), 2).reshape(len(x), 400)
    for k in range(0, 6, 2):
        h = F.linear(h, layers[k], layers[k + 1])
        h = F.relu(h) if k < 4 else h
    return F.cross_entropy(h, labels)


LENET = [(6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,), (120, 400), (120,), (84, 120), (84,)]


def block(F: Any, x: Any, v: Any, w: Any) -> Any:
    """ResNet's basic block, without normalisation."""
    return F.relu(x + F.conv2d(F.relu(F.conv2d(x, v, padding=1)), w, padding=1))


def torch_lstm(x: Any, h: Any, c: Any, *weights: Any) -> Any:
    import torch

    return torch.lstm(x, (h, c), list(weights), True, 1, 0.0, False, False, False)[0]


PROGRAMS = [
    Program(
        "softmax 512 x 1024",
        lambda x: nn.softmax(x),
        lambda F, x: F.softmax(x, -1),
        lambda rng: (normal(rng, 512, 1024),),
        1,
    ),
    Program(
        "log_softmax 512 x 1024",
        lambda x: nn.log_softmax(x),
        lambda F, x: F.log_softmax(x, -1),
        lambda rng: (normal(rng, 512, 1024),),
        1,
    ),
    Program(
        "layer_norm 512 x 1024",
        lambda x, w, b: nn.layer_norm(x, (1024,), w, b),
        lambda F, x, w, b: F.layer_norm(x, (1024,), w, b),
        lambda rng: (normal(rng, 512, 1024), normal(rng, 1024), normal(rng, 1024)),
        3,
    ),
    Program(
        "batch_norm 64 x 32 x 28 x 28",
        lambda x, w, b: nn.batch_norm(x, None, None, w, b, training=True),
        lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        lambda rng: (normal(rng, 64, 32, 28, 28), normal(rng, 32), normal(rng, 32)),
        3,
    ),
    Program(
        "gelu 512 x 1024",
        lambda x: nn.gelu(x),
        lambda F, x: F.gelu(x),
        lambda rng: (normal(rng, 512, 1024),),
        1,
    ),
    Program(
        "silu 512 x 1024",
        lambda x: nn.silu(x),
        lambda F, x: F.silu(x),
        lambda rng: (normal(rng, 512, 1024),),
        1,
    ),
    Program(
        "embedding 256 of 10^4 x 64",
        lambda W, i: nn.embedding(i, W),
        lambda F, W, i: F.embedding(i, W),
        lambda rng: (normal(rng, 10_000, 64), rng.integers(0, 10_000, 256)),
        1,
    ),
    Program(
        "cross_entropy 64 x 10^4",
        lambda x, i: nn.cross_entropy(x, i),
        lambda F, x, i: F.cross_entropy(x, i),
        lambda rng: (normal(rng, 64, 10_000), rng.integers(0, 10_000, 64)),
        1,
    ),
    Program(
        "embedding and cross_entropy, 10^4 classes",
        lambda W, V, i: nn.cross_entropy(nn.embedding(i[0], W) @ V, i[1]),
        lambda F, W, V, i: F.cross_entropy(F.embedding(i[0], W) @ V, i[1]),
        lambda rng: (
            normal(rng, 10_000, 64),
            normal(rng, 64, 10_000),
            rng.integers(0, 10_000, (2, 256)),
        ),
        2,
    ),
    Program(
        "binary_cross_entropy_with_logits 512 x 1024",
        lambda x, t: nn.binary_cross_entropy_with_logits(x, t),
        lambda F, x, t: F.binary_cross_entropy_with_logits(x, t),
        lambda rng: (normal(rng, 512, 1024), rng.random((512, 1024)).astype(np.float32)),
        1,
    ),
    Program(
        "conv2d 32 x 16 x 28 x 28 to 32",
        lambda x, w: nn.conv2d(x, w, padding=1),
        lambda F, x, w: F.conv2d(x, w, padding=1),
        lambda rng: (normal(rng, 32, 16, 28, 28), normal(rng, 32, 16, 3, 3)),
        2,
    ),
    Program(
        "conv2d, each of 64 channels by itself",
        lambda x, w: nn.conv2d(x, w, padding=1, groups=64),
        lambda F, x, w: F.conv2d(x, w, padding=1, groups=64),
        lambda rng: (normal(rng, 16, 64, 28, 28), normal(rng, 64, 1, 3, 3)),
        2,
    ),
    Program(
        "conv_transpose2d 32 x 32 x 14 x 14 to 16",
        lambda x, w: nn.conv_transpose2d(x, w, stride=2),
        lambda F, x, w: F.conv_transpose2d(x, w, stride=2),
        lambda rng: (normal(rng, 32, 32, 14, 14), normal(rng, 32, 16, 3, 3)),
        2,
    ),
    Program(
        "ResNet's block 16 x 64 x 16 x 16",
        lambda *args: block(nn, *args),
        block,
        lambda rng: (
            normal(rng, 16, 64, 16, 16),
            *[normal(rng, 64, 64, 3, 3) / 24 for _ in range(2)],
        ),
        3,
    ),
    Program(
        "max_pool2d 32 x 32 x 28 x 28",
        lambda x: nn.max_pool2d(x, 2),
        lambda F, x: F.max_pool2d(x, 2),
        lambda rng: (normal(rng, 32, 32, 28, 28),),
        1,
    ),
    Program(
        "LeNet, batch 64",
        lambda *args: lenet(nn, args[-2], args[-1], *args[:-2]),
        lambda F, *args: lenet(F, args[-2], args[-1], *args[:-2]),
        lambda rng: (
            *[normal(rng, *shape) / 8 for shape in (*LENET, (10, 84), (10,))],
            normal(rng, 64, 1, 28, 28),
            rng.integers(0, 10, 64),
        ),
        10,
    ),
    *[
        Program(
            f"causal attention {heads} x {length} x 64",
            lambda *xs: nn.scaled_dot_product_attention(*xs, is_causal=True),
            lambda F, *xs: F.scaled_dot_product_attention(*xs, is_causal=True),
            lambda rng, heads=heads, length=length: tuple(
                normal(rng, 1, heads, length, 64) for _ in range(3)
            ),
            3,
        )
        for heads, length in ((8, 512), (2, 4096))
    ],
    Program(
        "lstm 100 x 32 x 128 to 128",
        lambda x, h, c, *weights: nn.lstm(x, (h, c), [weights])[0],
        lambda F, *args: torch_lstm(*args),
        lambda rng: (
            normal(rng, 100, 32, 128),
            *[normal(rng, 1, 32, 128) for _ in range(2)],
            *[normal(rng, 512, 128) / 10 for _ in range(2)],
            *[normal(rng, 512) / 10 for _ in range(2)],
        ),
        7,
    ),
]


def calls(program: Program) -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    """A call of each, of the sum of the result times random numbers, and ours' source."""
    import torch

    rng = np.random.default_rng(0)
    args = program.make(rng)
    ct = normal(rng, *np.shape(program.ours(*args)))

    def total(*args: Any) -> Any:
        return np.sum(program.ours(*args) * ct)

    df = value_and_grad(total, argnums=tuple(range(program.moved)), compile="always")
    tensors = [torch.tensor(x, requires_grad=i < program.moved) for i, x in enumerate(args)]
    moved, weights = tensors[: program.moved], torch.tensor(ct)

    def theirs() -> Any:
        value = (program.theirs(torch.nn.functional, *tensors) * weights).sum()
        return value.detach(), torch.autograd.grad(value, moved)

    (a, slopes), (b, wanted) = df(*args), theirs()
    for x, y in zip((a, *slopes), (b, *wanted), strict=True):
        scale = float(abs(y).max())
        np.testing.assert_allclose(x, y.numpy(), rtol=1e-3, atol=1e-4 * scale)
    return lambda: df(*args), theirs, df.lower(*args)


@click.command(help=__doc__.split("\n")[0])
@click.option("--only", metavar="NAMES", default="*", help="Comma-separated, with * and ?.")
@click.option("--rounds", default=60, help="Calls of each.")
@click.option("--source", is_flag=True, help="Print what is emitted.")
@click.option("--cpu", is_flag=True, help="CPU time of one thread.")
def main(only: str, rounds: int, source: bool, cpu: bool) -> None:
    clock = time.process_time if cpu else time.perf_counter
    if cpu:
        import torch

        torch.set_num_threads(1)
        set_num_threads(1)
    for program in PROGRAMS:
        if not any(fnmatchcase(program.name, pattern) for pattern in only.split(",")):
            continue
        ours, theirs, lowered = calls(program)
        times: dict[Any, list[float]] = {ours: [], theirs: []}
        for _ in range(rounds):
            for call, taken in times.items():
                start = clock()
                call()
                taken.append(clock() - start)
        (mine, first), (other, least) = [(np.median(t), min(t)) for t in times.values()]
        click.echo(
            f"{program.name:44}{mine * 1e6:9.0f} us  PyTorch {other * 1e6:9.0f} us"
            f"   {mine / other:5.2f}  (shortest {first / least:5.2f})"
        )
        if source:
            click.echo(lowered.source)


if __name__ == "__main__":
    main()
