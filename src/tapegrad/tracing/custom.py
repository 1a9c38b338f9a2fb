"""Users' own primitives and derivative rules: what `primitive`, `defvjp` and `Function` declare.

    @primitive
    def logistic(x):
        return 1 / (1 + np.exp(-x))

    defvjp(logistic, lambda ct, out, x: ct * out * (1 - out))

On plain arrays such a function simply runs; `tracing.custom_call` records it on tracers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.core.request import argument_names, leaf_names
from tapegrad.core.trees import flatten, is_traced
from tapegrad.errors import ArgumentError, RuleError
from tapegrad.primitives.base import Missing
from tapegrad.tracing.custom_call import call
from tapegrad.tracing.custom_operation import Operation
from tapegrad.tracing.run import input_aval
from tapegrad.tracing.trace import tracing_depth

Rule = Callable[..., Any]


class CustomPrimitive(Operation):
    """What `primitive` makes of a function; `defvjp` gives it its rules."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        name = getattr(function, "__name__", type(function).__name__)
        self.label = "lambda" if name == "<lambda>" else name
        self.rules: dict[str, Rule | None] = {}
        self.joint: Rule | None = None
        self.traced = False
        self.signature: inspect.Signature | None = None
        if not isinstance(function, np.ufunc):  # whose options aren't arguments for a rule
            with contextlib.suppress(TypeError, ValueError):  # functions in C may have none
                self.signature = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not tracing_depth():
            return self.function(*args, **kwargs)
        if self.signature is not None:
            bound = self.signature.bind(*args, **kwargs)  # puts what can be in its position
            args, kwargs = bound.args, bound.kwargs
        self.traced = True
        return call(self, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a decorated method: bound to the instance, which is a static first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<tapegrad primitive {self.label}>"

    def run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return self.function(*args, **kwargs), ()

    def has_rule(self) -> bool:
        return bool(self.rules) or self.joint is not None

    def names(self, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
        return leaf_names(self.function, args, kwargs)

    def pull_back(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        if self.joint is not None:
            returned = self.joint(ct, out, *args, **kwargs)
            return one_each(returned, len(args), f"the rule of {self.label}") + [None] * len(kwargs)
        rules = [self.rules.get(name) for name in self._arguments(args, kwargs)]
        return [None if rule is None else rule(ct, out, *args, **kwargs) for rule in rules]

    def missing(self, args: Any, kwargs: Any) -> list[Missing | None]:
        names = self._arguments(args, kwargs)
        given = names[: len(args)] if self.joint is not None else self.rules
        return [None if name in given else self._missing(name) for name in names]

    def _arguments(self, args: Any, kwargs: Any) -> list[str]:
        return [*argument_names(self.function, len(args)), *sorted(kwargs)]

    def _missing(self, name: str) -> Missing:
        return Missing(
            f"{self.label} has no derivative rule for its argument {name!r}. Give defvjp a rule "
            "for it, or None if there is no derivative"
        )

    def define(self, rules: Sequence[Rule | None], named: dict[str, Rule | None]) -> None:
        """Set the rules of arguments, by position or name; the other arguments have none."""
        names, known = self._parameters(len(rules))
        if len(rules) > len(names):
            raise ArgumentError(
                f"defvjp: {len(rules)} rules were given, and {self.label} has {len(names)} "
                f"positional arguments: {', '.join(names)}"
            )
        table = dict(zip(names, rules, strict=False))
        for name, rule in named.items():
            if name not in known:
                raise ArgumentError(
                    f"defvjp: {self.label} has no argument {name!r}; it has {', '.join(known)}. "
                    "Rules are given in the order of the arguments, None for one without a "
                    "derivative, or each by its argument's name"
                )
            table[name] = rule
        for name, rule in table.items():
            if rule is not None and not callable(rule):
                raise ArgumentError(
                    f"defvjp: the rule for argument {name!r} of {self.label} is {rule!r}. A rule "
                    "is a function of (ct, out, *args), or None where there is no derivative"
                )
            self._check_rule(name, rule)
        self.rules, self.joint = table, None

    def _check_rule(self, name: str, rule: Rule | None) -> None:
        """An error for a rule of (out, *args), as those of HIPS autograd are."""
        if rule is None or self.signature is None:
            return
        kinds = [p.kind for p in self.signature.parameters.values() if p.default is p.empty]
        if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY in kinds:
            return
        try:
            signature = inspect.signature(rule)
        except (TypeError, ValueError):
            return
        names = list(self.signature.parameters)
        if _takes(signature, len(kinds) + 1) and not any(
            _takes(signature, count + 2) for count in range(len(kinds), len(names) + 1)
        ):
            raise ArgumentError(
                f"defvjp: the rule for argument {name!r} of {self.label} takes "
                f"{signature}, and it is called with (ct, out, {', '.join(names)}). It is passed "
                "the cotangent of the result first, and returns that of its argument: not `lambda "
                "out, x: lambda ct: ...`, as in HIPS autograd, but `lambda ct, out, x: ...`"
            )

    def define_joint(self, rule: Rule) -> Rule:
        """Set one rule for all positional arguments."""
        self.rules, self.joint = {}, rule
        return rule

    def _parameters(self, count: int) -> tuple[list[str], list[str]]:
        """The names of the positional arguments, and those of all that have one."""
        if self.signature is None:
            names = argument_names(self.function, count)
            return names, names
        kinds = {name: p.kind for name, p in self.signature.parameters.items()}
        positional = [n for n, k in kinds.items() if k in (_POSITIONAL_ONLY, _POSITIONAL)]
        if inspect.Parameter.VAR_POSITIONAL in kinds.values():
            positional = argument_names(self.function, max(count, len(positional)))
        keywords = [n for n, k in kinds.items() if k is inspect.Parameter.KEYWORD_ONLY]
        return positional, positional + keywords


def _takes(signature: inspect.Signature, count: int) -> bool:
    """Whether a function takes so many positional arguments."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


class Context:
    """What `Function.forward` keeps for `Function.backward`: saved arrays, and any attributes.

    `needs_input_grad` tells for each argument whether it has floats or complex numbers, so that
    there could be a derivative; cotangents that nobody wants cost nothing, so a rule need not look.
    """

    def __init__(self, args: Any) -> None:
        self._saved: tuple[Any, ...] = ()
        self.needs_input_grad = tuple(
            any(is_traced(x) and input_aval(x).dtype.kind in "fc" for x in flatten(arg)[0])
            for arg in args
        )

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep these arrays; `backward` finds them in `saved_tensors`."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The arrays that `forward` saved, in the order in which it did."""
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
    where there is no derivative. Numbers, strings and other arguments that aren't arrays are passed
    on as they are.

    Both passes are traced where that is possible, and are then compiled with what is around them
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

    def has_rule(self) -> bool:
        return self.cls.backward is not Function.backward

    def pull_back(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        ctx = Context(args)
        ctx._saved, attributes = saved
        vars(ctx).update(attributes)
        cts = ct if isinstance(ct, (tuple, list)) else (ct,)
        return one_each(self.cls.backward(ctx, *cts), len(args), f"{self.label}.backward")

    def names(self, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
        return leaf_names(functools.partial(self.cls.forward, None), args, kwargs)


def one_each(returned: Any, count: int, rule: str) -> list[Any]:
    """What a rule returned, as a list of one cotangent for each of `count` arguments."""
    if count == 1 and not (isinstance(returned, (tuple, list)) and len(returned) == 1):
        return [returned]
    if not isinstance(returned, (tuple, list)) or len(returned) != count:
        found = len(returned) if isinstance(returned, (tuple, list)) else 1
        raise RuleError(
            f"{rule} returned {found} cotangents, and there are {count} arguments. Return one for "
            "each, None where there is no derivative"
        )
    return list(returned)
