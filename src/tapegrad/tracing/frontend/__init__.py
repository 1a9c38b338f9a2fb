"""The front end: implementations of functions of NumPy and other libraries on traced arrays.

Each is declared where it is written. The front end is as generous as NumPy: it normalises axes,
keeps dimensions, promotes dtypes and handles 0-d and 1-d cases, so that primitives can be
strict.
"""

from __future__ import annotations

from tapegrad.observe.answers.dispatch import dispatch
from tapegrad.observe.observer import note_root
from tapegrad.tracing.frontend.algebra import (  # noqa: F401  # for what they declare
    contracting,
    fourier,
    least_squares,
    linalg,
)
from tapegrad.tracing.frontend.axes import (  # noqa: F401
    nans,
    numerics,
    padding,
    quantiles,
    reducing,
    sorting,
)
from tapegrad.tracing.frontend.calling import iterators, object_arrays
from tapegrad.tracing.frontend.indexing import flat, indexing, writes
from tapegrad.tracing.frontend.numba import compiled
from tapegrad.tracing.frontend.numpy import (  # noqa: F401
    functions,
    methods,
    misc,
    polynomials,
    subclasses,
    undispatched,
    untraced,
)
from tapegrad.tracing.frontend.numpy.namespaces import namespace
from tapegrad.tracing.frontend.numpy.ufunc_cache import known_call, like_earlier
from tapegrad.tracing.frontend.operands import parameters
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.frontend.operands.operands import as_operand
from tapegrad.tracing.frontend.python import (
    appended_lists,
    averages,
    casting,
    consumers,
    draws,
    identity,
    integers,
    mathematics,
)
from tapegrad.tracing.frontend.shapes import joining, shaping, windowing
from tapegrad.tracing.outside.stored import at_the_time, end_derivative
from tapegrad.tracing.tracers.hashing import needs_plain

dispatch.namespace = namespace
dispatch.set_shape = shaping.set_shape
dispatch.draw, dispatch.seed = draws.draw, draws.seed
dispatch.clock = draws.read_clock
dispatch.root = note_root
dispatch.ask, dispatch.at_the_time = draws.ask, at_the_time
dispatch.end_derivative = end_derivative
dispatch.known, dispatch.again = known_call, like_earlier
dispatch.function = untraced.door(functions.call_function)
dispatch.methods = METHODS
dispatch.element, dispatch.number, dispatch.flat = (
    indexing.element,
    indexing.as_python,
    flat.Flat,
)
dispatch.whole, dispatch.plain_number = parameters.whole, parameters.plain_number
dispatch.key, dispatch.needs_plain = parameters.key, needs_plain
dispatch.put = writes.put
dispatch.exhausted = consumers.answer
dispatch.varying, dispatch.look = appended_lists.made, appended_lists.look
dispatch.has_traced = undispatched.has_traced
dispatch.as_operand, dispatch.stack = as_operand, joining.stack
functions.declare_all()
undispatched.declare_all()  # its rows for some of the same names take precedence
polynomials.declare_all()
methods.declare_all()
mathematics.declare_all()
integers.declare_all()
casting.declare_all()
object_arrays.declare_all()
iterators.declare_all()
windowing.declare_all()
compiled.declare_all()
identity.declare_all()
subclasses.declare_all()
averages.declare_all()
