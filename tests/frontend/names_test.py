"""Every public name of NumPy's is in one of four classes. docs/numpy.md says in which, and here
each is held against what a call of it does. `make golden` rewrites the page.

A derivative is held against differences, one that is zero too. What is refused says what to use
instead, and raises nothing of Python's or NumPy's own.
"""

from __future__ import annotations

import re
import types
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontend.agreement_test import differs, plain
from tests.frontend.names_calls import CALLS

from tapegrad import grad
from tapegrad.core.request import Request
from tapegrad.errors import TapegradError
from tapegrad.observe.activations.retracing import settled
from tapegrad.observe.observer import Observer
from tapegrad.tracing.frontend.indexing.flat import Flat
from tapegrad.tracing.runs.run import trace_function
from tapegrad.tracing.tracers.alternatives import declared
from tapegrad.tracing.tracers.attributes import Flags
from tapegrad.tracing.tracers.tracer import Tracer

PAGE = Path(__file__).parents[2] / "docs" / "numpy.md"
HOMES: dict[str, list[Any]] = {
    "np": [np],
    "np.linalg": [np.linalg],
    "np.fft": [np.fft],
    "np.emath": [np.emath],
    "np.lib.stride_tricks": [np.lib.stride_tricks],
    "np.ndarray": [np.ndarray],
    "np.generic": [np.float64, np.int64, np.bool_],
}
CLASSES = ["With a derivative", "Derivative zero", "Evaluated without a derivative", "Refused"]
DERIVATIVE, ZERO, EVALUATED, REFUSED = CLASSES

X = np.array([[0.91, 0.13, 0.38], [0.27, 0.84, 0.46], [0.62, 0.33, 0.77]])
W = np.array([[0.71, 0.22, 0.18], [0.36, 0.95, 0.58], [0.41, 0.29, 0.66]])
K = np.array([2, 0, 1])
ALONG = np.cos(1.7 * np.arange(9.0).reshape(3, 3))


def public(home: str) -> list[str]:
    """What has no underscore before it; of scalars, what arrays don't have. numexpr leaves a name
    of its own in NumPy."""
    names = {n for of in HOMES[home] for n in dir(of) if not n.startswith("_")} - {"expm1x"}
    return sorted(names - {*dir(np.ndarray)} if home == "np.generic" else names)


NAMES = [(home, name) for home in HOMES for name in public(home)]


# ---- what a call of a name does


@cache
def calls(home: str) -> dict[str, str]:
    lines = CALLS.get(home, "").strip().splitlines()
    named = {"np.ndarray": r".*\.", "np.generic": r"[sn]\."}.get(home, rf"{re.escape(home)}\.")
    start = {"np.ndarray": r"(?:.*?\by|x|x\[0\]|.*\(int\))\."}.get(home, named)
    found = {}
    for line in lines:
        name, colon, text = line.partition(": ")
        if colon and name.isidentifier():
            found[name] = text
            continue
        text = re.sub(r"y\.__iadd__\(x\)\.?,? ?", "y.", line) if home == "np.ndarray" else line
        match = re.search(rf"(?:^|\W){start}(\w+)", text)
        assert match, line
        found[match[1]] = line
    return found


def call_of(home: str, name: str) -> str:
    """The text of a call."""
    if name in calls(home):
        return calls(home)[name]
    of = next(of for of in HOMES[home] if hasattr(of, name))
    f, x = getattr(of, name), {np.ndarray: "x", np.float64: "s", np.int64: "n"}.get(of, "b")
    if home in ("np.ndarray", "np.generic"):
        return f"{x}.{name}()" if callable(f) else f"{x}.{name}"
    if isinstance(f, np.ufunc) and f.nin == 2:
        return f"{home}.{name}(x, w)"
    if isinstance(f, types.ModuleType) or not callable(f) or f in (np.ufunc, np.flatiter):
        return f"{home}.{name}"
    if isinstance(f, type) and issubclass(f, np.generic):
        below = [c for c in f.__subclasses__() if c.__module__ == "numpy"]
        plain = f in (np.void, np.record) or below  # nothing is made of a number
        return f"{home}.{name}" if plain else f"{home}.{name}(s)"
    return f"{home}.{name}(x)"


def corner(x: Any) -> Any:
    return x[0, 0]


def function(text: str, element: Any = corner) -> Any:
    def after(x: Any, change: Any) -> Any:
        y = np.zeros_like(x)
        change(y)
        return y

    names = {"np": np, "w": W, "k": K, "after_": after, "element": element}
    text = re.sub(r"\bafter\(", "after_(x, ", text)
    return eval(f"lambda x: (lambda s, n: {text})(element(x), (9 * x.flat[0]).astype(int))", names)


def floats(result: Any) -> list[Any]:
    """The arrays and numbers of a result that may have a derivative."""
    if isinstance(result, (tuple, list)):
        return [r for part in result for r in floats(part)]
    if isinstance(result, type):
        return []
    kind = getattr(result, "dtype", np.dtype(int)).kind
    real = isinstance(result, (float, complex)) or kind in ("f", "c")
    return [result] if real and not isinstance(result, type) and not hasattr(result, "eps") else []


