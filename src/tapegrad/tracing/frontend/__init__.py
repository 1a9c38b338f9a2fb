"""NumPy's functions on traced arrays: the table from function to implementation.

The front end is generous, as NumPy is: it normalises axes, keeps dimensions, promotes dtypes and
handles 0-d and 1-d cases, so that primitives can be strict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegrad.errors import UnsupportedError
from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import note_root
from tapegrad.observe.program.source import at_line
from tapegrad.observe.values.texts import tell
from tapegrad.tracing.frontend.algebra import contracting, fourier, least_squares, linalg
from tapegrad.tracing.frontend.axes import nans, numerics, padding, quantiles, reducing, sorting
from tapegrad.tracing.frontend.calling import iterating, vectorizing
from tapegrad.tracing.frontend.calling.accepting import accepted, named_after
from tapegrad.tracing.frontend.calling.borrowing import borrowed, implementation_of
from tapegrad.tracing.frontend.indexing import flat, indexing, scattering
from tapegrad.tracing.frontend.numba import compiled
from tapegrad.tracing.frontend.numpy import (
    answering,
    constants,
    lists,
    methods,
    misc,
    polynomials,
    subclasses,
)
from tapegrad.tracing.frontend.numpy.known import known_call, like_earlier
from tapegrad.tracing.frontend.numpy.methods import METHODS
from tapegrad.tracing.frontend.numpy.namespaces import namespace
from tapegrad.tracing.frontend.operands import memory, parameters
from tapegrad.tracing.frontend.operands.on_complex import check_function
from tapegrad.tracing.frontend.operands.operands import as_operand
from tapegrad.tracing.frontend.operands.parameters import (
    form_of,
    has_tracers,
    numbers_taken,
    running,
    taken,
)
from tapegrad.tracing.frontend.pandas import (
    applying,
    arranging,
    dataframes,
    groups,
    keyed,
    labels,
    rolling,
)
from tapegrad.tracing.frontend.python import (
    appended,
    averages,
    casting,
    draws,
    exhausting,
    identity,
    mathematics,
)
from tapegrad.tracing.frontend.shapes import joining, shaping, windowing
from tapegrad.tracing.outside.kept import at_the_time, end_derivative
from tapegrad.tracing.recording.layout import settle
from tapegrad.tracing.recording.trace import refusing
from tapegrad.tracing.runs.floating import watching
from tapegrad.tracing.tracers.hashing import needs_plain
from tapegrad.tracing.tracers.instead import use

# NumPy's functions by the modules that have them, under the same names
_LINALG = """norm cholesky solve inv det slogdet eig eigvals eigh eigvalsh svd qr cond"""
_FOURIER = "fft ifft rfft irfft hfft ihfft fft2 ifft2 fftn ifftn rfft2 irfft2 rfftn irfftn"
_NAMES: dict[Any, str] = {
    shaping: """reshape ravel transpose swapaxes moveaxis squeeze expand_dims broadcast_to
        broadcast_arrays roll tile repeat apply_along_axis zeros_like ones_like
        full_like diag diagflat diagonal trace astype""",
    padding: "pad",
    joining: "concatenate stack insert delete",
    reducing: """sum prod mean var std max min any all argmax argmin count_nonzero cumsum
        cumprod""",
    nans: "nansum nanprod nanmean nanvar nanstd nanmax nanmin nancumsum nancumprod",
    sorting: "sort argsort partition argpartition lexsort searchsorted digitize unique",
    quantiles: "median quantile percentile nanmedian nanquantile nanpercentile",
    numerics: """linspace gradient interp convolve correlate bincount vander corrcoef
        select sinc polymul""",
    contracting: "dot vdot inner tensordot einsum cross",
    indexing: "take take_along_axis compress choose nonzero argwhere",
    flat: "unravel_index ravel_multi_index packbits unpackbits",
    scattering: "put_along_axis copyto put putmask place fill_diagonal",
    misc: """where clip round isclose array_equiv allclose array_equal
        meshgrid imag isreal iscomplex isfortran result_type can_cast min_scalar_type
        may_share_memory""",
}
# By NumPy's own code, which is Python
BORROWED: dict[Any, str] = {
    np: """rollaxis atleast_1d atleast_2d atleast_3d matrix_transpose flip fliplr flipud rot90
        shape ndim size real real_if_close iscomplexobj isrealobj common_type tril triu
        tril_indices_from triu_indices_from diag_indices_from vstack hstack dstack
        column_stack append split vsplit hsplit dsplit unstack block apply_over_axes
        average ptp diff trapezoid unwrap piecewise polyval cov
        nan_to_num outer extract flatnonzero angle cumulative_sum cumulative_prod
        geomspace logspace i0 ix_ nanargmax nanargmin poly
        polyadd polysub polyder polyint polydiv polyfit trim_zeros unique_all
        unique_counts unique_inverse unique_values union1d intersect1d setdiff1d setxor1d isin
        einsum_path row_stack ediff1d kron array_split resize fix isneginf isposinf
        histogram histogram2d histogramdd histogram_bin_edges roots""",
    np.fft: "fftshift ifftshift",
    np.emath: "arccos arcsin arctanh log log10 log2 logn power sqrt",
    np.linalg: """vector_norm matrix_norm matrix_power multi_dot outer cross tensorinv svdvals
        matrix_rank tensorsolve matrix_transpose diagonal trace matmul tensordot vecdot""",
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{
        getattr(np, name): getattr(module, name)
        for module, names in _NAMES.items()
        for name in names.split()
        if hasattr(np, name)
    },
    **{getattr(np.linalg, name): getattr(linalg, name) for name in _LINALG.split()},
    np.linalg.pinv: least_squares.pinv,
    np.linalg.lstsq: least_squares.lstsq,
    **{getattr(np.fft, name): getattr(fourier, name) for name in _FOURIER.split()},
    **{
        getattr(module, name): borrowed(getattr(module, name))
        for module, names in BORROWED.items()
        for name in names.split()
        if implementation_of(getattr(module, name, None))  # else what NumPy has now isn't Python
    },
    np.lib.stride_tricks.sliding_window_view: windowing.sliding_window_view,
    np.permute_dims: shaping.transpose,
    np.copy: memory.copy_of,
    np.empty_like: shaping.zeros_like,
    np.amax: reducing.max,
    np.amin: reducing.min,
    np.around: misc.round,
    np.shares_memory: misc.may_share_memory,
}

_BY_NUMPYS_CODE = {getattr(m, n, None) for m, names in BORROWED.items() for n in names.split()}


_EINSUM, _TEXTS = np.einsum, (np.array2string, np.array_repr, np.array_str)


def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """What NumPy calls for a function of its own with a tracer among the arguments."""
    if running.numpys:  # what called that is watched
        return _called(func, args, kwargs)
    if func not in FUNCTIONS:  # it is refused, and NumPy's might write a file
        return _called(func, args, kwargs)

    def run() -> Any:
        return watching(func, args, kwargs, lambda: _called(func, args, kwargs))

    return accepted(func, args, kwargs, run, named_after(func))


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    implementation = FUNCTIONS.get(func)
    if implementation is not None:
        form = form_of(implementation, func)
        given, named, found = taken(form, args, kwargs)
        if found and not has_tracers(given, named):
            return func(*given, **named)
        if func not in _BY_NUMPYS_CODE:
            check_function(func, given, named)
        # How an einsum lies in memory follows from its operands' strides.
        result = implementation(*given, **form.own(named))
        return settle(result, given, certain=func is not _EINSUM)
    if func in _TEXTS:
        tell(args[0])
        return func(args[0]._concrete, *args[1:], **kwargs)
    numbers = numbers_taken(args, kwargs)
    if numbers is not None:
        return func(*numbers[0], **numbers[1])
    instead = use(func)
    raise refusing(
        UnsupportedError(
            f"{named_after(func)} has no derivative rule in tapegrad{at_line()}. {instead}, or "
            "declare it with tapegrad.primitive and defvjp"
        )
    )


dispatch.namespace = namespace
dispatch.set_shape = shaping.set_shape
dispatch.labelled, dispatch.has_labels = dataframes.labelled, dataframes.has_labels
dispatch.table_method, dispatch.table_filled = rolling.method_of, dataframes.filled
dispatch.table_aggregated, dispatch.table_at = groups.aggregated, labels.At
dispatch.table_item, dispatch.table_write = keyed.chosen, keyed.written
dispatch.draw, dispatch.seed = draws.draw, draws.seed
dispatch.clock = draws.read_clock
dispatch.root = note_root
dispatch.ask, dispatch.at_the_time = draws.ask, at_the_time
dispatch.end_derivative = end_derivative
dispatch.known, dispatch.again = known_call, like_earlier
dispatch.function = constants.door(call_function)
dispatch.methods = METHODS
dispatch.element, dispatch.number, dispatch.flat = (
    indexing.element,
    indexing.as_python,
    flat.Flat,
)
dispatch.whole, dispatch.plain_number = parameters.whole, parameters.plain_number
dispatch.key, dispatch.needs_plain = parameters.key, needs_plain
dispatch.put = scattering.put
dispatch.exhausted = exhausting.answer
dispatch.varying, dispatch.look = appended.made, appended.look
dispatch.has_traced = answering.has_traced
dispatch.as_operand, dispatch.stack = as_operand, joining.stack
lists.declare_all(FUNCTIONS)
answering.declare_all()  # what it has for some of the same names counts
polynomials.declare_all()
methods.declare_all()
mathematics.declare_all()
casting.declare_all()
vectorizing.declare_all()
iterating.declare_all()
windowing.declare_all()
compiled.declare_all()
identity.declare_all()
subclasses.declare_all()
arranging.declare_all()
applying.declare_all()
averages.declare_all()
