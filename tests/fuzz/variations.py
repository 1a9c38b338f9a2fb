"""The calls that a program is held to: later ones differ from the first in each argument in turn.

A change is one of the text that an argument, or what is captured, is drawn by. The result may be a
call that NumPy refuses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from tests.fuzz import values
from tests.fuzz.programs import Call, Program

SEEDS = (0, 1, 2)
ARRAY = re.compile(r"(reals|wholes|flags|complexes)\((\([\d, ]*\))(, np\.\w+)?\)")
PLAIN = "values"  # what a call is called that differs from the first in its numbers alone


def calls_of(program: Program, rng: random.Random) -> list[Call]:
    """The program's own arguments with other values, and between them two others, the first of
    which come twice."""
    others = []
    for what, change in (("shapes", extents), ("dtypes", dtypes_of_all)):
        texts = change({**program.arguments, **program.captured}, rng)
        others.append(_with(program, texts, what, rng))
    for name in rng.sample([*program.arguments, *program.captured], len(_texts(program))):
        what = rng.choice([*CHANGES])
        text = CHANGES[what](_texts(program)[name], rng)
        others.append(_with(program, {name: text}, what, rng))
    others = [call for call in others if call.program != program]
    others = rng.sample(others, min(2, len(others)))
    calls = [program.call(seed) for seed in SEEDS[:2]]
    for call in others:
        calls.insert(rng.randrange(1, len(calls) + 1), call)
    return [*calls, *others[:1], program.call(0)]


def _texts(program: Program) -> dict[str, str]:
    return {**program.arguments, **program.captured}


def _with(program: Program, texts: dict[str, str], what: str, rng: random.Random) -> Call:
    def those(given: dict[str, str]) -> dict[str, str]:
        return {name: texts.get(name, text) for name, text in given.items()}

    changed = replace(program, arguments=those(program.arguments), captured=those(program.captured))
    return changed.call(rng.choice(SEEDS), what)


# ---- all arguments at once


def extents(texts: dict[str, str], rng: random.Random) -> dict[str, str]:
    """One extent is another one wherever it stands, so what fitted still does."""
    found = {
        n for text in texts.values() for _, shape, _ in ARRAY.findall(text) for n in eval(shape)
    }
    if not found:
        return texts
    old = rng.choice(sorted(found))
    new = rng.choice([n for n in (1, 2, 3, 4, 5, 6) if n not in found] or [7])

    def changed(match: re.Match[str]) -> str:
        shape = tuple(new if n == old else n for n in eval(match[2]))
        return f"{match[1]}({shape}{match[3] or ''})"

    return {name: ARRAY.sub(changed, text) for name, text in texts.items()}


def dtypes_of_all(texts: dict[str, str], rng: random.Random) -> dict[str, str]:
    """float32 instead of float64, and the other way, throughout."""
    if any("number()" in text for text in texts.values()):
        return texts
    narrow = not any("float32" in text for text in texts.values())

    def changed(match: re.Match[str]) -> str:
        if match[1] != "reals":
            return match[0]
        return f"reals({match[2]}{', np.float32' if narrow else ''})"

    return {name: ARRAY.sub(changed, text) for name, text in texts.items()}


# ---- one at a time


def shapes(text: str, rng: random.Random) -> str:
    """Other shapes: an axis more or less, or of another length."""

    def changed(match: re.Match[str]) -> str:
        shape = eval(match[2])
        choices = [rng.choice(values.SHAPES), (2, *shape), shape[1:], (*shape, 1), shape[::-1]]
        if shape:
            at = rng.randrange(len(shape))
            for n in (1, shape[at] + 1, shape[at] + 2):
                choices.append((*shape[:at], n, *shape[at + 1 :]))
        other = rng.choice([s for s in choices if s != shape])
        return f"{match[1]}({other}{match[3] or ''})"

    text = re.sub(r"indices\(\d+", lambda _: f"indices({rng.randrange(1, 5)}", text)
    return ARRAY.sub(changed, text)


def dtypes(text: str, rng: random.Random) -> str:
    """Other dtypes."""

    def changed(match: re.Match[str]) -> str:
        kinds = ["reals({})", "reals({}, np.float32)", "wholes({})", "wholes({}, np.int32)"]
        kinds += ["wholes({}, np.uint8)", "wholes({}, np.int8)", "flags({})"]
        others = [kind.format(match[2]) for kind in kinds if kind.format(match[2]) != match[0]]
        return rng.choice([*others, *others[:6], *others[:3]])

    return ARRAY.sub(changed, text)


NUMBERS = ["number()", "whole(1, 3)", "flag()", "np.float64(number())", "np.array(number())"]
NUMBERS += ["np.int64(whole(1, 3))", "np.array(whole(1, 3))", "np.bool_(flag())", "None"]
NUMBERS += ["np.float32(number())", "'1.5'", "reals((1,))", "[number()]"]
DRAWN_FROM = ["generator()", "random_state()"]
SCALAR = re.compile(r"number\(\)|whole\(\d, \d\)|flag\(\)|reals\(\(\)\)")


def kinds(text: str, rng: random.Random) -> str:
    """Other kinds of numbers, lists for tuples and arrays, another function, None."""
    choices: list[str] = []
    if text in DRAWN_FROM:
        return rng.choice(DRAWN_FROM)
    if text[0] == "[":
        choices += [f"tuple({text})", text[:-1] + ", number()]", f"np.array({text}, dtype=object)"]
    elif text[0] == "(":
        choices += [f"list({text})", "(number(), number())"]
    elif text[0] == "{":
        choices += [f"dict(reversed({text}.items()))", f"{text} | {{'c': number()}}"]
        choices += [f"{{k: v for k, v in {text}.items() if k == 'a'}}"]
    elif text.startswith("chosen(np"):
        choices += ["np.cos", "np.square", "np.abs", "abs", "lambda x: x * x", "None"]
    elif text.startswith("chosen('"):
        choices += ["'sin'", "'cos'", "'tan'", "''", "None", "1"]
    elif text == "None":
        choices += ["number()", "reals(())", "whole(1, 3)", "flag()", "0.0"]
    elif not SCALAR.fullmatch(text):
        choices += [f"{text}.tolist()", f"np.ma.array({text})", "number()", "None"]
        if "(()" not in text:  # of no axes
            choices += [f"list({text})", f"tuple({text}.tolist())"]
    if SCALAR.search(text):
        others = [n for n in NUMBERS if n != text]
        choices += [SCALAR.sub(lambda _: rng.choice(others), text) for _ in (0, 1)]
    return rng.choice(choices)


def layouts(text: str, rng: random.Random) -> str:
    """Other layouts in memory."""
    return ARRAY.sub(lambda match: f"{rng.choice(values.MADE)}({match[0]})", text)


CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "shapes": shapes,
    "dtypes": dtypes,
    "kinds": kinds,
    "layouts": layouts,
}
