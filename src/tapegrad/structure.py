"""Sparse Jacobians and Hessians, their structure, and derivatives as linear operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.core.frames import short_traceback
from tapegrad.core.late import LINEAR_MAPS, load
from tapegrad.core.request import Request
from tapegrad.derivatives import vjp
from tapegrad.elsewhere import explained
from tapegrad.errors import ArgumentError, RandomnessError
from tapegrad.runtime.argnums import Argnums, checked_argnums
from tapegrad.runtime.checks import checked_checkpoint, checked_mode
from tapegrad.runtime.derived import Derived, derived
from tapegrad.typing import Checkpoint, Compile

Function = Callable[..., Any]

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def _checked(format: str) -> str:
    if format not in FORMATS:
        raise ArgumentError(f"format is one of {', '.join(FORMATS)}, not {format!r}")
    return format


@explained
def sparse_jacobian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    mode: str = "auto",
    holomorphic: bool = False,
    format: str = "csr",
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The Jacobian of a function as a sparse matrix.

    Its structure is that of the program: which element of the value is computed from which of the
    argument. Columns that have no row in common get one colour, and one pass has the entries of all
    of them, so a stencil of five points takes some five passes, whatever the size of the grid.

        >>> sparse_jacobian(lambda x: x[1:] - x[:-1])(np.zeros(4)).toarray()
        array([[-1.,  1.,  0.,  0.],
               [ 0., -1.,  1.,  0.],
               [ 0.,  0., -1.,  1.]])

    Parameters
    ----------
    f : a function written with NumPy. It may return arrays nested as you like. Works as a decorator
        too.
    argnums : the argument, by its number or its name, or a tuple of them, as in `grad`.
    has_aux : `f` returns `(value, aux)`; the result is then `(jacobian, aux)`.
    mode : "forward", by colours of columns; "reverse", by colours of rows; "auto", either or both.
    holomorphic : as in `jacobian`: `f` is holomorphic, and this is its complex Jacobian. Without it
        either arguments or values are real, and the entries what `jacobian` has.
    format : of the result: "csr", or another of `scipy.sparse`.
    compile, checkpoint : as in `grad`.

    Returns
    -------
    A function of the arguments of `f`. Its result is a `scipy.sparse` array with a row for each
    element of the value and a column for each element of the argument, each flattened, and its
    leaves one after the other. An entry may be stored that is 0; none is missing. Structure and
    colours are made once for arguments of one kind, and for what is in arrays of integers.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    from tapegrad.runtime.sparse import SparseJacobian

    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(f'mode is "auto", "forward" or "reverse", not {mode!r}')
    kept = checked_checkpoint(checkpoint)
    found = SparseJacobian(
        checked_argnums(argnums), has_aux, kept, mode, holomorphic, _checked(format)
    )
    return derived(f, found, compile)


@explained
def sparse_hessian(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    format: str = "csr",
    compile: Compile = None,
    checkpoint: Checkpoint = "auto",
) -> Any:
    """The Hessian of a scalar function as a sparse matrix.

    As `sparse_jacobian`, of the gradient. The matrix is symmetric, so an entry may be found in the
    row of either of its indices, which takes fewer colours (star and acyclic colouring; A.
    Gebremedhin, F. Manne and A. Pothen, "What color is your Jacobian?", 2005).

        >>> sparse_hessian(lambda x: np.sum(x[1:] * x[:-1]))(np.zeros(3)).toarray()
        array([[0., 1., 0.],
               [1., 0., 1.],
               [0., 1., 0.]])

    Parameters
    ----------
    f : a function as `grad` takes it, of real numbers. Works as a decorator too.
    argnums, has_aux : as in `hessian`.
    format : of the result: "csr", or another of `scipy.sparse`.
    compile, checkpoint : as in `grad`.

    Returns
    -------
    A function of the arguments of `f`. Its result is a `scipy.sparse` array with a row and a column
    for each element of the argument, flattened, and its leaves one after the other.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    from tapegrad.runtime.sparse import SparseHessian

    kept = checked_checkpoint(checkpoint)
    found = SparseHessian(checked_argnums(argnums), has_aux, kept, format=_checked(format))
    return derived(f, found, compile)


def _traced(f: Function, args: tuple[Any, ...], what: str) -> tuple[Any, Any, list[list[int]]]:
    """The trace of a call, the values of its integers by their inputs' numbers, and the numbers of
    each argument's inputs that are real."""
    import numpy as np

    from tapegrad.core.trees import flatten, is_traced
    from tapegrad.runtime.traced import traced as made
    from tapegrad.tracing.runs.traced import plain_value

    request = Request(f, args).check(what)
    traced = made(request, lambda found: found)
    values = [plain_value(x) for x in (*request.inputs, *traced.captured)]
    known = {k: x for k, x in enumerate(values) if np.asarray(x).dtype.kind in "iub"}
    numbers = iter(range(len(values)))
    groups = [[next(numbers) for x in flatten(arg)[0] if is_traced(x)] for arg in args]
    return traced, known, [[k for k in group if k not in known] for group in groups]


