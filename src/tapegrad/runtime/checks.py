"""Checks of users' requests: results of functions, checkpointing, memory and modes of compiling."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.errors import ArgumentError, GradientError
from tapegrad.ir.tape import Tape
from tapegrad.tracing.runs.traced import Traced


def value_part(traced: Traced, has_aux: bool, what: str) -> tuple[Any, Sequence[int | None]]:
    """The structure of the differentiated part of a function's result, and its leaves' outputs.
    With `has_aux` this is the first of a pair; otherwise a GradientError is raised."""
    structure = traced.structure
    if not has_aux:
        return structure, traced.outputs
    kind = structure.type or object
    if not (issubclass(kind, tuple) and structure.num_children == 2):
        found = "one value" if structure.is_leaf() else f"a {kind.__name__}"
        raise GradientError(
            f"{what} with has_aux=True: {traced.name} must return a pair (value, aux), and it "
            f"returned {found}"
        )
    structure = structure.child(0)
    return structure, traced.outputs[: structure.num_leaves]


def check_scalar_result(
    traced: Traced, has_aux: bool = False, what: str = "grad", may_be_complex: bool = False
) -> None:
    """Raise a GradientError unless the traced function returned a real scalar first, or an array of
    one real element; or a complex one, if allowed. `what` is the transformation."""
    name = traced.name
    if has_aux:
        structure, _ = value_part(traced, has_aux, what)
        if not structure.is_leaf():
            raise GradientError(f"{what}: the value that {name} returned isn't a single array")
    elif not traced.outputs:
        raise GradientError(
            f"{what}: {name} returned no array, but {what} needs one scalar. Is a return missing?"
        )
    elif len(traced.outputs) == 1 and not traced.structure.is_leaf():
        kind = traced.structure.type.__name__
        raise GradientError(
            f"{what}: {name} returned a {kind} with one value, but {what} needs the scalar itself"
        )
    elif len(traced.outputs) != 1:
        raise GradientError(
            f"{what}: {name} returned {len(traced.outputs)} values, but {what} needs one scalar. "
            "Return (value, aux) with has_aux=True, or use vjp for several outputs"
        )
    at = traced.outputs[0]
    leaf = traced.leaves[0]
    if at is None:
        if may_be_complex and isinstance(leaf, (complex, np.complexfloating)):
            return
        if not isinstance(leaf, (float, np.floating)) and type(leaf) is not int:  # as of no terms
            raise GradientError(
                f"{what}: {name} returned {leaf!r} ({type(leaf).__name__}), but {what} needs a "
                "real scalar that depends on its arguments. Is a return missing?"
            )
        return
    aval = traced.tape.outputs[at].aval
    src = _source_of(traced.tape, at)
    if aval.size != 1:
        raise GradientError(
            f"{what}: {name} returned {aval}, but {what} needs a scalar{src}. Sum it, or use vjp "
            "with a cotangent of that shape"
        )
    if aval.dtype.kind == "c" and may_be_complex:
        return
    if aval.dtype.kind == "c":
        raise GradientError(
            f"{what}: {name} returned a complex scalar{src}, and {what} needs a real one. Return a "
            "real function of it, such as np.abs(z)**2 or z.real, or use vjp: for a holomorphic "
            "function the pullback of 1 is its complex derivative"
        )
    if aval.dtype.kind != "f":
        raise GradientError(
            f"{what}: {name} returned a scalar of dtype {aval.dtype}{src}, which has no "
            "derivative. Return a float"
        )


def check_real_results(traced: Traced, found: Sequence[int], what: str) -> None:
    """Raise a GradientError if none of the function's results has a derivative. `found` are the
    outputs that are real."""
    if found:
        return
    name = traced.name
    if not traced.outputs:
        raise GradientError(f"{what}: {name} returned no array. Is a return missing?")
    at = traced.outputs[0]
    leaf = traced.leaves[0] if at is None else traced.tape.outputs[at].aval
    kind = f"{leaf!r} ({type(leaf).__name__})" if at is None else str(leaf)
    raise GradientError(
        f"{what}: {name} returned {kind}, and there is no derivative of integers, booleans and "
        "what isn't a number. Return floats"
    )


def _source_of(tape: Tape, at: int) -> str:
    output = tape.outputs[at]
    for call in tape.calls:
        if output in call.outs and call.src:
            return f" ({call.src.quoted})"
    return ""


def checked_checkpoint(checkpoint: Any) -> str | int:
    """The value of `checkpoint`, checked."""
    if isinstance(checkpoint, str) and checkpoint in ("auto", "never", "sqrt"):
        return checkpoint
    whole = isinstance(checkpoint, (int, np.integer)) and not isinstance(checkpoint, bool)
    if not whole or checkpoint < 1:
        raise ArgumentError(
            'checkpoint is "auto", "never", "sqrt" or how many rounds a loop keeps the state of, '
            f"from 1 up, not {checkpoint!r}"
        )
    return int(checkpoint)


def checked_bytes(most: Any) -> int | None:
    """The value of `max_bytes`, checked."""
    if most is None:
        return None
    whole = isinstance(most, (int, np.integer)) and not isinstance(most, bool)
    if not whole or most < 0:
        raise ArgumentError(f"max_bytes is a number of bytes, from 0 up, or None, not {most!r}")
    return int(most)


MODES = ("auto", "always", "never")
_default = ""  # the mode set by `set_compile`


def checked_mode(compile: Any) -> str:
    """The mode of compiling; None means the default. Raises an ArgumentError for anything else."""
    if compile is None:
        compile = _default or default_mode()
    if compile not in MODES:
        raise ArgumentError(f'compile is "auto", "always" or "never", not {compile!r}')
    mode: str = compile
    return mode


def default_mode() -> str:
    """The mode in TAPEGRAD_COMPILE, or "auto"."""
    given = os.environ.get("TAPEGRAD_COMPILE") or "auto"
    if given not in MODES:
        raise ArgumentError(f"TAPEGRAD_COMPILE is {given!r}, and not one of {', '.join(MODES)}")
    return given


def set_default_mode(compile: str | None) -> None:
    global _default
    _default = "" if compile is None else checked_mode(compile)
