"""What every primitive promises, checked on every sample.

The type is that of the value; the value is that of a plain computation; both derivative rules
agree with differences and with each other, once and twice, for arrays that are broadcast, read
twice, laid out oddly, in single precision. All on tapes of a few calls, played.

The adjoint identity <ct, J t> = <J' ct, t> is exact, but says nothing where both rules come from
one formula; differences find every wrong formula, but only to some digits. So both are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import FrozenInstanceError, is_dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from tests.primitives.complexes import HOLDING, complex_samples, taking_complex
from tests.primitives.samples import OF_COMPLEX, all_samples, samples
from tests.primitives.samples.drawn import Sample

from tapegrad.backends.numpy.play import run
from tapegrad.checking.tape_verify import verify
from tapegrad.differentiate.forward import forward
from tapegrad.differentiate.reverse import reverse
from tapegrad.errors import GradientError, UnsupportedError
from tapegrad.ir.tape import Builder, Tape, aval_of
from tapegrad.primitives import elementwise as ew
from tapegrad.primitives import primitives
from tapegrad.primitives.base import Parametric
from tapegrad.primitives.scipys import InDouble
from tapegrad.primitives.views import Squeeze, Transpose

EVERY = [*all_samples(), *complex_samples()]
NARROW = {"f": np.float32, "c": np.complex64}
WIDE = {"f": np.float64, "c": np.complex128}
REVERSE = [s for s in EVERY if s.reverse]
SMOOTH = [s for s in REVERSE if s.smooth and s.floats]
BOTH = [s for s in REVERSE if s.forward and s.floats]
STEP = 1e-6
EPS = np.finfo(float).eps


def over(chosen: Sequence[Sample]) -> Any:
    """A test of a sample runs over all those of a primitive, and says which of them failed: most
    take less than to tell of a test."""
    of: dict[str, list[Sample]] = {}
    for sample in chosen:
        of.setdefault(sample.primitive.name, []).append(sample)

    def decorate(check: Callable[[Sample], None]) -> Any:
        def test(name: str) -> None:
            failed: dict[str, Exception] = {}
            for sample in of[name]:
                try:
                    check(sample)
                except Exception as error:
                    failed[str(sample)] = error
            for error in failed.values():
                error.add_note("of " + "; ".join(failed))
                raise error

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return pytest.mark.parametrize("name", of)(test)

    return decorate


def tape_of(sample: Sample) -> Tape:
    """The tape of the one call; its outputs are the results."""
    builder = Builder("f")
    xs = [builder.input(aval_of(x), f"x{k}") for k, x in enumerate(sample.operands)]
    return builder.finish(builder.call(sample.primitive, xs))


@cache
def pullback(sample: Sample) -> Tape:
    """The tape of the results, and of the operands' cotangents for those of the results. Most
    tests ask for it, and a tape that is known is played without being prepared again."""
    return reverse(tape_of(sample), sample.floats, seed=True)


_verified: WeakSet[Tape] = WeakSet()


def play(tape: Tape, *values: Any) -> list[Any]:
    if tape not in _verified:
        _verified.add(verify(tape))
    with np.errstate(all="ignore"):
        results, broken = run(tape, values)
    assert broken is None
    return results


def evaluate(sample: Sample, operands: Sequence[Any]) -> list[Any]:
    """The results as arrays, float ones only."""
    with np.errstate(all="ignore"):
        result = sample.primitive.evaluate(*operands)
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r) for r in results]


def random_like(x: Any, seed: int) -> Any:
    """Random numbers of the type of an array."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal(np.shape(x))
    if x.dtype.kind == "c":
        draw = draw + 1j * rng.standard_normal(np.shape(x))
    return draw.astype(x.dtype)[()] if np.ndim(x) == 0 else draw.astype(x.dtype)


def cotangents(sample: Sample) -> list[Any]:
    """Random cotangents of the results; zeros for those without derivative."""
    results = evaluate(sample, sample.operands)
    return [
        random_like(r[()], k) if r.dtype.kind in "fc" else np.zeros_like(r)[()]
        for k, r in enumerate(results)
    ]


