"""What `tapegrad.nn` has of its own: slopes at kinks, tails, errors, draws, statistics."""

from __future__ import annotations

import re

import mpmath
import numpy as np
import pytest

from tapegrad import elementwise_grad, grad, jit, nn, random, value_and_grad, vmap

MODES = pytest.mark.parametrize("mode", ["never", "always"])

KINKS = {
    "relu": [0.0],
    "relu6": [0.0, 6.0],
    "leaky_relu": [0.0],
    "elu": [0.0],
    "celu": [0.0],
    "selu": [0.0],
    "hardtanh": [-1.0, 1.0],
    "hardsigmoid": [-3.0, 3.0],
    "hardswish": [-3.0, 3.0],
    "softshrink": [-0.5, 0.5],
    "hardshrink": [-0.5, 0.5],
    "softplus": [0.0, 20.0],
    "softsign": [0.0],
    "sigmoid": [0.0],
    "logsigmoid": [0.0],
    "mish": [0.0],
}


@pytest.mark.parametrize("name", KINKS)
def test_slopes_at_kinks_are_torchs(name, pytorch):
    x = np.array(KINKS[name])

    def wanted(torch):
        there = torch.tensor(x, requires_grad=True)
        return torch.autograd.grad(getattr(torch.nn.functional, name)(there).sum(), there)

    found = elementwise_grad(getattr(nn, name), compile="never")(x)
    pytorch.agrees([found], wanted, 1e-7)


LOSSES = ("hinge_embedding_loss", "soft_margin_loss", "smooth_l1_loss", "huber_loss")


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_of_losses_at_their_margins_are_torchs(name, pytorch):
    x, t = np.array([1.0, -1.0, 0.0]), np.array([1.0, -1.0, -1.0])

    def wanted(torch):
        there = torch.tensor(x, requires_grad=True)
        loss = getattr(torch.nn.functional, name)(there, torch.tensor(t))
        return torch.autograd.grad(loss, there)

    found = grad(lambda x: getattr(nn, name)(x, t), compile="never")(x)
    pytorch.agrees([found], wanted, 1e-12)


TAILS = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "logsigmoid": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
}


@MODES
@pytest.mark.parametrize("name", TAILS)
def test_tails_keep_their_digits(name, mode):
    """Values and slopes, far out on both sides."""
    x = np.array([-700.0, -60.0, -20.0, -3.0, 0.0, 3.0, 15.0, 600.0])
    if name == "gelu":
        x = x[1:]
    f = getattr(nn, name)
    with mpmath.workdps(400):
        values = [float(TAILS[name](mpmath.mpf(v))) for v in x]
        slopes = [float(mpmath.diff(TAILS[name], mpmath.mpf(v))) for v in x]
    np.testing.assert_allclose(jit(f, compile=mode)(x), values, rtol=2e-13)
    # Slopes of gelu, silu and mish go through 0 where none of these points is.
    np.testing.assert_allclose(elementwise_grad(f, compile=mode)(x), slopes, rtol=1e-12)


@MODES
def test_losses_of_logits_keep_their_digits(mode):
    """Near 0, where log(softmax(x)) and x - t x + softplus(-x) are 0 or only rounding."""
    scores = np.array([[40.0, 0.0, -1.0], [0.0, 90.0, 1.0]])
    labels = np.array([0, 1])
    value, slope = value_and_grad(nn.cross_entropy, compile=mode)(scores, labels, reduction="sum")
    others = np.array([np.logaddexp(0.0, -1.0) - 40.0, np.logaddexp(0.0, 1.0) - 90.0])
    np.testing.assert_allclose(value, np.sum(np.exp(others)), rtol=1e-13)
    np.testing.assert_allclose(slope[labels, labels], -np.exp(others), rtol=1e-13)
    np.testing.assert_allclose(slope.sum(axis=1), 0, atol=1e-30)
    f = nn.binary_cross_entropy_with_logits
    x, t = np.array([-60.0, 60.0]), np.array([0.0, 1.0])
    value, slope = value_and_grad(f, compile=mode)(x, t, reduction="sum")
    np.testing.assert_allclose(value, 2 * np.exp(-60), rtol=1e-13)
    np.testing.assert_allclose(slope, [np.exp(-60), -np.exp(-60)], rtol=1e-13)


