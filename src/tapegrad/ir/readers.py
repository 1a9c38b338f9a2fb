"""The calls that read each value of a tape."""

from __future__ import annotations

from collections.abc import Callable

from tapegrad.ir.tape import Call, Operand, Tape


def readers_of(tape: Tape) -> dict[Operand, list[int]]:
    """The positions of the calls that read each operand, in order; a call that reads it twice is
    there twice."""
    readers: dict[Operand, list[int]] = {}
    for k, call in enumerate(tape.calls):
        for x in call.operands:
            readers.setdefault(x, []).append(k)
    return readers


class Readers:
    """The readers of a tape's values, for questions of how a value is read."""

    def __init__(self, tape: Tape) -> None:
        self._calls, self._readers = tape.calls, readers_of(tape)
        self._kept = {*tape.outputs, *[guard.operand for guard in tape.guards]}

    def of(self, x: Operand) -> list[Call]:
        """The calls that read `x`."""
        return [self._calls[k] for k in self._readers.get(x, ())]

    def only(
        self, x: Operand, reads: Callable[[Call], bool], shows: Callable[[Call], bool]
    ) -> bool:
        """Whether all readers of `x` satisfy `reads`. A reader that `shows` it, a view, may have
        such readers instead. Results and operands of guards are read by others, too."""
        return x not in self._kept and all(
            reads(call) or (shows(call) and self.only(call.outs[0], reads, shows))
            for call in self.of(x)
        )