def pulled_back(sample: Sample, cts: Sequence[Any]) -> list[Any]:
    """The cotangents of the operands that have derivatives."""
    return play(pullback(sample), *sample.operands, *cts)[sample.primitive.results :]


def inner(xs: Iterable[Any], ys: Iterable[Any]) -> Any:
    """<xs, ys>, over arrays of floats: how far a loss with these cotangents moves along tangents,
    which of complex numbers is the real part of their product."""
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(xs, ys, strict=True)]
    kept = [(x.astype(complex), y) for x, y in pairs if x.dtype.kind in "fc"]
    return sum(float(np.sum(x * y).real) for x, y in kept)


# ---- type and value


def test_every_primitive_has_samples() -> None:
    missing = [name for name, found in samples().items() if not found]
    assert not missing, f"no samples in tests/primitives/samples/ for {missing}"
    assert samples().keys() | OF_COMPLEX == primitives().keys()


def test_what_takes_complex_numbers_has_complex_samples() -> None:
    of_complex = {
        str(s.primitive.name)
        for s in complex_samples()
        for x in (*s.operands, *evaluate(s, s.operands))
        if x.dtype.kind == "c"
    }
    assert taking_complex() - of_complex == HOLDING


def test_what_does_not_say_so_refuses_complex_numbers() -> None:
    """By name, of each sample that it has; nothing is tried."""
    for sample in all_samples():
        if sample.primitive.of_complex or not sample.floats:
            continue
        avals = [aval_of(x) for x in sample.operands]
        for k in sample.floats:
            avals[k] = avals[k].with_dtype(complex)
        with pytest.raises((UnsupportedError, ValueError, TypeError)):
            sample.primitive.avals(*avals)


@over(EVERY)
def test_the_type_is_that_of_the_value(sample: Sample) -> None:
    avals = sample.primitive.avals(*[aval_of(x) for x in sample.operands])
    results = evaluate(sample, sample.operands)
    assert len(avals) == len(results) == sample.primitive.results
    for aval, result in zip(avals, results, strict=True):
        assert aval.shape == result.shape
        assert aval.dtype == result.dtype


@over(EVERY)
def test_the_value_is_that_of_a_plain_computation(sample: Sample) -> None:
    with np.errstate(all="ignore"):
        expected = sample.reference(*sample.operands)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, wanted in zip(evaluate(sample, sample.operands), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)


def test_an_instance_is_a_key() -> None:
    """Equal and hashable, as caches and the elimination of common calls need it; and it prints."""
    for sample in EVERY:
        again = replace(sample.primitive) if is_dataclass(sample.primitive) else sample.primitive
        assert again == sample.primitive
        assert hash(again) == hash(sample.primitive)
        assert str(tape_of(sample))


LAYOUTS = (
    np.asfortranarray,
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2],  # strided
    lambda x: np.ascontiguousarray(x[::-1])[::-1],  # reversed
    lambda x: np.broadcast_to(x, x.shape),  # read-only
)


@pytest.mark.every(2)
@over([s for s in REVERSE if s.smooth and any(np.ndim(x) for x in s.operands)])
def test_layout_makes_no_difference(sample: Sample) -> None:
    """Up to the last digit, which NumPy's vectorised loops round in other ways."""
    count = sample.primitive.results
    tape = pullback(sample)
    cts = cotangents(sample)
    expected = play(tape, *sample.operands, *cts)
    for layout in LAYOUTS:
        operands = [layout(x) if np.ndim(x) else x for x in sample.operands]
        before = [np.array(x) for x in operands]
        found = play(tape, *operands, *cts)
        assert len(found) == count + len(sample.floats)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)
        for x, y in zip(operands, before, strict=True):
            np.testing.assert_array_equal(x, y)


# ---- reverse rules


@over(REVERSE)
def test_cotangents_have_the_operands_types(sample: Sample) -> None:
    found = pulled_back(sample, cotangents(sample))
    for k, ct in zip(sample.floats, found, strict=True):
        assert np.shape(ct) == sample.operands[k].shape
        assert np.asarray(ct).dtype == sample.operands[k].dtype


