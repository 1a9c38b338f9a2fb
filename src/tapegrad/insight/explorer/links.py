"""Links between the lines of a tape, of its plan and of its source.

A step of a plan has its line of the program. Here that line also carries the number of a call on
the tape, so that a step identifies the call that it computes. The emitter tells the step of each
line of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tapegrad.core.values import Source
from tapegrad.ir.cells import Cell
from tapegrad.ir.plan import Recurrence, leaves, walk
from tapegrad.ir.plan_text import shown_lines as plan_lines
from tapegrad.ir.steps import Compute, Step
from tapegrad.ir.tape import Call, Tape
from tapegrad.ir.text import shown_lines as tape_lines

if TYPE_CHECKING:
    from tapegrad.backends.source.program import Program


class Numbered(Source):
    """A line of the program with the number of one of its calls. It equals other instances of the
    line, so that plans and their sources are the same as without numbers."""

    __slots__ = ("call",)
    call: int

    @classmethod
    def of(cls, src: Source, call: int) -> Numbered:
        found = cls(src.file, src.line, src.function)
        object.__setattr__(found, "call", call)
        return found


@dataclass(frozen=True)
class Linked:
    """A tape with its plan and its source, as lines.

    calls : the calls of the tape and of its inner tapes, by number.
    steps : for each step of the plan, the numbers of its calls.
    tape, plan : the lines, each with the number of its call or step, or None.
    source : the lines, each with the steps that it computes.
    """

    calls: Sequence[Call]
    tape: Sequence[tuple[str, int | None]]
    steps: Sequence[Sequence[int]] = ()
    plan: Sequence[tuple[str, int | None]] = ()
    source: Sequence[tuple[str, Sequence[int]]] = ()


def numbered(tape: Tape) -> tuple[Tape, list[Call]]:
    """The tape with numbered lines (inner calls after the tape's own), and all calls."""
    calls: list[Call] = []
    made: dict[Tape, Tape] = {}  # equal tapes are printed once

    def visit(tape: Tape) -> Tape:
        if tape in made:
            return made[tape]
        first = len(calls)
        calls.extend(tape.calls)
        for number, call in enumerate(tape.calls, first):
            if held := call.primitive.tapes:
                call = replace(call, primitive=call.primitive.with_tapes([*map(visit, held)]))
            if call.src is not None:
                call = replace(call, src=Numbered.of(call.src, number))
            calls[number] = call
        made[tape] = replace(tape, calls=tuple(calls[first : first + len(tape.calls)]))
        return made[tape]

    return visit(tape), calls


def linked(tape: Tape, calls: Sequence[Call], program: Program | None) -> Linked:
    """A numbered tape with its program, if it has one."""
    number_of = {id(call): number for number, call in enumerate(calls)}
    shown = [(text, number_of.get(id(call))) for text, call in tape_lines(tape)]
    if program is None:
        return Linked(calls, shown)
    rows = plan_lines(program.plan, program.allocation)
    steps = [step for _, step in rows if step is not None]
    at = {id(step): number for number, step in enumerate(steps)}
    return Linked(
        calls,
        shown,
        [sorted({*map(_call, leaves(step))} - {-1}) for step in steps],
        [(text, at.get(id(step))) for text, step in rows],
        [(text, [at[id(x)] for x in own if id(x) in at]) for text, own in _source(program)],
    )


def _call(step: Step) -> int:
    return step.src.call if isinstance(step.src, Numbered) else -1


def _source(program: Program) -> Iterator[tuple[str, list[Step]]]:
    """The lines of the kernels and of their driver, each with the steps that it computes."""
    writers = {x.cell: x for x in _all(program.plan.steps) if isinstance(x, Compute)}
    for kernel in program.kernels:
        lines = kernel.text.splitlines()
        head = len(lines) - len(kernel.steps)
        for text, step in zip(lines, (*[None] * head, *kernel.steps), strict=True):
            if step is None:
                yield text, []
            elif text.lstrip().startswith("# "):  # a line of the program
                yield text, [x for x in leaves(step) if f"# {x.src}:" in text]
            else:
                yield text, _with_nested(step, writers, program.nested)
        yield "", []
    yield "# What calls the kernels", []
    calls = {program.names[call]: call for call in program.calls()}
    for text in program.driver_lines():
        name = text.partition(" = ")[2].partition("(")[0]
        yield text, [calls[name]] if name in calls else []


def _with_nested(step: Step, writers: dict[Cell, Compute], nested: Collection[Cell]) -> list[Step]:
    """A step, and the steps whose values are computed inside it, where it reads them."""
    found, waiting = [], [step]
    while waiting:
        found.append(waiting.pop())
        if isinstance(found[-1], Compute):
            waiting += [writers[x.cell] for x in found[-1].reads if x.cell and x.cell in nested]
    return found


def _all(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, including the steps of loops' iterations."""
    for step in walk(steps):
        yield step
        if isinstance(step, Recurrence):
            yield from _all(step.plan.steps)
