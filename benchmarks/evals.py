"""The programs of GradBench's evals in plain NumPy, and what tapegrad makes of them.

`EVALS` has for each eval its functions by name. A function takes an input as GradBench sends it,
and returns what is to be timed, and what makes of its result the one that GradBench expects.
"""

import math
from functools import partial

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy.special import multigammaln

from tapegrad import grad, jacobian, jit, jvp, vmap


def arrays(given, *names):
    return [np.array(given[name], dtype=float) for name in names]


def square(x):
    return x * x


# gmm: the posterior of a mixture of Gaussians


def logsumexp(x):
    largest = np.max(x, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(x - largest), axis=-1)) + largest[..., 0]


def log_posterior(params, x, m, gamma):
    alpha, mu, q, lower = params["alpha"], params["mu"], params["q"], params["l"]
    (n, d), k = x.shape, len(alpha)
    factors = np.zeros((k, d, d))
    columns, rows = np.triu_indices(d, 1)
    factors[:, rows, columns] = lower
    factors[:, np.arange(d), np.arange(d)] = np.exp(q)
    away = np.einsum("kij,knj->kni", factors, x - mu[:, np.newaxis])
    q_sums = np.sum(q, axis=1)
    terms = (alpha + q_sums)[:, np.newaxis] - 0.5 * np.sum(away**2, axis=2)
    likelihood = np.sum(logsumexp(terms.T)) - n * (d / 2 * np.log(2 * np.pi) + logsumexp(alpha))
    degrees = d + m + 1
    constant = degrees * d * np.log(gamma / np.sqrt(2)) - multigammaln(degrees / 2, d)
    prior = k * constant - gamma**2 / 2 * np.sum(factors**2) + m * np.sum(q_sums)
    return likelihood + prior


def mixture(f, given):
    names = ("alpha", "mu", "q", "l")
    params = dict(zip(names, arrays(given, *names), strict=True))
    params["l"] = params["l"].reshape(given["k"], -1)  # empty rows of one dimension
    return partial(f, params, *arrays(given, "x"), given["m"], given["gamma"]), plain


# ba: bundle adjustment


def rotated(axis, point):
    angle = np.sqrt(np.sum(axis**2))
    if angle == 0:
        return point + np.cross(axis, point)
    unit = axis / angle
    along = np.dot(unit, point) * (1 - np.cos(angle))
    return point * np.cos(angle) + np.cross(unit, point) * np.sin(angle) + unit * along


def reprojection_error(camera, point, weight, feature):
    seen = rotated(camera[:3], point - camera[3:6])
    flat = seen[:2] / seen[2]
    square = np.sum(flat**2)
    flat = flat * (1 + camera[9] * square + camera[10] * square**2)
    return weight * (flat * camera[6] + camera[7:9] - feature)


def weight_error(weight):
    return 1 - weight**2


def bundle(given):
    """Of each observation the camera, point, weight and feature; and which these are."""
    n, m, p = given["n"], given["m"], given["p"]
    camera, point, feature = arrays(given, "cam", "x", "feat")
    cameras, points, features = (
        np.tile(a, (c, 1)) for a, c in ((camera, n), (point, m), (feature, p))
    )
    weights = np.full(p, given["w"])
    observed = np.arange(p)
    return (cameras, points, weights, features), (observed % n, observed % m)


def errors(f, g, cameras, points, weights, features, of_camera, of_point):
    return f(cameras[of_camera], points[of_point], weights, features), g(weights)


def bundle_errors(given):
    data, where = bundle(given)

    def shown(result):
        reprojections, weights = result
        return {
            "reproj_error": {"elements": reprojections[0].tolist(), "repeated": given["p"]},
            "w_err": {"element": float(weights[0]), "repeated": given["p"]},
        }

    return partial(bundle_objective, *data, *where), shown


