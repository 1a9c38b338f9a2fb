"""Traceable versions of scipy.ndimage: SciPy's own Python code, run with traceable kernels in
place of its C code. The kernels are below and in `resampling.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

from tapegrad.extending import at_line, is_traced, refusal, stands_for
from tapegrad.extending.runs import library_code
from tapegrad.scipy.borrowing import borrow, converting, kernels
from tapegrad.scipy.ndimage.resampling import geometric_transform, spline_filter1d, zoom_shift
from tapegrad.scipy.solver_calls import stopped, valued
from tapegrad.scipy.stencils import MAX_TERMS, correlated, filters, padded, parts, picked

HOME = "scipy.ndimage"

# SciPy's numbers of boundary modes -> the names of np.pad
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
    """The number of elements of a window before and after its own element."""
    before = size // 2 + origin
    return before, size - 1 - before


def _extended(x: Any, sizes: Any, axes: Any, origins: Any, mode: int, fill: Any) -> Any:
    around = [(0, 0)] * x.ndim
    for axis, size, origin in zip(axes, sizes, origins, strict=True):
        around[axis] = _around(size, origin)
    if 0 in x.shape:  # no window has elements
        return np.zeros([n + sum(more) for n, more in zip(x.shape, around, strict=True)])
    return padded(x, around, _MODES[mode], fill)


def _window(size: int, axis: int, ndim: int) -> list[int]:
    return [size if k == axis else 1 for k in range(ndim)]


def _correlate1d(
    x: Any, weights: Any, axis: int, output: Any, mode: int, cval: Any, origin: int
) -> Any:
    """The sums of x[i + j - size // 2 - origin] weights[j] along an axis."""
    wide = _extended(x, [weights.size], [axis], [origin], mode, cval)
    shape = _window(weights.size, axis, x.ndim)
    return correlated(wide, np.reshape(weights, shape))


def _correlate(x: Any, weights: Any, output: Any, mode: int, cval: Any, origins: Any) -> Any:
    """The correlation along all axes."""
    wide = _extended(x, weights.shape, range(x.ndim), origins, mode, cval)
    return correlated(wide, weights, zeros=False)


def _uniform_filter1d(
    x: Any, size: int, axis: int, output: Any, mode: int, cval: Any, origin: int
) -> Any:
    """The means of `size` elements. SciPy updates a running sum, so its result stays NaN once an
    infinity or NaN has left the window; so does this one."""
    wide = _extended(x, [size], [axis], [origin], mode, cval)
    places = np.arange(x.shape[axis])
    if size <= MAX_TERMS:
        terms = parts(wide, _window(size, axis, x.ndim))
        left = np.take(_sums_before(stopped(0.0 * wide), axis), places, axis)
        return sum(terms[1:], terms[0]) / size + left
    sums = _sums_before(wide, axis)
    return (np.take(sums, places + size, axis) - np.take(sums, places, axis)) / size


def _sums_before(x: Any, axis: int) -> Any:
    """The prefix sums along an axis: before each element, and of all."""
    nothing = np.zeros([1 if k == axis else n for k, n in enumerate(x.shape)], x.dtype)
    return np.concatenate([nothing, np.cumsum(x, axis=axis)], axis=axis)


def _min_or_max(
    x: Any,
    footprint: Any,
    structure: Any,
    output: Any,
    mode: int,
    cval: Any,
    origins: Any,
    smallest: int,
) -> Any:
    """The elements of the windows where `footprint` is true. `structure` is subtracted first for
    the minimum, or added for the maximum."""
    wide = _extended(x, footprint.shape, range(x.ndim), origins, mode, cval)
    found = []
    for k, part in enumerate(parts(wide, footprint.shape)):
        place = np.unravel_index(k, footprint.shape)
        if footprint[place]:
            if structure is not None:
                part = part - structure[place] if smallest else part + structure[place]
            found.append(part)
    return found


def _min_or_max1d(
    x: Any, size: int, axis: int, output: Any, mode: int, cval: Any, origin: int, smallest: int
) -> Any:
    wide = _extended(x, [size], [axis], [origin], mode, cval)
    return parts(wide, _window(size, axis, x.ndim))


def _rank_filter(
    x: Any, rank: int, footprint: Any, output: Any, mode: int, cval: Any, origins: Any
) -> Any:
    return _min_or_max(x, footprint, None, output, mode, cval, origins, 0)


def _rank_filter1d(
    x: Any, rank: int, size: int, output: Any, mode: int, cval: Any, origin: int
) -> Any:
    return _min_or_max1d(x, size, 0, output, mode, cval, origin, 0)


def _gaussian_kernel1d(sigma: Any, order: int, radius: int) -> Any:
    """The normal density at integers, or its derivative of this order: the density times a
    polynomial, in which p is followed by p' - x p / sigma^2."""
    x, variance = np.arange(-radius, radius + 1), sigma * sigma
    density = np.exp(-0.5 / variance * x**2)
    terms: list[Any] = [1.0]
    for _ in range(order):
        slopes = [k * c for k, c in enumerate(terms)][1:] + [0.0, 0.0]
        terms = [a - b / variance for a, b in zip(slopes, [0.0, *terms], strict=True)]
    return sum(c * x**k for k, c in enumerate(terms)) * density / density.sum()


# ---- filters that call a user's function


def _generic_filter(
    x: Any,
    function: Any,
    footprint: Any,
    output: Any,
    mode: int,
    fill: Any,
    origins: Any,
    *more: Any,
) -> None:
    """Store the function's values for the elements of each window, which it gets as one row."""
    args, kwargs = more
    wide = _extended(x.astype(float), footprint.shape, range(x.ndim), origins, mode, fill)
    inside = zip(parts(wide, footprint.shape), footprint.flat, strict=True)
    windows = np.stack([part for part, is_inside in inside if is_inside], axis=-1)
    found = [function(windows[place], *args, **kwargs) for place in np.ndindex(x.shape)]
    output[...] = np.reshape(np.stack(found), x.shape).astype(output.dtype)


def _generic_filter1d(
    x: Any, function: Any, size: int, axis: int, output: Any, mode: int, fill: Any, *more: Any
) -> None:
    """Store what the function writes for each line along an axis."""
    origin, args, kwargs = more
    wide = np.moveaxis(_extended(x.astype(float), [size], [axis], [origin], mode, fill), axis, -1)
    lines = np.moveaxis(output, axis, -1)
    for place in np.ndindex(lines.shape[:-1]):
        line = library_code.module(np).zeros(lines.shape[-1:])
        function(wide[place], line, *args, **kwargs)
        lines[place] = line.astype(output.dtype)


# ---- filters of spectra: products with the factors that SciPy's filter computes for ones


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


filters(
    "scipy.ndimage._nd_image",
    {
        "correlate1d": _correlate1d,
        "correlate": _correlate,
        "uniform_filter1d": _uniform_filter1d,
        "geometric_transform": geometric_transform,
        "zoom_shift": zoom_shift,
    },
)
filters(
    "scipy.ndimage._nd_image",
    {
        "min_or_max_filter": _min_or_max,
        "min_or_max_filter1d": _min_or_max1d,
        "rank_filter": _rank_filter,
    },
    completed=picked,
)
filters("scipy.ndimage._nd_image", {"spline_filter1d": spline_filter1d}, completed=valued)
filters("scipy.ndimage._rank_filter_1d", {"rank_filter": _rank_filter1d}, completed=picked)
kernels(
    "scipy.ndimage._nd_image",
    {"generic_filter": _generic_filter, "generic_filter1d": _generic_filter1d},
)
converting("scipy.ndimage._filters", "gaussian_filter1d")
kernels("scipy.ndimage._filters", {"_gaussian_kernel1d": _gaussian_kernel1d})
REFUSED = {
    """binary_closing binary_dilation binary_erosion binary_fill_holes binary_hit_or_miss
    binary_opening binary_propagation distance_transform_bf distance_transform_cdt
    distance_transform_edt find_objects label value_indices watershed_ift""": (
        "it on a plain mask, such as np.asarray(x > 0.5), whose elements are guarded"
    ),
    "geometric_transform": "scipy.ndimage.map_coordinates",
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
    center_of_mass vectorized_filter generic_filter generic_filter1d""",
)
