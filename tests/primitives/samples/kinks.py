"""Of pullbacks through kinks, and of norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import Reference, Sample, each, normal

from tapegrad.primitives.extrema import PickedOver, SharedOver
from tapegrad.primitives.kinks import Leaning, Picked, Shared, Turned
from tapegrad.primitives.norms import Norm, NormPullback, Path
from tapegrad.primitives.stated import Known, Stated


def of_kinks() -> dict[type, list[Sample]]:
    """Pullbacks and their transposes: of what ties nowhere, of ties, and of ties that one or two
    directions settle."""
    ties = np.array([0.0, -0.0, 0.0, 0.0, 2.0, -3.0])
    first = np.array([0.0, 1.0, -2.0, 0.0, -1.0, 1.0])
    second = np.array([0.0, -1.0, 1.0, 5.0, -1.0, 1.0])
    x, y, c = normal(6), normal(6, seed=1), [normal(6, seed=2), normal(6, seed=3)]
    grid = np.array([[1.0, 3.0, 3.0, 3.0], [2.0, 0.0, 2.0, 1.0]])
    moved = np.array([[9.0, 1.0, 1.0, 0.0], [1.0, 9.0, 2.0, 9.0]])
    found: dict[type, list[Sample]] = {k: [] for k in (Turned, Shared, Picked)}
    for n, ds in enumerate([(), (first,), (first, second)]):
        found[Turned].append(Sample(Turned(n), (ties, *ds, c[0]), _turned, smooth=False))
        found[Turned].append(Sample(Turned(n), (x, *ds, c[0]), _turned))
        for larger in (True, False):
            choose = np.maximum if larger else np.minimum
            for a, b in ((x, y), (ties, 0 * ties)):
                points = (a, b, *ds, choose(a, b))
                options = {"smooth": False, "label": f"{larger}, {n}, {b[0]:.1f}"}
                share = Shared(larger, n)
                found[Shared].append(Sample(share, (*points, c[0]), _shared(larger), **options))
                pick = Picked(larger, n)
                found[Picked].append(Sample(pick, (*points, *c), _picked(larger), **options))
    over: dict[type, list[Sample]] = {SharedOver: [], PickedOver: []}
    weights = np.array([[0, 1 / 3, 1 / 3, 1 / 3], [0.5, 0, 0.5, 0]])
    chosen = np.array([[0, 0.5, 0.5, 0], [0, 0, 1, 0.0]])
    for sign in (1, -1):  # the smallest of the negative ones, which move the other way
        for ds, w in (((), weights), ((sign * moved,), chosen)):
            points = (sign * grid, *ds, sign * np.array([3.0, 2.0]))
            fields = ((1,), sign > 0, len(ds))
            options = {"smooth": False, "label": f"{sign}, {len(ds)}"}
            share, pick = SharedOver(*fields), PickedOver(*fields)
            over[SharedOver].append(
                Sample(share, (*points, normal(2)), lambda *xs, w=w: w * xs[-1][:, None], **options)
            )
            over[PickedOver].append(
                Sample(
                    pick, (*points, normal(2, 4)), lambda *xs, w=w: np.sum(w * xs[-1], 1), **options
                )
            )
    return {**found, **over}


def of_norms() -> dict[type, list[Sample]]:
    """Away from the origin, at it, and left along one direction or two."""
    rows: Path = (0.5, (("sum", (1,)), ("expand_dims", (1,))))
    x, y, ct = normal(2, 3), normal(2, 3, seed=1), normal(2, 1, seed=2)
    flat, still = x * np.array([[1.0], [0.0]]), 0 * x
    r = np.sqrt(0.5 * np.sum(x**2 + y**2, 1, keepdims=True))
    pair: tuple[Path, Path] = ((1.0, ()), (1.0, ()))
    hypot = np.hypot(x, y[0])
    options: dict[str, Any] = {"smooth": False}
    return {
        Norm: [
            Sample(Norm((rows, rows)), (r**2, x, y), lambda u, x, y: np.sqrt(u), **options),
            Sample(Norm((rows,)), (0 * ct, still), lambda u, x: np.sqrt(u), **options),
        ],
        NormPullback: [
            Sample(
                NormPullback((rows, rows)),
                (x, y, r, ct),
                lambda x, y, r, ct: (0.5 * x * ct / r, 0.5 * y * ct / r),
                label="of rows",
                **options,
            ),
            Sample(
                NormPullback(pair),
                (x, y[0], hypot, x),
                lambda x, y, r, ct: (x * ct / r, y * ct / r),
                label="broadcast",
                **options,
            ),
            Sample(
                NormPullback((rows,), 1),
                (still, x, 0 * ct, ct),
                lambda z, d, r, ct: 0.5 * d * ct / np.sqrt(0.5 * np.sum(d**2, 1, keepdims=True)),
                label="along one direction",
                **options,
            ),
            Sample(
                NormPullback((rows,), 2),
                (still, flat, x, 0 * ct, ct),
                lambda z, d, e, r, ct: 0.5 * e * ct / np.sqrt(0.5 * np.sum(e**2, 1, keepdims=True)),
                label="along two directions",
                **options,
            ),
        ],
        Known: [Sample(Known(), (x, y), lambda x, y: x, smooth=False)],
        Stated: [Sample(Stated(1), (x, y, x), lambda x, y, z: x, smooth=False)],
        Leaning: [Sample(Leaning(), (x, y), lambda x, y: x)],
    }


def _side(*numbers: float) -> float:
    """The sign of the first number that isn't 0."""
    return next((math.copysign(1, s) for s in numbers if s), 0.0)


_turned = each(lambda *xs: xs[-1] * _side(*xs[:-1]))


def _part(larger: bool, x: float, y: float, *ds: float) -> float:
    """How much of a cotangent x gets, of x and y."""
    return 0.5 + 0.5 * _side(x - y, *ds) * (1 if larger else -1)


def _shared(larger: bool) -> Reference:
    part = each(lambda *xs: _part(larger, *xs))
    return lambda *xs: (part(*xs[:-2]) * xs[-1], (1 - part(*xs[:-2])) * xs[-1])


def _picked(larger: bool) -> Reference:
    part = each(lambda *xs: _part(larger, *xs))
    return lambda *xs: part(*xs[:-3]) * xs[-2] + (1 - part(*xs[:-3])) * xs[-1]
