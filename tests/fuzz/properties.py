"""What must hold of every program: traced, played, compiled and differentiated, it is NumPy's.

One derivative serves all calls of a program, which differ in their arguments, in the layout of
arrays, and in the globals: so guards fail, loops run longer, and masks count differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.fuzz.differences import AMPLIFIED, along, direction_of, real_leaves, slope
from tests.fuzz.programs import Call, Program, enter
from tests.fuzz.rounding import JUMP, compare, narrow, runs, spread, unit

from tapegrad import grad, jit, trace, value_and_grad
from tapegrad.pipeline import optimized
from tapegrad.runtime.play import run
from tapegrad.tracing.run import plain_value, trace_function
from tapegrad.trees import flatten

SEEDS = (0, 1, 2, 0)


def refused(error: Exception) -> bool:
    """Whether it is said what no trace can follow: a traced value goes into a plain array, for
    which NumPy has words of its own, or into integers or float16; a plain array is written to; so
    is what NumPy's function made of a Python number, or what may share memory with another."""
    words = [
        "plain NumPy array",
        "Error setting single item of array",
        "would be truncated",
        "float16",
        "was written to while",
        "converted to a plain Python float",
        "may have reached it",
        "a traced scalar does not support item assignment",
    ]
    return any(w in str(error) for w in words)


# ---- values


def check_values(program: Program, compile: str = "never") -> list[str]:
    """Traced, and played or compiled, a program returns in each call what NumPy does."""
    plain, f = program.function(), program.function()
    g = jit(f, compile=compile)
    by = unit(program)
    outcomes = []
    for seed in SEEDS:
        call, expected = _expected(program, plain, seed)
        rounding = lambda call=call: runs(program, call, lambda f: f(*call.args()))  # noqa: E731
        args = call.args()
        enter(f, call.captured())
        with np.errstate(all="ignore"):
            if not outcomes:
                traced, _ = trace(f, *call.args())
                compare(traced, expected, rounding, by, "traced")
            found = g(*args)
        outcomes.append(compare(found, expected, rounding, by, f"{compile} compiled, call {seed}"))
        assert_untouched(call, args, f, found)
    return outcomes


def check_passes(program: Program) -> list[str]:
    """A tape gives the same before the passes and after."""

    def played(f: Any, call: Call, passes: Callable[[Any], Any]) -> Any:
        with np.errstate(all="ignore"):
            traced = trace_function(f, call.args())
        inputs = [*map(plain_value, flatten(call.args())[0]), *traced.hidden]
        outputs, broken = run(passes(traced.tape), inputs)
        assert broken is None
        return outputs

    def as_it_is(tape: Any) -> Any:
        return tape

    f = program.function()
    outcomes = []
    for seed in SEEDS[:-1]:
        call = program.call(seed)
        enter(f, call.captured())
        before, after = played(f, call, as_it_is), played(f, call, optimized)
        rounding = lambda call=call: runs(program, call, lambda f: played(f, call, as_it_is))  # noqa: E731
        outcomes.append(compare(after, before, rounding, unit(program), f"optimized, call {seed}"))
    return outcomes


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

    def loss_of(f: Callable[..., Any]) -> Callable[..., Any]:
        return weighted(f) if order == 1 else _projected(weighted(f), wrt)

    f, plain = program.function(), program.function()
    derivative, narrow_loss = value_and_grad(loss_of(f), wrt, compile=compile), loss_of(plain)
    outcomes = []
    for seed in SEEDS:
        call = program.call(seed)
        enter(f, call.captured())
        enter(plain, call.captured())
        args = call.args()
        with np.errstate(all="ignore"):
            value, gradients = derivative(*args)
            reference = narrow_loss(*call.args())
        rounding = lambda call=call: runs(program, call, lambda f: loss_of(f)(*call.args()))  # noqa: E731
        compare(value, reference, rounding, unit(program), "the value")
        assert_like(gradients, tuple(args[k] for k in wrt))
        assert_untouched(call, args, f, gradients)
        outcomes.append(_compare_slopes(program, call, wrt, loss_of, gradients, float(reference)))
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


def _compare_slopes(
    program: Program,
    call: Call,
    wrt: Sequence[int],
    loss_of: Callable[..., Any],
    gradients: Any,
    value: float,
) -> str:
    """Along random directions, one for each real leaf. Differences are taken in float64."""
    wide, wide_call = program.wide, program.wide.call(call.seed)
    f = wide.function()
    enter(f, wide_call.captured())
    loss = loss_of(f)
    rng = np.random.default_rng(call.seed)
    outcome = "compared"
    for k, (leaf, g) in enumerate(zip(real_leaves(call, wrt), flatten(gradients)[0], strict=True)):
        direction = direction_of(leaf, rng)
        at = along(loss, wide_call, wrt, k, direction)
        noise = unit(wide) * (1 + abs(value))
        found = slope(at, noise)
        if found is None:
            outcome = "skipped"
            continue
        terms = np.asarray(g, np.float64) * direction
        got = float(np.sum(terms))
        allowed = found.truncation + AMPLIFIED * noise
        allowed += unit(program) * (1 + float(np.sum(np.abs(terms))))
        if abs(got - found.value) > allowed:
            more = _rounding_of_slopes(program, call, wrt, loss_of, k, direction, got, value)
            outcome = "skipped" if more is None else outcome
            allowed += np.inf if more is None else more
        if allowed > JUMP * (1 + abs(got)):
            outcome = "skipped"
            continue
        assert abs(got - found.value) <= allowed, (
            f"call {call.seed}: the derivative along {direction.tolist()} for real leaf {k} is "
            f"{got:.10g}, and differences give {found.value:.10g}, up to {allowed:.2g}"
        )
    return outcome


def _rounding_of_slopes(
    program: Program,
    call: Call,
    wrt: Sequence[int],
    loss_of: Callable[..., Any],
    k: int,
    direction: np.ndarray,
    got: float,
    value: float,
) -> float | None:
    """What rounding takes the gradient off by, and the differences; None if it is a jump."""

    def projected(f: Callable[..., Any]) -> float:
        gradients = grad(loss_of(f), wrt, compile="never")(*call.args())
        return float(np.sum(np.asarray(flatten(gradients)[0][k], np.float64) * direction))

    wide, wide_call = program.wide, program.wide.call(call.seed)
    slopes = runs(program, call, projected)
    values = runs(wide, wide_call, lambda f: float(loss_of(f)(*wide_call.args())))
    if slopes is None or values is None:
        return None
    center = float(np.median(values))
    if narrow(program):
        # Where float32 took another way than float64, the two have little to do with each other.
        singles = runs(program, call, lambda f: float(loss_of(f)(*call.args())))
        if singles is None or abs(center - value) > unit(program) * (1 + abs(value)) + spread(
            singles, value
        ):
            return None
    return float(spread(slopes, got) + AMPLIFIED * spread(values, center))
