"""Derivatives of sums of exponentials keep their digits where one element has nearly all of the
sum: mpmath works out the formulas to many digits."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

from tapegrad import grad

ROWS = [
    [0.0, -690.0, -50.0],
    [-37.4, 0.0, -36.0],
    [0.0, 0.0, -690.0],
    [1.0, 1.0 - 1e-9, -40.0],
    [300.0, -300.0, 299.0],
    [0.3, -0.2, 0.1],
]
EACH = range(3)


def exact(x: Any) -> tuple[Any, Any, Any]:
    """The shares, their derivatives, and those of these."""
    terms = [mp.exp(mp.mpf(float(v))) for v in x]
    p = [t / mp.fsum(terms) for t in terms]
    same = np.eye(3, dtype=int)
    once = [[p[i] * (int(same[i, j]) - p[j]) for j in EACH] for i in EACH]
    twice = [
        [[once[i][k] * (int(same[i, j]) - p[j]) - p[i] * once[j][k] for k in EACH] for j in EACH]
        for i in EACH
    ]
    return p, once, twice


UNIT = np.eye(3)


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
def test_shares(name: str) -> None:
    """First and second derivatives, by reverse mode twice."""
    f = getattr(sp, name)

    def first(x: Any, w: Any) -> Any:
        return grad(lambda x: np.sum(w * f(x)))(x)

    once = grad(lambda x, w: np.sum(w * f(x)), compile="always")
    twice = grad(lambda x, w, v: np.sum(v * first(x, w)), compile="never")
    weights = UNIT[:1] if name == "logsumexp" else UNIT
    for row in ROWS:
        x = np.array(row)
        with mp.workdps(700):
            p, slopes, bends = exact(x)
            expected = {
                "logsumexp": ([p], [slopes]),
                "softmax": (slopes, bends),
                "log_softmax": (
                    [[slopes[i][j] / p[i] for j in EACH] for i in EACH],
                    [[[-v for v in r] for r in slopes]] * 3,
                ),
            }
            known, bent = (np.array(a).astype(float) for a in expected[name])
        kept: Any = {"rtol": 1e-12, "atol": 1e-307, "err_msg": str(row)}
        tied = name == "softmax" and abs(p[0] - p[1]) < 1e-6  # 1 - 2 p is next to nothing
        for k, w in enumerate(weights):
            np.testing.assert_allclose(once(x, w), known[k], **kept)
            for j, v in enumerate(UNIT):
                if not tied:
                    np.testing.assert_allclose(twice(x, w, v), bent[k][j], **kept)
