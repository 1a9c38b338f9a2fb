"""Tracebacks show the user's frames, unless one asks for all."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import tapegrad
from tapegrad import (
    eval_shape,
    grad,
    gradcheck,
    jvp,
    linearize,
    primitive,
    scan,
    trace,
    value_and_grad,
    vjp,
    vmap,
)
from tapegrad.core import frames
from tapegrad.core.values import Source
from tapegrad.errors import InternalError

X = np.ones(3)


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FULL", False)


def inner(x: Any) -> Any:
    return x @ np.ones(4)


def loss(x: Any) -> Any:
    return np.sum(inner(x))


@primitive
def unlucky(x: Any) -> Any:
    return inner(x)


def names_of(call: Any) -> list[str]:
    """The functions in the traceback of the error that a call raises, below the call."""
    with pytest.raises((ValueError, TypeError)) as info:
        call()
    return [frame.name for frame in traceback.extract_tb(info.value.__traceback__)][2:]


CALLS = {
    "grad": lambda: grad(loss)(X),
    "vmap": lambda: vmap(loss)(np.ones((2, 3))),
    "grad of grad": lambda: grad(lambda y: np.sum(grad(loss)(y)))(X),
    "vjp": lambda: vjp(loss, X),
    "jvp": lambda: jvp(loss, (X,), (X,)),
    "trace": lambda: trace(loss, X),
    "eval_shape": lambda: eval_shape(loss, X),
    "gradcheck": lambda: gradcheck(loss, (X,)),
    "compile": lambda: grad(loss).compile(X),
    "scan": lambda: scan(lambda carry, x: (inner(carry), x), X, X),
    "primitive": lambda: grad(lambda x: np.sum(unlucky(x)))(X),
    "autograd": lambda: tapegrad.autograd.grad(loss)(X),
    "pullback": lambda: vjp(lambda x: 2 * x, X)[1](np.ones(4)),
    "tangents": lambda: linearize(lambda x: 2 * x, X)[1](np.ones(4)),
    "argument": lambda: grad(loss)("text"),  # type: ignore[type-var]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_traceback_has_the_users_frames_alone(name: str) -> None:
    found = names_of(CALLS[name])
    assert set(found) <= {"<lambda>", "loss", "inner", "unlucky", "func"}, found
    assert found[-1:] == (["inner"] if name not in ("pullback", "tangents", "argument") else [])


def test_scipys_frames_stay() -> None:
    assert "minimize" in names_of(lambda: optimize.minimize(value_and_grad(loss), X, jac=True))


def test_later_calls_too() -> None:
    df = grad(lambda x: np.sum(np.linalg.solve(np.outer(x, x) + x[0] * np.eye(3), x)))
    df(X), df(X)
    assert names_of(lambda: df(0 * X)) in ([], ["<lambda>"])


def test_all_frames_stay_where_one_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FULL", True)
    assert "trace_function" in names_of(CALLS["grad"])


def test_what_tapegrad_caught_is_not_told() -> None:
    with pytest.raises(TypeError) as info:
        vjp(lambda x: 2 * x, X)[1](np.ones(4))  # no entry answers such a cotangent: a `Miss`
    assert info.value.__context__ is None


def test_what_the_user_handles_is_told() -> None:
    with pytest.raises(ValueError) as info:
        try:
            raise KeyError("mine")
        except KeyError:
            grad(loss)(X)
    assert isinstance(info.value.__context__, KeyError)


def test_a_chain_of_errors_that_goes_round_ends() -> None:
    def failing(x: Any) -> Any:
        first, second = ValueError("first"), KeyError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    with pytest.raises(ValueError, match="first"):
        grad(failing)(X)


def test_a_fault_of_tapegrads_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise InternalError("a fault")

    monkeypatch.setattr("tapegrad.runtime.derived.Derived._slow", fail)
    with pytest.raises(InternalError) as info:
        grad(loss)(X)
    files = [frame.filename for frame in traceback.extract_tb(info.value.__traceback__)]
    assert any(file.endswith("derived.py") for file in files)


def test_a_program_sees_it_short_unless_the_environment_says_full() -> None:
    program = "import numpy as np, tapegrad\ntapegrad.grad(lambda x: x @ np.ones(4))(np.ones(3))"

    def lines(**environment: str) -> int:
        plain = {k: v for k, v in os.environ.items() if not k.startswith("TAPEGRAD_")}
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=plain | environment,
            capture_output=True,
            text=True,
        )
        assert "ValueError: matmul" in run.stderr
        return run.stderr.count("File ")

    assert lines() == 2
    assert lines(TAPEGRAD_TRACEBACK="full") > 10


def test_a_line_of_a_notebook_is_named_by_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def format_code_name(file: str) -> tuple[str, str] | None:
        return ("Cell", "In[14]") if file == "ipykernel_7/42.py" else None

    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=format_code_name))
    module = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    assert str(Source("ipykernel_7/42.py", 4)) == "Cell In[14], line 4"
    assert str(Source("src/model.py", 4)) == "model.py:4"