@MODES
def test_masked_classes_have_no_share(mode):
    """Scores of -inf; where all others are, the loss is 0."""
    scores = np.array([[1.0, -np.inf, 2.0], [-np.inf, 3.0, -np.inf]])
    df = value_and_grad(nn.cross_entropy, compile=mode)
    value, slope = df(scores, np.array([0, 1]), reduction="sum")
    np.testing.assert_allclose(value, np.log1p(np.e), rtol=1e-14)
    share = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(slope, [[-share, 0, share], [0, 0, 0]], rtol=1e-14)
    np.testing.assert_array_equal(nn.softmax(scores)[1], [0, 1, 0])


CROPPED = {
    "constant": ([1, 2, 3, 4, 0, 0], [0, 0, 0, 1, 2, 3]),
    "reflect": ([1, 2, 3, 4, 3, 2], [2, 1, 0, 1, 2, 3]),
    "replicate": ([1, 2, 3, 4, 4, 4], [0, 0, 0, 1, 2, 3]),
    "circular": ([1, 2, 3, 4, 1, 2], [2, 3, 0, 1, 2, 3]),
}


@pytest.mark.parametrize("mode", CROPPED)
def test_negative_numbers_take_entries_away(mode):
    x, w = np.arange(5.0), np.arange(6.0) ** 2
    for edges, wanted in zip(((-1, 2), (2, -1)), CROPPED[mode], strict=True):
        np.testing.assert_array_equal(nn.pad(x, edges, mode), wanted)
        slope = grad(lambda x, edges=edges: np.sum(w * nn.pad(x, edges, mode)))(x)
        np.testing.assert_array_equal(np.sum(slope * x), np.sum(w * wanted))


@MODES
def test_numbers_and_empty_batches(mode):
    """The only share of a number is the whole; no batch has no divergence."""
    for of in (nn.softmax, nn.log_softmax):
        value, slope = value_and_grad(lambda x, of=of: 2 * of(x), compile=mode)(0.3)
        assert (value, slope) == (2.0 * (of is nn.softmax), 0.0)
    assert nn.kl_div(np.ones((0, 3)), np.ones((0, 3)), "batchmean") == 0


