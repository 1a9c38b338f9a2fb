"""Products of matrices: of any size, layout and processor, to the last bits that are known."""

from __future__ import annotations

import itertools
import linecache
from typing import Any, NamedTuple

import numpy as np
import pytest
from llvmlite import ir
from numba.core.typing.templates import signature

from tapegrad.backends.cpu import support
from tapegrad.backends.cpu.linking import FORTRAN, shared_names
from tapegrad.backends.cpu.support import blocks, packed
from tapegrad.backends.cpu.support.arrays import WORD, FixedArray, Intrinsic
from tapegrad.backends.cpu.support.compiling import linked_here

PROCESSORS = [(64, 32), (32, 16), (16, 32)]  # bytes of a vector, and how many there are
# Whole blocks and parts of them in each direction, the depth of a panel and more, nothing at all,
# more rows than are gone through at once, and products that are written out.
SHAPES = [
    *((8, 32, 16), (3, 11, 130), (13, 37, 7), (64, 9, 35), (1, 40, 33), (33, 65, 1), (9, 1, 70)),
    *(
        (35, packed.DEPTH, 67),
        (41, packed.DEPTH + 3, 100),
        (600, 200, 17),
        (40, 2 * packed.DEPTH, 8),
    ),
    *((0, 5, 3), (5, 0, 3), (40, 0, 30), (5, 3, 0), (3, 2, 4), (15, 11, 1), (2, 3, 3)),
]
STRIDES = {
    "rows": lambda rows, columns: (columns, 1),
    "columns": lambda rows, columns: (1, rows),
    "part": lambda rows, columns: (columns + 5, 1),
    "far": lambda rows, columns: (2**11, 1),
    "steps": lambda rows, columns: (2 * columns + 1, 2),
    "turned steps": lambda rows, columns: (3, 3 * rows + 2),
}


class Matrix(NamedTuple):
    """Memory, and which part of it is a matrix."""

    memory: np.ndarray
    shape: tuple[int, int]
    strides: tuple[int, int]
    start: int = 0

    @property
    def array(self) -> np.ndarray:
        strides = [k * self.memory.itemsize for k in self.strides]
        return np.lib.stride_tricks.as_strided(self.memory[self.start :], self.shape, strides)

    def rows(self, first: int, last: int) -> Matrix:
        start = self.start + first * self.strides[0]
        return self._replace(shape=(last - first, self.shape[1]), start=start)


def matrix(value: np.ndarray, layout: str) -> Matrix:
    """A matrix that lies among NaN."""
    strides = STRIDES[layout](*value.shape)
    size = 1 + sum(max(n - 1, 0) * step for n, step in zip(value.shape, strides, strict=True))
    found = Matrix(np.full(size + 9, np.nan, value.dtype), value.shape, strides, 4)
    found.array[...] = value
    return found


