"""Every public name of SciPy's modules that are followed is in one of four classes: docs/scipy.md
says in which. Here each is held against what a call of it does. `make golden` rewrites the page.

A derivative is held against differences, to second order where it is smooth; each call is played,
and some are compiled. What is refused says what to use instead, and raises nothing of its own.
"""

from __future__ import annotations

import importlib
import re
import types
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from tests.frontend.names_test import (
    CLASSES,
    DERIVATIVE,
    EVALUATED,
    REFUSED,
    ZERO,
    corner,
    has_tracer,
    observed,
    wrapped,
)
from tests.fuzzing import NEW

from tapegrad import grad, value_and_grad
from tapegrad.errors import TapegradError
from tapegrad.observe.answers.answers import look_for_modules, row_of
from tapegrad.scipy.homes import HOMES
from tapegrad.scipy.refusing import DEFAULT, advice_on, public

PAGE = Path(__file__).parents[2] / "docs" / "scipy.md"
X = np.array([[0.91, 0.13, 0.38], [0.27, 0.84, 0.46], [0.62, 0.33, 0.77]])
W = np.array([[0.71, 0.22, 0.18], [0.36, 0.95, 0.58], [0.41, 0.29, 0.66]])
K = np.array([2, 0, 1])
P = np.indices((4, 3)).reshape(2, 12).T / 3.0 + 0.05 * np.sin(np.arange(24.0)).reshape(12, 2)
ALONG = np.cos(1.7 * np.arange(9.0).reshape(3, 3))

NAMES = [(home, name) for home in HOMES for name, _ in public(home)]


@cache
def calls(home: str) -> dict[str, list[str]]:
    """The lines of a module's file of calls, by names: `name: expression`; a name may have several.
    One that isn't smooth at second order says so by `name!: expression`. Of several the first is
    looked at to second order, and all in `make fuzz`."""
    file = HOMES[home].replace(".", "_")
    text = importlib.import_module(f"tests.scipy.calls.{file}").CALLS
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, call = line.partition(": ")
        found.setdefault(name.rstrip("!"), []).append(("!" if name[-1] == "!" else "") + call)
    return found


def calls_of(home: str, name: str) -> list[str]:
    """The texts of calls: a ufunc without a line is called with `x`, `w`, ..., others with `x`."""
    known = calls(home).get(name)
    if known:
        return known
    module = home.rpartition(".")[2]
    f = getattr(importlib.import_module(home), name)
    look_for_modules()
    row = row_of(f)
    if row is not None and hasattr(row.by, "refuses"):
        return [f"answer({module}.{name})(x)"]  # however it wants to be called
    if isinstance(f, np.ufunc):
        return [f"{module}.{name}({', '.join(['x', 'w', 'w + 1', 'x + w'][: f.nin])})"]
    return [f"{module}.{name}(x)"]


def answer(f: Any) -> Any:
    """What answers calls of SciPy's function with traced values."""
    row = row_of(f)
    # A function is no argument that SciPy could be asked about first
    return lambda x: row.by(x, answer) if has_tracer(x) else None  # type: ignore[union-attr]


def function(home: str, text: str, element: Any = corner) -> Any:
    """A function of the matrix x, of which s is an element; w, k and the points p are captured."""
    names = {
        "element": element,
        "np": np,
        "w": W,
        "k": K,
        "p": P,
        home.rpartition(".")[2]: importlib.import_module(home),
    }
    names["scipy"], names["answer"] = importlib.import_module("scipy"), answer
    return eval(f"lambda x: (lambda s: {text.lstrip('!')})(element(x))", names)


def floats(result: Any) -> list[Any]:
    """The arrays and numbers of a result that may have a derivative."""
    if isinstance(result, (tuple, list)):
        return [r for part in result for r in floats(part)]
    if isinstance(result, types.SimpleNamespace):
        return floats(list(vars(result).values()))
    kind = getattr(result, "dtype", np.dtype(object)).kind
    return [result] if isinstance(result, (float, complex)) or kind in "fc" else []


def weighted(f: Any) -> Any:
    """The sum of all numbers of a result, with weights."""

    def total(x: Any) -> Any:
        out: Any = 0.0
        for r in floats(f(x)):
            part = np.sum(np.cos(1.0 + np.arange(np.size(r)).reshape(np.shape(r))) * r)
            out = out + (part.real + 0.5 * part.imag if np.iscomplexobj(part) else part)
        return out

    return total


def slope_of(f: Any, x: Any, along: Any, h: float = 1e-4) -> Any:
    """The central difference, extrapolated once."""
    coarse, fine = [(f(x + d * along) - f(x - d * along)) / (2 * d) for d in (h, h / 2)]
    return (4 * fine - coarse) / 3


def far(found: Any, expected: Any, tolerance: float = 1e-6) -> str:
    size = 1 + np.max(np.abs(expected), initial=0.0)
    close = np.all(np.abs(found - expected) <= tolerance * size)
    return "" if close else f"{found}, not {expected}"


