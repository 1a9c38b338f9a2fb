"""PyTorch modules as functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tapegrad.core import trees
from tapegrad.errors import ArgumentError
from tapegrad.nn.copying import check
from tapegrad.torch.tensors import Tensor, as_array, as_tensor, is_real
from tapegrad.tracing.rules.custom import Function
from tapegrad.tracing.tracers.tracer import Tracer


def functional(module: Any, state: Any) -> Any:
    """`tapegrad.nn.functionalize` of a PyTorch module."""
    label = type(module).__name__
    params = {name: _copied(p) for name, p in module.named_parameters() if p.requires_grad}
    buffers = {name: _copied(b) for name, b in module.named_buffers()}
    names = buffers if state is True else [state] if isinstance(state, str) else state or ()
    for name in names:
        if name not in buffers:
            raise ArgumentError(f"{label} has no buffer {name!r}. It has {', '.join(buffers)}")
    held = {name: buffers[name] for name in names}

    def run(params: Any, state: Any, args: Any, kwargs: Any) -> Any:
        own = {name: b.clone() for name, b in module.named_buffers() if name not in state}
        state = {name: b.detach().clone() for name, b in state.items()}
        out = torch.func.functional_call(module, {**own, **params, **state}, args, kwargs)
        return (out, state) if names else out

    def f(given: Any, *args: Any, **kwargs: Any) -> Any:
        now, inputs = (args[0], args[1:]) if names else ({}, args)
        check(label, given, params)
        check(label, now, held)
        leaves, structure = trees.flatten((given, now, inputs, kwargs))
        places = [k for k, x in enumerate(leaves) if trees.is_array(x) or isinstance(x, Tracer)]

        def of_tensors(*tensors: Tensor) -> Any:
            whole = [*leaves]
            for k, x in zip(places, tensors, strict=True):
                whole[k] = x
            return run(*trees.unflatten(structure, whole))

        return _opaque(label, of_tensors, True).apply(*[leaves[k] for k in places])

    f.__name__ = f.__qualname__ = label
    return (f, params, held) if names else (f, params)


def _copied(x: Tensor) -> Any:
    return as_array(x).copy()


def _opaque(label: str, run: Callable[..., Any], draws: bool) -> type[Function]:
    """A function of tensors as a function of arrays that PyTorch differentiates.

    A derivative runs it once more; if it draws, the second run draws the same numbers.
    """
    again = _with_draws_of(run) if draws else run

    class Opaque(Function):
        @staticmethod
        def forward(ctx: Any, *arrays: Any) -> Any:
            tensors = [_plain(x) for x in arrays]
            ctx.save_for_backward(*arrays, *([torch.get_rng_state().numpy()] if draws else ()))
            with torch.no_grad():
                leaves, structure = trees.flatten(run(*tensors))
            return trees.unflatten(structure, [as_array(x) for x in leaves])

        @staticmethod
        def backward(ctx: Any, *cts: Any) -> Any:
            xs = ctx.saved_tensors
            pulled = _opaque(f"gradient of {label}", _pulled(again, len(xs)), False)
            found = iter(pulled.apply(*xs, *trees.flatten(cts)[0]))
            own = xs[:-1] if draws else xs
            return tuple([next(found) if x.dtype.kind in "fc" else None for x in own])

        @staticmethod
        def jvp(ctx: Any, *ts: Any) -> Any:
            xs, moved = ctx.saved_tensors, [k for k, t in enumerate(ts) if t is not None]
            pushed = _opaque(f"derivative of {label}", _pushed(again, len(xs), moved), False)
            return pushed.apply(*xs, *[ts[k] for k in moved])

    Opaque.__name__ = label
    return Opaque


def _with_draws_of(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a state of PyTorch's generator as an additional last argument."""

    def seeded(*tensors: Tensor) -> Any:
        *own, state = tensors
        with torch.random.fork_rng(devices=[]):
            with contextlib.suppress(RuntimeError):  # the state is all ones if only types matter
                torch.set_rng_state(state)
            return run(*own)

    return seeded


def _pulled(run: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The pullback: cotangents of the result --> cotangents of the real ones among the first
    `count` arguments."""

    def pulled(*tensors: Tensor) -> Any:
        once_more = torch.is_grad_enabled()
        with torch.enable_grad():
            xs = _with_derivatives(tensors[:count])
            real = [x for x in xs if is_real(x)]
            outs = [x for x in trees.flatten(run(*xs))[0] if is_real(x)]
            cts = [ct.conj() for ct in tensors[count:]]
            return tuple([x.conj() for x in _gradients(outs, real, cts, once_more)])

    return pulled


def _pushed(run: Callable[..., Any], count: int, moved: list[int]) -> Callable[..., Any]:
    """The pushforward: tangents of some arguments --> tangent of the result, as the transpose of
    the transpose."""

    def pushed(*tensors: Tensor) -> Any:
        once_more = torch.is_grad_enabled()
        with torch.enable_grad():
            xs = _with_derivatives(tensors[:count])
            leaves, structure = trees.flatten(run(*xs))
            outs = [x for x in leaves if is_real(x)]
            cts = [torch.zeros_like(x).requires_grad_() for x in outs]
            pulled = _gradients(outs, [xs[k] for k in moved], cts, True)
            found = iter(_gradients(pulled, cts, tensors[count:], once_more))
            return trees.unflatten(structure, [next(found) if is_real(x) else x for x in leaves])

    return pushed


def _with_derivatives(tensors: Sequence[Tensor]) -> list[Tensor]:
    """These tensors, with operations on them recorded by PyTorch."""
    return [
        x.detach().requires_grad_() if is_real(x) and not x.requires_grad else x for x in tensors
    ]


def _gradients(outs: Any, xs: Any, cts: Any, once_more: bool) -> list[Tensor]:
    """PyTorch's gradients; 0 for those that nothing depends on."""
    known = [(out, ct) for out, ct in zip(outs, cts, strict=True) if out.requires_grad]
    if not known:
        return [torch.zeros_like(x) for x in xs]
    firsts, seconds = zip(*known, strict=True)
    found = torch.autograd.grad(firsts, xs, seconds, create_graph=once_more, materialize_grads=True)
    return list(found)


def _plain(x: Any) -> Tensor:
    if isinstance(x, Tracer):
        raise TypeError("PyTorch runs it, on plain arrays")
    return as_tensor(x)
