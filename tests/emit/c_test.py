"""Programs in C: compiled by the system's compiler without a warning, they give what tapes do."""

from __future__ import annotations

import ctypes
import pickle
import shutil
import subprocess

import numpy as np
import pytest
from scipy import special

from tapegrad import nn, simplegrad, standalone
from tapegrad.errors import UnsupportedError

COMPILER = shutil.which("cc")
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC")

X = np.linspace(-1.0, 2.0, 7)
M = np.linspace(0.1, 2.0, 12).reshape(4, 3)
CAPTURED = np.array([0.5, -1.5, 2.0])
R = np.random.default_rng(0).standard_normal


def leaves_of(x):
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves_of(x[key])]
    return [leaf for y in x for leaf in leaves_of(y)] if isinstance(x, (tuple, list)) else [x]


def run(made, args, folder):
    """What the function in C gives, flat, and its status."""
    if COMPILER is None:
        pytest.skip("there is no compiler of C")
    made.save(folder / "made.c")
    library = folder / "made.so"
    command = [COMPILER, *FLAGS, "-o", library, folder / "made.c", "-lm"]
    subprocess.run(command, check=True, timeout=120)
    include = f'#include "made.h"\n#include "made.h"\nint (*f)() = (int (*)()){made.__name__};\n'
    (folder / "user.c").write_text(include)
    command = [COMPILER, "-std=c99", "-Wall", "-Werror", "-fsyntax-only", folder / "user.c"]
    subprocess.run(command, check=True, timeout=120)
    function = getattr(ctypes.CDLL(str(library)), made.__name__)
    wanted = [x for x in leaves_of(made(*args)) if x is not None]
    results = [np.full(np.shape(x), 77, np.asarray(x).dtype) for x in wanted]
    given = []
    for x in leaves_of(args):
        if isinstance(x, np.ndarray):
            given.append(x.ctypes.data_as(ctypes.c_void_p))
        else:
            given.append(ctypes.c_double(x) if isinstance(x, float) else ctypes.c_int64(x))
    given += [x.ctypes.data_as(ctypes.c_void_p) for x in results]
    return function(*given), results


def logistic(w, x):
    return np.sum(1.0 / (1.0 + np.exp(-w * x)))


def steps(x):
    for _ in range(100):
        x = x + 0.01 * np.sin(x)
    return np.sum(x * x)


def rows_in_turn(x, s):
    state = np.zeros(3)
    for k in range(4):
        state = np.tanh(state + s * x[k])
    return np.sum(state)


def until(x):
    total = 0.0
    while total < 10.0:
        total = total + x * x
    return total * x


def reductions(x):
    spread = np.max(x) * np.sum(np.abs(x), axis=0)[1] - np.min(x)
    return spread + np.mean(np.maximum(x, 0.3)) + np.prod(x[0]) + np.sum(np.cumsum(x, axis=1))


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.sum((e / np.sum(e, axis=1, keepdims=True)) ** 2)


def choices(x):
    signs = np.where(x > 0, np.log1p(np.abs(x)), np.sign(x) * x**3)
    return np.sum(np.where((x < 1) & ~np.isnan(x), signs, np.hypot(x, 2.0)))


def views(x):
    return np.sum(x[::-1, 1:] * x.T[1:, :].T[:, ::-1]) + np.sum(x.reshape(2, 6)[1] ** 2)


def captured(x):
    return np.sum(x * CAPTURED) / CAPTURED[0]


def structured(p, n):
    return p["scale"] * np.sum(p["w"] ** 2) / n


def picked(x):
    return np.sum(x[np.array([0, -1, 2, 2])] ** 2)


def network(W, x, V):
    return np.sum(np.tanh(np.tanh(x @ W) @ V) ** 2)


def heads(a, b):
    return np.sum(np.einsum("bhij,bhjk->bhik", a, b) ** 2)


def joined_axes(x, K):
    return np.sum(np.tanh(np.einsum("nij,jk->nik", x, K)))


def parts_of_matrices(a, b):
    return np.sum((a[2:] @ b)[1:] ** 2) + np.sum(np.tanh(a[:, 1:15] @ b[:14]))


def convolution(x, w):
    return np.sum(np.tanh(nn.conv2d(x, w, padding=1)))


def words_of_c(double, pow, y0):
    """Names that mean something in C."""
    restrict = double**2.5 + pow
    status = restrict * y0
    log = np.log(np.abs(status) + 1.0)
    return np.sum(log * restrict)


def branches(x):
    return np.sum(x) if x[0] < 0 else np.sum(x * x)


