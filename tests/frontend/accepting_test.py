"""What NumPy and SciPy refuse is refused with their error, and what they take is taken.

The table of calls of every public name is read, and odd arguments are put in it: floats where
integers belong, unknown modes, masks that are too short. A call that raises in plain NumPy raises
an exception of the same class where it is traced. One that doesn't has NumPy's value, or isn't
followed and says so. `make fuzz` tries all, `make test` a few of each name.
"""

from __future__ import annotations

import array
import ast
import importlib
import inspect
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.sparse
from tests.frontend import names_test as numpys
from tests.frontend.check import builtin_kind
from tests.fuzzing import NEW
from tests.scipy import names_test as scipys

from tapegrad import grad, jit, value_and_grad
from tapegrad.core.request import Request
from tapegrad.errors import TapegradError, UnsupportedError
from tapegrad.observe.answers.answers import look_for_modules, row_of
from tapegrad.observe.answers.swapping import Names
from tapegrad.tracing.frontend.numpy.functions import function_of
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.runs.run import trace_function

ODD = "0.5 1.0 -7 99 'odd' None (0,) [0,1,2] np.zeros(2) np.array([1]) True np.nan x s x>0.5 x[0]"
WIDELY = ("axis", "out", "casting", "mode", "kind", "nonsense")  # tried with every function
EACH = 3  # calls of each name, where not all are tried
HOMES = {"scipy.linalg", "scipy.fft", "scipy.spatial.distance", "scipy.special", "scipy.stats"}
X = numpys.X
NAMES = {"np": np, "fft": scipy.fft, "linalg": scipy.linalg, "sparse": scipy.sparse}


def variants(text: str, name: str, function: Any) -> Iterator[str]:
    """The call of a name in a text, with an odd argument in each place."""
    tree = ast.parse(text, mode="eval").body
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    ]
    if not calls or "lambda" in ast.unparse(calls[0]):
        return
    call, odd = calls[0], [ast.parse(x, mode="eval").body for x in ODD.split()]
    for k, given in enumerate(call.args):
        for x in odd:
            call.args[k] = x
            yield ast.unparse(tree)
        call.args[k] = given
    for keyword in call.keywords:
        given = keyword.value
        for x in odd:
            keyword.value = x
            yield ast.unparse(tree)
        keyword.value = given
    for key in dict.fromkeys([*further(function, len(call.args)), *WIDELY]):
        if key not in {keyword.arg for keyword in call.keywords}:
            for x in odd:
                call.keywords.append(ast.keyword(key, x))
                yield ast.unparse(tree)
                call.keywords.pop()


