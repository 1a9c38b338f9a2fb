"""Small linear systems are solved on one thread. To wake the threads of a BLAS takes longer than
that, and where something else runs they are waited for, thousands of times as long."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tapegrad.primitives import solving
from tapegrad.primitives.solving import LU, LUSolve
from tapegrad.primitives.triangles import TriangularSolve

RNG = np.random.default_rng(0)

# Systems and right sides just below the bounds, at them and beyond.
SIZES = [
    (1, 2),
    (2, 2),
    (3, 7),
    (31, 33),
    (32, 31),
    (32, 32),
    (32, 33),
    (33, 32),
    (4, 1000),
    (90, 2),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "count"), SIZES)
def test_they_are_solved_as_lapack_solves_them(n, count, dtype):
    a = RNG.normal(size=(n, n)).astype(dtype)  # whose rows have to be swapped
    b = RNG.normal(size=(count, n)).astype(dtype)
    given = a.copy(), b.copy()
    factors, pivots = LU().evaluate(a)
    near = 10 * np.finfo(dtype).eps * np.linalg.cond(a)
    for transposed, matrix in ((False, a), (True, a.T)):
        found = LUSolve(transposed).evaluate(a, factors, pivots, b)
        assert found.dtype == dtype and found.flags.c_contiguous
        expected = np.linalg.solve(matrix.astype(float), b.T).T
        assert np.abs(found - expected).max() <= near * np.abs(expected).max()
    for lower in (False, True):
        t = (np.tril if lower else np.triu)(a) + n * np.eye(n, dtype=dtype)
        found = TriangularSolve(lower).evaluate(t, b.T)
        assert found.dtype == dtype
        assert np.abs(t @ found - b.T).max() <= 100 * np.finfo(dtype).eps * np.abs(b).max()
    np.testing.assert_array_equal(a, given[0])
    np.testing.assert_array_equal(b, given[1])


def test_singular_systems_have_no_numbers():
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    factors, pivots = LU().evaluate(a)
    found = LUSolve().evaluate(a, factors, pivots, np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert not np.any(np.isfinite(found))


# How often the threads that BLAS has started went back to sleep says whether they were woken.
PROGRAM = """
import os
import sys
import threading
import time

import numpy as np
import scipy.linalg

main = str(threading.get_native_id())
pool = [task for task in os.listdir("/proc/self/task") if task != main]


def slept():
    while True:
        texts = [open(f"/proc/self/task/{task}/status").read() for task in pool]
        fields = [dict(line.split(":\\t") for line in text.splitlines()) for text in texts]
        if all(found["State"][0] == "S" for found in fields):
            return [found["voluntary_ctxt_switches"] for found in fields]
        time.sleep(0.005)


def wakes(f):
    f()
    for _ in range(3):  # something else may have woken them once
        before = slept()
        f()
        if slept() == before:
            return False
    return True


rng = np.random.default_rng(0)
large = rng.normal(size=(300, 300))
if not wakes(lambda: scipy.linalg.blas.dtrsm(1.0, large, large)):
    print("no threads")
    sys.exit()

from tapegrad import grad

functions = {
    "solve": np.linalg.solve,
    "solve for a vector": lambda a, b: np.linalg.solve(a, b[:, 0]),
    "transposed": lambda a, b: np.linalg.solve(a.T, b),
    "cho_solve": lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b),
    "solve_triangular": scipy.linalg.solve_triangular,
    "inv": lambda a, b: np.linalg.inv(a),
    "cholesky": lambda a, b: np.linalg.cholesky(a),
    "det": lambda a, b: np.linalg.det(a),
    "slogdet": lambda a, b: np.linalg.slogdet(a)[1],
    "eigh": lambda a, b: np.linalg.eigh(a)[0],
}
for n, count in ((2, 2), (3, 3), (8, 8), (8, 100), (32, 32)):
    a = rng.normal(size=(n, n))
    a, b = a @ a.T + np.eye(n), rng.normal(size=(n, count))
    for name, f in functions.items():
        df = grad(lambda a, b, f=f: np.sum(f(a, b) ** 2), (0, 1), compile="never")
        if (n, name) != (32, "eigh") and wakes(lambda: df(a, b)):  # NumPy's own wakes them
            print(name, n, count)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="nobody says what threads do")
def test_they_wake_no_threads():
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    if done.stdout == "no threads\n":
        pytest.skip("this BLAS has no threads, or one core to run on")
    assert done.stdout == ""


def test_large_ones_are_left_to_lapack(monkeypatch):
    """Whose threads are of use there."""

    def alone(*args):
        raise AssertionError

    monkeypatch.setattr(solving.LUSolve, "_solve_alone", alone)
    a = RNG.normal(size=(40, 40))
    factors, pivots = LU().evaluate(a)
    LUSolve().evaluate(a, factors, pivots, a)
    LUSolve().evaluate(a, factors, pivots, a[:1])
