"""Vector spaces that programs declare for opaque objects.

Their operations are primitives, like the programs' own: on boxed objects they are steps of a walk
(`autograd.objects`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from tapegrad import rules as own
from tapegrad.core.trees import flatten
from tapegrad.errors import UnsupportedError
from tapegrad.observe.observer import unobserved
from tapegrad.observe.program.source import at_line
from tapegrad.tracing.recording.trace import current_trace, running
from tapegrad.tracing.rules.custom import CustomPrimitive
from tapegrad.tracing.tracers.tracer import Tracer

VECTORS = (np.ndarray, np.number, Tracer, int, float, complex)


class Boxed:
    """A boxed object: the proxy of an object while a function is differentiated."""

    _value: Any
    _walk: Any  # the walk that it is part of

    def __getattr__(self, name: str) -> Any:
        kind = type(self._value).__name__ if name != "_value" else "object"
        raise AttributeError(
            f"{name!r} of a {kind} is read where it stands in a box. A class that derives from Box "
            f"and has this property, with register({kind}), says what it is"
        )


class VSpace:
    """A vector space over the real numbers. Programs derive from it for classes of their own:

        class Functions(VSpace):
            def zeros(self): ...
            def _add(self, f, g): ...
            def _scalar_mul(self, f, a): ...

        Functions.register(Function)

    `size` counts real numbers, two of them for a complex one. By default, `_covector` is the
    identity, and `_add` and `_scalar_mul` are `+` and `*`.
    """

    mappings: ClassVar[dict[type, Callable[[Any], VSpace]]] = {}
    iscomplex: Any = False

    def __init__(self, value: Any) -> None: ...

    @classmethod
    def register(cls, kind: type, vspace_maker: Callable[[Any], VSpace] | None = None) -> None:
        """Declare that instances of `kind` are vectors of this space, or of
        `vspace_maker(instance)`."""
        VSpace.mappings[kind] = vspace_maker or cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}_{vars(self)}"

    def zeros(self) -> Any:
        """The zero vector."""
        self._lacks("zeros")

    def ones(self) -> Any:
        """The vector whose elements are 1; 1 + i for complex numbers."""
        self._lacks("ones")

    def randn(self) -> Any:
        """Normal random numbers, from NumPy's global generator."""
        self._lacks("randn")

    def standard_basis(self) -> Iterator[Any]:
        """The basis vectors: 1 in one place and 0 elsewhere; for complex numbers also i."""
        self._lacks("standard_basis")

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self._applied("add", x, y)

    def mut_add(self, x: Any, y: Any) -> Any:
        """x + y, where None is 0. It may overwrite x."""
        return self._applied("mut_add", self.zeros() if x is None else x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """a x."""
        return self._applied("scalar_mul", x, a)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The real part of <x, y>."""
        return self._applied("inner_prod", x, y)

    def covector(self, x: Any) -> Any:
        """conj(x): x as a cotangent."""
        return self._applied("covector", x)

    def _add(self, x: Any, y: Any) -> Any:
        return x + y

    def _mut_add(self, x: Any, y: Any) -> Any:
        return self._add(x, y)

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return x * a

    def _inner_prod(self, x: Any, y: Any) -> Any:
        self._lacks("_inner_prod")

    def _covector(self, x: Any) -> Any:
        return x

    def _applied(self, name: str, *xs: Any) -> Any:
        return _OPERATIONS[name](self, *xs)

    def _lacks(self, name: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} declares no {name}")


def is_object(value: Any) -> bool:
    """Whether this is an object (not an array) whose class has a vector space of its own, or a
    boxed one."""
    own = maker_of(type(value)) is not None and not isinstance(value, VECTORS)
    return own or isinstance(value, Boxed)


@unobserved  # a program's declarations are no state of a function
def maker_of(kind: type) -> Callable[[Any], VSpace] | None:
    return VSpace.mappings.get(kind)


# ---- steps of a walk


def walk_at(x: Any) -> Any:
    """The walk whose box a leaf is in."""
    if isinstance(x, Boxed):
        return x._walk
    found: Any = getattr(x._trace, "walk", None) if isinstance(x, Tracer) else None
    return found


def stepped(primitive: CustomPrimitive, args: Any, kwargs: Any) -> tuple[Any] | None:
    """The result of a call that is a step of a walk, in a 1-tuple; None if the call isn't one.

    It is a step if some argument is in a box of a walk, and the primitive has rules or an argument
    is an object. The innermost of the arguments' walks records it. Other calls are traced inside.
    """
    leaves = flatten((args, kwargs))[0] if running else []
    walks = [walk_at(x) for x in leaves if isinstance(x, (Boxed, Tracer))]
    found = [walk for walk in walks if walk is not None]
    ruled = primitive.has_reverse() or primitive.has_forward()
    if not found or not (ruled or any(map(is_object, leaves))):
        return None
    if current_trace() is not None or len(found) < len(walks):
        raise UnsupportedError(
            f"{primitive.label}: an object with a VSpace meets traced values{at_line()}. What is "
            "differentiated with respect to objects runs call by call: leave out jit, vmap, loops "
            "and jacobian inside, or say with tapegrad.register_tree what the object holds"
        )
    return (max(found, key=lambda walk: walk.trace.level).step(primitive, args, kwargs),)


# ---- the operations of spaces, on boxed objects


def _step_of_objects(primitive: CustomPrimitive, args: Any, kwargs: Any) -> tuple[Any]:
    """A step if there are boxes; else the space's own operation, traced."""
    found = stepped(primitive, args, kwargs)
    return (primitive.function(*args),) if found is None else found


def _operation(name: str, forward: Callable[..., Any], *reverse: Callable[..., Any]) -> Any:
    """An operation of a space as a primitive of the space and vectors. A rule is a function of the
    space, the cotangent or the tangents, and the vectors."""

    def applied(space: VSpace, *xs: Any) -> Any:
        return getattr(space, f"_{name}")(*xs)

    applied.__name__ = name
    primitive = CustomPrimitive(applied)
    primitive.apart = _step_of_objects
    own.defvjp(primitive, None, *[_with_space(rule) for rule in reverse])
    own.defjvp(primitive)(lambda ts, out, space, *xs: forward(space, ts[1:], *xs))
    return primitive


def _with_space(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda ct, out, space, *xs: rule(space, ct, *xs)


def _scaled_tangent(space: VSpace, ts: Sequence[Any], x: Any, a: Any) -> Any:
    """The tangent of a x: a dx + da x."""
    first = None if ts[0] is None else space.scalar_mul(ts[0], a)
    second = None if ts[1] is None else space.scalar_mul(x, ts[1])
    return _sum_tangent(space, (first, second))


def _inner_tangent(space: VSpace, ts: Sequence[Any], x: Any, y: Any) -> Any:
    """The tangent of <x, y>: <dx, y> + <x, dy>."""
    first = 0.0 if ts[0] is None else space.inner_prod(ts[0], y)
    return first + (0.0 if ts[1] is None else space.inner_prod(x, ts[1]))


def _sum_tangent(space: VSpace, ts: Sequence[Any], *xs: Any) -> Any:
    known = [t for t in ts if t is not None]
    return known[0] if len(known) == 1 else space.add(*known)


def _along(space: VSpace, a: Any, x: Any) -> Any:
    """a times x, as a cotangent."""
    return space.covector(space.scalar_mul(space.covector(x), a))


_OPERATIONS = {
    "add": _operation("add", _sum_tangent, lambda space, ct, x, y: ct, lambda space, ct, x, y: ct),
    "scalar_mul": _operation(
        "scalar_mul",
        _scaled_tangent,
        lambda space, ct, x, a: _along(space, a, ct),
        lambda space, ct, x, a: space.inner_prod(ct, space.covector(x)),
    ),
    "inner_prod": _operation(
        "inner_prod",
        _inner_tangent,
        lambda space, ct, x, y: _along(space, ct, y),
        lambda space, ct, x, y: _along(space, ct, x),
    ),
    "covector": _operation(
        "covector",
        lambda space, ts, x: space.covector(ts[0]),
        lambda space, ct, x: space.covector(ct),
    ),
}
_OPERATIONS["mut_add"] = _OPERATIONS["add"]
