"""Names in emitted text: whatever a user calls something, the text means what it says.

Each word that an emitted text may say is tried as a user's name, of an argument, a variable, the
key of a dict, the function, and an array from outside.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import linecache
import symtable
import unicodedata

import numpy as np
import pytest

from tapegrad import grad, simplegrad, trace
from tapegrad.backends.cpu import support
from tapegrad.backends.host import HOST
from tapegrad.backends.numpy.source import numpy_function
from tapegrad.backends.source.driver import NUMBERS, dtypes
from tapegrad.backends.source.names import Scope, reserved
from tapegrad.pipeline import gradient, optimized, schedule

CONSTANTS = ["f4_2_0", "f4_0_5", "f4_1e_05", "f4_1em05", "f4_m0_5", "u1_3", "i4_7", "f4_inf"]
SAID = ["args", "call", "flat", "run", "d_x", "x1", "x", "t", "t1", "ct", "i", "j", "i0", "first"]
SAID += ["out", "out1", "status", "scratch", "scratch0", "spare", "memory", "chunk", "value", "a"]
SAID += ["loss_kernel", "loss_kernel0", "grad_loss", "grad_loss_kernel", "Miss", "Stale", "key"]
STRANGE = [
    "\u03c3",
    "\ufb01",
    "\u00aab",
    "x_" * 150,
    "__class__",
    "__debug",
    "_",
    "__",
    "match",
    "type",
]
RESERVED = reserved() | HOST.reserved()
FORMS = [f"as_{kind}{size}" for kind in "fiub" for size in (1, 2, 4, 8)]
OTHERS = {"numpy", "total", "n_", "some_dict"}  # what the programs below say themselves
WORDS = sorted(
    {
        unicodedata.normalize("NFKC", w)
        for w in (*RESERVED, *support.namespace(), *CONSTANTS, *SAID, *STRANGE, *FORMS)
    }
    - {"__debug__", *keyword.kwlist, *OTHERS}
)
BATCH = 60
BATCHES = [WORDS[k : k + BATCH] for k in range(0, len(WORDS), BATCH)]
numpy = np

# Constants of float32 and of narrow integers, casts, helpers of several kinds, and a sum.
BODY = """
def {function}({arguments}, some_dict, n_):
    total = 0.0
    {lines}
    return total + numpy.sum(some_dict[{first!r}] * numpy.float32(2.0))
"""
LINE = "{w} = numpy.where({w} > 0.25, numpy.exp({w} * numpy.float32(0.5)) + {g}, {w} * n_)"


def program(words, function, outside=()):
    """A function with arguments, variables and keys that have these names, and one of its own."""
    pairs = zip(words, [*outside, *["0.5"] * len(words)], strict=False)
    lines = [line for w, g in pairs for line in (LINE.format(w=w, g=g), f"total += numpy.sum({w})")]
    text = BODY.format(
        function=function, arguments=", ".join(words), lines="\n    ".join(lines), first=words[0]
    )
    file = f"<names {function} {abs(hash(text))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"numpy": np, **{w: np.float32(0.5) * np.ones(3, np.float32) for w in outside}}
    exec(compile(text, file, "exec"), names)
    return names[function]


def arguments(words):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=3).astype(np.float32) for _ in words]
    held = {w: rng.normal(size=3).astype(np.float32) for w in words}
    return (*xs, held, np.arange(3, dtype=np.uint8))


PYTHON = {*dir(builtins), "np", "annotations"}


class Generators(ast.NodeTransformer):
    """Makes comprehensions generators, whose variables are their own. From Python 3.12 on those of
    the others stand among the names of what they are part of, though it never sees them."""

    def visit_ListComp(self, node):
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    visit_SetComp = visit_ListComp

    def visit_DictComp(self, node):
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)


def bound(source):
    """The names that a text's statements bind; one for each statement that does."""
    names = []
    for statement in Generators().visit(ast.parse(source)).body:
        table = symtable.symtable(ast.unparse(statement), "text", "exec")
        names += [s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()]
    return names


def assert_meant(source, told):
    """Every function of a text says by a global name what is `told` of it, or what the text binds
    to it, which it does once. No function has a variable of such a name, but for parameters: a
    kernel is passed the arrays from outside under their names."""
    own = bound(source)
    assert len({*own}) == len(own), sorted(n for n in own if own.count(n) > 1)
    assert not {*own} & {*told} - {"np"}
    known = {*own, *told, *PYTHON}
    table = symtable.symtable(source, "text", "exec")
    for function in table.get_children():
        passed = {*function.get_parameters()} - {*own}
        assert not passed & known, passed & known
        variables = {*function.get_locals()} - {*function.get_parameters()}
        assert not variables & known, variables & known
        assert {*function.get_globals()} <= known, {*function.get_globals()} - known


def emitted(tape):
    """The texts of a tape's program, and the constants in them."""
    made = schedule(optimized(tape))
    return "\n".join(k.text for k in made.kernels), made


