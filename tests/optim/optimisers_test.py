"""Optimisers, schedules and clipping, held against the numbers that PyTorch 2.13 computes."""

import numpy as np
import pytest

from tapegrad import grad, jit, optim
from tapegrad.errors import ArgumentError

START = [1.0, -0.5, 0.0]
GRADIENTS = [
    [0.3, -2.0, 0.1],
    [0.1, 1.5, 0.0],
    [-0.4, 0.5, 1e-3],
    [0.2, 0.5, -1e-3],
    [0.2, -0.7, 2.0],
    [0.0, -0.7, 3.0],
]
# After these six steps, by torch.optim's optimiser with the same options
STEPPED = {
    "sgd(0.1)": [0.96, -0.41, -0.51],
    "sgd(0.1, 0.9, 0.3, 0.01)": [0.8492214893, -0.06151512165, -0.5226086918],
    "sgd(0.1, 0.9, weight_decay=0.01, nesterov=True)": [0.8168841484, -0.2064061387, -1.162996339],
    "adagrad(0.1, 0.1, 0.01, 0.5)": [0.9494477104, -0.4533026916, -0.1356398731],
    "rmsprop(0.1)": [-0.2450340521, 0.0267958522, -2.831777427],
    "rmsprop(0.1, 0.9, 1e-6, 0.01, 0.8, True)": [-0.4022254378, -0.02260768173, -1.955581578],
    "rprop(0.1)": [0.648, -0.48, -0.31],
    "adadelta(0.5, weight_decay=0.1)": [0.9953265786, -0.49908753, -0.006102171925],
    "adam(0.1, weight_decay=0.1)": [0.6393055934, -0.3816727909, -0.3375899159],
    "adam(0.1, amsgrad=True)": [0.7496725417, -0.3971246619, -0.3882733978],
    "adamw(0.1, weight_decay=0.1, amsgrad=True)": [0.6998368665, -0.3726442541, -0.3777730571],
    "adamax(0.1, weight_decay=0.1)": [0.7010753528, -0.3874806416, -0.2333816736],
    "asgd(0.1, 0.01, 0.6, 2, 0.01)": [0.9483779406, -0.4046130863, -0.5081277022],
}
# The learning rate of the first twelve steps, by torch.optim.lr_scheduler
RATES = {
    "exponential(0.5, 0.9)": [
        0.5,
        0.45,
        0.405,
        0.3645,
        0.32805,
        0.295245,
        0.2657205,
        0.23914845,
        0.215233605,
        0.1937102445,
        0.1743392201,
        0.156905298,
    ],
    "exponential(0.5, 0.1, 4, staircase=True)": [
        0.5,
        0.5,
        0.5,
        0.5,
        0.05,
        0.05,
        0.05,
        0.05,
        0.005,
        0.005,
        0.005,
        0.005,
    ],
    "piecewise([3, 7], [0.5, 0.05, 0.005])": [
        0.5,
        0.5,
        0.5,
        0.05,
        0.05,
        0.05,
        0.05,
        0.005,
        0.005,
        0.005,
        0.005,
        0.005,
    ],
    "polynomial(0.5, 0.0, 8, 2.0)": [
        0.5,
        0.3828125,
        0.28125,
        0.1953125,
        0.125,
        0.0703125,
        0.03125,
        0.0078125,
        0.0,
        0.0,
        0.0,
        0.0,
    ],
    "cosine(0.5, 11, 0.1)": [
        0.5,
        0.4918985947,
        0.4682507066,
        0.4309721468,
        0.3830830026,
        0.3284629677,
        0.2715370323,
        0.2169169974,
        0.1690278532,
        0.1317492934,
        0.1081014053,
        0.1,
    ],
    "cosine(0.5, 5, 0.1, restarts=True)": [
        0.5,
        0.4618033989,
        0.3618033989,
        0.2381966011,
        0.1381966011,
        0.5,
        0.4618033989,
        0.3618033989,
        0.2381966011,
        0.1381966011,
        0.5,
        0.4618033989,
    ],
    "linear(0.5, 0.1, 8)": [0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1],
    "one_cycle(0.5, 12)": [
        0.02,
        0.1748948271,
        0.4396425796,
        0.4972077177,
        0.4665064849,
        0.405872827,
        0.3236894988,
        0.2313185513,
        0.1415304991,
        0.06673876509,
        0.01728349371,
        2e-06,
    ],
}


def made(text):
    return eval(text, vars(optim))


def stepped(optimiser, params, gradients, **options):
    state = optimiser.init(params)
    for g in gradients:
        params, state = optimiser.update(g, state, params, **options)
    return params, state


