"""PyWavelets' transforms, beside its own code and differences."""

import numpy as np
import pytest

from tapegrad import grad, gradcheck, jit, value_and_grad

pywt = pytest.importorskip("pywt")

X = np.cos(np.arange(11.0) ** 1.3)
EVEN = np.append(X, 0.3 - X[:5])
TABLE = np.outer(X[:6], [1.0, -0.5, 2.0, 0.3, 0.9])
WAVELET = pywt.Wavelet("db2")


def energy(*parts):
    """Each entry counts by another weight."""
    return sum(np.sum(x**2 * np.cos(1.0 + np.arange(x.size)).reshape(x.shape)) for x in parts)


PROGRAMS = {
    "several levels": (lambda x: energy(*pywt.wavedec(x, "haar", level=2)), X),
    "and back": (lambda x: energy(pywt.waverec(pywt.wavedec(x, "db2", level=1), "db2")), X),
    "thresholds": (
        lambda x: energy(*(pywt.threshold(d, 0.2, "soft") for d in pywt.wavedec(x, "db2"))),
        X,
    ),
    "two axes": (lambda x: energy(pywt.dwt2(x, "db2")[0], *pywt.dwt2(x, "db2")[1]), TABLE),
    "two axes and back": (lambda x: energy(pywt.idwt2(pywt.dwt2(x, "haar"), "haar")), TABLE),
    "along the first": (lambda x: energy(*pywt.dwt(x, "db3", axis=0)), TABLE),
    "back along the first": (lambda x: energy(pywt.idwt(x, 2 * x, "db2", axis=0)), TABLE),
    "all entries": (lambda x: energy(*(y for p in pywt.swt(x, "db2", level=3) for y in p)), EVEN),
    "trimmed": (lambda x: energy(*pywt.swt(x, "haar", 2, trim_approx=True)), EVEN),
    "one part": (lambda x: energy(*(pywt.downcoef(p, x, "db2", level=2) for p in "ad")), X),
    "one part, back": (
        lambda x: energy(*(pywt.upcoef(p, x, "db2", 2, take=k) for p in "ad" for k in (0, 9))),
        X,
    ),
    "continuous": (lambda x: energy(pywt.cwt(x, [1.0, 2.0], "morl")[0]), X),
    "packets": (lambda x: energy(pywt.WaveletPacket(x, "db1", maxlevel=2)["ad"].data), EVEN),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_its_own_code_and_as_differences(name):
    f, x = PROGRAMS[name]
    assert gradcheck(f, x)
    g = grad(f, compile="never")
    for k in range(3):
        g(x * (1 + k / 16))
    assert g.cache_info().traces == 1


@pytest.mark.every(16)
@pytest.mark.parametrize("wavelet", ["haar", "db3", "bior2.2", "coif1"])
@pytest.mark.parametrize("mode", pywt.Modes.modes)
@pytest.mark.parametrize("size", [2, 5, 8])
def test_every_way_to_go_on_beyond_the_ends(mode, wavelet, size):
    def f(x):
        low, high = pywt.dwt(x, wavelet, mode)
        return energy(low, high, pywt.idwt(low * high, high, wavelet, mode))

    x = X[:size]
    assert np.allclose(value_and_grad(f, compile="never")(x)[0], f(x), rtol=1e-12)
    assert gradcheck(f, x)


def test_numbers_stay_as_precise_as_they_are():
    x = X.astype(np.float32)
    for mode in pywt.Modes.modes:
        found = grad(lambda x, mode=mode: np.sum(pywt.dwt(x, "db2", mode)[0][1:] ** 2))(x)
        assert found.dtype == np.float32


def test_another_wavelet_is_another_trace(monkeypatch):
    g = value_and_grad(lambda x: energy(*pywt.dwt(x, WAVELET)), compile="never")
    haar, before = pywt.Wavelet("haar"), WAVELET
    for wavelet in (before, haar, before):
        monkeypatch.setitem(globals(), "WAVELET", wavelet)
        assert np.allclose(g(X)[0], energy(*pywt.dwt(X, wavelet)))


@pytest.mark.every(6)
@pytest.mark.parametrize("part", ["a", "d"])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_parts_of_every_length(part, level):
    """As PyWavelets': the middle of an odd number of entries more ends one sooner."""
    for wavelet in ("haar", "db3", "bior2.2"):
        calls = [lambda x, w=wavelet, k=k: pywt.upcoef(part, x, w, level, k) for k in range(-1, 13)]
        modes = pywt.Modes.modes
        calls += [lambda x, w=wavelet, m=m: pywt.downcoef(part, x, w, m, level) for m in modes]
        for f in calls:
            try:
                wanted = f(X)
            except (ValueError, OverflowError) as error:
                with pytest.raises(type(error), match=str(error)):
                    jit(f, compile="never")(X)
            else:
                found = jit(f, compile="never")(X)
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
