"""The benchmarks measure what they say, as far as a test can tell without the clock."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import call
import functions
import gradbench
import growth
import loops
import npbench
import parts
import run
import tiers
from clock import OutOfTime, time_limit
from compiling import record_jobs
from engines import Engine, Tapegrad
from measure import COUNTS, Measurement, compare, count_up, measure
from show import absence, brief, described, draw, print_ratios, print_totals, readable, size
from workloads import WORKLOADS


@pytest.mark.parametrize("workload", WORKLOADS[:3], ids=lambda w: w.name)
def test_a_workload_is_measured(workload):
    (row,) = measure(workload, [Tapegrad()], "never", budget=0.01, limit=60.0)
    assert not row.error and not row.wrong
    assert row.warm > 0 and 0 < row.first == row.totals[1]
    assert row.totals[1] <= row.totals[10] <= row.totals[100] <= row.totals[10_000]


def test_cold_is_cold(next_door, monkeypatch):
    """A workload that is prepared again compiles every kernel again."""
    from tapegrad.compiler.client import client

    monkeypatch.setattr(client, "submit", client.submit)  # to have it back afterwards
    jobs = record_jobs()
    args = WORKLOADS[0].make(np.random.default_rng(0))
    for _ in range(2):
        Tapegrad().prepare(WORKLOADS[0], args, "always")()
    assert [job.kernels for job in jobs] == [1, 1]


def test_totals_are_counted_and_then_extrapolated(monkeypatch):
    """Calls of a second each, on a clock that a test can afford."""
    monkeypatch.setattr("measure.seconds", lambda call, count=1: float(count))
    row = Measurement("w", "call", "e", first=3.0)
    count_up(Engine(), lambda: (0, 0), row, budget=50.0)
    assert row.called == 48
    assert row.totals == {1: 3.0, 10: 12.0, 100: 102.0, 10_000: 10_002.0}


def test_totals_wait_until_the_engine_has_settled(monkeypatch):
    class Late(Engine):
        def settled(self, call):
            return row.called >= 100

    monkeypatch.setattr("measure.seconds", lambda call, count=1: float(count))
    row = Measurement("w", "call", "e", first=1.0)
    count_up(Late(), lambda: (0, 0), row, budget=1.0)
    assert row.called == 105
    assert set(row.totals) == set(COUNTS)


@pytest.mark.parametrize("program", list(call.programs())[:3], ids=lambda p: p.name)
def test_a_call_is_taken_apart(program, monkeypatch):
    """Every part has its line, and what is timed last is the call with all of them."""
    monkeypatch.setattr(call, "ROUNDS", 1)
    monkeypatch.setattr(call, "repeats", lambda _: 1)
    parts, whole = call.parts_of(program)
    assert len(parts) == len(call.PARTS)
    assert whole > 0


def test_the_way_to_machine_code_is_timed(monkeypatch):
    found = tiers.measured("sigmoid_sum_5", 0.5)
    assert found["first"] > 0 and len(found["totals"]) == len(tiers.COUNTS)
    assert found["totals"] == sorted(found["totals"])
    for name in tiers.programs():
        f, args = tiers.programs()[name]
        assert np.isfinite(f(np, *args))


@pytest.mark.parametrize("family", growth.FAMILIES, ids=lambda f: f.name)
def test_a_program_has_as_many_operations_as_its_table_says(family):
    from tapegrad import trace

    lengths = []
    for rounds in (1, 3):
        x = growth.argument(family)
        _, tape = trace(lambda x, rounds=rounds: family.program(np, rounds, x), x)
        views = ("getitem", "reshape", "expand_dims", "broadcast_to")
        lengths.append(sum(c.primitive.name not in views for c in tape.calls))
    assert lengths[1] - lengths[0] == 2 * family.operations


def test_the_stages_of_compiling_are_timed():
    assert all(spent > 0 for spent in growth.stages_of_tapegrad(growth.FAMILIES[1], 1))


def test_functions_are_measured():
    """One of each kind, small; those that are listed have names of their own."""
    small = [
        functions.products("correlate", 20, "full"),
        functions.search(5, 9),
        functions.interpolation(5, 9, both=True),
        functions.interpolation(5, 9, both=False, ordered=True),
        functions.running("maximum.accumulate", (3, 4), 1),
        functions.along(functions.entropy, 3, axis=0),
    ]
    for workload in small:
        (row,) = loops.timed(workload, [Tapegrad()], "never", budget=0.01, limit=60.0)
        assert not row.error and not row.wrong
    names = [workload.name for workload in functions.workloads()]
    assert len({*names}) == len(names)


@pytest.mark.every(8)
@pytest.mark.parametrize("loop", loops.LOOPS, ids=lambda loop: loop.name)
def test_a_loop_is_timed_and_its_gradient_is_right(loop):
    workload = loop.of(loop.few)
    (row,) = loops.timed(workload, [Tapegrad()], "never", budget=0.01, limit=60.0)
    assert not row.error and not row.wrong
    assert row.warm > 0 and row.first > 0

    params, *data = workload.make(np.random.default_rng(1))
    _, gradients = Tapegrad().prepare(workload, (params, *data), "never")()
    several = isinstance(params, tuple)
    leaves = params if several else (params,)
    rng = np.random.default_rng(2)
    along = [rng.standard_normal(leaf.shape) for leaf in leaves]

    def at(step):
        moved = tuple(leaf + step * d for leaf, d in zip(leaves, along, strict=True))
        return workload.loss(np, moved if several else moved[0], *data)

    slope = (at(1e-6) - at(-1e-6)) / 2e-6
    gradients = gradients if several else (gradients,)
    found = sum(np.sum(g * d) for g, d in zip(gradients, along, strict=True))
    assert found == pytest.approx(slope, rel=1e-6)


def test_the_growth_of_a_loop_is_told(monkeypatch):
    from tapegrad.compiler.client import client

    monkeypatch.setattr(client, "submit", client.submit)  # which `record_jobs` replaces
    found = loops.grown(2, record_jobs())
    assert found.compile > 0 and found.calls > 10
    assert 10 < found.lines < found.size


def test_gradients_that_are_nan_are_wrong():
    """Wherever the nan is: the value itself may be right."""
    rows = {name: Measurement("w", "loop", name) for name in ("jax", "tapegrad")}
    right, other = [np.ones(()), np.ones(3)], [np.ones(()), np.full(3, np.nan)]
    compare(rows, {"jax": [right], "tapegrad": [other]})
    assert rows["tapegrad"].wrong and not rows["jax"].wrong


def test_the_exponent_is_that_of_the_upper_half():
    points = {n: 5.0 + 0.0 * n if n < 100 else 1e-3 * n**1.5 for n in growth.SIZES}
    assert growth.exponent(points) == pytest.approx(1.5)


def test_a_limit_stops_what_survives_every_error():
    with pytest.raises(OutOfTime, match="no answer"), time_limit(0.05):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(1.0)


def test_figures_are_readable():
    assert [readable(s) for s in (None, 1.234e-6, 0.0456, 12.3, 4567.0)] == [
        "-",
        "1.23 us",
        "45.6 ms",
        "12.3 s",
        "4567 s",
    ]
    assert [size(n) for n in (12, 1500, 3_100_000)] == ["12 B", "1.5 kB", "3.1 MB"]
    assert [brief(r) for r in (0.042, 0.42, 4.2, 42.0, 420.0)] == [
        "0.042",
        "0.42",
        "4.20",
        "42.0",
        "420",
    ]


def test_tables_fit_a_page(capsys):
    """Lines of at most 110 columns; tapegrad's ratio to a peer is that of their warm calls."""
    totals = {n: 2.0 * n for n in COUNTS}
    rows = [
        Measurement("a_workload", "call", "tapegrad", warm=1.0, totals=totals, called=100),
        Measurement("a_workload", "call", "jax", warm=4.0, totals={n: n for n in COUNTS}),
        Measurement("a_workload", "call", "torch.compile", warm=2.0),
    ]
    print_ratios(rows)
    print_totals(rows)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 110
    assert "0.25          0.50" in text
    assert "a_workload, 1 call (2.00)" in text
    assert "a_workload, 10 calls (2.00)" in text
    assert "~20000 s" in text


