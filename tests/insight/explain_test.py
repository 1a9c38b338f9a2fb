"""What `explain` says of calls: each part, of programs that are planted."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest

import tapegrad
from tapegrad import explain, grad, jit, value_and_grad
from tapegrad.core.values import Source
from tapegrad.errors import TraceError

X = np.arange(1.0, 5.0)
RATE = 3.0


def explained(f, *calls, compile="never"):
    df = grad(f, compile=compile)
    df.clear_cache()
    for call in calls[:-1]:
        df(*call)
    return df.explain(*calls[-1])


def test_what_answered():
    def f(x):
        return np.sum(np.exp(x) * x)

    assert explained(f, (X,)).answered == 'variant 1 of 1, played by NumPy: compile="never"'
    found = explained(f, (X,), (X,), compile="always")
    assert found.answered.startswith("variant 1 of 1, by machine code")
    assert found.function == "grad_f"
    assert "was compiled: " in found.traces[1] or "was found compiled" in found.traces[1]


def test_each_trace_with_what_has_changed():
    """From which value to which one, at which line, and what to do."""
    global RATE

    def f(x, n):
        return np.sum(x[:n]) * RATE if x[0] > 0 else np.sum(x**2)

    RATE = 3.0
    df = grad(f, compile="never")
    df.clear_cache()
    df(X, 2), df(X, 3), df(-X, 3), df(X, 3)
    RATE = 4.0
    df(X, 3)
    traces = df.explain(X[:3], 3).traces
    line = "return np.sum(x[:n]) * RATE if x[0] > 0 else np.sum(x**2)"
    assert len(traces) == 5 and all(text.startswith("grad_f, ") for text in traces)
    assert "an integer used as an index" in traces[1] and traces[1].endswith("(2 --> 3)")
    assert "a condition (explain_test.py:" in traces[2] and line in traces[2]
    assert "np.where" in traces[2] and traces[2].endswith("(True --> False)")
    assert "'RATE'" in traces[3] and traces[3].endswith("Pass it as an argument (3.0 --> 4.0)")
    assert traces[4].endswith("has changed is argument 'x' (f8[4] --> f8[3])")


def test_a_trace_is_told_from_what_came_closest():
    """A branch further in is named, not where the last call went another way; nor a branch, where
    the path was known with another value outside."""
    global RATE

    def f(x):
        if x[0] > 0:
            y = x * RATE if x[1] > 0 else x * 4.0
            y = y * y if x[2] > 0 else y
        else:
            y = x
        return np.sum(y)

    RATE = 3.0
    df = grad(f, compile="never")
    df(X), df(-X), df(X * [1, -1, 1, 1]), df(X * [1, 1, -1, 1])
    found = df.explain(X * [1, -1, -1, 1]).traces
    lines = ("if x[0] > 0:", "x[1] > 0", "x[2] > 0", "x[2] > 0")
    for text, line in zip(found[1:], lines, strict=True):
        assert "a condition (explain_test.py:" in text and line in text
    df(-X)
    RATE = 5.0
    assert "'RATE'" in df.explain(X).traces[-1]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("name", "other", "'name' --> 'other'"),
        ([1, 2], [1, 2, 3], "([1, 2] --> [1, 2, 3])"),
        (np.ones(3), np.ones(4), "What keeps changing is "),
        (None, 1.0, "(None --> 1.0)"),
    ],
)
def test_what_has_changed_outside(before, after, said):
    kept = {"it": before}

    def f(x):
        it = kept["it"]
        if isinstance(it, str):
            return np.sum(x) * len(it) if it == "name" else np.sum(x)
        return np.sum(x) * (1.0 if it is None else np.sum(np.asarray(it)) * it_count(it))

    def it_count(it):
        return len(it) if hasattr(it, "__len__") else it if it > 2 else 1

    df = grad(f, compile="never")
    df(X)
    kept["it"] = after
    text = df.explain(X).traces[-1]
    assert said in text, text


class Filter:
    window = 2

    def loss(self, x):
        v = np.zeros(x.size - self.window)
        for k in range(self.window):
            v = v + x[k : x.size - self.window + k] ** 2
        return np.sum(v)


def test_a_number_that_decides_shapes_and_changes():
    """It is an input in front of the loop, and a constant where one round stands for all."""
    model, x = Filter(), np.arange(40.0)
    df = grad(model.loss, compile="never")
    for window in (2, 20):
        model.window = window
        df(x)
    model.window = 30
    with pytest.warns(RuntimeWarning, match="What keeps changing is 'window'"):
        df(x)


def test_loops_of_the_program():
    def f(x):
        s = 0.0
        for k in range(50):
            s = s + np.sin(x[k % 4]) * s
        h = np.outer(x, x)
        for _ in range(3):
            h = h[:, 1:] * 0.5
        return s + np.sum(h)

    loop, unrolled = explained(f, (X,)).loops
    assert "`for k in range(50):` is a loop of the tape" in loop
    assert "`for _ in range(3):` was unrolled: the tape has its lines 3 times. Fewer" in unrolled
    assert "tapegrad.range" not in unrolled  # which wouldn't help, as shapes differ


def test_what_became_kernels_and_calls():
    def f(x):
        A = np.outer(x, x) + np.eye(4)
        return np.sum(np.linalg.solve(A, np.tanh(x)) * np.exp(x))

    found = explained(f, (X,))
    assert all("explain_test.py:" in text for text in found.kernels) and found.kernels
    assert any(text.startswith("lu: explain_test.py:") for text in found.calls)
    assert any("f8[4,4], 128 B, of lu at" in text for text in found.kept)


def test_what_is_kept_and_what_is_made_again():
    """Machine code of large arrays keeps none of them; checkpoints have rounds made again."""

    def large(x):
        return np.sum(np.exp(np.sin(np.outer(x, x)) ** 2))

    x = np.linspace(0, 1, 1000)
    played, compiled = [explained(large, (x,), compile=mode).kept for mode in ("never", "always")]
    assert len(played) == len(compiled) == 3 and "f8[1000,1000], 8.0 MB, of " in played[0]
    assert not any("takes no memory" in text for text in played)
    assert all(text.endswith("takes no memory: it is made where it is read") for text in compiled)

    def settle(x):
        for _ in range(500):
            x = x + 0.001 * np.sin(x) * np.roll(x, 1)
        return np.sum(x**2)

    for checkpoint in ("sqrt", "never"):
        found = value_and_grad(settle, compile="never", checkpoint=checkpoint).explain(X)
        (loop,), again = found.loops, [text for text in found.kept if "made again" in text]
        assert loop.endswith("is a loop of the tape, of up to 500 rounds")
        assert len(again) == (checkpoint == "sqrt")
        assert all("from what is kept every 23 rounds" in text for text in again)


def test_why_cores_do_not_share_a_kernel():
    """Too little to do, rounds that go on from each other, a library."""

    def long(x):
        s = 0.0
        for _ in range(200_000):
            s = s * 0.5 + np.sin(s + x[0])
        return s

    def large(x):
        return np.sum(np.exp(np.outer(x, x)))

    found = explained(long, (X,))
    assert "by one core, as the rounds of a loop go on from each other" in found.kernels[0]
    (text,) = found.alone
    assert "`for _ in range(200_000):` (kernel 1): the rounds of a loop go on from" in text
    assert "as there is too little to do" in explained(large, (X,)).kernels[0]
    assert "1 loop shared by the cores" in explained(large, (np.ones(2000),)).kernels[0]
    inverse = explained(lambda x: np.sum(np.linalg.inv(np.outer(x, x) + np.eye(4))), (X,))
    assert any("runs in a library" in kernel for kernel in inverse.kernels)


def test_what_is_traced_at_each_call_says_so():
    def f(x):
        return np.sum(x) * sys.getrefcount(x)

    found = explained(f, (X,))
    assert "traced at each call" in found.answered and "explain_test.py:" in found.answered


def test_functions_methods_and_pages():
    def f(x, y):
        return np.sum(x * y)

    found = explain(f, X, 2.0)
    assert found.function == "f" and isinstance(found, tapegrad.insight.explaining.Explanation)
    json.dumps(found.to_dict())
    assert {"loops", "kernels", "kept", "calls"} < found.to_dict().keys()
    assert str(found).splitlines()[2] == "Traced and compiled" and repr(found) == str(found)
    html = found._repr_html_()
    assert html.count("<details") == html.count("</details>") == 6
    assert explain(value_and_grad(f), X, 2.0).function == "value_and_grad_f"

    class Model:
        w = 2.0

        @jit
        def energy(self, x):
            return self.w * np.sum(x)

    assert Model().energy.explain(X).function == explain(Model().energy, X).function == "energy"
    escaped = explain(lambda x: np.sum(x[x < 3]) if len(x) < 9 else 0.0, X)._repr_html_()
    assert "<lambda>" not in escaped


def test_what_a_derived_function_says_of_itself():
    def f(x):
        return np.sum(x * 1.5) if x[0] > 0 else np.sum(x)

    played, compiled = grad(f, compile="never"), grad(f, compile="always")
    assert repr(played) == "<tapegrad grad of f>"
    played(X), played(-X), compiled(X)
    assert repr(played) == "<tapegrad grad of f: 2 variants, 0 compiled>"
    assert repr(compiled) == "<tapegrad grad of f: 1 variant, 1 compiled>"


TABLE = np.ones(4)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (np.ones((2, 4)), "(f8[4] --> f8[2,4])"),
        (np.ones(8)[::2], "(f8[4] in C's order --> f8[4] of the strides (16,))"),
        (2.0, "(f8[4] --> float)"),
        ([1.0] * 4, "(f8[4] --> [1.0, 1.0, 1.0, 1.0])"),
    ],
)
def test_an_array_outside_is_named_each_time_that_it_is_replaced(now, said):
    """Later, too, when it is an input since it was replaced before."""
    global TABLE

    class Model:
        def __init__(self):
            self.table = np.ones(4)

        def of_self(self, x):
            return np.sum(self.table * x)

        def of_module(self, x):
            return np.sum(TABLE * x)

    closed = TABLE = np.ones(4)
    model = Model()
    functions = {
        "table": model.of_self,
        "TABLE": model.of_module,
        "closed": lambda x: np.sum(closed * x),
    }
    for name, f in functions.items():
        df = grad(f, compile="never")
        for value in (np.ones((1, 4)), np.ones(4), now):
            model.table = closed = TABLE = value
            df(X)
        text = df.explain(X).traces[-1]
        assert f"the kind, shape or layout of {name!r} (explain_test.py:" in text, text
        assert text.endswith(said)


def test_other_arguments_are_told_by_what_they_are():
    def f(x, n=2, mode="a"):
        return np.sum(x**n) if mode == "a" else np.sum(x * n)

    calls = [(X,), (X, 3), (X, 3, "b"), (X[::-1], 3, "b")]
    traces = explained(f, *calls, calls[-1]).traces
    assert traces[1].endswith(
        "What has changed is which arguments are passed (f8[4] --> f8[4], int)"
    )
    assert traces[2].endswith("(f8[4], int --> f8[4], int, 'b')")
    assert traces[3].endswith("'x' (f8[4] in C's order --> f8[4] of the strides (-8,))")
    df = grad(lambda p: np.sum(p[0] * p[1]), compile="never")
    df([X, X]), df((X, X))
    assert (
        df.explain((X, X)).traces[-1].endswith("how the arguments are passed, or what holds them")
    )


def test_an_attribute_that_now_hides_that_of_the_class():
    class Settings:
        rate = 0.5

    settings = Settings()
    df = grad(lambda x: np.sum(x * settings.rate), compile="never")
    df(X)
    settings.rate = 0.25
    df(X)
    assert df.explain(X).traces[-1].endswith("(nothing --> 0.25)")


@pytest.mark.every(2)
@pytest.mark.parametrize("what", ["explain", "profile", "lower", "compile"])
def test_derivatives_that_are_written_into_arrays(what):
    """`out=` goes along with the arguments."""

    def f(x):
        return np.sum(np.exp(x) * x)

    places = np.zeros(4)
    df = grad(f, out=places, compile="never")
    found = getattr(df, what)(X)
    if what == "compile":
        assert found is df
    elif what == "lower":
        assert "exp" in str(found.tape)
    else:
        assert found.function == "grad_f"
        np.testing.assert_allclose(places, np.exp(X) * (1 + X))
        assert getattr(tapegrad, what)(df, X).function == "grad_f"


def test_the_line_that_missed_an_entry():
    rates = {}

    def f(x):
        rate = rates.get("fast", 1.0)
        return np.sum(x) * rate

    df = grad(f, compile="never")
    df(X)
    rates["fast"] = 4.0
    found = df.explain(X).traces[-1]
    assert "`rate = rates.get" in found and "(nothing --> 4.0)" in found


@pytest.mark.parametrize("what", ["explain", "profile", "lower", "compile"])
def test_inside_of_a_traced_function(what):
    df = grad(lambda x: np.sum(x**2))

    def f(x):
        getattr(df, what)(x)
        return x

    with pytest.raises(TraceError, match=r"inside of a function that is traced \(explain_test.py"):
        jit(f)(X)


def test_warnings_stand_at_the_programs_line():
    kept = {"a": 1.0}
    g = value_and_grad(lambda x: np.sum(x) * len(kept), compile="never")
    with pytest.warns(RuntimeWarning, match="three calls in a row") as found:
        for k in range(5):
            kept[k] = 1.0
            g(np.ones(3))
    assert found[0].filename == __file__


def undefined(x):
    y = np.log(x)
    y = y + 1 / x
    total = 0.0
    for k in range(30):
        total = total + np.arccos(x[k] + 2.0)
    with np.errstate(over="ignore"):
        z = np.exp(x + 800.0) + 1 / x
    assert np.geterr()["divide"] == "warn"
    return np.sum(y) + total + np.mean(np.sqrt(x - 1.0)) + np.sum(z)


@pytest.mark.parametrize("derive", [jit, grad, tapegrad.vmap])
def test_numpys_own_warnings_stand_at_the_programs_line(derive):
    """As without tapegrad: each line's, though a filter shows one of a line only; or as errors."""
    x = np.zeros((1, 30)) if derive is tapegrad.vmap else np.zeros(30)
    first = undefined.__code__.co_firstlineno
    options = {} if derive is tapegrad.vmap else {"compile": "never"}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        derive(undefined, **options)(x)
    lines = {(w.lineno - first, str(w.message)) for w in found if "encountered" in str(w.message)}
    assert {w.filename for w in found} == {__file__}
    assert {line for line, _ in lines} >= {1, 2, 5, 7, 9}
    assert (1, "divide by zero encountered in log") in lines
    assert (7, "divide by zero encountered in divide") in lines
    with warnings.catch_warnings(), pytest.raises(RuntimeWarning, match="in log"):
        warnings.simplefilter("error")
        derive(lambda x: undefined(x), **options)(x)


