"""What must hold of every program: traced, played, compiled and differentiated, it is NumPy's.

One derivative serves all calls of a program, which differ in their arguments, in shapes, dtypes,
kinds and layouts, and in what the program finds elsewhere: so guards fail, loops run longer, masks
count differently, and what was compiled for one call is tried for another. Where NumPy raises, so
does tapegrad.
"""

from __future__ import annotations

import copy
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tests.fuzz.differences import AMPLIFIED, along, direction_of, real_leaves, slope
from tests.fuzz.programs import Call, Program
from tests.fuzz.rounding import JUMP, compare, narrow, runs, spread, unit
from tests.fuzz.states import held
from tests.fuzz.streams import assert_left
from tests.fuzz.variations import PLAIN, calls_of

from tapegrad import grad, jit, trace, value_and_grad
from tapegrad.backends.numpy.play import run
from tapegrad.core.request import Request
from tapegrad.core.trees import flatten
from tapegrad.errors import TapegradError
from tapegrad.pipeline import optimized
from tapegrad.tracing.runs.run import trace_function
from tapegrad.tracing.runs.traced import plain_value

DIFFERENTIABLE = (np.float32, np.float64, np.complex128)
COMPARED, SKIPPED, REFUSED, RAISED = "compared", "skipped", "refused", "raised"


@dataclass(frozen=True)
class Raised:
    """NumPy's answer to a call that it refuses."""

    error: Exception


class Wrong(AssertionError):
    """A call in which tapegrad isn't NumPy."""


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
        "was set in place while",
        "converted to a plain Python float",
        "may have reached it",
        "a traced scalar does not support item assignment",
        "of complex numbers NumPy's alone can be traced",
        "of complex numbers isn't supported",
    ]
    return any(w in str(error) for w in words)


# ---- the whole of it


@dataclass(frozen=True)
class Effort:
    """What is done beyond what is done always: parts of all programs."""

    compiled: float = 1.0  # for the arguments of the first call
    compiled_again: float = 0.15  # for those of a later one, too
    without_gradient: float = 0.05  # compiled, too
    second: float = 0.4
    second_compiled: float = 0.03
    passes: float = 0.05


def check(program: Program, seed: int, effort: Effort | None = None) -> Counter[str]:
    """Hold a program to all properties, in the calls that `seed` chooses; how many calls were
    compared, by what was new in them."""
    effort = effort or Effort()
    rng = random.Random(seed)
    calls = calls_of(program, rng)
    chance = [rng.random() for _ in range(6)]
    tally: Counter[str] = Counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plain = program.function()
        expected = [expected_of(plain, call) for call in calls]
        alone = "always" if chance[5] < effort.without_gradient * effort.compiled else "never"
        check_values(program, calls, expected, alone, rng, tally)
        if chance[4] < effort.passes and not program.draws:
            check_passes(program, tally)
        ways = dict.fromkeys(range(len(calls)), "never")
        if chance[0] < effort.compiled:
            ways[0] = "always"
            if chance[1] < effort.compiled_again:
                ways[rng.randrange(1, len(calls))] = "always"
        check_gradient(program, calls, expected, ways, tally)
        if chance[2] < effort.second:
            way = "always" if chance[3] < effort.second_compiled else "never"
            check_second(program, calls, expected, way, rng, tally)
    return tally


def expected_of(plain: Any, call: Call) -> Any:
    call.enter(plain)
    try:
        return copy.deepcopy(plain(*call.args()))  # later calls write into what is captured
    except Exception as error:
        return Raised(error)


def _count(tally: Counter[str], outcome: str, call: Call, *what: str) -> None:
    for word in (*what, *([call.what] if call.what != PLAIN else [])):
        tally[f"{word}: {outcome}"] += 1


def answer(run: Callable[[], Any], expected: Any, call: Call, how: str) -> tuple[str, Any]:
    """What a call came to, and its result."""
    if isinstance(expected, Raised) and "read-only" in str(expected.error):
        return SKIPPED, None  # a function may write to the caller's array: it has a copy
    try:
        found = run()
    except Exception as error:
        if refused(error) or (call.what != PLAIN and isinstance(error, TapegradError)):
            return REFUSED, None
        if isinstance(expected, Raised) and _same_error(error, expected.error):
            return RAISED, None
        wanted = f", and NumPy raises {expected.error!r}" if isinstance(expected, Raised) else ""
        raise Wrong(f"{how}, {call}: raises {type(error).__name__}: {error}{wanted}") from error
    if isinstance(expected, Raised):
        raise Wrong(f"{how}, {call}: gives {found!r}, and NumPy raises {expected.error!r}")
    return COMPARED, found


