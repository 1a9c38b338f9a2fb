"""Loops, of which one round is traced."""

from tapegrad.tracing.loops.scan import scan as scan
from tapegrad.tracing.loops.while_loop import while_loop as while_loop
