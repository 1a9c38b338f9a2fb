"""Einsum strings drawn at random: what NumPy says they are, and exact derivatives.

A contraction is a polynomial of its operands, of one degree for each of them. So differences of its
values on five points of a line, which are exact for up to the fourth degree, are its derivatives
along that line to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from tapegrad import grad, jit, value_and_grad

EPS = np.finfo(float).eps
TOGETHER = 20  # strings in one traced function, which is compiled at once
LARGEST = 3000  # elements of a result


class Case(NamedTuple):
    """An einsum, a weighting of its result, and a direction in which its operands go."""

    text: str
    arrays: list[np.ndarray]
    weights: np.ndarray
    steps: list[np.ndarray]

    def __str__(self) -> str:
        return f"{self.text} of {[x.shape for x in self.arrays]}"

    def weighted(self, arrays: Sequence[Any]) -> Any:
        return np.sum(np.einsum(self.text, *arrays) * self.weights)

    def size(self, width: float = 0.0) -> float:
        """The weighted sum of magnitudes, of operands that go so far."""
        wide = [np.abs(x) + width * np.abs(d) for x, d in zip(self.arrays, self.steps, strict=True)]
        return float(np.sum(np.einsum(self.text, *wide) * np.abs(self.weights)))

    def along(self, t: float) -> float:
        moved = [x + t * d for x, d in zip(self.arrays, self.steps, strict=True)]
        return float(self.weighted(moved))

    def slope(self) -> float:
        ahead, behind = self.along(1) - self.along(-1), self.along(2) - self.along(-2)
        return (8 * ahead - behind) / 12

    def bend(self) -> float:
        near, far = self.along(1) + self.along(-1), self.along(2) + self.along(-2)
        return (16 * near - far - 30 * self.along(0)) / 12


def drawn(rng: np.random.Generator) -> tuple[str, list[tuple[int, ...]]]:
    """One to four operands of five letters, repeated and missing ones, of which some have extent 1
    where another is longer; ellipses of one to three extents; an order of the result, or none."""
    letters = list("abcde")
    size = {k: int(rng.choice([1, 2, 3, 3, 4, 9])) for k in letters}
    ahead = [int(n) for n in rng.choice([1, 2, 3], size=rng.integers(1, 3))]
    has_ellipses = rng.random() < 0.3
    terms: list[list[str]] = []
    shapes: list[tuple[int, ...]] = []
    for _ in range(rng.integers(1, 5)):
        term = [str(k) for k in rng.choice(letters, rng.integers(0, 4), rng.random() < 0.25)]
        shape = [size[k] if term.count(k) > 1 or rng.random() > 0.12 else 1 for k in term]
        if has_ellipses and rng.random() < 0.7:
            at = int(rng.integers(0, len(term) + 1))
            last = ahead[rng.integers(0, len(ahead) + 1) :]
            term.insert(at, "...")
            shape[at:at] = [n if rng.random() > 0.2 else 1 for n in last]
        terms.append(term)
        shapes.append(tuple(shape))
    text = ",".join(map("".join, terms))
    if rng.random() < 0.85:
        used = sorted({k for term in terms for k in term} - {"..."})
        kept = [str(k) for k in rng.permutation([k for k in used if rng.random() < 0.5])]
        if "..." in text:
            kept.insert(int(rng.integers(0, len(kept) + 1)), "...")
        text += "->" + "".join(kept)
    return text, shapes


def cases(seed: int, many: int) -> Iterator[Case]:
    """As many as NumPy takes, with results that aren't too large."""
    rng = np.random.default_rng(seed)
    while many:
        text, shapes = drawn(rng)
        arrays, steps = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
        try:
            shape = np.shape(np.einsum(text, *arrays))
        except ValueError:  # extents of which none is 1, or an ellipsis that the result lacks
            continue
        if np.prod(shape) <= LARGEST:
            many -= 1
            yield Case(text, arrays, rng.normal(size=shape), steps)


def dotted(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    return sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True))


def check_values(case: Case, found: Any) -> None:
    expected = np.einsum(case.text, *case.arrays)
    assert np.shape(found) == np.shape(expected), case
    assert np.asarray(found).dtype == float, case
    size = np.einsum(case.text, *map(np.abs, case.arrays))
    assert np.all(np.abs(found - expected) <= 64 * EPS * size), case


def check_near(case: Case, found: float, expected: float) -> None:
    assert abs(found - expected) <= 512 * EPS * (1 + case.size(2.0)), (str(case), found, expected)


