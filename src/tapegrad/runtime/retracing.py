"""Warnings for functions that are traced repeatedly: what keeps changing, and what helps."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tapegrad.backends.numpy.play import run
from tapegrad.core.frames import warn
from tapegrad.core.handlers import let_through
from tapegrad.core.locks import remembered
from tapegrad.core.log import Event
from tapegrad.core.request import argument_names, leaf_key
from tapegrad.core.trees import is_traced
from tapegrad.core.values import same_bits
from tapegrad.ir.memory import first_read
from tapegrad.ir.tape import Aval, Call, Guard, Tape
from tapegrad.observe.guards.facts import Facts
from tapegrad.observe.guards.one_time import shown
from tapegrad.observe.guards.queried import CALLED_OUTSIDE
from tapegrad.observe.program.source import at_source
from tapegrad.optimize.dce import prune, remove_dead
from tapegrad.primitives.control import without_effects
from tapegrad.runtime import cache
from tapegrad.tracing.runs.traced import plain_value

if TYPE_CHECKING:
    from tapegrad.core.request import Request
    from tapegrad.observe.guards.state import State
    from tapegrad.runtime.variant import Variant


def warn_of_kinds(name: str, words: Sequence[str], keys: Sequence[Any]) -> None:
    """Warn that a function gets many kinds of arguments. There is a key for each kind; `words`
    describe the leaves of the last one."""
    kinds = [leaves for *_, leaves in keys if len(leaves) == len(words)]
    seen = [list(dict.fromkeys(column)) for column in zip(*kinds, strict=True)]
    changing = [
        f"{word} ({', '.join(map(_shown, different[:3]))}{', ...' if len(different) > 3 else ''})"
        for word, different in zip(words, seen, strict=True)
        if len(different) > 1
    ]
    by_key = len({chosen for chosen, *_ in keys}) > 1
    other = "what key returns" if by_key else "the structure of the arguments"
    what = "; ".join(changing[:3]) or other
    warn(
        f"{name} was called with {len(keys)} kinds of arguments. Each is traced for "
        f"itself, which costs as much as many calls. What keeps changing is {what}. Pad arrays to "
        "a few fixed shapes, and pass what changes as a number or an array"
    )


def _shown(key: Any) -> str:
    """The key of a leaf, in users' terms."""
    if isinstance(key, tuple) and len(key) == 3 and isinstance(key[0], tuple):
        return str(Aval(key[0], key[1]))
    if isinstance(key, tuple) and isinstance(key[0], type):  # the key of a number or a static value
        return key[0].__name__ if len(key) == 3 else repr(key[1])
    return key.__name__ if isinstance(key, type) else repr(getattr(key, "x", key))


def _texts(old: Any, new: Any) -> tuple[str, str]:
    """The texts of two leaves' keys, with their layouts if nothing else differs."""
    texts = _shown(old), _shown(new)
    if texts[0] != texts[1] or not isinstance(old, tuple):
        return texts
    before, now = [
        f"{text} in C's order" if key[-1] is None else f"{text} of the strides {key[-1]}"
        for text, key in zip(texts, (old, new), strict=True)
    ]
    return before, now


@dataclass(frozen=True)
class Cause:
    """The reason for a trace, in words; and what changed, from which value to which, at which line,
    as far as known. `fix` is the part of a failed guard's text that says what to do. If it goes on
    for `often` calls in a row, there is a warning; 0 for none."""

    text: str
    what: str = ""
    before: str = ""
    now: str = ""
    line: str = ""
    often: int = 0
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.before} --> {self.now})" if self.now else self.text

    @property
    def place(self) -> tuple[str, str]:
        return self.what, self.line

    def after(self, tape: Tape) -> Cause:
        """The reason for a trace that has led to this tape: if the guard that failed isn't there
        any more, there is nothing to do."""
        if not self.fix or any((g.what, str(g.src)) == self.place for g in _all_guards(tape)):
            return self
        return replace(
            self,
            text=self.text.removesuffix(self.fix).replace("keeps failing", "has changed"),
            often=0,
        )

    def event(self, kind: str, name: str, text: str = "", **fields: Any) -> Event:
        """The event that a function was traced, or a variant passed over, for this reason."""
        told = {"function": name, **vars(self), "reason": self.text, **fields}
        del told["text"], told["often"], told["fix"]
        return Event(kind, f"{name}{', ' * bool(text)}{text}: {self}", told)


