"""Ahead of time: `compile`, `lower` and `eval_shape`, with values and with shapes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import ShapeDtype, eval_shape, grad, hessian, hvp, jacobian, jit, pipeline, vmap
from tapegrad.autograd import grad as autograds
from tapegrad.errors import ArgumentError, ConversionError, TraceError

X = np.array([0.3, -0.7, 1.1])
M = np.array([[0.3, -0.7, 1.1], [0.2, 0.9, -0.4], [1.5, 0.1, 0.6]])


def waves(x: Any) -> Any:
    return np.sum(np.sin(x) ** 2)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def power(x: Any, n: int = 2, flip: bool = False) -> Any:
    y = np.ones(3)
    for _ in range(n):
        y = y * x
    return -np.sum(y) if flip else np.sum(y)


def test_the_first_call_has_machine_code() -> None:
    """No trace and no compilation is left for it, and its values aren't those of the stand-ins."""
    g = grad(lambda x: np.sum(np.cos(x) ** 3))
    assert g.compile(ShapeDtype(3)) is g
    info = g.cache_info()
    assert info.traces == info.compiles + info.loads == info.variants == 1
    same(g(X), -3 * np.cos(X) ** 2 * np.sin(X))
    assert g.cache_info().hits == 1 and g.cache_info().traces == 1


@pytest.mark.every(2)
@pytest.mark.parametrize("given", [M, ShapeDtype((3, 3))])
@pytest.mark.parametrize(
    "make",
    [
        *(grad, jit, hessian, vmap, lambda f: vmap(grad(f)), autograds),
        *(lambda f: tg.value_and_grad(f), lambda f: tg.elementwise_grad(np.sin)),
        *(lambda f: jacobian(np.sin), lambda f: tg.sparse_jacobian(lambda x: x[1:] * x[:-1])),
        *(lambda f: grad(lambda x: np.sum(grad(f)(x) ** 2)), lambda f: tg.laplacian(f)),
    ],
)
def test_every_derived_function_can_be_made_ahead(make: Any, given: Any) -> None:
    """Of all of them the variant that was made of shapes answers."""
    g = make(lambda x: waves(x) + np.linalg.slogdet(np.eye(3) + np.outer(x, x))[1])
    g.mode = "never"
    x = X if make is not vmap and "vmap" not in g.__name__ else M
    given = x if isinstance(given, np.ndarray) else ShapeDtype(x.shape)
    expected = make(lambda x: waves(x) + np.linalg.slogdet(np.eye(3) + np.outer(x, x))[1])(x)
    g.compile(given)
    found = g(x)
    for a, b in zip(*[y if isinstance(y, tuple) else (y,) for y in (found, expected)], strict=True):
        same(
            a.toarray() if hasattr(a, "toarray") else a, b.toarray() if hasattr(b, "toarray") else b
        )
    assert g.cache_info().traces == 1 and g.cache_info().hits == 1


def test_several_arguments_trees_and_names() -> None:
    """Shapes stand anywhere in the arguments, beside values and by name."""

    def f(p: Any, x: Any, scale: Any = 1.0) -> Any:
        return np.sum(p["w"] * x) * p["b"] * scale

    g = grad(f, compile="never")
    shapes = {"w": ShapeDtype(3), "b": ShapeDtype((), np.float64)}
    g.compile(shapes, x=ShapeDtype(3, np.float32), scale=2.0)
    found = g({"w": X, "b": np.float64(2.0)}, x=X.astype(np.float32), scale=3.0)
    same(found["b"], 3.0 * np.sum(X * X.astype(np.float32)))
    assert g.cache_info().traces == 1
    product = hvp(waves, compile="never").compile(ShapeDtype(3), ShapeDtype(3))
    same(product(X, np.ones(3)), 2 * np.cos(2 * X))
    assert product.cache_info().traces == 1


def test_what_has_a_shape_and_a_dtype_stands_for_an_array() -> None:
    """As JAX's ShapeDtypeStruct does."""
    spec = SimpleNamespace(shape=(3,), dtype="float64")
    assert eval_shape(jacobian(np.sin), spec) == ShapeDtype((3, 3))


def test_values_that_are_given_decide() -> None:
    """Beside shapes, also inside of a nested derivative."""
    g = grad(lambda x, n, flip: np.sum(grad(power)(x, n, flip) ** 2), compile="never")
    g.compile(ShapeDtype(3), 2, True)
    same(g(X, 2, True), 8 * X)
    assert g.cache_info().traces == 1
    same(g(X, 3, True), 36 * X**3)
    assert g.cache_info().traces == 2


