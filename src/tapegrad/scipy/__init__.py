"""SciPy's functions, traced under their own names.

SciPy makes plain arrays of what it is passed, so a traced program's calls of its functions are
answered by ours, as calls of `np.zeros` are (`observe/answers/answers.py`). There is a module here
for each of SciPy's, and it is loaded once a program has imported that. A function is declared once
(`extending/declaring.py`): what it is called, which parameters it follows, and what it comes to, in
terms of primitives and of NumPy's functions. What isn't declared is refused by its name
(`refusing.py`). All of it stands on `tapegrad.extending`, as another library's may.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

from tapegrad.extending import declare_late
from tapegrad.extending.tables import adopt, load
from tapegrad.scipy.homes import HOMES


def _load(home: str) -> None:
    refusing = importlib.import_module(f"{__name__}.refusing")
    refusing.declaring(home)
    refusing.refuse_the_others(home)


for _home in HOMES:
    declare_late(_home, partial(_load, _home))


def _adopted(cls: type) -> Any:
    """How a class of SciPy's is a tree: those of sparse matrices are."""
    if not cls.__module__.startswith("scipy.sparse") or "scipy.sparse" not in sys.modules:
        return None
    return load((f"{__name__}.sparse.trees",)).how(cls)


adopt("scipy", _adopted)
