"""A derived function's page: its last call's tape, explained, profiled, and lowered once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapegrad.backends.host import HOST
from tapegrad.insight.explorer import page
from tapegrad.runtime.profiled import profiled

if TYPE_CHECKING:
    from tapegrad.ir.tape import Tape
    from tapegrad.runtime.variant import Variant


def explored(
    derived: Any, variant: Variant, args: Sequence[Any], kwargs: dict[str, Any], calls: int
) -> page.Exploration:
    """The page of calls that a variant answers."""

    def lowered() -> Tape:
        tape: Tape = derived.lower(*args, **kwargs)._variant.tape
        return tape

    explanation = derived.explained()
    profile = profiled(derived, variant, args, kwargs, calls)
    found = variant.tier.found if variant.entry is not None else None
    kernels = found.kernels if found is not None else {}
    return page.explored(variant.shown, explanation, profile, lowered, kernels, HOST.with_lines)
