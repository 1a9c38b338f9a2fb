"""The class that programs use to test for traced arrays."""

from tapegrad.autograd.tracer import ArrayBox, Box

__all__ = ["ArrayBox", "Box"]
