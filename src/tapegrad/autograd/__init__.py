"""The names that programs written for HIPS autograd import, made of tapegrad's own functions.

    import tapegrad.autograd.numpy as np
    from tapegrad.autograd import grad

To run a program without changing its imports, call `tapegrad.autograd.install()` first.
docs/autograd.md lists the differences from HIPS autograd.
"""

from tapegrad.autograd import numpy as numpy
from tapegrad.autograd import util as util
from tapegrad.autograd import wrap_util as wrap_util
from tapegrad.autograd.aliases import install, uninstall
from tapegrad.autograd.builtins import dict, isinstance, list, tuple, type
from tapegrad.autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)
from tapegrad.autograd.extend import defjvp, defvjp, primitive
from tapegrad.autograd.misc.fixed_points import fixed_point
from tapegrad.autograd.misc.flatten import flatten
from tapegrad.autograd.test_util import check_grads

__all__ = [
    "check_grads",
    "checkpoint",
    "defjvp",
    "defvjp",
    "deriv",
    "dict",
    "elementwise_grad",
    "fixed_point",
    "flatten",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "install",
    "isinstance",
    "jacobian",
    "list",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_jvp_reversemode",
    "make_vjp",
    "multigrad_dict",
    "primitive",
    "tensor_jacobian_product",
    "tuple",
    "type",
    "uninstall",
    "value_and_grad",
    "vector_jacobian_product",
]
