"""The public functions: they check arguments and call the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, Unpack, overload

from tapegrad.core.frames import short_traceback
from tapegrad.elsewhere import explained
from tapegrad.errors import ArgumentError
from tapegrad.ir.tape import Tape
from tapegrad.runtime.argnums import Argnums, checked_argnums
from tapegrad.runtime.checks import checked_bytes, checked_checkpoint, checked_mode
from tapegrad.runtime.derived import derived
from tapegrad.runtime.keyed import Key
from tapegrad.runtime.output_places import placed
from tapegrad.runtime.transformations import Changed, Gradient, Jit, ValueAndGradient
from tapegrad.runtime.watched import Debug
from tapegrad.typing import (
    A,
    Checkpoint,
    Compile,
    Differentiable,
    Differentiating,
    DifferentiatingFirst,
    Jitting,
    Options,
    P,
    R,
    StandAlone,
    T,
    Ts,
    Valuing,
    ValuingFirst,
    X,
)
from tapegrad.typing import Derived as DerivedOf

Function = Callable[..., Any]


@overload  # mypy would lose the parameters of `grad(grad(f))` in what comes next
def grad(f: DerivedOf[P, R], **options: Unpack[Options]) -> DerivedOf[P, Any]: ...
@overload
def grad(
    f: Differentiable[P, A, Any],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    **options: Unpack[Options],
) -> DerivedOf[P, A]: ...
@overload
def grad(
    f: Differentiable[P, A, tuple[Any, X]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    **options: Unpack[Options],
) -> DerivedOf[P, tuple[A, X]]: ...
@overload
def grad(
    f: Callable[P, Any], argnums: Argnums, has_aux: bool = False, **options: Unpack[Options]
) -> DerivedOf[P, Any]: ...
@overload
def grad(
    f: None = None,
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    **options: Unpack[Options],
) -> DifferentiatingFirst: ...
@overload
def grad(
    f: None = None, argnums: Argnums = 0, has_aux: bool = False, **options: Unpack[Options]
) -> Differentiating: ...
@explained
def grad(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: str | None = None,
    checkpoint: str | int = "auto",
    max_bytes: int | None = None,
    out: Any = None,
    key: Key | None = None,
    debug: Debug = False,
) -> Any:
    """The gradient of a scalar function of arrays, as a function of the same arguments.

    `grad(f)(x, ...)` is df/dx, with the structure of `x`: an array for an array, a dict of arrays
    for a dict, and so on through lists, tuples, named tuples and dataclasses. Shapes and dtypes are
    those of the arguments.

        >>> grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
        array([2., 4.])

    What is derived is kept with `f`, so `grad(f)` may be written where it is called. It may be
    differentiated again, and be called from several threads.

    Leaves that have no derivative (integers, booleans, strings, objects) may stand beside others:
    the gradient has None in their places.

    Parameters
    ----------
    f : a function written with NumPy that returns a real scalar, or an array of one element. Works
        as a decorator too.
    argnums : the argument to differentiate with respect to, by its number or its name; a tuple of
        them gives a tuple of gradients. One that is named may be passed either way, or not be
        passed: then the derivative is taken at its default.
    has_aux : `f` returns `(value, aux)`; the result is then `(gradient, aux)`.
    compile : "auto" plays the tape with NumPy until compiling pays, "always" compiles at the first
        call, "never" only plays and doesn't load numba. If it is left out, it is what `set_compile`
        or the environment's TAPEGRAD_COMPILE says, and else "auto".
    checkpoint : what each loop keeps for its derivative. Of n rounds whose derivative needs m bytes
        each, with s bytes carried from round to round (s <= m):
          "never" keeps all, n m bytes;
          "sqrt" keeps s of each of root n segments and runs the rounds of one again when it comes
            to it: root n (s + m) bytes, and n rounds more;
          an integer k keeps what is carried into k rounds, k s + m bytes, and runs as few rounds
            again as can be (Griewank and Walther's "revolve"): with r the least number for which
            C(k + r, k) >= n, no more than r n - C(k + r, k + 1) + 1 in all. So 10 checkpoints do
            for 3,003 rounds, each run 4.5 times; 1,000 for a million, run 2.5 times;
          "auto" keeps all if that takes no more than 256 MB, and else is "sqrt".
        Gradients are the same up to rounding. Loops in the rounds of loops keep as many each.
        What is differentiated again keeps more: a gradient's own loops are differentiated then.
    max_bytes : how much memory a call takes at a time, in bytes, at most, beside its arguments and
        results: what is kept between the passes forwards and back, cotangents and temporaries.
          compile="always" counts all that compiled code allocates;
          compile="never" what NumPy's calls return, each until it is read last;
          compile="auto" is played first and compiled later, so both have to fit.
        What doesn't fit is computed again, once, just before it is read. What takes least time is
        chosen (by minimum cuts, and of loops also by checkpoints) of what was found to fit; each
        choice is planned, none is run. Gradients are the same, compiled up to the order of sums.
        Not counted are what NumPy, LAPACK and your own functions need in one call (an array or
        two), tracing, and a compiled call that is played because a guard fails. In another
        derivative it is planned by itself. `tapes[0].memory_report()` says what is taken.
    out : arrays of the caller's, put together as the gradient, of the same shapes and dtypes. Each
        call writes the gradient into them, compiled code at once where it can, and returns them.
        They share memory with nothing that the function reads; each thread needs its own.
    key : a function of the same arguments, whose value, which has to be hashable, tells calls
        apart: those of each value have tapes and machine code of their own, beside guards, which
        hold as ever. Calls that alternate between many paths find theirs at once so, and don't push
        out each other's. It is called at each call, but not in a function that is traced.
    debug : True plays the tape call by call. If the result is NaN or infinite, or NaN decides an
        `if`, `NotFiniteError` has the first value or cotangent that it is made of: line, operands,
        rounds. A function is called with each value, a `Finding`. See docs/doing.md.

    Returns
    -------
    A function of the arguments of `f`, with `cache_info()`, `clear_cache()` and the `tapes` held.

    Raises
    ------
    ArgumentError : no leaf of an argument can be differentiated (integers, strings, objects), or
        there is no such `checkpoint`, or more than `max_bytes` is needed; it says how much.
    GradientError : the result isn't a real scalar, or a primitive has no rule.
    TraceError : the function did what a trace can't follow; the message names the line.

    At kinks (`abs` and `norm` at 0, ties of `max`, bounds of `clip`) the result is a documented
    convention; see docs/conventions.md.
    """
    kept, most = checked_checkpoint(checkpoint), checked_bytes(max_bytes)
    compile = checked_mode(compile)
    made = Gradient(checked_argnums(argnums), has_aux, kept, max_bytes=most, compile=compile)
    return placed(f, made, compile, out, 0 if has_aux else None, key, debug)


@overload
def value_and_grad(
    f: DerivedOf[P, R], **options: Unpack[Options]
) -> DerivedOf[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    f: Differentiable[P, A, R],
    argnums: Literal[0] = 0,
    has_aux: bool = False,
    **options: Unpack[Options],
) -> DerivedOf[P, tuple[R, A]]: ...
@overload
def value_and_grad(
    f: Callable[P, R], argnums: Argnums, has_aux: bool = False, **options: Unpack[Options]
) -> DerivedOf[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    f: None = None, argnums: Literal[0] = 0, has_aux: bool = False, **options: Unpack[Options]
) -> ValuingFirst: ...
@overload
def value_and_grad(
    f: None = None, argnums: Argnums = 0, has_aux: bool = False, **options: Unpack[Options]
) -> Valuing: ...
@explained
def value_and_grad(
    f: Function | None = None,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    compile: str | None = None,
    checkpoint: str | int = "auto",
    max_bytes: int | None = None,
    out: Any = None,
    key: Key | None = None,
    debug: Debug = False,
) -> Any:
    """Like `grad`, with the function's value: returns `(value, gradient)`.

    Both come from one pass, so this is cheaper than calling `f` and `grad(f)`. It is what
    `scipy.optimize.minimize(..., jac=True)` wants to be given.

        >>> value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
        (np.float64(5.0), array([2., 4.]))

    Parameters
    ----------
    f : a function as `grad` takes it; its value is returned as it is. Works as a decorator too.
    argnums : a number, a name, or a tuple of them, as in `grad`.
    has_aux : `f` returns `(value, aux)`; the result is then `((value, aux), gradient)`.
    compile : "auto", "always" or "never", as in `grad`.
    checkpoint : what loops keep: "auto", "never", "sqrt" or a number, as in `grad`.
    max_bytes : how much memory a call takes at a time, at most, as in `grad`.
    out : arrays into which the gradient is written, as in `grad`.
    key : a function of the arguments that tells calls apart, as in `grad`.
    debug : True, or a function that is shown each value, as in `grad`.

    Returns
    -------
    A function of the arguments of `f`, as from `grad`.

    Raises
    ------
    ArgumentError, GradientError, TraceError : as `grad` does.
    """
    kept, most = checked_checkpoint(checkpoint), checked_bytes(max_bytes)
    compile = checked_mode(compile)
    argnums = checked_argnums(argnums)
    made = ValueAndGradient(argnums, has_aux, kept, max_bytes=most, compile=compile)
    return placed(f, made, compile, out, 1, key, debug)


@overload
def jit(
    f: Callable[P, R], *, compile: Compile = None, key: Key | None = None, debug: Debug = False
) -> DerivedOf[P, R]: ...
@overload
def jit(
    f: None = None, *, compile: Compile = None, key: Key | None = None, debug: Debug = False
) -> Jitting: ...
@explained
def jit(
    f: Function | None = None,
    *,
    compile: str | None = None,
    key: Key | None = None,
    debug: Debug = False,
) -> Any:
    """The function itself, traced, optimised and compiled, without derivative.

    As a gradient it is traced again for other shapes and other paths through `f`.

        >>> jit(lambda x: {"twice": 2 * x})(np.array([1.0, 2.0]))
        {'twice': array([2., 4.])}

    Parameters
    ----------
    f : a function written with NumPy, which may return anything. Works as a decorator too.
    compile : "auto", "always" or "never", as in `grad`.
    key : a function of the arguments that tells calls apart, as in `grad`.
    debug : True, or a function that is shown each value, as in `grad`.

    Returns
    -------
    A function of the arguments of `f`, with `cache_info`, `clear_cache` and `tapes` as in `grad`.

    Raises
    ------
    ArgumentError : an argument is an array that can't be traced (complex numbers, objects).
    TraceError : the function did what a trace can't follow; the message names the line.
    """
    return placed(f, Jit(), compile, None, None, key, debug)


@short_traceback
def trace(
    f: Callable[..., R], *args: Any, primitives: Iterable[Function] = (), **kwargs: Any
) -> tuple[R, Tape]:
    """Run `f` once and return `(value, tape)`: its result, and the tape of what it did.

    The tape's inputs are the arrays and numbers among the arguments, then the arrays that `f`
    reached without being passed them.

    Parameters
    ----------
    f : a function written with NumPy.
    args, kwargs : its arguments, nested as you like.
    primitives : functions that aren't looked into, of yours, NumPy's or any library's: where `f`
        calls one with what is traced, that is one call on the tape, which NumPy makes. Those that
        are declared with `primitive`, or that `defvjp` has given rules, are so anyway, and have
        these; a derivative of any other is an error that names it.

    Returns
    -------
    The result of `f`, and a tape. It prints, and has `play`, `compile`, `source`, `to_dot`,
    `to_networkx` and `memory_report`.

    Raises
    ------
    ArgumentError : an argument is an array that can't be traced (complex numbers, objects).
    TraceError : the function did what a trace can't follow; the message names the line.
    """
    from tapegrad import pipeline
    from tapegrad.core.request import Request, form_of
    from tapegrad.core.trees import array_leaves
    from tapegrad.runtime.traced import traced as made
    from tapegrad.runtime.variant import own
    from tapegrad.tracing.rules.library_rules import as_primitives

    with as_primitives(primitives):
        traced = made(Request(f, args, kwargs).check("trace"), lambda found: found)
    bound, form = traced.bound_tape(), form_of(args, kwargs)
    tape = replace(pipeline.run_passes(bound, pipeline.TRACED), form=form, outside=traced.made)
    values = dict(zip(traced.outputs, traced.leaves, strict=True))
    found = [values[at] for at in range(len(tape.outputs))]
    return traced.rebuild(own(found, [*array_leaves((args, kwargs)), *traced.captured])), tape


@explained
def simplegrad(
    f: Callable[[*Ts], R], *args: *Ts, checkpoint: Checkpoint = "auto"
) -> StandAlone[tuple[R, *Ts], *Ts]:
    """A stand-alone gradient function for arguments of these shapes and dtypes.

    `simplegrad(f, x, y)(x, y)` is `(value, d_x, d_y)`: the gradients mirror the arguments, None
    stands for what has no derivative. The function is compiled at once and has no cache.

    Parameters
    ----------
    f : a function as `grad` takes it.
    args : its positional arguments. The function is for their structure, shapes and dtypes, and for
        the path that they take through `f`.
    checkpoint : what loops keep: "auto", "never", "sqrt" or a number, as in `grad`.

    Returns
    -------
    A function of such arguments. `.source` is its readable source, `.save(path)` writes it as a
    Python file that needs NumPy, numba and SciPy's BLAS, but not tapegrad; or, where the path ends
    in .c, in C, with a header. It can be pickled. Other shapes and dtypes are a ValueError, and
    so is a path through `f` that wasn't traced; other types are a TypeError, and none is
    converted.

    Raises
    ------
    ArgumentError : an argument can't be traced, or can't be written into a file that stands alone.
    GradientError : the result isn't a real scalar, or a primitive has no rule.
    UnsupportedError : the function calls what can't be compiled, such as `np.linalg.svd`.
    TraceError : the function did what a trace can't follow; the message names the line.
    """
    from tapegrad.runtime.standalone import simplegrad as build

    built: Any = build(f, args, checked_checkpoint(checkpoint))
    return built


@explained
def standalone(f: Callable[[*Ts], R], *args: *Ts) -> StandAlone[R, *Ts]:
    """A function that stands alone, as source and as a file, for arguments of these shapes.

    `f` is what any transformation returns, or a function that calls some:

        standalone(hessian(f), x)                             a Hessian
        standalone(hvp(f), x, v)                              its product with a vector
        standalone(vmap(grad(f), in_axes=(None, 0)), w, x)    gradients per example
        standalone(lambda x, t: jvp(f, (x,), (t,)), x, t)     a value and its tangent
        standalone(lambda x, ct: vjp(f, x)[1](ct), x, ct)     a pullback
        standalone(lambda x: jet(f, x, 3), x)                 Taylor coefficients
        standalone(sparse_jacobian(f), x)                     a matrix of SciPy's
        standalone(f, x)                                      the function itself, compiled

    The function is compiled at once and has no cache. It computes what `f` does, and returns it
    nested alike.

        >>> second = standalone(hessian(lambda x: x[0] ** 2 * x[1]), np.ones(2))
        >>> second(np.array([2.0, 3.0]))
        array([[6., 4.],
               [4., 0.]])

    Parameters
    ----------
    f : a function as `jit` takes it, or one that tapegrad has derived.
    args : its positional arguments. The function is for their structure, shapes and dtypes, and for
        the path that they take through `f`.

    Returns
    -------
    A function of such arguments, as from `simplegrad`: with `.source` and `.save(path)`.

    Raises
    ------
    ArgumentError : an argument can't be traced, or can't be written into a file that stands alone.
    GradientError, TraceError : as the transformation does.
    UnsupportedError : the function calls what can't be compiled, such as `np.linalg.svd`; or its
        result holds what can't be written down, such as a function.
    """
    from tapegrad.runtime.standalone import standalone as build

    built: Any = build(f, args)
    return built


def transform(
    change: Callable[[Tape], Tape], f: Callable[P, R], inner: bool = True
) -> DerivedOf[P, R]:
    """The function whose tape is what `change` makes of the tape of `f`.

        def smooth(tape):
            for call in tape:
                if str(call.primitive) == "abs":
                    tape = tape.replace(call.out, lambda x: np.sqrt(x**2 + 1e-6))
            return tape

        transform(smooth, model)(x)
        grad(transform(smooth, model))(x)

    Like `jit` it traces `f` for each kind of arguments and each path, and compiles what it gets; it
    is called again with each new tape. What it is derived from is the tape that it returns, which
    is checked. The round of a loop and the sides of a branch are tapes of their own, and `change`
    is called with each of these, too, the innermost first.

    Parameters
    ----------
    change : a function from a tape to another one, with the same inputs and as many outputs, of the
        same shapes and dtypes. It may use `Tape.replace`, `insert` and `delete`, or make a tape
        with `dataclasses.replace`. What it reads outside is looked at in later calls, as what `f`
        reads is.
    f : a function written with NumPy.
    inner : whether the tapes of rounds and sides are changed, too. False is for a `change` that
        means variables of the function's own tape, as "%5".

    Returns
    -------
    A function of the arguments of `f`, as from `jit`.

    Raises
    ------
    TapeError : what `change` returned isn't such a tape, or isn't well formed; the message names
        the call.
    """
    if not callable(change):
        raise ArgumentError(f"transform needs a function from tape to tape, not {change!r}")
    found: Any = derived(f, Changed(change=change, inner=inner), None)
    return found


def stop_gradient(x: T) -> T:
    """`x` itself, as a constant for derivatives: its cotangent goes no further.

        >>> grad(lambda x: x * stop_gradient(x))(3.0)
        np.float64(3.0)

    Parameters
    ----------
    x : arrays, numbers, and nested structures of them.

    Returns
    -------
    The same structure with the same values; arrays are new ones.
    """
    from tapegrad.tracing.branches.checkpoint import stopped

    found: T = stopped(x)
    return found


@short_traceback
def eval_shape(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what `f` returns for arguments of these shapes and dtypes.

        >>> eval_shape(lambda a, b: a @ b, ShapeDtype((2, 3)), ShapeDtype((3,)))
        ShapeDtype((2,), float64)

    The function is traced, on arrays of these shapes that stand in for those that aren't there. It
    may be one that was derived from another: `eval_shape(grad(f), x)`.

    Parameters
    ----------
    f : a function written with NumPy.
    args, kwargs : its arguments, in which a `ShapeDtype`, or anything else with a `shape` and a
        `dtype`, may stand for an array. Numbers and arrays are what they are.

    Returns
    -------
    The result of `f`, with a `ShapeDtype` in the place of each array and number that depends on an
    array or a number among the arguments. Of a number its shape is ().

    Raises
    ------
    ConversionError : what the function does depends on values of an array for which a shape was
        passed; the message names the line. Pass an array for it.
    """
    from tapegrad.runtime.ahead import result_shapes

    return result_shapes(f, args, kwargs)
