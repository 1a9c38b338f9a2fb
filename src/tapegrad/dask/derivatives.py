"""Derivatives of functions whose data come in parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tapegrad import api
from tapegrad import derivatives as whole
from tapegrad.core.request import describe
from tapegrad.dask.running import InParts
from tapegrad.errors import ArgumentError
from tapegrad.runtime.argnums import Argnums
from tapegrad.typing import Compile

Function = Callable[..., Any]
Over = str | Sequence[str]
Reduce = Literal["sum", "mean"]


def value_and_grad(
    loss: Function,
    argnums: Argnums = 0,
    *,
    over: Over,
    reduce: Reduce = "sum",
    plus: Function | None = None,
    rows: int | None = None,
    check: bool = True,
    compile: Compile = "always",
) -> InParts:
    """The value and the gradient of a loss whose data come in parts.

    For parts X_1, ..., X_m of n_1, ..., n_m rows, with n rows in total, the value is

        reduce="sum"     sum_k loss(params, X_k)            + plus(params)
        reduce="mean"    sum_k n_k / n loss(params, X_k)    + plus(params)

    Each part is one call of compiled code. The order of the sums depends only on the number of
    parts, so the result is the same bit for bit, whatever the schedule.

        >>> def loss(w, x, y):
        ...     return np.sum((x @ w - y) ** 2)
        >>> value, slope = value_and_grad(loss, over=("x", "y"))(w, X, Y)

    Parameters
    ----------
    loss : a function of NumPy arrays that returns a real scalar.
    argnums : as in `grad`. Arguments in parts are excluded: they have a gradient for each part, and
        none for all.
    over : the names of the arguments that come in parts. Each is a dask array, chunked along its
        first axis; an array in memory, memory-mapped, or of Zarr; a list of parts: arrays, delayed
        values, futures; or an iterable of parts, consumed as the workers become free. A part may
        be a tree of arrays. The parts of different arguments correspond row by row.
    reduce : "sum" or "mean": whether the loss is a sum or a mean over rows.
    plus : a penalty: a function of the other arguments, in the loss's order; it may take fewer. It
        is added once. Inside a summed loss it would count once for each part, which is an error.
    rows : the number of rows of a part, for arrays that no dask array or list divides; by default
        about 32 MB.
    check : whether the first call compares the loss of the first part with the losses of its
        halves, and with the loss of no rows.
    compile : as in `grad`. Compiled and played results may differ in the last digits.

    Other arguments are sent to each worker once, and again when they change. A
    `numpy.random.Generator` among them is spawned: part k gets the k-th child. Globals, closures
    and `self` are read at each call and sent too.

    Raises
    ------
    ArgumentError : the parts don't correspond, or the loss isn't a sum or a mean over rows.
    RandomnessError : the loss draws from a generator that isn't an argument.
    UnsupportedError : the loss leaves values in objects, or writes to its arguments.

    An error in a part is raised with a note that names the part, and the other parts are cancelled.
    """
    options = Options(over, reduce, plus, rows, check, compile)
    return _in_parts(api.value_and_grad, loss, argnums, options)


def grad(
    loss: Function,
    argnums: Argnums = 0,
    *,
    over: Over,
    reduce: Reduce = "sum",
    plus: Function | None = None,
    rows: int | None = None,
    check: bool = True,
    compile: Compile = "always",
) -> InParts:
    """The gradient of a loss whose data come in parts; see `value_and_grad`."""
    return _in_parts(api.grad, loss, argnums, Options(over, reduce, plus, rows, check, compile))


def hvp(
    loss: Function,
    argnums: Argnums = 0,
    *,
    over: Over,
    reduce: Reduce = "sum",
    plus: Function | None = None,
    rows: int | None = None,
    check: bool = True,
    compile: Compile = "always",
) -> InParts:
    """Hessian-vector products of a loss whose data come in parts.

    `hvp(loss, over=("x", "y"))(params, X, Y, v)` is sum_k H_k v, where H_k is the Hessian of part
    k, or the mean weighted by rows. The vector follows the loss's positional arguments. See
    `value_and_grad` for the parameters, and `tapegrad.hvp`."""
    options = Options(over, reduce, plus, rows, check, compile)
    return _in_parts(whole.hvp, loss, argnums, options, further=("the vector",))


def hessian(
    loss: Function,
    argnums: Argnums = 0,
    *,
    over: Over,
    reduce: Reduce = "sum",
    plus: Function | None = None,
    rows: int | None = None,
    check: bool = True,
    compile: Compile = "always",
) -> InParts:
    """The Hessian of a loss whose data come in parts: sum_k H_k, or the mean weighted by rows.

    See `value_and_grad` for the parameters, and `tapegrad.hessian`."""
    return _in_parts(
        whole.hessian, loss, argnums, Options(over, reduce, plus, rows, check, compile)
    )


def jacobian(
    f: Function,
    argnums: Argnums = 0,
    *,
    over: Over,
    rows: int | None = None,
    compile: Compile = "always",
) -> InParts:
    """The Jacobian of a function that returns one row for each row of its parts.

        J = [J_1; ...; J_m],    J_k = d f(params, X_k) / d params

    It is a dask array if an argument is one, otherwise a NumPy array. The first part is computed
    immediately, to determine the shape of the rows. See `value_and_grad` for the parameters, and
    `tapegrad.jacobian`."""
    options = Options(over, "rows", None, rows, False, compile)
    return _in_parts(whole.jacobian, f, argnums, options)


def jit(
    f: Function, *, over: Over, rows: int | None = None, compile: Compile = "always"
) -> InParts:
    """A compiled function that returns one row for each row of its parts: `[f(X_1); ...; f(X_m)]`.

    The result is a dask array if an argument is one, otherwise a NumPy array; see `jacobian`."""
    options = Options(over, "rows", None, rows, False, compile)
    return _in_parts(lambda g, _, compile: api.jit(g, compile=compile), f, (), options)


class Options(NamedTuple):
    """The options that all of these functions share."""

    over: Over
    reduce: str
    plus: Function | None
    rows: int | None
    check: bool
    compile: Compile


def _in_parts(
    make: Callable[..., Any],
    f: Function,
    argnums: Any,
    options: Options,
    further: Sequence[str] = (),
) -> InParts:
    over, reduce, plus, rows, check, compile = options
    derived = make(f, argnums, compile=compile)
    if not isinstance(over, (str, list, tuple)):
        raise ArgumentError(f"over is an argument's name, or a tuple of such, not {over!r}")
    over = (over,) if isinstance(over, str) else tuple(over)
    names = [*inspect.signature(f).parameters]
    each = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    wanted = [names[n] if isinstance(n, int) and -len(names) <= n < len(names) else n for n in each]
    for name in wanted:
        if name in over:
            raise ArgumentError(
                f"{derived.__name__}: argument {name!r} of {describe(f)} comes in parts, so there "
                "is a derivative for each part and none for all. Differentiate with respect to "
                "others"
            )
    penalty = None
    if plus is not None:
        others = [name for name in names if name not in over]
        at = tuple(others.index(name) for name in wanted)
        where = at if isinstance(argnums, (tuple, list)) else at[0]
        penalty = _penalty(plus, others, lambda g: make(g, where, compile=compile), further)
    return InParts(
        derived, over, reduce=reduce, plus=penalty, further=further, rows=rows, check=check
    )


def _penalty(
    plus: Function, names: Sequence[str], derived: Callable[..., Any], further: Sequence[str]
) -> Callable[[Mapping[str, Any]], Any]:
    """The derivative of the penalty, as a function of all other arguments by name."""
    parameters = inspect.signature(plus).parameters.values()
    taken = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if len(taken) > len(names):
        raise ArgumentError(
            f"plus={describe(plus)} takes {len(taken)} arguments, and {len(names)} don't come in "
            f"parts: {', '.join(names)}"
        )

    def penalty(*others: Any) -> Any:
        return plus(*others[: len(taken)])

    function = derived(penalty)
    return lambda given: function(*[given[name] for name in (*names, *further)])
