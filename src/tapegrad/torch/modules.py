"""Functions as PyTorch modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from tapegrad.api import jit
from tapegrad.core import trees
from tapegrad.core.late import CALLS, LINEAR_MAPS, load
from tapegrad.core.request import describe
from tapegrad.errors import ArgumentError
from tapegrad.runtime.checks import checked_mode
from tapegrad.runtime.derived import Derived
from tapegrad.torch.tensors import Tensor, as_array, as_tensor, conjugate, is_real


class AutoModule(torch.nn.Module):
    """A function and its initial parameters as a PyTorch module.

        def affine(params, x):
            return x @ params["W"] + params["b"]

        layer = AutoModule(affine, {"W": np.ones((3, 2)), "b": np.zeros(2)})
        layer(torch.ones(5, 3)).sum().backward()
        layer.W.grad

    `layer(*inputs)` is `f(*params, *inputs)`, for tensors and nested structures of them. It is
    traced and compiled like `tapegrad.vjp(f, ...)`, which gives PyTorch the derivatives, of any
    order. Inputs that need no gradient cost nothing; if none does, `f` runs like `tapegrad.jit(f)`.
    Without parameters the module is a function of tensors.

    Parameters are named by their paths, `layers.0.W` in `{"layers": [{"W": W}]}`; parameters passed
    as separate arguments have the names of the function's arguments. Arrays of integers become
    buffers; leaves that aren't arrays stay unchanged. The arrays are copied.

    Parameters
    ----------
    f : a function written with NumPy. To pickle the module, define the function in a file.
    params : the function's first arguments: arrays, and nested structures of them.
    compile : "auto", "always" or "never", as in `grad`.

    Raises
    ------
    ArgumentError : `f` isn't a function, or a name isn't valid for a parameter; in a call: a tensor
        isn't in CPU memory.
    """

    def __init__(self, f: Callable[..., Any], *params: Any, compile: str = "auto") -> None:
        super().__init__()
        if not callable(f):
            raise ArgumentError(f"{type(self).__name__} needs a function, not {f!r}")
        load(CALLS)
        leaves, structure = trees.flatten(params)
        self._bridge = _Bridge(f, structure, compile)
        self._leaves: list[Any] = [
            self._own(name, leaf) for name, leaf in zip(_names(f, params), leaves, strict=True)
        ]

    def _own(self, name: str, leaf: Any) -> Any:
        """Register a leaf of the parameters under a name.

        Returns the leaf if it is a constant, otherwise the module that owns it and its name there.
        """
        if not isinstance(leaf, (np.ndarray, np.generic, float, complex, torch.Tensor)):
            return leaf
        value = leaf if isinstance(leaf, torch.Tensor) else as_tensor(np.array(leaf))
        owner: torch.nn.Module = self
        *path, last = name.split(".")
        try:
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, torch.nn.Module())
                owner = owner._modules[part]
            if value.is_floating_point() or value.is_complex():
                if not isinstance(value, torch.nn.Parameter):
                    value = torch.nn.Parameter(value)
                owner.register_parameter(last, value)
            else:
                owner.register_buffer(last, value)
        except KeyError as error:
            raise ArgumentError(
                f"a parameter of {type(self).__name__} can't be called {name!r}: {error.args[0]}"
            ) from None
        return _Place(owner, last)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The function of the parameters and these inputs."""
        own = [x.get() if type(x) is _Place else x for x in self._leaves]
        return self._bridge(own, inputs, kwargs)

    def extra_repr(self) -> str:
        return describe(self._bridge.f)


