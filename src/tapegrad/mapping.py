"""The public function of many rows: `vmap`, which is no derivative, and takes any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegrad.elsewhere import explained
from tapegrad.errors import ArgumentError
from tapegrad.runtime.derived import derived
from tapegrad.runtime.mapped import Axes, VMap
from tapegrad.runtime.signatures import Signature, Vectorized
from tapegrad.typing import Compile

Function = Callable[..., Any]


@explained
def vmap(
    f: Function | None = None,
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    signature: str | None = None,
    compile: Compile = None,
) -> Any:
    """The function of many rows at once: what this loop computes, in one kernel.

        for k in range(n):
            y[k] = f(x[k], w)          y = vmap(f, in_axes=(0, None))(x, w)

    Any function of this library is taken, and takes it: `vmap(grad(f), in_axes=(None, 0))` has the
    gradient for each example.

        >>> vmap(lambda x: x @ x)(np.array([[1.0, 2.0], [3.0, 4.0]]))
        array([ 5., 25.])

    The function may go another way for each row: a row that takes another path through its Python
    code is traced by itself, up to 16 paths. Loops and conditionals stay as they are written.
    Random numbers are drawn anew at each call, row by row, as the loop would draw them. Where a row
    leaves something outside (`self.calls += 1`, `print`), meets what can't be compared, or draws
    and takes another path than others, rows are traced in turn, as the loop runs them: what they
    do is right, and takes a loop's time.

    With a signature as NumPy's generalised functions have one, the axes before those that it names
    broadcast over all arguments, as in `np.vectorize`, and each entry is a row:

        >>> dot = vmap(lambda a, b: a @ b, signature="(n),(n)->()")
        >>> dot(np.ones((4, 1, 3)), np.ones((5, 3))).shape
        (4, 5)

    Of no rows at all the result has the shapes and dtypes that those of a row say.

    Parameters
    ----------
    f : a function of one row, written with NumPy. Works as a decorator too.
    in_axes : the axis along which an argument has its rows, or None if it is the same for all of
        them: one for all positional arguments, or a tuple with one for each, which may be a tree
        that is a prefix of the argument: of dicts, tuples, dataclasses. Arguments that are passed
        by name have rows along axis 0. What is neither an array, nor a number, nor made of these,
        such as a string or a function, is the same for all rows, if no entry says a number for it.
    out_axes : the axis along which results have theirs: a number, or a tree that is a prefix of the
        result. None for a result that is the same for all rows.
    signature : the axes of one row's arguments and results, by names that stand for sizes, or as
        numbers. Then `in_axes` is 0, or a tuple with None for each argument that is passed whole
        and isn't in the signature, as those passed by name aren't; `out_axes` is 0.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    A function of arguments with rows; its results, in the structure of those of `f`, have rows.

    Raises
    ------
    ArgumentError : an argument has no such axis, numbers of rows differ, sizes aren't those of the
        signature; or there are no rows, and values decide what the function does.
    TraceError : rows give results of different shapes or structures, or take too many paths.
    """
    if signature is None:
        return derived(f, VMap(Axes(in_axes), Axes(out_axes)), compile)
    each = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,)
    if in_axes is None or any(axis not in (0, None) for axis in each) or out_axes != 0:
        raise ArgumentError(
            "vmap: with a signature in_axes is 0, or a tuple of 0 and None, and out_axes is 0: the "
            "signature says which axes a row has, and those before them have the rows"
        )
    return derived(f, Vectorized(Axes(in_axes), Signature.parsed(signature)), compile)
