"""Of numbers of half precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from tests.primitives.samples.drawn import Sample, normal

from tapegrad.primitives.halves import Loaded, Rounded, Stored

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
# Between two numbers, beyond the largest, and smaller than the smallest that is normal
AWKWARD = [0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 65519.0, 65520.0, -7e4, 6e-8, -3e-41]


def of_halves() -> dict[Any, list[Sample]]:
    """Differences can't see a slope through the steps of such numbers."""
    awkward = np.array(AWKWARD)
    wide = [awkward.astype("f4"), awkward, normal(2, 3).astype("f4"), normal().astype("f4")]
    return {
        Rounded: [
            Sample(
                Rounded(dtype),
                (x,),
                lambda x, dtype=dtype: x.astype(dtype).astype("f4"),
                smooth=False,
                label=f"{dtype.name} {k}",
            )
            for dtype in HALVES
            for k, x in enumerate(wide)
        ],
        Stored: [
            Sample(
                Stored(dtype),
                (x,),
                lambda x, dtype=dtype: x.astype(dtype),
                smooth=False,
                label=f"{dtype.name} {k}",
            )
            for dtype in HALVES[:1]
            for k, x in enumerate(wide)
        ],
        Loaded: [
            Sample(
                Loaded(dtype),
                (normal(*shape).astype(dtype),),
                lambda x: x.astype("f4"),
                smooth=False,
                label=f"{dtype.name} {shape}",
            )
            for dtype in HALVES[:1]
            for shape in ((2, 3), ())
        ],
    }
