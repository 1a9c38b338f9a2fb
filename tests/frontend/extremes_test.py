"""Every public function of NumPy's of numbers of any size: infinite, zero or NaN where NumPy's
result is, with its sign, and as near by its own size as rounding leaves it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.frontend.names_test import K, call_of, public

from tapegrad import jit
from tapegrad.errors import TapegradError

HOMES = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft, "np.emath": np.emath}
DRAWS = 12
FINITE = [0.0, -0.0, 1e308, -1e308, 1.7e308, 5e-324, -1e-310, 1.0, -1.0, 0.5, 2.0, 1e-300, 1e155]
FINITE += [1e-170, 3.7, -2.5, 1 + 2**-52]
ANY = [*FINITE, np.inf, -np.inf, np.nan]

# What isn't compared here, and why
ELSEWHERE = {
    "the order of sums decides between infinities and NaN, and BLAS between zeros": """
        np.einsum np.vecdot np.linalg.vecdot""",
    "which of two zeros comes first is left open": """np.union1d np.setxor1d np.unique np.unique_all
        np.unique_counts np.unique_inverse np.unique_values""",
    "iterations, whose roundings grow": """np.polyfit np.roots np.linalg.cond np.linalg.eig
        np.linalg.eigh np.linalg.eigvals np.linalg.eigvalsh np.linalg.lstsq np.linalg.matrix_rank
        np.linalg.pinv np.linalg.svd np.linalg.svdvals np.linalg.qr np.linalg.inv
        np.linalg.tensorinv np.linalg.tensorsolve np.linalg.solve np.linalg.det
        np.linalg.slogdet np.linalg.matrix_power np.linalg.cholesky np.linalg.norm
        np.linalg.matrix_norm""",
    "roundings of subnormal numbers": "np.logaddexp2 np.logaddexp",
    "no function of numbers": """np.busday_count np.busday_offset np.busdaycalendar np.datetime64
        np.datetime_as_string np.datetime_data np.errstate np.load np.save np.savez
        np.savez_compressed np.savetxt np.random np.test np.info np.show_config np.show_runtime
        np.memmap np.fromfile np.nested_iters np.nditer np.getbufsize np.setbufsize np.seterr
        np.seterrcall np.geterr np.geterrcall np.empty np.empty_like np.einsum_path np.get_include
        np.printoptions np.set_printoptions np.get_printoptions""",
}
SKIPPED = set(" ".join(ELSEWHERE.values()).split())


def after(change: Any) -> Any:
    change(y := np.zeros((3, 3)))
    return y


def functions(home: str) -> Iterator[tuple[str, Any]]:
    """Each name, and what calls it."""
    for name in public(home):
        if f"{home}.{name}" not in SKIPPED and callable(getattr(HOMES[home], name)):
            text = f"lambda x, w: (lambda s, n: {call_of(home, name)})(x[0, 0], 2)"
            yield name, eval(text, {"np": np, "k": K, "after": after})


def drawn(rng: np.random.Generator, kind: int) -> np.ndarray:
    if kind < 2:
        return rng.choice(FINITE if kind else ANY, (3, 3))
    sizes = [0, 300, -300, 154, -160, 308, -308, -318]
    return rng.uniform(-1, 1, (3, 3)) * 10.0 ** rng.choice(sizes, (3, 3) if kind == 2 else ())


def parts(x: Any) -> list[Any]:
    if isinstance(x, (tuple, list)):
        return [part for each in x for part in parts(each)]
    x = np.asarray(x)
    return [x.real, x.imag] if x.dtype.kind == "c" else [x]


def is_alike(x: np.ndarray, y: np.ndarray) -> bool:
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return False
    if x.dtype.kind != "f":
        return x.dtype.kind not in "biu" or bool(np.array_equal(x, y))
    if not np.array_equal(np.signbit(x)[x == x], np.signbit(y)[y == y]):
        return False
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= 1e-12 * np.abs(y)
    return bool(np.all(near & ((x == 0) == (y == 0)) | (x == y) | ((x != x) & (y != y))))


@pytest.mark.every(4)
@pytest.mark.parametrize("home", HOMES)
def test_numbers_of_any_size(home: str) -> None:
    rng, wrong, compared = np.random.default_rng(5), [], 0
    for name, f in functions(home):
        g = jit(f, compile="never")
        for kind in itertools.islice(itertools.cycle(range(4)), DRAWS):
            x, w = drawn(rng, kind), drawn(rng, kind)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    right = parts(f(x.copy(), w.copy()))
                    found = parts(g(x.copy(), w.copy()))
                except TapegradError:
                    break
                except Exception:  # as NumPy's: what is refused is held elsewhere
                    continue
            compared += 1
            if len(found) != len(right) or not all(map(is_alike, found, right)):
                wrong.append((name, x, w, found, right))
                break
    assert not wrong
    assert compared > {"np": 2000, "np.linalg": 20, "np.fft": 150, "np.emath": 80}[home]


INF = float("inf")
NODES = itertools.product([INF, -INF, np.nan, 1.0, 1e308, -1e308, 5e-324, -0.0], repeat=3)


@pytest.mark.parametrize("compile", ["never", "always"])
def test_interpolation_between_infinities(compile: str) -> None:
    """A line of two infinities, of numbers whose difference is none, and beside NaN."""
    x = np.array([-1, 0, 0.25, 0.5, 1, 1.5, 2, 3, np.nan, INF, -0.0])
    xs = np.array([0.0, 1.0, 2.0])
    f = jit(lambda x, fp: np.interp(x, xs, fp), compile=compile)
    for nodes in itertools.islice(NODES, 0, None, 3):
        fp = np.array(nodes)
        with np.errstate(all="ignore"):
            assert is_alike(f(x, fp), np.interp(x, xs, fp)), nodes


@pytest.mark.parametrize("compile", ["never", "always"])
def test_zeros_of_an_inverse_have_numpys_signs(compile: str) -> None:
    rng, f = np.random.default_rng(0), jit(np.linalg.inv, compile=compile)
    for _ in range(30):
        a = rng.integers(-2, 3, (3, 3)) + 0.0
        if abs(np.linalg.det(a)) > 0.5:
            right, found = np.linalg.inv(a), f(a)
            zero = (right == 0) & (found == 0)
            np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(right)[zero])


@pytest.mark.parametrize("tolerance", [-1.0, np.nan, 0.0, 1e-8, np.inf])
def test_closeness_by_any_tolerance(tolerance: float) -> None:
    """Equal numbers are close by any, infinities too."""
    numbers = np.array([0.0, -0.0, 1.0, 1 + 1e-9, 5e-324, 1.7e308, np.inf, -np.inf, np.nan])
    x, y = (a.ravel() for a in np.meshgrid(numbers, numbers))
    for given in ({"rtol": tolerance}, {"atol": tolerance, "equal_nan": True}):
        with np.errstate(all="ignore"):
            found = jit(lambda x, y, g=given: np.isclose(x, y, **g), compile="never")(x, y)
            np.testing.assert_array_equal(found, np.isclose(x, y, **given))
