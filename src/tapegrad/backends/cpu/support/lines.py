"""Line numbers in machine code: which line of a kernel's source each instruction comes from.

They are written where someone asks for them, to be shown; what runs has none. LLVM makes the same
instructions with them as without.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

DWARF, DEBUG_INFO = 4, 3  # the versions of the table, and of LLVM's description of it
_WARNING = 2  # what LLVM does where two modules differ in these


class LineNumbers:
    """Those of the functions of one module, of one source."""

    def __init__(self, module: ir.Module, name: str) -> None:
        self.module = module
        self.file = module.add_debug_info("DIFile", {"filename": name, "directory": ""})
        self.unit = module.add_debug_info(
            "DICompileUnit",
            {
                "language": ir.DIToken("DW_LANG_C_plus_plus"),
                "file": self.file,
                "producer": "tapegrad",
                "runtimeVersion": 0,
                "isOptimized": True,
                "emissionKind": ir.DIToken("LineTablesOnly"),
            },
            is_distinct=True,
        )
        module.add_named_metadata("llvm.dbg.cu", self.unit)
        word = ir.IntType(32)
        for what, version in (("Dwarf Version", DWARF), ("Debug Info Version", DEBUG_INFO)):
            flag = [word(_WARNING), what, word(version)]
            module.add_named_metadata("llvm.module.flags", flag)

    def of(self, function: ir.Function) -> Any:
        """The scope of a function's lines."""
        kind = self.module.add_debug_info(
            "DISubroutineType", {"types": self.module.add_metadata([])}
        )
        scope = self.module.add_debug_info(
            "DISubprogram",
            {
                "name": function.name,
                "linkageName": function.name,
                "scope": self.file,
                "file": self.file,
                "line": 1,
                "type": kind,
                "isLocal": False,
                "isDefinition": True,
                "scopeLine": 1,
                "isOptimized": True,
                "unit": self.unit,
            },
            is_distinct=True,
        )
        function.set_metadata("dbg", scope)
        return scope

    def at(self, line: int, scope: Any) -> Any:
        """A line, of which the next instructions are."""
        return self.module.add_debug_info("DILocation", {"line": line, "column": 1, "scope": scope})
