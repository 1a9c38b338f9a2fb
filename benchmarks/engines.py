"""What is measured side by side: tapegrad and its peers, each used as its users would.

An engine prepares a workload: it returns a call that is cold, for which nothing is traced or
compiled yet. What it keeps from earlier workloads, in memory or on disk, is not used.
"""

import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from workloads import Workload

Call = Callable[[], tuple[Any, Any]]  # () -> (value, gradients)

TRIFLE = Workload("trifle", "x * x", "call", lambda xp, x: xp.sum(x * x), lambda rng: (np.ones(3),))


class NotWritten(Exception):
    """The workload isn't written for this engine."""


class Engine:
    """What can differentiate a workload."""

    name: str
    packages: tuple[str, ...]  # whose versions the figures depend on
    compiles = True
    tiered = False  # has tiers: the first call plays and need not compile
    value_alone = False  # doesn't differentiate

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        """A cold call; raises NotWritten if the workload isn't written for this engine."""
        raise NotImplementedError

    def load(self, tier: str) -> None:
        """Import what is needed and differentiate something, which is done off the clock.

        Otherwise the first workload would pay for what is set up once a process.
        """
        for used in {"auto", tier} if self.tiered else {"auto"}:
            self.prepare(TRIFLE, (np.ones(3),), used)()

    def settled(self, call: Call) -> bool:
        """Whether the next calls will be made as the last one was."""
        return True

    def memory(self, workload: Workload, args: tuple) -> int | None:
        """Bytes of temporaries in one call of the compiled gradient, as the engine plans them."""
        return None


class Tapegrad(Engine):
    name = "tapegrad"
    packages = ("tapegrad", "numpy", "numba", "llvmlite", "scipy")
    tiered = True

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        import tapegrad

        # A new function object, and emptied caches: nothing that is compiled is used again.
        def loss(*args: Any) -> Any:
            return workload.loss(np, *args)

        tapegrad.clear_cache()
        return partial(tapegrad.value_and_grad(loss, compile=tier), *args)

    def settled(self, call: Any) -> bool:
        derived = call.func
        return derived.compile != "auto" or derived.cache_info().compiles > 0

    def memory(self, workload: Workload, args: tuple) -> int | None:
        call: Any = self.prepare(workload, args, "never")
        call()
        (tape,) = call.func.tapes
        return tape.memory_report().scratch_bytes


class Played(Tapegrad):
    """tapegrad before its machine code is there: the tape, played with NumPy."""

    name = "played"
    compiles = tiered = False

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        return super().prepare(workload, args, "never")

    def settled(self, call: Any) -> bool:
        return True


class Plain(Engine):
    """The value alone, by plain NumPy."""

    name = "numpy"
    packages = ("numpy",)
    compiles = False
    value_alone = True

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        return lambda: (workload.loss(np, *args), ())


class Jax(Engine):
    name = "jax"
    packages = ("jax", "jaxlib")

    def gradient(self, workload: Workload) -> Any:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        loss = workload.idiomatic_jax or (lambda *args: workload.loss(jnp, *args))
        return jax.jit(jax.value_and_grad(loss))

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        import jax
        import jax.numpy as jnp

        gradient = self.gradient(workload)
        # The arguments are JAX's own arrays already, which spares it a copy per call.
        arrays = jax.tree.map(jnp.asarray, args)
        return lambda: jax.block_until_ready(gradient(*arrays))

    def memory(self, workload: Workload, args: tuple) -> int | None:
        found = self.gradient(workload).lower(*args).compile().memory_analysis()
        return None if found is None else found.temp_size_in_bytes


class Autograd(Engine):
    name = "autograd"
    packages = ("autograd",)
    compiles = False

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        import autograd

        gradient = autograd.value_and_grad(lambda *args: workload.loss(autograd.numpy, *args))
        return partial(gradient, *args)


class Torch(Engine):
    """PyTorch's tape, on the CPU. Its arguments are tensors before the clock starts to run."""

    name = "torch"
    packages = ("torch",)
    compiles = False

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        import torch

        xp, loss = torch_namespace(), workload.loss
        params, *data = as_tensors(args)
        leaves = params if isinstance(params, tuple) else (params,)
        for leaf in leaves:
            leaf.requires_grad_()

        def call() -> tuple[Any, Any]:
            value = loss(xp, params, *data)
            return value.detach(), torch.autograd.grad(value, leaves)

        return call


