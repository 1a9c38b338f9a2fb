"""The identity of this processor, which machine code is made for."""

from __future__ import annotations

import platform
import sys
from functools import cache

from tapegrad.backends.cpu.linking import vector_library

_CPUINFO = "/proc/cpuinfo"
_PROCESSOR = (b"vendor_id", b"cpu family", b"model", b"model name", b"stepping", b"flags")


@cache
def processor_key() -> str:
    """The version of LLVM, the processor, and whether libmvec is there: all that machine code
    depends on."""
    import llvmlite

    processor = _processor() or _processor_by_llvm()
    return repr((llvmlite.__version__, processor, vector_library()))


def _processor() -> list[bytes]:
    """Make, model and features of an x86-64 processor, from /proc/cpuinfo, without loading LLVM;
    empty for others. All cores have the same description."""
    if sys.platform != "linux":
        return []
    if platform.machine() != "x86_64":
        return []
    text = b""
    try:
        with open(_CPUINFO, "rb", buffering=0) as file:  # a page at a time: a core is described
            while b"\n\n" not in text and (more := file.read(4096)):  # in one, and there are many
                text += more
    except OSError:
        return []
    lines = (line.partition(b":") for line in text.partition(b"\n\n")[0].split(b"\n"))
    known = {word.strip(): value for word, _, value in lines}
    return [known[word] for word in _PROCESSOR] if known.keys() >= set(_PROCESSOR) else []


def _processor_by_llvm() -> tuple[str, str, str]:
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    return binding.get_process_triple(), binding.get_host_cpu_name(), features