def bundle_jacobian(given):
    """The Jacobian as rows of its numbers that aren't zero."""
    (n, m, p), (data, where) = (given[name] for name in "nmp"), bundle(given)

    def call():
        by_error, by_weight = bundle_derivatives(*data, *where)
        blocks = np.concatenate([by_error[0], by_error[1], by_error[2][..., np.newaxis]], axis=2)
        of_camera, of_point = (index[:, np.newaxis] for index in where)
        column = [11 * of_camera + np.arange(11), 11 * n + 3 * of_point + np.arange(3)]
        own = 11 * n + 3 * m + np.arange(p)
        columns = np.concatenate([*column, own[:, np.newaxis]], axis=1)
        return (
            np.concatenate([np.arange(0, 30 * p, 15), 30 * p + np.arange(p + 1)]),
            np.concatenate([np.repeat(columns, 2, axis=0).ravel(), own]),
            np.concatenate([blocks.ravel(), by_weight]),
        )

    def shown(result):
        return {
            name: [*found[:30].tolist(), found[-1].item()]
            for name, found in zip(("rows", "cols", "vals"), result, strict=True)
        }

    return call, shown


bundle_objective = jit(partial(errors, vmap(reprojection_error), weight_error))
bundle_derivatives = jit(
    partial(errors, vmap(jacobian(reprojection_error, (0, 1, 2))), vmap(grad(weight_error)))
)


# ht: a hand's bones and skin


def rotations(angles):
    """By Euler's angles about x, z and y, in this order of columns."""
    (cx, cz, cy), (sx, sz, sy) = np.cos(angles).T, np.sin(angles).T
    rows = [
        [cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx],
        [sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx],
        [-sy, cy * sx, cy * cx],
    ]
    return np.array(rows).transpose(2, 0, 1)


def about(axis):
    angle = np.sqrt(np.sum(axis**2))
    if angle < 1e-4:
        return np.eye(3)
    x, y, z = axis / angle
    across = np.array([[0 * x, -z, y], [z, 0 * x, -x], [-y, x, 0 * x]])
    return np.eye(3) + np.sin(angle) * across + (1 - np.cos(angle)) * across @ across


def vertices(theta, model):
    count = len(model["parents"])
    angles = np.zeros((count, 3))
    fingers = theta[6:].reshape(5, 4)
    bends = angles[2:22].reshape(5, 4, 3)
    bends[:, :3, 0] = fingers[:, [0, 2, 3]]
    bends[:, 0, 1] = fingers[:, 1]

    turned = np.zeros((count, 4, 4))
    turned[:, :3, :3] = rotations(angles)
    turned[:, 3, 3] = 1
    relative = model["base_relatives"] @ turned
    absolute = []
    for bone, parent in enumerate(model["parents"]):
        absolute.append(relative[bone] if parent == -1 else absolute[parent] @ relative[bone])
    moved = np.array(absolute) @ model["inverse_base_absolutes"]

    skin = np.tensordot(model["weights"], moved[:, :3], 1)
    found = np.sum(skin * model["base_positions"][:, np.newaxis], axis=2)
    if model["is_mirrored"]:
        found = found * np.array([-1, 1, 1])
    return found @ about(theta[:3]).T + theta[3:6]


def hand_errors(params, data, us):
    """`params` are what is added to each pair of `us`, if there are any, and the hand's pose."""
    model, chosen = data["model"], data["correspondences"]
    found = vertices(params[-26:], model)
    if len(us):
        us = us + params[:2]
        corners = found[model["triangles"][chosen]]
        weights = np.stack([us[:, 0], us[:, 1], 1 - us[:, 0] - us[:, 1]], axis=1)
        reached = np.sum(weights[:, :, np.newaxis] * corners, axis=1)
    else:
        reached = found[chosen]
    return (data["points"] - reached).ravel()


