"""The explanation of a call: what served it, traces and their causes, loops of the program,
kernels, residuals, and steps that aren't fused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from tapegrad.core.log import Event
from tapegrad.core.pages import folded, listed, page
from tapegrad.core.values import Source
from tapegrad.errors import UnsupportedError
from tapegrad.insight.alone import LITTLE, Cause, causes, homes_of, work_of
from tapegrad.insight.copies import copies
from tapegrad.insight.loop_report import Why, repetitions, segment_of
from tapegrad.ir.plan import Recurrence, is_parallel, leaves, most_chunks, segments
from tapegrad.ir.report import size
from tapegrad.ir.steps import Compute, Gemm, Loop, PythonCall, Routine, Step
from tapegrad.ir.tape import Tape, Var

MANY_TRACES = 3  # from this number on, traces for one reason share a sentence
SECTIONS = {
    "traces": "Traced and compiled",
    "loops": "Loops of the program",
    "kernels": "Kernels",
    "alone": "What cores don't share, and why",
    "kept": "Kept for the derivative",
    "calls": "Calls and copies",
}


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`: lists of sentences, which print as a page.

    function : the name of the derived function.
    answered : what served the call.
    traces : the traces and compilations so far: what had changed, from which value to which, at
        which line, and the fix.
    loops : the loops of the program: which are loops of the tape, and which were unrolled, and why.
    kernels : the compiled functions, by the lines that each computes.
    alone : for kernels that one core runs: the cause, the line, and the remedy.
    kept : the residuals, arrays of the forward pass that the reverse pass reads.
    calls : calls of libraries and of Python, products, and copies with their reasons.
    """

    function: str
    answered: str
    traces: list[str]
    loops: list[str]
    kernels: list[str]
    alone: list[str]
    kept: list[str]
    calls: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The parts by name."""
        return asdict(self)

    def _parts(self) -> Iterator[tuple[str, list[str]]]:
        for name, title in SECTIONS.items():
            yield title, getattr(self, name) or ["none"]

    def __str__(self) -> str:
        lines = [f"{self.function}: {self.answered}"]
        for title, sentences in self._parts():
            lines += ["", title, *[f"  {sentence}" for sentence in sentences]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [folded(title, listed(sentences)) for title, sentences in self._parts()]
        return page(f"{self.function}: {self.answered}", *parts)


def explanation(
    name: str,
    answered: str,
    tape: Tape,
    history: Iterable[Event],
    is_played: bool,
    begun: Mapping[Source, Source | None],
    why: Why,
) -> Explanation:
    """The explanation of a call that a tape served.

    `history` are the events of the function, `begun` the lines of loops that its trace has met, and
    `why` tells the reason why a loop isn't a loop of the tape.
    """
    from tapegrad.pipeline import at_its_best, schedule

    steps: Sequence[Step] = ()
    try:
        plan = schedule(at_its_best(tape)).plan
        steps = plan.steps
        (kernels, alone), calls = _kernels(steps), [*_calls(steps), *copies(plan, tape)]
    except UnsupportedError as error:
        kernels, alone, calls = [f"there is no machine code for this tape: {error}"], [], []
    return Explanation(
        function=name,
        answered=answered,
        traces=_traces(history),
        loops=[str(x) for x in repetitions(tape, begun, why)],
        kernels=kernels,
        alone=alone,
        kept=[*_kept(tape, None if is_played else _stored(steps)), *_made_again(tape)],
        calls=calls,
    )


def _traces(history: Iterable[Event]) -> list[str]:
    """Traces and compilations; many for one reason become one sentence."""
    groups: dict[tuple[Any, ...], list[Event]] = {}
    for event in history:
        if event.kind == "guards" or "forgotten" in event.fields:
            continue
        told = event.fields.get
        changed = (told("reason"), told("line")) if told("now") else (event.text,)
        groups.setdefault((event.kind, *changed), []).append(event)
    found = []
    for events in groups.values():
        text, last = events[-1].text, events[-1].fields
        if len(events) < MANY_TRACES:
            found += [event.text for event in events]
            continue
        change = f"{last['before']} --> {last['now']})" if last.get("now") else ""
        head, times = text.removesuffix(f" ({change}"), f"{len(events)} times"
        found.append(f"{head} ({times}, last {change}" if change else f"{head} ({times})")
    return found


def _kernels(steps: Sequence[Step]) -> tuple[list[str], list[str]]:
    """Sentences about kernels, and about those that cores don't share.

    A kernel runs between calls of Python; its sentence has its loops, its lines and its share of
    the work. Equal kernels share a sentence. A cause has its line, its kernels and the remedy.
    """
    homes = homes_of(steps)
    alike: dict[tuple[str, str], list[int]] = {}
    why: dict[Cause, list[int]] = {}
    kernels = [x for x in segments(steps) if not isinstance(x, PythonCall)]
    works = [math.fsum(map(work_of, segment)) for segment in kernels]
    total = math.fsum(works)
    for number, segment in enumerate(kernels, 1):
        inside = [leaf for step in segment for leaf in leaves(step)]
        own = [] if any(map(is_parallel, segment)) else causes(segment, homes)
        for cause in own:
            if cause.kind != LITTLE:
                why.setdefault(cause, []).append(number)
        if any(map(is_parallel, segment)):
            threads = "shared by the cores"
        elif any(map(most_chunks, segment)):
            threads = "shared by the cores in each round"
        else:
            threads = f"by one core, as {_and(dict.fromkeys(map(str, own)))}"
        loops = [x for x in segment if isinstance(x, (Loop, Recurrence)) and not _multiplies(x)]
        products = [x for x in inside if isinstance(x, Gemm)]
        routines = [x for x in inside if isinstance(x, Routine)]
        statements = [x for x in inside if isinstance(x, (Compute, Recurrence))]
        parts = [_many(loops, "loop"), _many(products, "product"), _many(routines, "library call")]
        said = " and ".join(filter(None, parts)) or _many(statements, "statement")
        text = f"{said} {threads}"
        if loops and statements:
            text += f", {_many(statements, 'statement')}"
        alike.setdefault((text, _lines(inside)), []).append(number)
    found = []
    for (text, lines), numbers in alike.items():
        head = f"{', '.join(_ranges(numbers))}. {'each ' * (len(numbers) > 1)}{text}"
        if len(kernels) > 1 and total:
            done = math.fsum(works[n - 1] for n in numbers)
            head += f", {done / total:.0%} of the work" + " together" * (len(numbers) > 1)
        found.append(f"{head}: {lines}")
    return found, [_alone(cause, numbers) for cause, numbers in why.items()]


def _alone(cause: Cause, kernels: Sequence[int]) -> str:
    """The reason why cores don't share these kernels, and the remedy."""
    src = cause.src
    where = src.quoted if src is not None else "no line of the program"
    numbers = f"kernel{'s' * (len(kernels) > 1)} {_and(_ranges(kernels))}"
    return f"{where} ({numbers}): {cause}. {cause.fix}"


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Increasing numbers as text; runs of three or more are joined: 1, 2, 4 to 6."""
    found: list[list[int]] = []
    for n in numbers:
        if found and found[-1][-1] == n - 1:
            found[-1].append(n)
        else:
            found.append([n])
    texts = [[f"{x[0]} to {x[-1]}"] if len(x) > 2 else map(str, x) for x in found]
    return [*chain.from_iterable(texts)]


def _and(words: Iterable[str]) -> str:
    """A list of words as in a sentence: a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _multiplies(step: Step) -> bool:
    """Whether a loop holds only products, such as the parts of a product that cores share."""
    return all(isinstance(x, Gemm) for x in leaves(step))


