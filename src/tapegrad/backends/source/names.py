"""Names for the emitted source: the user's own where they are known.

`h = np.tanh(x @ W1 + b1)` names the last value of that line `h`. Arguments keep their names, and
the cotangent of `h` is `d_h`.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache

from tapegrad.backends.source.driver import global_words
from tapegrad.ir.tape import Source, Tape, Var

LONGEST = 60  # characters of a name


@cache
def reserved() -> frozenset[str]:
    """The names that have a meaning in every text: Python's own, and those of drivers. No variable
    takes one of them, even where the text at hand doesn't use it, nor one of the target's."""
    python = {*keyword.kwlist, *dir(builtins)}
    return frozenset(python | global_words())


@lru_cache(maxsize=4096)
def assigned_name(text: str) -> str:
    """The single name that a line of Python assigns to, or an empty string."""
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return ""
    if any(isinstance(node, ast.Lambda) for node in ast.walk(statement)):
        return ""  # the function is assigned, and the line of its body is the same
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and isinstance(
        statement.target, ast.Name
    ):
        return statement.target.id
    return ""


def user_names(tape: Tape) -> dict[Var, str]:
    """The user's names of variables: the last value of a line that assigns to a single name."""
    last: dict[Source, Var] = {}
    for call in tape.calls:
        if call.src is not None and not call.reason:
            last[call.src] = call.outs[0]
    names = {}
    for src, var in last.items():
        name = assigned_name(src.text)
        if name:
            names[var] = name
    return names


class Scope:
    """The names in one emitted text, each used once: every new name of the text comes from its
    scope. `taken` are names that have a meaning in the text already."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*reserved(), *taken}
        self._next: dict[str, int] = {}

    @classmethod
    def after(cls, words: Iterable[str]) -> Scope:
        """A scope for further lines of a text with these words. Only they and keywords are
        taken."""
        scope = cls.__new__(cls)
        scope._taken = {*keyword.kwlist, *words}
        scope._next = {}
        return scope

    def is_free(self, name: str) -> bool:
        """Whether `name` is neither taken nor reserved."""
        return name not in self._taken

    def fresh(self, wanted: str) -> str:
        """A new name: the characters of `wanted` that an identifier can have, and the first number
        that makes it unique."""
        base = _identifier(wanted)
        candidate = base
        while candidate in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            candidate = f"{base}{self._next[base]}"
        self._taken.add(candidate)
        return candidate


def _identifier(text: str) -> str:
    """A text as an identifier, in Unicode's NFKC form, in which Python compares identifiers."""
    characters = unicodedata.normalize("NFKC", text)[:LONGEST]
    clean = "".join(c if f"a{c}".isidentifier() else "_" for c in characters)
    if not clean.strip("_"):
        return "v"
    if not clean.isidentifier():
        return f"f_{clean}"
    return f"{clean}_" if keyword.iskeyword(clean) else clean