class AutoCriterion(AutoModule):
    """A function of an output and a target, as a PyTorch loss.

        criterion = AutoCriterion(lambda out, target: np.mean(np.abs(out - target) ** 1.5))
        criterion(model(x), y).backward()

    Parameters
    ----------
    f : a function of two arguments, written with NumPy, that returns a number.
    compile : "auto", "always" or "never", as in `grad`.

    Raises
    ------
    ArgumentError : `f` isn't a function; in a call: its value isn't a number.
    """

    def __init__(self, f: Callable[..., Any], *, compile: str = "auto") -> None:
        super().__init__(f, compile=compile)

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of an output for a target."""
        loss = super().forward(input, target)
        if not isinstance(loss, torch.Tensor) or loss.ndim:
            what = f"{tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"{loss!r}"
            raise ArgumentError(
                f"AutoCriterion needs a function whose value is a number, and the value of "
                f"{describe(self._bridge.f)} is {what}. Use np.sum or np.mean"
            )
        return loss


def _names(f: Callable[..., Any], params: Sequence[Any]) -> list[str]:
    """A name for each leaf of the parameters: its path.

    The argument's name comes first if the argument is an array or one of several.
    """
    try:
        known = [p.name for p in inspect.signature(f).parameters.values() if p.kind < p.VAR_KEYWORD]
    except (TypeError, ValueError):
        known = []
    names = []
    for k, tree in enumerate(params):
        paths = trees.flatten_with_paths(tree)[0]
        alone = len(params) == 1 and any(paths)
        before = [] if alone else [known[k] if k < len(known) else f"params{k}"]
        names += [".".join(map(str, (*before, *path))) for path in paths]
    return names


class _Place:
    """The place of a parameter, read at each call: PyTorch replaces parameters, for example when
    their dtype changes."""

    def __init__(self, owner: torch.nn.Module, name: str) -> None:
        self.owner, self.name = owner, name

    def get(self) -> Tensor:
        found = self.owner._parameters.get(self.name)
        return getattr(self.owner, self.name) if found is None else found


class _Bridge:
    """A function of arrays as a function of tensors; the first arguments have a known structure."""

    def __init__(self, f: Callable[..., Any], structure: Any, compile: str) -> None:
        self.f, self.structure, self.compile = f, structure, compile
        self.flat: dict[Any, _Flat] = {}  # by the structure of inputs, or the number of tensors

    def __deepcopy__(self, memo: Any) -> _Bridge:
        return self  # its traces serve all copies

    def __reduce__(self) -> Any:
        tree = trees.unflatten(self.structure, [0.0] * self.structure.num_leaves)
        return _bridge_like, (self.f, tree, self.compile)

    def __call__(self, own: list[Any], inputs: Any, kwargs: dict[str, Any]) -> Any:
        if not kwargs and all(isinstance(x, torch.Tensor) for x in inputs):
            flat = self.flat.get(len(inputs))
            if flat is not None:
                return flat([*own, *inputs])
        leaves, rest = trees.flatten((inputs, kwargs))
        flat = self.flat.get(rest)
        if flat is None:
            flat = self.flat[rest] = _Flat(self._of_leaves(rest), self.compile)
        if not kwargs and len(leaves) == len(inputs):
            self.flat[len(inputs)] = flat
        return flat(own + leaves)

    def _of_leaves(self, rest: Any) -> Callable[..., Any]:
        """The function of the leaves of the arguments."""
        f, structure = self.f, self.structure

        def of_leaves(*leaves: Any) -> Any:
            count = structure.num_leaves
            args, kwargs = trees.unflatten(rest, leaves[count:])
            return f(*trees.unflatten(structure, leaves[:count]), *args, **kwargs)

        of_leaves.__name__ = describe(f)
        return of_leaves


def _bridge_like(f: Callable[..., Any], params: Any, compile: str) -> _Bridge:
    return _Bridge(f, trees.flatten(params)[1], compile)


class _Flat:
    """A function of leaves, called with tensors."""

    def __init__(self, f: Callable[..., Any], compile: str) -> None:
        self.f, self.compile = f, compile
        self.plain: Any = jit(f, compile=cast(Any, compile))
        self.pulling: dict[Any, Any] = {}  # numbers of leaves --> `vjp` with respect to them
        self.derived: dict[Any, _Flat] = {}

    def __call__(self, leaves: list[Any]) -> Any:
        made = _Made(self)
        if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in leaves):
            tensors = _Call.apply(made, *leaves)
        else:
            tensors = made.apart(self.plain(*[as_array(x) for x in leaves]))
        return made.rebuilt(tensors)

    def pull(self, arrays: Sequence[Any], numbers: tuple[int, ...]) -> Any:
        """The value, and its pullback to the leaves with these numbers."""
        pulling = self.pulling.get(numbers)
        if pulling is None:
            vjp = load(LINEAR_MAPS).Pulling(checked_mode(self.compile), numbers=numbers)
            pulling = self.pulling[numbers] = Derived(self.f, vjp, self.compile)
        return pulling(*arrays)

    def gradients(self, made: _Made, count: int, numbers: tuple[int, ...]) -> _Flat:
        """The cotangents of these leaves, as a function of all leaves and of the value's
        cotangents, for second derivatives by PyTorch."""

        def gradients(*leaves: Any) -> Any:
            pullback = self.pull(leaves[:count], numbers)[1]
            found = pullback(made.whole([conjugate(ct) for ct in leaves[count:]], made.real))
            return tuple([conjugate(found[k]) for k in numbers])

        key = made.structure, tuple(made.real), count, numbers
        if key not in self.derived:
            gradients.__name__ = f"gradients of {describe(self.f)}"
            self.derived[key] = _Flat(gradients, self.compile)
        return self.derived[key]


class _Made:
    """The result of one call without its tensors: the structure, and the other leaves."""

    structure: Any = None  # None for a single tensor
    others: Sequence[Any] = ()
    are_tensors: Sequence[bool] = ()
    real: Sequence[bool] = (True,)  # whether each leaf has a cotangent

    def __init__(self, flat: _Flat) -> None:
        self.flat = flat

    def apart(self, value: Any) -> Any:
        """The tensors of a value: a single one, or a tuple."""
        if isinstance(value, (np.ndarray, np.generic)):
            if value.dtype.kind not in "fc":
                self.real = (False,)
            return as_tensor(value)
        leaves, self.structure = trees.flatten(value)
        self.are_tensors = [isinstance(x, (np.ndarray, np.generic)) for x in leaves]
        pairs = zip(leaves, self.are_tensors, strict=True)
        made = [as_tensor(x) if yes else None for x, yes in pairs]
        self.real = [x is not None and is_real(x) for x in made]
        self.others = [x if y is None else None for x, y in zip(leaves, made, strict=True)]
        return tuple([x for x in made if x is not None])

    def rebuilt(self, tensors: Any) -> Any:
        """The value with these tensors."""
        return tensors if self.structure is None else self.whole(tensors, self.are_tensors)

    def whole(self, parts: Sequence[Any], places: Sequence[bool]) -> Any:
        """The value's structure with these parts at the marked places."""
        if self.structure is None:
            return parts[0]
        left = iter(parts)
        leaves = [next(left) if yes else x for x, yes in zip(self.others, places, strict=True)]
        return trees.unflatten(self.structure, leaves)


