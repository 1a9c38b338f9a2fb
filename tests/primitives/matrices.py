"""Samples of what solves equations for matrices, and of functions of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import Sample, each_matrix, normal, regular

from tapegrad.primitives.banded import BandedDefinite
from tapegrad.primitives.cosines import Cosines
from tapegrad.primitives.equations import DiscreteRiccati, Polar, Riccati, Stein, Sylvester
from tapegrad.primitives.permuted import LUParts, Ranked, RowsInOrder
from tapegrad.primitives.powers import Expm, Logm, Sqrtm
from tapegrad.primitives.solving import LU
from tapegrad.primitives.sparse import (
    ExpmProduct,
    Iterated,
    Product,
    RowByRow,
    Rows,
    Sampled,
    SparseProduct,
    Unfinished,
)
from tapegrad.primitives.sparse import Solve as SparseSolve
from tapegrad.primitives.toeplitz import ToeplitzSolve


def of_matrices() -> dict[type, list[Sample]]:
    square = [(3, 3), (1, 1), (2, 3, 3)]
    definite = [_definite(*s) for s in square]
    return {
        Cosines: of_cosines(),
        **of_sparse(),
        Sylvester: [
            Sample(Sylvester(), (regular(*a), _far(*b), normal(*q)), each_matrix(_by_columns))
            for a, b, q in [
                ((3, 3), (2, 2), (3, 2)),
                ((1, 1), (1, 1), (1, 1)),
                ((2, 3, 3), (2, 2), (3, 2)),
            ]
        ],
        Stein: [
            Sample(Stein(), (normal(*s) / 2, normal(*s, seed=1)), each_matrix(_by_series))
            for s in square
        ],
        Polar: [_polar(3, 3), _polar(1, 1), _polar(4, 2), _polar(2, 3, 3)],
        Riccati: [_riccati(2, 1), _riccati(1, 1), _riccati(3, 2)],
        DiscreteRiccati: [_discrete(2, 1), _discrete(1, 1), _discrete(3, 2)],
        LUParts: [
            Sample(LUParts(), (a, *LU().evaluate(a)), _packed, factored=LU(), label=str(a.shape))
            for a in definite
        ],
        RowsInOrder: [
            Sample(RowsInOrder(4), (np.array([3, 2, 4], np.int32),), lambda p: [2, 1, 3, 0]),
            Sample(
                RowsInOrder(2),
                (np.array([[1, 2], [2, 2]], np.int32),),
                lambda p: [[0, 1], [1, 0]],
            ),
        ],
        Ranked: [
            Sample(
                Ranked(of),
                (a,),
                lambda a, found=found: np.broadcast_to(found, (*a.shape[:-2], len(found))),
                smooth=False,
                label=f"{of} {a.shape}",
            )
            for of, found in (("lu", [1, 2, 0]), ("qr", [1, 0]))
            for a in (UNORDERED, np.stack([UNORDERED] * 2))
        ],
        BandedDefinite: [
            Sample(BandedDefinite(low), (x,), lambda x, is_so=is_so: np.bool_(is_so), label=str(k))
            for k, (low, x, is_so) in enumerate(
                [
                    (True, np.array([[2.0, 2.0], [1.0, 0.0]]), True),
                    (True, np.array([[1.0, 1.0], [2.0, 0.0]]), False),
                    (False, np.array([[0.0, 1.0], [2.0, 2.0]]), True),
                ]
            )
        ],
        Expm: [Sample(Expm(), (normal(*s),), each_matrix(_series)) for s in square],
        Sqrtm: [
            Sample(
                Sqrtm(),
                (a,),
                each_matrix(lambda a: (_function(np.sqrt, a), False)),
                label=str(a.shape),
            )
            for a in definite
        ],
        Logm: [
            Sample(
                Logm(),
                (a,),
                each_matrix(lambda a: (_function(np.log, a), False)),
                label=str(a.shape),
            )
            for a in definite
        ],
        ToeplitzSolve: [
            Sample(ToeplitzSolve(), (t, b), _by_toeplitz, label=f"{t.shape}, {b.shape}")
            for t, b in [
                (normal(5) + [0, 0, 4, 0, 0], normal(2, 3)),
                (normal(1) + 3, normal(1, 1)),
                (normal(2, 5) + [0, 0, 4, 0, 0], normal(2, 3)),
                (normal(5) + [0, 0, 4, 0, 0], normal(2, 2, 3)),
            ]
        ],
    }


UNORDERED = np.array([[0.1, 0.5], [2.0, 3.0], [0.3, 4.0]])


def of_sparse() -> dict[type, list[Sample]]:
    indices, starts = np.array([1, 0, 2, 2, 2]), np.array([0, 1, 3, 5])  # one stands twice
    pattern, data, wide = (indices, starts), normal(5), np.array([0, 2, 4])

    def dense(data: Any, indices: Any = indices, starts: Any = starts, n: int = 3) -> Any:
        found = np.zeros((len(starts) - 1, n), data.dtype)
        np.add.at(found, (np.repeat(np.arange(len(starts) - 1), np.diff(starts)), indices), data)
        return found

    def product(turned: bool) -> Any:
        return lambda d, i, s, x: (dense(d, i, s).T if turned else dense(d, i, s)) @ x

    def solved(turned: bool) -> Any:
        return lambda d, i, s, b: np.linalg.solve(dense(d, i, s).T if turned else dense(d, i, s), b)

    regular_data = data + np.array([3.0, 4.0, 0.0, 5.0, 0.0])
    tight: Any = (("atol", 0.0), ("rtol", 1e-15))
    rows = np.repeat(np.arange(3), np.diff(starts))
    found: dict[type, list[Sample]] = {
        Product: [
            Sample(Product(shape, turned), (d, *at, x), product(turned), label=f"{shape}{turned}")
            for shape, d, at in [
                ((3, 3), data, pattern),
                ((2, 3), data[:4], (indices[[0, 1, 2, 2]], wide)),
            ]
            for turned in (False, True)
            for x in [normal(shape[not turned], 2)]
        ],
        SparseProduct: [
            Sample(
                SparseProduct(((2, 3), False, sifted), ((3, 3), True, sifted)),
                (data[:4], indices[[0, 1, 2, 2]], wide, data, *pattern),
                lambda d, i, s, *other: dense(d, i, s) @ dense(*other).T,
                label=str(sifted),
            )
            for sifted in (False, True)
        ]
        + [
            Sample(
                SparseProduct(((3, 3), False, False), ((2, 3), True, False)),
                (data, *pattern, data[:4], indices[[0, 1, 2, 2]], wide),
                lambda d, i, s, *other: dense(d, i, s) @ dense(*other).T,
                label="turned",
            ),
            Sample(
                SparseProduct(((2, 3), True, False), ((2, 3), False, False)),
                (data[:4], indices[[0, 1, 2, 2]], wide, data[:4], indices[:4], wide),
                lambda d, i, s, *other: dense(d, i, s).T @ dense(*other),
                label="both ways",
            ),
        ],
        Sampled: [
            Sample(
                Sampled((3, 3)),
                (*pattern, normal(3, k), normal(3, k, seed=1)),
                lambda i, s, u, v: np.array([u[r] @ v[c] for r, c in zip(rows, i, strict=True)]),
                label=str(k),
            )
            for k in (1, 2)
        ],
        SparseSolve: [
            Sample(
                SparseSolve((3, 3), turned),
                (regular_data, *pattern, normal(3, 2)),
                solved(turned),
                label=str(turned),
            )
            for turned in (False, True)
        ],
        Iterated: [
            Sample(
                Iterated((3, 3), turned, "gmres", tight),
                (regular_data, *pattern, normal(3, 1), np.zeros((3, 1))),
                lambda *of, turned=turned: (solved(turned)(*of[:4]), [0]),
                smooth=False,
                label=str(turned),
            )
            for turned in (False, True)
        ],
        Unfinished: [
            Sample(Unfinished("cg"), (normal(3),), lambda x: x, reverse=False, forward=False)
        ],
        ExpmProduct: [
            Sample(
                ExpmProduct((3, 3), turned),
                (data / 3, *pattern, normal(3, 2)),
                lambda d, i, s, x, turned=turned: (
                    _series(dense(d, i, s).T if turned else dense(d, i, s)) @ x
                ),
                smooth=False,  # as a function of the elements it has no rule
                label=str(turned),
            )
            for turned in (False, True)
        ],
        Rows: [Sample(Rows(5), (starts,), lambda s: rows)],
        RowByRow: [
            Sample(RowByRow(3), (np.array([2, 0, 2, 0]),), lambda r: ([1, 3, 0, 2], [0, 2, 2, 4]))
        ],
    }
    return found


def of_complex_matrices() -> Iterator[Sample]:
    """Of what isn't made of the real samples."""
    for shape in ((3, 3), (1, 1), (2, 3, 3)):
        a = _definite(*shape) + 1j * normal(*shape, seed=1)
        factors = LU().evaluate(a)
        label = f"complex {shape}"
        yield Sample(LUParts(), (a, *factors), _packed, factored=LU(), label=label)
        yield Sample(Expm(), (a / 4,), each_matrix(_series), label=label)
        yield Sample(Sylvester(), (a, a + 1, a / 3), each_matrix(_by_columns), label=label)
        yield _polar(*shape, is_complex=True)
        for primitive, f in ((Sqrtm(), np.sqrt), (Logm(), np.log)):

            def reference(a: Any, f: Any = f) -> Any:
                return each_matrix(lambda a: (_function(f, a), False))(a)

            yield Sample(primitive, (a,), reference, label=label)
    for samples in of_sparse().values():
        for sample in samples:
            if sample.primitive.of_complex:
                wide = [
                    x + 1j * normal(*x.shape, seed=k) if x.dtype.kind == "f" else x
                    for k, x in enumerate(sample.operands, 5)
                ]
                yield sample.with_operands(wide, f"complex {sample.label}")
    yield Sample(Ranked("lu"), (UNORDERED * 1j,), lambda a: [1, 2, 0], smooth=False)