def hand(f, given):
    model = dict(given["data"]["model"])
    for name in ("base_relatives", "inverse_base_absolutes", "base_positions", "weights"):
        (model[name],) = arrays(model, name)
    del model["bone_names"], model["bone_count"]
    model["triangles"] = np.array(model["triangles"])
    model["parents"] = tuple(model["parents"])
    chosen = np.array(given["data"]["correspondences"])
    data = {"model": model, "correspondences": chosen, "points": np.array(given["data"]["points"])}
    theta, us = arrays(given, "theta", "us")
    params = np.concatenate([np.zeros(2 if len(us) else 0), theta])
    return partial(f, params, data, us), plain


# lstm


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def prediction_loss(params, state, sequence):
    main, extra = params
    layers, size = len(main) // 2, extra.shape[1]
    gates = main.reshape(layers, 2, 4, size)
    hidden, cell = state[0::2].copy(), state[1::2].copy()
    total = 0.0
    for t in range(len(sequence) - 1):
        x = sequence[t] * extra[0]
        for layer in range(layers):
            weight, bias = gates[layer]
            forget = sigmoid(x * weight[0] + bias[0])
            enter = sigmoid(hidden[layer] * weight[1] + bias[1])
            leave = sigmoid(x * weight[2] + bias[2])
            change = np.tanh(hidden[layer] * weight[3] + bias[3])
            cell[layer] = cell[layer] * forget + enter * change
            hidden[layer] = leave * np.tanh(cell[layer])
            x = hidden[layer]
        guess = x * extra[1] + extra[2]
        guess = guess - np.log(np.sum(np.exp(guess)) + 2)
        total = total + np.sum(sequence[t + 1] * guess)
    return -total / ((len(sequence) - 1) * size)


def network(f, given):
    main, extra, state, sequence = arrays(given, "main_params", "extra_params", "state", "sequence")

    def shown(result):
        if isinstance(result, tuple):
            return [number for slopes in result for number in slopes.ravel().tolist()]
        return plain(result)

    return partial(f, (main, extra), state, sequence), shown


# kmeans


def cost(centroids, points):
    distances = np.sum((points[:, np.newaxis] - centroids) ** 2, axis=2)
    return np.sum(np.min(distances, axis=1))


def clusters(f, given):
    return partial(f, *arrays(given, "centroids", "points")), plain


def direction(centroids, points):
    """A step of Newton's, with a Hessian that is a diagonal."""
    slopes, curvature = jvp(
        lambda centroids: grad(cost)(centroids, points), (centroids,), (np.ones_like(centroids),)
    )
    return slopes / curvature


# ode


def last_state(x, s):
    """By Runge and Kutta's fourth-order method, in `s` steps."""
    h = 2.0 / s

    def slope(y):
        return np.concatenate([x[:1], x[1:] * y[:-1]])

    y = np.zeros_like(x)
    for _ in range(s):
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def last_number(x, s):
    return last_state(x, s)[-1]


# det, by minors


def determinant(a, columns):
    """`columns[r]` are those that are left in row `r`, for each choice in the rows before."""
    minors = np.ones(math.factorial(len(a)))
    for row in range(len(a) - 1, -1, -1):
        signs = (-1.0) ** np.arange(len(a) - row)
        entries = a[row, columns[row]]
        minors = np.sum(signs * entries * minors.reshape(entries.shape), axis=1)
    return minors[0]


def by_minors(f, given):
    size = given["ell"]
    columns = [np.arange(size)[np.newaxis]]
    for left in range(size, 1, -1):
        others = np.array([[j for j in range(left) if j != i] for i in range(left)])
        columns.append(columns[-1][:, others].reshape(-1, left - 1))
    a = np.array(given["A"]).reshape(size, size)
    return partial(
        f, a, columns
    ), lambda result: np.ravel(result).tolist() if np.ndim(result) else plain(result)


# llsq, lse


def least_squares(x, n):
    t = -1 + np.arange(n) * 2 / (n - 1)
    return np.sum((np.sign(t) - polyval(t, x)) ** 2) / 2


