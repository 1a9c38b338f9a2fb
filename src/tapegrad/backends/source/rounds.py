"""Recurrences as source. Loop-carried values have names, which are swapped or assigned each round.

u, u1 = out, scratch0
s = 0.0
for t in range(100):
    for i in range(64):
        u1[i] = ...
        ...
    s = s1
    u, u1 = u1, u
out1[()] = s

A recurrence with a trip count of at most one is an `if`.
"""

from __future__ import annotations

from typing import Any

from tapegrad.ir.affine import Affine
from tapegrad.ir.cells import Cell, Read
from tapegrad.ir.plan import Recurrence, walk


def emit_recurrence(emitter: Any, step: Recurrence) -> None:
    """Write the loop over rounds, with the round's plan as its body."""
    inner, count = step.plan, step.carried
    emitter.count_accesses(walk(inner.steps))
    places = [emitter.array(cell) for cell in step.places]
    names = [
        name if turned == place else emitter.names.fresh(cell.hint or "old")
        for place, (name, turned, cell) in enumerate(
            zip(places, step.turns, step.places, strict=True)
        )
    ]
    turning = [place for place, turned in enumerate(step.turns) if turned != place]
    if turning:
        emitter.line(_tuple([names[p] for p in turning], [places[p] for p in turning]))
    for slot, cell in zip(step.allocation.slots, step.scratch, strict=True):
        emitter.shared[slot] = emitter.array(cell)
    numbers = _enter(emitter, step, names)

    more = ""
    rounds = emitter.text(step.rounds)
    most = step.index.extent
    known = [k.range[1] for k in step.rounds.at if isinstance(k, Affine)]
    if (
        step.rounds.literal is None
        and most > 1
        and (step.rounds.cell is not None or max(known) > most)
    ):
        rounds = f"min({rounds}, {most})"
    if step.until is not None:
        more = emitter.names.fresh("more")
        emitter.line(f"{more} = {emitter.text(step.until)}")
    begin = "0" if step.begin is None else emitter.text(step.begin)
    index = emitter.open_round(step.index, (begin, rounds), step.backwards, more)
    outer = emitter.allocation, emitter.homes, emitter.commented, emitter.first
    emitter.allocation, emitter.homes = step.allocation, step.allocation.homes
    emitter.commented, emitter.first = emitter.depth, emitter.first + step.first
    emitter.starts.append((len(emitter.lines), {names[p] for p in turning}, emitter.depth))
    emitter.body(inner.steps)
    if more:
        emitter.line(f"{more} = {emitter.numbers[inner.outputs[count]]}")
    for number, after in zip(numbers, inner.outputs, strict=False):
        if number and number != emitter.numbers[after]:
            emitter.line(f"{number} = {emitter.numbers[after]}")
    if turning:
        emitter.line(_tuple([names[p] for p in turning], [names[step.turns[p]] for p in turning]))
    emitter.starts.pop()
    emitter.allocation, emitter.homes, emitter.commented, emitter.first = outer
    emitter.close_round(step.index, index, more)
    for number, out, home in zip(numbers, step.outs, step.homes, strict=False):
        if number and number != (target := emitter.place(out)):
            emitter.line(f"{target} = {number}")
        if home is not None and out not in step.places:
            _copy(emitter, names[home], emitter.array(out), out.shape)
    if more:
        emitter.line(f"{emitter.place(step.outs[count])} = {index}")
        emitter.line(f"{emitter.place(step.outs[count + 1])} = {more}")


def _enter(emitter: Any, step: Recurrence, names: list[str]) -> list[str]:
    """Name the values that a round reads and returns. Returns the names of the loop-carried
    scalars, "" for arrays."""
    inner, count = step.plan, step.carried
    numbers = []
    for k, (cell, read) in enumerate(zip(inner.inputs, step.reads, strict=True)):
        home = step.homes[k] if k < count else None
        if home is not None:
            emitter.shared[cell] = names[home]
            numbers.append("")
        elif k < count:
            out = step.outs[k]
            name = emitter.place(out) if out.in_register else emitter.names.fresh(_hint(cell, out))
            emitter.line(f"{name} = {emitter.text(read)}")
            emitter.numbers[cell] = name
            numbers.append(name)
        elif cell.shape and read.at:
            assert read.cell is not None
            emitter.shared[cell] = name = emitter.names.fresh(cell.hint or read.cell.hint or "x")
            emitter.line(f"{name} = {emitter.matrix(read.cell, read.at)}")
        elif cell.shape:
            emitter.shared[cell] = emitter.array(read.cell)
        else:
            emitter.numbers[cell] = _known(emitter, cell, read)
    for k, cell in enumerate(inner.outputs):
        leave = step.leaves[k] if k < count else None
        if leave is not None:
            emitter.shared[cell] = names[leave]
        else:
            known = inner.inputs[k] if k < count else cell
            emitter.numbers[cell] = emitter.names.fresh(_hint(known, step.outs[k]))
    return numbers


def _known(emitter: Any, cell: Cell, read: Read) -> str:
    """The name of a scalar that each round reads. A scalar in memory is loaded once, before the
    loop."""
    text: str = emitter.text(read)
    if read.cell is None or "[" not in text:
        return text
    name: str = emitter.names.fresh(cell.hint or read.cell.hint or "x")
    emitter.line(f"{name} = {text}")
    return name


def _copy(emitter: Any, source: str, target: str, shape: tuple[int, ...]) -> None:
    """Write the loops that copy an array to another of the same shape."""
    taken = emitter.loops.values()
    letters = [n for n in emitter.letters if n not in taken][: len(shape)]
    letters += [emitter.names.fresh("i0") for _ in range(len(shape) - len(letters))]
    for letter, extent in zip(letters, shape, strict=True):
        emitter.loop_line(letter, str(extent))
        emitter.depth += 1
    at = ", ".join(letters)
    emitter.line(f"{target}[{at}] = {source}[{at}]")
    emitter.depth -= len(shape)


def _hint(cell: Cell, out: Cell) -> str:
    return cell.hint or out.hint or "s"


def _tuple(targets: list[str], values: list[str]) -> str:
    return f"{', '.join(targets)} = {', '.join(values)}"