class TorchCompile(Engine):
    """PyTorch's compiler, for the whole of value and gradient.

    That is faster than to compile the loss and to leave the gradient to PyTorch's tape.
    """

    name = "torch.compile"
    packages = ("torch",)

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        import torch

        torch._dynamo.reset()
        torch.compiler.config.force_disable_caches = True  # of earlier processes, on disk
        warnings.filterwarnings("ignore", module="torch")  # about its own caches and functions
        xp = torch_namespace()
        gradient = torch.compile(
            torch.func.grad_and_value(lambda *args: workload.loss(xp, *args)), dynamic=False
        )
        tensors = as_tensors(args)

        def call() -> tuple[Any, Any]:
            gradients, value = gradient(*tensors)
            return value, gradients

        return call


def as_tensors(x: Any) -> Any:
    """Arrays, in nested tuples, as tensors on the same memory."""
    import torch

    return tuple(map(as_tensors, x)) if isinstance(x, tuple) else torch.from_numpy(np.asarray(x))


def torch_namespace() -> SimpleNamespace:
    """NumPy's functions in PyTorch: mostly its own, which take `axis` and `keepdims` too."""
    import torch

    def maximum(x: Any, y: Any) -> Any:
        return torch.maximum(x, y) if isinstance(y, torch.Tensor) else torch.clamp(x, min=y)

    def logaddexp(x: Any, y: Any) -> Any:
        return torch.logaddexp(x if isinstance(x, torch.Tensor) else y.new_full((), x), y)

    def largest(x: Any, axis: Any = (), keepdims: bool = False) -> Any:
        return torch.amax(x, axis, keepdims)  # torch.max says where it is, too

    def pad(x: Any, width: int, mode: str) -> Any:
        return torch.nn.functional.pad(x, (width,) * (2 * x.ndim), mode)

    def eye(n: int) -> Any:
        return torch.eye(n, dtype=torch.float64)

    same = ("sum", "exp", "log", "sqrt", "tanh", "diagonal", "linalg")
    others = {"maximum": maximum, "logaddexp": logaddexp, "max": largest, "pad": pad, "eye": eye}
    return SimpleNamespace(**{name: getattr(torch, name) for name in same}, **others)


class PyTensor(Engine):
    """PyTensor's graphs, compiled by numba."""

    name = "pytensor"
    packages = ("pytensor",)

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        if workload.idiomatic_jax is not None:
            raise NotWritten("its loop would have to be written with `scan`")
        with warnings.catch_warnings():  # that its C backend lacks a BLAS, which isn't used here
            warnings.simplefilter("ignore")
            import pytensor
            import pytensor.tensor as pt

        def variables(x: Any) -> Any:
            """An input of its shape and dtype for each array."""
            if isinstance(x, tuple):
                return tuple(map(variables, x))
            return pt.tensor(dtype=x.dtype, shape=x.shape)

        pytensor.config.numba__cache = False  # of an earlier process, on disk
        params, *data = variables(args)
        value = workload.loss(pt, params, *data)
        leaves = list(params) if isinstance(params, tuple) else [params]
        gradients = pytensor.grad(value, leaves)
        function = pytensor.function([*leaves, *data], [value, *gradients], mode="NUMBA")
        function.trust_input = True  # spares it the checks of its arguments
        arrays = [*(args[0] if isinstance(args[0], tuple) else args[:1]), *args[1:]]

        def call() -> tuple[Any, Any]:
            value, *gradients = function(*arrays)
            return value, gradients

        return call


class ByHand(Engine):
    """What somebody wrote for numba, of the programs that somebody did this for."""

    name = "by hand"
    packages = ()

    def prepare(self, workload: Workload, args: tuple, tier: str = "auto") -> Call:
        import by_hand

        gradient = getattr(by_hand, workload.loss.__name__, None)
        if gradient is None:
            raise NotWritten("nobody wrote this one")
        return partial(gradient, *args)

    def load(self, tier: str) -> None:
        import numba

        numba.njit(lambda x: x.sum())(np.ones(3))


ENGINES = {
    engine.name: engine
    for engine in (
        Tapegrad(),
        Played(),
        Plain(),
        Jax(),
        Torch(),
        TorchCompile(),
        Autograd(),
        PyTensor(),
        ByHand(),
    )
}
