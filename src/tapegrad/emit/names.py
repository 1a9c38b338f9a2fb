"""Names for the emitted source: the user's own where they are known.

`h = np.tanh(x @ W1 + b1)` names the value that the line ends with `h`; arguments keep their names,
and cotangents are `d_` of what they belong to.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from functools import cache, lru_cache

from tapegrad.ir.tape import Source, Tape, Var

# What emitted code says besides the scalar expressions of the primitives.
_WORDS = """
    np nan inf empty argument parts static apart scratch scratch_of spread status Stale Miss plus
    where rolled wrapped reshaped part matmul add_matmul maximum minimum compiled ndarray asarray
    args call flat float32 float64 bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64
    cholesky cholesky_pullback solve_lower solve_upper solve_unit_lower solve_unit_upper
    lu lu_solve lu_solve_transposed inverse_t slogdet LinAlgError
"""


@cache
def reserved() -> frozenset[str]:
    """Identifiers that no variable of emitted code may take: Python's, and the emitter's own."""
    from tapegrad.primitives import primitives

    expressions = " ".join(str(getattr(p, "scalar", "")) for p in primitives().values())
    said = set(re.findall(r"[A-Za-z_]\w*", expressions + _WORDS))
    casts = {f"as_{kind}" for kind in ("f4", "f8", "b1", "i1", "i2", "i4", "i8")}
    return frozenset([*keyword.kwlist, *dir(builtins), *said, *casts])


@lru_cache(maxsize=4096)
def assigned_name(text: str) -> str:
    """The single name that a line of Python assigns to, or an empty string."""
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return ""
    if any(isinstance(node, ast.Lambda) for node in ast.walk(statement)):
        return ""  # what is assigned is the function, and the line of its body is the same
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and isinstance(
        statement.target, ast.Name
    ):
        return statement.target.id
    return ""


def user_names(tape: Tape) -> dict[Var, str]:
    """Names for the variables that end a line of the user's that assigns them."""
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


class Names:
    """Hands out distinct identifiers."""

    def __init__(self, taken: frozenset[str] | None = None) -> None:
        self._taken = set(reserved() if taken is None else taken)
        self._next: dict[str, int] = {}

    def is_free(self, name: str) -> bool:
        """Whether `name` hasn't been handed out, and isn't reserved."""
        return name not in self._taken

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the first number that makes it new."""
        base = wanted if wanted.isidentifier() else "v"
        base += "_" * keyword.iskeyword(base)
        if base not in self._taken:
            self._taken.add(base)
            return base
        while True:
            self._next[base] = self._next.get(base, 0) + 1
            candidate = f"{base}{self._next[base]}"
            if candidate not in self._taken:
                self._taken.add(candidate)
                return candidate