def check_all(mode: str, these: list[Case]) -> None:
    """Values, gradients and second derivatives of all of them, computed at once."""
    arrays = [case.arrays for case in these]

    def values(arrays: Any) -> Any:
        return [np.einsum(case.text, *xs) for case, xs in zip(these, arrays, strict=True)]

    def total(arrays: Any) -> Any:
        return sum(case.weighted(xs) for case, xs in zip(these, arrays, strict=True))

    def slopes(arrays: Any) -> Any:
        gradients = grad(total)(arrays)
        return sum(dotted(g, case.steps) for case, g in zip(these, gradients, strict=True))

    made: list[Callable[..., Any]] = [
        jit(values, compile=mode),
        grad(total, compile=mode),
        grad(slopes, compile=mode),
    ]
    for case, value, first, second in zip(these, *(f(arrays) for f in made), strict=True):
        check_values(case, value)
        shapes = [x.shape for x in case.arrays]
        assert [np.shape(g) for g in first] == [np.shape(g) for g in second] == shapes, case
        check_near(case, dotted(first, case.steps), case.slope())
        check_near(case, dotted(second, case.steps), case.bend())


@pytest.mark.every(6)
@pytest.mark.parametrize("seed", range(6))
def test_played(seed: int) -> None:
    check_all("never", [*cases(seed, TOGETHER)])


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(100, 103))
def test_compiled(seed: int) -> None:
    check_all("always", [*cases(seed, TOGETHER)])


def test_what_is_drawn() -> None:
    """There are strings of each kind."""
    these = [case for seed in range(6) for case in cases(seed, TOGETHER)]
    texts = [case.text for case in these]
    inputs = [text.split("->")[0].split(",") for text in texts]
    assert {len(terms) for terms in inputs} == {1, 2, 3, 4}
    assert any(len(set(term)) < len(term) for terms in inputs for term in terms if "." not in term)
    assert any("..." in text for text in texts)
    assert any("->" not in text for text in texts)
    assert any(
        len(
            {
                x.shape[term.index(k)]
                for x, term in zip(case.arrays, terms, strict=True)
                if k in term
            }
        )
        > 1
        for case, terms in zip(these, inputs, strict=True)
        if "..." not in case.text
        for k in "abcde"
    )


# ---- numbers of any size


def sized(seed: int) -> list[Case]:
    """Cases of several operands, each of another magnitude, some with a zero."""
    rng = np.random.default_rng(seed)
    drawn = [case for k in range(4) for case in cases(1000 * seed + k, TOGETHER)]
    these = [case for case in drawn if len(case.arrays) > 2]
    for case in these:
        for x in case.arrays:
            x *= 10.0 ** rng.integers(-300, 301)
            if x.size > 1 and rng.random() < 0.2:
                x.flat[0] = 0.0
    return these


def kind_of(x: Any) -> Any:
    """0 of an infinity or NaN, between which the order of a sum decides where both signs meet; 1 of
    zeros, 2 of others, with the sign."""
    return np.where(np.signbit(x), -1, 1) * np.select([~np.isfinite(x), x == 0], [0, 1], 2)


@pytest.mark.every(3)
@pytest.mark.parametrize(("mode", "seed"), [("never", 1), ("never", 2), ("always", 3)])
def test_sizes(mode: str, seed: int) -> None:
    """Parts of products overflow or vanish where whole products don't, and the result is NumPy's:
    finite, zero or not finite, with its sign, whether NumPy takes whole products or a path of its
    own; in later calls of other sizes, too. BLAS rounds what vanishes to a zero of either sign."""
    these = sized(seed)
    assert len(these) > 20

    def values(arrays: Any) -> Any:
        found = [np.einsum(case.text, *xs) for case, xs in zip(these, arrays, strict=True)]
        path = [
            np.einsum(case.text, *xs, optimize=True) for case, xs in zip(these, arrays, strict=True)
        ]
        return found + path

    f = jit(values, compile=mode)
    for further in (0, 1):
        arrays = [case.arrays for case in sized(seed)]
        for xs in arrays:
            xs[0] *= 1e10**further
        with np.errstate(all="ignore"):
            found = zip(f(arrays), values(arrays), 2 * these, strict=True)
            for k, (x, y, case) in enumerate(found):
                if k >= len(these):
                    x, y = (np.where(z == 0, 0.0, z) for z in (x, y))
                np.testing.assert_array_equal(kind_of(x), kind_of(y), err_msg=str(case))
                x, y = (np.where(np.isfinite(y), z, 0) for z in (x, y))
                np.testing.assert_allclose(x, y, rtol=1e-9, err_msg=str(case))
    assert f.cache_info().traces == 1