@pytest.mark.every(8)
@pytest.mark.parametrize("words", BATCHES, ids=lambda words: words[0])
def test_no_name_of_a_users_shadows_what_a_text_says(words):
    others = BATCHES[(BATCHES.index(words) + 1) % len(BATCHES)][: len(words)]
    outside = [w for w in others if w not in words]
    f = program(words, "loss" if "loss" not in words else "loss_", outside)
    args = arguments(words)
    value, tape = trace(f, *args)
    tape = gradient(tape, [0, 1], keep=[0])
    kernels, made = emitted(tape)
    assert made.constants
    told = {*support.namespace(), *NUMBERS, *dtypes(), *made.constants, "empty"}
    assert_meant(kernels, told - PYTHON)
    # The text that users see says the constants of the file that it is the top of.
    assert_meant(tape.source, {*support.namespace(), *made.constants, "Stale", *NUMBERS} - PYTHON)
    # NumPy's text runs, and says the same.
    inputs = [*args[:-2], *(args[-2][k] for k in sorted(args[-2])), args[-1]]
    played = tape.play(*inputs)
    for one, other in zip(numpy_function(tape)(*inputs), played, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(played[0], value, rtol=1e-5)


def test_functions_may_have_any_name():
    for name in WORDS[::20]:
        tape = trace(program(["x", "y"], name), *arguments(["x", "y"]))[1]
        kernels, made = emitted(tape)
        told = {*support.namespace(), *NUMBERS, *dtypes(), *made.constants, "empty"}
        assert_meant(kernels, told - PYTHON)
        compile(tape.source, "", "exec")
        compile(tape.numpy_source, "", "exec")
    for name in ("", "a b", 'a"""\n', "1", "\ufb01", "lambda", "x\ny", "\u00e9" * 300, "\\"):
        f = program(["x", "y"], "f")
        f.__name__ = name
        tape = trace(f, *arguments(["x", "y"]))[1]
        compile(tape.source, "", "exec")
        compile(tape.numpy_source, "", "exec")


SPOKEN = [w for w in WORDS if w in {*CONSTANTS, *SAID, *STRANGE, *FORMS, "exp", "where", "plus"}]
SPOKEN += ["empty", "float32", "len", "range", "dict", "BufferError", "nan", "inf", "ndarray"]


@pytest.mark.every(2)
@pytest.mark.parametrize("half", [0, 1])
def test_compiled_code_computes_what_the_names_say(half):
    words, outside = SPOKEN[half::6], SPOKEN[2::12]
    f, args = program(words, ("loss", "args")[half], outside), arguments(words)
    argnums = tuple(range(len(words) + 1))
    expected = grad(f, argnums, compile="never")(*args)
    compiled = grad(f, argnums, compile="always")
    for found in (compiled(*args), compiled(*args), compiled(*args[:-1], n_=args[-1])):
        for one, other in zip(found[:-1], expected[:-1], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        for w in words:
            np.testing.assert_allclose(found[-1][w], expected[-1][w], rtol=1e-5)
    assert len(compiled.front.recent) == 1
    if half:
        made = simplegrad(f, *args)
        own = {*bound(made._text.source), *bound(made._text.compiling)}
        assert own & {*bound(support.text())} <= {"np"}
        for one, other in zip(made(*args)[1:-2], expected[:-1], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_the_words_are_those_that_texts_find_where_they_run():
    assert {*support.namespace()} <= RESERVED
    assert {*bound(support.text())} <= RESERVED


def test_a_scope_hands_out_each_name_once():
    scope = Scope(RESERVED)
    wanted = [
        "x",
        "x",
        "x1",
        "\ufb01",
        "fi",
        "for",
        "for",
        "1a",
        "a b",
        "",
        "\u00e9",
        "e\u0301",
        "y" * 300,
    ]
    found = [scope.fresh(w) for w in (*wanted, *RESERVED)]
    assert len({*found}) == len(found)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in found)
    assert not {*found} & RESERVED
    assert max(map(len, found)) < 70


def names_of(node):
    """The names that a statement of a module binds, each with what it is bound to."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name: node}
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        found = [x for target in targets for x in ast.walk(target)]
        return {x.id: node for x in found if isinstance(x, ast.Name)}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        module = getattr(node, "module", "")
        if (module or "").startswith("tapegrad"):
            assert all(x.asname is None for x in node.names)  # such lines aren't in a saved file
            return {}
        return {x.asname or x.name: (module, x.name) for x in node.names}
    return {}


def test_names_of_a_saved_file_mean_one_thing():
    """The modules that it ends with are one there."""
    known = {}
    for module in support.MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            for name, meaning in names_of(node).items():
                where = known.setdefault(name, (module.__name__, meaning))
                same = where[0] == module.__name__ or where[1] == meaning
                assert same, f"{name} is one thing in {where[0]}, another one in {module.__name__}"
