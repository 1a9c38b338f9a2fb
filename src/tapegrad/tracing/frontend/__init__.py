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
from tapegrad.tracing.frontend.calling import iterating, vectorizing
from tapegrad.tracing.frontend.indexing import flat, indexing, scattering
from tapegrad.tracing.frontend.numba import compiled
from tapegrad.tracing.frontend.numpy import (  # noqa: F401
    answering,
    constants,
    functions,
    methods,
    misc,
    polynomials,
    subclasses,
)
from tapegrad.tracing.frontend.numpy.known import known_call, like_earlier
from tapegrad.tracing.frontend.numpy.namespaces import namespace
from tapegrad.tracing.frontend.operands import parameters
from tapegrad.tracing.frontend.operands.declaring import METHODS
from tapegrad.tracing.frontend.operands.operands import as_operand
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
from tapegrad.tracing.tracers.hashing import needs_plain

dispatch.namespace = namespace
dispatch.set_shape = shaping.set_shape
dispatch.draw, dispatch.seed = draws.draw, draws.seed
dispatch.clock = draws.read_clock
dispatch.root = note_root
dispatch.ask, dispatch.at_the_time = draws.ask, at_the_time
dispatch.end_derivative = end_derivative
dispatch.known, dispatch.again = known_call, like_earlier
dispatch.function = constants.door(functions.call_function)
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
functions.declare_all()
answering.declare_all()  # its rows for some of the same names take precedence
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
averages.declare_all()
