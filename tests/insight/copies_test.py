"""The copies in kernels that `explain` names: the line, the bytes, and why each is needed."""

from __future__ import annotations

import numpy as np
import pytest

from tapegrad import grad, jit

X = np.arange(1.0, 1001.0)
A = np.arange(1.0, 10_001.0).reshape(100, 100)


def returned(x):
    return x


def part(x):
    return x[1:]


def written(x):
    y = x.copy()
    y[3] = 1.0
    return np.sum(np.sin(y) * y)


def put_together(x):
    return np.concatenate([x[1:], x[:1]])


def returned_twice(x):
    y = np.sin(x)
    return y, y


def of_a_product(a):
    return a.T @ a[::2, :].T


def of_a_library(a):
    return np.linalg.inv(a.T + np.eye(100))


def of_python(a):
    return np.sort(a.T.reshape(-1))


def of_rounds(x):
    for _ in range(100):
        x = np.concatenate([x[1:], x[:1] * 0.5])
    return x


def of_old_values(x):
    y = np.zeros(1000)
    for k in range(100):
        z = y
        y = y.copy()
        y[k] = np.sin(x[k]) + z[k - 1]
    return np.sum(y * z)


def of_another_shape(x):
    return np.cumsum(np.tile(np.sin(x), 3).reshape(30, 100), axis=1).sum()


def by_an_index_array(x):
    return np.interp(x[:20], np.arange(10.0), x[:10])


def part_of_what_was_computed(a):
    return np.linalg.eigh(a + a.T)[1][:, :4]


def computed(x):
    y = 2.0 * x
    y = y.copy()
    y[0] = 3.0
    return np.sum(y[1:] * y[:-1]), np.sin(y)


RETURNED = "What is returned shares no memory with x, which is the caller's"


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (returned, [f"a copy, 8.0 kB: a result. {RETURNED}"]),
        (part, [f"a copy, 8.0 kB: copies_test.py:19: `return x[1:]`. {RETURNED}"]),
        (written, ["`y[3] = 1.0`. Elements of it are set, and x is the caller's"]),
        (put_together, ["x[:1]])`. An array is put together from parts"]),
        (
            returned_twice,
            ["a copy, 8.0 kB: copies_test.py:33: `y = np.sin(x)`. Two results share no"],
        ),
        (
            of_a_product,
            ["a copy, 40.0 kB: ", "A product in blocks takes elements that are next to"],
        ),
        (
            of_a_library,
            [
                "lu, of a library, takes",
                "lu_solve, of a library, takes",
                "in another order than what was",
            ],
        ),
        (of_python, ["argsort, called from Python, takes it as one array"]),
        (
            of_rounds,
            [
                "a copy, 799.2 kB: copies_test.py:51: ",
                "a copy, 8.0 kB: copies_test.py:50: `for _ in range(100):`. The rounds of a loop",
            ],
        ),
        (
            of_old_values,
            ["Elements of it are set, and what was there before is read later", "The rounds of a"],
        ),
        (of_another_shape, ["It is read as an array of another shape"]),
        (by_an_index_array, ["An index array says what of it is read"]),
        (part_of_what_was_computed, ["What is returned is a part of what was computed"]),
        (computed, []),
    ],
)
def test_copies_in_kernels(f, said):
    given = A if f.__code__.co_varnames[0] == "a" else X
    calls = jit(f, compile="never").explain(given).calls
    found = [text for text in calls if " cop" in text.partition(":")[0]]
    assert all(any(part in text for text in found) for part in said), found
    assert bool(found) == bool(said) and all("copies_test.py:" in x for x in found if f != returned)


def test_what_the_reverse_pass_reads_of_each_round():
    def settle(x):
        for _ in range(500):
            x = x + 0.001 * np.sin(x) * np.roll(x, 1)
        return np.sum(x**2)

    calls = grad(settle, compile="never").explain(X).calls
    assert any("4.0 MB" in x and "Each round leaves its own in an array of all" in x for x in calls)
