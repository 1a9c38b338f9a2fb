"""The rules that `defvjp` and `defjvp` declare for a function: one for each argument, or one for
all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tapegrad.core.request import argument_names
from tapegrad.errors import ArgumentError
from tapegrad.primitives.base import Missing

Rule = Callable[..., Any]


@dataclass(eq=False)
class DeclaredRules:
    """The rules of one mode, for messages `declared` by `defvjp` or `defjvp`. A rule is called with
    a cotangent or tangent, named `first`, then the result and the arguments."""

    function: Callable[..., Any]
    label: str
    signature: inspect.Signature | None
    declared: str
    first: str
    rules: dict[str, Rule | None] = field(default_factory=dict)
    joint: Rule | None = None

    def __bool__(self) -> bool:
        return bool(self.rules) or self.joint is not None

    def of(self, args: Any, kwargs: Any) -> list[Rule | None]:
        """The rule of each argument: the positional ones, then the others by name."""
        return [self.rules.get(name) for name in self._arguments(args, kwargs)]

    def missing(self, args: Any, kwargs: Any) -> list[Missing | None]:
        """For each argument, in the same order, the error's message if it has no rule."""
        names = self._arguments(args, kwargs)
        given = names[: len(args)] if self.joint is not None else self.rules
        return [None if name in given else self._missing(name) for name in names]

    def _arguments(self, args: Any, kwargs: Any) -> list[str]:
        return [*argument_names(self.function, len(args)), *sorted(kwargs)]

    def _missing(self, name: str) -> Missing:
        return Missing(
            f"{self.label} has no derivative rule for its argument {name!r}. Give {self.declared} "
            "a rule for it, or None if there is no derivative"
        )

    def define(self, rules: Sequence[Rule | None], named: dict[str, Rule | None]) -> None:
        """Set the rules of arguments, by position or name; the other arguments have none."""
        names, known = self._parameters(len(rules))
        if len(rules) > len(names):
            raise ArgumentError(
                f"{self.declared}: {len(rules)} rules were given, and {self.label} has "
                f"{len(names)} positional arguments: {', '.join(names)}"
            )
        table = dict(zip(names, rules, strict=False))
        for name, rule in named.items():
            if name not in known:
                raise ArgumentError(
                    f"{self.declared}: {self.label} has no argument {name!r}; it has "
                    f"{', '.join(known)}. Rules are given in the order of the arguments, None for "
                    "one without a derivative, or each by its argument's name"
                )
            table[name] = rule
        for name, rule in table.items():
            if rule is not None and not callable(rule):
                raise ArgumentError(
                    f"{self.declared}: the rule for argument {name!r} of {self.label} is {rule!r}. "
                    f"A rule is a function of ({self.first}, out, *args), or None where there is "
                    "no derivative"
                )
            self._check_rule(name, rule)
        self.rules, self.joint = table, None

    def _check_rule(self, name: str, rule: Rule | None) -> None:
        """Raise an error for a reverse rule of (out, *args), as those of HIPS autograd are."""
        if rule is None or self.signature is None:
            return
        parameters = self.signature.parameters.values()
        kinds = [p.kind for p in parameters if p.default is p.empty and p.kind is not _OPTIONS]
        if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY in kinds:
            return
        try:
            signature = inspect.signature(rule)
        except (TypeError, ValueError):
            return
        names = [str(p.replace(default=p.empty, annotation=p.empty)) for p in parameters]
        if _takes(signature, len(kinds) + 1) and not any(
            _takes(signature, count + 2) for count in range(len(kinds), len(names) + 1)
        ):
            raise ArgumentError(
                f"{self.declared}: the rule for argument {name!r} of {self.label} takes "
                f"{signature}, and it is called with ({self.first}, out, {', '.join(names)}). It "
                f"is passed {_PASSED[self.first]}"
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
    """Whether a function can be called with `count` positional arguments."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_OPTIONS = inspect.Parameter.VAR_KEYWORD
_PASSED = {
    "ct": "the cotangent of the result first, and returns that of its argument: not `lambda out, "
    "x: lambda ct: ...`, as in HIPS autograd, but `lambda ct, out, x: ...`",
    "t": "the tangent of its argument first, and returns that of the result",
}