def _same_error(error: Exception, numpys: Exception) -> bool:
    return isinstance(error, type(numpys)) or isinstance(numpys, type(error))


# ---- values


def check_values(
    program: Program,
    calls: Sequence[Call],
    expected: Sequence[Any],
    compile: str,
    rng: random.Random,
    tally: Counter[str],
) -> None:
    """Traced and played, a program returns in each call what NumPy does; in the first one compiled,
    if `compile` says so. Calls that can be differentiated give their results again with the
    gradient, so not all of them are made here."""
    wrt = real_arguments(program)
    f = program.function()
    g = jit(f, compile="never")
    for k, (call, wanted) in enumerate(zip(calls, expected, strict=True)):
        if call.what != PLAIN and differentiable(call, wrt) and rng.random() < 0.7:
            continue
        args = call.args()
        call.enter(f)
        rounding = partial(runs, call, lambda f, call=call: f(*call.args()))
        if k == 0:
            outcome, found = answer(lambda: trace(f, *call.args())[0], wanted, call, "traced")  # noqa: B023
            if outcome == COMPARED:
                assert_left(call, f, "traced")
                compare(found, wanted, rounding, unit(call.program), f"traced, {call}")
                call.enter(f)
        g.mode = compile if call in calls[:1] else "never"
        how = "played" if g.mode == "never" else "compiled"
        outcome, found = answer(lambda: g(*args), wanted, call, how)  # noqa: B023
        if outcome == COMPARED:
            assert_left(call, f, how)
            outcome = compare(found, wanted, rounding, unit(call.program), f"{how}, {call}")
            assert_untouched(call, args, f, found)
        _count(tally, outcome, call, how)
    if any(name in " ".join(program.lines) for name in program.captured):
        tally[f"state: {COMPARED if tally[f'played: {COMPARED}'] > 1 else SKIPPED}"] += 1


def check_passes(program: Program, tally: Counter[str]) -> None:
    """A tape gives the same before the passes and after."""

    def played(f: Any, call: Call, passes: Callable[[Any], Any]) -> Any:
        traced = trace_function(Request(f, call.args()))
        inputs = [
            plain_value(x) for x in flatten(call.args())[0] if hasattr(plain_value(x), "dtype")
        ]
        outputs, broken = run(passes(traced.tape), [*inputs, *traced.captured])
        assert broken is None
        return outputs

    def as_it_is(tape: Any) -> Any:
        return tape

    f = program.function()
    for seed in (0, 1):
        call = program.call(seed)
        call.enter(f)
        outcome, before = answer(lambda: played(f, call, as_it_is), None, call, "passes")  # noqa: B023
        if outcome == COMPARED:
            rounding = partial(runs, call, lambda f, call=call: played(f, call, as_it_is))
            after = played(f, call, optimized)
            outcome = compare(after, before, rounding, unit(program), f"optimized, {call}")
        tally[f"passes: {outcome}"] += 1


def assert_untouched(call: Call, args: Any, f: Any, found: Any) -> None:
    """The arguments and what is captured are as they were, and no result is one of them."""
    given = [x for x in flatten(args)[0] if isinstance(x, np.ndarray)]
    fresh = [x for x in flatten(call.args())[0] if isinstance(x, np.ndarray)]
    for x, y in zip(given, fresh, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=f"{call}: an argument was written to")
    kept: list[np.ndarray] = []
    for name, value in call.captured().items():
        here = flatten(held(f, name))[0]
        for x, y in zip(here, flatten(value)[0] if here else [], strict=True):
            if isinstance(y, np.ndarray) and not y.dtype.hasobject:
                np.testing.assert_array_equal(x, y, err_msg=f"{call}: {name} was written to")
                kept.append(x)
    results = [x for x in flatten(found)[0] if isinstance(x, np.ndarray)]
    for k, x in enumerate(results):
        for y in (*results[:k], *given, *kept):
            if np.shares_memory(x, y):
                raise Wrong(f"{call}: a result isn't the caller's own")


# ---- derivatives


def weights(x: Any) -> np.ndarray:
    """Numbers between a half and three halves, of the shape of `x`."""
    return (1 + 0.5 * np.cos(1.0 + 2.0 * np.arange(x.size))).reshape(x.shape)


