"""What must hold of every transformation of a program: they agree with each other and with NumPy.

A program becomes a function of one vector, all of its real arguments, to another one, all of its
real results, and, as a weighted sum, to a number. Jacobians by reverse mode are held against
differences, and all else against these, Hessians by reverse over reverse and loops over rows. The
same functions made of the program serve calls with other values and with other state.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tests.fuzz.differences import AMPLIFIED, slope
from tests.fuzz.programs import Call, Program
from tests.fuzz.properties import COMPARED, SKIPPED, answer, real_arguments, weights
from tests.fuzz.rounding import compare, runs, spread, unit

import tapegrad as tg
from tapegrad.core.trees import flatten, unflatten

MOST = 24  # elements of the vector


class Vectors:
    """A program as a function of a vector, along which those leaves of a call's arguments move that
    are real."""

    def __init__(self, call: Call, f: Callable[..., Any]) -> None:
        self.f = f
        self.known: dict[Any, Any] = {}  # of this call: Jacobians and Hessians
        self.hold(call)

    def hold(self, call: Call) -> None:
        """From here on the arguments are those of another call, but for what moves."""
        self.known.clear()
        wrt = real_arguments(call.program)
        self.leaves, self.structure = flatten(call.args())
        numbers = flatten(tuple(_flags(x, k in wrt) for k, x in enumerate(call.args())))[0]
        self.moves = [yes and _is_real(x) for yes, x in zip(numbers, self.leaves, strict=True)]

    @property
    def start(self) -> np.ndarray:
        """Where the call is."""
        parts = [np.ravel(x) for x, yes in zip(self.leaves, self.moves, strict=True) if yes]
        return np.concatenate([np.zeros(0), *parts]).astype(float)

    def __call__(self, x: Any) -> Any:
        leaves, at = [], 0
        for leaf, yes in zip(self.leaves, self.moves, strict=True):
            if yes:
                size = np.size(leaf)
                leaves.append(_as_it_was(x[at : at + size], leaf))
                at += size
            else:
                leaves.append(leaf)
        return _flat(self.f(*unflatten(self.structure, leaves)))

    def loss(self, x: Any) -> Any:
        y = self(x)
        return np.sum(weights(y) * y)

    def gradient(self, x: Any) -> Any:
        return tg.grad(self.loss, compile="never")(x)

    def jacobian(self, x: Any) -> Any:
        return self._once("jacobian", x, tg.jacrev(self, compile="never"))

    def hessian(self, x: Any) -> Any:
        slope = tg.grad(self.loss, compile="never")
        return self._once("hessian", x, tg.jacrev(slope, compile="never"))

    def _once(self, what: str, x: Any, find: Callable[[Any], Any]) -> Any:
        key = what, x.tobytes()
        if key not in self.known:
            self.known[key] = find(x)
        return self.known[key]


def _flags(tree: Any, yes: bool) -> Any:
    leaves, structure = flatten(tree)
    return unflatten(structure, [yes] * len(leaves))


def _is_real(x: Any) -> bool:
    return type(x) is float or getattr(x, "dtype", None) in (np.dtype("f4"), np.dtype("f8"))


def _as_it_was(x: Any, like: Any) -> Any:
    if type(like) is float:
        return float(x[0])
    if isinstance(like, np.generic):
        return like.dtype.type(1) * x[0] if like.dtype == np.float64 else x.astype(like.dtype)[0]
    return np.reshape(x, like.shape).astype(like.dtype)


def _flat(results: Any) -> Any:
    parts = []
    for x in flatten(results)[0]:
        kind = getattr(getattr(x, "dtype", None), "kind", "f" if type(x) is float else "")
        if kind == "f":
            parts.append(np.ravel(x) * 1.0)
        elif kind == "c":
            parts += [np.ravel(x.real), np.ravel(x.imag)]
    return np.concatenate([np.zeros(0), *parts])


# ---- the transformations: what each finds, of a function and its `loss`, and what that is by its
# Jacobian and its Hessian

Found = Callable[[Any, np.ndarray, np.ndarray, str], Any]


def _rows(x: Any) -> Any:
    return np.stack([x, x * 0.75, x + 0.125])


def _linearized(f: Any, x: Any, v: Any, compile: str) -> Any:
    value, along = tg.linearize(f, x, compile=compile)
    return value, along(v)


def _pulled(f: Any, x: Any, v: Any, compile: str) -> Any:
    value, pullback = tg.vjp(f, x, compile=compile)
    return value, pullback(weights(value))[0]


def _operator(f: Any, x: Any, v: Any, compile: str) -> Any:
    found = tg.as_linear_operator(f, x, compile=compile)
    return found @ v, found.T @ weights(f(x))


def _series(f: Any, x: Any, v: Any, compile: str) -> Any:
    c = tg.jet(f, x, 2, direction=v, compile=compile)
    return c[0], c[1], np.sum(weights(c[2]) * c[2])


def _structure(f: Any, x: Any, v: Any, compile: str) -> Any:
    """Elements of the Jacobian that the structure leaves out."""
    return f.jacobian(x) * ~tg.jacobian_sparsity(f, x).toarray()


FIRST: dict[str, tuple[Found, Callable[[Any, Any, Any], Any]]] = {
    "jit": (lambda f, x, v, c: tg.jit(f, compile=c)(x), lambda f, x, v: f(x)),
    "jvp": (
        lambda f, x, v, c: tg.jvp(f, (x,), (v,), compile=c),
        lambda f, x, v: (f(x), f.jacobian(x) @ v),
    ),
    "linearize": (_linearized, lambda f, x, v: (f(x), f.jacobian(x) @ v)),
    "vjp": (_pulled, lambda f, x, v: (f(x), weights(f(x)) @ f.jacobian(x))),
    "grad": (
        lambda f, x, v, c: tg.value_and_grad(f.loss, compile=c)(x),
        lambda f, x, v: (f.loss(x), weights(f(x)) @ f.jacobian(x)),
    ),
    "elementwise_grad": (
        lambda f, x, v, c: tg.elementwise_grad(f, compile=c)(x),
        lambda f, x, v: np.sum(f.jacobian(x), 0),
    ),
    "jacfwd": (
        lambda f, x, v, c: tg.value_and_jacobian(f, mode="forward", compile=c)(x),
        lambda f, x, v: (f(x), f.jacobian(x)),
    ),
    "sparse_jacobian": (
        lambda f, x, v, c: tg.sparse_jacobian(f, compile=c)(x).toarray(),
        lambda f, x, v: f.jacobian(x),
    ),
    "jacobian_sparsity": (_structure, lambda f, x, v: 0 * f.jacobian(x)),
    "as_linear_operator": (
        _operator,
        lambda f, x, v: (f.jacobian(x) @ v, weights(f(x)) @ f.jacobian(x)),
    ),
    "checkpoint": (
        lambda f, x, v, c: tg.grad(lambda x: np.sum(tg.checkpoint(f)(x)), compile=c)(x),
        lambda f, x, v: np.sum(f.jacobian(x), 0),
    ),
    "gauss_newton_vp": (
        lambda f, x, v, c: tg.gauss_newton_vp(f, compile=c)(x, v),
        lambda f, x, v: f.jacobian(x).T @ (f.jacobian(x) @ v),
    ),
    "vmap": (
        lambda f, x, v, c: tg.vmap(f, compile=c)(_rows(x)),
        lambda f, x, v: np.stack([f(row) for row in _rows(x)]),
    ),
    "vmap of grad": (
        lambda f, x, v, c: tg.vmap(tg.grad(f.loss), compile=c)(_rows(x)),
        lambda f, x, v: np.stack([f.gradient(row) for row in _rows(x)]),
    ),
    "vmap of jvp": (
        lambda f, x, v, c: tg.vmap(lambda t: tg.jvp(f, (x,), (t,))[1], compile=c)(_rows(v)),
        lambda f, x, v: _rows(v) @ f.jacobian(x).T,
    ),
}
SECOND: dict[str, tuple[Found, Callable[[Any, Any, Any], Any]]] = {
    "hessian": (
        lambda f, x, v, c: tg.value_grad_and_hessian(f.loss, compile=c)(x),
        lambda f, x, v: (f.loss(x), weights(f(x)) @ f.jacobian(x), f.hessian(x)),
    ),
    "hvp": (
        lambda f, x, v, c: tg.hvp(f.loss, compile=c)(x, v),
        lambda f, x, v: f.hessian(x) @ v,
    ),
    "sparse_hessian": (
        lambda f, x, v, c: tg.sparse_hessian(f.loss, compile=c)(x).toarray(),
        lambda f, x, v: f.hessian(x),
    ),
    "laplacian": (
        lambda f, x, v, c: tg.laplacian(f.loss, compile=c)(x),
        lambda f, x, v: np.trace(f.hessian(x)),
    ),
    "jet": (
        _series,
        lambda f, x, v: (f(x), f.jacobian(x) @ v, v @ f.hessian(x) @ v / 2),
    ),
    "jvp of grad": (
        lambda f, x, v, c: tg.jvp(tg.grad(f.loss), (x,), (v,), compile=c)[1],
        lambda f, x, v: f.hessian(x) @ v,
    ),
    "vmap of hvp": (
        lambda f, x, v, c: tg.vmap(tg.hvp(f.loss), (None, 0), compile=c)(x, _rows(v)),
        lambda f, x, v: _rows(v) @ f.hessian(x),
    ),
}


def check_transformed(program: Program, seed: int) -> Counter[str]:
    """Hold all transformations of a program against each other, in two calls."""
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    calls = [program.call(0), program.call(1)]
    f = program.function()
    vectors = Vectors(calls[0], f)
    compiled = {rng.choice([*FIRST, *SECOND])} if rng.random() < 0.4 else set()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for k, call in enumerate(calls):
            call.enter(f)
            vectors.hold(call)
            x = vectors.start
            try:
                y = vectors(x)
            except Exception:
                continue
            if not x.size or x.size > MOST or not y.size or not np.all(np.isfinite(y)):
                continue
            v = np.random.default_rng(seed).normal(size=x.shape)
            smooth = "" if program.draws else _smooth(call, vectors, x, v)
            if smooth:
                tally[f"slopes: {COMPARED}"] += 1
            names = [*FIRST, *(SECOND if smooth == "second" else [])]
            if program.draws:  # each of these runs the program once for each row
                names = ["jit", "vmap", "vmap of grad"]
            # Of the second call those that keep most: state may have changed.
            for name in names if k == 0 else rng.sample(names, min(4, len(names))):
                way = "always" if name in compiled and k == 0 else "never"
                outcome = _hold(call, vectors, name, x, v, way)
                tally[f"{name}: {outcome}"] += 1
    return tally


def _hold(call: Call, vectors: Vectors, name: str, x: Any, v: Any, way: str) -> str:
    found_by, wanted_by = {**FIRST, **SECOND}[name]
    f, how = vectors.f, f"{name}, {way} compiled, {call}"
    call.enter(f)
    try:
        wanted = wanted_by(vectors, x, v)
    except Exception:
        return SKIPPED
    if not all(np.all(np.isfinite(part)) for part in flatten(wanted)[0]):
        return SKIPPED
    call.enter(f)
    outcome, found = answer(lambda: found_by(vectors, x, v, way), None, call, how)
    if outcome != COMPARED:
        return outcome

    def again(g: Any) -> Any:
        other = Vectors(call, g)
        return tuple(np.asarray(part) for part in flatten(wanted_by(other, x, v))[0])

    parts = [tuple(np.asarray(part) for part in flatten(tree)[0]) for tree in (found, wanted)]
    return compare(*parts, partial(runs, call, again), unit(call.program), how)


def _smooth(call: Call, vectors: Vectors, x: Any, v: Any) -> str:
    """Hold the Jacobian by reverse mode against differences along v. Which derivatives these have:
    "second", "first", or none at a kink."""
    f = vectors.f

    def at(step: float) -> float:
        call.enter(f)
        return float(vectors.loss(x + step * v))

    def slope_at(step: float) -> float:
        call.enter(f)
        return float(tg.grad(vectors.loss, compile="never")(x + step * v) @ v)

    def rounded(g: Any) -> Any:
        return float(Vectors(call, g).loss(x))

    values = runs(call, rounded)
    call.enter(f)
    noise = unit(call.program) + (spread(values, at(0.0)) if values is not None else np.inf)
    try:
        first = slope(at, noise)
        if first is None:
            return ""
        got = slope_at(0.0)
        second = slope(slope_at, noise)
    except Exception:
        return ""
    allowed = AMPLIFIED * noise + 2 * first.truncation + 1e-6 * (1 + abs(got))
    if "float32" not in str(call.program) and abs(got - first.value) > allowed:
        raise AssertionError(f"grad, {call}: {got} along {v}, and differences {first}")
    return "first" if second is None else "second"