def test_a_figure_that_is_not_there_says_why():
    row = Measurement("mlp_f64_b128", "ml", "jax", error="out of time")
    assert absence(row, "jax", "warm") == "out of time"
    assert absence(None, "pytensor", "warm") == "not written for it"
    assert absence(Measurement("w", "ml", "autograd"), "autograd", "compile") == "doesn't compile"
    assert absence(Measurement("w", "ml", "jax"), "jax", "compile") == "not measured"


def test_the_plot_says_where_and_when(tmp_path):
    where = {"machine": "a machine", "cores": 2, "date": "2026-01-01", "versions": {"numba": "1.0"}}
    assert described(where) == "a machine, 2 cores, 2026-01-01\nnumba 1.0"
    rows = [Measurement("mlp_f64_b128", "ml", "tapegrad", warm=1e-3, compile=0.1)]
    draw([*rows, Measurement("mlp_f64_b128", "ml", "jax", error="!")], where, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_stored_results_are_drawn_again(tmp_path):
    """What docs/benchmarks.png shows; docs/performance.md lists its programs."""
    stored = Path(__file__).parents[2] / "docs" / "benchmarks.json"
    plot = tmp_path / "plot.png"
    outcome = CliRunner().invoke(run.main, ["--redraw", str(stored), "--plot", str(plot)])
    assert outcome.exit_code == 0, outcome.output
    assert plot.exists()
    table = stored.with_name("performance.md").read_text().split("| value and gradient of |")[1]
    named = [line.split("|")[1].strip(" `").replace("`", "") for line in table.splitlines()[2:14]]
    assert set(named) <= {workload.title for workload in WORKLOADS}


def test_growth_is_drawn_again(tmp_path):
    points = {10: [0.1, 0.2, 0.3], 100: [1.0, 2.0, 3.0], 1000: [10.0, 20.0, 30.0]}
    data = {"environment": {}, "results": {"chain": {"tapegrad": points}}}
    (tmp_path / "stored.json").write_text(json.dumps(data))
    assert growth.numbered(json.loads((tmp_path / "stored.json").read_text())["results"]) == {
        "chain": {"tapegrad": points}
    }
    arguments = ["--redraw", str(tmp_path / "stored.json"), "--plot", str(tmp_path / "plot.png")]
    outcome = CliRunner().invoke(growth.main, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "plot.png").exists()


def test_losses_in_parts_are_measured(monkeypatch):
    found = parts.overhead(parts=3, rows=20)
    assert found.keys() == {"a part", "its compiled call"} and found["its compiled call"] > 0
    monkeypatch.setattr(parts, "ROWS", 300)
    monkeypatch.setattr(parts, "ROUNDS", 2)
    assert parts.threads(2) > 0
    found = parts.streamed(2e-4, rows=100)
    assert (found["rows"], found["gigabytes"]) == (500, 2e-4)
    assert "not here" in parts.beside("jax", "python-that-is-none", 2)


def test_kernels_of_npbench_are_differentiated(tmp_path):
    """As they are laid out there; one writes to its argument, one is of integers alone, and the
    gradient of one is zero but for rounding."""
    info = {"init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["x"]}}
    info |= {"parameters": {"S": {"N": 5}}, "input_args": ["N", "x"], "output_args": ["x"]}
    (tmp_path / "bench_info").mkdir()
    scaled, length = "    x *= x\n    return x.sum()\n", "    return x @ (x / (x @ x))\n"
    kernels = {"scale": ("float", scaled), "count": ("int", scaled), "unit": ("float", length)}
    for name, (kind, text) in kernels.items():
        folder = tmp_path / "npbench" / "benchmarks" / name
        folder.mkdir(parents=True)
        made = f"import numpy as np\ndef initialize(N): return np.arange(N, dtype={kind})\n"
        (folder / f"{name}.py").write_text(made)
        (folder / f"{name}_numpy.py").write_text(f"def kernel(N, x):\n{text}")
        described = {"relative_path": name, "module_name": name, "func_name": "kernel", **info}
        text = json.dumps({"benchmark": described})
        (tmp_path / "bench_info" / f"{name}.json").write_text(text)
    outcome = CliRunner().invoke(npbench.main, [str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    count, scale, unit, last = outcome.output.splitlines()
    assert count.split(maxsplit=1) == ["count", "no floats to differentiate by"]
    assert "differences" in scale and "JAX: " in scale
    assert "differences" in unit
    assert last.startswith("2 gradients are right, 0 kernels")


def of_bones():
    """A hand of 22 bones in a row, three vertices and one triangle."""
    rng = np.random.default_rng(0)
    frames = np.eye(4) + 0.1 * rng.normal(size=(2, 22, 4, 4))
    frames[:, :, 3] = [0, 0, 0, 1]
    model = {
        "bone_count": 22,
        "bone_names": [f"bone {i}" for i in range(22)],
        "parents": [*range(-1, 21)],
        "base_relatives": frames[0].tolist(),
        "inverse_base_absolutes": frames[1].tolist(),
        "base_positions": np.c_[rng.normal(size=(3, 3)), np.ones(3)].tolist(),
        "weights": rng.random((3, 22)).tolist(),
        "triangles": [[0, 1, 2]],
        "is_mirrored": True,
    }
    data = {"model": model, "correspondences": [0, 0], "points": rng.normal(size=(2, 3)).tolist()}
    return {"theta": rng.normal(size=26).tolist(), "data": data, "us": rng.random((2, 2)).tolist()}


def asked(name, function, given):
    told = gradbench.answer(
        {"id": 1, "kind": "evaluate", "module": name, "function": function, "input": given}
    )
    assert told["success"], told["error"]
    assert len(told["timings"]) == 1 and told["timings"][0]["nanoseconds"] > 0
    return told["output"]


def slopes(value, given, name):
    """The derivatives of a function of an input by one of its fields, by differences."""
    x = np.array(given[name], dtype=float)
    found = []
    for unit in np.eye(x.size).reshape(x.size, *x.shape):
        ends = [np.array(value({**given, name: (x + h * unit).tolist()})) for h in (1e-6, -1e-6)]
        found.append((ends[0] - ends[1]) / 2e-6)
    return np.stack(found, axis=-1)


def test_gradbench_is_answered():
    answer = gradbench.answer
    assert answer({"id": 0, "kind": "start", "eval": "gmm"}) == {"id": 0, "tool": "tapegrad"}
    assert answer({"id": 1, "kind": "define", "module": "gmm"}) == {"id": 1, "success": True}
    assert not answer({"id": 2, "kind": "define", "module": "none of them"})["success"]
    assert answer({"id": 3, "kind": "analysis", "of": 2, "valid": True}) == {"id": 3}
    wrong = {"id": 4, "kind": "evaluate", "module": "lse", "function": "primal", "input": {}}
    assert "KeyError: 'x'" in answer(wrong)["error"]
    told = answer({**wrong, "input": {"x": [1.0], "min_runs": 3, "min_seconds": 1e-3}})
    assert len(told["timings"]) >= 3


def test_short_evals_of_gradbench_are_right():
    """Against closed forms."""
    rng = np.random.default_rng(0)
    assert asked("hello", "square", 3.0) == 9 and asked("hello", "double", 3.0) == 6
    x = rng.normal(size=4)
    np.testing.assert_allclose(asked("lse", "primal", {"x": [*x]}), np.log(np.sum(np.exp(x))))
    np.testing.assert_allclose(asked("lse", "gradient", {"x": [*x]}), np.exp(x) / np.sum(np.exp(x)))
    t = np.linspace(-1, 1, 6)
    left = np.sign(t) - np.vander(t, 4, increasing=True) @ x
    np.testing.assert_allclose(asked("llsq", "primal", {"x": [*x], "n": 6}), left @ left / 2)
    np.testing.assert_allclose(
        asked("llsq", "gradient", {"x": [*x], "n": 6}), -np.vander(t, 4, increasing=True).T @ left
    )
    a = rng.normal(size=(4, 4))
    given = {"A": [*a.ravel()], "ell": 4}
    np.testing.assert_allclose(asked("det", "primal", given), np.linalg.det(a))
    np.testing.assert_allclose(
        asked("det", "gradient", given), np.ravel(np.linalg.det(a) * np.linalg.inv(a).T)
    )
    given = {"x": [*x], "s": 3}  # exact, up to the fourth power of time
    last = np.cumprod(x) * [2, 2, 4 / 3, 2 / 3]
    np.testing.assert_allclose(asked("ode", "primal", given), last)
    np.testing.assert_allclose(asked("ode", "gradient", given), last[-1] / x)
    given = {"points": [[0.0], [2.0], [7.0], [9.0]], "centroids": [[2.0], [9.0]]}
    assert asked("kmeans", "cost", given) == 8
    np.testing.assert_allclose(asked("kmeans", "dir", given), [[1], [1]])
    assert asked("particle", "rr", {"w": 0.0}) == pytest.approx(0.2071918746486116, abs=1e-4)


def test_long_evals_of_gradbench_are_right():
    """Against differences of their objectives."""
    rng = np.random.default_rng(0)
    given = {
        "k": 2,
        "x": rng.normal(size=(4, 3)).tolist(),
        "m": 1,
        "gamma": 0.7,
        "alpha": rng.normal(size=2).tolist(),
        "mu": rng.normal(size=(2, 3)).tolist(),
        "q": rng.normal(size=(2, 3)).tolist(),
        "l": rng.normal(size=(2, 3)).tolist(),
    }
    found = asked("gmm", "jacobian", given)
    for name, by_name in found.items():
        expected = slopes(lambda given: asked("gmm", "objective", given), given, name)
        np.testing.assert_allclose(np.ravel(by_name), expected, 1e-5, 1e-6)
    given = {
        "main_params": rng.normal(size=(4, 8)).tolist(),
        "extra_params": rng.normal(size=(3, 2)).tolist(),
        "state": rng.normal(size=(4, 2)).tolist(),
        "sequence": rng.integers(2, size=(5, 2)).tolist(),
    }
    parts = [
        slopes(lambda given: asked("lstm", "objective", given), given, name)
        for name in ("main_params", "extra_params")
    ]
    np.testing.assert_allclose(asked("lstm", "jacobian", given), np.concatenate(parts), 1e-5, 1e-6)
    given = of_bones()
    found = np.array(asked("ht", "jacobian", given))
    parts = [
        slopes(lambda given: asked("ht", "objective", given), given, name)
        for name in ("us", "theta")
    ]
    own = np.array([parts[0][row, 2 * (row // 3) :][:2] for row in range(6)])
    np.testing.assert_allclose(found, np.c_[own, parts[1]], 1e-5, 1e-6)


def test_the_jacobian_of_a_bundle_has_its_numbers_in_their_places():
    rng = np.random.default_rng(0)
    given = {"n": 2, "m": 3, "p": 4, "cam": [*rng.normal(size=11)], "x": [*rng.normal(size=3)]}
    given |= {"w": 0.6, "feat": [*rng.normal(size=2)]}

    def errors(given):
        return asked("ba", "objective", given)["reproj_error"]["elements"]

    found = asked("ba", "jacobian", given)
    parts = [slopes(errors, given, name) for name in ("cam", "x", "w")]
    np.testing.assert_allclose(found["vals"][:30], np.ravel(np.concatenate(parts, axis=1)), 1e-5)
    assert found["vals"][30] == -1.2
    assert found["cols"] == 2 * [*range(11), 22, 23, 24, 31] + [34]
    assert found["rows"] == [*range(0, 120, 15), *range(120, 125)][:30] + [124]
    assert asked("ba", "objective", given)["w_err"] == {"element": 0.64, "repeated": 4}


EVAL = """
import json
for i, message in enumerate([
    {"kind": "start"},
    {"kind": "define", "module": "hello"},
    {"kind": "evaluate", "module": "hello", "function": "double", "input": 3.0},
    {"kind": "analysis", "of": 2, "valid": False, "error": "a reason"},
    {"kind": "evaluate", "module": "hello", "function": "square", "input": 3.0},
    {"kind": "analysis", "of": 4, "valid": True},
]):
    print(json.dumps({"id": i, **message}), flush=True)
    assert json.loads(input())["id"] == i
"""


def test_evals_of_a_clone_of_gradbench_are_held(tmp_path):
    folder = tmp_path / "python" / "gradbench" / "gradbench" / "evals" / "hello"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text(EVAL)
    outcome = CliRunner().invoke(gradbench.main, [str(tmp_path), "hello"])
    assert outcome.exit_code == 1
    double, square, last = outcome.output.splitlines()
    assert double.startswith("hello     double     3.0") and double.endswith("WRONG: a reason")
    assert square.startswith("hello     square     3.0") and square.endswith("  valid")
    assert last == "1 results are valid, 1 are not known to be"