def test_traces_for_one_reason_are_one_sentence():
    """With their number and the last change; what is forgotten for them is no trace."""
    kept = []

    def f(x):
        return np.sum(x) * len(kept)

    df = grad(f, compile="never")
    for _ in range(30):
        kept.append(1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            df(X)
    traces = df.explained().traces
    assert len(traces) == 2 and traces[1].endswith("(29 times, last 29 --> 30)")


NOISE = np.linspace(0.0, 1.0, 600_000)
CELL = np.arange(600_000) % 7


def bins(a):
    mesh = np.zeros(7)
    np.add.at(mesh, CELL, np.exp(a * NOISE))
    other = np.bincount(CELL, weights=np.sin(a * NOISE), minlength=7)
    return np.sum(mesh**2) + np.sum(other**2)


def running(a):
    sums = np.cumsum(np.exp(a * NOISE))
    most = np.maximum.accumulate(np.cos(a * NOISE))
    return np.sum(sums**2) + np.sum(np.cumprod(most))


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (bins, {"np.add.at(": "rounds may add to the", "np.bincount(": "rounds may add to the"}),
        (lambda a: np.argmax(np.sin(a * NOISE)), {"np.argmax": "last one's argmax. One for each"}),
        (
            running,
            {
                "np.cumsum": "last one's running sum. One for each",
                "np.maximum.accumulate": "no loop of it is long enough",  # of borders
                "np.cumprod": "product.",
            },
        ),
    ],
)
def test_what_cores_do_not_share(f, said):
    """Each line that keeps them from it, though others do, too; and what to do."""
    found = jit(f, compile="never").explain(0.5)
    for line, why in said.items():
        assert sum(line in x.partition(" (kernel")[0] and why in x for x in found.alone) == 1
    assert len(found.alone) == len(said)
    assert all("is shared" in x or "sort the data" in x for x in found.alone)
    assert "What cores don't share, and why\n  explain_test.py:" in str(found)


