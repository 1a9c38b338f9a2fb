"""SciPy's functions, traced under their own names.

SciPy converts its arguments to plain arrays. So calls of its functions in a traced program are
answered by functions of ours, as calls of `np.zeros` are (`observe/answers/answers.py`). There is
a module here for each module of SciPy. It is loaded once a program has imported SciPy's. A
function is declared once (`extending/declaring.py`), with its name, its traceable parameters and
its answer, which is written in primitives and NumPy functions. Functions that aren't declared are
refused by name (`refusing.py`). All of this uses only `tapegrad.extending`, as another library
could.
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
    """The tree functions of one of SciPy's classes, for sparse matrices; None for other classes."""
    if not cls.__module__.startswith("scipy.sparse") or "scipy.sparse" not in sys.modules:
        return None
    return load((f"{__name__}.sparse.trees",)).how(cls)


adopt("scipy", _adopted)
