"""Users' functions with their derivatives, declared by HIPS autograd's conventions.

    @primitive
    def logistic(x):
        return 1 / (1 + np.exp(-x))

    defvjp(logistic, lambda ans, x: lambda g: g * ans * (1 - ans))

Here a rule is a function of the result and the arguments, and returns a function of the cotangent.
In tapegrad it is a single function of all of them.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tapegrad import rules as own
from tapegrad.api import stop_gradient
from tapegrad.autograd.objects import holds_objects, plain
from tapegrad.autograd.spaces import stepped
from tapegrad.autograd.vspace import vspace
from tapegrad.errors import ArgumentError
from tapegrad.tracing.rules.custom import Context, CustomPrimitive

Maker = Callable[..., Any]


class Primitive(CustomPrimitive):
    """A function that can have rules of its own, also declared by methods, as in older programs."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__(f)
        self._makers: dict[int, Maker | None] = {}
        self.apart = stepped

    def defgrad(self, maker: Maker | None, argnum: int = 0) -> None:
        """Declare the reverse rule of one argument, in addition to those of others: see
        `defvjp`."""
        self._makers[argnum] = maker
        numbers = sorted(self._makers)
        defvjp(self, *[self._makers[k] for k in numbers], argnums=numbers)

    def defvjp(self, rule: Callable[..., Any], argnum: int = 0) -> None:
        """Declare a reverse rule as a function of the cotangent, the result, the vector spaces of
        the argument and of the cotangent, and the arguments."""

        def maker(ans: Any, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
            return lambda g: rule(g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs)

        self.defgrad(maker, argnum)

    def defvjp_is_zero(self, argnums: Iterable[int] = (0,)) -> None:
        """Declare that these arguments have no derivative."""
        for k in argnums:
            self.defgrad(None, k)


def primitive(f: Callable[..., Any]) -> Any:
    """A function that can have rules of its own; see `tapegrad.primitive`."""
    return f if isinstance(f, CustomPrimitive) else Primitive(f)


def notrace_primitive(f: Callable[..., Any]) -> Any:
    """A function without a derivative: it is called with its arguments as constants."""

    @functools.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        return f(*stop_gradient(plain(args)), **plain(kwargs))

    return called


def register_notrace(kind: Any, f: Any) -> None:
    """Declare that a primitive has no derivative. `kind`, a class of HIPS autograd's nodes, is
    ignored."""

    def rule(ct: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
        return (None,) * len(args)

    _declare_joint("register_notrace", own.defvjp, f, rule)


def defvjp(f: Any, *makers: Maker | None, argnums: Iterable[int] | None = None) -> None:
    """Declare a primitive's reverse rules, one for each argument, or for those with these numbers.

    `maker(ans, *args, **kwargs)` returns the function from the cotangent of the result to that of
    the argument: an array of the argument's shape. None is for an argument without a derivative.
    An argument without a rule is an error when its derivative is needed.
    """
    rules = [None if m is None else _reverse(m) for m in makers]
    _declare("defvjp", own.defvjp, f, rules, argnums)


def _reverse(maker: Maker) -> Callable[..., Any]:
    def rule(ct: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
        return maker(out, *args, **kwargs)(ct)

    return rule


def defvjp_argnum(f: Any, maker: Maker) -> None:
    """Declare one rule for all arguments: `maker(argnum, ans, args, kwargs)` returns the function
    from the cotangent of the result to that of the argument with this number."""

    def rule(ct: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
        return tuple([maker(k, out, args, kwargs)(ct) if yes else None
                      for k, yes in enumerate(_are_vectors(args))])  # fmt: skip

    _declare_joint("defvjp_argnum", own.defvjp, f, rule)


def _are_vectors(args: Sequence[Any]) -> list[bool]:
    """For each argument, whether it can have a derivative."""
    real = Context(tuple(args)).needs_input_grad
    return [yes or holds_objects(x) for x, yes in zip(args, real, strict=True)]


def defvjp_argnums(f: Any, maker: Maker) -> None:
    """Declare one rule for several arguments at once: `maker(argnums, ans, args, kwargs)` returns
    the function from the cotangent of the result to those of the arguments with these numbers."""

    def rule(ct: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
        argnums = [k for k, yes in enumerate(_are_vectors(args)) if yes]
        found = dict(zip(argnums, maker(tuple(argnums), out, args, kwargs)(ct), strict=True))
        return tuple([found.get(k) for k in range(len(args))])

    _declare_joint("defvjp_argnums", own.defvjp, f, rule)


def defjvp(f: Any, *rules: Any, argnums: Iterable[int] | None = None) -> None:
    """Declare a primitive's forward rules, one for each argument, or for those with these numbers.

    `rule(g, ans, *args, **kwargs)` returns the tangent of the result for the tangent `g` of its
    argument. "same" is the rule where the result is linear in the argument: the primitive itself,
    with `g` in its place. None is for an argument without a derivative.
    """
    numbers = _numbers(rules, argnums)
    found = [_linear(f, k) if r == "same" else r for k, r in zip(numbers, rules, strict=True)]
    _declare("defjvp", own.defjvp, f, found, argnums)


def def_linear(f: Any) -> None:
    """Declare that a primitive is linear in each of its arguments."""
    count = len(inspect.signature(f).parameters)
    defjvp(f, *["same"] * count)


def _linear(f: Any, k: int) -> Callable[..., Any]:
    def rule(g: Any, ans: Any, *args: Any, **kwargs: Any) -> Any:
        # a traced body has a reverse mode; a primitive without that rule has none
        linear = f if f.has_reverse() else f.function
        return linear(*args[:k], g, *args[k + 1 :], **kwargs)

    return rule


def defjvp_argnum(f: Any, rule: Callable[..., Any]) -> None:
    """Declare one forward rule for all arguments: `rule(argnum, g, ans, args, kwargs)` returns the
    tangent of the result for the tangent `g` of the argument with this number."""

    def joint(ts: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
        found = [rule(k, t, out, args, kwargs) for k, t in enumerate(ts) if t is not None]
        return sum(found[1:], found[0])

    _declare_joint("defjvp_argnum", own.defjvp, f, joint)


def defjvp_argnums(f: Any, rule: Callable[..., Any]) -> None:
    """Declare one forward rule for several arguments at once: `rule(argnums, gs, ans, args,
    kwargs)` returns the tangent of the result for the tangents `gs` of the arguments with these
    numbers."""

    def joint(ts: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = tuple([k for k, t in enumerate(ts) if t is not None])
        return rule(numbers, [ts[k] for k in numbers], out, args, kwargs)

    _declare_joint("defjvp_argnums", own.defjvp, f, joint)


def _numbers(rules: Sequence[Any], argnums: Iterable[int] | None) -> list[int]:
    numbers = [*range(len(rules))] if argnums is None else [*argnums]
    if len(numbers) < len(rules):
        raise ArgumentError(f"{len(rules)} rules were given, and argnums={tuple(numbers)}")
    return numbers[: len(rules)]


def _declare(
    label: str, how: Callable[..., Any], f: Any, rules: Sequence[Any], argnums: Any
) -> None:
    """Declare the rules of `f`, by the names of its arguments if these aren't the first ones."""
    if _declared(f, label) is None:
        return
    numbers = _numbers(rules, argnums)
    try:
        parameters = [*inspect.signature(f).parameters.values()]
    except ValueError:  # a function written in C
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if numbers == [*range(len(rules))]:
        several = not parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters)
        how(f, *(rules if several else rules[: len(named)]))
        return
    if max(numbers, default=0) >= len(named):
        raise ArgumentError(
            f"{label}: argnums={tuple(numbers)}, and the arguments of "
            f"{getattr(f, '__name__', f)} have no names. Give a rule for each argument from the "
            "first on, None for one without a derivative"
        )
    how(f, **{named[k]: rule for k, rule in zip(numbers, rules, strict=True)})


def _declare_joint(label: str, how: Callable[..., Any], f: Any, rule: Callable[..., Any]) -> None:
    """Declare one rule for all arguments of `f`."""
    if _declared(f, label) is not None:
        how(f)(rule)


def _declared(f: Any, label: str) -> Any:
    """`f`, if it is a primitive; else None, with a warning. In HIPS autograd, too, rules of other
    functions do nothing, except those of NumPy's and SciPy's functions, which are primitives
    there."""
    if isinstance(f, CustomPrimitive):
        return f
    warnings.warn(
        f"{label}: {getattr(f, '__name__', f)} isn't a primitive, so this rule is never used: "
        "tapegrad differentiates through the function, or has rules of its own for those of NumPy "
        "and SciPy. Where the rule matters, make a primitive that calls it, f = primitive(f), and "
        "call that",
        stacklevel=4,
    )
    return None