BAD = [
    (lambda: nn.mse_loss(np.ones(3), np.ones((3, 1))), "input has shape (3,) and target has"),
    (lambda: nn.mse_loss(np.ones(3), np.ones(3), "avg"), "reduction='avg' is none of 'none', "),
    (lambda: nn.l1_loss(np.ones(3), np.ones(3), "batchmean"), "reduction='batchmean'"),
    (lambda: nn.huber_loss(np.ones(3), np.ones(3), delta=0), "delta=0 must be positive"),
    (lambda: nn.smooth_l1_loss(np.ones(3), np.ones(3), beta=-1), "beta=-1 must not be negative"),
    (lambda: nn.binary_cross_entropy(np.array([1.5]), np.ones(1)), "aren't from 0 to 1"),
    (lambda: nn.gaussian_nll_loss(np.ones(2), np.ones(2), -np.ones(2)), "it is a variance"),
    (lambda: nn.gaussian_nll_loss(np.ones(2), np.ones(2), np.ones(3)), "var has shape (3,)"),
    (lambda: nn.hinge_embedding_loss(np.ones(2), np.zeros(2)), "neither 1 nor -1"),
    (lambda: nn.margin_loss(np.ones(2), -np.ones(2)), "neither 0 nor 1"),
    (lambda: nn.triplet_margin_loss(*np.ones((3, 2, 2)), margin=0), "margin=0 must be positive"),
    (lambda: nn.cross_entropy(np.ones((2, 3)), np.array([0, 3])), "aren't in 0, ..., 2"),
    (lambda: nn.cross_entropy(np.ones((2, 3)), np.array([0, -1])), "aren't in 0, ..., 2"),
    (lambda: nn.nll_loss(np.ones((2, 3)), np.array([0, 1, 2])), "target has shape (3,)"),
    (lambda: nn.nll_loss(np.ones((2, 3)), np.ones(2)), "target must be integers, not float64"),
    (lambda: nn.nll_loss(np.ones((2, 3)), np.array([0, 1]), np.ones(2)), "weight has shape (2,)"),
    (lambda: nn.cross_entropy(np.ones((2, 3)), np.ones((2, 2))), "target has shape (2, 2)"),
    (lambda: nn.multi_margin_loss(np.ones((2, 3)), np.array([0, 1]), p=3), "neither 1 nor 2"),
    (lambda: nn.softmax(np.ones((2, 3)), 2), "no axis 2 in an array of 2 dimensions"),
    (lambda: nn.softmax(np.ones((2, 3)), 0, axis=1), "dim=0 and axis=1 are the same argument"),
    (lambda: nn.softmax(np.ones((2, 3)), "x"), "an axis is an integer, not 'x'"),
    (lambda: nn.glu(np.ones((2, 3))), "axis 1 has 3 elements"),
    (lambda: nn.gelu(np.ones(2), "erf"), 'neither "none" nor "tanh"'),
    (lambda: nn.layer_norm(np.ones((2, 3)), 2), "normalized_shape=(2,)"),
    (lambda: nn.layer_norm(np.ones((2, 3)), 3, np.ones(2)), "weight has shape (2,)"),
    (lambda: nn.group_norm(np.ones((2, 3)), 2), "3 channels aren't 2 equal groups"),
    (lambda: nn.batch_norm(np.ones((1, 3)), training=True), "one value for each channel"),
    (lambda: nn.batch_norm(np.ones((2, 3))), "without training it needs running_mean"),
    (lambda: nn.batch_norm(np.ones((2, 3)), np.ones(2), np.ones(3)), "is for 3 channels"),
    (lambda: nn.embedding(np.array([5]), np.ones((5, 2))), "aren't in 0, ..., 4"),
    (lambda: nn.embedding(np.array([0.5]), np.ones((5, 2))), "input must be integers"),
    (lambda: nn.embedding(FEW, EYE, max_norm=1.0), "max_norm would write into weight"),
    (lambda: nn.embedding_bag(FEW, EYE), "must be (bags, k), or (k,) with offsets"),
    (lambda: nn.embedding_bag(FEW, EYE, FEW[1:]), "offsets must go up from 0 to 2"),
    (lambda: nn.embedding_bag(FEW, EYE, [0, 3]), "offsets must go up from 0 to 2"),
    (lambda: nn.embedding_bag(FEW, EYE, [0], mode="max"), "takes bags of one size"),
    (lambda: nn.embedding_bag(FEW, EYE, [0], mode="min"), "none of 'sum', 'mean', 'max'"),
    (lambda: nn.one_hot(np.array([3]), 3), "aren't in 0, ..., 2"),
    (lambda: nn.index_add(np.ones((2, 3)), 0, np.array([2]), np.ones((1, 3))), "0, ..., 1"),
    (lambda: nn.index_add(np.ones((2, 3)), 0, np.array([1]), np.ones((2, 3))), "source has shape"),
    (lambda: nn.scatter_add(np.ones(3), 0, np.array([0, 1]), np.ones(1)), "doesn't fit src's"),
    (lambda: nn.masked_fill(np.ones(3), np.ones(3), 0), "mask must be bool"),
    (lambda: nn.linear(np.ones((2, 3)), np.ones((3, 2))), "they must be (*, in) and (out, in)"),
    (lambda: nn.linear(np.ones((2, 3)), np.ones((4, 3)), np.ones(3)), "and must have (4,)"),
    (lambda: nn.pad(np.ones(3), (3, 0), "reflect"), "can't pad 3 entries by (3, 0)"),
    (lambda: nn.pad(np.ones(3), (-1, 3), "reflect"), "can't pad 3 entries by (-1, 3)"),
    (lambda: nn.pad(np.ones(3), (-1, -2), "replicate"), "can't pad 3 entries by (-1, -2)"),
    (lambda: nn.pad(np.ones(3), (-3, 1), "circular"), "can't pad 3 entries by (-3, 1)"),
    (lambda: nn.softmax(np.float64(1.0), 1), "there is no axis 1"),
    (lambda: nn.kl_div(np.float64(1.0), np.float64(0.5), "batchmean"), "needs a batch axis"),
    (lambda: nn.pad(np.ones(3), (1, 0), "edge"), "'replicate', 'circular'"),
    (lambda: nn.pad(np.ones(3), (1, 0, 2)), "needs two for each"),
    (lambda: nn.dropout(np.ones(3), 1.5), "p=1.5 is no probability"),
    (lambda: nn.pixel_shuffle(np.ones((3, 2, 2)), 2), "not (*, c * 2 * 2, h, w)"),
    (lambda: nn.interpolate(np.ones((1, 1, 4)), mode="bilinear", size=3), "isn't for 1 dimensions"),
    (lambda: nn.interpolate(np.ones((1, 1, 4))), "pass size or scale_factor"),
    (lambda: nn.interpolate(np.ones((1, 1, 4)), 3, mode="bicubic"), "isn't for 1 dimensions"),
    (lambda: nn.interpolate(np.ones((1, 1, 4)), 3, mode="area", align_corners=True), "not 'area'"),
    (lambda: nn.interpolate(np.ones((1, 1, 4)), 3, recompute_scale_factor=True), "not for size"),
    (lambda: nn.unfold(np.ones((1, 2, 2)), 3), "no kernel of (3, 3) fits into (2, 2)"),
    (lambda: nn.fold(np.ones((4, 5)), 3, 2), "must be (n, c * 4, 4)"),
    (lambda: nn.flatten(np.ones((2, 3)), 1, 0), "end_dim=0 is before start_dim=1"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_arguments_are_told(call, message):
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        call()
    assert message in str(caught.value)


@MODES
def test_values_that_turn_bad_are_told_in_later_calls(mode):
    """The trace has seen good labels, and a call with others raises what a plain call does."""
    scores, labels = np.ones((4, 3)), np.array([0, 1, 2, 0])
    df = grad(nn.cross_entropy, compile=mode)
    df(scores, labels)
    for bad in (labels + 1, labels - 1):
        with pytest.raises(IndexError, match=r"target has numbers that aren't in 0, \.\.\., 2"):
            df(scores, bad)
    df(scores, labels[::-1].copy())
    assert len(df.tapes) == 1
    rows = np.arange(12.0).reshape(4, 3)
    found = vmap(lambda x, label: nn.cross_entropy(x, label), compile=mode)(rows, labels)
    np.testing.assert_allclose(found, nn.cross_entropy(rows, labels, reduction="none"))


@MODES
def test_dropout_draws_as_numpy_does(mode):
    """From a generator, the global one, or by a key; the state moves on as in a plain call."""
    x = np.arange(1.0, 13.0).reshape(3, 4)
    rng, plain = np.random.default_rng(5), np.random.default_rng(5)
    df = value_and_grad(lambda x: np.sum(nn.dropout(x, 0.25, rng=rng) ** 2), compile=mode)
    for _ in range(3):
        kept = plain.random((3, 4)) >= 0.25
        value, slope = df(x)
        np.testing.assert_allclose(slope, np.where(kept, 2 * x / 0.75**2, 0))
        np.testing.assert_allclose(value, np.sum((x * kept / 0.75) ** 2))
    np.random.seed(3)
    found = jit(lambda x: nn.dropout(x), compile=mode)(x)
    np.random.seed(3)
    np.testing.assert_allclose(found, np.where(np.random.random((3, 4)) >= 0.5, 2 * x, 0))
    f = jit(lambda x, key: nn.dropout(x, rng=key), compile=mode)
    for key in random.split(random.key(1)):
        kept = random.uniform(key, (3, 4)) >= 0.5
        np.testing.assert_allclose(f(x, key), np.where(kept, 2 * x, 0))
    assert nn.dropout(x, training=False) is x
    np.testing.assert_array_equal(nn.dropout(x, 1.0), 0 * x)
    assert nn.dropout(x.astype("f4")).dtype == np.float32


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_statistics_are_returned(name, pytorch):
    rng = np.random.default_rng(0)
    x, mean, var = rng.normal(size=(4, 3, 5)), rng.normal(size=3), rng.random(3)

    def wanted(torch):
        there = [torch.tensor(v) for v in (x, mean, var)]
        out = getattr(torch.nn.functional, name)(*there, None, None, True, 0.3)
        return [out, *there[1:]]

    before = mean.copy()
    found = getattr(nn, name)(x, mean, var, None, None, True, 0.3, return_statistics=True)
    pytorch.agrees(found, wanted, 1e-12)
    np.testing.assert_array_equal(mean, before)


def test_masked_entries_have_no_part_in_statistics():
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(4, 3, 5)), rng.random((4, 5)) < 0.6
    known = np.moveaxis(x, 1, -1)[mask]  # (k, 3)
    wanted = (x - known.mean(0)[:, None]) / np.sqrt(known.var(0) + 1e-5)[:, None]
    spoilt = np.where(mask[:, None], x, np.nan)
    found, mean, var = nn.batch_norm(spoilt, training=True, mask=mask, return_statistics=True)
    np.testing.assert_allclose(found, np.where(mask[:, None], wanted, np.nan), rtol=1e-12)
    np.testing.assert_allclose(mean, 0.1 * known.mean(0))
    np.testing.assert_allclose(var, 0.9 + 0.1 * known.var(0, ddof=1))
    whole = nn.batch_norm(x, training=True, mask=np.array([True, True, False, True]))
    part = nn.batch_norm(x[[0, 1, 3]], training=True)
    np.testing.assert_allclose(whole[[0, 1, 3]], part, rtol=1e-12)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_nearest_points_are_torchs(ndim, mode, pytorch):
    """Of float64, too, where PyTorch's slopes are those of other points."""
    x = np.random.default_rng(0).normal(size=(1, 2, *(2, 3, 37)[-ndim:]))
    options = {"scale_factor": (2.1, 2.3, 2.3)[-ndim:], "mode": mode}
    interpolate = jit(lambda x: nn.interpolate(x, **options), compile="never")

    def theirs(torch):
        return [torch.nn.functional.interpolate(torch.tensor(x), **options)]

    pytorch.agrees([interpolate(x)], theirs, 0)


def test_labels_become_rows():
    labels = np.array([[0, 2], [3, 1]])
    for options, count in (({}, 4), ({"num_classes": 6}, 6)):
        found = nn.one_hot(labels, **options)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, np.eye(count)[labels])
    W = np.arange(12.0).reshape(4, 3)
    f = jit(lambda W, i: nn.one_hot(i) @ W, compile="never")
    np.testing.assert_array_equal(f(W, np.array([1, 3])), W[[1, 3]])


