"""`debug=`: the first value that isn't finite, with its line, operands and rounds; and hooks."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
import webbrowser
from pathlib import Path

import numpy as np
import pytest

from tapegrad import grad, jit, trace, value_and_grad
from tapegrad.errors import ArgumentError, NotFiniteError, TapeError, TapegradError
from tapegrad.insight import drawing

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, of such values
X = np.array([1.0, 2.0, 3.0])


def found(f, *args, **options):
    with pytest.raises(FloatingPointError) as error:
        grad(f, debug=True, **options)(*args)
    assert isinstance(error.value, NotFiniteError) and isinstance(error.value, TapegradError)
    return error.value.finding


def logs(x):
    y = x * 2.0
    z = np.log(y)
    return np.sum(z * y)


def test_values():
    """The primitive, the line, the value and what it was made of."""
    finding = found(logs, np.array([1.0, 0.0, 4.0]))
    assert finding.src.text == "z = np.log(y)" and not finding.is_cotangent
    np.testing.assert_array_equal(finding.value, np.log([2.0, 1e-320, 8.0]) * [1, np.inf, 1])
    np.testing.assert_array_equal(finding.operands[0], [2.0, 0.0, 8.0])
    assert finding.call.primitive.name == "log" and finding.rounds == ()
    text = str(finding)
    assert "log gave a value, float64 of the shape (3,)" in text and "z = np.log(y)" in text
    assert "1 infinite of 3, the first at (1,)" in text and "from 0 to 8" in text
    assert "tape: %" in text


def test_cotangents():
    """The value is finite, and its slope isn't."""
    finding = found(lambda x: np.sum(np.arcsin(x)), np.array([0.5, 1.0]))
    assert finding.is_cotangent and "gave a cotangent" in str(finding)
    assert "np.arcsin(x)" in finding.src.text
    assert np.isfinite(jit(lambda x: np.sum(np.arcsin(x)), debug=True)(np.array([0.5, 1.0])))


def test_rounds_of_loops():
    def f(x):
        s = 0.0
        for k in range(30):
            for j in range(20):
                s = s + np.log(x[k] - j)
        return s

    x = np.arange(30) + 100.0
    assert np.isfinite(grad(f, debug=True)(x)).all()
    x[17] = 5.0
    finding = found(f, x)
    assert [number for _, number in finding.rounds] == [17, 5]
    assert [src.text for src, _ in finding.rounds] == ["for k in range(30):", "for j in range(20):"]
    assert "in round 5 of the loop at" in str(finding)


def test_what_rules_mask_is_no_finding():
    x = np.array([0.0, 1.0, 4.0])
    value, slope = value_and_grad(
        lambda x: np.sum(np.sqrt(x) * np.where(x > 0, 1.0, 0.0)), debug=True
    )(x)
    assert value == 3.0
    np.testing.assert_allclose(slope, [0, 0.5, 0.25])


def test_what_a_rule_makes_not_finite_is_found_where_it_is_made():
    def f(x):
        size, axes = np.linalg.eigh(x)
        return axes[0, 1] + np.sum(size)

    finding = found(f, 96 * np.eye(3))
    assert finding.is_cotangent and finding.call.reason == "cotangent via eigh"
    assert all(np.isfinite(x).all() or x.shape == () for x in finding.operands)  # the rule's NaN
    assert any(np.array_equal(x, [96, 96, 96]) for _, x in finding.read)
    assert "the rule read what eigh gave: float64 of the shape (3,), from 96 to 96" in str(finding)
    assert "size, axes = np.linalg.eigh(x)" in str(finding)


def test_what_is_kept_for_derivatives_may_be_unset():
    def f(x):
        s = x[0]
        for _ in range(50):
            s = np.sin(s) * x[1] + x[2]
        return s

    np.testing.assert_allclose(grad(f, debug=True)(X), grad(f)(X), rtol=1e-12)


