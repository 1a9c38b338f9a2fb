"""Users' own primitives and derivative rules: `primitive`, `defvjp`, `Function`."""

import inspect
import json
import math
from array import array

import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg
import scipy.special

from tapegrad import (
    Function,
    defjvp,
    defvjp,
    grad,
    gradcheck,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    laplacian,
    primitive,
    scan,
    simplegrad,
    sparse_hessian,
    stop_gradient,
    trace,
    value_and_grad,
    vjp,
    vmap,
)
from tapegrad.errors import (
    ArgumentError,
    GradientError,
    LeakedTracerError,
    RuleError,
    TraceError,
    UnsupportedError,
)

X = np.array([0.5, -1.0, 2.0, 1.5])


@pytest.fixture(params=["never", "always"])
def mode(request):
    """Played with NumPy, and compiled."""
    return request.param


def total(f):
    """The sum of what `f` returns, as a scalar to differentiate."""
    return lambda *args: np.sum(f(*args))


def nth_derivative(f, n, mode="never"):
    """The nth derivative of an elementwise function."""
    for _ in range(n):
        f = grad(total(f), compile=mode)
    return f


# ---- a body that can be traced


@primitive
def logistic(x):
    """1 / (1 + exp(-x))"""
    return 1 / (1 + np.exp(-x))


defvjp(logistic, lambda ct, out, x: ct * out * (1 - out))


def test_a_primitive_is_its_function_on_plain_arrays():
    np.testing.assert_array_equal(logistic(X), 1 / (1 + np.exp(-X)))
    assert logistic.__name__ == "logistic"
    assert logistic.__doc__ == "1 / (1 + exp(-x))"


def test_the_tape_shows_its_name_and_body():
    _, tape = trace(lambda x: logistic(x) * 2.0, X)
    head, body = str(tape).split("\n\n")
    assert "custom(%1, label='logistic', tape=@1" in head
    assert body.startswith("@1 = tape logistic(x)")
    np.testing.assert_array_equal(tape.play(X), logistic(X) * 2.0)


def test_the_rule_is_used(mode):
    doubled = primitive(lambda x: 2.0 * x)
    defvjp(doubled, lambda ct, out, x: 100.0 * ct)
    np.testing.assert_array_equal(nth_derivative(doubled, 1, mode)(X), np.full(4, 100.0))


def test_the_rule_is_used_for_higher_derivatives_too():
    """The derivative of what a rule reads is the rule's again, not that of the body."""
    straight_through = primitive(np.round)
    defvjp(straight_through, lambda ct, out, x: ct)
    cube = nth_derivative(lambda x: straight_through(x) ** 3, 2)
    np.testing.assert_array_equal(cube(X), 6 * np.round(X))


def test_third_derivative(mode):
    s = logistic(X)
    d1 = s * (1 - s)
    np.testing.assert_allclose(
        nth_derivative(logistic, 3, mode)(X), d1 * (1 - 6 * s + 6 * s**2), rtol=1e-12
    )


def test_a_rule_may_call_its_own_primitive():
    exp = primitive(lambda x: np.exp(x))
    defvjp(exp, lambda ct, out, x: ct * exp(x))
    np.testing.assert_allclose(nth_derivative(exp, 3)(X), np.exp(X))


def test_without_a_rule_the_body_is_differentiated(mode):
    square = primitive(lambda x: x * x)
    np.testing.assert_array_equal(nth_derivative(square, 1, mode)(X), 2 * X)


def test_inside_jit_the_rule_and_stopped_gradients_stay():
    straight_through = primitive(np.round)
    defvjp(straight_through, lambda ct, out, x: ct)
    np.testing.assert_array_equal(nth_derivative(jit(straight_through), 1)(X), np.ones(4))
    half = jit(lambda x: x * stop_gradient(x))
    np.testing.assert_array_equal(nth_derivative(half, 1)(X), X)
    np.testing.assert_array_equal(nth_derivative(half, 2)(X), np.zeros(4))


def test_a_new_rule_replaces_what_was_derived_with_the_old_one():
    f = primitive(lambda x: x)
    derivative = nth_derivative(f, 1)
    for slope in (2.0, 3.0):
        defvjp(f, lambda ct, out, x, slope=slope: slope * ct)
        np.testing.assert_array_equal(derivative(X), np.full(4, slope))


def test_float32_stays_and_python_numbers_are_weak():
    square = primitive(lambda x: x * x)
    x32 = X.astype(np.float32)
    assert jit(lambda x, s: x * square(s), compile="never")(x32, 2.0).dtype == np.float32
    defvjp(square, lambda ct, out, x: 2 * x * ct)
    found = grad(lambda x, s: np.sum(square(x) * square(s)), compile="never")(x32, 2.0)
    assert found.dtype == np.float32


