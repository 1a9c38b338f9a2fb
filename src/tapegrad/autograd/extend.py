"""Users' functions and their rules."""

from tapegrad.autograd.absent import SparseObject
from tapegrad.autograd.boxes import JVPNode, VJPNode
from tapegrad.autograd.rules import (
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    register_notrace,
)
from tapegrad.autograd.spaces import VSpace
from tapegrad.autograd.tracer import Box
from tapegrad.autograd.vspace import vspace

__all__ = [
    "Box",
    "JVPNode",
    "SparseObject",
    "VJPNode",
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "notrace_primitive",
    "primitive",
    "register_notrace",
    "vspace",
]
