"""Users' own derivative rules: `primitive`, `defvjp`, `defjvp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, overload

from tapegrad.errors import ArgumentError
from tapegrad.settings import clear_cache
from tapegrad.typing import F

Function = Callable[..., Any]


def primitive(f: F) -> F:
    """A plain NumPy function as a primitive: one call on the tape, with a derivative of its own.

        @primitive
        def logistic(x):
            return 1 / (1 + np.exp(-x))

        defvjp(logistic, lambda ct, out, x: ct * out * (1 - out))

    On plain arrays the function simply runs. Traced, its body becomes a sub-tape, which is compiled
    with what is around it. A body that can't be traced, because it calls SciPy or numba or converts
    its arguments to Python numbers, stays a call that NumPy makes; its results' shapes and dtypes
    may then only depend on those of the arguments.

    Parameters
    ----------
    f : a function of arrays. Its arguments and results may be nested.

    Returns
    -------
    A function of the same arguments, which `defvjp` takes.

    Raises
    ------
    ArgumentError : `f` isn't a function.

    Without a rule from `defvjp`, a traced body is differentiated through; one that can't be traced
    is a `GradientError` when a derivative passes it. Numbers, strings and other arguments that
    aren't arrays are passed on as they are. The function must not write to its arguments, and may
    run more than once while it is traced.
    """
    from tapegrad.tracing.rules.custom import CustomPrimitive

    if not callable(f):
        raise ArgumentError(f"primitive needs a function, not {f!r}")
    return CustomPrimitive(f)  # type: ignore[return-value]


@overload
def defvjp(f: Function) -> Callable[[F], F]: ...
@overload
def defvjp(f: F, *rules: Function | None, **named: Function | None) -> F: ...
def defvjp(f: Function, *rules: Function | None, **named: Function | None) -> Any:
    """Give a primitive its derivative: one rule for each argument, by position or name. Forward
    mode has the transpose of these rules, or those that `defjvp` gave.

    `rule(ct, out, *args)` returns the cotangent of its argument, with that argument's shape: the
    cotangent `ct` of the result `out`, times the derivative of the result with respect to the
    argument, summed over the elements of the result. None says that there is no derivative; an
    argument without a rule is an error when its derivative is wanted. Rules get the arguments that
    the call gave, so a rule repeats the defaults of its function: `lambda ct, out, x, n=2: ...`.

        defvjp(scale, lambda ct, out, x, k: k * ct, None)
        defvjp(scale, x=lambda ct, out, x, k: k * ct)

    Without rules it is a decorator for one rule that returns the cotangents of all arguments:

        @defvjp(product)
        def _(ct, out, x, y):
            return ct * y, ct * x

    Of a complex number z = x + iy the cotangent is dL/dx - i dL/dy, as everywhere in tapegrad: the
    rule of a function with the complex derivative f' is `ct * f'(z)`, with nothing conjugated. Of
    what a rule returns for a real argument the real part is taken.

    Rules are plain NumPy functions. They are traced, so they can be differentiated again, when
    only shapes and dtypes are known; a rule that needs values is run by NumPy instead.

    Parameters
    ----------
    f : what `primitive` returned; or a function of a library, such as `scipy.special.mathieu_a`:
        where a traced program calls that, by whichever name, the rules hold.
    rules : a rule, or None, for each positional argument, in order.
    named : a rule, or None, for arguments by their names.

    Returns
    -------
    `f`; without rules, the decorator.

    Raises
    ------
    ArgumentError : `f` isn't one of these, there are more rules than arguments or one for an
        argument that there isn't, or a rule isn't a function.
    RuleError : later, when a rule returned what can't be the cotangent of its argument.
    """
    primitive = _redefined(f, "defvjp")
    return primitive.define(primitive.reverse, rules, named)


@overload
def defjvp(f: Function) -> Callable[[F], F]: ...
@overload
def defjvp(f: F, *rules: Function | None, **named: Function | None) -> F: ...
def defjvp(f: Function, *rules: Function | None, **named: Function | None) -> Any:
    """Give a primitive its derivative in forward mode: one rule for each argument, by position or
    name, as `defvjp` takes them.

    `rule(t, out, *args)` returns J t, with the shape of the result: the tangent `t` of its
    argument, times the derivative of the result with respect to that. What the rules of the
    arguments return adds up. None says that there is no derivative; an argument without a rule is
    an error when its derivative is wanted.

        defjvp(scale, lambda t, out, x, k: k * t, None)
        defjvp(scale, x=lambda t, out, x, k: k * t)

    Without rules it is a decorator for one rule that takes the tangents of all positional
    arguments, None for those that have none:

        @defjvp(cube_root)
        def _(ts, out, x):
            return ts[0] / (3 * out**2)

    A rule in one mode is enough where it can be traced: it is linear in `t` or `ct`, and the other
    mode is its transpose. If both are given, each mode has its own. A tangent of a complex number
    is a complex number, dz; the rule of a function with the complex derivative f' is `t * f'(z)`.

    Parameters
    ----------
    f : what `primitive` returned; or a function of a library, as for `defvjp`.
    rules : a rule, or None, for each positional argument, in order.
    named : a rule, or None, for arguments by their names.

    Returns
    -------
    `f`; without rules, the decorator.

    Raises
    ------
    ArgumentError : as `defvjp` raises it.
    RuleError : later, when a rule returned what can't be the tangent of the result.
    """
    primitive = _redefined(f, "defjvp")
    return primitive.define(primitive.forward, rules, named)


class PrimitiveInfo(NamedTuple):
    """What a call on a tape may be of: its name, its kind, which derivative rules it has of its
    own ("vjp", "jvp"), and a line about it."""

    name: str
    kind: str
    rules: tuple[str, ...]
    doc: str


def list_primitives() -> list[PrimitiveInfo]:
    """All that tapes may call by now, sorted by name: primitives of tapegrad's own, which NumPy's
    and SciPy's functions come to, and functions of yours that `primitive` has declared.

        >>> [found] = [x for x in list_primitives() if x.name == "cholesky"]
        >>> found.kind, found.rules
        ('Routine', ('vjp', 'jvp'))

    Returns
    -------
    A list of named tuples: name, kind, which rules it has of its own ("vjp", "jvp"), and a line.
    """
    from tapegrad.ir.tape import DECLARED, Primitive
    from tapegrad.tracing.rules.custom import declared

    base, kinds = "tapegrad.primitives.base", "tapegrad.primitives.kinds"
    found = []
    for name, each in DECLARED.items():
        cls = each if isinstance(each, type) else type(each)
        if not issubclass(cls, Primitive):
            continue
        kind = next(c.__name__ for c in cls.__mro__ if c.__module__ in (base, kinds))
        has = [r for r in ("vjp", "jvp") if getattr(cls, r) is not getattr(Primitive, r)]
        doc = (cls.__doc__ or "").strip().splitlines()
        found.append(PrimitiveInfo(name, kind, tuple(has), doc[0] if doc else ""))
    for own in [x for x in declared if not x.whole]:  # which a trace alone was told
        pairs = [("vjp", own.has_reverse()), ("jvp", own.has_forward())]
        doc = (own.__doc__ or "").strip().splitlines()
        has = [rule for rule, yes in pairs if yes]
        found.append(PrimitiveInfo(own.label, "user's", tuple(has), doc[0] if doc else ""))
    return sorted(found)


def _redefined(f: Any, asked: str) -> Any:
    """The primitive that is given rules. What was derived with old ones is out of date."""
    from tapegrad.tracing.rules.custom import CustomPrimitive
    from tapegrad.tracing.rules.library_rules import adopted

    found = f if isinstance(f, CustomPrimitive) else adopted(f, asked)
    if found.traced:
        clear_cache()
        found.traced = False
    return found
