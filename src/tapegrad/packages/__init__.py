"""Other packages' functions in C, by the functions of NumPy's that they are.

There is a file for each package, which is loaded once a program has imported that. It has rows of
`tapegrad.extending` and nothing else. What isn't declared is refused, and the error names it.
"""

from __future__ import annotations

import importlib
from functools import partial

from tapegrad.extending import declare_late
from tapegrad.extending.tables import adopt, load

for _name, _file in (("bottleneck", "bottleneck"), ("numexpr", "numexpr"), ("pywt", "wavelets")):
    declare_late(_name, partial(importlib.import_module, f"{__name__}.{_file}"))

# Of a package whose Python runs on traced arrays as it is, its objects as trees.
adopt("xarray", lambda cls: load((f"{__name__}.labelled",)).how(cls))
# And of one whose objects are stood for.
adopt("polars", lambda cls: load((f"{__name__}.polars",)).how(cls))
