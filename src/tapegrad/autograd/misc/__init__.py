"""Flat vectors, optimizers and fixed points."""

from tapegrad.autograd.misc.flatten import flatten
from tapegrad.autograd.misc.tracers import const_graph

__all__ = ["const_graph", "flatten"]
