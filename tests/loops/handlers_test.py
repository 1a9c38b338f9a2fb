"""Handlers around loops whose trace is given up and made again: what they do is done once."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from tapegrad import value_and_grad

X = np.linspace(-1.0, 1.0, 6)


class Recorder:
    """A function with a long loop in a block whose handler draws, counts and appends."""

    def __init__(self, block: str) -> None:
        self.rng, self.count, self.kept, self.limit = np.random.default_rng(5), 0, [0.0], 1.0
        self.run = getattr(self, block)

    def handled(self) -> float:
        self.count += 1
        self.kept.append(1.0)
        return self.rng.normal()

    def long(self, x: Any, y: Any) -> Any:
        k = 0
        while k < 12 and self.limit < 2:
            k += 1
            for i in range(0, len(x), 2):
                y[min(i + 1, len(x) - 1)] += np.tanh(0.5 * x[i] + k)
        return np.sum(y)

    def finishing(self, x: Any) -> Any:
        y, s = np.zeros(len(x)), 0.0
        try:
            k = 0
            while k < 12 and self.limit < 2:
                k += 1
                for i in range(0, len(x), 2):
                    y[min(i + 1, len(x) - 1)] += np.tanh(0.5 * x[i] + k)
        finally:
            s += self.handled()
        return s * np.sum(x) + np.sum(y)

    def catching(self, x: Any) -> Any:
        try:
            return self.long(x, np.zeros(len(x))) * self.handled()
        except:
            self.handled()
            raise

    def managed(self, x: Any) -> Any:
        @contextlib.contextmanager
        def counting() -> Any:
            try:
                yield
            finally:
                self.handled()

        with counting():
            found = self.long(x, np.zeros(len(x)))
        return found * self.rng.normal()


@pytest.mark.parametrize("block", ["finishing", "catching", "managed"])
@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_handler_around_a_loop_works_once(block: str, compile: Any) -> None:
    plain, traced = Recorder(block), Recorder(block)
    derivative = value_and_grad(traced.run, compile=compile)
    for scale in (1.0, 0.5, 2.0):
        value, _ = derivative(scale * X)
        np.testing.assert_allclose(value, plain.run(scale * X), rtol=1e-12)
        assert (traced.count, traced.kept) == (plain.count, plain.kept)
        assert traced.rng.bit_generator.state == plain.rng.bit_generator.state