def _definite(*shape: int) -> Any:
    """Not symmetric, but with positive eigenvalues, and larger on the diagonal."""
    return normal(*shape) / 4 + np.diag(2.0 + np.arange(shape[-1]))


def _far(*shape: int) -> Any:
    """With eigenvalues far from those of `regular`, and their opposites."""
    return normal(*shape) / 4 + 9 * np.eye(shape[-1])


def _by_columns(a: Any, b: Any, q: Any) -> Any:
    """As a system for all elements, row by row."""
    system = np.kron(a, np.eye(len(b))) + np.kron(np.eye(len(a)), b.T)
    return np.linalg.solve(system, q.ravel()).reshape(q.shape)


def _by_series(a: Any, q: Any) -> Any:
    system = np.eye(a.size) - np.kron(a, a)
    return np.linalg.solve(system, q.ravel()).reshape(q.shape)


def _series(a: Any) -> Any:
    total = term = np.eye(len(a))
    for k in range(1, 60):
        term = term @ a / k
        total = total + term
    return total


def _function(f: Any, a: Any) -> Any:
    """By eigenvalues."""
    w, v = np.linalg.eig(a)
    found = v @ np.diag(f(w)) @ np.linalg.inv(v)
    return found if np.iscomplexobj(a) else found.real


def _packed(a: Any, *factors: Any) -> Any:
    """By Doolittle's steps."""

    def one(a: Any) -> Any:
        a = a.copy()
        for k in range(len(a)):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return a

    return each_matrix(one)(a)


