"""Pooling, beside PyTorch's and beside loops."""

import functools

import numpy as np
import pytest
from tests.nn.agreeing import agrees_with_torch, drawn, gradients

from tapegrad import grad, gradcheck, jit, jvp, nn, vmap

COMMON = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 3, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 5, "padding": 1, "ceil_mode": True},
]
CASES = [
    *[("max_pool2d", (2, 3, 7, 9), options) for options in COMMON],
    ("max_pool2d", (2, 3, 7, 9), {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": 1}),
    ("max_pool2d", (3, 7, 9), {"kernel_size": 3, "dilation": (1, 2), "stride": 2}),
    *[("avg_pool2d", (2, 3, 7, 9), options) for options in COMMON],
    *[("avg_pool2d", (2, 3, 7, 9), {**o, "count_include_pad": False}) for o in COMMON[1:]],
    *[("avg_pool2d", (3, 7, 9), {**o, "divisor_override": 5}) for o in COMMON[4:]],
    ("max_pool1d", (2, 3, 11), {"kernel_size": 4, "padding": 2, "stride": 3, "dilation": 2}),
    ("avg_pool1d", (2, 3, 11), {"kernel_size": 4, "padding": 2, "stride": 3}),
    ("avg_pool1d", (3, 11), {"kernel_size": 4, "ceil_mode": True, "count_include_pad": False}),
    ("adaptive_avg_pool2d", (2, 3, 7, 9), {"output_size": (3, 3)}),
    ("adaptive_avg_pool2d", (3, 8, 9), {"output_size": 4}),
    ("adaptive_avg_pool2d", (3, 8, 9), {"output_size": (None, 12)}),
    ("adaptive_avg_pool1d", (2, 3, 7), {"output_size": 5}),
]


@pytest.mark.every(16)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_torchs(case, mode, pytorch):
    name, shape, options = case
    (x,) = drawn(shape)
    agrees_with_torch(
        pytorch,
        lambda x: getattr(nn, name)(x, **options),
        lambda torch: functools.partial(getattr(torch.nn.functional, name), **options),
        [x],
        mode,
        1e-12,
    )
    if name.startswith("max"):
        both = {**options, "return_indices": True}
        pytorch.agrees(
            getattr(nn, name)(x, **both),
            lambda torch: getattr(torch.nn.functional, name)(torch.tensor(x), **both),
            0,
        )


def test_equal_elements_and_nan_as_in_torch(pytorch):
    """The first of equal elements has the derivative, and the last NaN is the largest."""
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 8, 8)).astype(float)
    options = {"kernel_size": 3, "stride": 2, "padding": 1}
    agrees_with_torch(
        pytorch,
        lambda x: nn.max_pool2d(x, **options),
        lambda torch: functools.partial(torch.nn.functional.max_pool2d, **options),
        [x],
        "always",
        0,
    )
    x[0, 0, 2:4, 2:4] = np.nan
    x[1, 1] = -np.inf
    options["return_indices"] = True
    pytorch.agrees(
        nn.max_pool2d(x, **options),
        lambda torch: torch.nn.functional.max_pool2d(torch.tensor(x), **options),
        0,
    )


def windows(shape, kernel, stride, padding):
    """The places of the elements of each window that are inside."""
    counts = [(n + 2 * padding - k) // stride + 1 for n, k in zip(shape, kernel, strict=True)]
    for at in np.ndindex(*counts):
        starts = [k * stride - padding for k in at]
        ends = [start + k for start, k in zip(starts, kernel, strict=True)]
        yield at, tuple(slice(max(0, s), max(0, e)) for s, e in zip(starts, ends, strict=True))


@pytest.mark.parametrize("mode", ["never", "always"])
def test_pools_are_loops_over_windows(mode):
    (x,) = drawn((2, 3, 7, 8))
    options = {"kernel_size": (3, 2), "stride": 2, "padding": 1}
    largest, _ = gradients(lambda x: nn.max_pool2d(x, **options), [x], mode)
    means, _ = gradients(lambda x: nn.avg_pool2d(x, **options, count_include_pad=False), [x], mode)
    sums, _ = gradients(lambda x: nn.avg_pool2d(x, **options, divisor_override=1), [x], mode)
    for (i, j), place in windows(x.shape[2:], (3, 2), 2, 1):
        inside = x[:, :, *place]
        np.testing.assert_array_equal(largest[:, :, i, j], inside.max((2, 3)))
        np.testing.assert_allclose(means[:, :, i, j], inside.mean((2, 3)), rtol=1e-12)
        np.testing.assert_allclose(sums[:, :, i, j], inside.sum((2, 3)), rtol=1e-12)
    few = x[:1, :1]
    assert gradcheck(lambda x: nn.max_pool2d(x, **options) ** 2, (few,))
    assert gradcheck(lambda x: nn.avg_pool2d(x, **options, ceil_mode=True) ** 2, (few,))
    assert gradcheck(lambda x: nn.adaptive_avg_pool2d(x, (2, 3)) ** 2, (few,))


def test_places_in_a_trace_and_of_rows():
    """Places are integers of the trace, which index; types stay, and vmap and jvp follow."""
    x, t = drawn((2, 3, 6, 7), (2, 3, 6, 7), dtype="f4")
    value, places = jit(lambda x: nn.max_pool2d(x, 2, return_indices=True))(x)
    assert value.dtype == np.float32
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(
        value.reshape(2, 3, -1), np.take_along_axis(flat, places.reshape(2, 3, -1), -1)
    )
    rows = vmap(lambda x: nn.max_pool2d(x, 2))(x)
    np.testing.assert_array_equal(rows, value)
    _, moved = jvp(lambda x: nn.max_pool2d(x, 2), (x,), (t,))
    np.testing.assert_array_equal(
        moved.reshape(2, 3, -1),
        np.take_along_axis(t.reshape(2, 3, -1), places.reshape(2, 3, -1), -1),
    )
    assert nn.avg_pool2d(x, 3, ceil_mode=True).dtype == np.float32
    assert grad(lambda x: np.sum(nn.adaptive_avg_pool2d(x, 4)))(x).dtype == np.float32
    np.testing.assert_array_equal(nn.max_pool1d(np.array([[3, 1, 2]]), 2), [[3]])


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("max_pool2d", (2, 3, 5), {"kernel_size": 6}, "larger than the input"),
        ("max_pool2d", (2, 3), {"kernel_size": 2}, r"shape \(2, 3\)"),
        ("max_pool2d", (2, 3, 5, 5), {"kernel_size": 2, "padding": 2}, "at most half"),
        ("max_pool1d", (3, 5), {"kernel_size": 0}, "kernel_size=0 should be an integer, from 1"),
        ("avg_pool2d", (2, 3, 5, 5), {"kernel_size": 2.0}, "kernel_size=2.0"),
        ("avg_pool2d", (3, 5, 5), {"kernel_size": 2, "divisor_override": 0}, "other than 0"),
        ("adaptive_avg_pool2d", (3, 5, 5), {"output_size": (1, 2, 3)}, "output_size"),
        ("adaptive_avg_pool2d", (3, 5, 0), {"output_size": 1}, r"\(1, 3, 5, 0\)"),
    ],
)
def test_what_does_not_fit_is_refused(name, shape, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(nn, name)(*drawn(shape), **options)
