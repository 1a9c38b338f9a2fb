"""Time value and gradient of functions of `tapegrad.nn` beside PyTorch's, in one process.

    python benchmarks/nn.py
    python benchmarks/nn.py --only "softmax*,cross*" --source
    python benchmarks/nn.py --only "LeNet*,lstm*" --memory

Both have as many threads as there are cores, and float32. Calls take turns; the ratio is that of
the medians, and beside it that of the shortest ones. Where others use the machine, too, the CPU
time of one thread says more: `--cpu`. Of products the last column is how far the shortest call is
from the peak that a product of two large matrices reaches.
"""

import ctypes
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import numpy as np

from tapegrad import clear_cache, jit, nn, set_num_threads, value_and_grad


@dataclass
class Program:
    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]  # of torch.nn.functional, and the rest
    make: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    moved: int  # how many of the arrays are differentiated
    flops: float = 0.0  # of its products, value and gradient: thrice those of the value


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


def transformer(F: Any, x: Any, *weights: Any) -> Any:
    """A block of attention of 8 heads and two layers, each behind a layer norm."""
    g1, c1, w_in, b_in, w_out, b_out, g2, c2, w1, b1, w2, b2 = weights
    n, length, width = x.shape
    h = F.linear(F.layer_norm(x, (width,), g1, c1), w_in, b_in)
    parts = [h[..., k * width : (k + 1) * width].reshape(n, length, 8, -1) for k in range(3)]
    h = F.scaled_dot_product_attention(*[part.swapaxes(1, 2) for part in parts])
    x = x + F.linear(h.swapaxes(1, 2).reshape(n, length, width), w_out, b_out)
    h = F.relu(F.linear(F.layer_norm(x, (width,), g2, c2), w1, b1))
    return x + F.linear(h, w2, b2)


def transformer_shapes(width: int) -> list[tuple[int, ...]]:
    norm: list[tuple[int, ...]] = [(width,), (width,)]
    layers = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    first, second, third, fourth = [[shape, shape[:1]] for shape in layers]
    return [*norm, *first, *second, *norm, *third, *fourth]


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
        3 * 2 * 256 * 64 * 10_000,
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
        3 * 2 * 32 * 28 * 28 * 32 * 16 * 9,
    ),
    Program(
        "conv2d, each of 64 channels by itself",
        lambda x, w: nn.conv2d(x, w, padding=1, groups=64),
        lambda F, x, w: F.conv2d(x, w, padding=1, groups=64),
        lambda rng: (normal(rng, 16, 64, 28, 28), normal(rng, 64, 1, 3, 3)),
        2,
        3 * 2 * 16 * 28 * 28 * 64 * 9,
    ),
    Program(
        "conv_transpose2d 32 x 32 x 14 x 14 to 16",
        lambda x, w: nn.conv_transpose2d(x, w, stride=2),
        lambda F, x, w: F.conv_transpose2d(x, w, stride=2),
        lambda rng: (normal(rng, 32, 32, 14, 14), normal(rng, 32, 16, 3, 3)),
        2,
        3 * 2 * 32 * 14 * 14 * 32 * 16 * 9,
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
        2 * 3 * 2 * 16 * 16 * 16 * 64 * 64 * 9,
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
        2 * 64 * (2 * 6 * 784 * 25 + 3 * (100 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10)),
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
            3 * 2 * heads * length * length * 64,  # of what is seen: half of two products
        )
        for heads, length in ((8, 512), (2, 4096))
    ],
    Program(
        "transformer block 8 x 128 x 256",
        lambda *args: transformer(nn, *args),
        transformer,
        lambda rng: (
            normal(rng, 8, 128, 256),
            *[normal(rng, *shape) / 16 for shape in transformer_shapes(256)],
        ),
        13,
        3 * 2 * 8 * 128 * 256 * (12 * 256 + 2 * 128),
    ),
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
        3 * 2 * 100 * 32 * 512 * 256,
    ),
]