def _by_toeplitz(t: Any, b: Any) -> Any:
    n = b.shape[-1]
    i, j = np.indices((n, n))
    whole = t[..., n - 1 + i - j]
    x = np.swapaxes(np.linalg.solve(whole, np.swapaxes(b, -1, -2)), -1, -2)
    return x, np.zeros(np.broadcast_shapes(t.shape[:-1], b.shape[:-2]), bool)


def _polar(*shape: int, is_complex: bool = False) -> Sample:
    """The factors are constants, and the derivative is that of a: the reference finds them anew."""
    a = normal(*shape) + (1j * normal(*shape, seed=1) if is_complex else 0)

    def found(a: Any) -> tuple[Any, Any]:
        w, s, vh = np.linalg.svd(a, full_matrices=False)
        return w @ vh, (vh.conj().T * s) @ vh

    reference = each_matrix(found)
    return Sample(
        Polar(),
        (a, *reference(a)),
        lambda a, u, p: reference(a),
        smooth=False,
        label=f"{a.dtype} {shape}",
    )


def _riccati(n: int, m: int) -> Sample:
    a, b, r = normal(n, n), normal(n, m, seed=1), 2 * np.eye(m)
    q = np.eye(n) + 0.1

    def newton(a: Any, g: Any, q: Any, b: Any, r: Any) -> Any:
        """Kleinman's iteration, from the solution of SciPy's for a start."""
        from scipy.linalg import solve_continuous_are

        x = solve_continuous_are(a, b, q, r) + 0.01 * np.eye(n)
        for _ in range(9):
            closed = a - g @ x
            x = _by_columns(closed.T, closed, -(q + x @ g @ x))
        return x

    g = b @ np.linalg.solve(r, b.T)
    # SciPy takes symmetric matrices, and b and r: differences of one operand aren't those of all.
    return Sample(Riccati(), (a, g, q, b, r), newton, smooth=False, label=f"{n}, {m}")


