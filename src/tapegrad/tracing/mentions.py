"""Proof that an array from outside is read by traced calls alone.

A captured array is an input of the tape, read anew at each call. But the function may also have
computed with it where no traced value took part (`x * w / w.max()`), and what came of that is
frozen into the tape. Python doesn't say so. It can be ruled out, though, where the bytecode shows
that each place which mentions the array hands it to a call that met a tracer when it ran, or to a
parameter of a function for which the same is true. Where the proof fails the array's contents are
compared at each call, which costs time and is right too.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType

import numpy as np

from tapegrad.tracing.source import user_frames
from tapegrad.trees import is_array

Site = tuple[CodeType, int]  # an instruction of the user's program: its code, and the offset

_LOADS = {"LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_CLASSDEREF"}
_SHAPE = {"shape", "ndim", "size", "dtype"}  # fixed, or changed only by making another array
_IGNORED = {"CACHE", "EXTENDED_ARG", "PRECALL", "KW_NAMES", "NOP", "NOT_TAKEN"}
_PUSHING = {"PUSH_NULL": 1, "LOAD_CONST": 1, "LOAD_FAST": 1, "LOAD_FAST_BORROW": 1, "LOAD_DEREF": 1}
_POPPING = {"BINARY_OP": 2, "BINARY_SUBSCR": 2, "COMPARE_OP": 2, "LOAD_ATTR": 1, "LOAD_METHOD": 1}
_POPPING |= {"UNARY_NEGATIVE": 1, "BINARY_SLICE": 3, "LOAD_SMALL_INT": 0}


@dataclass
class Meetings:
    """Where captured arrays met tracers while a function was traced, and what called what."""

    arrays: dict[Site, list[np.ndarray]] = field(default_factory=dict)
    calls: dict[Site, dict[CodeType, dict[str, np.ndarray]]] = field(default_factory=dict)
    # A NumPy scalar, or an array that no name stands for, took part: it may have been computed
    # of a captured array.
    strange: bool = False

    def note(self, array: np.ndarray) -> None:
        """An array met a tracer at the line that runs now."""
        frames = list(user_frames())
        if not frames:
            return
        self.arrays.setdefault(_site(frames[0]), []).append(array)
        for inner, outer in pairwise(frames):
            if inner.f_back is outer:
                callees = self.calls.setdefault(_site(outer), {})
                if inner.f_code not in callees:
                    callees[inner.f_code] = _array_parameters(inner)

    def prove(self, array: np.ndarray, name: str, codes: Iterable[CodeType]) -> bool:
        """Whether all that `codes` do with what they call `name`, if it is `array`, is on tape."""
        if self.strange or not name:
            return False
        mentions = [(code, k) for code in codes for k in _mentions(code, name)]
        return bool(mentions) and all(self._is_met(code, k + 1, array) for code, k in mentions)

    def _is_met(self, code: CodeType, k: int, array: np.ndarray, within: int = 8) -> bool:
        """Whether the value on top of the stack before instruction `k` goes to a traced call."""
        program = _program(code)
        above = 0  # values on the stack above the one that is followed
        while k < len(program):
            i = program[k]
            pops, pushes = _effect(i)
            if pops < 0:
                return False
            if pops > above:
                if above == 0 and i.opname == "LOAD_ATTR" and i.argval in _SHAPE:
                    return True
                known = (code, i.offset)
                if any(np.may_share_memory(a, array) for a in self.arrays.get(known, ())):
                    return True
                if i.opname in ("CALL", "CALL_KW"):
                    if _is_len(program, k):
                        return True
                    return within > 0 and self._is_passed_on(known, array, within - 1)
                is_part = i.opname == "LOAD_ATTR" and i.argval == "T"
                if i.opname in ("BINARY_SUBSCR", "BINARY_OP") and above == 1:
                    subscript = i.opname == "BINARY_SUBSCR" or i.argrepr == "[]"
                    is_part = subscript and program[k - 1].opname in ("LOAD_CONST", "BUILD_SLICE")
                if not is_part:
                    return False
                above = 0
            else:
                above += pushes - pops
            k += 1
        return False

    def _is_passed_on(self, site: Site, array: np.ndarray, within: int) -> bool:
        """Whether a call hands the array to a function of the user's that treats it so too."""
        callees = self.calls.get(site, {})
        for code, parameters in callees.items():
            names = [n for n, a in parameters.items() if np.may_share_memory(a, array)]
            if not names:
                return False
            for name in names:
                uses = list(_mentions(code, name, of_local=True))
                if not all(self._is_met(code, k + 1, array, within) for k in uses):
                    return False
        return bool(callees)


def _site(frame: FrameType) -> Site:
    return frame.f_code, frame.f_lasti


def _array_parameters(frame: FrameType) -> dict[str, np.ndarray]:
    """The parameters of a running function that were passed arrays."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    local = frame.f_locals
    return {n: local[n] for n in names if is_array(local.get(n))}


@lru_cache(maxsize=1024)
def _program(code: CodeType) -> list[dis.Instruction]:
    return [i for i in dis.get_instructions(code) if i.opname not in _IGNORED]


def _mentions(code: CodeType, name: str, of_local: bool = False) -> Iterator[int]:
    """The numbers of the instructions that load what is called `name`."""
    for k, i in enumerate(_program(code)):
        loads = i.opname in _LOADS or (of_local and i.opname.startswith("LOAD_"))
        said = i.argval if isinstance(i.argval, tuple) else (i.argval,)
        if loads and name in said:
            yield k


def _is_len(program: list[dis.Instruction], k: int) -> bool:
    """Whether the call `k` is `len(name)`."""
    return k > 1 and program[k - 2].argval == "len" and program[k].arg == 1


def _effect(i: dis.Instruction) -> tuple[int, int]:
    """How many values an instruction pops and pushes; (-1, 0) if that isn't known here."""
    arg = i.arg or 0
    if i.opname in ("CALL", "CALL_KW"):
        return arg + (2 if i.opname == "CALL" else 3), 1
    if i.opname == "LOAD_GLOBAL":
        return 0, 1 + (arg & 1)
    if i.opname == "BUILD_SLICE":
        return arg, 1
    if i.opname == "LOAD_METHOD" or (i.opname == "LOAD_ATTR" and dis.stack_effect(i.opcode, arg)):
        return 1, 2  # the method, and the object or nothing
    if i.opname in _PUSHING:
        return 0, _PUSHING[i.opname]
    if i.opname in _POPPING:
        return _POPPING[i.opname], 1
    return -1, 0
