"""Convolutions, beside PyTorch's and beside loops."""

import functools
import itertools

import numpy as np
import pytest
from tests.nn.agreeing import agrees_with_torch, drawn, gradients

from tapegrad import gradcheck, jvp, nn, trace, vmap

OPTIONS = [
    {},
    {"stride": 2},
    {"padding": 1, "dilation": 2},
    {"padding": "valid"},
    {"padding": "same"},
    {"padding": "same", "dilation": (3, 1)},
    {"stride": (2, 3), "padding": (2, 0), "dilation": (1, 2)},
]
TRANSPOSED = [
    {},
    {"stride": 2, "output_padding": 1},
    {"padding": 1, "dilation": 2},
    {"stride": (2, 3), "padding": (2, 0), "dilation": (1, 2), "output_padding": (0, 2)},
]
# Of images: 2 of 4 channels to 8, by kernels of 3 x 2, in one group, in two, and one a channel.
CASES = [
    *[
        ("conv2d", [(2, 4, 9, 8), (8, 4 // g, 3, 2), (8,)], {**options, "groups": g})
        for options, g in zip(OPTIONS, itertools.cycle((1, 2, 4)))
    ],
    *[
        ("conv_transpose2d", [(2, 4, 5, 4), (4, 8 // g, 3, 2), (8,)], {**options, "groups": g})
        for options, g in zip(TRANSPOSED, itertools.cycle((4, 2, 1)))
    ],
    ("conv2d", [(4, 9, 8), (8, 4, 1, 1)], {}),
    ("conv2d", [(1, 1, 12, 12), (3, 1, 9, 9)], {}),
    ("conv2d", [(2, 2, 12, 12), (2, 1, 9, 9)], {"groups": 2}),
    ("conv2d", [(2, 8, 6, 7), (2, 8, 3, 3), (2,)], {"padding": "same"}),
    ("conv2d", [(2, 8, 9, 8), (3, 8, 3, 4)], {"stride": (1, 2), "dilation": (2, 1), "padding": 1}),
    ("conv1d", [(2, 4, 9), (8, 2, 3), (8,)], {"groups": 2, "stride": 2, "padding": 3}),
    ("conv1d", [(4, 9), (8, 4, 3), (8,)], {"padding": "same"}),
    ("conv3d", [(2, 4, 5, 6, 4), (8, 2, 3, 2, 1)], {"groups": 2, "stride": (2, 1, 1)}),
    ("conv_transpose2d", [(4, 9, 8), (4, 8, 1, 1)], {"stride": 2}),
    ("conv_transpose1d", [(2, 4, 9), (4, 2, 3), (4,)], {"groups": 2, "stride": 2, "padding": 1}),
    ("conv_transpose3d", [(1, 4, 3, 4, 2), (4, 2, 3, 2, 1)], {"stride": (2, 1, 3), "groups": 2}),
]


def plain(name, x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    """By loops over windows and over the elements of one."""
    turned = name == "conv_transpose2d"
    n, c, *sizes = x.shape
    k, s, p, d = weight.shape[2:], stride, padding, dilation
    if turned:
        out = weight.shape[1] * groups
        found = [(m - 1) * s[a] - 2 * p[a] + d[a] * (k[a] - 1) + 1 for a, m in enumerate(sizes)]
    else:
        out = weight.shape[0]
        found = [(m + 2 * p[a] - d[a] * (k[a] - 1) - 1) // s[a] + 1 for a, m in enumerate(sizes)]
    total = np.zeros((n, out, *found))
    for y, z, i, j in itertools.product(*map(range, sizes if turned else found), *map(range, k)):
        far = y * s[0] + i * d[0] - p[0], z * s[1] + j * d[1] - p[1]
        beyond = found if turned else sizes
        if not all(0 <= a < m for a, m in zip(far, beyond, strict=True)):
            continue
        here, there = ((y, z), far) if turned else (far, (y, z))
        for g in range(groups):
            ins, outs = (slice(g * m // groups, (g + 1) * m // groups) for m in (c, out))
            w = weight[ins if turned else outs, :, i, j]
            w = w if turned else w.T
            total[(slice(None), outs, *there)] += x[(slice(None), ins, *here)] @ w
    return total


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # which tells of a copy
@pytest.mark.every(8)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_torchs(case, mode, pytorch):
    name, shapes, options = case
    agrees_with_torch(
        pytorch,
        lambda *xs: getattr(nn, name)(*xs, **options),
        lambda torch: functools.partial(getattr(torch.nn.functional, name), **options),
        drawn(*shapes),
        mode,
        1e-12,
    )


@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_convolutions_are_loops_over_windows(name, groups, mode):
    kernel = (8, 4 // groups, 3, 2) if name == "conv2d" else (4, 8 // groups, 3, 2)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": groups}
    x, weight = drawn((2, 4, 5, 6), kernel)
    found, _ = gradients(lambda *xs: getattr(nn, name)(*xs, **options), (x, weight), mode)
    np.testing.assert_allclose(found, plain(name, x, weight, **options), rtol=1e-12, atol=1e-12)
    assert gradcheck(
        lambda x, w: getattr(nn, name)(x, w, **options) ** 2, (x[:1, :, :3, :4], weight)
    )


@pytest.mark.parametrize("mode", ["never", "always"])
def test_one_product_takes_all_windows(mode):
    """Of any options."""
    options = {"stride": (1, 2), "padding": (1, 2), "dilation": (2, 1)}
    x, weight = drawn((2, 12, 5, 6), (1, 12, 3, 2))
    found, _ = gradients(lambda *xs: nn.conv2d(*xs, **options), (x, weight), mode)
    np.testing.assert_allclose(found, plain("conv2d", x, weight, **options), atol=1e-12)
    _, tape = trace(lambda *xs: nn.conv2d(*xs, **options), x, weight)
    assert sum(call.primitive.name == "einsum" for call in tape.calls) == 1
    assert gradcheck(lambda x, w: nn.conv2d(x, w, **options) ** 2, (x[:1, :, :3, :4], weight))


def test_of_float32_in_rows_and_forward():
    """Types stay, vmap takes rows, and tangents are the convolutions of tangents."""
    x, weight, tx, tw = drawn((3, 4, 6, 5), (2, 4, 3, 3), (3, 4, 6, 5), (2, 4, 3, 3), dtype="f4")
    assert nn.conv2d(x, weight, padding=1).dtype == np.float32
    rows = vmap(lambda x: nn.conv2d(x, weight, padding=1))(x)
    np.testing.assert_allclose(rows, nn.conv2d(x, weight, padding=1), rtol=1e-5, atol=1e-5)
    _, moved = jvp(nn.conv2d, (x, weight), (tx, tw))
    wanted = nn.conv2d(tx, weight) + nn.conv2d(x, tw)
    np.testing.assert_allclose(moved, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shapes", "options", "message"),
    [
        ("conv2d", [(2, 3, 5, 5), (4, 2, 3, 3)], {}, r"takes 2 channels .* \(2, 3, 5, 5\)"),
        ("conv2d", [(2, 4, 5, 5), (3, 2, 3, 3)], {"groups": 2}, "multiple of 2"),
        ("conv2d", [(2, 3, 5), (4, 3, 3)], {}, r"weight has the shape \(4, 3, 3\)"),
        ("conv2d", [(3, 5), (4, 3, 3, 3)], {}, "should have 4 axes"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 7, 3)], {}, r"windows of \(7, 3\) are larger"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3), (3,)], {}, r"bias has the shape \(3,\)"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"stride": 0}, "stride=0 should be"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"groups": 1.5}, "groups=1.5 should be"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"padding": (1, 2, 3)}, "or 2 of them"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"padding": "full"}, '"same", "valid"'),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"padding": "same", "stride": 2}, "stride of 1"),
        ("conv_transpose2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {}, "takes 4 channels"),
        ("conv_transpose2d", [(2, 3, 2, 2), (3, 3, 1, 1)], {"padding": 1}, "leaves nothing"),
        (
            "conv_transpose2d",
            [(2, 3, 2, 2), (3, 3, 1, 1)],
            {"output_padding": 1},
            "less than the stride",
        ),
    ],
)
def test_what_does_not_fit_is_refused(name, shapes, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(nn, name)(*drawn(*shapes), **options)
