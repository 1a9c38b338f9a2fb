"""Kinks and singular points: every row of docs/conventions.md, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special as sp

from tapegrad import grad, trace
from tapegrad.backends.numpy.play import run
from tapegrad.differentiate.forward import forward
from tapegrad.differentiate.reverse import reverse
from tapegrad.pipeline import derive_forward

NAN, INF = np.nan, np.inf
DOCUMENT = Path(__file__).parents[2] / "docs" / "conventions.md"


@dataclass(frozen=True, eq=False)
class Case:
    """The gradients of the sum of `f(*args)`, one an argument."""

    f: Callable[..., Any]
    args: tuple[Any, ...]
    expected: tuple[Any, ...]


def case(f: Any, *pairs: tuple[Any, Any]) -> Case:
    """Each pair is an argument and the derivative along it."""
    args = tuple(np.array(x, float) for x, _ in pairs)
    return Case(f, args, tuple(np.array(d, float) for _, d in pairs))


def first(f: Any) -> Any:
    return lambda x: f(x, 0.5)


def projector(v: Any) -> Any:
    return (v @ v.T)[0]


def root(a: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return (v * np.sqrt(w)) @ v.T


ROWS: dict[tuple[str, str], list[Case]] = {
    ("`x.astype(np.float16)`", "everywhere"): [
        case(lambda x: 0.5 * x.astype(np.float16), ([0.1, 1e-9, 7e4, 2.0], [0.5] * 4)),
        case(lambda x: 0.5 * x.astype(ml_dtypes.bfloat16), ([0.1, 1e-9, 1e39], [0.5] * 3)),
    ],
    ("`abs`, `fabs`", "0"): [
        case(np.abs, ([0.0, -0.0, 2.0, -3.0], [0, 0, 1, -1])),
        case(np.fabs, ([0.0, -3.0], [0, -1])),
    ],
    ("`maximum`, `minimum`, `fmax`, `fmin`", "equal operands"): [
        case(np.maximum, ([1.0, 2, 3], [0.5, 1, 0]), ([1.0, 1, 4], [0.5, 0, 1])),
        case(np.minimum, ([1.0, 2, 3], [0.5, 0, 1]), ([1.0, 1, 4], [0.5, 1, 0])),
        case(np.fmax, ([1.0, INF], [0.5, 0.5]), ([1.0, INF], [0.5, 0.5])),
        case(np.fmin, ([1.0, 0.0], [0.5, 0.5]), ([1.0, -0.0], [0.5, 0.5])),
    ],
    ("`maximum(x, 0)` (relu)", "0"): [
        case(lambda x: np.maximum(x, 0), ([-1.0, 0.0, -0.0, 1.0], [0, 0.5, 0.5, 1])),
        case(lambda x: np.maximum(0.0, x), ([-1.0, 0.0, 1.0], [0, 0.5, 1])),
    ],
    ("`fmax(x, nan)`, `fmin(x, nan)`", "everywhere"): [
        case(np.fmax, ([1.0, NAN], [1, 0]), ([NAN, 2.0], [0, 1])),
        case(np.fmin, ([1.0, NAN], [1, 0]), ([NAN, 2.0], [0, 1])),
    ],
    ("`clip`", "at a bound"): [
        case(lambda x: np.clip(x, 0, 1), ([0.0, 0.5, 1.0], [0.5, 1, 0.5])),
        case(np.clip, ([0.0], [0.5]), ([0.0], [0.5]), ([1.0], [0])),
    ],
    ("`clip`", "outside the bounds"): [
        case(lambda x: np.clip(x, 0, 1), ([-1.0, 2.0, INF, -INF], [0, 0, 0, 0])),
        case(np.clip, ([-1.0, 2.0], [0, 0]), ([0.0, 0.0], [1, 0]), ([1.0, 1.0], [0, 1])),
    ],
    ("`max`, `min`, `amax`, `amin`, `norm(x, inf)`", "k tied elements"): [
        case(np.max, ([1.0, 3, 3, 2], [0, 0.5, 0.5, 0])),
        case(np.min, ([1.0, 1, 1, 2], [1 / 3] * 3 + [0])),
        case(lambda x: np.amax(x, axis=1), ([[1.0, 1], [0, 2]], [[0.5, 0.5], [0, 1]])),
        case(lambda x: np.amin(x, axis=0), ([[1.0, 1], [1, 2]], [[0.5, 1], [0.5, 0]])),
        case(lambda x: np.linalg.norm(x, INF), ([2.0, -2.0, 1.0], [0.5, -0.5, 0])),
    ],
    ("`sort`, `median`, `quantile`", "tied elements"): [
        case(lambda x: np.sort(x, kind="stable")[1], ([2.0, 1, 2, 1], [0, 0, 0, 1])),
        case(np.median, ([2.0, 2.0, 1.0, 5.0], [0.5, 0.5, 0, 0])),
        case(lambda x: np.quantile(x, 0.5), ([3.0, 1.0, 2.0], [0, 0, 1])),
    ],
    ("`where(c, x, y)`", "everywhere"): [
        case(lambda x: np.where(x > 0, np.log(x), 0), ([-1.0, 0, 2, NAN], [0, 0, 0.5, 0])),
        case(lambda x: np.where(x > 0, np.sqrt(x), 1), ([-1.0, 0, 4], [0, 0, 0.25])),
        case(lambda x: np.where(x != 0, 1 / x, x), ([0.0, 2], [1, -0.25])),
        case(lambda x: np.where(x < 700, np.exp(x), 0), ([0.0, 1e4, INF], [1, 0, 0])),
        case(lambda x: np.where(np.isnan(x), 0, x**2), ([NAN, 3.0], [0, 6])),
        case(lambda x: np.where(x > 0, x**-0.5, 2 * x), ([0.0, -1.0, 4], [2, 2, -0.0625])),
        case(lambda x: np.where(x > 0, x / x, 3 * x), ([0.0, 2.0], [3, 0])),
    ],
    ("`where(x > 0, x, 0)`", "0"): [
        case(lambda x: np.where(x > 0, x, 0), ([-1.0, 0.0, 1.0], [0, 0, 1])),
        case(lambda x: np.where(x >= 0, x, 0), ([-1.0, 0.0, 1.0], [0, 1, 1])),
    ],
    ("`f(x)[k]`", "elements not read"): [
        case(lambda x: np.log(x)[1:], ([0.0, 2.0], [0, 0.5])),
        case(lambda x: np.sqrt(x)[[1]], ([-1.0, 4.0], [0, 0.25])),
        case(lambda x: (1 / x)[x != 0], ([0.0, 2.0], [0, -0.25])),
        case(lambda x: np.max(np.log(x)), ([0.0, 2.0], [0, 0.5])),
        case(lambda x: np.diagonal(np.log(x)), ([[1.0, 0.0], [0.0, 2.0]], [[1, 0], [0, 0.5]])),
    ],
    ("`sqrt`, `cbrt`", "0"): [
        case(np.sqrt, ([0.0, 4.0, INF], [0, 0.25, 0])),
        case(lambda x: x**0.5, ([0.0, 4.0], [0, 0.25])),
        case(np.cbrt, ([0.0, -0.0, 8.0, -8.0], [0, 0, 1 / 12, 1 / 12])),
    ],
    ("`x ** p`, 0 < p < 1", "x = 0"): [
        case(lambda x: x**0.3, ([0.0, 1.0], [0, 0.3])),
        case(np.power, ([0.0], [0]), ([0.5], [0])),
        case(lambda x: x**1.0, ([0.0], [1])),
        case(lambda x: x**1.5, ([0.0], [0])),
        case(lambda x: x**2, ([0.0], [0])),
    ],
    ("`x ** 0`", "everywhere"): [
        case(lambda x: x**0, ([0.0, 2.0, -1.0, INF, NAN], [0, 0, 0, 0, 0])),
        case(lambda x: x**0.0, ([0.0, 2.0, NAN], [0, 0, 0])),
        case(lambda x: x ** np.zeros(2), ([0.0, 2.0], [0, 0])),
    ],
    ("`x ** p`, p < 0", "x = 0"): [
        case(lambda x: x**-1, ([0.0], [-INF])),
        case(lambda x: x**-2.0, ([0.0, -0.0], [-INF, INF])),
    ],
    ("`x ** y`, along y", "x = 0"): [
        case(lambda y: 0.0**y, ([2.0, 0.5, 0.0], [0, 0, 0])),
        case(np.power, ([0.0, 0.0], [0, 1]), ([2.0, 1.0], [0, 0])),
    ],
    ("`x ** y`, along y", "x < 0"): [
        case(lambda y: (-2.0) ** y, ([2.0, 3.0], [NAN, NAN])),
        case(lambda x: x**2.0, ([-3.0], [-6])),
    ],
    ("`hypot`, `norm`", "the origin"): [
        case(np.hypot, ([0.0, 3.0], [0, 0.6]), ([0.0, 4.0], [0, 0.8])),
        case(np.linalg.norm, ([0.0, 0.0], [0, 0])),
        case(lambda x: np.linalg.norm(x, axis=1), ([[0.0, 0.0], [3, 4]], [[0, 0], [0.6, 0.8]])),
        case(lambda x: np.sqrt(np.sum(x**2)), ([0.0, 0.0], [0, 0])),
    ],
    ("`norm(x, 1)`, `norm(x, p)`", "an element 0"): [
        case(lambda x: np.linalg.norm(x, 1), ([0.0, -2.0], [0, -1])),
        case(lambda x: np.linalg.norm(x, 3), ([0.0, 2.0], [0, 1])),
        case(lambda x: np.linalg.norm(x, 3), ([0.0, 0.0], [0, 0])),
        case(lambda x: np.linalg.norm(x, 0.5), ([0.0, 4.0], [0, 1])),
    ],
    ("`std`", "of a constant"): [
        case(np.std, ([2.0, 2.0, 2.0], [0, 0, 0])),
        case(lambda x: np.std(x, axis=0, ddof=1), ([[1.0], [1.0]], [[0], [0]])),
    ],
    ("`arctan2`", "the origin"): [
        case(np.arctan2, ([0.0, 1.0], [0, 0]), ([0.0, 0.0], [0, -1])),
        case(np.arctan2, ([1e-200], [1e200 / 2]), ([1e-200], [-1e200 / 2])),
    ],
    ("`copysign(x, y)`", "x = 0"): [
        case(lambda x: np.copysign(x, -1.0), ([0.0, -0.0, 2.0, -2.0], [0, 0, -1, 1])),
    ],
    ("`copysign(x, y)`, along y", "everywhere"): [
        case(lambda y: np.copysign(2.0, y), ([0.0, -0.0, 2.0, -2.0], [0, 0, 0, 0])),
    ],
    ("`sign`, `floor`, `ceil`, `trunc`, `fix`, `rint`, `round`", "everywhere"): [
        case(f, ([0.0, -0.0, 0.5, 1.0, -1.5], [0, 0, 0, 0, 0]))
        for f in (np.sign, np.floor, np.ceil, np.trunc, np.fix, np.rint, np.round)
    ],
    ("`heaviside(x, h)`", "everywhere"): [
        case(np.heaviside, ([-1.0, 0.0, 1.0], [0, 0, 0]), ([0.5, 0.5, 0.5], [0, 1, 0])),
    ],
    ("`x // y`", "everywhere"): [
        case(lambda x, y: x // y, ([4.0, 5.0], [0, 0]), ([2.0, 2.0], [0, 0])),
    ],
    ("`mod(x, y)`, `x % y`", "at the jumps too"): [
        case(np.mod, ([4.0, 5.5, -1.0], [1, 1, 1]), ([2.0, 2.0, 2.0], [-2, -2, 1])),
    ],
    ("`fmod(x, y)`", "at the jumps too"): [
        case(np.fmod, ([4.0, 5.5, -3.0], [1, 1, 1]), ([2.0, 2.0, 2.0], [-2, -2, 1])),
    ],
    ("comparisons, logic, `argmax`, `argsort`, integers", "everywhere"): [
        case(lambda x: 1.0 * (x > 0) + (x == 0), ([0.0, 1.0], [0, 0])),
        case(lambda x: 1.0 * np.logical_and(x, x > 1), ([0.0, 1.0], [0, 0])),
        case(lambda x: 1.0 * np.argmax(x), ([0.0, 1.0], [0, 0])),
        case(lambda x: 1.0 * np.argsort(x), ([0.0, 1.0], [0, 0])),
        case(lambda x: 1.0 * x.astype(int), ([0.0, 1.0], [0, 0])),
    ],
    ("`logaddexp`", "equal infinities"): [
        case(np.logaddexp, ([-INF, INF, 1.0], [0.5, 0.5, 0.5]), ([-INF, INF, 1.0], [0.5] * 3)),
        case(np.logaddexp, ([-INF, INF], [0, 1]), ([1.0, 1.0], [1, 0])),
    ],
    ("`logaddexp.reduce`", "all elements -inf"): [
        case(np.logaddexp.reduce, ([-INF, -INF], [0.5, 0.5])),
        case(np.logaddexp.reduce, ([-INF, 0.0, 0.0], [0, 0.5, 0.5])),
        case(np.logaddexp.reduce, ([INF, 0.0, INF], [0.5, 0, 0.5])),
        case(np.logaddexp.reduce, ([1e4, 1e4], [0.5, 0.5])),
    ],
    ("`xlogy`, `xlog1py`, along y", "x = 0"): [
        case(lambda y: sp.xlogy(0.0, y), ([0.0, 2.0], [0, 0])),
        case(lambda y: sp.xlog1py(0.0, y), ([-1.0, 2.0], [0, 0])),
    ],
    ("`xlogy`, along x", "y = 0"): [
        case(lambda x: sp.xlogy(x, 0.0), ([0.0, 2.0], [-INF, -INF])),
    ],
    ("`prod`, `cumprod`", "factors 0"): [
        case(np.prod, ([2.0, 0.0, 3.0], [0, 6, 0])),
        case(np.prod, ([2.0, 0.0, 0.0], [0, 0, 0])),
        case(lambda x: np.cumprod(x)[-1], ([2.0, 0.0, 3.0], [0, 6, 0])),
    ],
    (
        "inverses in `scipy.special`, such as `stdtridf`, `pdtrik`, `tklmbda`",
        "at a bound of SciPy's search, outside of a support",
    ): [
        case(sp.stdtridf, ([0.95], [0]), ([1.5], [0])),
        case(lambda m: sp.pdtrik(0.3, m), ([0.5], [0])),
        case(lambda p, x: sp.fdtridfd(60.0, p, x), ([1e-9], [0]), ([0.05], [0])),
        case(lambda p, x: sp.fdtridfd(2.0, p, x), ([0.9], [0]), ([1.5], [0])),
        case(sp.tklmbda, ([0.9, -0.9], [0, 0]), ([1.9, 1.9], [0, 0])),
    ],
    ("`sinc`", "0"): [
        case(np.sinc, ([0.0, 1.0], [0, -1])),
        case(lambda x: grad(np.sinc)(x[0]), ([0.0], [-(np.pi**2) / 3])),
    ],
    ("`x / y`", "y = 0"): [
        case(np.divide, ([1.0, 0.0], [INF, INF]), ([0.0, 0.0], [-INF, NAN])),
        case(np.reciprocal, ([0.0], [-INF])),
    ],
    ("`log`, `log2`, `log10`", "0"): [case(f, ([0.0], [INF])) for f in (np.log, np.log2, np.log10)],
    ("`arcsin`, `arccos`, `arctanh`", "±1"): [
        case(np.arcsin, ([1.0, -1.0], [INF, INF])),
        case(np.arccos, ([1.0, -1.0], [-INF, -INF])),
        case(np.arctanh, ([1.0, -1.0], [INF, INF])),
    ],
    ("`interp`", "a node"): [
        case(
            lambda x: np.interp(x, [0.0, 1, 2], [0.0, 1, 5]), ([0.0, 1.0, 2.0, 9.0], [1, 4, 0, 0])
        ),
    ],
    ("`nansum`, `nanmean`, `nan_to_num` and their like", "NaN"): [
        case(np.nansum, ([NAN, 2.0], [0, 1])),
        case(np.nanmean, ([NAN, 2.0, 4.0], [0, 0.5, 0.5])),
        case(np.nanstd, ([NAN, 2.0, 4.0], [0, -0.5, 0.5])),
        case(np.nanmax, ([NAN, 2.0, 4.0], [0, 0, 1])),
        case(np.nan_to_num, ([NAN, INF, -INF, 2.0], [0, 0, 0, 1])),
    ],
    ("`nansum(X @ w)`, along w", "a row of X with NaN"): [
        case(lambda w: np.nansum(np.array([[NAN, 1.0], [1.0, 2.0]]) @ w), ([2.0, 3.0], [NAN, 2.0])),
    ],
    ("`abs`, `maximum`, `clip`, `max`", "NaN"): [
        case(np.abs, ([NAN, 2.0], [0, 1])),
        case(np.maximum, ([NAN, 2.0], [0, 0]), ([1.0, NAN], [0, 0])),
        case(lambda x: np.clip(x, 0, 1), ([NAN], [0])),
        case(np.max, ([NAN, 2.0], [0, 0])),
    ],
    ("`x[i] = y`", "an index that repeats"): [
        case(
            lambda x, y: written(x, [0, 1, 0], y),
            ([1.0, 1, 1], [0, 0, 1]),
            ([5.0, 6, 7], [0, 1, 1]),
        ),
    ],
    ("`cholesky`, `eigh`, `eigvalsh`", "the triangle that isn't read"): [
        case(
            lambda a: np.linalg.cholesky(a)[1, 1],
            ([[4.0, 9], [2, 5]], [[1 / 16, 0], [-1 / 4, 1 / 4]]),
        ),
        case(lambda a: np.linalg.eigvalsh(a)[1], ([[1.0, 9], [1, 1]], [[0.5, 0], [1, 0.5]])),
        case(lambda a: np.linalg.eigh(a, "U")[0][1], ([[1.0, 1], [9, 1]], [[0.5, 1], [0, 0.5]])),
    ],
    ("`eigvalsh`, `svdvals`", "equal values"): [
        case(lambda a: np.linalg.eigh(a)[0], ([[1.0, 0], [0, 1]], [[1, 0], [0, 1]])),
        case(lambda a: np.linalg.svd(a)[1], ([[1.0, 0], [0, 1]], [[1, 0], [0, 1]])),
        case(lambda a: np.linalg.svdvals(a)[0], ([[1.0, 0], [0, 1]], [[1, 0], [0, 0]])),
    ],
    ("the vectors of `eigh`, `svd`", "between equal values"): [
        case(lambda a: np.linalg.eigh(a)[1][0], ([[1.0, 0], [0, 1]], [[NAN, 0], [NAN, NAN]])),
        case(lambda a: np.linalg.svd(a)[0][0], ([[1.0, 0], [0, 1]], [[NAN, NAN], [NAN, NAN]])),
        case(lambda a: np.linalg.svd(a)[2][0], ([[1.0, 0], [0, 1]], [[NAN, NAN], [NAN, NAN]])),
        case(lambda a: projector(np.linalg.eigh(a)[1]), ([[1.0, 0], [0, 1]], [[0, 0], [0, 0]])),
        case(lambda a: projector(np.linalg.svd(a)[0]), ([[1.0, 0], [0, 1]], [[0, 0], [0, 0]])),
        case(root, ([[1.0, 0], [0, 1]], [[NAN, 0], [NAN, NAN]])),
    ],
    ('`svd`, `norm(x, 2)`, `norm(x, "nuc")`', "a singular value 0"): [
        case(np.linalg.svdvals, ([[2.0, 0], [0, 0]], [[1, 0], [0, 0]])),
        case(lambda a: np.linalg.norm(a, 2), ([[0.0, 0], [0, 0]], [[0, 0], [0, 0]])),
        case(lambda a: np.linalg.norm(a, "nuc"), ([[0.0, 0], [0, 3]], [[0, 0], [0, 1]])),
    ],
    ("`det`", "a singular matrix"): [
        case(np.linalg.det, ([[1.0, 2], [2, 4]], [[4, -2], [-2, 1]])),
        case(np.linalg.det, ([[0.0, 0], [0, 0]], [[0, 0], [0, 0]])),
    ],
    ("`slogdet`", "a singular matrix"): [
        case(lambda a: np.linalg.slogdet(a)[1], ([[1.0, 2], [2, 4]], [[NAN, NAN], [NAN, NAN]])),
    ],
    ("`pinv`, `lstsq`", "a matrix that hasn't full rank"): [
        case(lambda a: np.linalg.pinv(a)[0], ([[1.0, 0], [0, 0]], [[-1, 0], [1, 0]])),
        case(
            lambda a, b: np.linalg.lstsq(a, b)[0][0],
            ([[1.0, 0], [0, 0]], [[-2, 0], [3, 0]]),
            ([2.0, 3.0], [1, 0]),
        ),
    ],
    ("`matrix_rank`, the sign of `slogdet`", "everywhere"): [
        case(lambda a: a[0, 0] * np.linalg.matrix_rank(a), ([[1.0, 0], [0, 2]], [[2, 0], [0, 0]])),
        case(lambda a: a[0, 0] * np.linalg.slogdet(a)[0], ([[1.0, 0], [0, -2]], [[-1, 0], [0, 0]])),
    ],
}


def written(x: Any, index: Any, y: Any) -> Any:
    out = x.copy()
    out[index] = y
    return out


def documented() -> list[tuple[str, str]]:
    """The first two cells of each row of the table."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return [(row[0], row[1]) for row in cells if set(row[0]) != {"-"} and row[0] != "function"]


