"""The demo and the examples run, and find what they promise."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tapegrad

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    """The example's module, loaded by its path: `examples` is not a package. Where it imports
    another one, that is found as it is where the example runs by itself."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        spec.loader.exec_module(module)
    return module


def test_digits_network_learns(tmp_path):
    picture = tmp_path / "digits.png"
    assert example("digits_network").main(picture) >= 0.95
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_rows_in_memory_and_in_chunks_are_one_program(tmp_path):
    picture = tmp_path / "rows.png"
    assert example("rows_in_parts").main(picture, most=1e5) < 4
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_digits_convolution_learns(tmp_path):
    """Whole, in 30 epochs, it is right on 99.6 % and more."""
    picture = tmp_path / "digits.png"
    assert example("digits_convolution").main(picture, epochs=3) >= 0.9
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["character_lstm", "character_transformer"])
def test_characters_are_foreseen(name, tmp_path):
    """Whole, it takes 2.2 to 2.4 bits a letter."""
    picture = tmp_path / "text.png"
    module = example(name)
    options = {"units": 32} if name == "character_lstm" else {"features": 16}
    assert module.main(picture, count=15_000, epochs=4, **options) < 5
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_there_is_a_text_without_pydocs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    text = example("character_lstm").text_of(5000)
    assert len(text) == 5000 and "array" in text


