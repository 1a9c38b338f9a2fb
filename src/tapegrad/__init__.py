"""Derivatives of plain NumPy functions, compiled.

from tapegrad import grad
dloss = grad(loss)
"""

import typing as _typing

from tapegrad.core import late as _late

with _late.no_forks():  # whose children would wait for ever for what is half imported
    from tapegrad import methods as methods
    from tapegrad import packages as _packages  # noqa: F401 (their functions are answered)
    from tapegrad import pandas as _pandas  # noqa: F401 (its tables are followed)
    from tapegrad import random as random
    from tapegrad import scipy as _scipy  # noqa: F401 (its functions are answered from now on)
    from tapegrad.api import (
        eval_shape,
        grad,
        jit,
        simplegrad,
        standalone,
        stop_gradient,
        trace,
        transform,
        value_and_grad,
    )
    from tapegrad.core.shapes import ShapeDtype
    from tapegrad.derivatives import (
        elementwise_grad,
        hessian,
        hvp,
        jacfwd,
        jacobian,
        jacrev,
        jvp,
        linearize,
        value_and_jacobian,
        value_grad_and_hessian,
        vjp,
    )
    from tapegrad.loops import checkpoint, checkpoint_name, cond, scan, while_loop
    from tapegrad.loops import map as map
    from tapegrad.loops import range as range
    from tapegrad.mapping import vmap
    from tapegrad.observe.answers.answers import while_traced
    from tapegrad.registering import register_tree
    from tapegrad.roots import custom_fixed_point, custom_root
    from tapegrad.rules import defjvp, defvjp, list_primitives, primitive
    from tapegrad.series import gauss_newton_vp, jet, laplacian
    from tapegrad.settings import cache_info, clear_cache, set_compile, set_num_threads
    from tapegrad.showing import explain, explore, profile
    from tapegrad.structure import (
        as_linear_operator,
        depends,
        jacobian_sparsity,
        sparse_hessian,
        sparse_jacobian,
    )
    from tapegrad.testing import gradcheck
    from tapegrad.tracing.rules.custom import Function

__version__ = "0.1.0"

__all__ = [  # without `map` and `range`, which would hide Python's
    "Function",
    "ShapeDtype",
    "as_linear_operator",
    "cache_info",
    "checkpoint",
    "checkpoint_name",
    "clear_cache",
    "cond",
    "custom_fixed_point",
    "custom_root",
    "defjvp",
    "defvjp",
    "depends",
    "elementwise_grad",
    "eval_shape",
    "explain",
    "explore",
    "gauss_newton_vp",
    "grad",
    "gradcheck",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacobian_sparsity",
    "jacrev",
    "jet",
    "jit",
    "jvp",
    "laplacian",
    "linearize",
    "list_primitives",
    "primitive",
    "profile",
    "register_tree",
    "scan",
    "set_compile",
    "set_num_threads",
    "simplegrad",
    "sparse_hessian",
    "sparse_jacobian",
    "standalone",
    "stop_gradient",
    "trace",
    "transform",
    "value_and_grad",
    "value_and_jacobian",
    "value_grad_and_hessian",
    "vjp",
    "vmap",
    "while_loop",
    "while_traced",
]

if _typing.TYPE_CHECKING:
    from tapegrad import autograd as autograd
    from tapegrad import debug as debug
    from tapegrad import estimate as estimate
    from tapegrad import nn as nn
    from tapegrad import numpy as numpy
    from tapegrad import optim as optim
    from tapegrad import transforms as transforms
    from tapegrad import trees as trees
    from tapegrad.trees import cast as cast
    from tapegrad.trees import tree_flatten as tree_flatten
    from tapegrad.trees import tree_leaves as tree_leaves
    from tapegrad.trees import tree_map as tree_map
    from tapegrad.trees import tree_paths as tree_paths
    from tapegrad.trees import tree_unflatten as tree_unflatten
else:

    def __getattr__(name):
        """The module that waits until it is named: few programs need it."""
        if name == "cast" or name.startswith("tree_"):
            found = getattr(__getattr__("trees"), name, None)
            if found is not None:
                return found
        modules = ("numpy", "autograd", "estimate", "jax", "nn", "optim", "pytensor", "torch")
        if name not in (*modules, "debug", "transforms", "trees"):
            from tapegrad.elsewhere import missing

            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{missing(name)}")
        import importlib

        with _late.no_forks():
            return importlib.import_module(f"{__name__}.{name}")

    def __dir__():
        """What users import: the names above, and the modules that have some of their own."""
        modules = ("autograd", "errors", "estimate", "extending", "nn", "numpy", "optim", "random")
        more = ("testing", "transforms", "trees", "typing")
        return sorted([*__all__, "map", "range", "__version__", *modules, *more])