def test_cores_that_have_no_room():
    """The result is a matrix of 1 MB, and arrays beside it may take as much: two long rows don't
    fit, two short ones do."""

    def f(v, n):
        sums = np.cumsum(np.outer(v[:16], np.cumsum(np.full(n, v[0]))), axis=1)
        return np.sum(sums / sums[:, -1:], axis=1), np.outer(v, v)

    v = np.linspace(1.0, 2.0, 400)
    found = jit(f, compile="never").explain(v, 200_000)
    (text,) = found.alone
    assert "`sums = np.cumsum(" in text and "(kernel 1): each core would need an array of" in text
    assert "there is no room" in text and "by one core, as each core would" in found.kernels[0]
    found = jit(f, compile="never").explain(v, 20_000)
    assert not found.alone and any("shared by the cores" in text for text in found.kernels)


def test_what_cores_have_found_is_added_up_by_one():
    table = np.ones((50, 400_000))
    found = jit(lambda a: np.sum(np.sin(a @ table)), compile="never").explain(np.ones(50))
    (text,) = [x for x in found.alone if "adds up what each of them has found" in x]
    assert "explain_test.py:" in text and not any("no room" in x for x in found.alone)


def test_products_of_few_rows_and_columns():
    f = jit(lambda a, b: a @ b, compile="never")
    (text,) = f.explain(np.ones((100, 900)), np.ones((900, 100))).alone
    assert "(kernel 1): the product has few rows and columns. Products of several vectors" in text
    found = f.explain(np.ones((200, 900)), np.ones((900, 100)))
    assert not found.alone and "1 product shared by the cores" in found.kernels[0]