def test_variational_autoencoder_keeps_images_in_eight_numbers(tmp_path):
    """Whole, in 100 epochs, it is left with an error of 0.014."""
    picture = tmp_path / "digits.png"
    coded, mean = example("variational_autoencoder").main(picture, epochs=12)
    assert coded < 0.7 * mean
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_tied_autoencoder_keeps_images_in_eight_numbers(tmp_path):
    """Whole, in 200 epochs, it is left with four fifths of what principal components leave."""
    picture = tmp_path / "digits.png"
    coded, components = example("tied_autoencoder").main(picture, epochs=20)
    assert coded < 2 * components
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_own_backward_leaves_the_head_alone(tmp_path):
    """Each step takes the same part of what is left, as by hand."""
    picture = tmp_path / "points.png"
    start, end, y, losses = example("own_backward").main(picture)
    np.testing.assert_array_equal(end[:, :2], start[:, :2])
    np.testing.assert_allclose(end[:, 2:], y[:, 2:], atol=0.02)
    floor = np.sum(y[:, :2] ** 2) / y.size
    left = (losses[0] - floor) * (1 - 2 / y.size) ** (2 * np.arange(len(losses)))
    np.testing.assert_allclose(losses, floor + left)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_heat_control_ends_as_a_ring(tmp_path):
    picture = tmp_path / "heat.png"
    assert example("heat_control").main(picture) < 0.01
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_hologram_puts_the_light_where_it_is_wanted(tmp_path):
    picture = tmp_path / "hologram.png"
    assert example("hologram").main(picture, steps=150) < 0.12
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_kalman_likelihood_finds_the_noises(tmp_path):
    picture = tmp_path / "track.png"
    (push, sensor), slope = example("kalman_likelihood").main(picture, steps=60, grid=3)
    assert 0.2 < push < 0.4
    assert 0.9 < sensor < 1.1
    assert slope < 0.02
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_hidden_markov_finds_the_known_optimum(tmp_path):
    """Zucchini and MacDonald, Hidden Markov Models for Time Series, 2009: 13.1, 19.7, 29.7."""
    picture = tmp_path / "quakes.png"
    rates, likelihood = example("hidden_markov").main(picture)
    np.testing.assert_allclose(np.sort(rates), [13.1, 19.7, 29.7], atol=0.1)
    assert likelihood == pytest.approx(-328.5, abs=0.1)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_gaussian_process_finds_the_noise(tmp_path):
    picture = tmp_path / "process.png"
    (_, _, noise), slope = example("gaussian_process").main(picture)
    assert 0.1 < noise < 0.2
    assert slope < 1e-4
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_survival_finds_what_ages_machines(tmp_path):
    picture, module = tmp_path / "survival.png", example("survival")
    found, errors = module.main(picture)
    assert np.all(np.abs(found - module.TRUTH) < 3 * errors)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_implicit_layer_finds_the_orbit(tmp_path):
    picture, module = tmp_path / "orbit.png", example("implicit_layer")
    found, errors = module.main(picture)
    np.testing.assert_allclose(found[:4], module.TRUTH[:4], atol=0.1)
    assert errors < 1.3
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_nonlinear_diffusion_is_solved_by_newton(tmp_path):
    picture = tmp_path / "plate.png"
    hottest, norms = example("nonlinear_diffusion").main(picture, n=24)
    assert norms[-1] < 1e-8 * norms[0]
    assert 2 < hottest < 3
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_gauss_newton_finds_the_shifts(tmp_path):
    picture = tmp_path / "shifts.png"
    assert example("gauss_newton").main(picture, n=48, steps=4) < 0.12
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_standard_errors_of_both_kinds(tmp_path):
    picture, module = tmp_path / "errors.png", example("standard_errors")
    found, plain, robust, _ = module.main(picture)
    assert np.all(np.abs(found - module.TRUTH) < 3 * robust)
    assert np.all(robust > plain)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_laplace_approximation_is_near_the_evidence(tmp_path):
    """The mode is known from A. Gelman et al.: 0.8 and 7.7 without a prior."""
    picture, module = tmp_path / "laplace.png", example("laplace_approximation")
    evidences = module.main(picture)
    np.testing.assert_allclose(evidences[:, 0], evidences[:, 1], atol=0.01)
    mode, _, _ = module.laplace(module.logistic)
    np.testing.assert_allclose(mode, [0.8, 7.7], atol=0.5)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_per_example_gradients_tell_what_examples_do(tmp_path):
    picture = tmp_path / "examples.png"
    correlation, found = example("per_example_gradients").main(picture, n=300, wrong=24, refits=6)
    assert correlation > 0.99
    assert found > 15
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_variational_inference_finds_the_posterior(tmp_path):
    picture = tmp_path / "posterior.png"
    (mean, deviation), (true_mean, true_deviation) = example("variational_inference").main(picture)
    np.testing.assert_allclose(mean, true_mean, atol=0.05)
    np.testing.assert_allclose(deviation, true_deviation, rtol=0.15)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_echo_sounding_finds_the_layers(tmp_path):
    picture = tmp_path / "layers.png"
    misfit, error = example("echo_sounding").main(picture, iterations=200)
    assert misfit < 0.5
    assert error < 0.11
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_logistic_regression_finds_the_minimum(tmp_path):
    picture = tmp_path / "tumours.png"
    fit, accuracy = example("logistic_regression").main(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert fit.success, fit.message
    assert abs(fit.jac).max() < 1e-4
    assert accuracy >= 0.95


def test_ridge_regression_agrees_with_scikit_learn(tmp_path):
    picture = tmp_path / "weights.png"
    assert example("ridge_regression").main(picture) < 1e-9
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_ode_fit_finds_the_rates_of_hares_and_lynxes(tmp_path):
    picture = tmp_path / "fit.png"
    module = example("ode_fit")
    module.STEPS = 5  # a year: in the tests each compiled call is played, too
    fit = module.main(picture)
    assert fit.success, fit.message
    assert fit.fun < 2.1
    # The means that Stan's case study of these data finds, with priors.
    expected = [33.9, 5.9, 0.55, 0.80, 0.028, 0.024]
    assert np.allclose(np.exp(fit.x), expected, rtol=0.05)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_example_is_tested():
    named = set(re.findall(r'"(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert {path.stem for path in EXAMPLES.glob("*.py")} - named == set()


def test_the_demo_learns_traces_once_and_shows_what_it_found(tmp_path, capsys):
    demo, plot = example("demo"), tmp_path / "made" / "loss.png"
    result, printed = demo.main(plot), capsys.readouterr().out
    assert result.accuracy >= 0.96
    assert result.losses[-1] < 0.1 * result.losses[0]
    cache = demo.dloss.cache_info()
    assert cache.traces <= 1 and cache.compiles == 1
    assert plot.read_bytes().startswith(b"\x89PNG") and str(plot) in printed
    assert "tape logistic(w, x)" in printed and "def " in printed
    assert "traced" in printed and "compiled" in printed
    assert "all 4,810 derivatives of the loss agree with finite differences" in printed
    assert "written in NumPy they take" in printed
    assert "@@" in printed and "what it takes them for" in printed


def test_the_demos_gradient_by_hand_is_right():
    demo, rng = example("demo"), np.random.default_rng(0)
    params = demo.initial_params(64, 10, rng)
    images, labels = rng.random((5, 64)), rng.integers(0, 10, 5)
    value, gradients = demo.by_hand(params, images, labels)
    expected = tapegrad.value_and_grad(demo.loss)(params, images, labels)
    assert np.isclose(value, expected[0])
    assert all(np.allclose(gradients[name], expected[1][name]) for name in params)
