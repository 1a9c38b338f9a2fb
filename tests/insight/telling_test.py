"""What objects say of themselves: by repr, by help, and in notebooks as pages."""

from __future__ import annotations

import inspect
import pydoc
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import tapegrad
from tapegrad import grad, jit, value_and_grad, vmap
from tapegrad.runtime.derived import Derived

X = np.arange(1.0, 4.0)


def cubes(x, scale=1.0):
    """The sum of <cubes> & more.

    A second paragraph.
    """
    return np.sum(x**3) * scale


class Model:
    """A model."""

    rate = 2.0

    @jit
    def energy(self, x):
        """Its energy."""
        return np.sum(x) * self.rate


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: grad(cubes, compile="never"), "grad of cubes"),
        (lambda: grad(cubes, argnums=(0, 1)), "grad(argnums=(0, 1)) of cubes"),
        (lambda: value_and_grad(cubes, checkpoint="sqrt"), "value_and_grad(checkpoint='sqrt') of"),
        (lambda: grad(cubes, debug=True), "grad of cubes, whose values are watched"),
        (lambda: grad(cubes, out=np.zeros(3)), "grad of cubes, written into out"),
        (lambda: grad(cubes, key=lambda *args: 0), "grad of cubes"),
        (lambda: vmap(cubes), "vmap of cubes"),
        (lambda: tapegrad.hvp(cubes), "hvp of cubes"),
        (lambda: Model().energy, "jit of energy, a method of Model"),
    ],
)
def test_repr_and_help(made, said):
    """The user's words and signature, and what was derived."""
    df = made()
    assert repr(df).startswith(f"<tapegrad {said}")
    text = pydoc.render_doc(df, renderer=pydoc.plaintext)
    of_users = "Its energy." if "energy" in said else "The sum of <cubes> & more."
    assert of_users in text and f"Derived by tapegrad: {said}" in text
    assert text.count("Derived by tapegrad") == 1
    assert "<tapegrad.runtime" not in text and " object at 0x" not in repr(df)
    assert "x" in inspect.signature(df).parameters
    with pytest.raises(ValueError):  # so that IPython's `df?` shows one signature, the user's
        inspect.signature(df.__call__)


def test_variants_are_counted():
    df = grad(cubes, compile="never")
    df.clear_cache()
    df(X), df(X[:2])
    assert repr(df) == "<tapegrad grad of cubes: 2 variants, 0 compiled>"
    assert df.__doc__.endswith("grad of cubes: 2 variants, 0 compiled. See explain(*args).")
    assert grad(grad(lambda x: x**3, compile="never"), compile="never").__doc__ == (
        "Derived by tapegrad: grad of grad_<lambda>. See explain(*args)."
    )


def test_classes_keep_their_own_words():
    assert Derived.__doc__.startswith("A function derived from `f` by a transformation")
    assert "Derived by tapegrad: jit of energy" in pydoc.render_doc(Model, renderer=pydoc.plaintext)


TAGS = {
    *("style", "div", "b", "ul", "li", "code", "pre", "span", "table", "tr", "th", "td"),
    *("details", "summary"),
}


class Tags(HTMLParser):
    """Those that are open, and all that were."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        assert not any(name.startswith("on") or name in ("href", "src") for name, _ in attrs)
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def hurt(x):
    a = "</pre></div><script>alert(1)</script>"  # </script><script>
    return np.sum(x**3) * (2.0 if a > "</code>" else 1.0)  # <b onclick="x"> & </td></table>


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [cubes, hurt, lambda x: np.sum(np.sin(x[x < 3]))])
def test_pages_of_notebooks(f):
    """One style, whole, and nothing of the user's is a tag."""
    df = value_and_grad(f, compile="never")
    df(X)
    shown = [df, df.tape, df.lower(X).plan, df.explain(X), df.profile(X, calls=1), df.cache_info()]
    for each in [*shown, grad(f), Model().energy, grad(f, debug=True), tapegrad.cache_info()]:
        html = each._repr_html_()
        tags = Tags(html)
        assert tags.seen[:3] == ["style", "div", "b"] and "<script" not in html
        assert len(html) < 12_000 and html.startswith("<style>\n.tapegrad {")
        assert not re.search(r"color: *(black|white|#)", html)
    assert "played by NumPy" in df._repr_html_() and "x: f8[3]" in df._repr_html_()
    assert "hits" in df.cache_info()._repr_html_()
    assert "not called yet" in grad(lambda x: x)._repr_html_()


def test_long_tapes_are_shown_in_part():
    """A notebook keeps what it shows in its file."""

    names, choose = ["sin", "cos", "tanh", "arctan"], np.random.default_rng(0).integers
    lines = [f"    x = np.{names[choose(4)]}(x) * {k}.5" for k in range(600)]
    told = {"np": np}
    exec("\n".join(["def f(x):", *lines, "    return x"]), told)
    tape = jit(told["f"]).lower(1.0).tape
    html = tape._repr_html_()
    assert len(tape.calls) > 1000 and "more lines: print(tape)" in html and len(html) < 100_000
