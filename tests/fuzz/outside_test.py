"""Random programs that write to arrays which they did not make, in several calls one after another.

Each call is held against plain NumPy: what it returns, what every array holds afterwards, and which
object it is; the derivatives against differences, with the state put back.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
from typing import Any

import numpy as np
import pytest

from tapegrad import value_and_grad

PROGRAMS = 16
CALLS = 3


class State:
    """Arrays that a program reaches: of several layouts, and views of one memory."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.buffer, self.total, self.x = rng.normal(size=4), np.array(0.5), 0.0
        self.rows = [rng.normal(size=3), rng.normal(size=3)]
        self.named = {"a": rng.normal(size=3), "b": rng.normal(size=3)}
        self.W, self.F = rng.normal(size=(3, 3)), np.asfortranarray(rng.normal(size=(3, 3)))
        self.R, self.count = np.arange(9.0).reshape(3, 3), np.zeros(3, int)
        self.mask = np.array([True, False, True])
        self.all = rng.normal(size=6)
        self.now, self.before = rng.normal(size=3), rng.normal(size=3)
        self.kept: Any = None
        self._view()

    def _view(self) -> None:
        self.first, self.last, self.part = self.all[:3], self.all[3:], self.R[1:, ::2]

    def arrays(self) -> list[np.ndarray]:
        own = [x for x in vars(self).values() if isinstance(x, np.ndarray)]
        return [*own, *self.rows, *self.named.values()]

    def copied(self) -> State:
        known: dict[int, Any] = {}
        made: State = object.__new__(State)
        for name, x in vars(self).items():
            if isinstance(x, np.ndarray):
                known.setdefault(id(x), x.copy(order="K"))
            setattr(made, name, known.get(id(x), x))
        made.rows = [x.copy() for x in self.rows]
        made.named = {key: x.copy() for key, x in self.named.items()}
        made._view()
        return made

    def step(self, v: Any) -> Any:
        self.now[:] = self.before * 0.5 + v
        self.before, self.now = self.now, self.before
        return self.before


PLACES = """
m.buffer[:3], m.rows[0], m.rows[1], m.W[0], m.W[:, 1], m.first, m.last, m.all[::2], m.named['a'],
m.F[1], m.F[:, 0], m.R[2], m.now, m.before, m.W.T[2], m.all[:3]
"""
VALUES = """
x, x * x, np.sin(x), x[::-1], np.ones(3), t, m.W @ x, np.stack(m.rows)[0], m.mask * x, sum(m.rows),
m.F.dot(x), np.where(m.mask, x, m.first), m.W.sum(axis=0), np.array([m.total * x[0], m.count[1], 1])
"""
NUMBERS = "x[0], x[1] * x[2], m.total, m.buffer[1], m.W[1, 2], m.count[0], 2.0, np.sum(x), m.all[4]"
STATEMENTS = """
P[:] = V
P[N] = S
P += 0.5 * V
P *= 0.5 * V
np.add(V, 0.5 * V, out=P)
np.copyto(P, V)
P.fill(S)
np.put(P, [0, 2], S)
row = P; row[:] = V
m.count[N] += 1
m.total += S * 0.1
m.total[...] = S
m.mask[1] = not m.mask[1]
m.W[m.count[0] % 3] = x
m.part[0] += x[:2]
m.buffer[:] = 0; m.buffer[1:] += V
t = t + P
t = t * S
t = t + m.step(V)
m.now, m.before = m.before, m.now
m.kept = m.buffer
m.kept = P * 2
m.x = m.x + S * 0.1; t = t + m.x
for k, q in enumerate(m.rows): q[:] = q * 0.5 + x * k
for q, w in zip(m.rows, (x, x * 2)): q += w * 0.1
for n, q in m.named.items(): q *= 0.9; q[0] = x[0]
"""


def parts(text: str) -> list[str]:
    """What stands between commas outside of brackets."""
    tree: Any = ast.parse(f"({text.strip()})", mode="eval").body
    return [ast.unparse(x) for x in tree.elts]


CHOICES = {"P": parts(PLACES), "V": parts(VALUES) + parts(PLACES), "S": parts(NUMBERS), "N": "012"}


def filled(rng: random.Random, text: str) -> str:
    """A statement with something in the place of each capital letter that stands alone."""
    return re.sub(r"\b[PVSN]\b", lambda found: rng.choice(CHOICES[found[0]]), text)


def statement(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth < 2 and kind < 0.1:
        inside = textwrap.indent(statement(rng, depth + 1), "    ")
        return f"for i in range({rng.randrange(1, 4)}):\n{inside}"
    if depth < 2 and kind < 0.2:
        sides = [textwrap.indent(statement(rng, depth + 1), "    ") for _ in range(2)]
        return filled(rng, "if S > S") + f":\n{sides[0]}\nelse:\n{sides[1]}"
    return filled(rng, rng.choice(STATEMENTS.strip().splitlines()))


def program(seed: int) -> str:
    rng = random.Random(seed)
    lines = ["t=x*1.", *[statement(rng) for _ in range(rng.randrange(2, 6))]]
    lines.append(
        filled(rng, "return np.sum(t) + np.sum(V * x) + np.sum(m.W * m.R) + np.sum(m.all**2)")
    )
    return "def f(x):\n" + textwrap.indent("\n".join(lines), "    ")


@pytest.mark.every(8)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # branches and states that take turns
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_programs_that_write_to_arrays_of_the_outside(seed: int) -> None:
    text, rng = program(seed), np.random.default_rng(seed)
    code = compile(text, f"<program {seed}>", "exec")

    def run(state: State) -> Any:
        names: dict[str, Any] = {"np": np, "m": state}
        exec(code, names)
        return names["f"]

    mine, plain = State(seed), State(seed)
    df, f = value_and_grad(run(mine), compile="never"), run(plain)
    for call in range(CALLS):
        if call == 2 and seed % 3 == 0:  # the user changes something in between
            mine.buffer *= 1.5
            plain.buffer *= 1.5
        x, start = rng.uniform(0.2, 1.5, size=3), plain.copied()
        value, slope = df(x)
        np.testing.assert_allclose(value, f(x), rtol=1e-9, err_msg=text)
        for a, b in zip(mine.arrays(), plain.arrays(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, err_msg=text)
        assert (mine.kept is mine.buffer) == (plain.kept is plain.buffer), text
        steps = [(run(start.copied())(x + h), run(start.copied())(x - h)) for h in 1e-6 * np.eye(3)]
        near = [(above - below) / 2e-6 for above, below in steps]
        np.testing.assert_allclose(slope, near, rtol=1e-4, atol=1e-4 * abs(value), err_msg=text)
