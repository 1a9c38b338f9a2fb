"""What is derived of a trace: for any length, where an earlier call tells that an axis of one
element may have more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tapegrad.core.handlers import let_through
from tapegrad.core.request import Request
from tapegrad.ir.opened import opened
from tapegrad.ir.tape import Tape
from tapegrad.runtime.half_precision import with_halves
from tapegrad.runtime.transformations import Derivation, Selection, Transformation
from tapegrad.tracing.runs.traced import Traced


def derived(
    transformation: Transformation,
    selection: Selection,
    request: Request,
    traced: Traced,
    earlier: Iterable[Tape],
) -> Derivation:
    """The derivation of this trace of a call; the traces of `earlier` calls had these tapes."""

    def made(traced: Traced) -> Derivation:
        return with_halves(transformation.derive(traced, selection, final=True), request)

    for like in earlier:
        if (tape := opened(traced.tape, like)) is not None:
            try:
                return made(replace(traced, tape=tape)).closed()
            except Exception as error:  # a rule needs to know that there is one element
                let_through(error)
                break
    return made(traced)
