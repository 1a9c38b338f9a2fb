"""What an installation has to be able to do, with nothing beside it than what it asked for:
`make packages` runs this in fresh environments. It is a program by itself, outside the repository.
"""

import importlib.metadata
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.special
import scipy.stats

import tapegrad
from tapegrad import grad, hessian, jacobian, jit, nn, optim, simplegrad, value_and_grad, vmap

rng = np.random.default_rng(0)
data = rng.normal(2.0, 3.0, size=1000)


def nll(params):
    mean, scale = params[0], np.exp(params[1])
    return np.mean(0.5 * ((data - mean) / scale) ** 2) + params[1]


def filled(x):
    """Arrays that are written, a loop, a branch, and functions that SciPy writes in Python."""
    y = np.zeros_like(x)
    for k in range(1, len(x)):
        y[k] = 0.5 * y[k - 1] + np.sin(x[k]) if x[k] > 0 else x[k]
    K = np.exp(-((x[:, None] - x) ** 2)) + 0.1 * np.eye(len(x))
    solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K), y)
    tail = scipy.special.logsumexp(y) + np.sum(scipy.stats.norm.logpdf(x))
    return np.sum(np.einsum("ij,j->i", K, solved) ** 2) + tail + np.linalg.slogdet(K)[1]


def differences(f, x, step=1e-6):
    return np.array([(f(x + d) - f(x - d)) / (2 * step) for d in step * np.eye(len(x))])


def check_programs():
    x = rng.normal(size=12)
    for compile in ("never", "always", "auto"):
        value, slope = value_and_grad(filled, compile=compile)(x)
        np.testing.assert_allclose(value, filled(x))
        np.testing.assert_allclose(slope, differences(filled, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hessian(np.prod)(x[:3]), jacobian(grad(np.prod))(x[:3]))
    np.testing.assert_allclose(vmap(np.cumsum)(np.eye(3)), np.cumsum(np.eye(3), axis=1))
    np.testing.assert_allclose(jit(np.sort)(x), np.sort(x))
    S = scipy.sparse.csr_array(np.diag(x))
    np.testing.assert_allclose(grad(lambda v: np.sum((S @ v) ** 2))(x), 2 * x**3)


def check_training():
    fit = scipy.optimize.minimize(value_and_grad(nll), np.zeros(2), jac=True)
    np.testing.assert_allclose(fit.x, optim.minimise(nll, np.zeros(2)).x, atol=1e-4)
    x, y = data[:, None], np.sin(data)[:, None]
    loss = lambda w, x, y: np.mean((nn.relu(x @ w["a"]) @ w["b"] - y) ** 2)  # noqa: E731
    params = {"a": rng.normal(size=(1, 4)), "b": rng.normal(size=(4, 1))}
    history = optim.fit(loss, params, (x, y), optim.adam(0.01), epochs=2).history
    assert history[-1]["loss"] < loss(params, x, y)


def check_parts():
    if importlib.util.find_spec("dask") is not None:
        import dask.array as da

        import tapegrad.dask as td

        X = da.from_array(data, chunks=300)
        loss = lambda w, x: np.sum((x - w) ** 2)  # noqa: E731
        slope = td.grad(loss, over="x")(1.0, X)
        np.testing.assert_allclose(slope, 2 * np.sum(1.0 - data))


def check_machine_code():
    """The process next door answers, and what it has made is kept."""
    g = grad(nll, compile="auto")
    until = time.monotonic() + 120
    while not g.cache_info().kernels and not g.cache_info().loads:
        g(np.ones(2))
        assert time.monotonic() < until, g.cache_info()
    simplegrad(nll, np.zeros(2)).save("gradient.py")
    alone = "import sys; sys.modules['tapegrad'] = None; import gradient"
    subprocess.run([sys.executable, "-c", alone], check=True)


if __name__ == "__main__":
    assert Path(sys.prefix) in Path(tapegrad.__file__).parents, f"this is {tapegrad.__file__}"
    assert importlib.metadata.version("tapegrad") == tapegrad.__version__
    check_programs()
    check_training()
    check_parts()
    check_machine_code()
    doctor = subprocess.run(
        [sys.executable, "-m", "tapegrad", "doctor"], capture_output=True, text=True
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    print(doctor.stdout.splitlines()[0])
