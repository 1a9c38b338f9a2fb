"""bottleneck's reductions and moving windows, beside its own code and differences."""

import numpy as np
import pytest

from tapegrad import grad, gradcheck
from tapegrad.errors import UnsupportedError

bn = pytest.importorskip("bottleneck")

X = np.array([[0.7, -1.3, 0.4, 2.0], [1.1, 0.2, -0.6, 0.9]])
GAPS = np.where(np.array([[0, 0, 1, 0], [0, 1, 1, 0]], bool), np.nan, 1.0)

REDUCTIONS = {
    **{
        name: lambda x, name=name: np.sum(getattr(bn, name)(x * GAPS, axis=1) ** 2)
        for name in ("nansum", "nanmean", "nanmin", "nanmax", "nanmedian", "nanstd", "nanvar")
    },
    "of all": lambda x: bn.nansum(x * GAPS) * bn.nanmean(x) + bn.median(x) + bn.ss(x),
    "ddof": lambda x: bn.nanvar(x, ddof=1) + bn.nanstd(x, 1, 1)[0],
    "a place": lambda x: x[0, bn.nanargmax(x[0] * GAPS[0])] ** 2 + x[1, bn.nanargmin(x[1])],
    "a test": lambda x: np.sum(x**3) if bn.anynan(x * GAPS) and not bn.allnan(x) else np.sum(x),
    "push": lambda x: np.sum(bn.push(x * GAPS) * X) + np.sum(bn.push(x, 1) ** 2),
}
WINDOWS = {
    name: lambda x, name=name: np.nansum(getattr(bn, f"move_{name}")(x * GAPS, 2, 1) ** 2 * X)
    for name in ("sum", "mean", "std", "var", "min", "max", "median")
}
WINDOWS["of full windows"] = lambda x: np.nansum(bn.move_mean(x, 3) * bn.move_sum(x, 3))
WINDOWS["down"] = lambda x: np.nansum(bn.move_var(x, 2, axis=0, ddof=1) * X)
PROGRAMS = REDUCTIONS | WINDOWS


@pytest.mark.every(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_its_own_code_and_as_differences(name):
    f = PROGRAMS[name]
    assert gradcheck(f, X)
    g = grad(f, compile="never")
    for k in range(3):
        g(X * (1 + k / 16))
    assert g.cache_info().traces == 1


def test_windows_that_it_refuses():
    with pytest.raises(ValueError):
        bn.move_sum(X, 5)
    with pytest.raises(ValueError):
        grad(lambda x: np.nansum(bn.move_sum(x, 5)))(X)


def test_what_is_not_followed_can_not_be_caught():
    """Of a plain array there is no error."""

    def f(x):
        y = x.copy()
        try:
            bn.replace(y, y[0], 0.5)
        except TypeError:
            return np.sum(x)
        return np.sum(y**2)

    assert f(np.array([2.0, 1.0])) == 1.25
    with pytest.raises(UnsupportedError, match="replace was called with a traced value"):
        grad(f)(np.array([2.0, 1.0]))