@over(SMOOTH)
def test_reverse_rule_against_differences(sample: Sample) -> None:
    cts = cotangents(sample)
    found = pulled_back(sample, cts)
    for k, ct in zip(sample.floats, found, strict=True):
        t = random_like(sample.operands[k], 100 + k)
        ahead = evaluate(sample, sample.stepped(sample.operands, k, STEP * t))
        behind = evaluate(sample, sample.stepped(sample.operands, k, -STEP * t))
        change = [
            (a - b) / (2 * STEP) if a.dtype.kind in "fc" else a
            for a, b in zip(ahead, behind, strict=True)
        ]
        # What each result is rounded by is divided by the step as well.
        rounding = 4 * EPS / STEP * inner([np.abs(x) for x in cts], [np.abs(x) for x in ahead])
        scale = inner([np.abs(ct)], [np.abs(t)])
        assert_close(inner([ct], [t]), inner(cts, change), scale + rounding / 1e-8)


def assert_close(found: float, expected: float, scale: float, tolerance: float = 1e-8) -> None:
    """Equal up to `tolerance` times the size of what was added up."""
    assert abs(found - expected) <= tolerance * (1 + scale + abs(expected)), (found, expected)


@over([s for s in SMOOTH if s.analytic])
def test_reverse_rule_against_complex_steps(sample: Sample) -> None:
    """f(x + ih) = f(x) + ih f'(x) + O(h^2): no difference is taken, so h may be 1e-30."""
    cts = cotangents(sample)
    found = pulled_back(sample, cts)
    for k, ct in zip(sample.floats, found, strict=True):
        t = random_like(sample.operands[k], 100 + k)
        ufunc = sample.primitive.ufunc
        moved = ufunc(*sample.stepped(sample.operands, k, 1e-30j * t))
        expected = inner(cts, [np.asarray(moved).imag / 1e-30])
        scale = inner([np.abs(ct)], [np.abs(t)])
        assert_close(inner([ct], [t]), expected, scale, tolerance=1e-13)


@pytest.mark.every(2)
@over(SMOOTH)
def test_an_operand_read_twice_gets_both_cotangents(sample: Sample) -> None:
    """p(x) + p(x) through two calls, and p(x, x) where the operands are of one type."""
    cts = cotangents(sample)
    once = pulled_back(sample, cts)
    builder = Builder("twice")
    xs = [builder.input(aval_of(x)) for x in sample.operands]
    first = builder.call(sample.primitive, xs)
    second = builder.call(sample.primitive, xs)
    sums = [
        builder.call(ew.add, [a, b])[0] if a.dtype.kind in "fc" else a
        for a, b in zip(first, second, strict=True)
    ]
    tape = reverse(builder.finish(sums), sample.floats, seed=True)
    for a, b in zip(play(tape, *sample.operands, *cts)[len(sums) :], once, strict=True):
        np.testing.assert_allclose(a, 2 * np.asarray(b), rtol=1e-13)


@over([s for s in SMOOTH if len(s.operands) == 2 and s.floats == [0, 1]])
def test_one_variable_as_both_operands(sample: Sample) -> None:
    x, y = sample.operands
    if x.shape != y.shape or sample.primitive.name in ("maximum", "minimum", "fmax", "fmin"):
        return  # of equal operands these have a kink
    same = replace(sample, operands=(x, x))
    cts = cotangents(same)
    parts = pulled_back(same, cts)
    builder = Builder("both")
    var = builder.input(aval_of(x))
    tape = reverse(builder.finish(builder.call(sample.primitive, [var, var])), [0], seed=True)
    np.testing.assert_allclose(play(tape, x, *cts)[-1], parts[0] + parts[1], rtol=1e-12, atol=1e-12)


# ---- forward rules


