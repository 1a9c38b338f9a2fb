"""Training: steps, minibatches, checkpoints, early stopping; and SciPy's minimisers on trees."""

import functools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tapegrad import optim
from tapegrad.errors import ArgumentError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(70, 3))
W = np.array([1.0, -2.0, 0.5])
Y = X @ W + 0.3


def loss(params, x, y):
    return np.mean((x @ params["w"] + params["b"] - y) ** 2)


def start():
    return {"w": np.zeros(3), "b": 0.0}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_training_step_is_gradient_and_update(compile):
    optimiser = optim.adam(0.1)
    step = optim.training_step(loss, optimiser, compile=compile)
    params, state = start(), optimiser.init(start())
    other, state2 = start(), optimiser.init(start())
    for _ in range(4):
        value, params, state = step(params, state, X, Y)
        residual = X @ other["w"] + other["b"] - Y
        np.testing.assert_allclose(value, np.mean(residual**2), rtol=1e-12)
        grads = {"w": 2 * X.T @ residual / len(Y), "b": 2 * np.mean(residual)}
        other, state2 = optimiser.update(grads, state2, other)
    for name in other:
        np.testing.assert_allclose(params[name], other[name], rtol=1e-9)
    assert step.cache_info().traces <= 2  # `b` is a Python number at first


def test_a_training_step_with_more_than_a_loss():
    optimiser = optim.sgd(0.1)
    step = optim.training_step(lambda p, x: (np.sum(p * x), {"x": x}), optimiser, has_aux=True)
    (value, aux), params, _ = step(np.ones(2), optimiser.init(np.ones(2)), np.array([1.0, 2.0]))
    assert value == 3.0 and list(aux["x"]) == [1.0, 2.0] and np.allclose(params, [0.9, 0.8])


def test_fit_finds_the_minimum():
    fitted = optim.fit(loss, start(), (X, Y), optim.adam(0.1), epochs=60, batch_size=16)
    np.testing.assert_allclose(fitted.params["w"], W, atol=1e-3)
    np.testing.assert_allclose(fitted.params["b"], 0.3, atol=1e-3)
    assert [entry["epoch"] for entry in fitted.history] == list(range(1, 61))
    assert fitted.best == 60 and not fitted.stopped


def test_fit_visits_each_row_once_an_epoch_in_orders_of_the_seed():
    seen = []

    def noted(p, rows):
        seen.append(rows.astype(int).tolist())
        return np.sum(p * 0.0) + np.sum(rows * 0.0)

    rows = np.arange(10.0)
    orders = []
    for seed in (0, 0, 1):
        seen.clear()
        optim.fit(lambda p, at: np.sum(p * at), np.zeros(1), rows, optim.sgd(0.0), epochs=1)
        orders.append(_orders(seed))
    assert orders[0] == orders[1] != orders[2]
    for epochs in orders:
        for order in epochs:
            assert sorted(order) == list(range(10))
    assert orders[0][0] != orders[0][1]


def _orders(seed):
    """The rows of two epochs, read off steps that write down what they are given."""
    from tapegrad.optim.fitting import Order

    order = Order(10, 4, True, False, seed)
    assert [len(rows) for rows in order.of(0)] == [4, 4, 2]
    return [np.concatenate(order.of(epoch)).tolist() for epoch in (0, 1)]


def test_one_long_batch_and_batches_that_are_dropped():
    whole = optim.fit(loss, start(), (X, Y), optim.sgd(0.1), epochs=3, batch_size=None)
    params = start()
    for _ in range(3):
        residual = X @ params["w"] + params["b"] - Y
        params["w"] = params["w"] - 0.2 * X.T @ residual / len(Y)
        params["b"] = params["b"] - 0.2 * np.mean(residual)
    np.testing.assert_allclose(whole.params["w"], params["w"], rtol=1e-9)
    dropped = optim.fit(loss, start(), (X, Y), epochs=2, batch_size=32, drop_last=True)
    assert dropped.state.count == 4


def test_the_loss_of_an_epoch_is_the_mean_over_its_rows():
    fitted = optim.fit(loss, start(), (X, Y), optim.sgd(0.0), epochs=1, batch_size=32)
    np.testing.assert_allclose(fitted.history[0]["loss"], np.mean(Y**2), rtol=1e-12)


def test_early_stopping_returns_the_best_parameters():
    """The validation data say the opposite of the data, so the first epoch is the best."""
    fitted = optim.fit(
        loss, start(), (X, Y), optim.sgd(0.05), epochs=20, validation=(X, -Y), patience=3
    )
    assert fitted.stopped and fitted.best == 1 and len(fitted.history) == 4
    lowest = min(entry["validation"] for entry in fitted.history)
    np.testing.assert_allclose(loss(fitted.params, X, -Y), lowest, rtol=1e-12)