@pytest.mark.every(2)
@pytest.mark.parametrize("text", STEPPED)
def test_steps_are_those_of_torch(text):
    start, gradients = np.array(START), np.array(GRADIENTS)
    params, state = stepped(made(text), start, gradients)
    tolerance = 1e-7 if text.startswith("asgd") else 1e-9  # torch has asgd's rates in float32
    np.testing.assert_allclose(params, STEPPED[text], rtol=tolerance, atol=1e-11)
    assert state.count == len(gradients)


def test_lion_goes_by_signs():
    params, _ = stepped(optim.lion(0.1, weight_decay=0.5), np.array(START), np.array(GRADIENTS))
    p, m = np.array(START), np.zeros(3)
    for g in np.array(GRADIENTS):
        p, m = 0.95 * p - 0.1 * np.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g
    np.testing.assert_allclose(params, p, rtol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize("text", [*STEPPED, "lion(0.1)"])
def test_each_leaf_of_a_tree_is_stepped_alone_in_its_own_precision(text):
    tree = {"w": np.array([START, START]), "b": (np.array(START, np.float32), "name", 0.25)}
    gradients = [{"w": np.array([g, g]), "b": (np.float32(g), None, 0.5)} for g in GRADIENTS]
    params, state = stepped(made(text), tree, gradients)
    whole, _ = stepped(made(text), np.array(START), np.array(GRADIENTS))
    np.testing.assert_allclose(params["w"], [whole, whole], rtol=1e-12)
    narrow, name, number = params["b"]
    assert narrow.dtype == np.float32 and name == "name" and np.ndim(number) == 0
    np.testing.assert_allclose(narrow, whole, rtol=2e-4, atol=1e-5)
    for slot in state.slots.values():
        assert slot["b"][0].dtype == np.float32 and slot["b"][1] is None


@pytest.mark.every(2)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("text", [*STEPPED, "lion(0.1)"])
def test_parameters_keep_their_precision_whatever_gradients_have(text, inplace):
    narrow = [np.float32(g) for g in GRADIENTS]
    expected, _ = stepped(made(text), np.array(START, np.float32), narrow, inplace=inplace)
    wide = [np.float64(g) for g in narrow]
    params, state = stepped(made(text), np.array(START, np.float32), wide, inplace=inplace)
    assert params.dtype == np.float32
    np.testing.assert_array_equal(params, expected)
    assert all(slot.dtype == np.float32 for slot in state.slots.values())


@pytest.mark.every(2)
@pytest.mark.parametrize("text", STEPPED)
def test_in_place_arrays_stay_and_their_numbers_move(text):
    whole, end = stepped(made(text), np.array(START), np.array(GRADIENTS))
    params = np.array(START)
    optimiser = made(text)
    state = optimiser.init(params)
    for g in np.array(GRADIENTS):
        after, state_after = optimiser.update(g, state, params, inplace=True)
        assert after is params
        assert all(state_after.slots[name] is state.slots[name] for name in state.slots)
        state = state_after
    np.testing.assert_array_equal(params, whole)
    for name, slot in end.slots.items():
        np.testing.assert_array_equal(state.slots[name], slot)


def test_one_trace_serves_all_steps():
    optimiser = optim.adam(optim.warmup(optim.cosine(0.1, 5), 2))
    stepped(optimiser, np.array(START), np.array(GRADIENTS))
    assert optimiser._updated.cache_info().traces == 1


def test_updates_inside_a_traced_function_are_part_of_it():
    """The learning rate's own gradient goes through the steps."""

    def loss_after(rate):
        p, optimiser = np.array([1.0, 2.0]), optim.sgd(rate, momentum=0.5)
        state = optimiser.init(p)
        for _ in range(2):
            p, state = optimiser.update(2 * p, state, p)
        return np.sum(p**2)

    h = 1e-6
    differences = (loss_after(0.1 + h) - loss_after(0.1 - h)) / (2 * h)
    np.testing.assert_allclose(grad(loss_after)(0.1), differences, rtol=1e-7)


@pytest.mark.parametrize("text", RATES)
def test_rates_are_those_of_torch(text):
    schedule = made(text)
    np.testing.assert_allclose([schedule(n) for n in range(12)], RATES[text], rtol=1e-9)
    traced = jit(schedule)
    np.testing.assert_allclose([traced(n) for n in range(12)], RATES[text], rtol=1e-9)
    assert traced.cache_info().traces == 1


def test_warmup_and_inverse_sqrt():
    schedule = optim.warmup(optim.exponential(0.4, 0.5), 4, start=0.1)
    found = [schedule(n) for n in range(7)]
    np.testing.assert_allclose(found, [0.1, 0.175, 0.25, 0.325, 0.4, 0.2, 0.1])
    schedule = optim.inverse_sqrt(1.0, 4)
    np.testing.assert_allclose([schedule(n) for n in (0, 3, 15)], [0.25, 1.0, 0.5])
    assert optim.constant(0.3)(5) == 0.3
    np.testing.assert_allclose(optim.warmup(0.2, 2)(1), 0.1)


def test_clipping():
    tree = {"a": np.array([3.0, 0.0]), "b": np.array([[-4.0]], np.float32)}
    assert optim.global_norm(tree) == 5.0
    clipped = optim.clip_by_norm(tree, 1.0)
    np.testing.assert_allclose(clipped["a"], [0.6, 0.0])
    np.testing.assert_allclose(clipped["b"], [[-0.8]], rtol=1e-6)
    assert clipped["b"].dtype == np.float32
    np.testing.assert_array_equal(optim.clip_by_norm(tree, 5.0)["a"], tree["a"])
    np.testing.assert_array_equal(optim.clip_by_value(tree, 2.0)["b"], [[-2.0]])
    params = np.zeros(2)
    optimiser = optim.sgd(1.0).clipped(value=3.0, norm=1.0)
    params, _ = optimiser.update(np.array([3.0, -40.0]), optimiser.init(params), params)
    np.testing.assert_allclose(params, np.array([-1.0, 1.0]) / np.sqrt(2))


@pytest.mark.parametrize("scale", [1e-200, 1e200, 1e-310])
def test_norms_neither_overflow_nor_vanish(scale):
    np.testing.assert_allclose(optim.global_norm([np.array([3.0, 4.0]) * scale]), 5 * scale)


def test_norms_of_what_is_not_finite():
    assert np.isnan(optim.global_norm([np.array([1.0, np.nan])]))
    assert optim.global_norm([np.array([1.0, np.inf])]) == np.inf
    assert optim.global_norm([]) == 0.0
    assert np.all(np.isnan(optim.clip_by_norm(np.array([1.0, np.nan]), 1.0)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("adam(betas=(1.0, 0.9))", "betas"),
        ("sgd(nesterov=True)", "momentum"),
        ("sgd(weight_decay=-1.0)", "weight_decay"),
        ("sgd(momentum=float('nan'))", "momentum"),
        ("rprop(etas=(1.5, 2.0))", "etas"),
        ("cosine(1.0, 0)", "steps"),
        ("piecewise([3, 2], [1.0, 2.0, 3.0])", "boundaries"),
        ("piecewise([3], [1.0])", "rates"),
        ("one_cycle(1.0, 2)", "one_cycle"),
        ("clip_by_norm([1.0], 0.0)", "norm"),
    ],
)
def test_options_that_make_no_sense(text, words):
    with pytest.raises(ArgumentError, match=words):
        made(text)


def test_gradients_that_do_not_fit():
    optimiser = optim.adam()
    params = {"w": np.zeros(3)}
    state = optimiser.init(params)
    with pytest.raises(ArgumentError, match=r"params\['w'\] has shape \(3,\)"):
        optimiser.update({"w": np.zeros((3, 1))}, state, params)
    with pytest.raises(ArgumentError, match="nothing is at \\('w',\\)"):
        optimiser.update({"v": np.zeros(3)}, state, params)
    with pytest.raises(ArgumentError, match="complex"):
        optimiser.update(np.zeros(2), optimiser.init(np.zeros(2, complex)), np.zeros(2, complex))
    with pytest.raises(ArgumentError, match="has a gradient that is complex"):
        optimiser.update({"w": np.zeros(3, complex)}, state, params)


def test_own_functions_write_in_place():
    params = {"a": [np.ones(2), np.ones(3)], "b": np.ones(1)}
    grads = {"a": [np.full(2, 0.5), np.full(3, 0.5)], "b": None}
    kept = params["a"][0]
    assert optim.update(params, grads, lambda p, g: p - 0.1 * g, ignore=[("a", 1)]) is params
    np.testing.assert_allclose(kept, 0.95)
    np.testing.assert_array_equal(params["a"][1], 1.0)
    optim.update(params, grads, ignore={"b", "a"})
    np.testing.assert_allclose(kept, 0.95)
    with pytest.raises(ArgumentError, match="no leaf"):
        optim.update(params, grads, ignore={"c"})
    with pytest.raises(ArgumentError, match="can't be written into"):
        optim.update({"x": 1.0}, {"x": 2.0})


def test_integers_are_not_clipped():
    tree = {"g": np.array([3.0, 4.0]), "n": np.array([100, 200])}
    assert optim.global_norm(tree) == 5.0
    for clipped in (optim.clip_by_norm(tree, 1.0), optim.clip_by_value(tree, 1.0)):
        assert clipped["n"].dtype == np.int64 and list(clipped["n"]) == [100, 200]