def test_hooks_see_all():
    seen = []
    df = value_and_grad(lambda x: np.sum(np.exp(x) * 3.0), debug=seen.append)
    value, slope = df(X)
    np.testing.assert_allclose(slope, 3 * np.exp(X), rtol=1e-14)
    names = [(x.call.primitive.name, x.is_cotangent) for x in seen]
    assert names[:3] == [("exp", False), ("mul", False), ("sum", False)]
    assert names[-1] == ("mul", True) and all(x.is_finite for x in seen)
    np.testing.assert_array_equal(seen[-1].value, slope)
    assert seen[2].value == value


def test_hooks_cannot_change_what_is_computed():
    def hook(finding):
        for x in (finding.value, *finding.operands):
            if isinstance(x, np.ndarray) and x.ndim:
                with pytest.raises(ValueError, match="read-only"):
                    x[...] = 0.0

    value, slope = value_and_grad(lambda x: np.sum(np.exp(x) * x), debug=hook)(X)
    assert value == np.sum(np.exp(X) * X)
    np.testing.assert_allclose(slope, np.exp(X) * (X + 1), rtol=1e-14)


def test_hooks_that_raise_are_the_programs():
    def hook(finding):
        if np.max(np.abs(finding.value)) > 50:
            raise ZeroDivisionError("big")

    df = grad(lambda x: np.sum(np.exp(x) ** 2), debug=hook)
    for _ in range(3):
        np.testing.assert_allclose(df(X[:1]), 2 * np.exp(2 * X[:1]), rtol=1e-13)
        with pytest.raises(ZeroDivisionError, match="big"):
            df(X * 2)


def test_later_calls_draws_and_what_is_left():
    """Each call is watched, draws once, and leaves what a plain one leaves."""

    class Model:
        def __init__(self):
            self.calls, self.noise, self.last = 0, np.random.default_rng(1), None

        def loss(self, x):
            self.calls += 1
            self.last = np.sum(x * self.noise.normal(size=3))
            return np.log(self.last**2)

    watched, plain = Model(), Model()
    count = []
    df = grad(watched.loss, debug=count.append)
    for k in range(4):
        np.testing.assert_allclose(df(X + k), grad(plain.loss)(X + k), rtol=1e-12)
        assert watched.calls == plain.calls == k + 1
        assert watched.last == pytest.approx(plain.last)
    assert len(count) % 4 == 0 and count


def test_paths_are_found_again():
    def f(x):
        return np.sum(np.log(x)) if x[0] > 1 else np.sum(x**2)

    df = grad(f, debug=True)
    for _ in range(2):
        np.testing.assert_allclose(df(X), 2 * X)
        np.testing.assert_allclose(df(X + 1), 1 / (X + 1))
        with pytest.raises(NotFiniteError):
            df(np.array([2.0, 0.0]))
    assert df.cache_info().traces == 3


def test_inside_of_others_and_decorated():
    @grad(debug=True)
    def slope(x):
        return np.sum(np.log(x))

    np.testing.assert_allclose(slope(X), 1 / X)
    second = grad(lambda x: np.sum(slope(x) ** 2))
    np.testing.assert_allclose(second(X), -2 / X**3, rtol=1e-12)
    again = pickle.loads(pickle.dumps(grad(logs, debug=True)))
    with pytest.raises(NotFiniteError):
        again(np.zeros(2))


def test_what_is_refused():
    with pytest.raises(ArgumentError, match=r"debug is True, .* not 'yes'"):
        grad(logs, debug="yes")
    with pytest.raises(ArgumentError, match="leave out= away"):
        grad(logs, debug=True, out=np.zeros(3))


@pytest.mark.parametrize("transform", [grad, value_and_grad, jit])
def test_values_that_the_gradient_does_not_need(transform):
    """The first in the program's order, though log's slope reads its operand alone."""

    def f(x):
        y = np.log(x - 2.0)
        z = np.sqrt(x - 5.0)
        return np.sum(y) + np.sum(z)

    with pytest.raises(NotFiniteError) as error:
        transform(f, debug=True)(X)
    assert error.value.finding.src.text == "y = np.log(x - 2.0)"
    assert not error.value.finding.is_cotangent