@short_traceback
def jacobian_sparsity(f: Function, *args: Any) -> Any:
    """Which element of the value of `f(*args)` may depend on which element of the arguments.

        >>> jacobian_sparsity(lambda x: x[1:] * x[:-1], np.zeros(3)).toarray()
        array([[ True,  True, False],
               [False,  True,  True]])

    Parameters
    ----------
    f : a function written with NumPy.
    args : its positional arguments, nested as you like.

    Returns
    -------
    A Boolean `scipy.sparse.csr_array` with a row for each real element of the value and a column
    for each of the arguments, flattened, leaves one after the other. Where there is no entry the
    derivative is 0, for all values of real arguments, as long as the function takes the same path;
    integers have the values that were passed. Where there is one it may be 0.

    Raises
    ------
    ArgumentError, TraceError : as `trace` does.
    """
    from tapegrad.optimize.inline import inline_calls
    from tapegrad.sparsity.pattern import pattern

    traced, known, groups = _traced(f, args, "jacobian_sparsity")
    tape = traced.tape
    rows = [at for at in traced.outputs if at is not None and tape.outputs[at].dtype.kind in "fc"]
    return pattern(inline_calls(tape), [k for group in groups for k in group], rows, known)


@short_traceback
def depends(f: Function, *args: Any) -> Any:
    """How the value of `f(*args)` depends on each argument: as which polynomial, if as one.

        >>> depends(lambda x, y, z: (2 * x + np.sin(z), x * y), 1.0, 2.0, 3.0)
        (('linear', 'not', 'general'), ('linear', 'linear', 'not'))

    Parameters
    ----------
    f : a function written with NumPy.
    args : its positional arguments, nested as you like.

    Returns
    -------
    In the structure of the value, for each leaf a tuple with a word for each argument, all others
    held fixed: "not", "linear" (with a constant beside it, too), "quadratic", or "general", which
    is also what nothing is known of.

    Raises
    ------
    ArgumentError, TraceError : as `trace` does.
    """
    from tapegrad.core.trees import unflatten
    from tapegrad.optimize.inline import inline_calls
    from tapegrad.sparsity.degrees import WORDS, degrees

    traced, _, groups = _traced(f, args, "depends")
    found = degrees(inline_calls(traced.tape), groups)
    none = ("not",) * len(args)
    leaves = [
        none if at is None else tuple([WORDS[degree] for degree in found[at]])
        for at in traced.outputs
    ]
    return unflatten(traced.structure, leaves)


@explained
def as_linear_operator(f: Function, *args: Any, compile: Compile = None) -> Any:
    """The Jacobian of `f` at its arguments as a `scipy.sparse.linalg.LinearOperator`.

    Products are passes of forward mode, those of the adjoint J^H of reverse mode, two each where
    complex vectors meet real numbers; the matrix is never formed. Of a gradient it is the Hessian:
    `as_linear_operator(grad(f), x)`.

        >>> J = as_linear_operator(lambda x: x**2, np.array([1.0, 2.0]))
        >>> J @ np.array([1.0, 10.0]), J.T @ np.array([1.0, 0.0])
        (array([ 2., 40.]), array([2., 0.]))

    Parameters
    ----------
    f : a function written with NumPy. It may return arrays nested as you like. One of complex
        numbers has to be holomorphic there, which is checked.
    args : its positional arguments, nested as you like.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    A linear operator with a row for each element of the value and a column for each real or complex
    element of the arguments, flattened, leaves one after the other. It holds what it needs of the
    arguments.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `jvp` and `vjp` do.
    RandomnessError : `f` draws random numbers, and it is run once for J and once for J^T.
    """
    load(LINEAR_MAPS)
    import numpy as np
    from scipy.sparse.linalg import LinearOperator

    from tapegrad.core.request import describe, is_differentiable
    from tapegrad.core.trees import flatten
    from tapegrad.runtime.operators import Products, Side
    from tapegrad.runtime.pullback import Pushing, both_maps
    from tapegrad.tracing.recording.trace import tracing_depth
    from tapegrad.tracing.runs.traced import input_aval

    pull: Any
    if tracing_depth():  # one run, whose draws are the same for both
        value, push, pull = both_maps(f, args)
    else:
        pushing = Derived(f, Pushing(checked_mode(compile)), compile)
        value, push = pushing(*args)
        variants = pushing.cache.all_variants()[:1]  # the one that has just answered
        if any(x.traced.draws is not None and x.traced.draws.random for x in variants):
            raise RandomnessError(
                f"as_linear_operator of {describe(f)}: it draws random numbers, and is run once "
                "for products with J and once for those with J.T, which would be of other numbers. "
                "Draw them outside, and pass them"
            )
        _, pull = vjp(f, *args, compile=compile)
    leaves, structure = flatten(args)
    results, of_value = flatten(value)
    ins = [x if is_differentiable(x) else None for x in leaves]
    outs = [y if is_differentiable(y) else None for y in results]
    for side, what in ((ins, "argument"), (outs, "value")):
        if all(x is None for x in side):
            raise ArgumentError(
                f"as_linear_operator of {describe(f)}: no {what} is a real or complex number, or "
                "an array of such. Others have no derivative: convert integers to float64"
            )

    products = Products(Side(ins, structure), Side(outs, of_value), push, pull)
    products.check_holomorphic(f"as_linear_operator of {describe(f)}")
    shape = tuple(sum(np.size(x) for x in side if x is not None) for side in (outs, ins))
    dtype = np.result_type(*[input_aval(x).dtype for x in (*ins, *outs) if x is not None])
    return LinearOperator(shape, matvec=products.matvec, rmatvec=products.rmatvec, dtype=dtype)