def has_tracer(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return any(map(has_tracer, result))
    return isinstance(result, Tracer)


def observed(f: Any, *args: Any) -> None:
    """A trace of a function, of which every call is seen."""

    def run() -> None:
        with Observer(f, args, {}) as observer:
            trace_function(Request(f, [*args]), observer)

    settled(run)


@cache
def found(home: str, name: str) -> tuple[str, str]:
    """The class of a name, and what is wrong or refused."""
    f = function(call_of(home, name))
    results: list[Any] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            observed(lambda x: (results.append(iter([f(x)])), 0.0)[1], X)
        except TapegradError as error:
            return REFUSED, str(error)
        except TypeError as error:  # in C code of NumPy's, which asks nobody
            return REFUSED if name == "frombuffer" else repr(error), ADVICE[home, name]
        traced = next(results[0])
        if not has_tracer(traced):
            return EVALUATED, differs_from(f, traced)
        total = weighted(f)
        if not floats(traced):
            return ZERO, ""
        gradient = grad(total, compile="never")(X)
        single = any(getattr(r, "dtype", None) in SINGLE for r in floats(traced))
        h = 1e-2 if single else 1e-6
        expected = (total(X + h * ALONG) - total(X - h * ALONG)) / (2 * h)
        slope = np.sum(gradient * ALONG)
    close = abs(slope - expected) <= (2e-3 if h > 1e-3 else 1e-6) * (1 + abs(expected))
    return DERIVATIVE if np.any(gradient) else ZERO, "" if close else f"{slope} and {expected}"


SINGLE = (np.float32, np.complex64)


def differs_from(f: Any, traced: Any) -> str:
    """How what is evaluated differs from plain NumPy's."""
    wanted = f(X)
    if isinstance(wanted, (np.ndarray, int, float)):
        return differs(wanted, plain(traced), False)
    kinds = {type(wanted), type(traced)}
    same = len(kinds) == 1 or kinds in ({Flags, type(X.flags)}, {Flat, np.flatiter})
    same = same and (not isinstance(wanted, str) or wanted == traced)
    return "" if same else f"{wanted!r} and {traced!r}"


def weighted(f: Any) -> Any:
    """The sum of all real results of a function, with weights."""

    def total(x: Any) -> Any:
        out: Any = 0.0
        for r in floats(f(x)):
            part = np.sum(np.cos(1.0 + np.arange(np.size(r)).reshape(np.shape(r))) * np.asarray(r))
            out = out + (part.real + 0.5 * part.imag if np.iscomplexobj(part) else part)
        return out

    return total


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


# Refused by what they call, with words of that.
OWN_WORDS = {"array2string", "array_repr", "array_str", "fromiter"}
ADVICE = {(home, name): advice for home, name, advice in declared()}
SHOWN = table() if PAGE.exists() else {}
EACH = sorted({*NAMES, *SHOWN})


@pytest.mark.every(8)
@pytest.mark.parametrize(("home", "name"), EACH)
def test_a_name_is_what_its_class_says(home, name, request, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for those that write files
    if request.config.getoption("--update-golden"):
        pytest.skip("the page is rewritten")
    if (home, name) not in NAMES:
        pytest.skip("not in this NumPy")
    shown = SHOWN.get((home, name))
    assert shown, f"{home}.{name} isn't in docs/numpy.md: give it a call, and run `make golden`"
    kind, words = found(home, name)
    assert kind == shown, words
    if kind == REFUSED:
        assert home == "np.generic" or name in OWN_WORDS or ADVICE[home, name] in words
    else:
        assert not words


def rows(home: str) -> str:
    """The part of the page about a module or class."""
    kinds = {name: found(home, name)[0] for name in public(home)}
    parts = [f"## `{home}`"]
    for of in CLASSES[:3]:
        names = [f"`{name}`" for name in kinds if kinds[name] == of]
        if names:
            parts += [f"**{of}**", wrapped(names)]
    refused: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        if kind == REFUSED:
            refused.setdefault(ADVICE.get((home, name), "?"), []).append(f"`{name}`")
    if refused:
        lines = [f"| {', '.join(names)} | {advice} |" for advice, names in refused.items()]
        parts += [f"**{REFUSED}**", "\n".join(["| | use instead |", "|---|---|", *lines])]
    return "\n\n".join(parts)


def wrapped(names: list[str]) -> str:
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > 98:
            lines.append("")
        lines[-1] += ("" if not lines[-1] else " ") + name
    return "\n".join(lines)


START = "<!-- the names: made of tests/frontend/names_test.py -->"


def test_the_page_is_up_to_date(request):
    if request.config.getoption("--update-golden"):
        before = PAGE.read_text().split(START)[0]
        PAGE.write_text(f"{before}{START}\n\n" + "\n\n".join(map(rows, HOMES)) + "\n")
    advice = {(home, name) for home, name in ADVICE if (home, name) in NAMES}
    refused = {name for name, kind in table().items() if kind == REFUSED}
    assert refused & {*NAMES} == advice
