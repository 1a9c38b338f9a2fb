"""What tapes have that users change: their calls by name, and other tapes made of them.

`runtime/edits.py` is what these methods do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from tapegrad.core.values import Var
from tapegrad.errors import TapeError

# What methods of tapes and plans do that needs more than this module: `methods.py` puts it in.
METHODS: dict[str, Callable[..., Any]] = {}


class Editable:
    """A tape, as users change it."""

    name: str
    inputs: tuple[Var, ...]
    calls: tuple[Any, ...]

    def __getitem__(self, at: int | slice | str | Var) -> Any:
        """The call at a position, those of a slice, or the one that defines a variable: "%4"."""
        if isinstance(at, (str, Var)):
            found = [call for call in self.calls if str(at) in map(str, call.outs)]
            if not found:
                raise TapeError(f"no call of the tape {self.name} defines {at}")
            return found[0]
        return self.calls[at]

    def replace(self, at: int | str | Var, f: Callable[..., Any]) -> Self:
        """Another tape, with what `f` does in the place of a call.

            tape.replace("%5", np.tanh)

        `f` is a function written with NumPy. It is traced with the call's operands, and has to
        return what has the shape and dtype of the call's result; a tuple where there are several.
        All other variables keep their numbers.

        Parameters
        ----------
        at : the call's position, or a variable that it defines: "%5", or `tape[3].out`.
        f : a function of as many arrays as the call has operands.

        Raises
        ------
        TapeError : there is no such call, or what `f` returns doesn't fit.
        """
        changed: Self = METHODS["replace"](self, at, f)
        return changed

    def insert(self, at: int | str | Var, f: Callable[..., Any], *others: Any) -> Self:
        """Another tape, in which what reads a variable reads `f` of it.

            tape.insert("%5", lambda h, x: h + 0.1 * x, "%1")

        Parameters
        ----------
        at : the variable, an input or what a call defines; or the position of the call.
        f : a function of its value, and of the others'. It returns an array like it.
        others : variables that are defined by then, and numbers.

        Raises
        ------
        TapeError : there is no such variable, one of the others is defined later, or what `f`
            returns doesn't fit.
        """
        changed: Self = METHODS["insert"](self, at, f, others)
        return changed

    def delete(self, at: int | str | Var, instead: Any = None) -> Self:
        """Another tape, without a call.

        Parameters
        ----------
        at : the call's position, or a variable that it defines.
        instead : the variable, or the number, that is read instead of its result.

        Raises
        ------
        TapeError : there is no such call, its result is read, and there is nothing `instead`, or
            what doesn't fit.
        """
        changed: Self = METHODS["delete"](self, at, instead)
        return changed

    def values(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What each variable is when the tape is played with these arguments: by names, in order.

            tape.values(w, x)["%4"]

        Where NaN begins, say, is the first of them that holds one.
        """
        made = (*self.inputs, *[out for call in self.calls for out in call.outs])
        whole = dataclasses.replace(cast(Any, self), outputs=made, output_names=())
        return dict(zip(map(str, made), METHODS["play"](whole, args, kwargs), strict=True))

    def gradients(self, wrt: Sequence[str | Var] | str | Var | None = None) -> Self:
        """The tape of the derivatives of the output, a scalar, with respect to inputs and to what
        calls define: to all that have one, in order, if it isn't said.

            hidden, w = tape.gradients(["%5", "%1"]).play(x)

        That of an intermediate value says how the output changes where that value does, and all
        before it stays as it is. The tape takes what this one takes.

        Parameters
        ----------
        wrt : variables, or one: "%5", or `tape[3].out`, or `tape.inputs[0]`.

        Raises
        ------
        TapeError : there is no such variable.
        GradientError : the tape's first output isn't a real scalar, or a variable is of integers.
        """
        derived: Self = METHODS["gradients"](self, wrt)
        return derived
