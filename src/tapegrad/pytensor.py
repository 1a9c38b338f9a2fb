"""Functions that are written with NumPy, in graphs of PyTensor: models of PyMC.

    from tapegrad.pytensor import as_op

    with pm.Model():
        theta = pm.Normal("theta", shape=3)
        pm.Potential("likelihood", as_op(log_likelihood)(theta))
        pm.sample()

Values and gradients are tapegrad's, compiled. This module needs PyTensor, and tapegrad doesn't.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

try:
    import pytensor.tensor as pt
except ImportError as error:
    raise ImportError("tapegrad.pytensor needs PyTensor: pip install pytensor") from error

from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.rewriting.basic import register_canonicalize

from tapegrad.core.handlers import let_through
from tapegrad.core.request import describe
from tapegrad.core.shapes import ShapeDtype
from tapegrad.errors import ArgumentError
from tapegrad.flat import Call, Flattened, is_array, is_real

__all__ = ["as_op"]


def __dir__() -> list[str]:
    return __all__


def as_op(f: Callable[..., Any], *, compile: str = "auto") -> Callable[..., Any]:
    """A function written with NumPy as one of PyTensor's variables.

        growth = as_op(lambda rate, y0: odeint(slope, y0, times, args=(rate,)))
        growth(rate, y0)

    PyTensor differentiates it, to any order. Where a graph has a number and its gradient, as the
    log density of a model is for a sampler, one call finds both.

    The types of its value are those that `tapegrad.eval_shape` finds for its arguments'. Of
    arguments whose lengths aren't known, as those of `pt.vector()`, arrays with 2 in their places
    are tried. To a function that takes others say them: `pt.specify_shape(x, (3,))`.

    Parameters
    ----------
    f : a function written with NumPy. PyTensor takes it for pure: it may be called when and as
        often as PyTensor decides.
    compile : "auto", "always" or "never", as in `grad`.

    Returns
    -------
    A function of PyTensor's variables, arrays, numbers, and trees of such. What is neither a
    variable nor an array is passed as it is. Its value has the structure of that of `f`, with
    variables in it, each made by an `Op`.

    Raises
    ------
    ArgumentError : `f` isn't a function, or its value isn't known without the lengths of its
        arguments.
    """
    if not callable(f):
        raise ArgumentError(f"as_op needs a function, not {f!r}")
    flattened = Flattened(f, compile)

    @functools.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        flat, leaves = flattened.of(args, kwargs)
        places = [k for k, x in enumerate(leaves) if isinstance(x, Variable) or is_array(x)]
        inputs = [pt.as_tensor_variable(leaves[k]) for k in places]
        others = [None if k in places else x for k, x in enumerate(leaves)]
        call = Call(flat, tuple(places), tuple(others))
        made = _FromNumPy(call)
        return made.result(inputs).rebuilt(made(*inputs, return_list=True))

    return called


class _FromNumPy(Op):
    """A function of arrays, by tapegrad."""

    __props__ = ("call", "value")

    def __init__(self, call: Call, value: Call | None = None) -> None:
        self.call = call
        self.value = value  # whose value its first result is

    def __str__(self) -> str:
        return describe(self.call.flat.f)

    def result(self, inputs: Sequence[Any]) -> Any:
        """What it returns for such variables."""
        shapes = [[2 if n is None else n for n in x.type.shape] for x in inputs]
        types = [
            ShapeDtype(tuple(s), np.dtype(x.type.dtype))
            for s, x in zip(shapes, inputs, strict=True)
        ]
        try:
            return self.call.result(types)
        except Exception as error:
            let_through(error)
            if all(_is_known(x) for x in inputs):
                raise
            raise ArgumentError(
                f"as_op of {self}: lengths of its arguments aren't known, and it raises "
                f"{type(error).__name__} for arrays with 2 in their places: {error}. Say them: "
                "pt.specify_shape(x, (3,))"
            ) from error

    def make_node(self, *inputs: Any) -> Any:
        variables = [pt.as_tensor_variable(x) for x in inputs]
        known = all(map(_is_known, variables))
        outputs = [
            pt.tensor(dtype=str(t.dtype), shape=t.shape if known else (None,) * len(t.shape))
            for t in self.result(variables).types
        ]
        return Apply(self, variables, outputs)

    def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
        found = self.call.flat.arrays(self.call.whole(inputs))
        for x, out, storage in zip(found, node.outputs, output_storage, strict=True):
            known = out.type.shape
            fits = len(known) == x.ndim and all(
                n in (None, m) for n, m in zip(known, x.shape, strict=False)
            )
            if not fits:
                raise ArgumentError(
                    f"{self} returned an array of shape {x.shape}, and one of {known} when the "
                    "graph was made. Shapes in a graph depend on those of arguments alone"
                )
            storage[0] = x.astype(out.type.dtype, copy=False)

    def connection_pattern(self, node: Any) -> Any:
        """Which results have a derivative with respect to which arguments."""
        return [[_has_one(x) and is_real(y.type) for y in node.outputs] for x in node.inputs]

    def L_op(self, inputs: Any, outputs: Any, output_grads: Any) -> Any:
        wanted = [k for k, x in enumerate(inputs) if _has_one(x)]
        if self.result(inputs).is_real_number:
            made = _FromNumPy(self.call.with_gradients(wanted), self.call)
            found = [output_grads[0] * x for x in made(*inputs, return_list=True)[1:]]
        else:
            cts = [
                out.zeros_like() if isinstance(ct.type, DisconnectedType) else ct
                for out, ct in zip(outputs, output_grads, strict=True)
                if is_real(out.type)
            ]
            made = _FromNumPy(self.call.pulled(wanted, len(cts)))
            found = made(*inputs, *cts, return_list=True)
        result = [DisconnectedType()() for _ in inputs]
        for k, x in zip(wanted, found, strict=True):
            result[k] = x
        return result

    pullback = L_op  # what PyTensor 3 calls it


def _is_known(x: Any) -> bool:
    """Whether all lengths of a variable are known."""
    return None not in x.type.shape


def _has_one(x: Any) -> bool:
    """Whether there can be a derivative with respect to a variable."""
    return is_real(x.type) and not isinstance(x, Constant)


@register_canonicalize
@node_rewriter([_FromNumPy])
def _one_call(fgraph: Any, node: Any) -> Any:
    """A number whose gradient is computed too, as the first result of that."""
    for client, _ in fgraph.clients[node.inputs[0]] if node.inputs else ():
        op = getattr(client, "op", None)
        if isinstance(op, _FromNumPy) and op.value == node.op.call and client.inputs == node.inputs:
            return [client.outputs[0]]
    return None