def test_values_that_are_not_given_decide_nothing() -> None:
    """The error names the line, though the function catches it. With an array it is compiled."""

    def caught(x: Any) -> Any:
        try:
            return np.sum(x) if x[0] > 0 else x[1]
        except Exception:
            return x[2]

    g = grad(caught, compile="never")
    with pytest.raises(ConversionError, match=r"decides as a condition .*if x\[0\] > 0.*Pass arra"):
        g.compile(ShapeDtype(3))
    assert g.cache_info().variants == 0
    g.compile(X).compile(-X)
    assert g.cache_info().variants == 2
    same(g(-X), [0.0, 1.0, 0.0])
    assert g.cache_info().traces == 2


@pytest.mark.parametrize(
    "f",
    [
        *(lambda x, n: x[0] ** int(n), lambda x, n: x[:n].sum()),
        *(lambda x, n: x[n > 0].sum(), lambda x, n: x[0] * {0: 1.0}[n]),
        *(lambda x, n: x[0] if (n > 0) is np.True_ else x[1], lambda x, n: max(x)),
        *(lambda x, n: x[0] * len(str(n)), lambda x, n: x.sum() * float(f"{n}")),
        *(lambda x, n: x[np.nonzero(x)].sum(), lambda x, n: np.sum(x, axis=n)),
        lambda x, n: [x.sum() for _ in range(n)][-1],
    ],
)
def test_nothing_reads_a_value_unseen(f: Any) -> None:
    """Integers, texts, keys and masks of values that aren't there are errors, each by its line."""
    with pytest.raises(ConversionError, match="without values"):
        grad(f, compile="never").lower(ShapeDtype(3), ShapeDtype((), np.int64))


def test_integers_that_index_need_no_values() -> None:
    g = grad(lambda x, n: x[n] * x[np.argmax(x)], compile="never")
    g.compile(ShapeDtype(3), ShapeDtype((), np.int64))
    same(g(np.array([1.0, 3.0, 2.0]), np.int64(2)), [0.0, 2.0, 3.0])
    assert g.cache_info().traces == 1


def test_errors_of_values_are_guarded() -> None:
    """Shapes are taken for those of values that NumPy takes; others are traced by themselves."""
    g = jit(lambda a: np.linalg.cholesky(a), compile="never").compile(ShapeDtype((3, 3)))
    same(g(M @ M.T), np.linalg.cholesky(M @ M.T))
    assert g.cache_info().traces == 1
    with pytest.raises(np.linalg.LinAlgError):
        g(-np.eye(3))
    points = jit(lambda x, xp: np.interp(x, xp, xp**2), compile="never")
    points.compile(ShapeDtype(3), ShapeDtype(4))
    falling = -np.arange(4.0)
    same(points(X, falling), np.interp(X, falling, falling**2))


def test_rows_that_have_no_values_take_one_path() -> None:
    """Rows whose values decide are an error that says so."""
    g = vmap(lambda x: x[0] if x[0] > 0 else x[1], compile="never")
    with pytest.raises(ArgumentError, match="its rows have no values"):
        g.compile(ShapeDtype((4, 3)))
    g.compile(M)
    same(g(M), M[:, 0])
    assert g.cache_info().traces == 1


def test_the_integers_behind_a_sparse_structure_are_asked_for() -> None:
    g = tg.sparse_jacobian(lambda x, k: x[k] ** 2, compile="never")
    with pytest.raises(ConversionError, match="'k', for which a shape was passed"):
        g.compile(ShapeDtype(3), ShapeDtype(2, int))
    g.compile(ShapeDtype(3), np.array([0, 2]))
    same(g(X, np.array([0, 2])).toarray(), [[0.6, 0, 0], [0, 0, 2.2]])
    assert g.cache_info().traces == 1


def test_nothing_is_left_behind() -> None:
    """Draws, attributes, lists and arrays are as they were; the first call does what plain NumPy
    does, on its own values."""
    rng = np.random.default_rng(3)
    held = SimpleNamespace(count=0, seen=[], last=None, array=np.zeros(3))

    def f(x: Any) -> Any:
        held.count += 1
        held.seen.append(2 * x)
        held.last = x.sum()
        held.array[:] = x
        return np.sum(x * rng.normal(size=3))

    g = grad(f, compile="never")
    for given in (ShapeDtype(3), X + 1):
        g.compile(given)
        assert (held.count, held.seen, held.last) == (0, [], None) and not held.array.any()
    same(g(X), np.random.default_rng(3).normal(size=3))
    assert held.count == 1 and held.last == X.sum()
    same(held.array, X)
    same(held.seen[0], 2 * X)
    assert g.cache_info().traces == 2 and g.cache_info().hits == 1


def test_what_is_printed_meanwhile_shows_no_value(capsys: Any) -> None:
    def f(x: Any) -> Any:
        print("x is", x, f"{x[0]:.2f}")
        return np.sum(x)

    grad(f, compile="never").lower(ShapeDtype(3))
    assert capsys.readouterr().out == "x is Tracer(f8[3]) Tracer(f8[])\n"