def test_as_a_method_the_instance_is_a_static_argument():
    class Model:
        scale = np.array([1.0, 2.0, 3.0, 4.0])

        @primitive
        def forward(self, x):
            return x * self.scale

    defvjp(Model.forward, None, lambda ct, out, self, x: 10 * ct * self.scale)
    model = Model()
    np.testing.assert_array_equal(model.forward(X), X * model.scale)
    np.testing.assert_array_equal(nth_derivative(model.forward, 1)(X), 10 * model.scale)


def at_places(ct, out, x):
    return np.array([2 * ct[j] if j < 3 else 0.0 for j in range(len(x))])


def in_turn(ct, out, x):
    found, carried = np.zeros(len(x)), 0.0
    for j in range(len(x)):
        if j % 2 == 0:
            carried = carried + ct[j]
        elif j > 5:
            carried = carried * 0.5
        found[j] = carried
    return found


def counting(ct, out, x):
    found, made = np.zeros(len(x)), 0.0
    for k, c in enumerate(ct):
        made += 2.0
        if made > 7.0:
            found[k] = c * made
    return found


def summed(ct, out, x):
    total = 0.0 * ct[0]
    for j in range(len(x)):
        total = total + (ct[j] if j < 5 else 2 * ct[j])
    return total * np.ones(len(x))


