"""Loops that are written as such: their body is traced once, however many rounds there are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

from tapegrad.core.frames import short_traceback
from tapegrad.errors import ArgumentError
from tapegrad.typing import C, T


@short_traceback
def scan(
    f: Callable[[C, Any], tuple[C, Any]],
    init: C,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[C, Any]:
    """A loop that carries values from round to round, and stacks what each round returns.

        carry = init
        for t in range(length):
            carry, ys[t] = f(carry, xs[t])

    It computes what this loop does, and outside of `grad`, `jit` and the like it is this loop. In
    them `f` is traced for one round, and the tape holds a loop: its length, and the time that
    tracing and compiling take, don't depend on the number of rounds. `f` is called twice then, or a
    few times more where types change, to see that it does the same each time; what else it does,
    such as printing, is done as often.

        >>> scan(lambda total, x: (total + x, total * x), 0.0, np.array([1.0, 2.0, 3.0]))
        (np.float64(6.0), array([0., 2., 9.]))

    Parameters
    ----------
    f : a function written with NumPy, of what is carried and of an entry, that returns a pair: what
        is carried on, and a result or None. It may use arrays and traced values around it. It must
        do the same in each round: where it branches on a value, that must go the same way in all
        of them (`np.where` chooses for each), and it must not count its calls or go through an
        iterator. What it writes to what is carried stays its own; an entry can't be written to.
    init : what is carried into the first round: arrays and numbers, nested as you like.
    xs : arrays, nested as you like, all with `length` entries along their first axis. None passes
        None to `f`.
    length : the number of rounds; it may be left out where `xs` tells it.
    reverse : go through the entries from the last to the first. Results stay with their entries.

    Returns
    -------
    What is carried after the last round, of the structure of `init`; and what the rounds returned,
    leaf by leaf stacked along a new first axis. Both are new arrays, differentiable to any order.

    Shapes and dtypes are those of the plain loop. What is carried may change them in the first four
    rounds, as where an integer becomes a float, and then keeps them. Without rounds `init` is what
    comes out, beside stacks of no entries, whose types are found by calling `f` with ones.

    Raises
    ------
    ArgumentError : nothing tells the number of rounds, or two numbers; `f` doesn't return a pair;
        what is carried changes its structure, or its shape or dtype from round to round; results
        can't be stacked.
    TraceError : in a trace, the rounds don't do the same; the message names the line.
    """
    found: tuple[C, Any] = _scan(f, init, xs, length, reverse, "scan")
    return found


def range(*numbers: Any) -> Any:
    """Python's `range`, for a `for` statement that is a loop however short it is.

        for t in range(n):
            h = f(h, x[t])
            y[t] = h

    It computes what Python's loop does, and outside of `grad`, `jit` and the like it is Python's
    range. In them it is what Python's range is, too: the statement makes its round twice, or a few
    times more where types change, and the tape holds a loop, so what tracing takes doesn't depend
    on the number of rounds. What the variables hold after a round is carried into the next one:
    traced arrays and numbers, also those in lists, tuples and dicts, and arrays that are written
    to. A short loop over Python's range is unrolled, as code is faster then; one over this isn't.

        >>> def decay(x):
        ...     for t in range(1, 1000):
        ...         x = x - x / (10.0 * t)
        ...     return x
        >>> grad(decay)(1.0) == decay(1.0)
        True

    Parameters
    ----------
    numbers : what Python's `range` takes: a number of rounds, or start, stop and a step.

    Returns
    -------
    In a trace, what a `for` statement goes through. The loop's variable is a traced integer: it is
    computed with, and indexes traced arrays and plain ones in the function's own variables. Where a
    round changes anything but these and traced arrays (a list, an attribute, a counter elsewhere),
    or the rounds don't do the same, each of them is run once, as in Python's loop.
    """
    import builtins

    from tapegrad.tracing.recording.trace import current_trace

    found = builtins.range(*numbers)
    if current_trace() is None:
        return found
    from tapegrad.tracing.statements.for_statement import LoopRange

    return LoopRange(found)


@short_traceback
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """The results of a function of each entry along the first axis, stacked.

        for t in range(len(xs)):
            ys[t] = f(xs[t])

    It is a `scan` that carries nothing: the tape of a traced function holds `f` once.

        >>> map(lambda a: np.trace(a @ a), np.ones((2, 3, 3)))
        array([9., 9.])

    Parameters
    ----------
    f : a function written with NumPy, of an entry; what `scan` says of its function holds.
    xs : arrays, nested as you like, with equally many entries along their first axis.

    Returns
    -------
    What `f` returned, leaf by leaf stacked along a new first axis.

    Raises
    ------
    ArgumentError : there is no array in `xs`, their lengths differ, or results can't be stacked.
    TraceError : in a trace, `f` doesn't do the same for all entries; the message names the line.
    """
    return _scan(f, (), xs, None, False, "map")[1]


@short_traceback
def while_loop(
    cond: Callable[[C], Any], body: Callable[[C], C], init: C, max_rounds: int | None = None
) -> C:
    """A loop that runs while a condition holds.

        carry = init
        while cond(carry):
            carry = body(carry)

    It computes what this loop does, and outside of `grad`, `jit` and the like it is this loop. In
    them `body` and `cond` are traced for one round, and each call makes as many rounds as it needs.
    It is differentiated through the rounds that were made.

        >>> while_loop(lambda x: x < 100, lambda x: x**2, 3.0)
        6561.0

    Parameters
    ----------
    cond : a function of what is carried that returns one truth value.
    body : a function of what is carried that returns what is carried on. Both are written with
        NumPy, and what `scan` says of its function holds for both: use `&` or `np.logical_and` in
        the place of `and`.
    init : what is carried into the first round: arrays and numbers, nested as you like.
    max_rounds : how many rounds there are at the most; that many are an error if the condition
        still holds. The derivative makes room for so many. Without it there is room for up to twice
        the rounds of the first call, and a call that needs more is traced anew.

    Returns
    -------
    What is carried when the condition no longer holds, of the structure of `init`: new arrays,
    differentiable to any order. Of shapes and dtypes holds what `scan` says.

    Raises
    ------
    ArgumentError : the condition isn't one truth value; what is carried changes its structure, or
        its shape or dtype from round to round.
    TraceError : the condition holds after `max_rounds`; or, in a trace, the rounds don't do the
        same. The message names the line.
    """
    from tapegrad.observe.answers.answers import compiled_as_called as called
    from tapegrad.tracing.loops.while_loop import while_loop as run

    for f in (cond, body):
        if not callable(f):
            raise ArgumentError(f"while_loop needs functions, not {f!r}")
    found: C = run(called(cond), called(body), init, max_rounds)
    return found


@short_traceback
def cond(pred: Any, true_fn: Callable[..., T], false_fn: Callable[..., T], *operands: Any) -> T:
    """A conditional: of two functions one is called.

        true_fn(*operands) if pred else false_fn(*operands)

    It computes this, and outside of `grad`, `jit` and the like it is this. In them both functions
    are traced, and the tape holds a conditional: where the condition comes out otherwise, in
    another call or in another round of a loop, no new trace is made. Only the function that is
    called takes time, and the derivative is its derivative alone, also where the other has none:

        >>> f = grad(lambda x: cond(x > 0, lambda x: np.sqrt(x), lambda x: 0.0 * x, x))
        >>> f(4.0), f(0.0)
        (0.25, 0.0)

    `np.where` computes both, for each element.

    Parameters
    ----------
    pred : one truth value: a boolean, a number, or an array of one element.
    true_fn, false_fn : functions written with NumPy, of the operands. They may use arrays and
        traced values around them, and can't write to these or to the operands. In a trace both are
        called, so what they do besides returning a result, such as counting, is done by both.
    operands : what both are passed: arrays and numbers, nested as you like.

    Returns
    -------
    What the function returns. Both return the same structure, shapes and dtypes; a number of
    Python's takes the dtype of NumPy's number in its place, and a Python int becomes a float where
    the other function returns one. Arrays are new ones, differentiable to any order.

    The function that isn't called is traced with values that it isn't meant for, which may decide
    nothing. If it branches on one of them (`if x > 0`, `while`, `range(n)`), raises an error, or
    holds a `while_loop` without `max_rounds`, the conditional is what `if` is: another outcome is a
    new trace, and in the functions of `scan`, `map` and `while_loop` all rounds must have the same.

    Raises
    ------
    ArgumentError : the condition isn't one truth value; what the functions return differs in
        structure, shape or dtype.
    """
    from tapegrad.observe.answers.answers import compiled_as_called as called
    from tapegrad.tracing.branches.cond import cond as run

    for f in (true_fn, false_fn):
        if not callable(f):
            raise ArgumentError(f"cond needs functions, not {f!r}")
    found: T = run(pred, (called(true_fn), called(false_fn)), operands)
    return found


@overload
def checkpoint(f: Callable[..., T], *, keep: str | Sequence[str] = ()) -> Callable[..., T]: ...
@overload
def checkpoint(
    f: None = None, *, keep: str | Sequence[str] = ()
) -> Callable[[Callable[..., T]], Callable[..., T]]: ...
def checkpoint(f: Callable[..., T] | None = None, *, keep: str | Sequence[str] = ()) -> Any:
    """A part of a program whose inside isn't kept for the derivative.

    `checkpoint(f)` computes what `f` does. Where reverse mode goes through it, what `f` computes on
    the way isn't kept: `f` runs once more when the derivative comes to it, on what it was passed.
    So n layers of m bytes each, of which each is such a part, take the memory of one layer and what
    is passed between them, and the values are computed twice (T. Chen et al., "Training deep nets
    with sublinear memory cost", 2016).

        >>> layer = checkpoint(lambda x, w: np.tanh(np.sin(x * w)))
        >>> grad(lambda w: np.sum(layer(np.ones(2), w)))(0.0)
        np.float64(2.0)

    What takes long and little memory may be kept: `keep` has the names of values that aren't
    computed again, which `checkpoint_name` gives them. What leads to them alone isn't either.

    For loops see `checkpoint=` of `grad`, for all of a gradient its `max_bytes=`.

    Parameters
    ----------
    f : a function written with NumPy, of arrays and numbers nested as you like. It may use arrays
        and traced values around it, and can't write to these or to its arguments. Works as a
        decorator too, on functions and on methods.
    keep : a name, or names, of values that are kept.

    Returns
    -------
    A function of the same arguments. Outside of `grad`, `jit` and the like it is `f`. It may be
    differentiated again, in both modes.

    Raises
    ------
    ArgumentError : `f` isn't a function, or what it returns isn't made of arrays and numbers; or no
        value in it has a name that is to be kept.
    UnsupportedError : in a trace, `f` writes to an argument.
    """
    from tapegrad.observe.answers.answers import compiled_as_called as called

    names = (keep,) if isinstance(keep, str) else tuple(keep)
    if not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"checkpoint: keep has the names of values, and not {keep!r}")
    if f is None:
        return functools.partial(checkpoint, keep=names)
    if not callable(f):
        raise ArgumentError(f"checkpoint needs a function, not {f!r}")

    @functools.wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> T:
        from tapegrad.tracing.branches.checkpoint import checkpoint as run

        found: T = run(called(f), args, kwargs, names)
        return found

    return checkpointed


def checkpoint_name(x: T, name: str) -> T:
    """`x` itself, by a name that `checkpoint(f, keep=...)` keeps it by.

        >>> @checkpoint(keep="h")
        ... def layer(x, w):
        ...     h = checkpoint_name(x @ w, "h")
        ...     return np.tanh(h) * np.sin(h)
        >>> grad(lambda w: np.sum(layer(np.eye(2), w)))(np.zeros((2, 2)))
        array([[0., 0.],
               [0., 0.]])

    Of this layer the derivative keeps the product, and computes the rest again.

    Parameters
    ----------
    x : arrays, numbers, and nested structures of them.
    name : what they are called, all of them.

    Returns
    -------
    The same structure with the same values; arrays are new ones.

    Raises
    ------
    ArgumentError : the name isn't a string.
    """
    from tapegrad.tracing.branches.checkpoint import named

    if not isinstance(name, str):
        raise ArgumentError(f"checkpoint_name: a name is a string, not {name!r}")
    found: T = named(x, name)
    return found


def _scan(f: Any, init: Any, xs: Any, length: Any, reverse: bool, what: str) -> Any:
    from tapegrad.observe.answers.answers import compiled_as_called as called
    from tapegrad.tracing.loops.scan import scan as run

    if not callable(f):
        raise ArgumentError(f"{what} needs a function, not {f!r}")
    return run(called(f), init, xs, length, reverse, what)