def cause_of(last: Variant | None, root: Any, request: Request, before: Any = None) -> Cause:
    """The reason why a call found no variant. `last` is a variant for the same kind of arguments,
    `before` the key of the last other kind."""
    if last is None:
        return _other_kind(request, before)
    word, old, new = last.state.difference(root, request.args, request.kwargs)
    if word:
        line = str(last.state.where.get(word) or "")
        text = what_changed(word, last.state)
        if all(re.fullmatch(r"-?\d+", x) for x in (old, new)):  # other numbers are inputs by now
            text += "; where it is a length, keep that fixed, and mask what is too much"
        return Cause(text, word, old, new, line)
    draws = last.traced.draws
    if draws is not None:
        found = draws.unlike(last.state.objects(root, request.args, request.kwargs))
        if found is not None:
            return _unlike(last, *found)
    return _broken_guard(last, request.inputs)


def _run(tape: Tape, values: Sequence[Any]) -> tuple[list[Any], Guard | None]:
    """A tape, run to see its guards, which tells nobody what it computes."""
    return run(without_effects(tape), values)


def furthest(known: Sequence[Variant], root: Any, request: Request) -> Variant:
    """The variant with which the call agrees for longest, of several for this kind of arguments. So
    the difference that is reported is new."""

    def way(variant: Variant) -> tuple[float, bool]:
        state = variant.state
        holds = not state.asks and state.holds(root, request.args, request.kwargs)
        return _passed(variant, request.inputs), holds

    return known[0] if len(known) == 1 else max(known[: cache.MAX_VARIANTS], key=way)


def _passed(variant: Variant, leaves: Sequence[Any]) -> float:
    """The number of guards of a variant's tape that hold, in program order, before the first that
    fails; infinity if all hold."""
    captured, tape, asked = variant.traced.captured, variant.tape, _guards_of(variant.tape)
    if [leaf_key(x) for x in captured] != variant.derivation.outside:
        return 0
    values = [*map(plain_value, leaves), *captured]
    given: dict[Any, Any] = dict(zip(tape.inputs, values, strict=True))
    broken = [
        k
        for k, guard in enumerate(tape.guards)
        if guard.operand in given and not same_bits(given[guard.operand], guard.expected)
    ]
    try:
        _, guard = _run(asked, values)
    except Exception as error:  # the computation may only be possible if a guard holds
        let_through(error)
        return min(broken, default=0)
    if guard in tape.guards:
        broken.append(tape.guards.index(guard))
    elif guard is not None:  # a guard inside of a loop: the guards before the loop hold
        known: set[Any] = {*tape.inputs}
        for call in itertools.takewhile(lambda call: not _has(call, guard), asked.calls):
            known.update(call.outs)
        broken.append(sum(x.operand in known for x in tape.guards))
    return min(broken, default=math.inf)


def _has(call: Call, guard: Guard) -> bool:
    inner = call.primitive.tapes
    return any(guard in t.guards or any(_has(x, guard) for x in t.calls) for t in inner)


@remembered
def _guards_of(tape: Tape) -> Tape:
    """A tape that computes the guards of another tape only, except those on inputs."""
    guards = tuple([x for x in tape.guards if x.operand not in tape.inputs])
    return prune(replace(tape, outputs=(), output_names=(), guards=guards, into=()))


def _unlike(last: Variant, number: int, now: Any) -> Cause:
    """The reason that a value which each call reads anew has another kind, shape or dtype than the
    traced one."""
    draws: Any = last.traced.draws
    was, at = draws.drawn[number], draws.inputs[number]
    count, inputs = len(last.traced.captured), last.traced.tape.inputs
    var = None if at is None else inputs[len(inputs) - count + at[0]]
    calls = [call for call in last.traced.tape.calls if var in call.operands]
    src = last.state.where.get(was.word) or next((call.src for call in calls), None)
    text = (
        f"What keeps changing is the kind, shape or layout of {was.word!r}{at_source(src)}, which "
        "the function reaches without being passed it. Pass it as an argument"
    )
    before, after = _texts(was.kind, leaf_key(now))
    return Cause(text, was.word, before, after if is_traced(now) else shown(now), str(src or ""))