def test_what_is_compiled_again_is_kept_once() -> None:
    g = grad(waves, compile="never")
    g.clear_cache()
    for _ in range(3):
        g.compile(ShapeDtype(3)).compile(X)
    assert g.cache_info().variants == g.cache_info().traces == 1


def test_lower_keeps_nothing_and_shows_what_would_be_compiled() -> None:
    g = grad(lambda x: np.sum(x**2 * np.exp(x)), compile="never")
    lowered = g.lower(ShapeDtype(3))
    assert g.cache_info().variants == 0
    same(lowered.tape.play(X), (2 * X + X**2) * np.exp(X))
    assert "for " in str(lowered.plan) and "def grad_lambda" in lowered.source
    assert "tape grad_lambda" in repr(lowered)
    assert lowered.compile() is g and g.cache_info().variants == 1
    assert lowered.tape is g.tapes[0]


def test_methods_and_subclasses() -> None:
    """The instance of a decorated method is its first argument."""

    class Model:
        k = 3.0

        @grad(argnums=1, compile="never")
        def loss(self, x: Any) -> Any:
            return self.k * np.sum(x**2)

    model = Model()
    assert model.loss.compile(ShapeDtype(3))(X) == pytest.approx(6 * X)
    assert Model.loss.cache_info().traces == 1
    assert "square" in str(Model.loss.lower(model, ShapeDtype(3)).tape)


def test_what_is_traced_at_each_call_cannot_be_compiled_ahead() -> None:
    rng = np.random.default_rng(0)
    g = grad(lambda x: np.sum(x) * rng.spawn(1)[0].normal(), compile="never")
    with pytest.raises(TraceError, match="can't be compiled ahead: it is traced at each call"):
        g.compile(ShapeDtype(3))


def test_the_shapes_of_results() -> None:
    """In the result's own structure; what isn't an array or a number stays."""

    def f(d: Any, n: int) -> Any:
        return {"a": d["x"].sum(axis=0), "b": (d["y"][:n] > 0, "text", None), "c": 1.5 * d["z"]}

    found = eval_shape(f, {"x": ShapeDtype((4, 2)), "y": ShapeDtype(3, "f4"), "z": 2.0}, n=2)
    expected = {"a": ShapeDtype(2), "b": (ShapeDtype(2, bool), "text", None), "c": ShapeDtype(())}
    assert found == expected
    assert eval_shape(np.linalg.svd, M)[1] == ShapeDtype(3)
    with pytest.raises(ConversionError, match="without values"):
        eval_shape(lambda x: x if x[0] > 0 else x[0], ShapeDtype(3))


def test_the_shapes_of_results_inside_a_trace() -> None:
    """There no value may decide, for no call would ask again."""
    f = lambda x: np.sum(x) * eval_shape(lambda y: np.outer(y, y), x).size  # noqa: E731
    same(grad(f, compile="never")(X), [9.0, 9.0, 9.0])
    g = grad(lambda x: np.sum(x) * eval_shape(lambda y: y if y[0] > 0 else y[0], x).size)
    with pytest.raises(ConversionError, match="decides as a condition"):
        g(X)
    with pytest.raises(TraceError, match="inside of a function that is traced"):
        grad(lambda x: np.sum(x) * len(grad(waves).lower(ShapeDtype(3)).tape.calls))(X)


def test_mistakes() -> None:
    assert repr(ShapeDtype((3, 4), np.float32)) == "ShapeDtype((3, 4), float32)"
    assert len({ShapeDtype(3), ShapeDtype((3,)), ShapeDtype(3, int)}) == 2
    assert ShapeDtype((2, 3)).ndim == 2 and ShapeDtype((2, 3)) != (2, 3)
    with pytest.raises(ArgumentError, match="the shape is 'a', not a tuple of lengths"):
        ShapeDtype("a")
    with pytest.raises(ArgumentError, match="'nonsense' isn't a dtype"):
        ShapeDtype(3, "nonsense")
    with pytest.raises(ArgumentError, match=r"'x' is ShapeDtype\(.*a call needs values"):
        grad(waves)(ShapeDtype(3))
    with pytest.raises(ArgumentError, match="eval_shape needs a function"):
        eval_shape(3, ShapeDtype(3))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="dtype int64, and there is no derivative"):
        grad(waves).compile(ShapeDtype(3, int))


def test_plan_and_source_are_those_that_run():
    """Sums of products are in the order that is least work, with guards."""

    def f(a, b, x):
        return np.sum((a @ b @ x) ** 2)

    df = grad(f, compile="never")
    args = np.ones((30, 40)), np.ones((40, 50)), np.ones(50)
    df(*args)
    program = pipeline.schedule(pipeline.at_its_best(df.tape))
    lowered = df.lower(*args)
    assert str(lowered.plan) == str(program.plan) and "range" in str(lowered.plan)
    for text in (lowered.source, df.source, df.show()):
        assert all(kernel.text in text for kernel in program.kernels)
