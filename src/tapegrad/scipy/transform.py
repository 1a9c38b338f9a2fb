"""Traceable versions of `scipy.spatial.transform`: rotations of traced values, and rotations of
traced vectors.

A `TracedRotation` is a SciPy `Rotation` that holds its quaternions as a traced array. Its methods
are the formulas of `quaternions.py`. Arguments are checked by SciPy's own function, which is
called on plain numbers of the same shapes.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.spatial.transform as theirs
from scipy.spatial.transform import Rotation, Slerp

from tapegrad.extending import (
    Carrier,
    any_traced,
    at_line,
    declare_calls,
    declare_method,
    declare_operands,
    refusal,
    seen,
    stands_for,
    unobserved,
)
from tapegrad.extending.arrays import as_tracer, cast, raise_if, stacked
from tapegrad.extending.runs import original_of
from tapegrad.scipy import quaternions as by
from tapegrad.scipy.solver_calls import stopped

HOME = "scipy.spatial.transform"

REFUSED = {
    "RotationSpline": "Slerp, or splines of scipy.interpolate of rotation vectors",
    "RigidTransform": "a Rotation and a vector: rotation.apply(x) + translation",
}
_INSTEAD = "Use as_quat or as_matrix, and NumPy's functions of these"


def _floats(x: Any, *others: Any) -> Any:
    """An argument as an array of float64, traced if one of `others` is."""
    x = stacked(x)
    if any_traced([x, *others]):
        return cast(as_tracer(x, x, *others), np.float64)
    return np.asarray(x, float)


def _alike(q: Any) -> Any:
    """A plain rotation of the same shape, the identity."""
    return Rotation.from_quat(np.broadcast_to([0.0, 0.0, 0.0, 1.0], np.shape(q)))


def _quaternions(rotation: Any) -> Any:
    if isinstance(rotation, TracedRotation):
        return rotation.held
    return seen(rotation).as_quat()


class TracedRotation(Rotation, Carrier):
    """A rotation, or several, with traced quaternions or other traced values."""

    def __new__(cls, quat: Any) -> TracedRotation:
        return object.__new__(cls)

    def __init__(self, quat: Any) -> None:
        self.held = quat

    # ---- conversions to arrays

    def as_quat(self, canonical: Any = False, *, scalar_first: Any = False) -> Any:
        q = by.canonical(self.held) if canonical else self.held
        return np.concatenate([q[..., 3:], q[..., :3]], axis=-1) if scalar_first else q

    def as_matrix(self) -> Any:
        return by.matrix(self.held)

    def as_rotvec(self, degrees: Any = False) -> Any:
        return _in(degrees, by.vector(self.held))

    def as_mrp(self) -> Any:
        return by.mrp(self.held)

    def as_euler(self, seq: Any, degrees: Any = False, *, suppress_warnings: Any = False) -> Any:
        _quietly(Rotation.identity().as_euler, seq)
        found, locked = by.euler(self.held, seq)
        _warn(locked, suppress_warnings)
        return _in(degrees, found)

    def as_davenport(
        self, axes: Any, order: Any, degrees: Any = False, *, suppress_warnings: Any = False
    ) -> Any:
        axes = _floats(axes)
        like = np.array(np.broadcast_to(np.eye(3), np.shape(axes)))
        _quietly(_alike(self.held).as_davenport, like, order)
        axes = _unit(axes)
        found, locked = by.davenport(self.held, axes, order in _EXTRINSIC)
        _warn(locked, suppress_warnings)
        return _in(degrees, found)

    def magnitude(self) -> Any:
        return by.magnitude(self.held)

    # ---- compositions

    def inv(self) -> Any:
        return TracedRotation(by.inverse(self.held))

    def __mul__(self, other: Any) -> Any:
        return _product(self, other) if isinstance(other, Rotation) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return _product(other, self) if isinstance(other, Rotation) else NotImplemented

    def __pow__(self, n: Any, modulus: Any = None) -> Any:
        return _power(self, n, modulus)

    def mean(self, weights: Any = None, axis: Any = None) -> Any:
        return _mean(self, weights, axis)

    def approx_equal(self, other: Any, atol: Any = None, degrees: Any = False) -> Any:
        return _approx_equal(self, other, atol, degrees)

    def apply(self, vectors: Any, inverse: Any = False) -> Any:
        return _apply(self, vectors, inverse)

    # ---- sequence methods

    @property
    def single(self) -> bool:
        return bool(self.held.ndim == 1)

    @property
    def shape(self) -> Any:
        return tuple(self.held.shape[:-1])

    def __len__(self) -> int:
        return len(_alike(self.held))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter([TracedRotation(self.held[k]) for k in range(len(self))])

    def __getitem__(self, indexer: Any) -> Any:
        len(self)  # raises SciPy's error for a single rotation
        rows = np.asarray(indexer) if isinstance(indexer, (list, tuple)) else indexer
        return TracedRotation(self.held[rows])

    def __repr__(self) -> str:
        return f"Rotation.from_quat({self.held!r})"

    __hash__ = object.__hash__


def _left_out(name: str) -> Any:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise refusal(f"Rotation.{name} of traced values can't be traced{at_line()}. {_INSTEAD}")

    return refused


for _name, _method in inspect.getmembers(Rotation, callable):
    _own = vars(TracedRotation).get(_name)
    if isinstance(_own, types.FunctionType):
        if _name != "__new__":
            setattr(TracedRotation, _name, unobserved(_own))
    elif _name in ("reduce", "__setitem__", "__getstate__", "__setstate__", "__reduce__"):
        setattr(TracedRotation, _name, _left_out(_name))
TracedRotation.__rmul__ = unobserved(TracedRotation.__rmul__)  # type: ignore[method-assign]


def _in(degrees: Any, angles: Any) -> Any:
    return np.rad2deg(angles) if degrees else angles


def _quietly(f: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args)


def _warn(locked: Any, suppressed: Any) -> None:
    """SciPy's gimbal lock warning, at each trace. Whether there is gimbal lock is guarded."""
    if not suppressed and bool(np.any(locked)):
        warnings.warn(
            "Gimbal lock detected. Setting third angle to zero since it is not possible to "
            "uniquely determine all angles.",
            stacklevel=3,
        )