@pytest.mark.parametrize("n", [3, 4, 8, 40])
@pytest.mark.parametrize("rule", [at_places, in_turn, counting, summed])
def test_a_rule_branches_on_the_number_of_a_round(rule, n):
    """Rules are traced without values; the numbers of a loop's rounds are known all the same."""
    x = np.linspace(0.5, 2.0, n)
    doubled = primitive(lambda x: 2 * x)
    defvjp(doubled, rule)
    wanted = rule(np.cos(2 * x), 2 * x, x)
    found = grad(lambda x: np.sum(np.sin(doubled(x))), compile="never")(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_a_rule_whose_scan_branches_on_the_number_of_a_round_is_a_call_of_numpy():
    """A round that is written as such can be traced only if it is the same in all rounds."""

    def rule(ct, out, x):
        def round_(carry, entry):
            c, j = entry
            return (carry + c, carry) if j < 3 else (carry, carry)

        return scan(round_, 0.0 * ct[0], (ct, np.arange(len(ct))))[1]

    doubled = primitive(lambda x: 2 * x)
    defvjp(doubled, rule)
    x = np.linspace(0.5, 2.0, 6)
    found = grad(lambda x: np.sum(np.sin(doubled(x))), compile="never")(x)
    np.testing.assert_allclose(found, rule(np.cos(2 * x), 2 * x, x))


# ---- arguments and results


@primitive
def affine(p, x, *, shift=1.0):
    """Nested arguments, a keyword, and several results."""
    return p["w"] @ x + shift, {"sum": np.sum(x)}


@defvjp(affine)
def _(ct, out, p, x, *, shift=1.0):
    ct_y, ct_sum = ct[0], ct[1]["sum"]
    return {"w": np.outer(ct_y, x)}, p["w"].T @ ct_y + ct_sum


def affine_loss(p, x):
    y, more = affine(p, x)
    return np.sum(y**2) + more["sum"]


def test_nested_arguments_several_results_and_a_joint_rule(mode):
    p = {"w": np.arange(8.0).reshape(2, 4)}
    dp, dx = grad(affine_loss, argnums=(0, 1), compile=mode)(p, X)
    y = p["w"] @ X + 1.0
    np.testing.assert_allclose(dp["w"], np.outer(2 * y, X))
    np.testing.assert_allclose(dx, p["w"].T @ (2 * y) + 1.0)
    assert gradcheck(affine, (p, X))


def test_rules_by_name_and_for_keyword_arguments():
    @primitive
    def scaled(x, n, *, by):
        return by * x**n

    defvjp(
        scaled,
        lambda ct, out, x, n, by: ct * by * n * x ** (n - 1),
        by=lambda ct, out, x, n, by: np.sum(ct * x**n),
    )
    dx, dby = grad(lambda x, by: np.sum(scaled(x, n=3, by=by)), argnums=(0, 1))(X, 2.0)
    np.testing.assert_allclose(dx, 6 * X**2)
    assert dby == pytest.approx(np.sum(X**3))


def test_rules_get_the_arguments_that_the_call_gave(mode):
    @primitive
    def power(x, n=2):
        return x**n

    defvjp(power, lambda ct, out, x, n=2: ct * n * x ** (n - 1), None)
    for f in (power, lambda x: power(x, 2), lambda x: power(n=2, x=x)):
        np.testing.assert_allclose(nth_derivative(f, 1, mode)(X), 2 * X)


def test_numbers_strings_and_none_stay_as_they_are():
    seen = []

    @primitive
    def picky(x, n, name, nothing):
        seen.append((type(n), name, nothing))
        return x * n

    defvjp(picky, lambda ct, out, x, n, name, nothing: ct * n, None, None, None)
    np.testing.assert_array_equal(
        grad(lambda x: np.sum(picky(x, 3, "a", None)), compile="never")(X), np.full(4, 3.0)
    )
    assert set(seen) == {(int, "a", None)}


def test_a_traced_integer_may_be_used_and_is_guarded(mode):
    @primitive
    def head(x, n):
        return x[:n] * 2.0

    def head_rule(ct, out, x, n):
        result = np.zeros_like(x)
        result[:n] = 2.0 * ct
        return result

    defvjp(head, head_rule, None)
    g = grad(lambda x, n: np.sum(head(x, n)), compile=mode)
    for n in (1, 3, 1):
        np.testing.assert_array_equal(g(X, n), np.where(np.arange(4) < n, 2.0, 0.0))


def test_plain_index_arrays_and_masks():
    @primitive
    def take(x, index):
        return x[index]

    def take_rule(ct, out, x, index):
        result = np.zeros_like(x)
        result[index] += ct
        return result

    defvjp(take, take_rule, None)
    for index in (np.array([0, 2]), [0, 2], X > 0, slice(1, 3), (2,)):
        dx = grad(lambda x, index=index: np.sum(take(x, index) ** 2), compile="never")(X)
        expected = np.zeros(4)
        expected[index] = 2 * X[index]
        np.testing.assert_array_equal(dx, expected)


def test_integer_results_have_no_cotangent():
    @primitive
    def largest(x):
        return np.max(x), np.argmax(x)

    @defvjp(largest)
    def _(ct, out, x):
        assert ct[1] is None
        result = np.zeros_like(x)
        result[out[1]] = ct[0]
        return result

    def loss(x):
        value, at = largest(x)
        return value * x[0] + at

    np.testing.assert_array_equal(grad(loss, compile="never")(X), [2.0, 0.0, 0.5, 0.0])


class Steep(Function):
    """x, with a slope of its own on either side of 1: the branch is kept as what isn't an array."""

    @staticmethod
    def forward(ctx, x):
        ctx.is_large = bool(x > 1)
        return x * 1.0

    @staticmethod
    def backward(ctx, ct):
        return 100 * ct if ctx.is_large else ct


class Switch:
    is_large = False


@primitive
def switched(x):
    Switch.is_large = bool(x > 1)
    return x * 1.0


defvjp(switched, lambda ct, out, x: 100 * ct if Switch.is_large else ct)


@primitive
def doubled_or_tripled(x):
    return 2 * x if x > 1 else 3 * x


defvjp(doubled_or_tripled, lambda ct, out, x: ct * np.where(x > 1, 2.0, 3.0))


@pytest.mark.parametrize("steep", [Steep.apply, switched])
def test_a_branch_of_the_body_is_guarded_where_only_the_rule_is_left(steep):
    inner = jit(lambda x: grad(steep)(x) * x, compile="never")
    assert [inner(x) for x in (0.5, 2.0, 0.5)] == [0.5, 200.0, 0.5]
    outer = grad(lambda x: grad(steep)(x) * x, compile="never")
    assert [outer(x) for x in (2.0, 0.5)] == [100.0, 1.0]


def test_rows_take_their_own_branches_of_the_body():
    x = np.array([0.5, 2.0, 3.0])
    np.testing.assert_array_equal(vmap(grad(Steep.apply))(x), [1.0, 100.0, 100.0])
    np.testing.assert_array_equal(vmap(Steep.apply)(x), x)
    np.testing.assert_array_equal(vmap(doubled_or_tripled)(x), [1.5, 4.0, 6.0])
    found = grad(lambda x: np.sum(vmap(doubled_or_tripled)(x) ** 2), compile="never")(x)
    np.testing.assert_array_equal(found, [9.0, 16.0, 24.0])


def test_a_result_that_isnt_traced_is_that_of_its_branch():
    kind = primitive(lambda x: "large" if x > 1 else "small")
    f = jit(lambda x: x * (2 if kind(x) == "large" else 3), compile="never")
    assert [f(0.5), f(2.0)] == [1.5, 4.0]


# ---- arrays that rules and bodies reach by themselves


def test_arrays_that_a_rule_reaches_are_read_at_each_call(mode):
    table = np.arange(4.0)
    f = primitive(lambda x: x)
    defvjp(f, lambda ct, out, x: ct * table)
    derivative = nth_derivative(f, 1, mode)
    np.testing.assert_array_equal(derivative(X), [0, 1, 2, 3])
    table += 10
    np.testing.assert_array_equal(derivative(X), [10, 11, 12, 13])
    np.testing.assert_array_equal(
        nth_derivative(lambda x: nth_derivative(f, 1)(x) * x, 1)(X), table
    )


def test_second_derivatives_by_a_rule_that_reaches_arrays():
    """These are inputs behind all others, the directions of the second derivative too."""
    weights, outside = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 1.0, -2.0, 0.1])
    wave = primitive(lambda x: np.sin(weights * x))
    defvjp(wave, lambda ct, out, x: ct * weights * np.cos(weights * x))

    def loss(f):
        return lambda x: np.sum((outside * f(x)) ** 2) + f(x)[0] * f(x)[1]

    own, plain = loss(wave), loss(lambda x: np.sin(weights * x))
    wanted = hessian(plain, compile="never")(X)
    found = {
        "hessian": hessian(own, compile="never")(X),
        "sparse_hessian": sparse_hessian(own, compile="never")(X).toarray(),
        "forward over reverse": jacfwd(grad(own), compile="never")(X),
        "reverse over reverse": jacrev(grad(own), compile="never")(X),
    }
    for name, matrix in found.items():
        np.testing.assert_allclose(matrix, wanted, err_msg=name, atol=1e-12)
    np.testing.assert_allclose(laplacian(own, compile="never")(X), np.trace(wanted))


