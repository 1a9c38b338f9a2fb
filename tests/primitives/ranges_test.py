"""First and second derivatives of every elementwise primitive keep their digits over its range.

The points come from all sizes, from 1e-300 to 1e300 where mpmath has the function there, and from
beside poles and ends. What is right comes from the differences of mpmath's numbers: two steps,
with two numbers of digits, have to agree on sixteen. Derivatives may be off by what a change of
the arguments in the last digits makes of them, and by some hundred times SciPy's own error there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from mpmath import mpf
from tests.primitives.references import ELEMENTARY, Inverse, Slopes
from tests.primitives.special_references import REFERENCES

from tapegrad import grad, jvp
from tapegrad.ir.tape import DECLARED
from tapegrad.primitives.base import Elementwise

SIZES = [1e-300, 1e-200, 1e-150, 1e-80, 1e-30, 1e-16, 1e-8, 1e-4, 0.01, 0.3, 0.4999999999, 0.5]
SIZES += [0.9, 0.99999, 1 - 1e-12, 1, 1 + 1e-12, 1.00001, 1.5, 2, 5, 9, 12.5, 20, 26, 30, 37.4]
SIZES += [40, 100, 300, 700, 1e4, 1e8, 1e16, 1e60, 1e100, 1e145, 1e200, 1e290, 1e300]
INSIDE = [1e-300, 1e-150, 1e-30, 1e-16, 1e-8, 1e-3, 0.2, 0.3, 0.5, 0.7, 0.9, 0.999, 1 - 1e-9]
INSIDE += [1 - 2**-53]
ANGLES = [1e-300, 1e-150, 1e-30, 1e-8, 1e-3, 0.3, 0.7, 1.5, -1e-4, -0.5]


def both(sizes: list[float]) -> list[float]:
    return [*sizes, *[-x for x in sizes]]


# By their letters, what operands are drawn from; capital ones are held fixed, "=" is equal to the
# first one. A function may be drawn several times: "m m m; m m =".
RANGES: dict[str, list[Any]] = {
    "r": both(SIZES),
    "p": SIZES,
    "b": both(SIZES[4:]),  # exponents, whose product with an infinite power is no number
    "k": both([0.3, 0.9, 1.5, 2.3, 5.0, 9.0, 20.7, 40.0, 100.3]),
    "j": [-2 + 1e-6, -3 + 1e-9, -4 - 1e-7, 1e-8, -1e-5, 0.01, 1 - 1e-6, 3 + 1e-9, -5.3, 400.3],
    "y": both([0.3, 0.9, 1.5, 2.3]),
    "z": (SOME := [1e-30, 1e-8, 1e-3, 0.3, 0.9, 2, 5, 12.5, 37.4, 100, 700, 1e4]),
    "w": both(SOME),
    "m": [1e-8, 0.01, 0.3, 0.9, 1, 1.5, 2, 5, 9, 20, 30.3, 100],
    "l": [-x for x in SIZES],
    "u": INSIDE,
    "i": both(INSIDE),
    "e": [*INSIDE, *[-x for x in SIZES]],
    "g": [1e-100, 1e-30, 1e-8, 0.01, 0.3, 0.9, 1, 1.5, 2, 5, 9, 20, 30.3, 100],
    "c": [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99],
    "n": [0.3, 0.9, 1.5, 2.0, 5.3, 11.0, 30.0],
    "s": [1 + 1e-6, 1.01, 1.5, 2, 5, 12.5, 40, 100, 700],
    "q": [*ANGLES, 1.0, -1e-8],
    "a": [*ANGLES, 2.0, 3.14159],
    "V": [0.0, 0.3, 1.0, 1.5, 2.0, 2.5, 7.0, 30.0],
    "B": [0.3, 1.0, 1.5, 2.0, 2.5, 7.0, 30.0],
    "K": [0, 1, 2, 5, 20],
    "N": [1, 2, 3, 6],
    "M": [0, 1],
    "F": [25, 30, 100],
    "D": [0.3, 2.5, 20.5, 60.3, 100.5, 3.0, 300.0, -0.4],  # degrees
    "P": [0.3, 1.5],
    "h": both([1e-3, 0.2, 0.3, 0.5, 0.7, 0.9, 0.999, 1 - 1e-9]),
    "O": [1.0, 2.0, 3.0, 12.0],
    "t": [-13.0, -14.0, -20.0],  # poles of gamma functions, that far to the left
}
WHOLE = "KNMF"
CHEAP = [ref for _, ref in ELEMENTARY.values()]
COUNT = {2: 12, 3: 6, 4: 5}  # of points, where a function has so many operands

# Steps of differences, and digits; relative steps, and then ones that don't get smaller than an
# operand of 1, for what hardly changes near 0.
WAYS = [((10, 45), (14, 60)), ((25, 100), (40, 200))]
FAR = ((30, 400), (45, 800))  # of elementary functions, which are quick: 1 - tanh(300) is 1e-260
FAILURES = (ArithmeticError, ValueError, TypeError, RecursionError, mp.libmp.NoConvergence)

# What has no reference, and why.
WITHOUT = {
    "slopes that are operands or constants, or one of them by a comparison": """real imag conj
    cartesian where copy ldexp nextafter recompute_after kept known_1 known_2 known_3 known_4
    copysign
    maximum minimum fmax fmin mod fmod""",
    "complex numbers alone": """hankel1 hankel2 hankel1e hankel2e wofz lambertw digamma_of_complex
    gamma_of_complex loggamma_of_complex rgamma_of_complex erfcx_of_complex log_ndtr_of_complex
    spence_of_complex xlogy_of_complex xlog1py_of_complex""",
    "not a function of mpmath's": """characteristic_a characteristic_b mathieu_cem_0 mathieu_cem_1
    mathieu_sem_0 mathieu_sem_1 mathieu_modcem1_0 mathieu_modcem1_1 mathieu_modcem2_0
    mathieu_modcem2_1 mathieu_modsem1_0 mathieu_modsem1_1 mathieu_modsem2_0 mathieu_modsem2_1
    chndtrix chndtrinc""",
    "no derivative": "smirnovp",
}

ONCE = "smirnov", "smirnovi"  # their second derivatives are refused

Point = tuple[Any, ...]

# Where a sweep of 200 points of each function, over all sizes, has found the worst.
WORST: dict[str, list[Point]] = {
    "hypot": [(2.3e99, -1.0000049), (40.0, -2.1e-14), (-5028.5, 5.8e65)],
    "kl_div": [(15.5, 5.5e184), (5.0, 1e-200)],
    "inv_boxcox": [(1e295, 1 - 5.8e-13), (-325.2, -5e230), (20.0, 0.9999), (40.0, 1e293)],
    "elliprc": [(3.781618860299378e260, 1.6743599073842244e40)],
    "chndtr": [(3.5, 1.0, 1e-15), (0.3, 7.0, 1e-250), (30.0, 4.0, 28.0), (1e9, 4.0, 1.0001e9)],
    "stdtr": [(259412.9, -3.5), (1e10, 2.5), (0.01, 1e160), (40.0, -1e-8)],
    "fdtr": [(21894620.9, 0.8678, 0.0464), (1e-8, 2.0, 3.0)],
    "gammaincinv": [(1e4, 1e-150), (117.4, 1e-305), (1.15, 1e-300)],
    "gammainccinv": [(9868.5, 0.9)],
    "gdtria": [(1e-30, 17.0, 1e-150)],
    "gdtrix": [(0.5, 27942.7, 0.3), (37.4, 666.3, 1e-150)],
    "gdtrib": [(30.0, 0.3, 40.0), (1e-30, 1e-200, 20.0)],
    "chdtri": [(700.0, 0.3)],
    "chdtriv": [(0.3, 700.0), (1e-300, 0.5)],
    "pdtrik": [(0.9, 700.4), (0.85, 12361.3)],
    "betaincinv": [(17.45, 0.9, 1e-200)],
    "btdtrib": [(0.9, 0.9, 4.8e-20)],
    "bdtrik": [(0.3, 3000.0, 0.5)],
    "bdtrin": [(9.4, 0.412, 1e-6)],
    "i0": [(-1e-310,)],
    "i1": [(1e-310,)],
    "stdtrit": [(2926590917954546.0, 0.0105)],
    "iv": [(1.1627694992886199e-08, 4.2472559992771025e-14), (-1e-9, 0.3)],
    "jv": [(3.255004322354441e-08, 0.0014740629823882336)],
    "kv": [(1e-9, 1e-5)],
    "spherical_in_d": [(2, 4.622718271894087e-131)],
    "riemann_zeta": [(-218.06610862139792,), (-250.3,)],
    "zetac": [(-187.2552482377913,)],
    "ellipj_0": [(15.0, 1 - 2e-13), (-4.5, 1 - 2e-10), (7.0, 0.5)],
    "ellipj_1": [(-4.5, 1 - 2e-10), (-20.0, 0.99)],
    "ellipj_2": [(-4.5, 1 - 2e-10), (-20.0, 0.99)],
    "ellipj_3": [(-4.5, 1 - 2e-10), (7.0, 0.5)],
}
Known = dict[Any, float]


def points(name: str, letters: list[str]) -> tuple[list[Point], list[int]]:
    """And the operands that move."""
    drawn = []
    for letter, _, most in (x.partition("<") for x in letters):
        drawn.append([x for x in RANGES.get(letter, [0]) if abs(x) <= float(most or "inf")])
    live = [k for k, letter in enumerate(letters) if not letter[0].isupper()]
    if len(drawn) == 1:
        return [*[(x,) for x in drawn[0]], *WORST.get(name, [])], live
    rng = np.random.default_rng(list(name.encode()))
    rows = [[xs[rng.integers(len(xs))] for xs in drawn] for _ in range(COUNT[len(drawn)])]
    found = [
        tuple(row[0] if letter == "=" else x for letter, x in zip(letters, row, strict=True))
        for row in rows
    ]
    return [*found, *WORST.get(name, [])], live


def numbers(xs: Point) -> list[Any]:
    return [x if isinstance(x, int) else mpf(x) for x in xs]


def differences(f: Any, xs: list[Any], live: list[int], step: int, least: int) -> dict[Any, Any]:
    """f_i by i, and f_ij by (i, j), i <= j."""
    h = {i: max(abs(xs[i]), least) * mpf(10) ** -step for i in live}
    values: dict[Any, Any] = {}

    def at(function: Any, *moves: tuple[int, int]) -> Any:
        key = (function, *sorted(moves))
        if key not in values:
            moved = list(xs)
            for i, sign in moves:
                moved[i] = moved[i] + sign * h[i]
            values[key] = function(*moved)
        return values[key]

    def slope(function: Any, i: int, *moves: tuple[int, int]) -> Any:
        return (at(function, (i, 1), *moves) - at(function, (i, -1), *moves)) / (2 * h[i])

    found: dict[Any, Any] = {}
    for n, i in enumerate(live):
        stated = f.along[n] if isinstance(f, Slopes) else None
        found[i] = slope(f, i) if stated is None else at(stated)
        for j in live[n:]:
            if stated is not None:
                found[i, j] = slope(stated, j)
            elif i == j:
                found[i, i] = (at(f, (i, 1)) - 2 * at(f) + at(f, (i, -1))) / h[i] ** 2
            else:
                found[i, j] = (slope(f, i, (j, 1)) - slope(f, i, (j, -1))) / (2 * h[j])
    return found


def solved(ref: Inverse, xs: list[Any], out: float) -> tuple[list[Any], Any]:
    """The function's operands where it has the value, by Newton's steps from SciPy's; and how far
    SciPy's is from there."""
    operands, wanted = ref.operands(tuple(xs), mpf(out))
    ys, s = list(operands), ref.solved
    for _ in range(12):
        h = abs(ys[s]) * mpf(10) ** (-mp.mp.dps // 3)
        low, high = (ref.function(*ys[:s], ys[s] + sign * h, *ys[s + 1 :]) for sign in (-1, 1))
        step = (ref.function(*ys) - wanted) / ((high - low) / (2 * h))
        ys[s] = ys[s] - step
        if abs(step) < abs(ys[s]) * mpf(10) ** (8 - mp.mp.dps):
            break
    return ys, abs(ys[s] - mpf(out)) / abs(ys[s])


def of_inverse(
    ref: Inverse, xs: list[Any], live: list[int], out: float, step: int, least: int
) -> dict[Any, Any]:
    """By the implicit function theorem, of F(x, y) = p."""
    ys, _ = solved(ref, xs, out)
    s, rest = ref.solved, [k for k in range(len(ys)) if k != ref.solved]
    place = dict(zip([k for k in range(len(xs)) if k != ref.given], rest, strict=True))
    f = differences(
        ref.function, ys, sorted({s, *[place[i] for i in live if i in place]}), step, least
    )

    def second(i: int, j: int) -> Any:
        return f[min(i, j), max(i, j)]

    found = {i: -f[place[i]] / f[s] if i in place else 1 / f[s] for i in live}
    for n, i in enumerate(live):
        for j in live[n:]:
            bend = second(s, s) * found[i] * found[j]
            bend += sum(second(s, place[a]) * found[b] for a, b in ((i, j), (j, i)) if a in place)
            if i in place and j in place:
                bend += second(place[i], place[j])
            found[i, j] = -bend / f[s]
    return found


def exact(ref: Any, xs: Point, live: list[int], out: float) -> Known:
    """What differences agree on."""
    known: Known = {}
    for way in [*WAYS, FAR] if ref in CHEAP else WAYS:
        for least in (0, 1):
            found = []
            for step, digits in way:
                try:
                    with mp.workdps(digits):
                        if isinstance(ref, Inverse):
                            found.append(of_inverse(ref, numbers(xs), live, out, step, least))
                        else:
                            found.append(differences(ref, numbers(xs), live, step, least))
                except FAILURES:
                    break
            if len(found) == 2:
                known = {**dict(agreed(*found)), **known}
                if len(known) == len(found[0]):
                    return known
    return known


def agreed(first: dict[Any, Any], other: dict[Any, Any]) -> Iterator[tuple[Any, float]]:
    for key, right in other.items():
        if mp.im(right) == 0 and mp.isfinite(right) and right != 0:
            off = abs(first[key] - right)
            if off <= abs(right) * mpf(10) ** -14:
                yield key, float(mp.re(right))


def error_of_scipy(ref: Any, xs: Point, out: float) -> float:
    try:
        with mp.workdps(60):
            if isinstance(ref, Inverse):
                return float(solved(ref, numbers(xs), out)[1])
            if not isinstance(ref, Slopes):
                right = ref(*numbers(xs))
                return float(abs(mpf(out) - right) / abs(right))
    except FAILURES:
        pass
    return 0.0


def moved(ref: Any, xs: Point, live: list[int], out: float, key: Any, right: float) -> float:
    """How much the derivative changes with the last digits of the arguments."""
    most = 0.0
    for sign in (1, -1):
        beside = [x * (1 + sign * (-1) ** k * 1e-14) if k in live else x for k, x in enumerate(xs)]
        most = max(most, abs(exact(ref, tuple(beside), live, out).get(key, right) - right))
    return most


def derivatives(name: str, columns: list[Any], live: list[int], compile: str) -> Iterator[Any]:
    """Each as (i,) or (i, j), and its numbers."""
    primitive: Any = DECLARED[name]
    slopes = grad(lambda *xs: np.sum(primitive(*xs)), tuple(live), compile=compile)
    for n, (i, found) in enumerate(zip(live, slopes(*columns), strict=True)):
        yield (i,), found
        if name in ONCE:
            continue
        bends = grad(lambda *xs, n=n: np.sum(slopes(*xs)[n]), tuple(live), compile=compile)
        for j, bend in zip(live, bends(*columns), strict=True):
            yield (i, j), bend


def test_every_function_has_a_reference() -> None:
    """A new primitive gets one, or a reason why it can't."""
    declared = {n for n, p in DECLARED.items() if isinstance(p, Elementwise) and not p.flat}
    assert declared == {*REFERENCES, *" ".join(WITHOUT.values()).split()}


@pytest.mark.every(24)
@pytest.mark.parametrize("name", REFERENCES)
def test_every_digit_counts(name: str) -> None:
    check(name, "never")


@pytest.mark.parametrize("name", ["inv_boxcox1p"])
def test_every_digit_counts_compiled(name: str) -> None:
    """What slopes are stated of, and those that kernels have."""
    check(name, "always")


def along(f: Any, i: int) -> Any:
    """The slope in operand i, forward."""

    def slope(*xs: Any) -> Any:
        one = np.ones_like(xs[i])
        return jvp(lambda x: f(*xs[:i], x, *xs[i + 1 :]), (xs[i],), (one,), compile="never")[1]

    return slope


@pytest.mark.every(16)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_every_digit_counts_forward(name: str) -> None:
    """Slopes of slopes, both forward, are what reverse ones are."""
    primitive: Any = DECLARED[name]
    for letters in REFERENCES[name][0].split(";"):
        drawn, live = points(name, letters.split())
        columns = [np.array(column, float) for column in zip(*drawn, strict=True)]

        with np.errstate(all="ignore"):
            outs = np.asarray(primitive.evaluate(*columns), float)
            for key, right in derivatives(name, columns, live, "never"):
                f = primitive
                for i in key:
                    f = along(f, i)
                found, right = (np.broadcast_to(x, outs.shape) for x in (f(*columns), right))
                sized = np.isfinite(outs) & np.isfinite(right) & (np.abs(right) > 1e-300)
                np.testing.assert_allclose(found[sized], right[sized], rtol=1e-10, err_msg=str(key))


def check(name: str, compile: str) -> None:
    for letters in REFERENCES[name][0].split(";"):
        check_drawn(name, letters.split(), compile)


def stays(name: str, columns: list[Any], live: list[int], outs: Any) -> Any:
    """Where SciPy's search for a solution has stopped at a bound: whichever way an operand moves,
    the value stays, and the solution isn't beside it."""
    same = np.ones(outs.shape, bool)
    for i in live:
        for factor in (1 - 1e-6, 1 + 1e-6):
            beside = [x * factor if k == i else x for k, x in enumerate(columns)]
            same &= outs == DECLARED[name].evaluate(*beside)  # type: ignore[attr-defined]
    for row in np.flatnonzero(same):
        xs = tuple(x[row].item() for x in columns)
        same[row] = not brackets(REFERENCES[name][1], xs, float(outs[row]))
    return same


def brackets(ref: Inverse, xs: Point, out: float) -> bool:
    """Whether the function passes through the value around there."""
    sides = []
    for factor in (1 - 1e-9, 1 + 1e-9):
        try:
            operands, wanted = ref.operands(tuple(numbers(xs)), mpf(out) * factor)
            sides.append(mp.re(ref.function(*operands) - wanted))
        except FAILURES:
            return False
    return bool(sides[0] * sides[1] < 0)


def check_drawn(name: str, letters: list[str], compile: str) -> None:
    ref = REFERENCES[name][1]
    drawn, live = points(name, letters)
    columns = [
        np.array(column, np.int64 if letter[0] in WHOLE else float)
        for column, letter in zip(zip(*drawn, strict=True), letters, strict=True)
    ]
    with np.errstate(all="ignore"):
        outs = np.asarray(DECLARED[name].evaluate(*columns), float)  # type: ignore[attr-defined]
        found = dict(derivatives(name, columns, live, compile))
        flat = stays(name, columns, live, outs) if isinstance(ref, Inverse) else outs != outs
    compared, wrong = 0, []
    for row in np.flatnonzero(np.isfinite(outs)):
        xs, out = drawn[row], float(outs[row])
        if flat[row]:
            compared += 1
            slopes = {k: float(np.broadcast_to(x, outs.shape)[row]) for k, x in found.items()}
            wrong += [(key, xs, y, 0.0) for key, y in slopes.items() if y != 0]
            continue
        known = exact(ref, xs, live, out)
        for key, column in found.items():
            wanted = key[0] if len(key) == 1 else (min(key), max(key))
            if wanted not in known:
                continue
            right, y = known[wanted], float(np.broadcast_to(column, outs.shape)[row])
            compared += 1
            off = abs(y - right)
            if off <= 1e-10 * abs(right) + 1e-300 or not np.isfinite([y, right]).any():
                continue
            if off <= 100 * error_of_scipy(ref, xs, out) * abs(right):
                continue
            if not off <= moved(ref, xs, live, out, wanted, right):
                wrong.append((key, xs, y, right))
    assert not wrong
    assert 2 * compared >= len(drawn)