def weighted_sum(results: Any) -> Any:
    """A weighted sum of the real ones of the results, and of the parts of complex ones."""
    total = 0.0
    for x in flatten(results)[0]:
        if isinstance(x, (str, type(None))):
            continue
        x = x if hasattr(x, "dtype") else np.asarray(x)
        if x.dtype.kind == "f":
            total = total + np.sum(weights(x) * x)
        elif x.dtype.kind == "c":
            by = weights(x)
            total = total + np.sum(by * x.real) + np.sum((2 - by) * x.imag)
    return total


def weighted(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: weighted_sum(f(*args))


def with_results(f: Callable[..., Any]) -> Callable[..., Any]:
    """The weighted sum, and the results."""

    def loss(*args: Any) -> Any:
        results = f(*args)
        return weighted_sum(results), results

    return loss


def real_arguments(program: Program) -> tuple[int, ...]:
    return tuple(
        k
        for k, text in enumerate(program.arguments.values())
        if re.search("reals|number|complexes", text)
    )


def differentiable(call: Call, wrt: Sequence[int]) -> bool:
    args = call.args()
    leaves = flatten(tuple(args[k] for k in wrt))[0]
    return all(
        type(x) in (float, complex, np.ndarray) or isinstance(x, np.inexact) for x in leaves
    ) and all(np.asarray(x).dtype.newbyteorder("=") in DIFFERENTIABLE for x in leaves)


def check_gradient(
    program: Program,
    calls: Sequence[Call],
    expected: Sequence[Any],
    ways: dict[int, str],
    tally: Counter[str],
) -> None:
    """The gradient is the one that differences find, in each call, and the results that come with
    it are NumPy's; a call is played or, where `ways` says so, compiled."""
    wrt = real_arguments(program)
    f = program.function()
    derivative = value_and_grad(with_results(f), wrt, has_aux=True, compile="never")
    for k, (call, wanted) in enumerate(zip(calls, expected, strict=True)):
        args = call.args()
        call.enter(f)
        derivative.mode = ways[k]
        how = f"gradient, {'compiled' if ways[k] == 'always' else 'played'}"
        wanted = wanted if differentiable(call, wrt) else Raised(TypeError("no derivative"))
        traces = derivative.cache_info().traces
        outcome, found = answer(lambda: derivative(*args), wanted, call, how)  # noqa: B023
        traced = derivative.cache_info().traces > traces
        if outcome == COMPARED:
            (_, results), gradients = found
            rounding = partial(runs, call, lambda f, call=call: f(*call.args()))
            by = unit(call.program)
            assert_left(call, f, how)
            outcome = compare(results, wanted, rounding, by, f"{how}, {call}, the results")
            assert_like(gradients, tuple(args[j] for j in wrt), f"{how}, {call}")
            assert_untouched(call, args, f, gradients)
            slopes = _compare_slopes(call, wrt, weighted, gradients, how)
            outcome = slopes if outcome == COMPARED else outcome
        more = ["compiled"] if ways[k] == "always" else []
        more += ["flips"] if traced and k and types_of(call) == types_of(calls[0]) else []
        more += ["draws"] if program.draws else []
        more += ["complex"] if outcome == COMPARED and has_complex((found, args)) else []
        _count(tally, outcome, call, "gradient", *more)


def check_second(
    program: Program,
    calls: Sequence[Call],
    expected: Sequence[Any],
    compile: str,
    rng: random.Random,
    tally: Counter[str],
) -> None:
    """The gradient of a weighted sum of the gradient is the one that differences of first
    derivatives find."""
    wrt = real_arguments(program)
    able = [k for k, call in enumerate(calls) if differentiable(call, wrt)]
    able = [k for k in able if not isinstance(expected[k], Raised)]
    f = program.function()
    later = [rng.choice(able)] if able and rng.random() < 0.2 else []
    loss_of, derivative = None, None
    for k in (*able[:1], *later):
        call, args = calls[k], calls[k].args()
        repeated = tuple(0 in getattr(x, "strides", ()) for x in real_leaves(call, wrt))
        if loss_of is None or loss_of.keywords["repeated"] != repeated:
            loss_of = partial(_projected, wrt=wrt, repeated=repeated)
            derivative = grad(loss_of(f), wrt, compile=compile)
        call.enter(f)
        how = f"second derivative, {compile} compiled"
        outcome, gradients = answer(lambda: derivative(*args), None, call, how)  # noqa: B023
        if outcome == COMPARED:
            assert_left(call, f, how)
            assert_like(gradients, tuple(args[j] for j in wrt), f"{how}, {call}")
            outcome = _compare_slopes(call, wrt, loss_of, gradients, how)
        _count(tally, outcome, call, "second", *(["second compiled"] if compile != "never" else []))


def _projected(
    f: Callable[..., Any], wrt: Sequence[int], repeated: Sequence[bool]
) -> Callable[..., Any]:
    """A weighted sum of the gradient's elements: its own gradient is a second derivative.

    Where all rows of an argument are one row in memory (`repeated`), elements of it tie, and stay
    equal in differences. Their weights are equal, too: others would choose a side of each tie.
    """
    gradient = grad(weighted(f), tuple(wrt), compile="never")

    def loss(*args: Any) -> Any:
        total = 0.0
        for x, alike in zip(flatten(gradient(*args))[0], repeated, strict=True):
            by = weights(x)
            by = np.broadcast_to(by[:1], by.shape) if alike else by
            total = total + np.sum(by * x.real)
            if x.dtype.kind == "c":
                total = total + np.sum((2 - by) * x.imag)
        return total

    return loss


def types_of(call: Call) -> list[Any]:
    """The types of all that a call is given, and how that lies in memory."""
    leaves = flatten((call.args(), call.captured()))[0]
    names = ("shape", "dtype", "strides")
    return [(type(x), *[getattr(x, name, None) for name in names]) for x in leaves]


def has_complex(tree: Any) -> bool:
    return any(np.iscomplexobj(x) for x in flatten(tree)[0])


def assert_like(gradients: Any, args: Any, what: str) -> None:
    """Gradients mirror their arguments."""

    def like(tree: Any) -> list[Any]:
        arrays = map(np.asarray, flatten(tree)[0])
        return [(x.shape, x.dtype.newbyteorder("=")) for x in arrays]

    if flatten(gradients)[1] != flatten(args)[1] or like(gradients) != like(args):
        raise Wrong(f"{what}: gives the gradients {gradients!r} of {args!r}")


def _compare_slopes(
    call: Call,
    wrt: Sequence[int],
    loss_of: Callable[..., Any],
    gradients: Any,
    how: str,
) -> str:
    """Along random directions, one for each real leaf. Differences are taken in float64."""
    wide = call.program.wide
    wide_call = wide.call(call.seed)
    f = wide.function()
    wide_call.enter(f)
    differentiated = loss_of(f)

    def loss(*args: Any) -> Any:
        if wide.draws:
            wide_call.enter(f)
        return differentiated(*args)

    rng = np.random.default_rng(call.seed)
    outcome = COMPARED
    try:
        value = float(loss(*wide_call.args()))
    except Exception:  # where float64 takes another way, or the gradient is one that is refused
        return SKIPPED
    for k, (leaf, g) in enumerate(zip(real_leaves(call, wrt), flatten(gradients)[0], strict=True)):
        direction = direction_of(leaf, rng)
        at = along(loss, wide_call, wrt, k, direction)
        noise = unit(wide) * (1 + abs(value))
        found = slope(at, noise)
        if found is None:
            outcome = SKIPPED
            continue
        terms = (np.asarray(g) * direction).real  # a gradient is df/dx - i df/dy
        got = float(np.sum(terms, dtype=np.float64))
        allowed = found.truncation + AMPLIFIED * noise
        allowed += unit(call.program) * (1 + float(np.sum(np.abs(terms))))
        if abs(got - found.value) > allowed:
            more = _rounding_of_slopes(call, wrt, loss_of, k, direction, got, value)
            outcome = SKIPPED if more is None else outcome
            allowed += np.inf if more is None else more
        if allowed > JUMP * (1 + abs(got)):
            outcome = SKIPPED
            continue
        if not abs(got - found.value) <= allowed:
            raise Wrong(
                f"{how}, {call}: the derivative along {direction.tolist()} for real leaf {k} is "
                f"{got:.10g}, and differences give {found.value:.10g}, up to {allowed:.2g}"
            )
    return outcome


def _rounding_of_slopes(
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
        return float(np.sum((np.asarray(flatten(gradients)[0][k]) * direction).real))

    wide_call = call.program.wide.call(call.seed)
    slopes = runs(call, projected)
    values = runs(wide_call, lambda f: float(loss_of(f)(*wide_call.args())))
    if slopes is None or values is None:
        return None
    center = float(np.median(values))
    if narrow(call.program):
        # Where float32 took another way than float64, the two have little to do with each other.
        singles = runs(call, lambda f: float(loss_of(f)(*call.args())))
        if singles is None or abs(center - value) > unit(call.program) * (1 + abs(value)) + spread(
            singles, value
        ):
            return None
    return float(spread(slopes, got) + AMPLIFIED * spread(values, center))