def part(of: Matrix) -> Any:
    """What takes this part of memory, while code is written."""

    @Intrinsic
    def taken(typingctx: Any, memory: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> ir.Value:
            return builder.gep(args[0], [WORD(of.start)], inbounds=True)

        return signature(FixedArray(memory.dtype, of.shape, of.strides), memory), codegen

    return taken


def kernel(lines: list[str], parameters: list, names: dict[str, Any] | None = None) -> tuple:
    names = support.namespace() | {"__name__": __name__} | (names or {})
    taken = ", ".join(f"a{k}" for k in range(len(parameters)))
    text = "\n    ".join([f"def products({taken}):", *lines, "return 0\n"])
    file = f"<products {len(linecache.cache)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), names)
    return names["products"], parameters


def run(calls: list[tuple[str, list[Matrix], tuple[Any, ...]]]) -> None:
    """Call products of matrices, and of sizes."""
    lines, names = [], {}
    arrays: dict[int, np.ndarray] = {}
    for function, matrices, sizes in calls:
        given = []
        for x in matrices:
            arrays.setdefault(id(x.memory), x.memory)
            names[f"part{len(names)}"] = part(x)
            given.append(f"part{len(names) - 1}(a{list(arrays).index(id(x.memory))})")
        lines.append(f"{function}({', '.join([*given, *map(str, sizes)])})")
    parameters = [("array", x.shape, x.dtype.name) for x in arrays.values()]
    support.compiled(*kernel(lines, parameters, names))(*arrays.values())


def assert_product(x: Any, y: Any, old: Any, found: Any) -> None:
    """Within some roundings of the sum of the terms' magnitudes."""
    x, y, old, dtype = *(a.astype(np.longdouble) for a in (x, y, old)), found.dtype
    bound = 4 * np.finfo(dtype).eps * (np.abs(x) @ np.abs(y) + np.abs(old))
    assert (np.abs(found - (x @ y + old)) <= bound).all()


@pytest.mark.every(4)
@pytest.mark.parametrize("registers", PROCESSORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_of_any_layout(monkeypatch, registers, dtype):
    """In place of what is there, NaN included, or added to it. What lies between the numbers is
    neither read nor written. Rows that are computed in three parts have the same bits."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    rng = np.random.default_rng(0)
    calls, checks = [], []
    for adds, (m, k, n) in itertools.product((False, True), SHAPES):
        x, y, old = (rng.normal(size=s).astype(dtype) for s in ((m, k), (k, n), (m, n)))
        left, right = (matrix(value, str(rng.choice(list(STRIDES)))) for value in (x, y))
        layout = str(rng.choice(["rows", *STRIDES]))
        out, parts = (matrix(old if adds else np.full_like(old, np.nan), layout) for _ in range(2))
        name, cuts = f"{'add_' * adds}matmul", sorted(map(int, rng.integers(m + 1, size=2)))
        calls.append((name, [left, right, out], ()))
        for first, last in itertools.pairwise([0, *cuts, m]):
            if first < last:
                given = [left.rows(first, last), right, parts.rows(first, last)]
                calls.append((name, given, ()))
        checks.append((x, y, old * adds, out, parts))
    run(calls)
    for x, y, old, out, parts in checks:
        assert_product(x, y, old, out.array)
        np.testing.assert_array_equal(out.array, parts.array)
        written = out.memory.copy()
        out._replace(memory=written).array[...] = np.nan
        assert np.isnan(written).all()


# Of an array of (4, 40, 41): along which of its axes windows go, how many places there are, and how
# far apart. Few and many, more than a panel has, and with some left out in between.
WINDOWS = {
    "of an image": ((0, 4, 1), (1, 3, 1), (2, 3, 1)),
    "its pixels": ((1, 38, 1), (2, 39, 1)),
    "with some left out": ((0, 4, 1), (1, 3, 6), (2, 5, 8)),
    "far apart": ((1, 14, 2), (2, 3, 3)),
    "all but an edge": ((1, 28, 1), (2, 9, 1)),
    "of rows": ((2, 7, 1),),
    "rows": ((0, 4, 1), (1, 12, 1)),
    "one": ((2, 1, 1),),
}
PAIRS = [
    *(("of an image", "its pixels"), ("its pixels", "of an image"), ("far apart", "of rows")),
    *(("of rows", "far apart"), ("with some left out", "one"), ("one", "all but an edge")),
    *(("all but an edge", "with some left out"), ("rows", "all but an edge")),
]


def windows(x: Matrix, ways: Any) -> Any:
    """What takes windows of an array of this many axes, and what NumPy makes of them."""
    strides = tuple([k // x.memory.itemsize for k in x.array.strides])
    steps = tuple([tuple([(n, strides[a] * step) for a, n, step in axes]) for axes in ways])
    shape = tuple([int(np.prod([n for _, n, _ in axes])) for axes in ways])
    own = [(n, strides[a] * step * x.memory.itemsize) for axes in ways for a, n, step in axes]
    view = np.lib.stride_tricks.as_strided(x.array, *zip(*own, strict=True))

    @Intrinsic
    def taken(typingctx: Any, memory: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> ir.Value:
            return builder.gep(args[0], [WORD(x.start)], inbounds=True)

        return signature(FixedArray(memory.dtype, shape, steps), memory), codegen

    return taken, view.reshape(shape)


@pytest.mark.every(4)
@pytest.mark.parametrize("registers", PROCESSORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_with_windows(monkeypatch, registers, dtype):
    """Of which rows, columns or both go along several axes: the same bits as of a copy of them.
    Nothing is read that isn't a window's: the array ends where its memory does, among NaN."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    rng = np.random.default_rng(0)
    lines, names, arrays, checks = [], {}, [], []

    def given(x: Any, taken: Any = None) -> str:
        arrays.append(x.memory)
        names[f"part{len(names)}"] = part(x) if taken is None else taken
        return f"part{len(names) - 1}(a{len(arrays) - 1})"

    for (rows, columns), m, adds in itertools.product(PAIRS, (5, 33), (False, True)):
        memory = rng.normal(size=4 + 4 * 40 * 41).astype(dtype)
        memory[:4] = np.nan
        image = Matrix(memory, (4, 40, 41), (40 * 41, 41, 1), 4)
        taken, y = windows(image, (WINDOWS[rows], WINDOWS[columns]))
        x, old = (rng.normal(size=(m, n)).astype(dtype) for n in y.shape)
        left, copied = matrix(x, "columns"), matrix(y, "rows")
        outs = [matrix(old if adds else np.full_like(old, np.nan), k) for k in ("rows", "columns")]
        outs.append(matrix(outs[0].array, "rows"))
        name = f"{'add_' * adds}matmul"
        for out in outs[:2]:
            lines.append(f"{name}({given(left)}, {given(image, taken)}, {given(out)})")
        lines.append(f"{name}({given(left)}, {given(copied)}, {given(outs[2])})")
        checks.append((x, y, old * adds, outs))
    parameters = [("array", x.shape, x.dtype.name) for x in arrays]
    support.compiled(*kernel(lines, parameters, names))(*arrays)
    for x, y, old, outs in checks:
        assert_product(x, y, old, outs[0].array)
        for out in outs[1:]:
            np.testing.assert_array_equal(out.array, outs[0].array)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_have_the_same_bits_however_many_there_are(dtype):
    """Also where some of them are few enough to be written out, and others aren't."""
    rng = np.random.default_rng(0)
    calls, checks = [], []
    for adds, (m, k, n) in itertools.product(
        (False, True), [(30, 6, 10), (15, 11, 1), (90, 16, 3)]
    ):
        left = matrix(rng.normal(size=(m, k)).astype(dtype), "columns")
        right = matrix(rng.normal(size=(k, n)).astype(dtype), "part")
        old = rng.normal(size=(m, n)).astype(dtype)
        whole, parts = (matrix(old, "rows") for _ in range(2))
        name = f"{'add_' * adds}matmul"
        calls.append((name, [left, right, whole], ()))
        for first, last in itertools.pairwise([0, m // 9, m * 3 // 5, m]):
            calls.append((name, [left.rows(first, last), right, parts.rows(first, last)], ()))
        checks.append((whole, parts))
    run(calls)
    for whole, parts in checks:
        np.testing.assert_array_equal(whole.array, parts.array)


@pytest.mark.every(2)
@pytest.mark.parametrize("known", [(), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("registers", PROCESSORS)
def test_sizes_that_are_known_late(monkeypatch, registers, known):
    """All of them, the rows alone, and none."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    rng = np.random.default_rng(0)
    calls, checks = [], []
    for number, sizes in enumerate(
        [(13, 37, 41), (20, 32, 64), (0, 3, 4), (7, 40, 0), (1, 5, 300)]
    ):
        rows, columns, depth = sizes
        x, y, old = (rng.normal(size=s) for s in ((21, 301), (301, 40), (21, 40)))
        layouts = ["rows", "columns", "steps"]
        left, right = (matrix(z, layouts[(number + k) % 3]) for k, z in enumerate((x, y)))
        out = matrix(old, layouts[(number + 2) % 3])
        adds = number % 2 == 1
        given = tuple([n if k in known else f"rolled({n})" for k, n in enumerate(sizes)])
        calls.append((f"{'add_' * adds}front_matmul", [left, right, out], given))
        checks.append((x[:rows, :depth], y[:depth, :columns], old, adds, out, sizes))
    run(calls)
    for x, y, old, adds, out, (rows, columns, _) in checks:
        found, front = out.array.copy(), (slice(rows), slice(columns))
        assert_product(x, y, old[front] * adds, found[front])
        found[front] = old[front]
        np.testing.assert_array_equal(found, old)


@pytest.mark.every(3)
@pytest.mark.parametrize("registers", PROCESSORS)
@pytest.mark.parametrize("open_", ["rows", "depth"])
def test_of_any_length_blocks_are_called_as_of_a_known_one(monkeypatch, registers, open_):
    """What is read where it lies needs no function that goes through panels; the bits are the
    same."""
    monkeypatch.setattr(blocks, "registers", lambda: registers)
    rng = np.random.default_rng(0)

    def code_of(m, k, completed=()):
        shapes = (m, k), (k, 8), (m, 8)
        parameters = [("array", shape, "float64") for shape in shapes]
        numbers = ("int64",) if completed else None
        return support.object_code(*kernel(["matmul(a0, a1, a2)"], parameters), numbers)

    code = code_of("#0", 5, (1,)) if open_ == "rows" else code_of(5, "#0", (1,))
    assert not any("_product_" in name for name in shared_names(code))
    for n in (1, 3, 40, packed.DEPTH, 2 * packed.DEPTH + 3):
        m, k = (n, 5) if open_ == "rows" else (5, n)
        x, y, found, expected = (rng.normal(size=s) for s in ((m, k), (k, 8), (m, 8), (m, 8)))
        parameters = [("array", a.shape, "float64") for a in (x, y, found)]
        completed = support.completed(code, (np.int64(n),), parameters)
        linked_here("products", completed)(x, y, found)
        linked_here("products", code_of(m, k))(x, y, expected)
        np.testing.assert_array_equal(found, expected)


def test_blocks_of_fewer_rows_are_called_as_of_all():
    """In the last chunk the rows alone are known late: no panel is copied for that."""
    parameters = [("array", shape, "float64") for shape in ((40, 5), (5, 8), (40, 8))]
    parameters.append(("scalar", (), "int64"))
    code = support.object_code(*kernel(["front_matmul(a0, a1, a2, a3, 8, 5)"], parameters))
    assert not any("_product_" in name for name in shared_names(code))


def test_what_is_not_finite_stays_in_its_row_and_column():
    x, y = np.ones((35, 300)), np.ones((300, 35))
    x[3, 7], x[34, 299], y[5, 34], y[299, 0] = np.nan, np.inf, np.inf, -np.inf
    calls, outs = [], []
    for layout in ("rows", "columns", "steps"):
        outs.append(matrix(np.zeros((35, 35)), "rows"))
        calls.append(("matmul", [matrix(x, layout), matrix(y, layout), outs[-1]], ()))
    run(calls)
    with np.errstate(invalid="ignore"):
        for out in outs:
            np.testing.assert_array_equal(out.array, x @ y)


def test_no_product_calls_blas():
    for shape in [(3, 3), (40, 40), (300, 300)]:
        code = support.object_code(
            *kernel(["matmul(a0, a1.T, a2)"], [("array", shape, "float64")] * 3)
        )
        assert f"{FORTRAN}dgemm".encode() not in code


@pytest.mark.parametrize("n", [40, 400])
def test_products_share_their_functions(n):
    """So code doesn't grow with the number of products."""
    one, shape = ["matmul(a0, a1, a2)"], ("array", (n, n), "float64")
    another = ["add_matmul(a3, a4, a5)"]
    same = len(support.object_code(*kernel(one + another, [shape] * 6)))
    wide = ("array", (n, 2 * n), "float64")
    more = len(support.object_code(*kernel(one + another, [shape] * 4 + [wide] * 2)))
    alone = len(support.object_code(*kernel(one, [shape] * 3)))
    assert same - alone < 1500 and more - alone < 1500 < alone


def test_few_functions_compute_blocks_of_any_width(monkeypatch):
    """Vectors of 64 bytes have masks; shorter ones take a function for each width."""

    def functions(registers):
        monkeypatch.setattr(blocks, "registers", lambda: registers)
        found = set()
        for n in range(2, 33):
            parameters = [("array", shape, "float64") for shape in ((40, 20), (20, n), (40, n))]
            code = support.object_code(*kernel(["matmul(a0, a1, a2)"], parameters))
            found |= {name for name in shared_names(code) if "_blocks_" in name}
        return len(found)

    assert functions((64, 32)) == 2 < functions((32, 16))