# particle and saddle: gradient descent, and derivatives in what it descends


def forward_grad(f):
    """The gradient by a forward pass along each coordinate."""

    def gradient(x):
        units = np.eye(len(x))
        return np.array([jvp(f, (x,), (unit,))[1] for unit in units])

    return gradient


def argmin(f, gradient, start):
    x, best, slope = start, f(start), gradient(start)
    rate, steps = 1e-5, 0
    while np.sqrt(np.sum(slope**2)) > 1e-5:
        if steps == 10:
            rate, steps = rate * 2, 0
            continue
        following = x - rate * slope
        if np.sqrt(np.sum((following - x) ** 2)) <= 1e-5:
            break
        value = f(following)
        if value < best:
            x, best, slope, steps = following, value, gradient(following), steps + 1
        else:
            rate, steps = rate / 2, 0
    return x


GRADIENTS = {"f": forward_grad, "r": grad}


def meeting(gradient, w):
    """The square of where the particle meets the axis."""
    charges = np.array([[10.0, 10.0 - w[0]], [10.0, 0.0]])

    def potential(x):
        return np.sum(1 / np.sqrt(np.sum((charges - x) ** 2, axis=1)))

    x, speed, step = np.array([0.0, 8.0]), np.array([0.75, 0.0]), 0.1
    force = gradient(potential)
    while True:
        push = -force(x)
        x = x + step * speed
        if x[1] <= 0:
            return (x[0] - x[1] / speed[1] * speed[0]) ** 2
        speed = speed + step * push


def particle(modes, given):
    outer, inner = (GRADIENTS[mode] for mode in modes)
    f = jit(partial(meeting, inner))
    return lambda: argmin(f, outer(f), np.array([given["w"]])), lambda found: found.item()


def saddle_value(p, q):
    return np.sum(p**2) - np.sum(q**2)


def saddle(modes, given):
    outer, inner = (GRADIENTS[mode] for mode in modes)
    (start,) = arrays(given, "start")

    def highest(inner, p):
        def depth(q):
            return -saddle_value(p, q)

        return argmin(depth, inner(depth), start)

    def height(p):
        return saddle_value(p, highest(inner, p))

    def call():
        p = argmin(height, outer(height), start)
        return np.concatenate([p, highest(outer, p)])

    return call, plain


def plain(result):
    """As JSON has it."""
    if isinstance(result, dict):
        return {name: plain(part) for name, part in result.items()}
    return np.asarray(result).tolist()


def each(prepare, **functions):
    return {name: partial(prepare, f) for name, f in functions.items()}


def number(f, given):
    return partial(f, float(given)), plain


def vector(f, given):
    return partial(
        f, *arrays(given, "x"), *(given[name] for name in ("s", "n") if name in given)
    ), plain


EVALS = {
    "hello": each(number, square=square, double=grad(square)),
    "gmm": each(mixture, objective=jit(log_posterior), jacobian=grad(log_posterior)),
    "ba": {"objective": bundle_errors, "jacobian": bundle_jacobian},
    "ht": each(hand, objective=jit(hand_errors), jacobian=jacobian(hand_errors, mode="forward")),
    "lstm": each(network, objective=jit(prediction_loss), jacobian=grad(prediction_loss)),
    "kmeans": each(clusters, cost=jit(cost), dir=jit(direction)),
    "ode": each(vector, primal=jit(last_state), gradient=grad(last_number)),
    "det": each(by_minors, primal=jit(determinant), gradient=grad(determinant)),
    "llsq": each(vector, primal=jit(least_squares), gradient=grad(least_squares)),
    "lse": each(vector, primal=jit(logsumexp), gradient=grad(logsumexp)),
    "particle": {modes: partial(particle, modes) for modes in ("ff", "fr", "rf", "rr")},
    "saddle": {modes: partial(saddle, modes) for modes in ("ff", "fr", "rf", "rr")},
}