@cache
def found(home: str, name: str, text: str) -> tuple[str, str]:
    """The class of a call, and what is wrong or refused."""
    f = function(home, text)
    results: list[Any] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            plain = f(X)
        except Exception as error:
            return "needs a call", f"{text}: {error!r}"
        try:
            observed(lambda x: (results.append(iter([f(x)])), 0.0)[1], X)
        except TapegradError as error:
            return REFUSED, str(error)
        traced = next(results[0])
        total = weighted(f)
        if not floats(plain) or not (has_tracer(traced) or _is_traced(total)):
            return EVALUATED if not has_tracer(traced) else ZERO, ""
        played = _played(total)
        value, gradient = played(X)
        wrong = far(value, total(X), 1e-12)
        wrong = wrong or far(np.sum(gradient * ALONG), slope_of(total, X, ALONG))
        wrong = wrong or unlike(played, gradient)
        smooth = text[0] != "!" and (NEW or text == calls_of(home, name)[0])
        if np.any(gradient) and not wrong and smooth:
            second = grad(lambda x: np.sum(ALONG * played(x)[1]), compile="never")(X)
            expected = slope_of(lambda x: np.sum(ALONG * played(x)[1]), X, ALONG)
            wrong = far(np.sum(second * ALONG), expected, 1e-5)
    return DERIVATIVE if np.any(gradient) else ZERO, wrong


def _played(total: Any) -> Any:
    """Of a weight, which is 1; it is always passed, so that all weights have one tape."""
    played = value_and_grad(lambda x, weight: total(x) * weight, compile="never")
    return lambda x, weight=1.0: played(x, weight)


def unlike(played: Any, gradient: Any) -> str:
    """A gradient is as many times larger as its cotangent is."""
    for size in (-700, 700):
        found = np.ldexp(played(X, 2.0**size)[1], -size)
        wrong = far(found, gradient, 1e-9)
        if wrong:
            return f"of 2^{size}: {wrong}"
    return ""


def _is_traced(total: Any) -> bool:
    try:
        return bool(np.any(grad(total, compile="never")(X)))
    except TapegradError:
        return False


# ---- the page


def table() -> dict[tuple[str, str], str]:
    """Each name on the page, and its class."""
    shown, home, of = {}, "", ""
    for line in PAGE.read_text().splitlines():
        heading = re.match(r"## `([\w.]+)`", line)
        home = heading[1] if heading else home
        of = next((c for c in CLASSES if line.startswith(f"**{c}")), of)
        cells = line.split("|")
        listed = cells[1] if len(cells) > 2 else line if line.startswith("`") else ""
        for name in re.findall(r"`(\w+)`", listed):
            shown[home, name] = of
    return shown


SHOWN = table() if PAGE.exists() else {}
EACH = sorted({*NAMES, *SHOWN})


@pytest.mark.every(16)
@pytest.mark.parametrize(("home", "name"), EACH)
def test_a_name_is_what_its_class_says(home, name, request):
    if request.config.getoption("--update-golden"):
        pytest.skip("the page is rewritten")
    if (home, name) not in NAMES:
        pytest.skip("not in this SciPy")
    shown = SHOWN.get((home, name))
    assert shown, f"{home}.{name} isn't in docs/scipy.md: give it a call, and run `make golden`"
    for text in calls_of(home, name):
        kind, words = found(home, name, text)
        assert kind == shown, (text, words)
        if kind == REFUSED:
            assert "has no derivative rule" in words or advice_on(home, name) in words
        else:
            assert not words, text


def rows(home: str) -> str:
    """The part of the page about a module."""
    kinds = {n: found(home, n, calls_of(home, n)[0])[0] for of, n in sorted(NAMES) if of == home}
    parts = [f"## `{home}`"]
    for of in CLASSES[:3]:
        names = [f"`{name}`" for name in kinds if kinds[name] == of]
        if names:
            parts += [f"**{of}**", wrapped(names)]
    refused: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        if kind == REFUSED:
            advice = advice_on(home, name)
            own = "" if advice == DEFAULT else advice
            refused.setdefault(own, []).append(f"`{name}`")
    if refused:
        lines = [f"| {', '.join(names)} | {advice} |" for advice, names in refused.items()]
        parts += [f"**{REFUSED}**", "\n".join(["| | |", "|---|---|", *lines])]
    return "\n\n".join(parts)


# So many of the same names JAX 0.10.2 has in `jax.scipy` and `jax.numpy.fft`, and HIPS autograd
# 1.9.1 in `autograd.scipy` with a derivative: what it only wraps isn't counted.
OTHERS = {
    "scipy.special": (52, 30),
    "scipy.stats": (30, 8),
    "scipy.linalg": (40, 4),
    "scipy.optimize": (1, 0),
    "scipy.integrate": (1, 1),
    "scipy.signal": (10, 1),
    "scipy.interpolate": (1, 0),
    "scipy.ndimage": (1, 0),
    "scipy.sparse.linalg": (3, 0),
    "scipy.spatial.transform": (2, 0),
    "scipy.fft": (22, 0),
}


def beside() -> str:
    """A table of how many names of each module have a derivative."""
    shown = table()
    lines = ["| | public names | tapegrad | JAX | HIPS autograd |", "|---|---|---|---|---|"]
    for home in HOMES:
        own = [name for module, name in NAMES if module == home]
        ours = sum(shown.get((home, name)) == CLASSES[0] for name in own)
        counts = [len(own), ours, *OTHERS.get(home, (0, 0))]
        lines.append(f"| `{home}` | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


START = "<!-- the names: made of tests/scipy/names_test.py -->"


def test_the_page_is_up_to_date(request):
    if request.config.getoption("--update-golden"):
        before = PAGE.read_text().split(START)[0]
        PAGE.write_text(f"{before}{START}\n\n" + "\n\n".join(map(rows, HOMES)) + "\n")
        counts = re.sub(r"(?s)\| \| public names.*?\n\n", f"{beside()}\n\n", PAGE.read_text())
        PAGE.write_text(counts)
    assert {pair for pair in table() if pair in NAMES} == {*NAMES}
    if [*map(int, scipy.__version__.split(".")[:2])] == [1, 17]:  # of which the table is
        assert beside() in PAGE.read_text()