def _many(found: Sequence[Step], word: str) -> str:
    return f"{len(found)} {word}{'s' * (len(found) > 1)}" if found else ""


def _lines(steps: Iterable[Step]) -> str:
    """The lines of the program for some steps, by file: fit.py:3, 5 to 8."""
    lines = {(x.src.file, x.src.line): str(x.src) for x in steps if x.src is not None}
    found = []
    for file, group in groupby(sorted(lines), key=itemgetter(0)):
        numbers = [line for _, line in group]
        name = lines[file, numbers[0]].removesuffix(str(numbers[0]))
        found.append(name + ", ".join(_ranges(numbers)))
    return "; ".join(found) or "no line of the program"


def _calls(steps: Sequence[Step]) -> list[str]:
    """Products, library calls and calls of Python, with their lines."""
    found = []
    for step in steps:
        for leaf in leaves(step):
            src = leaf.src.quoted if leaf.src is not None else "no line"
            if isinstance(leaf, Gemm):
                found.append(f"a product, in blocks: {src}")
            elif isinstance(leaf, Routine):
                found.append(f"{leaf.primitive.name}: {src}")
            elif isinstance(leaf, PythonCall):
                found.append(f"{leaf.primitive.name}, called from Python: {src}")
    return [f"{text} ({count} times)" if count > 1 else text for text, count in _counted(found)]


def _counted(texts: Sequence[str]) -> list[tuple[str, int]]:
    return [(text, texts.count(text)) for text in dict.fromkeys(texts)]


def _kept(tape: Tape, stored: Counter[tuple[Source | None, int]] | None) -> list[str]:
    """The residuals: arrays of the forward pass that the reverse pass reads, the largest first.

    Those that machine code recomputes where they are read, since they aren't among the arrays that
    it has `stored`, are marked.
    """
    made = {out: call for call in tape.calls for out in call.outs if not call.is_cotangent}
    read = {x for c in tape.calls if c.is_cotangent for x in c.operands if isinstance(x, Var)}
    arrays = [x for x in made if x in read and x.shape and not made[x].primitive.memory.is_view]
    arrays.sort(key=lambda x: -x.aval.nbytes)
    found = []
    for x in arrays:
        src, key = made[x].src, (made[x].src, x.aval.nbytes)
        where = f" at {src.quoted}" if src is not None else ""
        text = f"{x}: {x.aval}, {size(x.aval.nbytes)}, of {made[x].primitive.name}{where}"
        if stored is not None and not stored[key]:
            text += ". It takes no memory: it is made where it is read"
        elif stored is not None:
            stored[key] -= 1
        found.append(text)
    return found


def _stored(steps: Sequence[Step]) -> Counter[tuple[Source | None, int]]:
    """The number of arrays that machine code holds in memory, by line and size in bytes."""
    cells = {cell.root for step in steps for cell, _, _ in step.accesses()}
    inside = [x for x in cells if x.role == "temporary" and not x.in_register]
    return Counter((x.src, math.prod(x.left) * x.dtype.itemsize) for x in inside)


def _made_again(tape: Tape) -> list[str]:
    """The loops whose iterations the reverse pass recomputes."""
    found = []
    for call in tape.calls:
        if (every := segment_of(call)) and not call.is_cotangent and call.src is not None:
            found.append(
                f"the rounds of {call.src.quoted} are made again in the reverse pass, "
                f"from what is kept every {every} rounds"
            )
    return list(dict.fromkeys(found))
