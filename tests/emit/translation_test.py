"""Kernels are translated as numba's own front end does it: both are held against each other."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from numba import types
from numba.core import compiler, typed_passes, untyped_passes
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target
from tests.emit.numba_front_end import declared
from tests.primitives.samples import all_samples

from tapegrad.backends.cpu import support, threads
from tapegrad.backends.cpu.machine_code import kernel_function
from tapegrad.backends.cpu.support import compiling, entry, functions, translation
from tapegrad.ir.tape import Builder, aval_of
from tapegrad.optimize.inline import inline_custom
from tapegrad.pipeline import schedule
from tapegrad.primitives.kinds import Routine

PASSES = {
    untyped_passes: ["TranslateByteCode", "FixupArgs", "IRProcessing", "ReconstructSSA"],
    typed_passes: [
        "NopythonTypeInference",
        "PreLowerStripPhis",
        "IRLegalization",
        "NativeLowering",
        "NoPythonBackend",
    ],
}


class Compiler(compiler.CompilerBase):
    """numba's pipeline, as far as loops over numbers need it."""

    def define_pipelines(self):
        self.state.flags.noalias = True
        manager = PassManager("kernel")
        for module, names in PASSES.items():
            for name in names:
                manager.add_pass(getattr(module, name), name)
        manager.finalize()
        return [manager]