def test_only_the_value_is_not_finite():
    finding = found(lambda x: np.sum(np.log(-x)), X)
    assert finding.call.primitive.name == "log"
    seen = []
    slope, more = grad(lambda x: (np.sum(x**2), {"x": x + 1}), has_aux=True, debug=seen.append)(X)
    np.testing.assert_array_equal(slope, 2 * X)
    np.testing.assert_array_equal(more["x"], X + 1)
    assert any(np.all(finding.value == 14.0) for finding in seen)


def test_what_rules_of_inner_derivatives_mask_is_no_finding():
    def f(x):
        return np.sum(grad(lambda y: np.sum(np.sqrt(y)))(x) * x)

    x = np.array([0.0, 1.0, 4.0])
    np.testing.assert_array_equal(grad(f, debug=True)(x), grad(f)(x))
    np.testing.assert_array_equal(value_and_grad(f, debug=True)(x)[1], grad(f)(x))


def test_what_a_loop_keeps_for_reverse_mode_is_no_cotangent():
    def f(x):
        y = x * 1.0
        for k in range(25):
            y = y - 0.1 * k
            w = np.power(x, y)
            y = y + 0.001 * w
        return np.sum(y)

    x = np.array([0.0, -1.0, 2.0, 1.0])
    for transform in (jit, grad, value_and_grad):
        with pytest.raises(NotFiniteError) as error:
            transform(f, debug=True)(x)
        finding = error.value.finding
        assert finding.src.text == "w = np.power(x, y)" and not finding.is_cotangent
        assert [number for _, number in finding.rounds] == [1]


def test_a_trace_in_another_thread_is_no_reason_to_look_away():
    began, may_end = threading.Event(), threading.Event()

    def slow(x):
        began.set()
        may_end.wait(60)
        return np.sum(x)

    other = threading.Thread(target=grad(slow, compile="never"), args=(X,))
    other.start()
    try:
        assert began.wait(60)
        assert found(logs, np.array([1.0, 0.0, 4.0])).call.primitive.name == "log"
    finally:
        may_end.set()
        other.join()


def test_the_generated_statement():
    """Of the call, in the tape's NumPy source; in a loop, too."""

    def f(x):
        y = x * 2.0
        for k in range(40):
            y = y + np.log(x[0] - k)
        return np.sum(y)

    finding = found(f, X)
    (line,) = finding.generated
    assert " = np.log(" in line and f"generated: {line}" in str(finding)
    finding = found(logs, np.array([1.0, 0.0, 4.0]))
    assert (
        finding.generated == ["z = np.log(y)"] and finding.generated[0] in finding.tape.numpy_source
    )


def test_what_hooks_look_for():
    seen = []
    with np.errstate(all="ignore"):
        value_and_grad(lambda x: np.sum(np.log(x) * 1e9), debug=seen.append)(np.array([1.0, -1.0]))
    assert [x.has_nan for x in seen[:2]] == [True, True]
    seen.clear()
    grad(lambda x: np.sum(np.exp(x)), debug=seen.append)(np.array([1.0, 20.0]))
    assert seen[0].has_big() and not seen[0].has_big(1e9) and not seen[0].has_nan


def test_a_drawing_marks_the_call():
    finding = found(logs, np.array([1.0, 0.0, 4.0]))
    (line,) = [line for line in finding.to_dot().splitlines() if 'color="red"' in line]
    assert r'label="log(%' in line and r"\n[0.6931, 2.079], 1 infinite" in line
    assert 'color="red"' not in finding.tape.to_dot()


@pytest.mark.parametrize("has_graphviz", [False, True])
def test_a_drawing_is_opened(has_graphviz, monkeypatch, tmp_path):
    """By Graphviz; without it the tape as text. What the program says is escaped."""
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "<?xml?><svg>$(wc -l)</svg>"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}/usr/bin:/bin" if has_graphviz else str(tmp_path / "none")
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pages = []
    monkeypatch.setattr(webbrowser, "open", pages.append)
    finding = found(lambda x: np.sum(np.log(np.where(x < 2, x - 1, x))), X)
    opened = Path(finding.show())
    page = opened.read_text()
    assert pages == [opened.as_uri()] and "np.where(x &lt; 2" in page
    if has_graphviz:
        lines = finding.to_dot().count("\n")
        assert f"<svg>{lines}</svg>" in page.replace(" ", "") and "<?xml" not in page
    else:
        assert page.count("<b>") == 1 and "= log(" in page.split("<b>")[1].split("</b>")[0]


