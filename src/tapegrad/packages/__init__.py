"""Functions of other packages in C, replaced by equivalent NumPy functions.

There is a file for each package. It is loaded once a program has imported the package, and
contains only declarations by `tapegrad.extending`. Functions that aren't declared are refused by
name.
"""

from __future__ import annotations

import importlib
from functools import partial

from tapegrad.extending import declare_late
from tapegrad.extending.tables import adopt, load

for _name, _file in (("bottleneck", "bottleneck"), ("numexpr", "numexpr"), ("pywt", "wavelets")):
    declare_late(_name, partial(importlib.import_module, f"{__name__}.{_file}"))

# xarray's Python code runs on traced arrays unchanged; only its objects are declared as pytrees.
adopt("xarray", lambda cls: load((f"{__name__}.labelled",)).how(cls))
# polars' objects are replaced by proxies while tracing.
adopt("polars", lambda cls: load((f"{__name__}.polars",)).how(cls))
