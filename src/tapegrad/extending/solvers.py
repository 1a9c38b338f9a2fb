"""Solvers that call a user's function again and again, and the systems that they solve."""

from tapegrad.backends.numpy.rounds import Broken as Broken
from tapegrad.primitives.implicit import Implicit as Implicit
from tapegrad.primitives.implicit import called as called
from tapegrad.primitives.implicit import real as real
from tapegrad.runtime.hot import HotTape as HotTape
from tapegrad.runtime.hot import guarded as guarded
from tapegrad.runtime.hot import hot_tape as hot_tape
from tapegrad.runtime.hot import shared_tape as shared_tape
from tapegrad.tracing.branches.conditional import sides as sides
