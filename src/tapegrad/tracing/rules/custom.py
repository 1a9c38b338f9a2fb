"""Users' own primitives and derivative rules: what `primitive`, `defvjp`, `defjvp` and `Function`
declare.

    @primitive
    def logistic(x):
        return 1 / (1 + np.exp(-x))

    defvjp(logistic, lambda ct, out, x: ct * out * (1 - out))

On plain arrays such a function simply runs; `tracing.rules.call` records it on tracers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.named import Named, own_attribute
from tapegrad.core.request import leaf_names
from tapegrad.core.trees import flatten, is_traced
from tapegrad.errors import RuleError
from tapegrad.primitives.base import Missing
from tapegrad.tracing.recording.trace import is_untraced
from tapegrad.tracing.rules.call import call
from tapegrad.tracing.rules.declared import DeclaredRules, Rule
from tapegrad.tracing.rules.operation import Operation
from tapegrad.tracing.runs.traced import input_aval

declared: weakref.WeakSet[Any] = weakref.WeakSet()  # all that exist


class CustomPrimitive(Named, Operation):
    """The type of a function declared by `primitive`; `defvjp` and `defjvp` declare its rules."""

    # Called with the primitive and the arguments; returns the result, in a 1-tuple, if the call
    # isn't traced: see `autograd.objects`.
    apart: Callable[..., tuple[Any] | None] | None = None

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        name = own_attribute(function, "__name__", type(function).__name__)
        self.label = "lambda" if name == "<lambda>" else name
        self.traced = False
        declared.add(self)
        self.signature: inspect.Signature | None = None
        if not isinstance(function, np.ufunc):  # its options aren't arguments of a rule
            with contextlib.suppress(TypeError, ValueError):  # functions in C may have no signature
                self.signature = inspect.signature(function)
        known = function, self.label, self.signature
        self.reverse = DeclaredRules(*known, "defvjp", "ct")
        self.forward = DeclaredRules(*known, "defjvp", "t")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        apart = self.apart(self, args, kwargs) if self.apart is not None else None
        if apart is not None:
            return apart[0]
        if is_untraced((args, kwargs)):
            return self.function(*args, **kwargs)
        if self.signature is not None:
            bound = self.signature.bind(*args, **kwargs)  # arguments by position where possible
            args, kwargs = bound.args, bound.kwargs
        self.traced = True
        return call(self, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind as a decorated method: the instance is a static first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __dir__(self) -> list[str]:
        """The attributes of the function. How its rules are stored is private."""
        return dir(self.function)

    def __repr__(self) -> str:
        return f"<tapegrad primitive {self.label}>"

    def run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return self.function(*args, **kwargs), ()

    def define(self, given: DeclaredRules, rules: Sequence[Any], named: dict[str, Any]) -> Any:
        """Set the rules of one mode; without rules, return a decorator that sets one for all
        arguments."""
        if not rules and not named:
            return lambda rule: self.define_joint(given, rule)
        given.define(rules, named)
        return self

    def define_joint(self, given: DeclaredRules, rule: Rule) -> Rule:
        """Set one rule of a mode for all positional arguments."""
        return given.define_joint(rule)

    def has_reverse(self) -> bool:
        return bool(self.reverse)

    def has_forward(self) -> bool:
        return bool(self.forward)

    def names(self, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
        return leaf_names(self.function, args, kwargs)

    def pull_back(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        if self.reverse.joint is not None:
            returned = self.reverse.joint(ct, out, *args, **kwargs)
            return one_each(returned, args, f"the rule of {self.label}") + [None] * len(kwargs)
        values = (*args, *[kwargs[name] for name in sorted(kwargs)])
        pairs = zip(self.reverse.of(args, kwargs), Context(values).needs_input_grad, strict=True)
        return [
            rule(ct, out, *args, **kwargs) if real and rule is not None else None
            for rule, real in pairs
        ]

    def push_forward(
        self, ts: Sequence[Any], out: Any, args: Any, kwargs: Any, saved: Any
    ) -> list[Any]:
        if self.forward.joint is not None:
            return [self.forward.joint(tuple(ts[: len(args)]), out, *args, **kwargs)]
        pairs = zip(ts, self.forward.of(args, kwargs), strict=True)
        return [
            rule(t, out, *args, **kwargs) for t, rule in pairs if t is not None and rule is not None
        ]

    def missing(self, args: Any, kwargs: Any) -> list[Missing | None]:
        return self.reverse.missing(args, kwargs)

    def missing_forward(self, args: Any, kwargs: Any) -> list[Missing | None]:
        return self.forward.missing(args, kwargs)


class Context:
    """Values that `Function.forward` saves for `backward` and `jvp`: arrays, and any attributes.

    `needs_input_grad` tells for each argument whether it has floats or complex numbers, so that
    there could be a derivative. Unused cotangents cost nothing, so a rule need not check it.
    """

    def __init__(self, args: Any) -> None:
        self._saved: tuple[Any, ...] = ()
        self.needs_input_grad = tuple(
            any(is_traced(x) and input_aval(x).dtype.kind in "fc" for x in flatten(arg)[0])
            for arg in args
        )

    def save_for_backward(self, *tensors: Any) -> None:
        """Save these arrays; `backward` and `jvp` find them in `saved_tensors`."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The arrays that `forward` saved, in their order."""
        return self._saved

    def _contents(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        own = ("_saved", "needs_input_grad")
        return self._saved, {k: v for k, v in vars(self).items() if k not in own}


class Function:
    """A function with a derivative of its own, written as a pair of passes.

        class Square(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, ct):
                (x,) = ctx.saved_tensors
                return 2 * x * ct

        y = Square.apply(x)

    `forward(ctx, *args)` returns an array or a tuple of arrays; it may keep arrays with
    `ctx.save_for_backward` and anything else in attributes of `ctx`, and may write in place to
    arrays that it made. `backward(ctx, *cts)` gets the cotangent of each result (None for integers
    and booleans) and returns a cotangent for each argument of `forward`, with its shape, or None
    where there is no derivative; None, or nothing, for arguments left at their defaults. Numbers,
    strings and other arguments that aren't arrays are passed on as they are.

    `jvp(ctx, *ts)` is for forward mode: it gets the tangent of each argument (None for one without)
    and returns that of the result, with its structure and shapes. Where only one of `backward` and
    `jvp` is there, and can be traced, the other mode is its transpose.

    The passes are traced where that is possible, and are then compiled with what is around them
    and can be differentiated again; otherwise NumPy runs them as they are.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """The result for these arguments."""
        raise NotImplementedError("a Function needs a static method forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *cts: Any, **kwargs: Any) -> Any:
        """A cotangent for each argument of `forward`, for the cotangents of the results."""
        raise NotImplementedError("a Function needs a static method backward(ctx, *cts)")

    @staticmethod
    def jvp(ctx: Any, *ts: Any, **kwargs: Any) -> Any:
        """The tangent of the result, for the tangents of the arguments of `forward`."""
        raise NotImplementedError(
            "a Function with a forward mode needs a static method jvp(ctx, *ts)"
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function."""
        return call(_FunctionOperation(cls), args, {})


class _FunctionOperation(Operation):
    def __init__(self, cls: type[Function]) -> None:
        self.cls = cls
        self.label = cls.__name__

    def run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        ctx = Context(args)
        result = self.cls.forward(ctx, *args)
        return result, ctx._contents()

    def has_reverse(self) -> bool:
        return self.cls.backward is not Function.backward

    def has_forward(self) -> bool:
        return self.cls.jvp is not Function.jvp

    def pull_back(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        cts = ct if isinstance(ct, (tuple, list)) else (ct,)
        returned = self.cls.backward(self._context(args, saved), *cts)
        return one_each(returned, args, f"{self.label}.backward")

    def push_forward(
        self, ts: Sequence[Any], out: Any, args: Any, kwargs: Any, saved: Any
    ) -> list[Any]:
        return [self.cls.jvp(self._context(args, saved), *ts)]

    @staticmethod
    def _context(args: Any, saved: Any) -> Context:
        ctx = Context(args)
        ctx._saved, attributes = saved
        vars(ctx).update(attributes)
        return ctx

    def names(self, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
        return leaf_names(functools.partial(self.cls.forward, None), args, kwargs)


def one_each(returned: Any, args: Sequence[Any], rule: str) -> list[Any]:
    """A rule's results as a list of one cotangent for each argument. Further ones belong to
    arguments left at their defaults, and have to be None."""
    count, is_many = len(args), isinstance(returned, (tuple, list))
    if is_many and not (count == 1 and isinstance(args[0], (tuple, list))):
        while len(returned) > count and returned[-1] is None:
            returned = returned[:-1]
    if count == 1 and not (isinstance(returned, (tuple, list)) and len(returned) == 1):
        return [returned]
    if not isinstance(returned, (tuple, list)) or len(returned) != count:
        found = len(returned) if isinstance(returned, (tuple, list)) else 1
        raise RuleError(
            f"{rule} returned {found} cotangents, and there are {count} arguments. Return one for "
            "each, None where there is no derivative"
        )
    return list(returned)
