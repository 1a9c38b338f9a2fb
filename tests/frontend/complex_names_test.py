"""Every public name of NumPy's on complex arguments: what NumPy returns, and the derivative that
differences have, or an error of tapegrad's. None is silently wrong."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from tests.frontend.names_test import HOMES, NAMES, K, W, X, call_of, floats

from tapegrad import grad, jit
from tapegrad.errors import TapegradError

Z = X + 1j * W
ALONG = np.exp(1.7j * np.arange(9.0)).reshape(3, 3)
# Uninitialised memory; nothing but a name; NumPy's own buffers; results of one bit more or less
APART = {"empty_like", "test", "frombuffer", "matrix", "asmatrix", "bmat"}
# Vectors have a factor of their own, which differences see.
PHASES = {"eig", "eigh", "svd"}


def function(text: str, w: Any) -> Any:
    def after(x: Any, change: Any) -> Any:
        y = np.zeros_like(x)
        change(y)
        return y

    text = re.sub(r"\bafter\(", "after_(x, ", text)
    names = {"np": np, "w": w, "k": K, "after_": after}
    return eval(f"lambda x: (lambda s, n: {text})(x[0, 0], (9 * x[0, 0].real).astype(int))", names)


def flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [part for entry in result for part in flat(entry)]
    return [result]


def fault(name: str, f: Any) -> str:
    """What is wrong with a name; nothing, if it is refused or right."""
    try:
        found = jit(f, compile="never")(Z)
    except TapegradError:
        return ""
    except Exception as error:
        with pytest.raises(type(error)):
            f(Z)
        return ""
    for a, b in zip(flat(found), flat(f(Z)), strict=True):
        if (
            isinstance(b, (np.ndarray, np.generic, int, float))
            and np.asarray(b).dtype.kind in "bfciu"
        ):
            same = np.asarray(a).dtype == np.asarray(b).dtype or isinstance(b, (int, float))
            if not same or not np.allclose(a, b, 1e-9, 1e-11, equal_nan=True):
                return f"{a!r} and not {b!r}"
    return "" if name in PHASES else wrong_slope(f)


def wrong_slope(f: Any) -> str:
    def loss(z: Any) -> Any:
        out: Any = 0.0
        for r in floats(f(z)):
            w = np.cos(1.0 + np.arange(np.size(r)).reshape(np.shape(r)))
            out = out + np.sum(w * (r.real + r.imag**2))
        return out

    if not floats(f(Z)):
        return ""
    try:
        slope = np.sum(grad(loss, compile="never")(Z) * ALONG).real
    except TapegradError:  # constants
        return ""
    expected = (loss(Z + 1e-6 * ALONG) - loss(Z - 1e-6 * ALONG)) / 2e-6
    single = any(np.asarray(r).dtype in (np.float32, np.complex64) for r in floats(f(Z)))
    close = abs(slope - expected) <= (1 if single else 1e-6) * (1 + abs(expected))
    return "" if close or not np.isfinite(expected) else f"the slope {slope} and not {expected}"


@pytest.mark.every(7)
@pytest.mark.parametrize("home", HOMES)
def test_names_are_right_or_refused(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for those that write files
    faults = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for of, name in NAMES:
            if of == home and name not in APART:
                for w in (W, 1.01 * Z[::-1].conj()):  # no real parts alike, where orders jump
                    found = fault(name, function(call_of(home, name), w))
                    if found:
                        faults[name] = found
    assert not faults