@pytest.mark.parametrize(
    ("does", "said"),
    [("sleep 9", "more than 0.2 s"), ("echo bad >&2; exit 1", "doesn&#x27;t draw it: bad")],
)
def test_a_drawing_that_fails_is_a_text(does, said, monkeypatch, tmp_path, capsys):
    """With the reason; and without a browser the file is named."""
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{does.replace('sleep', 'exec sleep')}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(drawing, "SECONDS", 0.2)
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    path = found(logs, np.array([1.0, 0.0, 4.0])).show()
    page = Path(path).read_text()
    assert said in page and page.count("<b>") == 1 and "<svg" not in page
    assert path in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_graphviz_draws_it(monkeypatch, tmp_path):
    """Each call and each value once, that call in red."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    finding = found(logs, np.array([1.0, 0.0, 4.0]))
    page = Path(finding.show()).read_text()
    assert page.count('class="node"') >= len(finding.tape.calls) + len(finding.tape.inputs)
    assert page.count('fill="mistyrose" stroke="red"') == 1 and "</svg>" in page


def test_a_tape_is_played_aloud(capsys):
    """Each call with its value; of a loop the first rounds. `debug` may be an argument, too."""

    def f(x, n):
        y = x * 2.0
        for k in range(40):
            y = np.sin(y) * k
        return np.sum(y) + n

    _, tape = trace(f, X, 1.0)
    plain = tape.play(X, 2.0)
    assert not capsys.readouterr().out
    assert tape.play(X, 2.0, debug=True) == plain
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("%3 = mul(%1, 2.0) : f8[3]  # debug_test.py:")
    assert lines[1] == "    float64 of the shape (3,), from 2 to 6"
    rounds = [line.split(":")[0] for line in lines if line.startswith("  round")]
    assert rounds == [f"  round {k}" for k in (0, 0, 0, 1, 1, 1, 2, 2, 2)] or len(rounds) % 3 == 0
    assert lines[-1] == f"    {plain}"

    def g(x, debug):
        return x * 2 if debug else x

    _, tape = trace(g, 1.0, debug=True)
    assert tape.play(3.0, debug=True) == 6.0 and not capsys.readouterr().out
    with pytest.raises(TapeError, match="was traced where"):
        trace(lambda x: x if x > 0 else -x, 1.0)[1].play(-1.0, debug=True)


def test_what_is_dropped_later_is_no_finding():
    """By a choice, a bound, a function, or another round; a hook sees it all the same."""

    def f(x):
        logs = np.where(x > 0, np.log(x), 0.0)
        shares = np.exp(np.where(x > 0, x, -np.inf))
        bounded, total = np.minimum(1 / x, 2.0), 0.0
        for k in range(40):
            root = np.sqrt(x[k % 3] - 2.0)
            total = total + np.where(x[k % 3] > 2, root, 0.0)
        return np.sum(logs + shares + bounded) + total

    x, seen = np.array([0.0, 1.0, 3.0]), []
    value, slope = value_and_grad(f, debug=True)(x)
    assert value == f(x) and np.isfinite(slope).all()
    value_and_grad(f, debug=lambda found: found.is_finite or seen.append(found.src.text))(x)
    assert len(seen) > 30 and seen[0] == "logs = np.where(x > 0, np.log(x), 0.0)"


def test_what_a_result_is_made_of_is_found_behind_what_is_dropped():
    """An earlier NaN that gets nowhere isn't taken for the cause, in and out of a loop's rounds."""

    def f(x):
        dropped = np.where(x > 0, np.log(x - 1.0), 0.0)
        total = np.sum(np.where(np.isfinite(dropped), dropped, 0.0))
        for k in range(40):
            odd = np.where(x[2] > 0, 0.0, 1 / (x[0] * k))
            total = total + odd + np.sqrt(x[2] - k)
        return total

    finding = found(f, np.array([0.0, 1.0, 20.5]))
    assert finding.call.primitive.name == "sqrt" and not finding.is_cotangent
    assert "np.sqrt(x[2] - k)" in finding.src.text and finding.rounds[0][1] == 21


def test_an_argument_that_is_not_finite():
    """It is no fault where the function drops it; else the first call that reads it is named."""
    x = np.array([1.0, np.nan])
    value, slope = value_and_grad(lambda x: np.sum(np.nan_to_num(x) ** 2), debug=True)(x)
    assert value == 1.0 and np.array_equal(slope, [2.0, 0.0])
    assert found(lambda x: np.sum(3.0 * x), x).call.primitive.name == "mul"


def of_a_branch(x):
    y = np.log(x[0])
    return np.sum(x) if y > 0 else np.sum(x**2)


def of_the_first_round(x):
    y, k = np.log(x), 0
    while np.sum(y) < 3 and k < 10:
        y, k = y + 1.0, k + 1
    return np.sum(x) * k


def of_a_later_round(x):
    y, k = 1.0 * x, 0
    while np.sum(y) > -9.0:
        y, k = np.log(y), k + 1
    return np.sum(x) * k


def of_a_branch_in_rounds(x):
    s = 0.0
    for k in range(20):
        y = np.log(x[k % 3] - 2.5)
        s = s + x[k % 3] if y > -9 else s - x[k % 3]
    return s


@pytest.mark.parametrize(
    ("f", "line", "rounds"),
    [
        (of_a_branch, "return np.sum(x) if y > 0 else np.sum(x**2)", 0),
        (of_the_first_round, "while np.sum(y) < 3 and k < 10:", 0),
        (of_a_later_round, "while np.sum(y) > -9.0:", 1),
        (of_a_branch_in_rounds, "s = s + x[k % 3] if y > -9 else s - x[k % 3]", 1),
    ],
)
def test_nan_that_decides_a_condition(f, line, rounds):
    """Though no result is NaN: the condition is named, and where the NaN comes from."""
    x = np.array([-1.0, 2.0, 3.0]) if rounds == 0 else np.array([1.5, 2.0, 3.0])
    assert np.isfinite(f(x))
    finding = found(f, x)
    assert finding.has_nan and finding.call.primitive.name == "log"
    assert "np.log(" in finding.src.text and len(finding.rounds) == rounds
    with pytest.raises(FloatingPointError, match="NaN decides a condition at ") as error:
        value_and_grad(f, debug=True)(x)
    assert f"`{line}`. It comes from:\nlog gave a value" in str(error.value)
    assert "test np.isnan(x) first" in str(error.value)
    seen = []
    value_and_grad(f, debug=seen.append)(x)  # a hook looks for itself
    assert any(finding.has_nan for finding in seen)


def test_an_argument_that_is_nan_and_decides():
    finding = found(lambda x, limit: np.sum(x) if x[0] > limit else np.sum(x**2), X, np.nan)
    assert finding.call.primitive.name == "greater" and np.isnan(finding.operands[1])


@pytest.mark.parametrize(
    "asks",
    [
        lambda y: np.isnan(y).any(),
        lambda y: np.any((y > 0) & ~np.isnan(y)),
        lambda y: bool(np.isfinite(y[0]) and y[0] > 0),
        lambda y: y[0] != y[0],
        lambda y: np.any(y > 0.5),  # the others decide it
        lambda y: np.sum(y[y > 0.0]) > 0.5,  # a mask leaves it out, as np.where does
        lambda y: np.sum(np.where(y > 0, y, 0.0)) > 0.5,
    ],
)
def test_conditions_that_nan_does_not_decide(asks):
    """It is asked for, or the answer is the same with any number in its place."""

    def f(x):
        return np.sum(x) if asks(np.log(x)) else np.sum(x**2)

    x = np.array([-1.0, 2.0, 3.0])
    value, slope = value_and_grad(f, debug=True)(x)
    assert value == f(x) and np.isfinite(slope).all()


def test_infinities_decide_as_numbers_do():
    def f(x):
        best = np.inf
        for k in range(3):
            if x[k] ** 2 < best:
                best = x[k] ** 2
        return best if 1 / (x[0] - 1.0) > 3.0 else np.sum(x)

    assert value_and_grad(f, debug=True)(X)[0] == 1.0
