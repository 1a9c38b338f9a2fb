"""Peaks of signals. Their positions are found again at each call, and guarded. Heights,
prominences and widths have derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegrad.scipy.borrowing import borrow, kernels
from tapegrad.scipy.recomputed import decided

try:
    from scipy.signal import _peak_finding_utils as theirs
except ImportError:  # SciPy moved them: borrowed code then refuses tracers
    theirs = None


def _maxima(x: Any) -> Any:
    return decided("find_peaks", theirs._local_maxima_1d, x)


def _apart(peaks: Any, priority: Any, distance: Any) -> Any:
    return decided("find_peaks", theirs._select_by_peak_distance, peaks, priority, distance)


def _prominences(x: Any, peaks: Any, wlen: Any) -> Any:
    """The height of each peak above the higher one of its two bases."""

    def bases(x: Any, peaks: Any) -> Any:
        return theirs._peak_prominences(x, np.asarray(peaks, np.intp), wlen)[1:]

    left, right = decided("peak_prominences", bases, x, peaks)
    return x[peaks] - np.maximum(x[left], x[right]), left, right


def _widths(x: Any, peaks: Any, rel_height: Any, prominences: Any, left: Any, right: Any) -> Any:
    """The distance between the signal's crossings of a height, interpolated linearly between
    samples."""
    heights = x[peaks] - prominences * rel_height

    def samples(x: Any, peaks: Any, heights: Any, *given: Any) -> Any:
        """The samples just outside of the crossings, and their neighbours inside."""
        theirs._peak_widths(x, peaks, *given)  # raises SciPy's own errors and warnings
        found = []
        for sign, ends in ((-1, given[2]), (1, given[3])):
            outer = peaks.copy()
            for k, end in enumerate(ends):
                while outer[k] != end and heights[k] < x[outer[k]]:
                    outer[k] += sign
            found += [outer, np.where(x[outer] < heights, outer - sign, outer)]
        return found

    given = x, peaks, heights, rel_height, prominences, left, right
    places = decided("peak_widths", samples, *given)
    ends = [_crossing(x, heights, *places[k : k + 2]) for k in (0, 2)]
    return ends[1] - ends[0], heights, *ends


def _crossing(x: Any, heights: Any, outer: Any, inner: Any) -> Any:
    step = inner - outer
    rise = np.where(step == 0, 1.0, x[inner] - x[outer])
    return outer + step * (heights - x[outer]) / rise


kernels(
    "scipy.signal._peak_finding_utils",
    {
        "_local_maxima_1d": _maxima,
        "_select_by_peak_distance": _apart,
        "_peak_prominences": _prominences,
        "_peak_widths": _widths,
    },
)
kernels("scipy.signal._peak_finding", {"_arg_peaks_as_expected": lambda peaks: peaks})
borrow(
    "scipy.signal",
    "find_peaks peak_prominences peak_widths argrelextrema argrelmax argrelmin",
    lists="height threshold distance prominence width plateau_size prominence_data",
)