def test_a_callback_can_stop_the_run():
    entries = []

    def after(entry, params):
        entries.append(entry)
        return len(entries) == 2

    assert optim.fit(loss, start(), (X, Y), epochs=9, callback=after).stopped
    assert len(entries) == 2


@pytest.mark.parametrize("compile", ["always", "never"])
def test_each_step_draws_anew(compile):
    """The loss is linear, so a step of plain descent moves by the mean of what was drawn."""

    def drawing(params, x, rng):
        return np.mean(rng.normal(size=3) * params) + 0.0 * np.sum(x)

    fitted = optim.fit(
        drawing, np.zeros(3), X, optim.sgd(1.0), epochs=2, batch_size=35, seed=7, compile=compile
    )
    draws = np.random.default_rng([7, 0, 1])
    expected = -np.sum([draws.normal(size=3) for _ in range(4)], axis=0) / 3
    np.testing.assert_allclose(fitted.params, expected, rtol=1e-12)


def test_draws_follow_from_the_seed():
    def noisy(params, x, y, rng=None):
        x = x if rng is None else x + 0.1 * rng.normal(size=x.shape)
        return loss(params, x, y)

    runs = [optim.fit(noisy, start(), (X, Y), epochs=2, seed=seed).params for seed in (3, 3, 4)]
    same(runs[0], runs[1])
    assert np.any(runs[0]["w"] != runs[2]["w"])
    assert np.any(runs[0]["w"] != optim.fit(loss, start(), (X, Y), epochs=2, seed=3).params["w"])


def test_the_caller_keeps_his_parameters():
    params = start()
    optim.fit(loss, params, (X, Y), epochs=1)
    assert not params["w"].any() and params["b"] == 0.0


PROGRAM = """
    import os, sys
    import numpy as np
    from tapegrad import optim

    rng = np.random.default_rng(5)
    x = rng.normal(size=(70, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=70)
    last = int(sys.argv[2])
    calls = 0

    def loss(p, x, y, rng):
        hidden = np.tanh(x @ p["w"]) * (rng.random((len(x), 4)) < 0.8)
        return np.mean((hidden @ p["v"] - y) ** 2)

    def after(entry, params):
        if entry["epoch"] == last:
            os.kill(os.getpid(), 9)

    params = {"w": rng.normal(size=(3, 4)), "v": rng.normal(size=4)}
    fitted = optim.fit(
        loss, params, (x, y), optim.adam(optim.cosine(0.05, 60)).clipped(norm=1.0), epochs=6,
        batch_size=16, checkpoint=sys.argv[1], checkpoint_every=2, callback=after,
        validation=(x[:9], y[:9]),
    )
    print(fitted.params["w"].tobytes().hex(), fitted.history, fitted.best)
"""


def test_a_run_that_is_killed_goes_on_bit_for_bit(tmp_path):
    def run(file, last):
        program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / file), str(last)]
        return subprocess.run(program, capture_output=True, text=True, env={**os.environ})

    whole = run("whole", 0)
    assert whole.returncode == 0, whole.stderr
    for last in (2, 5):
        assert run("killed", last).returncode == -9
    assert run("killed", 0).stdout == whole.stdout


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run"
    optim.fit(loss, start(), (X, Y), epochs=1, checkpoint=path)
    with pytest.raises(ArgumentError, match="batch_size is 32, and not 16"):
        optim.fit(loss, start(), (X, Y), epochs=2, batch_size=16, checkpoint=path)
    with pytest.raises(ArgumentError, match="optimiser"):
        optim.fit(loss, start(), (X, Y), optim.sgd(), epochs=2, checkpoint=path)
    with pytest.raises(ArgumentError, match="another tree"):
        optim.fit(lambda p, x, y: np.sum(p * x[0]), np.zeros(3), (X, Y), epochs=2, checkpoint=path)
    optim.fit(loss, start(), (X, Y), epochs=2, checkpoint=path)
    held = path.read_bytes()
    other = X.copy()
    other[3, 0] += 1e-12
    with pytest.raises(ArgumentError, match="checksum of the data"):
        optim.fit(loss, start(), (other, Y), epochs=3, checkpoint=path)
    with pytest.raises(ArgumentError, match="first steps"):
        optim.fit(loss, start(), (X, Y), optim.adam(2e-3), epochs=3, checkpoint=path)
    with pytest.raises(ArgumentError, match="first steps"):
        optim.fit(loss, start(), (X, Y), optim.adam().clipped(norm=1.0), epochs=3, checkpoint=path)
    with pytest.raises(ArgumentError, match="the loss of its last step was"):
        optim.fit(lambda p, x, y: 1.1 * loss(p, x, y), start(), (X, Y), epochs=3, checkpoint=path)
    assert path.read_bytes() == held
    assert len(optim.fit(loss, start(), (X, Y), epochs=3, checkpoint=path).history) == 3
    (tmp_path / "other").write_text("not a checkpoint")
    with pytest.raises(ArgumentError, match="isn't a file of save_tree"):
        optim.fit(loss, start(), (X, Y), epochs=1, checkpoint=tmp_path / "other")