@pytest.mark.every(8)
@over(BOTH)
def test_adjoint_identity(sample: Sample) -> None:
    """<ct, J t> = <J' ct, t>, with all tangents together and one at a time."""
    cts = cotangents(sample)
    back = pulled_back(sample, cts)
    chosen = [sample.floats, *[[k] for k in sample.floats]]
    for wrt in chosen:
        ts = [random_like(sample.operands[k], 100 + k) for k in wrt]
        tape = forward(tape_of(sample), wrt)
        tangents = play(tape, *sample.operands, *ts)[len(cts) :]
        for r, t in zip(evaluate(sample, sample.operands), tangents, strict=True):
            assert np.shape(t) == r.shape
            assert np.asarray(t).dtype == r.dtype
        if not all(np.all(np.isfinite(np.asarray(t))) for t in [*tangents, *back]):
            continue  # an infinite slope: the sums say nothing
        found = [ct for k, ct in zip(sample.floats, back, strict=True) if k in wrt]
        scale = inner([np.abs(c) for c in cts], [np.abs(t) for t in tangents])
        tolerance = 2.0**-11 if half(sample) else 1e-5 if single(sample) else 1e-13
        assert_close(inner(found, ts), inner(cts, tangents), scale, tolerance)


def half(sample: Sample) -> bool:
    """Whether numbers are rounded to float16."""
    avals = sample.primitive.avals(*[aval_of(x) for x in sample.operands])
    return any(x.dtype == np.float16 for x in (*sample.operands, *avals))


def single(sample: Sample) -> bool:
    """Whether single precision takes part."""
    avals = sample.primitive.avals(*[aval_of(x) for x in sample.operands])
    types = [x.dtype for x in (*sample.operands, *avals)]
    return not {np.dtype(np.float32), np.dtype(np.complex64)}.isdisjoint(types)


def test_what_has_no_rule_says_so() -> None:
    for sample in EVERY:
        if not sample.reverse:
            with pytest.raises(GradientError, match="rule"):
                reverse(tape_of(sample), sample.floats, seed=True)
        if not sample.forward:
            with pytest.raises(GradientError, match="rule"):
                forward(tape_of(sample), sample.floats)


# ---- second order


@pytest.mark.every(8)
@over(SMOOTH)
def test_the_reverse_rule_differentiates_in_both_modes(sample: Sample) -> None:
    """Reverse mode of the reverse rule, along random directions, against its differences, and
    forward mode of it against that."""
    operands, wrt, cts = sample.operands, sample.floats, cotangents(sample)
    once, first, count = pullback(sample), len(operands), len(cts)
    inputs = [*operands, *cts]
    places = [*wrt, *[first + k for k, ct in enumerate(cts) if ct.dtype.kind in "fc"]]
    ds = {k: random_like(inputs[k], 300 + k) for k in places}
    ts = [random_like(operands[k], 200 + k) for k in wrt]
    still = [np.zeros_like(ct)[()] for ct in cts]
    # Cotangents of the first tape's outputs: nothing for the results, `ts` for the cotangents.
    twice = reverse(once, places, seed=True)
    back = play(twice, *inputs, *still, *ts)[len(once.outputs) :]
    for k, found in zip(places, back, strict=True):
        ahead = play(once, *sample.stepped(inputs, k, STEP * ds[k]))[count:]
        behind = play(once, *sample.stepped(inputs, k, -STEP * ds[k]))[count:]
        expected = (inner(ahead, ts) - inner(behind, ts)) / (2 * STEP)
        scale = inner([np.abs(found)], [np.abs(ds[k])]) + inner(
            [np.abs(a) for a in ahead], [np.abs(t) for t in ts]
        )
        assert_close(inner([found], [ds[k]]), expected, scale, 1e-7)
    if sample.forward:
        moved = play(forward(once, places), *inputs, *ds.values())[len(once.outputs) + count :]
        assert_adjoint(sample, back, list(ds.values()), ts, moved)