# ---- methods of plain rotations with traced arguments


def _method_of(f: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function as the answer to a method, of plain rotations too."""
    name = f.__name__
    stands_for(Rotation, "_".join(name.split("_")[1:]))(f)
    return f


@_method_of
def _apply(self: Any, vectors: Any, inverse: Any = False) -> Any:
    q = _quaternions(self)
    vectors = _floats(vectors, q)
    shape = np.shape(_alike(q).apply(np.zeros(np.shape(vectors))))
    return np.reshape(by.applied(q, vectors, bool(inverse)), shape)


@_method_of
def _mean(self: Any, weights: Any = None, axis: Any = None) -> Any:
    q = _quaternions(self)
    if axis is not None or np.ndim(q) > 2:
        raise refusal(
            f"Rotation.mean(axis=...) of traced values can't be traced{at_line()}. Use the mean of "
            "each of the rotations along that axis"
        )
    q = _floats(np.reshape(q, (-1, 4)), q, weights)
    if weights is not None:
        weights = _floats(weights)
        _alike(q).mean(np.ones(np.shape(weights)))
        raise_if(np.any(weights < 0), "`weights` must be non-negative.", ValueError)
    return TracedRotation(by.mean(q, weights))


@_method_of
def _approx_equal(self: Any, other: Any, atol: Any = None, degrees: Any = False) -> Any:
    p, q = _quaternions(self), _quaternions(other)
    _quietly(_alike(p).approx_equal, _alike(q))
    atol = 1e-8 if atol is None else np.deg2rad(atol) if degrees else atol
    return by.magnitude(by.product(q, by.inverse(p))) < atol


@stands_for(Rotation, "as_davenport")
def _as_davenport(
    self: Any, axes: Any, order: Any, degrees: Any = False, suppress_warnings: Any = False
) -> Any:
    held = TracedRotation(_floats(_quaternions(self), axes))
    return held.as_davenport(axes, order, degrees, suppress_warnings=suppress_warnings)


def _product(one: Any, other: Any) -> Any:
    p, q = _quaternions(one), _quaternions(other)
    _ = _alike(p) * _alike(q)  # raises SciPy's own error
    return TracedRotation(by.normalized(by.product(_floats(p, q), _floats(q, p))))


def _power(self: Any, n: Any, modulus: Any = None) -> Any:
    """The rotation by n times the angle. For n = 1 and n = -1 it keeps the quaternion's sign."""
    q = _quaternions(self)
    if modulus is not None:
        raise NotImplementedError("modulus not supported")
    if not any_traced([n]) and n in (0, 1, -1):
        return TracedRotation(by.inverse(q) if n == -1 else q) if n else _alike(q)
    if np.ndim(n) and np.shape(n) != (1,):
        raise ValueError("Array exponent must be a scalar")
    n = _floats(n, q)
    n = np.reshape(n, ())
    found = by.of_vector(n * by.vector(_floats(q, n)))
    turned = np.any(by.canonical(q) != q, axis=-1) & (np.abs(n) == 1)
    return TracedRotation(np.where(turned[..., None], -found, found))


declare_operands(
    Rotation,
    by=lambda x: x if isinstance(x, TracedRotation) else TracedRotation(_quaternions(x)),
    when=any_traced,
)
if isinstance(original_of(Rotation.__pow__), types.FunctionType):
    declare_method(Rotation, "__pow__", unobserved(_power))


@stands_for(Rotation, lists="rotations")
def concatenate(rotations: Any) -> Any:
    if isinstance(rotations, Rotation):
        return TracedRotation(_quaternions(rotations))
    if not all(isinstance(x, Rotation) for x in rotations):
        raise TypeError("input must contain Rotation objects only")
    found = [_quaternions(x) for x in rotations]
    return TracedRotation(np.concatenate([x[None] if x.ndim == 1 else x for x in found]))


# ---- constructors


def _makes(f: Callable[..., Any]) -> Callable[..., Any]:
    stands_for(Rotation, f.__name__)(f)
    return f


def _rotation(quat: Any, normalize: Any = True, copy: Any = True, scalar_first: Any = False) -> Any:
    q = _floats(quat)
    Rotation(np.ones(q.shape))
    q = np.roll(q, -1, axis=-1) if scalar_first else q
    return TracedRotation(by.normalized(q) if normalize else q + 0.0)


stands_for(HOME, "Rotation")(_rotation)


@_makes
def from_quat(quat: Any, scalar_first: Any = False) -> Any:
    return _rotation(quat, scalar_first=scalar_first)


@_makes
def from_matrix(matrix: Any, assume_valid: Any = False) -> Any:
    m = _floats(matrix)
    Rotation.from_matrix(np.broadcast_to(np.eye(3), m.shape))
    if not assume_valid:
        raise_if(np.any(np.linalg.det(m) <= 0), "Non-positive determinant", ValueError)
        m = by.orthogonal(m) if _makes_orthogonal() else m
    return TracedRotation(by.of_matrix(m))


@functools.cache
def _makes_orthogonal() -> bool:
    """Whether SciPy uses the rotation nearest to a matrix. Older versions have another formula."""
    m = np.eye(3) + np.arange(9.0).reshape(3, 3) / 20.0
    return np.allclose(by.matrix(Rotation.from_matrix(m).as_quat()), by.orthogonal(m))


@_makes
def from_rotvec(rotvec: Any, degrees: Any = False) -> Any:
    v = _floats(rotvec)
    Rotation.from_rotvec(np.zeros(v.shape))
    return TracedRotation(by.of_vector(np.deg2rad(v) if degrees else v))


@_makes
def from_mrp(mrp: Any) -> Any:
    v = _floats(mrp)
    Rotation.from_mrp(np.zeros(v.shape))
    return TracedRotation(by.of_mrp(v))


@_makes
def from_euler(seq: Any, angles: Any, degrees: Any = False) -> Any:
    angles = _floats(angles)
    angles = np.deg2rad(angles) if degrees else angles
    like = Rotation.from_euler(seq, np.zeros(angles.shape)).as_quat()
    angles = np.reshape(angles, (*like.shape[:-1], len(seq)))
    axes = [np.eye(3)["xyz".index(c)] for c in seq.lower()]
    return TracedRotation(by.of_angles(axes, angles, seq.islower()))


@_makes
def align_vectors(
    a: Any, b: Any, weights: Any = None, return_sensitivity: Any = False
) -> tuple[Any, Any]:
    """The rotation nearest to the sum of w a b', and the root of the residual (Kabsch, 1976)."""
    a, b = (np.atleast_2d(_floats(x, a, b, weights)) for x in (a, b))
    n = a.shape[0]
    w = _floats(np.ones(n) if weights is None else weights, a)
    like = [np.broadcast_to(np.eye(3)[np.arange(len(x)) % 3], x.shape) for x in (a, b)]
    Rotation.align_vectors(*like, np.ones(w.shape))
    raise_if(np.any(w < 0), "`weights` may not contain negative values", ValueError)
    if return_sensitivity:
        raise refusal(
            f"Rotation.align_vectors with return_sensitivity can't be traced{at_line()}. {_INSTEAD}"
        )
    first = np.isinf(w)
    if n == 1 or np.any(first):
        turn, rest = by.aligned(a, b, w, 0 if n == 1 else int(np.argmax(first)))
        return TracedRotation(turn), rest
    both = (w[:, None] * a).T @ b
    turn = by.orthogonal(both)
    rest = np.sum(w * (by.dot(a, a) + by.dot(b, b))) - 2 * np.sum(both * turn)
    return TracedRotation(by.of_matrix(turn)), np.sqrt(np.maximum(rest, 0.0))


_EXTRINSIC = ("e", "extrinsic")


@_makes
def from_davenport(axes: Any, order: Any, angles: Any, degrees: Any = False) -> Any:
    axes, angles = _floats(axes, angles), _floats(angles, axes)
    angles = np.deg2rad(angles) if degrees else angles
    count = 1 if axes.ndim == 1 else axes.shape[-2]
    units = np.eye(3)[np.arange(count) % 2]
    like = np.broadcast_to(units if axes.ndim > 1 else units[0], axes.shape)
    shape = Rotation.from_davenport(like, order, np.zeros(angles.shape)).as_quat().shape
    axes = _unit(axes if axes.ndim > 1 else axes[None])
    if angles.size == np.prod([*shape[:-1], count]):
        angles = np.reshape(angles, (*shape[:-1], count))
    units = [axes[..., k, :] for k in range(count)]
    return TracedRotation(np.reshape(by.of_angles(units, angles, order in _EXTRINSIC), shape))


def _unit(axes: Any) -> Any:
    """Axes as unit vectors. Raises ValueError if neighbours aren't orthogonal."""
    axes = axes / by.length(axes)[..., None]
    for k in range(axes.shape[-2] - 1):
        together = np.abs(by.dot(axes[..., k, :], axes[..., k + 1, :]))
        raise_if(np.any(together > 1e-7), "Consecutive axes must be orthogonal.", ValueError)
    return axes


# ---- interpolation


class TracedSlerp(Slerp, Carrier):
    """Interpolated rotations, with traced rotations or times."""

    def __init__(self, times: Any, rotations: Any) -> None:
        q = _quaternions(rotations)
        self.times = _floats(times, q)
        self.quaternions = _floats(q, self.times)
        rotations = TracedRotation(self.quaternions)
        self.rotations = rotations[:-1]
        self.timedelta = np.diff(self.times)
        self.rotvecs = _product(self.rotations.inv(), rotations[1:]).as_rotvec()

    @unobserved
    def __call__(self, times: Any) -> Any:
        times = _floats(times, self.times)
        t = times[None] if times.ndim == 0 else times
        if t.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        known = stopped(self.times)
        k = np.searchsorted(known, stopped(t)) - 1
        k = np.where(t == known[0], 0, k)
        raise_if(
            np.any((k < 0) | (k > len(self.rotations) - 1)),
            "Interpolation times must be within the range of those of the rotations, both "
            "inclusive.",
            ValueError,
        )
        part = (t - self.times[k]) / self.timedelta[k]
        turned = TracedRotation(by.of_vector(self.rotvecs[k] * part[..., None]))
        found = _product(self.rotations[k], turned)
        return found[0] if times.ndim == 0 else found


@stands_for(HOME, "Slerp")
def _slerp(times: Any, rotations: Any) -> Any:
    if not isinstance(rotations, Rotation):
        raise TypeError("`rotations` must be a `Rotation` instance.")
    times = _floats(times)
    like = np.reshape(np.arange(float(np.size(times))), np.shape(times))
    Slerp(like, _alike(_quaternions(rotations)))
    raise_if(np.any(np.diff(times) <= 0), "Times must be in strictly increasing order.", ValueError)
    return TracedSlerp(times, rotations)


def _called(slerp: Any, times: Any) -> Any:
    """SciPy's own interpolator at traced times."""
    seen(slerp)
    times = _floats(times)
    whole = Rotation.concatenate(
        [slerp.rotations, slerp.rotations[-1] * Rotation.from_rotvec(slerp.rotvecs[-1])]
    )
    made = TracedSlerp(as_tracer(slerp.times, times), whole)
    made.rotvecs = as_tracer(slerp.rotvecs, times)
    return made(times)


declare_calls(Slerp, unobserved(_called), when=any_traced)


# ---- refused functions


def _refusing(kind: type, name: str, original: Any) -> Any:
    @functools.wraps(original)
    def refused(*args: Any, **kwargs: Any) -> Any:
        if not any_traced((*args, *kwargs.values())):
            return original(*args, **kwargs)
        raise refusal(
            f"{kind.__name__}.{name} of traced values can't be traced{at_line()}. "
            f"{_INSTEAD if kind is Rotation else 'Use ' + REFUSED[kind.__name__]}"
        )

    return refused


def _refuse_methods(kind: type, names: Any) -> None:
    for name in names:
        original = original_of(getattr(kind, name, None))
        if isinstance(original, types.FunctionType):
            declare_method(kind, name, _refusing(kind, name, original))


_refuse_methods(Rotation, ["reduce", "__setitem__"])
for _name in REFUSED:
    if hasattr(theirs, _name):
        _kind = getattr(theirs, _name)
        _refuse_methods(_kind, [x for x in vars(_kind) if not x.startswith("_")])
        _answer = _refusing(_kind, "__call__", _kind.__call__)
        declare_calls(_kind, _answer, when=any_traced)