@global_compiler_lock
def by_numba(function, parameters):
    """A kernel as numba's own front end compiles it."""
    flags = compiler.Flags()
    options = {"nopython": True, "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True}
    cpu_target.options.parse_as_flags(flags, options)
    flags.no_cfunc_wrapper = flags.no_compile = True
    kinds = tuple(compiling.kernel_type(*p) for p in parameters)
    target = cpu_target.target_context
    library = compiling.CodeLibrary(target.codegen(), function.__name__)
    done = compiler.compile_extra(
        cpu_target.typing_context,
        target,
        function,
        kinds,
        types.int64,
        flags,
        {},
        library,
        Compiler,
    )
    module = library.create_ir_module("entry")
    kernel = target.declare_function(module, done.fndesc)
    entry.add_entry(module, kernel, done.fndesc, whole=True, chunked=False)
    library.add_ir_module(module)
    return support.linked_here(function.__name__, library.object_code())


def both(text, parameters, constants=None):
    """A kernel, compiled in both ways."""
    names = {**support.namespace(), "nan": np.nan, "inf": np.inf, **(constants or {})}
    names["__name__"] = "tapegrad.generated.both"
    name = text.split("(", 1)[0].removeprefix("def ")
    ways = {support.compiled: names, by_numba: declared(names)}
    return [way(kernel_function(text, name, known), parameters) for way, known in ways.items()]


def assert_alike(kernels, parameters, seed=0):
    """Both write the same bits and return the same status."""
    rng = np.random.default_rng(seed)
    args = []
    for passed, shape, dtype in parameters:
        x = (rng.standard_normal(shape) * 3).astype(dtype)
        args.append(x.item() if passed == "scalar" else np.array(x))
    found = []
    for kernel in kernels:
        own = [np.array(x) if isinstance(x, np.ndarray) else x for x in args]
        found.append([kernel(*own), *own])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


REAL, WHOLE, TRUE = "float64", "int64", "bool"
BODIES = {
    "matrices in the middle of arrays": (
        """
        for i in range(4):
            matmul(z[:, i], z[:, 3 - i].T, w)
            matmul(z[:, i, :], z[:, i].T, v[i])
            add_matmul(row_part(z[:, 1], 1, 2), z[:, i].T, row_part(w, 0, 2))
            add_matmul(column_part(z[:, 1], i, 2), row_part(z[:, i].T, 3, 2), w)
            add_matmul(z[:, :, i], panel(v, (0, 0, 2), (0, 1), (4, 3)), w)
        """
    ),
    "windows of arrays": (
        """
        for i in range(2):
            matmul(x, panel(z, (1, i, 0), (1, 2, 4, 1, 0, 2, 1, 2, 2, 1), (4, 4)), y)
            add_matmul(x, panel(z, (0, i, 0), (2, 1, 2, 1, 2, 2, 2, 0, 2, 1, 2, 2, 1), (4, 4)), y)
        """
    ),
    "loops that count down, in steps, over parts": (
        """
        for i in range(3, -1, -1):
            for j in range(i, min(i + 3, 4)):
                y[i, j] = x[j, i] - 2 * i
        for i in range(1, 4, 2):
            y[i - 1, i] += x[3 - i, i] / 0.0
        """
    ),
    "numbers that are summed up": (
        """
        t = 0.0
        best = -inf
        bad = False
        for i in range(rolled(4)):
            t = plus(t, x[i, 0] * s)
            t += x[0, i] ** 2
            best = maximum(best, x[i, i])
            bad = bad | (x[i, 1] < (-4)) | isnan(x[i, 2])
        if bad:
            return 1
        y[0, 0] = where(bad, t, best)
        """
    ),
    "ways that are chosen": (
        """
        at = 0
        best = x[0, 0]
        for i in range(4):
            value = x[i, 1]
            if value > best or (value != value and best == best):
                best = value
                at = i
        y[wrapped(at - 4, 4), at] = best
        if best != 0.5:
            return 7
        """
    ),
    "whole numbers and flags": (
        """
        n = 3
        for i in range(4):
            k[i] += i
            k[i] = -k[i] // 2 + k[i] % 3 - (k[i] & 5 | 8 ^ n) + (k[i] << 1) - abs(k[i] >> 1)
            n *= k[i]
            f[i] = (not f[i]) & (k[i] >= 2)
            k[i] = as_i8(f[i]) + as_i4(x[i, 0])
        """
    ),
    "parts and transposes": (
        """
        a = reshaped(y, (2, 8))
        b = part(y, 3, (3,))
        matmul(x.T, x, y)
        for i in range(3):
            b[i] = tanh(a[1, i]) + exp(x[i][2])
        """
    ),
}
PARAMETERS = {
    "x": ("array", (4, 4), REAL),
    "y": ("array", (4, 4), REAL),
    "k": ("array", (4,), WHOLE),
    "f": ("array", (4,), TRUE),
    "s": ("scalar", (), REAL),
    "given": ("scalar", (), TRUE),
    "z": ("array", (3, 4, 5), REAL),
    "w": ("array", (3, 3), REAL),
    "v": ("array", (4, 3, 3), REAL),
}


@pytest.fixture(params=[translation.SMALL_LOOP, 0], ids=["in place", "functions"])
def small(request, monkeypatch):
    """From how many rounds on loops are functions."""
    for module in (translation, functions):
        monkeypatch.setattr(module, "SMALL_LOOP", request.param)


@pytest.mark.every(14)
@pytest.mark.parametrize("what", BODIES)
def test_each_kind_of_statement(what, small):
    body = textwrap.indent(textwrap.dedent(BODIES[what]).strip(), "    ")
    text = f"def kernel({', '.join(PARAMETERS)}):\n{body}\n    return 0\n"
    parameters = list(PARAMETERS.values())
    kernels = both(text, parameters)
    for seed in range(3):
        assert_alike(kernels, parameters, seed)


def test_no_variable_changes_its_type():
    text = "def kernel(x):\n    t = 0\n    t = x[0]\n    return 0\n"
    with pytest.raises(TypeError, match="t is of type int64, and is assigned a float64"):
        both(text, [("array", (4,), REAL)])


def can_be_anything(sample):
    """Half floats aren't compiled, and LAPACK believes the pivots that it is given."""
    kinds = {x.dtype.kind for x in sample.operands}
    pivots = isinstance(sample.primitive, Routine) and "i" in kinds
    return not pivots and all(x.dtype != np.float16 for x in sample.operands)


SAMPLES = [s for s in all_samples() if can_be_anything(s)][::60]


def test_samples_of_primitives(small):
    """Kernels of whole plans, on numbers that need make no sense."""
    builder, outputs = Builder("samples"), []
    placed = [[builder.input(aval_of(np.asarray(x))) for x in s.operands] for s in SAMPLES]
    for sample, inputs in zip(SAMPLES, placed, strict=True):
        outputs += builder.call(sample.primitive, inputs)
    program = schedule(inline_custom(builder.finish(outputs)))
    for kernel in program.kernels:
        parameters = [kernel.type_of(k) for k in range(len(kernel.parameters))]
        assert_alike(both(kernel.text, parameters, program.constants), parameters)


LOOPS = {  # and how many functions they are
    "alike but for names and for where they are": (
        1,
        """
        a = part(y, 16, (4, 4))
        for i in range(4):
            for j in range(4):
                y[i, j] = exp(x[i, j]) * s
        for k in range(4):
            for l in range(4):
                a[k, l] = exp(x[k, l + 2]) * s
        for i in range(4):
            for j in range(4):
                y[i + 8, j] = exp(x[i, j + 2]) * 2.0
        """,
    ),
    "that differ in a number's kind, in a distance, in a stride": (
        6,
        """
        a = reshaped(y, (8, 8))
        b = part(y, 24, (4, 4))
        for i in range(8):
            y[i, 0] = x[i, 1] + x[i, 2] * 2.0
        for i in range(8):
            y[i, 0] = x[i, 1] + x[i, 2] * 2
        for i in range(8):
            y[i, 1] = x[i, 1] + x[i, 3] * 2.0
        for i in range(8):
            a[i, 1] = x[i, 1] + x[i, 2] * 2.0
        for i in range(4):
            b[i, 3] = y[i, 2] + x[i, 2] * 2.0
        for i in range(4):
            y[i, 3] = b[i, 2] + x[i, 2] * 2.0
        """,
    ),
    "that change variables which are read later": (
        2,
        """
        t = 0.0
        u = 0.0
        n = 0
        for i in range(16):
            t = plus(t, x[i, 0])
            v = t * 2.0
        for i in range(16):
            u = plus(u, x[i, 1])
            w = u * 2.0
        for i in range(16):
            n += 3
            own = x[i, 2] * w
            last = own > v
            y[i, 1] = own
        for i in range(16):
            n += 3
            more = x[i, 3] * w
            final = more > v
            y[i, 2] = more
        y[0, 0] = t + u + v + w + n + where(last, 1.0, 2.0) + where(final, 4.0, 8.0)
        """,
    ),
    "with wholes of arrays, and indices before them": (
        2,
        """
        a = reshaped(y, (4, 4, 4))
        b = part(y, 32, (2, 4, 4))
        m = reshaped(x, (4, 4, 4))
        for i in range(2):
            matmul(m[i], m[i + 1].T, a[i])
        for j in range(2):
            matmul(m[j + 1], m[j + 2].T, b[j])
        for i in range(14, 0, -1):
            y[i, 3] = x[i + 1, 1] + y[i + 1, 3]
        for i in range(14, 0, -1):
            y[i, 2] = x[i + 1, 0] + y[i + 1, 2]
        """,
    ),
    "that return, and so stay": (
        1,
        """
        for i in range(16):
            if x[i, 0] > 100.0:
                return 3
        for i in range(16):
            if x[i, 1] > 100.0:
                return 4
        for i in range(16):
            y[i, 0] = x[i, 0]
        for i in range(16):
            y[i, 1] = x[i, 1]
        """,
    ),
    "that have none like them, and so stay": (
        0,
        """
        for i in range(16):
            y[i, 0] = x[i, 0]
        for i in range(16):
            y[i, 1] = x[i, 1] * s
        """,
    ),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("what", LOOPS)
def test_loops_as_functions(what, monkeypatch):
    count, text = LOOPS[what]
    made = []
    for module in (translation, functions):
        monkeypatch.setattr(module, "SMALL_LOOP", 0)
    monkeypatch.setattr(
        functions,
        "_function_of",
        lambda *args, of=functions._function_of: made.append(of(*args)) or made[-1],
    )
    body = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    parameters = [("array", (16, 4), REAL), ("array", (16, 4), REAL), ("scalar", (), REAL)]
    kernels = both(f"def kernel(x, y, s):\n{body}\n    return 0\n", parameters)
    assert len(made) == count
    for seed in range(3):
        assert_alike(kernels, parameters, seed)


def test_loops_that_cores_share():
    """They read renamed arrays, parts of them, and variables and arguments of each kind."""
    text = """
def kernel(x, y, w, s, n, b, z):
    u, v = x, y
    for t in range(5):
        a = part(v, 4, (8, 4))
        r = s * t
        c = z * r
        odd = b & (t % 2 == 1)
        for chunk in range(shared(4)):
            first = chunk * 4
            for i in range(first, min(first + 4, 15)):
                for j in range(4):
                    v[i, j] = u[i + 1, j] * r + t
                    w[i, j] += c * v[i, j]
        for chunk1 in range(shared(n % 3 + 2)):
            for j in range(4):
                a[chunk1, j] = u[chunk1, j] * 0.5
                if odd:
                    a[chunk1 + 4, j] = 1.0
        u, v = v, u
    return n
"""
    parameters = [
        *[("array", (16, 4), REAL)] * 2,
        ("array", (16, 4), "complex128"),
        *[("scalar", (), kind) for kind in (REAL, WHOLE, TRUE, "complex128")],
    ]
    kernels = both(text.strip() + "\n", parameters)
    threads.pool.wake(3)
    for seed in range(20):
        assert_alike(kernels, parameters, seed)


def test_long_loops_are_not_written_out():
    """Code of theirs is hardly longer than that of loops that LLVM can't write out at all."""

    def length(rounds):
        loops = f" for i in range(40):\n  for j in range({rounds}):\n   y[j] += x[i, j]\n"
        text = f"def kernel(x, y):\n{loops} return 0\n"
        function = kernel_function(text, "kernel", support.namespace())
        parameters = [("array", shape, REAL) for shape in ((40, rounds), (rounds,))]
        return len(support.object_code(function, parameters))

    assert length(250) < 1.2 * length(10_000)