def test_arrays_that_a_rule_reaches_are_part_of_a_stand_alone_function():
    table = np.arange(4.0)
    f = defvjp(primitive(lambda x: x), lambda ct, out, x: ct * table)
    _, dx = simplegrad(lambda x: np.sum(f(x)), X)(X)
    np.testing.assert_array_equal(dx, table)


@pytest.mark.parametrize("argument", [lambda x: 2 * x, lambda x: np.ones(4)])
def test_a_function_with_a_rule_must_be_passed_what_it_uses(argument):
    def loss(x):
        g = defvjp(primitive(lambda y: x * y), lambda ct, out, y: ct)
        return np.sum(g(argument(x)))

    with pytest.raises(GradientError, match=r"wasn't passed.*Pass it as an argument"):
        grad(loss)(X)


def test_a_function_without_a_rule_may_use_traced_values_around_it():
    def loss(x):
        return np.sum(primitive(lambda y: x * y)(2 * x))

    np.testing.assert_allclose(grad(loss, compile="never")(X), 4 * X)


def test_a_rule_must_be_passed_what_it_uses():
    def loss(x):
        def inner(y):
            return np.sum(defvjp(primitive(lambda y: y), lambda ct, out, y: ct * x)(y))

        return np.sum(grad(inner)(x))

    with pytest.raises(RuleError, match=r"wasn't passed.*Pass it as an argument"):
        grad(loss)(X)


# ---- a body that can't be traced


def opaque(a):
    return plain(a.ravel()).reshape(a.shape)


@primitive
def expm(a):
    return scipy.linalg.expm(opaque(a))


@defvjp(expm)
def _(ct, out, a):
    return scipy.linalg.expm_frechet(opaque(a).T, ct, compute_expm=False)


def test_scipy_runs_between_the_compiled_parts(mode):
    a = np.array([[0.1, 0.2], [-0.3, 0.4]])

    def loss(a):
        return np.sum(np.sin(expm(a * 2.0)))

    value, da = value_and_grad(loss, compile=mode)(a)
    assert value == pytest.approx(loss(a))
    assert gradcheck(expm, a)
    shift = 1e-6 * np.array([[1.0, 2.0], [3.0, 4.0]])
    slope = (loss(a + shift) - loss(a - shift)) / 2
    assert np.sum(da * shift) == pytest.approx(slope, rel=1e-6)


def test_the_tape_names_what_numpy_runs():
    _, tape = trace(expm, np.eye(2))
    assert "foreign_call(%1, label='expm', function=<expm>) : f8[2,2]" in str(tape)


def test_python_numbers_of_scalars(mode):
    exp = primitive(lambda x: math.exp(x))
    defvjp(exp, lambda ct, out, x: ct * out)
    found = grad(lambda x: exp(x[0]) * x[1], compile=mode)
    for x in (X, 2 * X):
        np.testing.assert_allclose(found(x), [math.exp(x[0]) * x[1], math.exp(x[0]), 0, 0])
    np.testing.assert_allclose(nth_derivative(lambda x: exp(x[0]), 3)(X), [math.exp(0.5), 0, 0, 0])


