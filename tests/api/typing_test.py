"""What a type checker and an editor know of the public functions, by `mypy --strict`."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.project.readme_test import ROOT, blocks

DEFINITIONS = """
from typing import Any

import numpy as np

import tapegrad
import tapegrad.numpy as tnp
from tapegrad import (
    Function, cache_info, cond, defvjp, grad, jit, primitive, scan, simplegrad, stop_gradient,
    trace, value_and_grad, vjp, while_loop,
)
from tapegrad.typing import Derived

Dict = dict[str, float]

def f(x: Dict, scale: float = 1.0, *, power: int = 2) -> float:
    return scale * x["a"] ** power

def with_aux(x: Dict, n: int) -> tuple[float, str]:
    return x["a"], ""

def cube(x: float) -> float:
    return x**3

@grad
def plain(x: Dict, n: int) -> float:
    return x["a"]

@value_and_grad(compile="never")
def valued(x: Dict, n: int) -> float:
    return x["a"]

@grad(argnums=1)
def second(x: Dict, n: float) -> float:
    return n

class Model:
    @jit
    def run(self, x: float, n: int = 2) -> float:
        return n * x

@primitive
def root(x: float) -> float:
    return x

@defvjp(root)
def _(ct: float, out: float, x: float) -> float:
    return ct

class Clipped(Function):
    @staticmethod
    def forward(ctx: Any, x: float, limit: float) -> float:
        return x

    @staticmethod
    def backward(ctx: Any, ct: float) -> tuple[float, None]:
        return ct, None

def step(h: float, x: Dict) -> tuple[float, str]:
    return h, ""

def taken(g: Derived[[float], float]) -> float:
    return g(1.0)

"""

DICT = "dict[str, float]"
OF_F = f"[x: {DICT}, scale: float =, *, power: int =]"
OF_AUX = f"[x: {DICT}, n: int]"
FLOATS = "numpy.dtype[numpy.float64]"

# What mypy reveals of an expression; the packages' names are left out.
REVEALED = {
    # a derived function has its function's parameters, and the first one's type for a gradient
    "grad(f)": f"Derived[{OF_F}, {DICT}]",
    "grad(f)(x={}, power=2)": DICT,
    "grad(f, argnums=1)": f"Derived[{OF_F}, Any]",
    "grad(f, (0, 1))": f"Derived[{OF_F}, Any]",
    "grad(with_aux, has_aux=True)": f"Derived[{OF_AUX}, tuple[{DICT}, str]]",
    "value_and_grad(f)": f"Derived[{OF_F}, tuple[float, {DICT}]]",
    "value_and_grad(f, 1)": f"Derived[{OF_F}, tuple[float, Any]]",
    "value_and_grad(with_aux, has_aux=True)({}, 1)": f"tuple[tuple[float, str], {DICT}]",
    "jit(f)": f"Derived[{OF_F}, float]",
    "jit(grad(cube))": "Derived[[x: float], float]",
    "grad(grad(cube))": "Derived[[x: float], Any]",
    "grad(lambda x: x**2)(3.0)": "Any",
    "taken(grad(cube))": "float",
    # decorators
    "plain": f"Derived[{OF_AUX}, {DICT}]",
    "valued": f"Derived[{OF_AUX}, tuple[float, {DICT}]]",
    "second": f"Derived[[x: {DICT}, n: float], Any]",
    "Model().run": "Derived[[x: float, n: int =], float]",
    "Model.run": "Derived[[self: program.Model, x: float, n: int =], float]",
    # what they have
    "plain.cache_info().traces": "int",
    "plain.tapes[0].source": "str",
    "plain.clear_cache()": "None",
    "cache_info(f).hits": "int",
    # the others
    "trace(f, {}, power=3)": "tuple[float, tapegrad.ir.tape.Tape]",
    "vjp(cube, 2.0)": "tuple[float, Pullback[float]]",
    "vjp(cube, 2.0)[1](1.0)": "tuple[float]",
    "simplegrad(cube, 2.0)": "StandAlone[tuple[float, float], float]",
    "simplegrad(cube, 2.0)(3.0)": "tuple[float, float]",
    "simplegrad(cube, 2.0).source": "str",
    "root": "def (x: float) -> float",
    "defvjp(root, lambda ct, out, x: ct)": "def (x: float) -> float",
    "defvjp(root, x=None)": "def (x: float) -> float",
    'stop_gradient({"a": 1.0})': DICT,
    # loops
    'scan(step, 0.0, {"a": 1.0})': "tuple[float, Any]",
    "tapegrad.map(cube, np.ones(3))": "Any",
    "cond(True, cube, cube, 2.0)": "float",
    "while_loop(lambda x: x < 9, cube, 2.0)": "float",
    # modules
    "tapegrad.numpy.zeros(3)": f"numpy.ndarray[tuple[int], {FLOATS}]",
    "tnp.pi": "float",
    "tapegrad.random.normal(tapegrad.random.key(0)).ndim": "int",
}

WRONG = {
    "grad(f)(3)": "arg-type",
    "grad(f)({}, strength=2)": "call-arg",
    "grad(lambda: 2)": "arg-type",
    'grad(f, compile="sometimes")': "call-overload",
    "vjp(cube, 'a')": "arg-type",
    "tapegrad.nothing_of_the_kind": "attr-defined",
    "tapegrad.numpy.nothing_of_the_kind": "attr-defined",
}


def test_types_are_known_and_the_guide_is_strictly_typed(tmp_path, request):
    """One run for all: most of its time is mypy's own reading of NumPy's types."""
    expressions = [*[f"reveal_type({x})" for x in REVEALED], *WRONG]
    (tmp_path / "program.py").write_text(DEFINITIONS + "\n".join(expressions) + "\n")
    (tmp_path / "guide.py").write_text(guide())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"),
            "--follow-imports=silent",  # tapegrad itself is checked with settings of its own
            "--disable-error-code=import-untyped",  # SciPy has no annotations
            f"--cache-dir={request.config.cache.mkdir('mypy')}",
            *("program.py", "guide.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    said = dict[str, dict[int, str]]({"program.py": {}, "guide.py": {}})
    for line in done.stdout.splitlines():
        file, number, kind, text = line.split(":", 3)
        if kind == " error" or "Revealed" in text:
            said[file][int(number)] = text.strip()
    assert said["guide.py"] == {}, "line numbers are those of docs/guide.md"

    start = DEFINITIONS.count("\n") + 1
    found = [said["program.py"].pop(start + k, "") for k in range(len(expressions))]
    assert said["program.py"] == {}
    types = [re.sub(r"tapegrad\.typing\.", "", text.partition('"')[2][:-1]) for text in found]
    assert dict(zip(REVEALED, types, strict=False)) == REVEALED
    codes = [text.rpartition("[")[2].rstrip("]") for text in found[len(REVEALED) :]]
    assert dict(zip(WRONG, codes, strict=True)) == WRONG


def guide():
    """The guide's Python at its own lines, as one module, without what needs other packages."""
    text = Path(ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block, _ in blocks(text):
        code = block.code.splitlines() if not block.needs else []
        lines[block.line - 1 : block.line - 1 + len(code)] = code
    return "\n".join(lines) + "\n"