PROGRAMS = {
    "logistic": (logistic, (X, X[::-1].copy())),
    "logistic, float32": (logistic, (X.astype("f4"), X[::-1].astype("f4"))),
    "numbers": (logistic, (0.5, 2.0)),
    "steps": (steps, (X,)),
    "steps, float32": (steps, (X.astype("f4"),)),
    "rows in turn": (rows_in_turn, (M, 0.3)),
    "until": (until, (0.7,)),
    "reductions": (reductions, (M,)),
    "softmax": (softmax, (M,)),
    "choices": (choices, (X,)),
    "views": (views, (M,)),
    "captured": (captured, (CAPTURED + 1,)),
    "structured": (structured, ({"w": X, "scale": 2.0}, 3)),
    "picked": (picked, (X,)),
    "network": (network, (R((20, 30)), R((40, 20)), R((30, 5)))),
    "network, float32": (
        network,
        (R((20, 30)).astype("f4"), *map(np.float32, (R((40, 20)), R((30, 5))))),
    ),
    "heads": (heads, (R((3, 4, 20, 30)), R((3, 4, 30, 20)))),
    "joined axes": (joined_axes, (R((3, 4, 20)), R((20, 30)))),
    "parts of matrices": (parts_of_matrices, (R((30, 20)), R((20, 20)))),
    "windows": (convolution, (R((2, 3, 7, 8)), R((4, 3, 3, 2)))),
    "windows, float32": (
        convolution,
        (R((2, 3, 7, 8)).astype("f4"), R((4, 3, 3, 2)).astype("f4")),
    ),
    "words of C": (words_of_c, (M[0], M[1], 2.0)),
    "branches": (branches, (X,)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_in_c_is_that_of_the_tape(name, tmp_path):
    f, args = PROGRAMS[name]
    made = simplegrad(f, *args)
    status, found = run(made, args, tmp_path)
    assert status == 0
    expected = [x for x in leaves_of(made(*args)) if x is not None]
    for one, other in zip(found, expected, strict=True):
        close = 1e-5 if np.asarray(other).dtype == np.float32 else 1e-12
        largest = max(1.0, np.max(np.abs(other)))  # elements are sums of others that cancel
        np.testing.assert_allclose(one, other, rtol=close, atol=close * largest)


def test_what_was_taken_for_granted_is_the_status(tmp_path):
    made = simplegrad(branches, X)
    status, _ = run(made, (X,), tmp_path)
    assert status == 0
    function = getattr(ctypes.CDLL(str(tmp_path / "made.so")), made.__name__)
    other, out, d_x = np.abs(X), np.zeros(()), np.zeros(7)
    assert function(*[x.ctypes.data_as(ctypes.c_void_p) for x in (other, out, d_x)]) == 1
    assert "returns 1 if this doesn't hold: " in (tmp_path / "made.h").read_text()


def test_the_text(tmp_path):
    made = simplegrad(logistic, np.ones(5), 2.0)
    pickle.loads(pickle.dumps(made)).save(tmp_path / "made.c")
    text = (tmp_path / "made.c").read_text()
    assert text[text.index("static int") :] == TEXT


TEXT = """\
static int grad_logistic_kernel(
    const double *restrict w, double x, double *restrict out, double *restrict d_w,
    double *restrict d_x) {
    double t = 0.0;
    double ct = 0.0;
    for (int64_t i = 0; i < 5; i += 1) {
        double t1 = exp(-(w[i] * x));
        double t2 = 1.0 / (1.0 + t1);
        t = t + t2;
        double ct1 = (t2 * t2) * t1;
        d_w[i] = ct1 * x;
        ct = ct + (ct1 * w[i]);
    }
    out[0] = t;
    d_x[0] = ct;
    return 0;
}

int grad_logistic(const double *w, double x, double *out, double *d_w, double *d_x) {
    return grad_logistic_kernel(w, x, out, d_w, d_x);
}
"""

REFUSED = {
    "has no C code: .*cholesky": (lambda x: np.sum(np.linalg.cholesky(x)), (2 * np.eye(30),)),
    "has no C code: gamma": (lambda x: np.sum(special.gamma(x)), (M,)),
    "no numbers of dtype int32": (lambda x, n: np.sum(x * n), (X, np.arange(7, dtype="i4"))),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("message", REFUSED)
def test_what_c_cant_is_an_error(message, tmp_path):
    f, args = REFUSED[message]
    with pytest.raises(UnsupportedError, match=message):
        simplegrad(f, *args).save(tmp_path / "made.c")
    assert not any(tmp_path.iterdir())


def test_functions_that_write_to_their_arguments_are_refused(tmp_path):
    def f(x):
        x[0] = 2.0
        return np.sum(x)

    with pytest.raises(UnsupportedError, match="writes to its arguments"):
        standalone(f, X.copy()).save(tmp_path / "made.c")
