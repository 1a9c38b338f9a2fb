"""Attention, beside PyTorch's and beside the formula."""

import functools

import numpy as np
import pytest
from tests.nn.agreeing import agrees_with_torch, drawn, gradients

from tapegrad import grad, gradcheck, nn, random, trace
from tapegrad.nn import attention

MASK = np.random.default_rng(5).random((2, 1, 7, 9)) < 0.6
MASK[..., 0] = True  # each query sees a key
CASES = [
    ([(2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)], {}),
    ([(2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)], {"is_causal": True}),
    ([(2, 3, 9, 4), (2, 3, 7, 4), (2, 3, 7, 5)], {"is_causal": True, "scale": 0.3}),
    ([(2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)], {"attn_mask": MASK}),
    ([(7, 4), (9, 4), (9, 5)], {"attn_mask": MASK[0, 0]}),
    ([(2, 6, 7, 4), (2, 2, 9, 4), (2, 2, 9, 5)], {"enable_gqa": True}),
    ([(2, 6, 7, 4), (2, 2, 9, 4), (2, 2, 9, 5)], {"enable_gqa": True, "attn_mask": MASK}),
]
small_blocks = pytest.mark.parametrize("rows, many", [(128, 1 << 21), (3, 1 << 21), (3, 0)])


@pytest.fixture
def in_blocks(monkeypatch, rows, many):
    """Blocks of so many rows, and so many scores at the most that are kept."""
    monkeypatch.setattr(attention, "ROWS", rows)
    monkeypatch.setattr(attention, "MAX_SCORES", many)


@pytest.mark.every(12)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_values_and_gradients_are_torchs(number, mode, monkeypatch, pytorch):
    monkeypatch.setattr(attention, "ROWS", (128, 3, 3)[number % 3])
    monkeypatch.setattr(attention, "MAX_SCORES", (1 << 21, 1 << 21, 0)[number % 3])
    shapes, options = CASES[number]

    def theirs(torch):
        given = {k: torch.tensor(x) if k == "attn_mask" else x for k, x in options.items()}
        return functools.partial(torch.nn.functional.scaled_dot_product_attention, **given)

    agrees_with_torch(
        pytorch,
        lambda *xs: nn.scaled_dot_product_attention(*xs, **options),
        theirs,
        drawn(*shapes),
        mode,
        1e-12,
    )


def test_the_bias_has_a_derivative_as_in_torch(pytorch):
    agrees_with_torch(
        pytorch,
        nn.scaled_dot_product_attention,
        lambda torch: torch.nn.functional.scaled_dot_product_attention,
        drawn((2, 7, 4), (2, 9, 4), (2, 9, 5), (7, 9)),
        "always",
        1e-12,
    )


def plain(query, key, value, seen, scale=None):
    scores = (
        query @ np.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    )
    weights = np.where(seen, np.exp(scores), 0)
    return weights @ value / np.maximum(weights.sum(-1, keepdims=True), 1e-300)


@small_blocks
@pytest.mark.parametrize("mode", ["never", "always"])
def test_attention_is_its_formula(mode, in_blocks):
    """With a mask that hides all keys from a query, which gets zeros, and a causal one besides."""
    xs = drawn((2, 7, 4), (2, 9, 4), (2, 9, 5))
    seen = MASK[:, 0].copy()
    seen[1, 4] = False
    options = {"attn_mask": seen, "is_causal": True}
    found, slopes = gradients(lambda *xs: nn.scaled_dot_product_attention(*xs, **options), xs, mode)
    np.testing.assert_allclose(found, plain(*xs, seen & np.tri(7, 9, dtype=bool)), atol=1e-14)
    assert not found[1, 4].any() and all(np.isfinite(slope).all() for slope in slopes)
    assert gradcheck(lambda *xs: nn.scaled_dot_product_attention(*xs, **options), tuple(xs))


def test_types_stay_and_large_scores_are_finite():
    query, key, value = (100 * x for x in drawn((3, 4), (5, 4), (5, 2), dtype="f4"))
    assert nn.scaled_dot_product_attention(query, key, value).dtype == np.float32
    slopes = grad(lambda *xs: np.sum(nn.scaled_dot_product_attention(*xs)), argnums=(0, 1, 2))
    for x in slopes(query, key, value):
        assert x.dtype == np.float32 and np.isfinite(x).all()