@pytest.mark.every(8)
@over([s for s in SMOOTH if s.forward])
def test_the_forward_rule_differentiates_in_both_modes(sample: Sample) -> None:
    """Forward mode of the forward rule against its differences, and reverse mode of it against
    that."""
    operands, wrt, count = sample.operands, sample.floats, sample.primitive.results
    once = forward(tape_of(sample), wrt)
    inputs = [*operands, *[random_like(operands[k], 100 + k) for k in wrt]]
    places = [*wrt, *range(len(operands), len(inputs))]
    ds = {k: random_like(inputs[k], 300 + k) for k in places}
    results = play(forward(once, places), *inputs, *ds.values())
    moved = results[len(once.outputs) + count :]
    cts = [random_like(t, k) for k, t in enumerate(map(np.asarray, moved))]
    found = inner(cts, moved)

    def ahead(step: float) -> list[Any]:
        xs = [x + step * ds[k] if k in ds else x for k, x in enumerate(inputs)]
        return play(once, *sample.with_factors(xs))[count:]

    expected = (inner(cts, ahead(STEP)) - inner(cts, ahead(-STEP))) / (2 * STEP)
    size = [np.abs(ct) for ct in cts]
    scale = inner(size, map(np.abs, moved)) + inner(size, map(np.abs, results[count : 2 * count]))
    assert_close(found, expected, scale, 1e-7)
    still = [np.zeros_like(x) for x in results[:count]]
    back = play(reverse(once, places, seed=True), *inputs, *still, *cts)[len(once.outputs) :]
    assert_adjoint(sample, back, list(ds.values()), cts, moved)


def assert_adjoint(sample: Sample, back: Any, ts: Any, cts: Any, moved: Any) -> None:
    """<J' ct, t> = <ct, J t>."""
    scale = inner(map(np.abs, back), map(np.abs, ts)) + inner(map(np.abs, cts), map(np.abs, moved))
    tolerance = 1e-5 if single(sample) else 1e-12
    assert_close(inner(back, ts), inner(cts, moved), scale, tolerance)


# ---- single precision


@pytest.mark.every(2)
@over(
    [
        s
        for s in SMOOTH
        if all(s.operands[k].dtype in WIDE.values() for k in s.floats)
        and s.primitive.name not in ("astype", "custom", "foreign_call")
    ]
)
def test_float32_stays_float32(sample: Sample) -> None:
    """Results, cotangents and the constants in the rules: nothing is widened on the way, but for
    partials that are worked out in double precision."""
    narrow = [x.astype(NARROW.get(x.dtype.kind, x.dtype)) for x in sample.operands]
    wide = [x.astype(WIDE.get(x.dtype.kind, x.dtype)) for x in narrow]
    narrowed = replace(sample, primitive=sample.narrow or sample.primitive, operands=tuple(narrow))
    widened = replace(sample, operands=tuple(wide))
    for call in pullback(narrowed).calls:
        for out in call.outs:
            widens = isinstance(sample.primitive, InDouble)
            assert widens or out.dtype not in WIDE.values(), call
    for a, b in zip(evaluate(narrowed, narrow), evaluate(widened, wide), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    cts = cotangents(narrowed)
    wide_cts = [c.astype(WIDE.get(c.dtype.kind, c.dtype)) for c in cts]
    expected = pulled_back(widened, wide_cts)
    for a, b in zip(pulled_back(narrowed, cts), expected, strict=True):
        scale = 1 + np.max(np.abs(b), initial=0)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * scale)


def test_a_primitive_is_its_class_and_its_parameters():
    """Equal ones are one key of a dict, others aren't, and none changes."""
    parametric = [s.primitive for s in EVERY if isinstance(s.primitive, Parametric)]
    for p in parametric:
        same = copy(p)
        assert same is not p and same == p and hash(same) == hash(p)
        for name, value in p.parameters():
            with pytest.raises(FrozenInstanceError):
                setattr(p, name, value)
            with pytest.raises(FrozenInstanceError):
                delattr(p, name)
    assert len(set(parametric)) > 100
    assert (
        Squeeze((0, 1)) != Transpose((0, 1)) != Transpose((1, 0)) == eval(repr(Transpose((1, 0))))
    )