def _other_kind(request: Request, before: Any) -> Cause:
    """The reason that the arguments are of another kind than before."""
    leaves = request.key[-1]
    if before is None:
        return Cause("these are the first arguments of their kind")
    text = "What has changed is"
    if len(before[-1]) == len(leaves):
        for word, old, new in zip(request.words, before[-1], leaves, strict=True):
            if old == new:
                continue
            kinds = [x[0] for x in (old, new) if _is_static(x)]
            if len(kinds) < 2 or kinds[0] is not kinds[1]:
                return Cause(f"{text} {word}", word, *_texts(old, new))
            few = kinds[0] in (bool, type(None))
            each = f"{text} {word}, and each {kinds[0].__name__} is traced for itself"
            return Cause(each + _FIXED * (not few), word, *_texts(old, new), often=4 * (not few))
    elif held := _held(request, before[1]):
        place, sized, old, new = held
        word = f"how many values {place} holds"
        advice = f". Where only len({place}) is used, pass that number" * sized
        grows = 6 * (len(before[-1]) < len(leaves))
        return Cause(f"{text} {word}{advice}", word, old, new, often=grows)
    else:
        word = "which arguments are passed"
        old, new = [", ".join(map(_shown, each)) for each in (before[-1], leaves)]
        return Cause(f"{text} {word}", word, old, new)
    word = "how the arguments are passed, or what holds them"
    return Cause(f"{text} {word if before[0] == request.key[0] else 'what key returns'}", word)


def _is_static(key: Any) -> bool:
    """Whether the key of a leaf is that of a value which is no number."""
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type)


_FIXED = (
    ". Where it only names or labels the call, leave it out of the arguments; else pass what "
    "changes as a number or an array"
)


def _held(request: Request, before: Any) -> tuple[str, bool, str, str] | None:
    """Where in the arguments there are more or fewer values than in those of a structure, whether
    that has a length, and both numbers. None if others are passed."""
    (old, by_name), (new, now_by_name) = before.children(), request.structure.children()
    if old.num_children != new.num_children or by_name.entries() != now_by_name.entries():
        return None
    names = [*argument_names(request.f, new.num_children), *now_by_name.entries()]
    was, now = [[*x.children(), *y.children()] for x, y in ((old, by_name), (new, now_by_name))]
    place = ""
    while True:
        name, old, new = next(x for x in zip(names, was, now, strict=True) if x[1] != x[2])
        place += f"[{name!r}]" if place else name
        known = new.type in (list, tuple, dict)
        if not known or old.type != new.type or old.entries() != new.entries():
            return place, known and old.type == new.type, str(old.num_leaves), str(new.num_leaves)
        names, was, now = new.entries(), old.children(), new.children()


def warn_of_cause(name: str, cause: Cause) -> None:
    """Warn that so many calls in a row were traced for one reason."""
    count = {4: "four", 6: "six"}[cause.often]
    warn(
        f"{name} was traced for {count} calls in a row, and each trace costs as much as many "
        f"calls. {cause}"
    )


def warn_of_retracing(
    name: str, last: Variant | None, root: Callable[..., Any], request: Request
) -> None:
    """Warn why a call of `name` found no variant. `last` is the one that came closest."""
    if last is None:
        why = (
            f"with more than {cache.MAX_SIGNATURES} kinds of arguments: their shapes, dtypes, "
            "structures, static values (strings, booleans, objects) or values of key= are others "
            "each time. Pass what changes as a number or an array, pad arrays to a few fixed shapes"
        )
    else:
        reason = cause_of(last, root, request).text
        why = (
            f"for more than {cache.MAX_VARIANTS} paths through the same kind of arguments. {reason}"
        )
    warn(
        f"{name} was traced {why}. The oldest tapes are forgotten, and each trace costs as much as "
        "many calls"
    )


def warn_of_state(name: str, word: str, state: State) -> None:
    """Warn that three calls in a row were traced because the same place changed."""
    warn(
        f"{name} was traced for three calls in a row, and each trace costs as much as many calls. "
        f"{what_changed(word, state)}"
    )


