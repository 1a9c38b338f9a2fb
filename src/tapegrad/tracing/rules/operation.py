"""The interface of a user's function with a rule, as a trace needs it, and one use of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tapegrad.errors import UnsupportedError
from tapegrad.ir.tape import Source
from tapegrad.observe.observer import observed
from tapegrad.observe.program.source import at_source
from tapegrad.primitives.base import Missing
from tapegrad.tracing.recording.trace import untraced
from tapegrad.tracing.runs.mixed_trees import MixedTree


class Operation:
    """A user's function with optional rules: a `primitive`, or a `Function`."""

    label: str
    whole: bool = False  # whether its body isn't traced, though it could be

    def run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The result, and the values to save for the rule."""
        raise NotImplementedError

    def has_reverse(self) -> bool:
        """Whether the user has declared a reverse rule."""
        raise NotImplementedError

    def has_forward(self) -> bool:
        """Whether the user has declared a forward rule."""
        raise NotImplementedError

    def has_rule(self) -> bool:
        """Whether the user has declared either."""
        return self.has_reverse() or self.has_forward()

    def pull_back(self, ct: Any, out: Any, args: Any, kwargs: Any, saved: Any) -> list[Any]:
        """A cotangent for each argument: the positional ones, then the others by name.

        Cotangents have the structure of their arguments; a single None stands for a whole argument.
        """
        raise NotImplementedError

    def push_forward(
        self, ts: Sequence[Any], out: Any, args: Any, kwargs: Any, saved: Any
    ) -> list[Any]:
        """Tangents of the result, with its structure, whose sum is the result's tangent. `ts` are
        the tangents of the arguments, in the same order."""
        raise NotImplementedError

    def missing(self, args: Any, kwargs: Any) -> list[Missing | None]:
        """For each argument, in the same order, the error's message if it has no reverse rule."""
        return [None] * (len(args) + len(kwargs))

    def missing_forward(self, args: Any, kwargs: Any) -> list[Missing | None]:
        """The same for forward rules."""
        return [None] * (len(args) + len(kwargs))

    def names(self, args: Any, kwargs: Any) -> tuple[list[str], list[str]]:
        """A name for each leaf that could be traced, and a description of each leaf for
        messages."""
        raise NotImplementedError


class WritesArgument(UnsupportedError):
    """A user's primitive wrote to one of its arguments in place."""


@dataclass(frozen=True, eq=False)
class Applied:
    """A user's function applied to tracers, without their values.

    `words` describe the operands in messages; `src` is the line of the call.
    """

    operation: Operation
    arguments: MixedTree
    words: list[str]
    src: Source | None

    def run_plainly(self, values: Sequence[Any]) -> tuple[Any, Any]:
        """The result and the saved values, for plain values of the operands."""
        args, kwargs = self.arguments.fill(values)
        try:
            with untraced(), observed():
                return self.operation.run(args, kwargs)
        except ValueError as error:
            if "read-only" in str(error):
                raise self.writes("arguments") from error
            raise

    def writes(self, what: str) -> WritesArgument:
        """The error for a function that writes to its arguments."""
        return WritesArgument(
            f"{self.operation.label} writes to its {what} in place{at_source(self.src)}, which a "
            "primitive must not do. Start with a copy: x = x.copy()"
        )
