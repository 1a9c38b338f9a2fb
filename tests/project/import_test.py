"""What `import tapegrad` leaves for later: what only some programs need, and what is slow."""

import re
import subprocess
import sys

import pytest

import tapegrad

PROGRAM = """
import sys
import numpy as np

before = set(sys.modules)
from tapegrad import grad

print(*sorted(set(sys.modules) - before))
before = set(sys.modules)
grad(lambda x: np.sum(x * x), compile="never")(np.ones(3))
print(*sorted(set(sys.modules) - before))
"""

LATER = {"hashlib", "json", "llvmlite", "networkx", "numba", "opt_einsum", "optree", "scipy"}
LATER |= {
    "numpy.ma",
    "numpy.random",
    "tapegrad.pipeline",
    "tapegrad.backends.source.program",
}
# What few programs have: long tapes, series, branches that go both ways, linear maps, machine code
RARE = {
    "tapegrad.optimize.reroll",
    "tapegrad.differentiate.taylor",
    "tapegrad.tracing.branches.merging",
}
RARE |= {"tapegrad.runtime.pullback", "tapegrad.differentiate.budget", "tapegrad.compiler.client"}
OUTSIDE = {"numpy.random", "random", "pathlib", "decimal", "fractions"}  # unless it is mentioned
COMPILING = {"json", "llvmlite", "networkx", "numba", "scipy", "tapegrad.backends.source.program"}


def test_what_is_imported_when():
    """Trees and the pipeline wait for the first call, and what compiles for its own turn."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, second = (set(line.split()) for line in done.stdout.splitlines())
    assert "tapegrad.api" in first and LATER.isdisjoint(first)
    assert "optree" in second and (COMPILING | OUTSIDE | RARE).isdisjoint(first | second)
    assert not {name for name in first | second if name.startswith("tapegrad.schedule")}


NAMED = """
import sys
import tapegrad

for name in ("numpy", "autograd"):
    assert f"tapegrad.{name}" not in sys.modules and name in dir(tapegrad)
    assert getattr(tapegrad, name) is sys.modules[f"tapegrad.{name}"]
assert tapegrad.random.split and not hasattr(tapegrad, "nothing")
"""


def test_modules_are_there_once_they_are_named():
    subprocess.run([sys.executable, "-c", NAMED], check=True)


COMPLETE = """
import sys, time
import numpy as np
from tapegrad import grad, value_and_grad, vjp
from tapegrad.core import late

def added(run):
    before = set(sys.modules)
    run()
    names = {name for name in set(sys.modules) - before if name.startswith("tapegrad.")}
    # What answers a module of SciPy's comes with that, and forks wait for it.
    return {name for name in names if not name.startswith("tapegrad.scipy.")}

def shifted(x):
    y = np.zeros_like(x)
    y[1:] = x[:-1]
    y[0] += 1.0
    return np.sum(y**2) if x[0, 0] > 0 else np.sum(x)

def several(x):
    s = np.linalg.solve(x, x[0]) + np.sort(x)[0] + np.einsum("ij,jk->ik", x, x)[0]
    return np.sum(s) + x.sum() + np.max(x, axis=0).mean() + np.add.reduce(x[0]) + np.pad(x, 1).sum()

X = np.eye(4) + 0.1

def play():
    for f in (shifted, several, lambda x: np.sum(np.where(x > 0, x, np.stack([x, x])[0]))):
        grad(f, compile="never")(X)
        value_and_grad(lambda p: f(p["x"]), compile="never")({"x": X})
    vjp(lambda x: x * 2, X, compile="never")[1](X)

def compile_():
    grad(lambda x: np.sum(np.cos(x)), compile="always")(X)

for group in (late.CALLS, late.BRANCHES, late.LINEAR_MAPS):
    late.load(group)
print(*sorted(added(play)))
for group in (late.NEXT_DOOR, late.MACHINE_CODE):
    late.load(group)
print(*sorted(added(compile_)))
"""


def test_what_waits_for_the_first_call_is_loaded_at_once():
    """Nothing of tapegrad's is imported later: a fork might come in the middle of that."""
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


FEW = """
import sys
import numpy as np
from tapegrad import hessian, value_and_grad

def f(a, b):
    z = a @ b
    K = a @ a.T + np.eye(len(a))
    L = np.linalg.cholesky(K)
    return np.sum(np.logaddexp(0.0, z)) + np.sum(np.linalg.solve(K, b) ** 2) + np.log(L[0, 0])

rng = np.random.default_rng(0)
a, b = rng.normal(size=(2, 60, 60))
g = value_and_grad(f, compile="never")
value, slope = g(a, 30 * b)
hessian(lambda x: np.sum(np.diff(x) ** 4), compile="never")(b[0])
assert not {"scipy.special", "scipy.linalg", "scipy.sparse"} & set(sys.modules)
np.testing.assert_allclose(value, f(a, 30 * b))

import scipy.linalg, scipy.special  # and the same of SciPy's, once they are there

np.testing.assert_allclose(g(a, 30 * b)[1], slope, rtol=1e-12)
factor = scipy.linalg.cho_factor(np.eye(3))
np.testing.assert_allclose(scipy.linalg.cho_solve(factor, np.ones(3)), 1)
"""


def test_derivatives_of_numpys_functions_load_little_of_scipy():
    subprocess.run([sys.executable, "-c", FEW], check=True)


def test_completion_offers_what_users_import():
    assert {*tapegrad.__all__, "random", "errors", "extending"} <= {*dir(tapegrad)}
    assert {"runtime", "core", "api", "_typing"}.isdisjoint(dir(tapegrad))
    found = {name for name in dir(tapegrad.grad(abs)) if not name.startswith("_")}
    assert found == {
        *("cache_info", "clear_cache", "compile", "explain", "explore", "lower", "profile"),
        *("show", "source"),
        *("tape", "tapes"),
    }
    assert dir(tapegrad.primitive(abs)) == dir(abs)
    for module in (tapegrad.random, tapegrad.testing, tapegrad.typing):
        assert dir(module) == sorted(module.__all__)


WITHOUT = """
import sys
sys.modules["{0}"] = None
import tapegrad
try:
    tapegrad.{0}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["jax", "pytensor", "torch"])
def test_without_the_other_library_it_says_so(name):
    program = [sys.executable, "-c", WITHOUT.format(name)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert re.search(f"tapegrad.{name} needs \\w+: pip install {name}", done.stdout)