def what_changed(word: str, state: State) -> str:
    """A description of what changed, or can't be compared, and the advice."""
    line = at_source(state.where.get(word))
    changes = not state.never or state.advice == Facts.CHANGES
    if word in state.called and changes:
        return (
            f"What keeps changing is what {word!r} returns{line}. If it draws random numbers, give "
            "it a seed, or numbers to start from; else call it outside, and pass what it returns"
        )
    of_package = word in state.of_packages
    if changes:
        fix = "the function reaches without being passed it. Pass it as an argument"
        text = getattr(state.where.get(word), "text", "")
        if asked := re.search(rf"\blen\(([\w.]+\.)?{re.escape(word)}\)", text):
            fix += f"; where only {asked[0]} is used, pass that number"
        if of_package:
            fix = f"an installed package reads or changes there. {CALLED_OUTSIDE}"
        return f"What keeps changing is {word!r}{line}, which {fix}"
    otherwise = CALLED_OUTSIDE if of_package else "Read it outside, and pass it as an argument"
    advice = state.advice or otherwise
    return f"What it reads, {word!r}{line}, can't be compared from call to call. {advice}"


def _broken_guard(last: Variant, leaves: Sequence[Any]) -> Cause:
    captured = last.traced.captured
    for k, (x, before) in enumerate(zip(captured, last.derivation.outside, strict=True)):
        if leaf_key(x) != before:
            return _other_outside(last.traced.tape, len(captured) - k, _shown(before), x)
    values = [*map(plain_value, leaves), *captured]
    try:
        _, guard = _run(last.tape, values)
    except IndexError:
        text = "What keeps failing is an index of the last tape, which is outside of its array"
        return Cause(text, "an index")
    guard = guard or last.broken  # failed for a number that the call read or drew
    if guard is None and last.traced.draws is not None:
        text = "the kind or shape of what is read anew at each call, in a container or by a draw"
        return Cause(f"What keeps changing is {text}", "what is read anew")
    if guard is None:
        return Cause("The last one was left by another thread")
    fix = f". {fix_of(guard.what)}"
    text = f"What keeps failing is {guard.what}{at_source(guard.src)}{fix}"
    before, now = str(guard.expected.value), _now(last.tape, guard, values)
    now *= now != before  # it may be made of numbers that each call draws
    often = 6 if guard.expected.dtype.kind == "b" else 4
    return Cause(text, guard.what, before, now, str(guard.src or ""), often, fix)


def _all_guards(tape: Tape) -> Iterator[Guard]:
    """The guards of a tape, and of the rounds and sides on it."""
    yield from tape.guards
    for call in tape.calls:
        for inner in call.primitive.tapes:
            yield from _all_guards(inner)


def fix_of(what: str) -> str:
    """What to do about a guard that keeps failing."""
    return next((fix for words, fix in _FIXES.items() if words in what), _FIXES[""])


# Parts of what a guard is told to be about -> the advice
_FIXES = {
    "condition": "np.where, np.maximum and np.clip choose without a branch",
    "index": "Arrays take a traced index where lists and dicts don't (np.zeros(n), np.array(a)); "
    "keep sizes fixed, and mask what is too much",
    "looked up": "An array takes a traced index: np.array(list(table.values()))[n]",
    "np.arange": "Keep its length fixed, and mask what is too much, or take np.arange(length) + n",
    "parameter": "It decides a shape, an axis or what is computed: keep it fixed",
    "text": "Make the text outside, or print it by tapegrad.debug.print",
    "large integer": "Make it a float: float(n)",
    "": "Code that isn't traced takes plain numbers: call NumPy's function in its place, or call "
    "it outside, and pass what it returns",
}


def _other_outside(tape: Tape, from_the_end: int, before: str, x: Any) -> Cause:
    """The reason that a captured array has another shape or dtype."""
    var = tape.inputs[-from_the_end]
    src = first_read(tape, var)
    text = (
        f"What keeps changing is the shape, dtype or layout of an array{at_source(src)} that the "
        "function reaches without being passed it. Pass it as an argument"
    )
    return Cause(text, "an array", before, _shown(leaf_key(x)), str(src or ""))


def _now(tape: Tape, guard: Guard, values: Sequence[Any]) -> str:
    """The value that a guard found, as text."""
    if guard.expected.dtype.kind == "b":
        return str(not guard.expected.value)
    if guard.operand not in tape.inputs and not any(guard.operand in c.outs for c in tape.calls):
        return ""  # the variable belongs to a loop's round
    asked = replace(tape, outputs=(guard.operand,), output_names=(), guards=(), into=())
    try:
        return str(_run(remove_dead(asked), values)[0][0])
    except Exception as error:  # the value can't be computed on this path
        let_through(error)
        return ""