def test_functions_of_rows_are_one_kernel():
    """softmax, layer norm and cross entropy, value and gradient."""
    x, w = np.random.default_rng(0).normal(size=(2, 6, 40)).astype("f4")
    for f in (
        lambda x: np.sum(nn.softmax(x) * w),
        lambda x: np.sum(nn.layer_norm(x, 40) * w),
        lambda x: nn.cross_entropy(x, np.arange(6)),
    ):
        source = value_and_grad(f, compile="never").lower(x).source
        assert len(re.findall(r"^def \w+_kernel\d*\(", source, re.M)) == 1


ONES, EYE, SIGNS = np.ones(3), np.eye(3), np.array([-1.0, 1.0, -1.0])
FEW = np.arange(2)
ROWS, FIRST = np.arange(9.0).reshape(3, 3), np.zeros(3, int)
OF_WHAT_IS_NAN = {
    "relu": nn.relu,
    "softshrink": nn.softshrink,
    "hardshrink": nn.hardshrink,
    "capped": lambda x: nn.capped_shifted_negative_exponential(x, 1.0),
    "normalize": lambda x: nn.normalize(x, dim=0)[1:],
    "gaussian_nll_loss": lambda x: nn.gaussian_nll_loss(ONES, ONES, x),
    "hinge_embedding_loss": lambda x: nn.hinge_embedding_loss(x, SIGNS),
    "margin_loss": lambda x: nn.margin_loss(x, np.array([0.0, 1, 0])),
    "margin_ranking_loss": lambda x: nn.margin_ranking_loss(x, ONES, SIGNS),
    "cosine_embedding_loss": lambda x: nn.cosine_embedding_loss(x * EYE, ROWS, SIGNS),
    "triplet_margin_loss": lambda x: nn.triplet_margin_loss(x * EYE, ROWS, ROWS),
    "multi_margin_loss": lambda x: nn.multi_margin_loss(x * EYE, FIRST + 1),
    "cross_entropy": lambda x: nn.cross_entropy(x + ROWS, FIRST + 1, reduction="sum"),
    "rnn_cell": lambda x: nn.rnn_cell(x * EYE, EYE, EYE, EYE, nonlinearity="relu"),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", OF_WHAT_IS_NAN)
def test_nan_stays_nan(name):
    def f(x):
        return np.sum(OF_WHAT_IS_NAN[name](x))

    for of in (f, jit(f, compile="never"), jit(f, compile="always")):
        assert np.isfinite(of(np.array([0.5, 2.0, 1.0])))
        assert np.isnan(of(np.array([np.nan, 2.0, 1.0])))


def test_nan_is_no_probability():
    with pytest.raises(ValueError, match="from 0 to 1"):
        nn.binary_cross_entropy(np.array([np.nan, 0.5]), np.ones(2))


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("compile", ["always", "never"])
def test_labels_numbers_and_masks_may_be_lists(kind, compile):
    x = np.arange(12.0).reshape(3, 4)
    at, mask = kind([0, 2, 1]), kind([True, False, True, True])
    for f, given in (
        (nn.cross_entropy, at),
        (nn.nll_loss, at),
        (nn.multi_margin_loss, at),
        (lambda x, k: nn.embedding(k, x), at),
        (lambda x, k: nn.index_fill(x, 0, k, 7.0), at),
        (lambda x, k: nn.one_hot(k, 4) * x, at),
        (lambda x, k: nn.masked_fill(x, k, 0.0), mask),
    ):
        expected = f(x, np.array(given))
        np.testing.assert_array_equal(f(x, given), expected)
        np.testing.assert_allclose(jit(f, compile=compile)(x, given), expected, rtol=1e-12)