# ---- sums of nothing


NOTHING = [
    ("i,j->i", 2, 0),
    ("i,ij->i", 2, (2, 0)),
    ("i,jj->i", 2, (0, 0)),
    ("i,jk,k->i", 2, (0, 2), 2),
    ("i,i,j,k->i", 2, 2, 0, 3),
    ("i,j,j->", 2, 0, 0),
]


@pytest.mark.parametrize("mode", ["never", "always"])
def test_a_sum_of_nothing_is_zero_whatever_else_is_multiplied(mode: str) -> None:
    """It would be NaN if the empty sum of one operand were multiplied by another's infinity."""
    arrays = [[np.full(shape, np.inf) for shape in shapes] for _, *shapes in NOTHING]

    def values(arrays: Any) -> Any:
        return [np.einsum(text, *xs) for (text, *_), xs in zip(NOTHING, arrays, strict=True)]

    def total(arrays: Any) -> Any:
        return sum(np.sum(x) for x in values(arrays))

    for x, expected in zip(jit(values, compile=mode)(arrays), values(arrays), strict=True):
        np.testing.assert_array_equal(x, np.zeros(expected.shape))
    for gradients in grad(total, compile=mode)(arrays):
        for g in gradients:
            np.testing.assert_array_equal(g, np.zeros(g.shape))


# ---- truth values


TRUTHS: list[Callable[..., Any]] = [
    lambda x, y: x @ y,
    lambda x, y: x[0] @ y,
    lambda x, y: x[0] @ y[:, 0],
    lambda x, y: np.tensordot(x, y.T, 2),
    lambda x, y: np.inner(x, y.T),
    lambda x, y: np.inner(x[0, 0], y),
    lambda x, y: np.vdot(x, y.T),
    lambda x, y: np.outer(x, y),
    lambda x, y: np.dot(x[0, 0], y)[0] | x[0, :3],
    lambda x, y: np.einsum("ij->i", x),
    lambda x, y: np.einsum("ij,kl->il", x, y),
    lambda x, y: np.einsum("ij,jk,k->i", x, y, x[:, 0]),
    lambda x, y: np.einsum("ij,kl->ijkl", x, y)[0] & x[0, 0],
    lambda x, y: x[:, :0] @ y[:0],
]


@pytest.mark.parametrize("mode", ["never", "always"])
def test_sums_of_truth_values_say_whether_any_is_true(mode: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.random(shape) < 0.4 for shape in ((3, 4), (4, 3)))
    found = jit(lambda x, y: [f(x, y) for f in TRUTHS], compile=mode)(x, y)
    for a, b in zip(found, [f(x, y) for f in TRUTHS], strict=True):
        assert np.asarray(a).dtype == bool
        np.testing.assert_array_equal(a, b)


def _diagonal(c):
    m = np.zeros((3, 3))
    np.einsum("ii->i", m)[...] = c
    return np.sum(m**2)


def _of_traced(c):
    m = c * CUBE[0]
    d = np.einsum("ii->i", m)
    d[...] = c * c
    d += 1
    m[0, 0] *= c
    return np.sum(m**2) + np.sum(d)


def _of_parts(c):
    m = (c * CUBE).T
    d = np.einsum("iij->ij", m[:, :, 1:])
    d[1] = c * c
    d *= c
    return np.sum(m**2 * CUBE) + np.sum(d[0])


def _of_all(c):
    m = c * CUBE
    np.einsum("iii->i", m)[1] = c * c
    np.einsum("ijk->kji", m)[0] *= c
    np.einsum("...ii->...i", m)[2] += c
    np.einsum(m, [0, 1, 0], [1, 0])[1] *= c
    return np.sum(m**2 * CUBE)


def _summed(c):
    m = c * CUBE[0]
    d = np.einsum("ij->i", m)
    d[1] = c * c
    return np.sum(m**2) + np.sum(d)


CUBE = np.arange(27.0).reshape(3, 3, 3) / 9


@pytest.mark.every(8)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("f", [_diagonal, _of_traced, _of_parts, _of_all, _summed])
def test_what_sums_nothing_is_a_view_that_is_written_to(f, compile):
    """Writes reach the array, as NumPy's do; where something is summed it is another one."""
    value, slope = value_and_grad(f, compile=compile)(0.8)
    assert value == pytest.approx(f(0.8), rel=1e-13)
    assert slope == pytest.approx((f(0.8 + 1e-6) - f(0.8 - 1e-6)) / 2e-6, rel=1e-6)
