"""The methods of tapes by which users change them: calls found by name, and edited copies.

`runtime/edits.py` implements these methods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from tapegrad.core.values import Var
from tapegrad.errors import TapeError

# Implementations of methods of tapes and plans that need later stages. `methods.py` fills this in.
METHODS: dict[str, Callable[..., Any]] = {}


class Editable:
    """The methods of a tape for users who change it."""

    name: str
    inputs: tuple[Var, ...]
    calls: tuple[Any, ...]

    def __getitem__(self, at: int | slice | str | Var) -> Any:
        """The call at a position, the calls of a slice, or the call that defines a variable such as
        "%4"."""
        if isinstance(at, (str, Var)):
            found = [call for call in self.calls if str(at) in map(str, call.outs)]
            if not found:
                raise TapeError(f"no call of the tape {self.name} defines {at}")
            return found[0]
        return self.calls[at]

    def replace(self, at: int | str | Var, f: Callable[..., Any]) -> Self:
        """A copy of the tape in which a call is replaced by what `f` computes.

            tape.replace("%5", np.tanh)

        `f` is a function written with NumPy. It is traced with the call's operands. Its result must
        have the shape and dtype of the call's result; if the call has several results, `f` returns
        a tuple. All other variables keep their numbers.

        Parameters
        ----------
        at : the call's position, or a variable that it defines: "%5", or `tape[3].out`.
        f : a function of as many arrays as the call has operands.

        Raises
        ------
        TapeError : there is no such call, or the result of `f` doesn't fit.
        """
        changed: Self = METHODS["replace"](self, at, f)
        return changed

    def insert(self, at: int | str | Var, f: Callable[..., Any], *others: Any) -> Self:
        """A copy of the tape in which `f` of a variable is read in place of the variable.

            tape.insert("%5", lambda h, x: h + 0.1 * x, "%1")

        Parameters
        ----------
        at : the variable, an input or the result of a call; or the position of the call.
        f : a function of the variable's value and of the values of `others`. It returns an array of
            the same shape and dtype as the variable.
        others : variables that are defined by then, and numbers.

        Raises
        ------
        TapeError : there is no such variable, one of the others is defined later, or the result of
            `f` doesn't fit.
        """
        changed: Self = METHODS["insert"](self, at, f, others)
        return changed

    def delete(self, at: int | str | Var, instead: Any = None) -> Self:
        """A copy of the tape without a call.

        Parameters
        ----------
        at : the call's position, or a variable that it defines.
        instead : the variable or number that is read in place of the call's result.

        Raises
        ------
        TapeError : there is no such call; or its result is read, and `instead` is missing or
            doesn't fit.
        """
        changed: Self = METHODS["delete"](self, at, instead)
        return changed

    def values(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The value of every variable when the tape is played with these arguments, by name and in
        order.

            tape.values(w, x)["%4"]

        For example, the first variable whose value holds a NaN is where NaN begins.
        """
        made = (*self.inputs, *[out for call in self.calls for out in call.outs])
        whole = dataclasses.replace(cast(Any, self), outputs=made, output_names=())
        return dict(zip(map(str, made), METHODS["play"](whole, args, kwargs), strict=True))

    def gradients(self, wrt: Sequence[str | Var] | str | Var | None = None) -> Self:
        """The tape of the derivatives of the output, a scalar, with respect to inputs and to the
        results of calls. Without `wrt` it has all derivatives that exist, in the order of their
        variables.

            hidden, w = tape.gradients(["%5", "%1"]).play(x)

        The derivative with respect to an intermediate value says how the output changes with that
        value while everything before it stays fixed. The result has the same inputs as this tape.

        Parameters
        ----------
        wrt : variables, or one variable: "%5", or `tape[3].out`, or `tape.inputs[0]`.

        Raises
        ------
        TapeError : there is no such variable.
        GradientError : the tape's first output isn't a real scalar, or a variable holds integers.
        """
        derived: Self = METHODS["gradients"](self, wrt)
        return derived