def test_a_rule_that_can_be_traced_gives_derivatives_of_all_orders():
    """Rules may call primitives that can't be traced, whose rules are used in turn."""
    x = np.array([0.5, 1.0, 2.5])
    gamma = primitive(lambda x: scipy.special.gamma(np.asarray(x)))
    psi = primitive(lambda n, x: scipy.special.polygamma(n, np.asarray(x)))
    defvjp(gamma, lambda ct, out, x: ct * out * psi(0, x))
    defvjp(psi, None, lambda ct, out, n, x: ct * psi(n + 1, x))
    g = scipy.special.gamma(x)
    p0, p1, p2 = (scipy.special.polygamma(n, x) for n in (0, 1, 2))
    np.testing.assert_allclose(nth_derivative(gamma, 1)(x), g * p0)
    np.testing.assert_allclose(nth_derivative(gamma, 2)(x), g * (p0**2 + p1))
    np.testing.assert_allclose(nth_derivative(gamma, 3)(x), g * (p0**3 + 3 * p0 * p1 + p2))


def test_ufuncs_without_a_signature():
    erf = primitive(scipy.special.erf)
    defvjp(erf, lambda ct, out, x: ct * 2 / np.sqrt(np.pi) * np.exp(-x * x))
    np.testing.assert_allclose(nth_derivative(erf, 1)(X), 2 / np.sqrt(np.pi) * np.exp(-X * X))


def test_a_rule_may_branch_on_values():
    bent = primitive(lambda x: x * 2 if x > 1 else x * 3)
    defvjp(bent, lambda ct, out, x: ct * 2 if x > 1 else ct * 3)
    derivative = grad(bent, compile="never")
    assert [derivative(x) for x in (2.0, 0.5, 2.0)] == [2.0, 3.0, 2.0]


def test_no_rule_for_an_opaque_function_is_an_error_that_says_why():
    power = primitive(lambda x: np.sort_complex(x).real ** 2)
    power.label = "power"
    assert jit(lambda x: np.sum(power(x)), compile="never")(X) == np.sum(power(X))
    with pytest.raises(GradientError) as caught:
        grad(lambda x: np.sum(power(x)))(X)
    for part in ("power has no derivative rule", "np.sort_complex", "custom_test.py", "defvjp"):
        assert part in str(caught.value)


def test_no_second_derivative_of_an_opaque_rule():
    with pytest.raises(GradientError, match=r"expm\.backward has no derivative rule"):
        grad(lambda a: np.sum(grad(lambda a: np.sum(expm(a)))(a)))(np.eye(2))


def test_results_that_change_their_shape_are_an_error():
    positive = primitive(lambda x: plain(x)[plain(x) > 0])
    f = jit(lambda x: np.sum(positive(x)), compile="never")
    assert f(X) == 4.0
    with pytest.raises(TraceError, match=r"shape \(0,\).*shape \(3,\).*when it was traced"):
        f(-np.abs(X))


def test_an_opaque_result_is_nobody_elses():
    kept = np.zeros(4)
    same, cached = primitive(lambda x: np.asarray(x)), primitive(lambda x: [kept, float(x[0])][0])
    x = X.copy()
    assert not np.shares_memory(jit(same, compile="never")(x), x)
    result = jit(lambda x: cached(x), compile="never")(x)
    result += 1
    np.testing.assert_array_equal(kept, np.zeros(4))


# ---- what a primitive must not do


def test_writing_to_an_argument_is_an_error():
    @primitive
    def traced(x):
        x[0] = 0
        return x * 2

    @primitive
    def opaque(x):
        x = np.asarray(x)
        x[0] = 0
        return x * 2

    for f in (traced, opaque):
        with pytest.raises(UnsupportedError, match=r"writes to its .*x = x\.copy\(\)"):
            grad(total(lambda x, f=f: f(x * 1.0)))(X)


def test_the_users_own_mistakes_come_through():
    f = primitive(lambda x: x @ np.ones((3, 3)))
    with pytest.raises(ValueError, match="mismatch in its core dimension"):
        grad(total(f))(X)


# ---- wrong rules


@primitive
def scale(w, x):
    return w * x


def wrong(rule, *others):
    defvjp(scale, rule, *others)
    return grad(lambda w: np.sum(scale(w, np.ones((2, 4)))), compile="never")(X)


def test_a_cotangent_has_the_shape_of_its_argument():
    with pytest.raises(RuleError) as caught:
        wrong(lambda ct, out, w, x: ct * x)
    message = str(caught.value)
    for part in ("the rule of scale", "'w'", "(2, 4)", "(4,)", "custom_test.py", "sum over axes"):
        assert part in message


def test_a_cotangent_is_a_real_array():
    with pytest.raises(RuleError, match=r"returned a cotangent 'no'"):
        wrong(lambda ct, out, w, x: "no")
    with pytest.raises(RuleError, match=r"returned a cotangent of dtype complex128"):
        wrong(lambda ct, out, w, x: np.ones(4) * 1j)


def test_a_plain_number_stands_for_all_elements():
    np.testing.assert_array_equal(wrong(lambda ct, out, w, x: 0), np.zeros(4))
    np.testing.assert_array_equal(wrong(lambda ct, out, w, x: 1.5), np.full(4, 1.5))