def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_checkpoint(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(FloatingPointError, match=r"batch 1 of epoch \d+"):
        optim.fit(
            lambda p, x: np.sum(p**4) * np.mean(x),
            np.ones(2),
            np.ones((8, 1)),
            optim.sgd(0.6),
            epochs=50,
            checkpoint=path,
        )
    w, number = np.zeros(2), np.float64(0.0)
    tree = (w, optim.sgd().init(w), w, number, w, number)
    (params, *_), notes = optim.load_tree(path, like=tree)
    assert np.all(np.isfinite(params)) and notes["known"]["epoch"] >= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": (X, Y[:5])}, "same number of rows"),
        ({"data": (X[:0], Y[:0])}, "no rows"),
        ({"data": ()}, "same number of rows"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 71, "drop_last": True}, "fill no batch"),
        ({"patience": 2}, "validation"),
        ({"checkpoint_every": 2}, "checkpoint"),
        ({"epochs": -1}, "epochs"),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(ArgumentError, match=words):
        optim.fit(loss, start(), **{"data": (X, Y), "epochs": 1, **options})


def test_trees_in_files_come_back_bit_for_bit(tmp_path):
    tree = {
        "a": np.array([np.nan, -0.0, 5e-324]),
        "b": [np.float32(0.1), 2, "text"],
        "c": np.arange(6, dtype=np.int8).reshape(2, 3).T,
    }
    optim.save_tree(tmp_path / "tree", tree, {"epoch": 3})
    found, notes = optim.load_tree(tmp_path / "tree", like=tree)
    assert notes == {"epoch": 3} and found["b"][2] == "text" and found["b"][1] == 2
    assert found["a"].tobytes() == tree["a"].tobytes() and found["b"][0].dtype == np.float32
    np.testing.assert_array_equal(found["c"], tree["c"])
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    with pytest.raises(ArgumentError, match="float64"):
        optim.load_tree(tmp_path / "tree", like={**tree, "a": np.zeros(2)})


def test_scipys_minimisers_take_and_return_trees():
    for method in ("L-BFGS-B", "CG", "trust-krylov", "Newton-CG"):
        found = optim.minimise(loss, start(), X, Y, method=method)
        np.testing.assert_allclose(found.x["w"], W, atol=1e-4)
        np.testing.assert_allclose(found.x["b"], 0.3, atol=1e-4)
        assert set(found.jac) == {"w", "b"}
    np.testing.assert_allclose(optim.lbfgs(loss, start(), X, Y).fun, 0.0, atol=1e-8)
    np.testing.assert_allclose(optim.conjugate_gradient(loss, start(), X, Y).fun, 0.0, atol=1e-8)
    bounds = ({"w": -1.0, "b": -1.0}, {"w": np.array([0.5, 5.0, 5.0]), "b": 5.0})
    found = optim.minimise(loss, start(), X, Y, bounds=bounds)
    assert found.x["w"][0] == 0.5 and found.x["w"][1] == -1.0


@pytest.mark.parametrize("compile", ["always", "never"])
def test_steps_in_place_are_those_that_make_new_arrays(compile):
    optimiser = optim.adam(0.1)
    plain = optim.training_step(loss, optimiser, compile=compile)
    step = optim.training_step(loss, optimiser, inplace=True, compile=compile)
    params = {"w": np.zeros(3), "b": np.zeros(())}
    mine, state = {"w": np.zeros(3), "b": np.zeros(())}, optimiser.init(params)
    w, slots, mine_state = mine["w"], optimiser.init(params).slots, optimiser.init(params)
    mine_state = mine_state._replace(slots=slots)
    for _ in range(4):
        value, params, state = plain(params, state, X, Y)
        found, mine, mine_state = step(mine, mine_state, X, Y)
        np.testing.assert_allclose(found, value, rtol=1e-12)
        np.testing.assert_allclose(mine["w"], params["w"], rtol=1e-12)
        assert mine["w"] is w and mine_state.slots["mean"]["w"] is slots["mean"]["w"]