def drawn(program: Program) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Arguments, and the cotangent of the result: the loss is its product with that."""
    rng = np.random.default_rng(0)
    args = program.make(rng)
    return args, normal(rng, *np.shape(program.ours(*args)))


def our_call(program: Program) -> tuple[Callable[[], Any], Any]:
    """A call of value and gradient, and what it runs."""
    args, ct = drawn(program)

    def total(*args: Any) -> Any:
        return np.sum(program.ours(*args) * ct)

    df = value_and_grad(total, argnums=tuple(range(program.moved)), compile="always")
    return lambda: df(*args), df.lower(*args)


def their_call(program: Program) -> Callable[[], Any]:
    import torch

    args, ct = drawn(program)
    tensors = [torch.tensor(x, requires_grad=i < program.moved) for i, x in enumerate(args)]
    moved, weights = tensors[: program.moved], torch.tensor(ct)

    def theirs() -> Any:
        value = (program.theirs(torch.nn.functional, *tensors) * weights).sum()
        return value.detach(), torch.autograd.grad(value, moved)

    return theirs


def agree(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    (a, slopes), (b, wanted) = ours(), theirs()
    for x, y in zip((a, *slopes), (b, *wanted), strict=True):
        scale = float(abs(y).max())
        np.testing.assert_allclose(x, y.numpy(), rtol=1e-3, atol=1e-4 * scale)


def peak(clock: Callable[[], float]) -> float:
    """Operations a second of a product of matrices, by NumPy's library or by PyTorch's, of the size
    that suits them."""
    import torch

    matmul, best = jit(np.matmul, compile="always"), 0.0
    for n in (256, 512, 1024):
        x = normal(np.random.default_rng(0), n, n)
        for product, y in 20 * [(matmul, x), (torch.matmul, torch.tensor(x))]:
            product(y, y)  # what was there before is out of the caches
            start = clock()
            product(y, y)
            best = max(best, 2 * n**3 / (clock() - start))
    return best


def resident(key: str) -> int:
    """Bytes of memory that this process has ("VmRSS"), or has had at the most ("VmHWM")."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{key}:")[2].split()[0])


def growth(program: Program, ours: bool) -> int:
    """By how many bytes calls make this process grow, over what is left of it when all that they
    hold is let go."""
    call = our_call(program)[0] if ours else their_call(program)
    for _ in range(3):
        call()
    Path("/proc/self/clear_refs").write_text("5")  # from now on the most is counted
    for _ in range(5):
        call()
    most = resident("VmHWM")
    del call
    clear_cache()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return most - resident("VmRSS")


def in_a_process(program: Program, side: str) -> int:
    command = [sys.executable, __file__, "--only", program.name, "--grown", side]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@click.command(help=__doc__.split("\n")[0])
@click.option("--only", metavar="NAMES", default="*", help="Comma-separated, with * and ?.")
@click.option("--rounds", default=60, help="Calls of each.")
@click.option("--source", is_flag=True, help="Print what is emitted.")
@click.option("--cpu", is_flag=True, help="CPU time of one thread.")
@click.option("--memory", is_flag=True, help="Memory of calls, each in a process of its own.")
@click.option("--grown", type=click.Choice(["ours", "theirs"]), hidden=True)
def main(only: str, rounds: int, source: bool, cpu: bool, memory: bool, grown: str) -> None:
    clock = time.process_time if cpu else time.perf_counter
    if cpu:
        import torch

        torch.set_num_threads(1)
        set_num_threads(1)
    chosen = [p for p in PROGRAMS if any(fnmatchcase(p.name, x) for x in [only, *only.split(",")])]
    if grown:
        return click.echo(growth(chosen[0], grown == "ours"))
    if memory:
        for program in chosen:
            mine, other = [in_a_process(program, side) / 2**20 for side in ("ours", "theirs")]
            click.echo(
                f"{program.name:44}{mine:9.1f} MB  PyTorch {other:9.1f} MB   {mine / other:5.2f}"
            )
        return None
    most = peak(clock)
    click.echo(f"a product of matrices takes {most / 1e9:.0f} operations a ns")
    for program in chosen:
        (ours, lowered), theirs = our_call(program), their_call(program)
        agree(ours, theirs)
        times: dict[Any, list[float]] = {ours: [], theirs: []}
        for _ in range(rounds):
            for call, taken in times.items():
                start = clock()
                call()
                taken.append(clock() - start)
        (mine, first), (other, least) = [(np.median(t), min(t)) for t in times.values()]
        share = (
            f"  {program.flops / first / most:4.0%} of a product's peak" if program.flops else ""
        )
        click.echo(
            f"{program.name:44}{mine * 1e6:9.0f} us  PyTorch {other * 1e6:9.0f} us"
            f"   {mine / other:5.2f}  (shortest {first / least:5.2f}){share}"
        )
        if source:
            click.echo(lowered.source)
    return None


if __name__ == "__main__":
    main()
