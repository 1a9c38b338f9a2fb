"""What is derived of functions whose data come in parts."""

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

    With parts X_1, ..., X_m of n_1, ..., n_m rows, n together, it is

        reduce="sum"     sum_k loss(params, X_k)            + plus(params)
        reduce="mean"    sum_k n_k / n loss(params, X_k)    + plus(params)

    and the gradient of that. Each part is one call of compiled code. Sums are taken in an order
    that depends on the number of parts alone, so the bits are the same whatever the workers did.

        >>> def loss(w, x, y):
        ...     return np.sum((x @ w - y) ** 2)
        >>> value, slope = value_and_grad(loss, over=("x", "y"))(w, X, Y)

    Parameters
    ----------
    loss : a function of NumPy arrays that returns a real scalar.
    argnums : as of `grad`. An argument in parts has a gradient for each part and none for all, so
        it can't be one of these.
    over : the names of the arguments that come in parts. Each is a dask array, chunked along its
        first axis; an array in memory, mapped, or of Zarr; a list of parts: arrays, delayed values,
        futures; or an iterable of parts, which are taken as the workers get to them. A part may be
        a tree of arrays. The parts of different arguments belong together, row by row.
    reduce : whether the loss is a sum over rows or a mean.
    plus : a penalty: a function of the other arguments, in the loss's order, as many as it takes.
        It is added once. In a loss that is a sum it would count once for each part, which is an
        error.
    rows : how many rows a part of an array has that nothing else cuts; else some 32 MB.
    check : whether the first call holds the loss of the first part against that of its halves and
        that of no rows.
    compile : as of `grad`. What is compiled and what is played may differ in last digits.

    Other arguments go to each worker, and again only when they have changed. A
    `numpy.random.Generator` among them is spawned: part k gets the k-th child. What the loss
    reaches besides, globals and closures and `self`, is read at each call and goes along.

    Raises
    ------
    ArgumentError : parts don't belong together, or the loss isn't a sum or a mean over rows.
    RandomnessError : the loss draws from a generator that isn't an argument.
    UnsupportedError : the loss leaves values in objects, or writes to its arguments.
    What a part raises is raised, with a note that says which part it was, and the rest is given up.
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
    """Products of the Hessian of a loss whose data come in parts with vectors.

    `hvp(loss, over=("x", "y"))(params, X, Y, v)` is sum_k H_k v with H_k that of part k, or the
    mean by rows. The vector stands behind the loss's positional arguments. See `value_and_grad` for
    the parameters, and `tapegrad.hvp`."""
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
    """The Hessian of a loss whose data come in parts: sum_k H_k, or the mean by rows. See
    `value_and_grad` for the parameters, and `tapegrad.hessian`."""
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
    """The Jacobian of a function that gives a row for each row of its parts.

        J = [J_1; ...; J_m],    J_k = d f(params, X_k) / d params

    It is a dask array if an argument is one, and a NumPy array otherwise. The first part is
    computed at once, since it says how long the rows are. See `value_and_grad` for the parameters,
    and `tapegrad.jacobian`."""
    options = Options(over, "rows", None, rows, False, compile)
    return _in_parts(whole.jacobian, f, argnums, options)


def jit(
    f: Function, *, over: Over, rows: int | None = None, compile: Compile = "always"
) -> InParts:
    """A function that gives a row for each row of its parts, compiled: `[f(X_1); ...; f(X_m)]`.

    It is a dask array if an argument is one, and a NumPy array otherwise; see `jacobian`."""
    options = Options(over, "rows", None, rows, False, compile)
    return _in_parts(lambda g, _, compile: api.jit(g, compile=compile), f, (), options)


class Options(NamedTuple):
    """What all of these functions take."""

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
    """What is derived of a function of the other arguments, of all of them by name."""
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