class _Call(torch.autograd.Function):
    """One differentiable call, as a function of PyTorch's autograd."""

    @staticmethod
    def forward(ctx: Any, made: _Made, *leaves: Any) -> Any:
        ctx.made, needed = made, ctx.needs_input_grad
        ctx.numbers = numbers = tuple([k - 1 for k, yes in enumerate(needed) if yes])
        value, ctx.pullback = made.flat.pull([as_array(x) for x in leaves], numbers)
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        ctx.save_for_backward(*[x for x in leaves if isinstance(x, torch.Tensor)])
        tensors = made.apart(value)
        if not all(made.real):
            several = tensors if isinstance(tensors, tuple) else (tensors,)
            ctx.mark_non_differentiable(*[x for x in several if not is_real(x)])
        return tensors

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> Any:
        made, others = ctx.made, ctx.others
        if not all(made.real):
            cts = tuple([ct for ct in cts if is_real(ct)])
        result: list[Any] = [None] * (1 + len(others))
        if torch.is_grad_enabled():  # the gradients will be differentiated
            saved = iter(ctx.saved_tensors)
            leaves = [next(saved) if x is None else x for x in others]
            found = made.flat.gradients(made, len(others), ctx.numbers)([*leaves, *cts])
            for k, x in zip(ctx.numbers, found, strict=True):
                result[1 + k] = x
        else:
            arrays = [conjugate(as_array(ct.contiguous())) for ct in cts]
            found = ctx.pullback(made.whole(arrays, made.real))
            for k in ctx.numbers:
                result[1 + k] = as_tensor(conjugate(found[k]))
        return tuple(result)