def test_long_sequences_are_a_loop_that_keeps_no_scores():
    """The tape of a derivative doesn't grow with the length."""
    xs = drawn((2048, 4), (2048, 4), (2048, 4), dtype="f4")
    value, tape = trace(lambda *xs: nn.scaled_dot_product_attention(*xs, is_causal=True), *xs)
    few = [slice(None), slice(0, 300)]
    short = nn.scaled_dot_product_attention(*[x[few[1]] for x in xs], is_causal=True)
    np.testing.assert_allclose(value[:300], short, rtol=1e-4, atol=1e-5)
    assert len(tape.calls) < 100
    df = grad(lambda q, k, v: np.sum(nn.scaled_dot_product_attention(q, k, v) ** 2))
    df(*xs)
    assert df.tapes[0].memory_report().peak_live_bytes < 2048 * 2048 * 4


def test_dropout_draws_as_numpy_does():
    xs = drawn((2, 5, 4), (2, 6, 4), (2, 6, 3))
    weights = np.exp(xs[0] @ np.swapaxes(xs[1], 1, 2) / 2)
    kept = np.random.default_rng(3).random(weights.shape) >= 0.4
    wanted = weights / weights.sum(-1, keepdims=True) * kept / 0.6 @ xs[2]

    def dropped(*xs):
        rng = np.random.default_rng(3)
        return nn.scaled_dot_product_attention(*xs, dropout_p=0.4, rng=rng)

    np.testing.assert_allclose(dropped(*xs), wanted, rtol=1e-12)
    key = random.key(3)
    kept = random.uniform(key, weights.shape) >= 0.4
    np.testing.assert_allclose(
        nn.scaled_dot_product_attention(*xs, dropout_p=0.4, rng=key),
        weights / weights.sum(-1, keepdims=True) * kept / 0.6 @ xs[2],
        rtol=1e-12,
    )
    found, _ = gradients(dropped, xs, "always")
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert gradcheck(dropped, tuple(xs))


@pytest.mark.parametrize("mode", ["never", "always"])
def test_soft_attention_is_its_formula(mode):
    subject, hidden, of_subject, of_hidden, bias = xs = drawn(
        (3, 4, 5), (3, 2), (4, 5), (2, 5), (5,)
    )
    out, weights = nn.soft_attention(*xs)
    scores = np.einsum("fk,nfk->nk", of_subject, subject) + hidden @ of_hidden + bias
    wanted = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(weights, wanted, rtol=1e-12)
    np.testing.assert_allclose(out, np.einsum("nk,nfk->nf", wanted, subject), rtol=1e-12)
    found, _ = gradients(lambda *xs: nn.soft_attention(*xs)[0], xs, mode)
    np.testing.assert_allclose(found, out, rtol=1e-12)
    assert gradcheck(lambda *xs: nn.soft_attention(*xs), tuple(xs))


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ([(3, 4), (5, 3), (5, 2)], {}, r"\(3, 4\), \(5, 3\) and \(5, 2\)"),
        ([(3, 4), (5, 4), (6, 2)], {}, r"\(\.\.\., s, v\)"),
        ([(3, 4), (5, 4), (5, 2)], {"attn_mask": np.ones((2, 5), bool)}, r"shape \(2, 5\)"),
        ([(2, 3, 4), (3, 5, 4), (3, 5, 2)], {}, r"with leading axes that broadcast"),
        ([(1, 4), (5, 4), (5, 2)], {"attn_mask": np.ones((2, 5), bool)}, r"shape \(2, 5\)"),
        ([(3, 4), (5, 4), (5, 2)], {"dropout_p": 1.0}, "probability below 1"),
        ([(3, 3, 4), (2, 5, 4), (2, 5, 2)], {"enable_gqa": True}, "a multiple"),
    ],
)
def test_what_does_not_fit_is_refused(shapes, options, message):
    with pytest.raises(ValueError, match=message):
        nn.scaled_dot_product_attention(*drawn(*shapes), **options)
    with pytest.raises(ValueError, match="soft_attention"):
        nn.soft_attention(*drawn((3, 4, 5), (3, 2), (4, 5), (5, 2)))
