"""What must hold of every program: traced, played, compiled and differentiated, it is NumPy's.

One derivative serves all calls of a program, which differ in their arguments, in the layout of
arrays, and in the globals: so guards fail, loops run longer, and masks count differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.fuzz.programs import Call, Program, enter

from tapegrad import grad, jit, trace, value_and_grad
from tapegrad.pipeline import optimized
from tapegrad.runtime.play import run
from tapegrad.tracing.run import plain_value, trace_function
from tapegrad.trees import flatten, unflatten

SEEDS = (0, 1, 2, 0)
STEP = 1e-4


def outputs(result: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in flatten(result)[0]]


def narrow(program: Program) -> bool:
    return "float32" in str(program)


def refused(error: Exception) -> bool:
    """Whether it is said what no trace can follow: a traced value goes into a plain array, for
    which NumPy has words of its own, or into integers or float16; a plain array is written to; so
    is what NumPy's function made of a Python number."""
    words = [
        "plain NumPy array",
        "Error setting single item of array",
        "would be truncated",
        "float16",
        "was written to while",
        "converted to a plain Python float",
        "a traced scalar does not support item assignment",
    ]
    return any(w in str(error) for w in words)


# ---- values


def assert_same(found: Any, expected: Any, rtol: float, what: str) -> None:
    """Equal structures, shapes and dtypes; values up to rounding."""
    got, wanted = outputs(found), outputs(expected)
    assert flatten(found)[1] == flatten(expected)[1], f"{what}: the structure"
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{what}: {a!r}, not {b!r}"
        if b.dtype.kind == "f":
            largest = float(np.max(np.abs(b), initial=1.0))
            np.testing.assert_allclose(a, b, rtol, rtol * largest, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


def check_values(program: Program, compile: str = "never") -> list[str]:
    """Traced, and played or compiled, a program returns in each call what NumPy does."""
    plain, f = program.function(), program.function()
    g = jit(f, compile=compile)
    rtol = 1e-4 if narrow(program) else 1e-9
    call, expected = _expected(program, plain, SEEDS[0])
    enter(f, call.captured())
    with np.errstate(all="ignore"):
        traced, _ = trace(f, *call.args())
    assert_same(traced, expected, rtol, "traced")
    for seed in SEEDS:
        call, expected = _expected(program, plain, seed)
        args = call.args()
        enter(f, call.captured())
        with np.errstate(all="ignore"):
            found = g(*args)
        assert_same(found, expected, rtol, f"{compile} compiled, call {seed}")
        assert_untouched(call, args, f, found)
    return ["compared"] * len(SEEDS)


def check_passes(program: Program) -> list[str]:
    """A tape gives the same before the passes and after."""
    f = program.function()
    for seed in SEEDS[:-1]:
        call = program.call(seed)
        enter(f, call.captured())
        with np.errstate(all="ignore"):
            traced = trace_function(f, call.args())
        inputs = [*map(plain_value, flatten(call.args())[0]), *traced.hidden]
        before, broken = run(traced.tape, inputs)
        assert broken is None
        after, broken = run(optimized(traced.tape), inputs)
        assert broken is None
        assert_same(after, before, 1e-4 if narrow(program) else 1e-9, f"optimized, call {seed}")
    return ["compared"] * len(SEEDS[:-1])


def _expected(program: Program, plain: Any, seed: int) -> tuple[Call, Any]:
    call = program.call(seed)
    enter(plain, call.captured())
    with np.errstate(all="ignore"):
        return call, plain(*call.args())


def assert_untouched(call: Call, args: Any, f: Any, found: Any) -> None:
    """The arguments and the globals are as they were, and no result is one of them."""
    given = [x for x in flatten(args)[0] if isinstance(x, np.ndarray)]
    fresh = [x for x in flatten(call.args())[0] if isinstance(x, np.ndarray)]
    for x, y in zip(given, fresh, strict=True):
        np.testing.assert_array_equal(x, y, err_msg="an argument was written to")
    for name, value in call.captured().items():
        np.testing.assert_array_equal(f.__globals__[name], value, err_msg=f"{name} was written to")
    held = [x for x in f.__globals__.values() if isinstance(x, np.ndarray)]
    results = [x for x in flatten(found)[0] if isinstance(x, np.ndarray)]
    for k, x in enumerate(results):
        for y in (*results[:k], *given, *held):
            assert not np.shares_memory(x, y), "a result isn't the caller's own"


# ---- derivatives


def weights(x: Any) -> np.ndarray:
    """Numbers between a half and three halves, of the shape of `x`."""
    return (1 + 0.5 * np.cos(1.0 + 2.0 * np.arange(x.size))).reshape(x.shape)


def weighted(f: Callable[..., Any]) -> Callable[..., Any]:
    """A weighted sum of the real results of `f`."""

    def loss(*args: Any) -> Any:
        total = 0.0
        for x in flatten(f(*args))[0]:
            x = x if hasattr(x, "dtype") else np.asarray(x)
            if x.dtype.kind == "f":
                total = total + np.sum(weights(x) * x)
        return total

    return loss


def real_arguments(program: Program) -> tuple[int, ...]:
    return tuple(
        k
        for k, text in enumerate(program.arguments.values())
        if "reals" in text or "number" in text
    )


def check_gradient(program: Program, compile: str = "never", order: int = 1) -> list[str]:
    """The gradient is the one that differences find, in each call; returns what was compared.

    A difference says nothing at a kink: then it is "skipped".
    """
    wrt = real_arguments(program)
    wide, plain, f = program.wide.function(), program.function(), program.function()
    loss, expected = weighted(f), weighted(wide)
    if order == 2:
        loss, expected = _projected(loss, wrt), _projected(expected, wrt)
    derivative = value_and_grad(loss, wrt, compile=compile)
    narrow_loss = weighted(plain) if order == 1 else _projected(weighted(plain), wrt)
    outcomes = []
    for seed in SEEDS:
        call, wide_call = program.call(seed), program.wide.call(seed)
        for function, given in ((f, call), (plain, call), (wide, wide_call)):
            enter(function, given.captured())
        args = call.args()
        with np.errstate(all="ignore"):
            value, gradients = derivative(*args)
            reference = narrow_loss(*call.args())
        tolerance = 2e-3 if narrow(program) else 1e-6
        assert_same(value, reference, 1e-4 if narrow(program) else 1e-8, "the value")
        assert_like(gradients, tuple(args[k] for k in wrt))
        assert_untouched(call, args, f, gradients)
        outcomes.append(_compare(expected, wide_call, wrt, gradients, float(reference), tolerance))
    return outcomes


def _projected(loss: Callable[..., Any], wrt: Sequence[int]) -> Callable[..., Any]:
    """A weighted sum of the gradient's elements: its own gradient is a second derivative."""
    gradient = grad(loss, tuple(wrt), compile="never")
    return weighted(gradient)


def assert_like(gradients: Any, args: Any) -> None:
    """Gradients mirror their arguments."""
    assert flatten(gradients)[1] == flatten(args)[1]
    for g, x in zip(flatten(gradients)[0], flatten(args)[0], strict=True):
        assert np.shape(g) == np.shape(x)
        assert np.asarray(g).dtype == np.asarray(x).dtype


def _compare(
    loss: Callable[..., Any],
    call: Call,
    wrt: Sequence[int],
    gradients: Any,
    value: float,
    tolerance: float,
) -> str:
    """Along random directions: one for each real leaf."""
    found = flatten(gradients)[0]
    args = call.args()
    leaves = flatten(tuple(args[k] for k in wrt))[0]
    rng = np.random.default_rng(call.seed)
    outcome = "compared"
    for k, (leaf, g) in enumerate(zip(leaves, found, strict=True)):
        direction = rng.standard_normal(np.shape(leaf))
        if 0 in getattr(leaf, "strides", ()):  # repeated rows stay equal: apart, they'd be a kink
            direction = np.broadcast_to(direction[:1], direction.shape)
        slope = _slope(loss, call, wrt, k, direction, value, tolerance)
        if slope is None:
            outcome = "skipped"
            continue
        expected, scale = slope
        along = np.asarray(g, np.float64) * direction
        allowed = tolerance * (scale + float(np.sum(np.abs(along))))
        got = float(np.sum(along))
        assert abs(got - expected) <= allowed, (
            f"call {call.seed}: the derivative along {direction.tolist()} for real leaf {k} is "
            f"{got:.10g}, and differences give {expected:.10g}"
        )
    return outcome


def _slope(
    loss: Callable[..., Any],
    call: Call,
    wrt: Sequence[int],
    k: int,
    direction: np.ndarray,
    value: float,
    tolerance: float,
) -> tuple[float, float] | None:
    """The slope along a direction of the k-th real leaf, and the scale of its error; None where
    the function has a kink, a jump or another path within the step."""

    def at(step: float) -> float:
        args = list(call.args())
        leaves, structure = flatten(tuple(args[j] for j in wrt))
        moved = np.asarray(leaves[k] + step * direction, np.float64)
        leaves[k] = float(moved) if isinstance(leaves[k], float) else laid_out(moved, leaves[k])
        for j, arg in zip(wrt, unflatten(structure, leaves), strict=True):
            args[j] = arg
        with np.errstate(all="ignore"):
            return float(loss(*args))

    here = at(0.0)
    scale = 1.0 + abs(here)
    if not abs(here - value) <= 1e-3 * scale:  # float32 took another way than float64
        return None
    ups, downs = zip(*[(at(s * STEP), at(-s * STEP)) for s in (1, 0.5, 0.25)], strict=True)
    central = [(u - d) / (2 * s * STEP) for u, d, s in zip(ups, downs, (1, 0.5, 0.25), strict=True)]
    kinks = [
        abs((u - here) - (here - d)) / (s * STEP)
        for u, d, s in zip(ups, downs, (1, 0.5, 0.25), strict=True)
    ]
    best = (4 * central[1] - central[0]) / 3
    if not np.all(np.isfinite([*central, *kinks])):
        return None
    close = tolerance * (scale + abs(best))
    # A kink's two slopes differ as much at a smaller step; a smooth function's half as much.
    smooth = kinks[1] <= 0.7 * kinks[0] + close and kinks[2] <= 0.7 * kinks[1] + close
    steady = (
        abs(central[0] - central[1]) <= 10 * close and abs(central[1] - central[2]) <= 5 * close
    )
    return (best, scale) if smooth and steady else None


def laid_out(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """`x` with the layout in memory of another array: NumPy's views depend on it."""
    if x.ndim == 0:
        return x
    if like.flags.c_contiguous:
        return np.ascontiguousarray(x)
    if like.flags.f_contiguous:
        return np.asfortranarray(x)
    if 0 in like.strides or any(s < 0 for s in like.strides):
        reverse = tuple(slice(None, None, -1 if s < 0 else 1) for s in like.strides)
        return np.ascontiguousarray(x[reverse])[reverse]
    whole = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    part = whole[tuple(slice(None, None, 2) for _ in x.shape)]
    part[...] = x
    return part