def _discrete(n: int, m: int) -> Sample:
    a, b, r, q = normal(n, n), normal(n, m, seed=1), 2 * np.eye(m), np.eye(n) + 0.1

    def iterated(a: Any, b: Any, q: Any, r: Any) -> Any:
        x = q
        for _ in range(4000):
            gain = np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a)
            x = a.T @ x @ (a - b @ gain) + q
        return x

    return Sample(DiscreteRiccati(), (a, b, q, r), iterated, smooth=False, label=f"{n}, {m}")


def of_cosines() -> list[Sample]:
    """All types, of lengths odd and even, and of a single number where there is one."""
    found = []
    for sines in (False, True):
        for kind in (1, 2, 3, 4):
            for orthogonal in (False, True):
                for n in (3, 4, 2):
                    whole = _waves(sines, kind, orthogonal, n)
                    primitive = Cosines(sines, kind, (1,), "backward", orthogonal)
                    label = f"{sines=} {kind} {orthogonal=} {n}"
                    by_matrix = lambda x, whole=whole: x @ whole.T  # noqa: E731
                    found.append(Sample(primitive, (normal(2, n),), by_matrix, label=label))
    one = Cosines(False, 2, (1, 0), "backward", False)
    both = _waves(False, 2, False, 3)
    found.append(
        Sample(one, (normal(1, 3),), lambda x: 2 * x @ both.T, label="along two axes, one of 1")
    )
    return found


def _waves(sines: bool, kind: int, orthogonal: bool, n: int) -> Any:
    """The matrix of a transform, as the documentation of SciPy's has its elements."""
    k, j = np.indices((n, n))
    weights, root = np.full(n, 2.0), np.sqrt(2) if orthogonal else 1.0
    ends = np.ones(n)
    if sines:
        angles = {
            1: (j + 1) * (k + 1) / (n + 1),
            2: (j + 0.5) * (k + 1) / n,
            3: (j + 1) * (k + 0.5) / n,
            4: (j + 0.5) * (k + 0.5) / n,
        }
        if kind == 3:
            weights[-1] = root
        if kind == 2:
            ends[-1] = 1 / root
        return ends[:, None] * np.sin(np.pi * angles[kind]) * weights
    angles = {
        1: j * k / (n - 1),
        2: (j + 0.5) * k / n,
        3: j * (k + 0.5) / n,
        4: (j + 0.5) * (k + 0.5) / n,
    }
    if kind == 1:
        weights[[0, -1]], ends[[0, -1]] = root, 1 / root
    if kind == 3:
        weights[0] = root
    if kind == 2:
        ends[0] = 1 / root
    return ends[:, None] * np.cos(np.pi * angles[kind]) * weights
