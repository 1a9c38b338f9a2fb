"""Products of matrices that lie in the caches are computed in blocks, as BLAS computes them."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.linking import FORTRAN
from tapegrad.backends.cpu.support import blocks

# Whole blocks, parts of blocks in each direction, and a depth that is no number of vectors.
SHAPES = [(8, 32, 16), (3, 11, 130), (13, 37, 7), (2, 64, 9)]
PROCESSORS = [(64, 32), (32, 16), (16, 32)]


def kernel(lines: list[str], parameters: list) -> tuple:
    names = support.namespace() | {"__name__": __name__}
    taken = ", ".join(f"a{k}" for k in range(len(parameters)))
    text = "\n    ".join([f"def products({taken}):", *lines, "return 0\n"])
    file = f"<blocks {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), names)
    return names["products"], parameters


@pytest.mark.parametrize("registers", PROCESSORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_are_products(monkeypatch, registers, dtype):
    """Of matrices and of transposes, of part of a larger matrix too; in place of what is there, NaN
    included, or added to it; with vectors of any processor."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    rng = np.random.default_rng(0)
    lines, arrays, wanted = [], [], []
    for m, k, n in SHAPES:
        for x, y in [("{}", "{}"), ("{}.T", "{}"), ("{}", "{}.T"), ("{}[1]", "{}[0].T")]:
            left, right = rng.normal(size=(m, k)), rng.normal(size=(k, n))
            at = len(arrays)
            for text, value in ((x, left), (y, right)):
                value = value.T if ".T" in text else value
                arrays.append(np.stack([value, value]) if "[" in text else value)
            old = rng.normal(size=(m, n))
            arrays += [old, np.full((m, n), np.nan)]
            names = [f"a{at + k}" for k in range(4)]
            product = f"({x.format(names[0])}, {y.format(names[1])}, "
            lines += [f"add_matmul{product}{names[2]})", f"matmul{product}{names[3]})"]
            wanted += [old + left @ right, left @ right]
    arrays = [np.array(a, dtype, order="C") for a in arrays]
    function, parameters = kernel(lines, [("array", a.shape, dtype.__name__) for a in arrays])
    support.compiled(function, parameters)(*arrays)
    found = [a for k, a in enumerate(arrays) if k % 4 > 1]
    tolerance = 1e-12 if dtype is np.float64 else 2e-5
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance)


def test_large_products_are_left_to_blas():
    for n in (80, 81):
        arrays = [("array", (n, n), "float64")] * 3
        code = support.object_code(*kernel(["matmul(a0, a1, a2)"], arrays))
        assert (f"{FORTRAN}dgemm".encode() in code) == (n == 81)


def test_blocks_have_one_function_for_all_products():
    """So their code doesn't grow with the number of products."""
    one, shape = ["matmul(a0, a1, a2)"], ("array", (40, 40), "float64")
    another = ["add_matmul(a3, a4, a5)"]
    same = len(support.object_code(*kernel(one + another, [shape] * 6)))
    wide = ("array", (40, 80), "float64")
    more = len(support.object_code(*kernel(one + another, [shape] * 4 + [wide] * 2)))
    alone = len(support.object_code(*kernel(one, [shape] * 3)))
    assert same - alone < 1500 and more - alone < 1500 < alone