def further(function: Any, count: int) -> list[str]:
    """The names of parameters that aren't passed."""
    if isinstance(function, np.ufunc):
        return ["where", "axes", "keepdims", "order", "dtype", "subok", "signature"]
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    left = ("like", "device")  # another library's business
    named = [p.name for p in found[count:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [name for name in named if name not in left]


def chosen(texts: list[str]) -> list[str]:
    """All of them, or the same few each time."""
    if NEW:
        return texts
    return sorted(texts, key=lambda text: zlib.crc32(text.encode()))[:EACH]


def outcome(f: Any) -> Any:
    """The result, or what is raised."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return f(X.copy())
        except Exception as error:
            return error


def traced(f: Any) -> Any:
    """The same while it is traced."""
    found: list[Any] = []

    def g(x: Any) -> float:
        try:
            found.append(iter([f(x)]))
        except Exception as error:
            found.append(iter([error]))
        return 0.0

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            trace_function(Request(g, [X.copy()]))
        except TapegradError as error:
            return next(found[0]) if found else error
    return next(found[0])


def disagreement(plain: Any, ours: Any, settled: bool = True) -> str:
    """What is otherwise where it is traced; of results that are `settled` their values too."""
    if isinstance(ours, TapegradError):
        return ""
    if isinstance(plain, Exception) or isinstance(ours, Exception):
        kinds = [builtin_kind(type(x)) if isinstance(x, Exception) else x for x in (plain, ours)]
        return "" if kinds[0] is kinds[1] else f"{plain!r}, and traced {ours!r}"
    return (
        "" if not settled or same(plain, numpys.plain(ours)) else f"{plain!r}, and traced {ours!r}"
    )


def same(x: Any, y: Any) -> bool:
    """Whether numbers are the same up to rounding. Of what isn't numbers that isn't asked."""
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) != len(y) or all(map(same, x, y))
    if not all(isinstance(v, (np.ndarray, np.number, int, float, complex)) for v in (x, y)):
        return True
    if any(np.asarray(v).dtype.kind not in "fciub" for v in (x, y)):
        return True
    size = np.max(np.abs(np.where(np.isfinite(x), x, 0)), initial=0)
    return np.allclose(x, y, 1e-5, 1e-5 * size, equal_nan=True)


def leaves_open(text: str) -> bool:
    """Whether NumPy leaves anything in the result: memory as it finds it."""
    return "empty" in text or ("where=" in text and "out=" not in text)


def checked(texts: list[str], function: Any) -> None:
    functions, plain = {}, {}
    for text in chosen(texts):
        with suppress(SyntaxError):
            functions[text] = function(text)
            plain[text] = outcome(functions[text])
    with Names():  # which takes as long for all as for one
        ours = {
            text: traced(f)
            for text, f in functions.items()
            if not isinstance(plain[text], MemoryError)
        }
    found = {text: disagreement(plain[text], x, not leaves_open(text)) for text, x in ours.items()}
    assert not any(found.values()), "\n".join(
        f"{t}: {wrong}" for t, wrong in found.items() if wrong
    )


def of_numpy() -> Iterator[tuple[str, str, Any]]:
    """Functions that the front end has."""
    for home, name in numpys.NAMES:
        function = getattr(next(of for of in numpys.HOMES[home] if hasattr(of, name)), name)
        if not callable(function):
            continue
        known = name in METHODS if home == "np.ndarray" else function_of(function)
        if known or isinstance(function, np.ufunc) or row_of(function) is not None:
            yield home, name, function


def of_scipy() -> Iterator[tuple[str, str, Any]]:
    """Functions that are answered."""
    for home, name in scipys.NAMES:
        function = getattr(importlib.import_module(home), name)
        look_for_modules()
        row = row_of(function)
        if home in HOMES and row is not None and not hasattr(row.by, "refuses"):
            yield home, name, function


@pytest.mark.every(8)
@pytest.mark.parametrize("home, name, function", list(of_numpy()))
def test_numpy_and_a_trace_take_the_same(home, name, function):
    checked(list(variants(numpys.call_of(home, name), name, function)), numpys.function)


@pytest.mark.every(16)
@pytest.mark.parametrize("home, name, function", list(of_scipy()))
def test_scipy_and_a_trace_take_the_same(home, name, function):
    text = scipys.calls_of(home, name)[0].lstrip("!")
    checked(list(variants(text, name, function)), lambda text: scipys.function(home, text))


REFUSED = {
    "np.interp(x[0], [0, 1], [0, 1, 2])": ValueError,
    "sparse.csr_array((np.append(x[0], s), [0, 1, 2], [0, 1, 2, 3])).toarray()": ValueError,
    "np.putmask(x * 1, np.array([True]), x)": ValueError,
    "np.take_along_axis(x, np.array([0]), 0)": ValueError,
    "np.max(x, out=np.zeros(2))": ValueError,
    "np.meshgrid(x[0], x[1], indexing='ik')": ValueError,
    "np.argsort(x, kind='odd')": ValueError,
    "np.pad(x, 1, mode='odd')": ValueError,
    "np.add(x, x, casting='odd')": ValueError,
    "np.diag(x, 0.5)": TypeError,
    "np.round(x, 1.5)": TypeError,
    "np.fft.fft(x, 1.5)": TypeError,
    "fft.fft(x, 1.5)": TypeError,
    "linalg.logm(x * np.nan)": ValueError,
    "s[0]": IndexError,
    "np.sum(x)['k']": IndexError,
    "'a' + s": TypeError,
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_has_the_librarys_own_words(text):
    f = eval(f"lambda x: (lambda s: np.sum({text}))(x[0, 0])", NAMES)
    plain, played = outcome(f), jit(f, compile="never")
    assert isinstance(plain, REFUSED[text])
    for _ in range(2):
        with pytest.raises(REFUSED[text]) as caught:
            played(X)
        assert str(caught.value).startswith(str(plain)[:30])


TAKEN = [
    "np.roll(x, 1.5)",
    "np.take(x, 1.0)",
    "np.take(x, [0.0, 1.7])",
    "np.repeat(x, [2.5])",
    "np.take(x, x > 0.5)",
    "np.isclose(x, [0.9, 0.1, 0.4])",
    "np.select([x < 0.5], [x * x], [1, 2, 3])",
    "np.linalg.norm(x, axis=1.0)",
    "np.arange(0.1, 9 * s, x[0, 1])",
    "np.arange(s, 4.0)",
    "x.view(np.ndarray)",
    "np.array(x, copy=np._CopyMode.IF_NEEDED)",
]


@pytest.mark.every(2)
@pytest.mark.parametrize("text", TAKEN)
def test_what_is_taken_has_its_derivative(text):
    f = eval(f"lambda x: (lambda s: np.sum({text} * 1.5))(x[0, 0])", NAMES)
    for mode in ("never", "always"):
        value, slopes = value_and_grad(f, compile=mode)(X)
        assert np.allclose(value, f(X))
        assert np.isclose(np.sum(slopes * numpys.ALONG), scipys.slope_of(f, X, numpys.ALONG))


def test_after_an_error_that_is_caught_nothing_is_silently_wrong():
    def put(x, mask):
        y = x * 1
        try:
            np.putmask(y, mask, 0.0)
        except ValueError:
            return np.sum(y * 2)
        return np.sum(y * 3)

    with pytest.raises(UnsupportedError, match="caught"):
        grad(put)(np.arange(3.0), np.array([True]))
    assert np.allclose(grad(put)(np.arange(3.0), np.array([True, False, True])), [0, 3, 0])

    def read(x, n):
        try:
            return np.sum(np.interp(x, [0.0, 1.0], np.ones(n)) * x)
        except ValueError:
            return np.sum(x)

    slope = grad(read, compile="never")
    for n in (2, 3, 2):
        assert np.allclose(slope(np.array([0.2, 0.4]), n), 1)


@pytest.mark.parametrize("odd", ["odd", None, {}, np.array(["a"])])
def test_what_isnt_a_number_is_refused_by_ufuncs_of_both_libraries(odd):
    for f in (
        lambda x: scipy.special.iv(odd, x),
        lambda x: np.hypot(x, odd),
        lambda x: np.add(x, odd),
        lambda x: scipy.special.gdtria(x, x, odd),
    ):
        with pytest.raises(Exception) as plain:
            f(np.ones(2))
        with pytest.raises(type(plain.value)):
            jit(f, compile="never")(np.ones(2))


@pytest.mark.parametrize("rcond", [None, -1.0, 0.0, 0.5, 1.0, 1.5])
def test_lstsq_cuts_singular_values_where_lapack_does(rcond):
    a, b = np.array([[0.9, 0.1], [0.3, 0.8], [0.6, 0.3]]), np.array([0.7, 0.2, 0.1])
    for f in (
        lambda a: np.linalg.lstsq(a, b, rcond=rcond)[0],
        lambda a: scipy.linalg.lstsq(a, b, cond=rcond)[0],
    ):
        np.testing.assert_allclose(jit(f, compile="never")(a), f(a), rtol=1e-12)


@pytest.mark.parametrize(
    "write",
    [
        lambda buffer, x: np.copyto(buffer, x),
        lambda buffer, x: np.add(x, x, out=buffer),
        lambda buffer, x: np.put(buffer, [0], x[0]),
        lambda buffer, x: np.place(buffer, [True, False], x[0]),
        lambda buffer, x: np.put_along_axis(buffer, [0], x[0], 0),
    ],
)
def test_what_numpy_refuses_of_arrays_that_are_not_its_own(write: Any) -> None:
    buffer, x = array.array("d", [0.0, 0.0]), np.ones(2)
    with pytest.raises((TypeError, AttributeError)) as plain:
        write(buffer, x)
    with pytest.raises(plain.type, match=re.escape(str(plain.value))):
        jit(lambda x: write(buffer, x), compile="never")(x)