def test_what_is_written_beside_its_rows_is_shared():
    """Shifted, backwards, and in steps: each core has rows of its own."""

    def f(a):
        x = np.exp(a * NOISE)
        y = np.zeros(1_800_000)
        y[5:600_005] = x
        y[600_005:1_800_000:2] = x[:599_998]
        return np.concatenate([x[::-1], y])

    found = jit(f, compile="never").explain(0.5)
    assert not found.alone and all("shared by" in x or "too little" in x for x in found.kernels)


def test_products_are_counted_as_such():
    matrix = np.ones((300, 300))
    (kernel,) = jit(lambda x: x @ x, compile="never").explain(matrix).kernels
    assert kernel.startswith("1. 1 product ") and "statement" not in kernel


# fmt: off
def pieces(x):
    y = np.sum(
        [
            np.sin(x[k])  # of each
            for k in range(
                3
            )
        ]
    )
    if (
        y > 0
        and x[0] > 0
    ):
        y = y + 1.0
    for a in [
        1.0,
        x[1],
    ]:
        y = np.where(
            a > 0,
            y, -y
        )
    return y
# fmt: on


PIECES = """
y = np.sum([np.sin(x[k]) for k in range(3)])
[np.sin(x[k]) for k in range(3)]
np.sin(x[k])  # of each
for k in range(3)
3
for k in range(3)
[np.sin(x[k]) for k in range(3)]
y = np.sum([np.sin(x[k]) for k in range(3)])
if (y > 0 and x[0] > 0):
y > 0
y > 0 and x[0] > 0
if (y > 0 and x[0] > 0):
y = y + 1.0
for a in [1.0, x[1]]:
1.0,
x[1],
for a in [1.0, x[1]]:
y = np.where(a > 0, y, -y)
a > 0,
y, -y
y = np.where(a > 0, y, -y)
return y
"""


def test_pieces_of_statements_are_quoted_with_what_begins_there():
    first = pieces.__code__.co_firstlineno + 1
    for line, text in enumerate(PIECES.strip().splitlines(), first):
        assert Source(__file__, line).text == text
    assert "`[np.sin(x[k]) for k in range(3)]` was unrolled" in explained(pieces, (X,)).loops[0]


def test_a_compilation_counts_all_kernels_and_those_that_were_new():
    def f(x):
        return np.linalg.solve(np.outer(x, x) + np.eye(len(x)), np.fft.fft(x).real)

    for n in (5, 9):
        x = np.arange(1.0, n)
        df = jit(f, compile="always")
        found = df.explain(x)
        parts = [x.name for x in df.profile(x, calls=1).parts if x.name.startswith("kernel")]
        assert len(parts) == len(df.lower(x).plan.steps) or len(parts) > 1
        assert not [t for t in found.traces if "was compiled" in t] or any(
            f"; {len(parts)} kernels" in text for text in found.traces
        )