def test_none_is_no_derivative_and_no_rule_is_an_error():
    np.testing.assert_array_equal(wrong(None), np.zeros(4))
    defvjp(scale, lambda ct, out, w, x: ct * x)
    np.testing.assert_array_equal(nth_derivative(lambda w: scale(w, X), 1)(X), X)
    with pytest.raises(GradientError, match=r"scale has no derivative rule for its argument 'x'"):
        nth_derivative(lambda x: scale(X, x), 1)(X)


def test_a_joint_rule_gives_one_cotangent_an_argument():
    @defvjp(scale)
    def _(ct, out, w, x):
        return ct * x

    with pytest.raises(RuleError, match=r"returned 1 cotangents, and there are 2 arguments"):
        nth_derivative(lambda w: scale(w, X), 1)(X)


def test_cotangents_of_arguments_left_at_their_defaults_are_none():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, power=2.0, scale=1.0):
            ctx.x, ctx.power = x, power
            return scale * x**power

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.power * ctx.x ** (ctx.power - 1), None, None

    shifted = primitive(lambda x, shift=None: 3 * x)
    defvjp(shifted)(lambda ct, out, x, shift=None: (3 * ct, None))
    total = primitive(lambda pair: pair[0] * pair[1])
    defvjp(total)(lambda ct, out, pair: (ct * pair[1], None))  # of one argument, a pair
    for power, slopes in [((), 2 * X), ((3.0,), 3 * X**2), ((3.0, 1.0), 3 * X**2)]:
        df = grad(lambda x, power=power: np.sum(Power.apply(x, *power)))
        np.testing.assert_allclose(df(X), slopes)
    np.testing.assert_array_equal(grad(lambda x: np.sum(shifted(x)))(X), np.full(4, 3.0))
    assert grad(lambda x: total((x, 2)))(1.5) == 2.0


def test_a_forward_pass_may_draw():
    """As dropout does: the mask is each call's own."""
    rng, other = np.random.default_rng(0), np.random.default_rng(0)

    class Dropout(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mask, ctx.scale = rng.random(4) < 0.5, rng.normal()
            return x * ctx.mask * ctx.scale

        @staticmethod
        def backward(ctx, ct):
            return ct * ctx.mask * ctx.scale

    df = grad(lambda x: np.sum(Dropout.apply(x) ** 2), compile="never")
    for k in range(3):
        kept, scale = other.random(4) < 0.5, other.normal()
        np.testing.assert_allclose(df(X + k), 2 * (X + k) * kept * scale**2)
    assert df.cache_info().traces == 1
    assert rng.bit_generator.state == other.bit_generator.state


def test_a_rule_that_returns_a_function_is_one_of_autograds():
    f = primitive(lambda x: 2 * x)
    defvjp(f, lambda out, *args: lambda ct: 2 * ct)
    with pytest.raises(RuleError, match=r"returned a function.*`lambda ct, out, x: \.\.\.`"):
        grad(lambda x: np.sum(f(x)))(X)


def test_cotangents_mirror_their_arguments():
    f = primitive(lambda p: p["a"] * p["b"])
    defvjp(f, lambda ct, out, p: ct)
    with pytest.raises(RuleError, match="isn't put together as its argument is"):
        grad(lambda p: np.sum(f(p)))({"a": X, "b": X})


def test_rules_of_a_function_with_further_options():
    """`**options` are no argument that a rule would have to take by position."""
    scaled = primitive(lambda x, **options: x * options["by"])
    defvjp(scaled, lambda ct, out, x, **options: ct * options["by"])
    defjvp(scaled, lambda t, out, x, **options: t * options["by"])
    assert grad(lambda x: scaled(x, by=3.0))(2.0) == grad(lambda x: scaled(x=x, by=3.0))(2.0) == 3.0
    assert jvp(lambda x: scaled(x, by=3.0), (2.0,), (1.0,)) == (6.0, 3.0)
    with pytest.raises(ArgumentError, match=r"is called with \(ct, out, x, \*\*options\)"):
        defvjp(scaled, lambda out, x, **options: lambda ct: ct)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: defvjp(np.sin, None), "np.sin has derivatives.*tapegrad.primitive"),
        (lambda: defvjp(np.sort, None), "np.sort has derivatives"),
        (lambda: defvjp(math.fsum, None, None, None, None), "4 rules were given"),
        (lambda: defvjp(scale, None, None, None), "3 rules were given, and scale has 2"),
        (lambda: defvjp(scale, z=None), "scale has no argument 'z'"),
        (lambda: defvjp(scale, argnums=[0]), "it has w, x. Rules are given in the order"),
        (
            lambda: defvjp(scale, lambda out, w, x: lambda ct: ct * x),
            r"takes \(out, w, x\), and it is called with \(ct, out, w, x\).*`lambda ct, out, x:",
        ),
        (lambda: defvjp(scale, 3.0), "the rule for argument 'w' of scale is 3.0"),
        (lambda: primitive(3), "primitive needs a function, not 3"),
    ],
)
def test_wrong_declarations(define, message):
    with pytest.raises(ArgumentError, match=message):
        define()


