"""What the tests of this folder share.

A test takes the fixture `derivative`, which makes of a function a derivative that is held against
plain NumPy at each point it is asked for:

    def test_a_branch(derivative):
        '''an `if` on a traced value takes the other branch -> traced anew'''
        df = derivative(lambda x: x**2 if x > 0 else -x)
        df.at(3.0)
        df.at(-1.0)

One derivative serves all points of a test, as it serves all calls of a program. The fixture runs
each test three times: played, compiled, and inside another derivative.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.core.trees import flatten, unflatten

STEP = 1e-5  # of first differences
WIDE = 1e-4  # of second differences


class Derivative:
    """The derivative of `f` in one of three ways, `how`: "played", "compiled" or "nested"."""

    def __init__(self, how: str, f: Callable[..., Any], argnums: int = 0) -> None:
        self.f, self.how, self.argnums = f, how, argnums
        self.d = value_and_grad(f, argnums, compile="always" if how == "compiled" else "never")
        self.outer = grad(self._projected, argnums, compile="never")

    def _projected(self, *args: Any) -> Any:
        """A weighted sum of the gradient's elements: its own gradient is a second derivative."""
        _, gradient = self.d(*args)
        leaves, _ = flatten(gradient)
        return sum(np.sum(w * g) for w, g in zip(_weights(leaves), leaves, strict=True))

    def call(self, *args: Any) -> None:
        """Take the derivative alone, where an error is expected."""
        self.outer(*args) if self.how == "nested" else self.d(*args)

    def at(self, *args: Any, gradient: Any = None) -> None:
        """Hold the value and the gradient at `args` against NumPy and central differences.

        At a kink, where differences say nothing, pass the `gradient` that is documented. The call
        may not write to its arguments, and no result may share memory with them or another.
        """
        before = [np.array(x, copy=True) for x in _arrays(args)]
        if self.how == "nested" and gradient is None:
            self._second_order(args)
        else:
            value, found = self.d(*args)
            with np.errstate(all="ignore"):
                assert_equal(value, self.f(*args), "value")
            tolerance = 1e-6 if all(x.dtype != np.float32 for x in _arrays(args)) else 2e-3
            expected = self._slopes(args) if gradient is None else gradient
            assert_equal(found, expected, "gradient", tolerance if gradient is None else 1e-12)
            assert_apart(_arrays(found), _arrays(args))
        for was, x in zip(before, _arrays(args), strict=True):
            np.testing.assert_array_equal(x, was, "an argument was written to")

    def _moved(self, args: Any, direction: Any) -> Any:
        """The value at `args`, with the argument that is differentiated moved by `direction`."""
        leaves, structure = flatten(args[self.argnums])
        moved = [  # which lie in memory as the leaves do
            x if d is None else like(x, np.add(x, d, out=np.empty_like(x, np.float64))[()])
            for x, d in zip(leaves, direction, strict=True)
        ]
        new = list(args)
        new[self.argnums] = unflatten(structure, moved)
        return self.f(*new)

    def _slopes(self, args: Any) -> Any:
        leaves, structure = flatten(args[self.argnums])
        found: list[Any] = []
        for k, leaf in enumerate(leaves):
            if not _is_real(leaf):
                found.append(None)
                continue
            slope = np.zeros(np.shape(leaf))
            for i in np.ndindex(slope.shape):
                d = _direction(leaves, k, i, STEP)
                minus = [None if x is None else -x for x in d]
                slope[i] = (self._moved(args, d) - self._moved(args, minus)) / (2 * STEP)
            found.append(slope)
        return unflatten(structure, found)

    def _second_order(self, args: Any) -> None:
        found, _ = flatten(self.outer(*args))
        leaves, _ = flatten(args[self.argnums])
        along = [WIDE * w for w in _weights(leaves)]
        for k, leaf in enumerate(leaves):
            expected = np.zeros(np.shape(leaf))
            for i in np.ndindex(expected.shape):
                step = _direction(leaves, k, i, WIDE)

                def corner(s: int, t: int, step: Any = step) -> Any:
                    both = [s * a + t * b for a, b in zip(along, step, strict=True)]
                    return self._moved(args, both)

                mixed = corner(1, 1) - corner(1, -1) - corner(-1, 1) + corner(-1, -1)
                expected[i] = mixed / (4 * WIDE**2)
            assert_equal(found[k], expected, "second derivative", 1e-5)


def like(x: Any, moved: Any) -> Any:
    """A Python number stays one."""
    return float(moved) if type(x) is float else moved


def _weights(leaves: list[Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, np.shape(x)) for x in leaves]


def _is_real(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def _direction(leaves: list[Any], k: int, i: tuple[int, ...], step: float) -> list[Any]:
    d = [np.zeros(np.shape(x)) if _is_real(x) else None for x in leaves]
    d[k][i] = step
    return d


def _arrays(tree: Any) -> list[np.ndarray]:
    return [x for x in flatten(tree)[0] if isinstance(x, np.ndarray)]


def assert_equal(found: Any, expected: Any, what: str, tolerance: float = 1e-12) -> None:
    """Trees of numbers that agree to a relative and absolute tolerance, nan to nan."""
    got, _ = flatten(found)
    wanted, _ = flatten(expected)
    assert len(got) == len(wanted), f"{what}: {found} is not like {expected}"
    for a, b in zip(got, wanted, strict=True):
        if isinstance(b, (str, type(None))):
            continue
        assert np.shape(a) == np.shape(b), f"{what}: shapes {np.shape(a)} and {np.shape(b)}"
        np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=what)


def assert_apart(results: list[np.ndarray], args: list[np.ndarray]) -> None:
    """No result shares memory with an argument or with another result, and all can be kept."""
    for k, x in enumerate(results):
        assert x.flags.writeable
        for other in (*results[:k], *args):
            assert not np.shares_memory(x, other)


@contextlib.contextmanager
def refused(kind: type[Exception], *words: str) -> Iterator[None]:
    """The error is of this kind, names a line of the test's own file, and says these words."""
    with pytest.raises(kind) as caught:
        yield
    text = " ".join(str(caught.value).split())
    file = os.path.basename(sys._getframe(2).f_code.co_filename)
    assert f"{file}:" in text, f"no line in: {text}"
    for word in words:
        assert word in text, f"{word!r} isn't in: {text}"