def test_every_row_of_the_document_is_held() -> None:
    assert sorted(documented()) == sorted(ROWS)


CASES = [(row, one) for row, cases in ROWS.items() for one in cases]
NAMES = [f"{row[0]} at {row[1]} {n}".replace("`", "") for n, (row, _) in enumerate(CASES)]
EACH = pytest.mark.parametrize("one", [one for _, one in CASES], ids=NAMES)


@pytest.mark.every(2)
@EACH
def test_reverse_mode(one: Case) -> None:
    with np.errstate(all="ignore"):
        total = lambda *xs: np.sum(one.f(*xs))  # noqa: E731
        found = grad(total, argnums=tuple(range(len(one.args))), compile="never")(*one.args)
    for got, wanted in zip(found, one.expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.every(2)
@EACH
def test_forward_mode(one: Case) -> None:
    """Along each element by itself, where what the others hold can't hide it."""
    with np.errstate(all="ignore"):
        _, tape = trace(lambda *xs: np.sum(one.f(*xs)), *one.args)
        for k, wanted in enumerate(one.expected):
            pushed = forward(tape, [k])
            for at in np.ndindex(wanted.shape):
                t = np.zeros(wanted.shape)
                t[at] = 1
                (_, found), _ = run(pushed, [*one.args, t, *pushed.captured])
                if np.isfinite(wanted).all():
                    np.testing.assert_allclose(found, wanted[at], rtol=1e-12, atol=1e-12)


def test_forward_mode_knows_which_way_equal_values_part() -> None:
    """Of a function of values and vectors: nan where the vectors have to turn, and else known."""
    _, tape = trace(lambda a: np.sum(root(a)), np.eye(2))
    pushed = derive_forward(tape, [0])
    assert pushed.play(np.eye(2), np.diag([1.0, 3.0])) == pytest.approx(2.0)
    assert np.isnan(pushed.play(np.eye(2), np.array([[0.0, 0.0], [1.0, 0.0]])))


def test_forward_mode_keeps_zeros_that_a_choice_has_left() -> None:
    """As reverse mode does: the root isn't taken where its slope is infinite."""
    _, tape = trace(lambda x: np.sqrt(np.where(x > 0, x, 0.0)) ** 3, np.array([-1.0, 4.0]))
    np.testing.assert_allclose(
        derive_forward(tape, [0]).play(np.array([-1.0, 4.0]), np.ones(2)), [0, 3]
    )


def test_what_is_behind_no_choice_pays_nothing() -> None:
    """Only cotangents that come from a choice are compared with 0."""

    def names(f: Any) -> set[str]:
        _, tape = trace(f, np.array([1.0, 2.0]))
        return {str(call.primitive) for call in reverse(tape, [0]).calls}

    assert "isnan" not in names(lambda x: np.sum(np.log(x) / np.exp(x)))
    assert "isnan" not in names(lambda x: np.sum(np.where(x > 0, x, 0.1 * x)))
    assert "isnan" in names(lambda x: np.sum(np.where(x > 0, np.log(x), x)))