# ---- Function


class Cubic(Function):
    """x**3 * factor, with a residual, an attribute and a static argument."""

    @staticmethod
    def forward(ctx, x, factor, kind):
        ctx.save_for_backward(x, x * x)
        ctx.kind, ctx.factor = kind, factor
        return x * x * x * factor

    @staticmethod
    def backward(ctx, ct):
        x, square = ctx.saved_tensors
        assert ctx.kind == "cubic"
        return 3 * square * ctx.factor * ct, np.sum(x * square * ct), None


def test_function_saves_arrays_and_attributes(mode):
    def loss(x, factor):
        return np.sum(Cubic.apply(x, factor, "cubic"))

    dx, dfactor = grad(loss, argnums=(0, 1), compile=mode)(X, 2.0)
    np.testing.assert_allclose(dx, 6 * X**2)
    assert dfactor == pytest.approx(np.sum(X**3))
    assert gradcheck(Cubic.apply, (X, 2.0, "cubic"))


def test_function_derivatives_of_derivatives(mode):
    """They go on through what the forward pass saved: arguments, results, and other values."""
    for n, expected in [(1, 3 * X**2), (2, 6 * X), (3, np.full(4, 6.0))]:
        cubic = nth_derivative(lambda x: Cubic.apply(x, 1.0, "cubic"), n, mode)
        np.testing.assert_allclose(cubic(X), expected)


