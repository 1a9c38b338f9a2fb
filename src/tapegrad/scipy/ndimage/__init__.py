"""What answers the functions of scipy.ndimage: SciPy's own Python code, in terms of kernels that
stand for its code in C, below and in `resampling.py`. They write their result into `output`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

from tapegrad.scipy.borrowing import borrow, kernels, left_plain
from tapegrad.scipy.declaring import is_traced, refusal, stands_for
from tapegrad.scipy.ndimage.resampling import geometric_transform, spline_filter1d, zoom_shift
from tapegrad.scipy.stencils import MOST, correlated, padded, parts, ranked
from tapegrad.tracing.source import at_line

HOME = "scipy.ndimage"

# What is outside of an array, by SciPy's numbers: as np.pad calls it
_MODES = {
    0: "edge",
    1: "wrap",
    2: "symmetric",
    3: "reflect",
    4: "constant",
    5: "wrap",
    6: "constant",
}


def _around(size: int, origin: int) -> tuple[int, int]:
    """How many elements a window reaches before and after its own."""
    before = size // 2 + origin
    return before, size - 1 - before


def _extended(x: Any, sizes: Any, axes: Any, origins: Any, mode: int, fill: Any) -> Any:
    around = [(0, 0)] * x.ndim
    for axis, size, origin in zip(axes, sizes, origins, strict=True):
        around[axis] = _around(size, origin)
    if 0 in x.shape:  # so no window has an element
        return np.zeros([n + sum(more) for n, more in zip(x.shape, around, strict=True)])
    return padded(x, around, _MODES[mode], fill)


def _window(size: int, axis: int, ndim: int) -> list[int]:
    return [size if k == axis else 1 for k in range(ndim)]


def _correlate1d(
    x: Any, weights: Any, axis: int, output: Any, mode: int, cval: Any, origin: int
) -> None:
    """The sums of x[i + j - size // 2 - origin] weights[j] along an axis."""
    wide = _extended(x, [weights.size], [axis], [origin], mode, cval)
    shape = _window(weights.size, axis, x.ndim)
    output[...] = correlated(wide, np.reshape(weights, shape), zeros=True)


def _correlate(x: Any, weights: Any, output: Any, mode: int, cval: Any, origins: Any) -> None:
    """The same along all axes."""
    wide = _extended(x, weights.shape, range(x.ndim), origins, mode, cval)
    output[...] = correlated(wide, weights)


def _uniform_filter1d(
    x: Any, size: int, axis: int, output: Any, mode: int, cval: Any, origin: int
) -> None:
    """The means of `size` elements."""
    wide = _extended(x, [size], [axis], [origin], mode, cval)
    if size <= MOST:
        terms = parts(wide, _window(size, axis, x.ndim))
        output[...] = sum(terms[1:], terms[0]) / size
        return
    sums = np.cumsum(wide, axis=axis)
    first = [slice(None)] * x.ndim
    first[axis] = slice(0, 1)
    sums = np.concatenate([0 * sums[tuple(first)], sums], axis=axis)
    n = x.shape[axis]
    places = np.arange(n)
    output[...] = (np.take(sums, places + size, axis) - np.take(sums, places, axis)) / size


def _min_or_max(
    x: Any,
    footprint: Any,
    structure: Any,
    output: Any,
    mode: int,
    cval: Any,
    origins: Any,
    smallest: int,
) -> None:
    """The smallest or largest elements of windows, where `footprint` is true; of `structure`, what
    is subtracted first, or added."""
    wide = _extended(x, footprint.shape, range(x.ndim), origins, mode, cval)
    found = []
    for k, part in enumerate(parts(wide, footprint.shape)):
        place = np.unravel_index(k, footprint.shape)
        if footprint[place]:
            if structure is not None:
                part = part - structure[place] if smallest else part + structure[place]
            found.append(part)
    output[...] = (np.min if smallest else np.max)(np.stack(found), axis=0)


def _min_or_max1d(
    x: Any, size: int, axis: int, output: Any, mode: int, cval: Any, origin: int, smallest: int
) -> None:
    wide = _extended(x, [size], [axis], [origin], mode, cval)
    found = np.stack(parts(wide, _window(size, axis, x.ndim)))
    output[...] = (np.min if smallest else np.max)(found, axis=0)


def _rank_filter(
    x: Any, rank: int, footprint: Any, output: Any, mode: int, cval: Any, origins: Any
) -> None:
    wide = _extended(x, footprint.shape, range(x.ndim), origins, mode, cval)
    output[...] = ranked(wide, footprint.shape, rank, footprint)


def _rank_filter1d(
    x: Any, rank: int, size: int, output: Any, mode: int, cval: Any, origin: int
) -> None:
    wide = _extended(x, [size], [0], [origin], mode, cval)
    output[...] = ranked(wide, [size], rank)


# ---- filters of spectra, which are multiplied with numbers: those that SciPy multiplies ones with


def _of_spectrum(name: str, x: Any, sizes: Any, n: int, axis: int, ones: Any = 1.0) -> Any:
    if is_traced(sizes):
        raise refusal(
            f"{HOME}.{name} can't be traced in its second argument{at_line()}, only in its first. "
            "Write the filter with np.exp or np.sinc of the frequencies"
        )
    return x * getattr(ndimage, name)(np.full(x.shape, ones), sizes, n, axis)


@stands_for(HOME)
def fourier_gaussian(input: Any, sigma: Any, n: int = -1, axis: int = -1) -> Any:
    return _of_spectrum("fourier_gaussian", input, sigma, n, axis)


@stands_for(HOME)
def fourier_uniform(input: Any, size: Any, n: int = -1, axis: int = -1) -> Any:
    return _of_spectrum("fourier_uniform", input, size, n, axis)


@stands_for(HOME)
def fourier_ellipsoid(input: Any, size: Any, n: int = -1, axis: int = -1) -> Any:
    return _of_spectrum("fourier_ellipsoid", input, size, n, axis)


@stands_for(HOME)
def fourier_shift(input: Any, shift: Any, n: int = -1, axis: int = -1) -> Any:
    return _of_spectrum("fourier_shift", input, shift, n, axis, ones=1.0 + 0.0j)


kernels(
    "scipy.ndimage._nd_image",
    {
        "correlate1d": _correlate1d,
        "correlate": _correlate,
        "uniform_filter1d": _uniform_filter1d,
        "min_or_max_filter": _min_or_max,
        "min_or_max_filter1d": _min_or_max1d,
        "rank_filter": _rank_filter,
        "spline_filter1d": spline_filter1d,
        "geometric_transform": geometric_transform,
        "zoom_shift": zoom_shift,
    },
)
kernels("scipy.ndimage._rank_filter_1d", {"rank_filter": _rank_filter1d})
left_plain("scipy.ndimage._filters", "_gaussian_kernel1d")  # of a width, which isn't traced
REFUSED = {
    """binary_closing binary_dilation binary_erosion binary_fill_holes binary_hit_or_miss
    binary_opening binary_propagation distance_transform_bf distance_transform_cdt
    distance_transform_edt find_objects label value_indices watershed_ift""": (
        "it on a plain mask, such as np.asarray(x > 0.5), whose elements are guarded"
    ),
    "generic_filter generic_filter1d geometric_transform": (
        "scipy.ndimage.vectorized_filter, or scipy.ndimage.map_coordinates"
    ),
}
borrow(
    HOME,
    """correlate1d convolve1d correlate convolve gaussian_filter1d gaussian_filter uniform_filter1d
    uniform_filter prewitt sobel laplace generic_laplace gaussian_laplace
    gaussian_gradient_magnitude generic_gradient_magnitude minimum_filter maximum_filter
    minimum_filter1d maximum_filter1d rank_filter median_filter percentile_filter grey_erosion
    grey_dilation grey_opening grey_closing morphological_gradient morphological_laplace
    white_tophat black_tophat spline_filter1d spline_filter map_coordinates affine_transform shift
    zoom rotate sum sum_labels mean
    variance standard_deviation minimum maximum median minimum_position maximum_position extrema
    center_of_mass vectorized_filter""",
)