@pytest.mark.parametrize("view", ["strided", "shared"])
def test_in_place_whatever_memory_the_arrays_have(view):
    optimiser = optim.sgd(0.5, momentum=0.9)
    memory = np.arange(12.0)
    params = memory[::2] if view == "strided" else memory[:6]
    grads = np.ones(6) if view == "strided" else memory[3:9]
    expected, state = params.copy(), optimiser.init(params)
    other = optimiser.init(params)
    for _ in range(3):
        expected, other = optimiser.update(grads.copy(), other, expected)
        after, state = optimiser.update(grads, state, params, inplace=True)
        assert after is params
        np.testing.assert_allclose(params, expected)
        np.testing.assert_allclose(state.slots["momentum"], other.slots["momentum"])


@pytest.mark.parametrize("shared", ["one", "overlapping"])
def test_in_place_parameters_that_share_memory_are_refused(shared):
    memory = np.arange(6.0)
    params = {"a": memory[:4], "b": memory[:4] if shared == "one" else memory[2:]}
    optimiser = optim.sgd(0.1)
    state = optimiser.init(params)
    with pytest.raises(ArgumentError, match=r"params\['a'\] and params\['b'\] share memory"):
        optimiser.update(params, state, params, inplace=True)
    step = optim.training_step(lambda p: np.sum(p["a"] * p["b"]), optimiser, inplace=True)
    with pytest.raises(ArgumentError, match="share memory"):
        step(params, state)
    np.testing.assert_array_equal(memory, np.arange(6.0))
    between = {"a": memory[::2], "b": memory[1::2]}
    after, _ = optimiser.update({"a": np.ones(3), "b": np.ones(3)}, state, between, inplace=True)
    np.testing.assert_allclose(memory, np.arange(6.0) - 0.1)
    assert after["a"] is between["a"]


def test_in_place_parameters_that_can_not_be_written_are_refused():
    frozen, other = np.ones(2), np.ones(2)
    frozen.flags.writeable = False
    optimiser = optim.sgd(0.1)
    params = {"a": other, "z": frozen}
    with pytest.raises(ArgumentError, match=r"params\['z'\] can't be written to"):
        optimiser.update(params, optimiser.init(params), params, inplace=True)
    np.testing.assert_array_equal(other, 1.0)


class Held:
    """A callable object with a number that changes."""

    def __init__(self, number):
        self.number = number

    def __call__(self, *args):
        return self.number

    def loss(self, params):
        return self.number * np.sum(params)


@pytest.mark.parametrize("inplace", [False, True])
def test_what_the_loss_and_the_rate_hold_is_read_at_each_step(inplace):
    rate, scale = Held(0.5), Held(2.0)
    optimiser = optim.sgd(rate)
    state = optimiser.init(np.zeros(2))
    steps = [
        optim.training_step(scale.loss, optimiser, inplace=inplace),
        optim.training_step(functools.partial(Held.loss, scale), optimiser, inplace=inplace),
    ]
    for rate.number, scale.number in (*[(0.5, 2.0)] * 2, *[(0.25, 2.0)] * 2, (0.25, 4.0)):
        for step in steps:
            _, params, _ = step(np.zeros(2), state)
            np.testing.assert_array_equal(params, -rate.number * scale.number)
        params, _ = optimiser.update(np.ones(2), state, np.zeros(2), inplace=inplace)
        np.testing.assert_array_equal(params, -rate.number)


def test_rows_of_tables_are_those_of_their_arrays():
    pd = pytest.importorskip("pandas")
    names = [f"x{k}" for k in range(X.shape[1])]
    table, labels = pd.DataFrame(X, columns=names), pd.Series(Y, index=np.arange(len(Y))[::-1])

    def of_tables(params, x, y):
        return loss(params, x.to_numpy(), y.to_numpy())

    def of_one(params, table):
        return loss(params, table[names].to_numpy(), table["y"].to_numpy())

    def check(f, data):
        found = optim.fit(f, start(), data, **options).params
        for name in found:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)

    options = {"epochs": 2, "batch_size": 16, "compile": "never"}
    expected = optim.fit(loss, start(), (X, Y), **options).params
    check(of_tables, (table, labels))
    check(of_one, table.assign(y=Y))
    check(of_one, table.assign(y=Y, text="a"))
    with pytest.raises(ArgumentError, match=r"here: \[70, 3\], \[4\]"):
        optim.fit(of_tables, start(), (table, labels[:4]))