class Exp(Function):
    """Saves its result; the rule is twice the derivative, to tell it from the body's."""

    @staticmethod
    def forward(ctx, x):
        result = np.exp(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct * ctx.saved_tensors[0]


class OpaqueExp(Exp):
    @staticmethod
    def forward(ctx, x):
        return Exp.forward(ctx, np.asarray(x))


@pytest.mark.parametrize("function", [Exp, OpaqueExp])
def test_a_saved_result_has_the_derivative_of_the_result(function):
    np.testing.assert_allclose(nth_derivative(function.apply, 3)(X), 8 * np.exp(X))


def plain(x):
    """What a trace can't follow."""
    return np.array([array("d", [a])[0] for a in x])


class OpaqueCube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return plain(x) ** 3

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * x * x * ct


class OpaqueCubeWithSquare(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.square = plain(x) ** 2
        return plain(x) ** 3

    @staticmethod
    def backward(ctx, ct):
        return 3 * ctx.square * ct


def test_a_saved_argument_of_an_opaque_function_is_the_argument():
    np.testing.assert_allclose(nth_derivative(OpaqueCube.apply, 3)(X), np.full(4, 6.0))


def test_what_an_opaque_function_computed_has_no_derivative():
    np.testing.assert_allclose(nth_derivative(OpaqueCubeWithSquare.apply, 1)(X), 3 * X**2)
    with pytest.raises(GradientError, match="Keep only arguments and results"):
        nth_derivative(OpaqueCubeWithSquare.apply, 2)(X)


def test_function_on_plain_arrays_runs_forward():
    np.testing.assert_array_equal(Cubic.apply(X, 2, "cubic"), X**3 * 2)


class SinCos(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(np.sin(x), np.cos(x))
        return np.sin(x), len(x), np.cos(x)

    @staticmethod
    def backward(ctx, ct_sin, ct_count, ct_cos):
        sin, cos = ctx.saved_tensors
        assert ct_count is None
        return ct_sin * cos - ct_cos * sin


def test_function_with_several_results(mode):
    def loss(x):
        sin, count, cos = SinCos.apply(x)
        return np.sum(sin * cos) * count

    np.testing.assert_allclose(grad(loss, compile=mode)(X), 4 * np.cos(2 * X))
    value, pullback = vjp(SinCos.apply, X)
    assert value[1] == 4
    np.testing.assert_allclose(pullback((X, None, X))[0], X * (np.cos(X) - np.sin(X)))


class Sorted(Function):
    """ForeignCall forward pass; its backward pass can be traced."""

    @staticmethod
    def forward(ctx, x):
        x = np.asarray(x)
        ctx.order = np.argsort(x)
        return x[ctx.order]

    @staticmethod
    def backward(ctx, ct):
        result = np.zeros_like(ct)
        result[ctx.order] = ct
        return result


def test_opaque_function_with_saved_arrays(mode):
    weights = np.arange(4.0)
    g = grad(lambda x: np.sum(Sorted.apply(x) * weights), compile=mode)
    for x in (X, -X):
        np.testing.assert_array_equal(g(x), np.argsort(np.argsort(x)))
    cube = nth_derivative(lambda x: Sorted.apply(x) ** 3, 2)
    np.testing.assert_allclose(cube(X), 6 * X)


class Clipped(Function):
    """ForeignCall forward pass that keeps a Python number, on which the gradient depends."""

    @staticmethod
    def forward(ctx, x):
        ctx.largest = int(np.argmax(np.asarray(x)))
        return np.asarray(x) * 2.0

    @staticmethod
    def backward(ctx, ct):
        result = 2 * ct
        result[ctx.largest] = 0
        return result


def test_numbers_that_an_opaque_function_keeps_are_guarded(mode):
    g = grad(total(Clipped.apply), compile=mode)
    np.testing.assert_array_equal(g(X), [2, 2, 0, 2])
    np.testing.assert_array_equal(g(-X), [2, 0, 2, 2])
    np.testing.assert_array_equal(g(X), [2, 2, 0, 2])


class Spline(Function):
    """ForeignCall passes, and an object in the context."""

    @staticmethod
    def forward(ctx, y, t):
        ctx.t, ctx.count = t, len(y)
        ctx.spline = scipy.interpolate.CubicSpline(np.arange(len(y)), y)
        return ctx.spline(t)

    @staticmethod
    def backward(ctx, ct):
        knots = np.arange(ctx.count)
        basis = [scipy.interpolate.CubicSpline(knots, e)(ctx.t) for e in np.eye(ctx.count)]
        return np.array([ct @ b for b in basis]), ct * ctx.spline(ctx.t, 1)


def test_opaque_function_with_objects_in_its_context(mode):
    t = np.array([0.3, 1.2, 2.5])
    g = grad(lambda y, t: np.sum(Spline.apply(y, t) ** 2), argnums=(0, 1), compile=mode)
    for y in (X, X**2):
        spline = scipy.interpolate.CubicSpline(np.arange(4), y)
        np.testing.assert_allclose(g(y, t)[1], 2 * spline(t) * spline(t, 1))
    assert gradcheck(Spline.apply, (X, t))


def test_function_without_backward_is_differentiated_through():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

    np.testing.assert_array_equal(nth_derivative(lambda x: Product.apply(x, x), 1)(X), 2 * X)


def test_function_returns_one_cotangent_an_argument():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, ct):
            return ct

    with pytest.raises(RuleError, match=r"Product\.backward returned 1 cotangents.* 2 arguments"):
        nth_derivative(lambda x: Product.apply(x, x), 1)(X)


def test_needs_input_grad_tells_real_arguments():
    seen = []

    class Probe(Function):
        @staticmethod
        def forward(ctx, x, n, name):
            seen.append(ctx.needs_input_grad)
            return x * n

        @staticmethod
        def backward(ctx, ct):
            assert ctx.needs_input_grad == (True, False, False)
            return ct, None, None

    nth_derivative(lambda x: Probe.apply(x, 3, "a"), 1)(X)
    assert set(seen) == {(True, False, False)}


def test_a_value_kept_outside_the_context_is_an_error():
    class Stash(Function):
        @staticmethod
        def forward(ctx, x):
            Stash.kept = x * 2
            return x * 3

        @staticmethod
        def backward(ctx, ct):
            return ct * Stash.kept

    with pytest.raises(LeakedTracerError):
        grad(total(Stash.apply))(X)


def test_what_an_opaque_body_asks_costs_no_trace():
    @primitive
    def total(x):
        inspect.stack()
        return float(sum(array("d", x)))

    defvjp(total, lambda ct, out, x: ct * np.ones(3))
    derivative = grad(lambda x: total(x) * np.sum(x), compile="never")
    for k in range(3):
        np.testing.assert_allclose(derivative(np.arange(3.0) + k), 2 * (3.0 + 3 * k))
    assert derivative.cache_info().traces == 1


@primitive
def read_back(x):
    """What goes through text, or a library's C code, to plain numbers and back."""
    texts = [float(str(v)) for v in np.asarray(x).tolist()]
    return np.array(json.loads(json.dumps(texts))) + np.array([eval(repr(float(v))) for v in x])


defvjp(read_back, lambda ct, out, x: 2 * ct)


@pytest.mark.parametrize("compile", ["always", "never"])
def test_a_body_that_takes_numbers_out_of_texts_stays_a_call_of_numpy(compile):
    derivative = value_and_grad(lambda x: np.sum(read_back(x) ** 2), compile=compile)
    for x in (np.array([0.5, 1.0]), np.array([-3.0, 0.1]), np.array([2.0, 7.0])):
        value, slope = derivative(x)
        assert value == np.sum((2 * x) ** 2)
        np.testing.assert_array_equal(slope, 8 * x)
    assert derivative.cache_info().traces == 1
