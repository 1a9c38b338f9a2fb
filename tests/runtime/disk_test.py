"""Compiled code on disk: who finds it, who must not, and what may go wrong with the files.

A function that is made anew is traced anew and looks on the disk, as one in another process does,
so most tests need only one process.
"""

from __future__ import annotations

import errno
import os
import pickle
import platform
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.primitives.samples import all_samples

import tapegrad as tg
from tapegrad.__main__ import main
from tapegrad.compiler import disk, kept, key
from tapegrad.compiler.packed import pack
from tapegrad.ir.tape import Aval, Builder, Tape
from tapegrad.primitives.base import Control
from tapegrad.primitives.control import Opaque

X = np.array([0.5, -1.0, 2.0])


@pytest.fixture(autouse=True)
def compiler(inside):
    """What goes wrong with the disk goes wrong in this process, where the tests see to that."""


@pytest.fixture(autouse=True)
def sources(monkeypatch):
    """Sources that somebody edits while the tests run are taken for those that run."""
    forget = key._sources.cache_clear  # a test may put something else in its place
    monkeypatch.setattr(key, "LOADED", float("inf"))
    forget()
    yield
    forget()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, whose warnings haven't been given."""
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(disk, "_warned", set())
    monkeypatch.setattr(disk, "_written", None)
    return tmp_path / "cache"


def cubes(factor=3.0):
    """A new function, with a cache of its own in memory."""
    return lambda x: np.sum(factor * x**3)


def counts(df):
    """How many variants were compiled, and how many found."""
    info = df.cache_info()
    return info.compiles, info.loads


def run(f, *args, compile="always"):
    """The gradient, and how it was come by."""
    df = tg.grad(f, compile=compile)
    found = df(*args)
    return found, counts(df)


def files(folder):
    return sorted(path for path in folder.glob("*/*"))


# ---- who finds it


def test_code_is_found_by_whoever_traces_the_same(folder):
    first, compiled = run(cubes(), X)
    again, found = run(cubes(), X)
    assert (compiled, found) == ((1, 0), (0, 1))
    np.testing.assert_array_equal(first, 9 * X**2)
    np.testing.assert_array_equal(again, first)
    assert len(files(folder)) == 1


def test_auto_uses_what_is_there_at_once(folder):
    assert run(cubes(), X, compile="auto")[1] == (0, 0)
    run(cubes(), X)
    again, found = run(cubes(), X, compile="auto")
    assert found == (0, 1)
    np.testing.assert_array_equal(again, 9 * X**2)


def test_never_neither_looks_nor_leaves(folder):
    run(cubes(), X, compile="never")
    assert not folder.exists()
    run(cubes(), X)
    assert run(cubes(), X, compile="never")[1] == (0, 0)


@pytest.mark.parametrize("value", ["", "off", "OFF"])
def test_it_can_be_turned_off(value, folder, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", value)
    assert disk.location() is None
    assert [run(cubes(), X)[1] for _ in range(2)] == [(1, 0)] * 2


def test_names_and_lines_of_the_program_do_not_matter(folder):
    def squares(x):
        return np.sum(x**2)

    def other(argument):
        found = argument**2
        return np.sum(found)

    run(squares, X)
    assert run(other, X)[1] == (0, 1)


def test_everything_that_code_may_use_is_found_again(folder):
    """BLAS, libm's vector functions, scratch memory, NumPy between kernels, guards, integers,
    booleans and numbers among the arguments."""

    def f(params, x, scale, count, mask):
        h = np.tanh(x @ params["W"] + params["b"]).astype(np.float32)
        h = np.sort(h, axis=0) @ params["V"].astype(np.float32)
        kept = np.where(mask, np.cumsum(h, axis=1), 0.0)
        return np.sum(np.exp(-(kept**2))) * scale / count if scale > 0 else 0.0 * scale

    rng = np.random.default_rng(0)
    shapes = {"W": (3, 20), "b": (20,), "V": (20, 4)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    args = (params, rng.normal(size=(6, 3)), 1.5, 7, rng.normal(size=(6, 4)) > 0)

    found = []
    for _ in range(2):
        df = tg.grad(lambda *args: f(*args), argnums=(0, 1, 2), compile="always")
        found.append([df(*args), df(*args), counts(df)])
    assert [how for _, _, how in found] == [(1, 0), (0, 1)]
    (one, two, _), (three, four, _) = found
    for other in (two, three, four):
        for name in params:
            np.testing.assert_array_equal(other[0][name], one[0][name])
        np.testing.assert_array_equal(other[1], one[1])
        assert other[2] == one[2]


def test_captured_arrays_are_not_part_of_the_code(folder):
    for w, how in ((X, (1, 0)), (X + 1, (0, 1))):
        found, counted = run(lambda x, w=w: np.sum(w * x), X)
        np.testing.assert_array_equal(found, w)
        assert counted == how


# ---- who must not


def tape_of(f, *args) -> Tape:
    df = tg.grad(f, compile="never")
    df(*args)
    return df.tapes[0]


def nan(payload):
    return np.array([0x7FF8_0000_0000_0000 | payload], np.uint64).view(np.float64)[0]


M = np.ones((2, 2))

# Programs whose tapes differ in one thing each.
PROGRAMS = {
    "plain": (cubes(), X),
    "constant": (cubes(3.5), X),
    "last bit": (cubes(np.nextafter(3.0, 4.0)), X),
    "dtype": (cubes(), X.astype(np.float32)),
    "shape": (cubes(), X[:2]),
    "rank": (cubes(), X[:, None]),
    "0.0": (lambda x: np.sum(np.copysign(x, 0.0) * x), X),
    "-0.0": (lambda x: np.sum(np.copysign(x, -0.0) * x), X),
    "NaN": (lambda x: np.sum(x * np.where(x > 0, nan(0), x)), X),
    "NaN with a payload": (lambda x: np.sum(x * np.where(x > 0, nan(1), x)), X),
    "operation": (lambda x: np.sum(np.exp(x)), X),
    "another operation": (lambda x: np.sum(np.expm1(x) ** 2), X),
    "axis": (lambda x: np.sum(np.prod(x, axis=0)), M),
    "another axis": (lambda x: np.sum(np.prod(x, axis=1)), M),
    "guard": (lambda x: x**2 if x > 1 else x, 2.0),
    "another guard": (lambda x: x if x < 1 else x**2, 2.0),
    "no guard": (lambda x: x**2, 2.0),
    "order": (lambda x, y: np.sum(x * np.exp(y)), X, X),
    "another order": (lambda y, x: np.sum(x * np.exp(y)), X, X),
    "argument that isn't used": (lambda x, y: np.sum(3.0 * x**3), X, X),
}


def test_programs_that_differ_never_share_code():
    keys = {name: key.program_key(pack(tape_of(*program))) for name, program in PROGRAMS.items()}
    assert None not in keys.values()
    assert len(set(keys.values())) == len(keys)


def test_primitives_that_differ_never_share_a_name():
    """And each has one: there is nothing whose code can't be kept."""
    found = {}
    for sample in all_samples():
        p = sample.primitive
        if not isinstance(p, (Control, Opaque)):
            assert found.setdefault(key._name(p), p) == p
    assert len(found) == len(set(found.values())) > 200


def test_constants_that_differ_in_the_last_bit_are_told_apart(folder):
    for factor in (1.0, np.nextafter(1.0, 2.0)):
        found, how = run(lambda x, factor=factor: np.sum(factor * x), X)
        np.testing.assert_array_equal(found, np.full(3, factor))
        assert how == (1, 0)


def test_functions_that_numpy_runs_are_the_callers_own(folder):
    """The code calls whatever stands on the tape at hand."""

    def opaque(factor):
        @tg.primitive
        def f(x):
            return np.array([factor * float(v) for v in x])

        tg.defvjp(f, lambda ct, out, x: ct * factor)
        return f

    double, triple = opaque(2.0), opaque(3.0)
    hows = []
    for f, g in [(double, double), (triple, triple), (double, triple), (triple, double)]:
        jf = tg.jit(lambda x, f=f, g=g: f(np.exp(g(x))), compile="always")
        np.testing.assert_allclose(jf(X), f(np.exp(g(X))))
        hows.append(counts(jf))
    assert hows == [(1, 0), (0, 1), (0, 1), (0, 1)]


def test_which_of_numpys_calls_are_the_same_is_part_of_the_key():
    def tape(*functions):
        builder = Builder("f")
        x = builder.input(Aval((3,), np.dtype(float)))
        for function in functions:
            (x,) = builder.call(Opaque("f", function, (x.aval,), 1), [x])
        return pack(builder.finish([x]))

    one, same = tape(np.sin, np.sin), tape(np.cos, np.cos)
    other, again = tape(np.sin, np.cos), tape(np.exp, np.sin)
    assert key.program_key(one) == key.program_key(same) != key.program_key(other)
    assert key.program_key(other) == key.program_key(again)


@pytest.mark.parametrize("part", ["_sources", "processor_key"])
def test_other_versions_and_processors_have_their_own_code(part, folder, monkeypatch):
    run(cubes(), X)
    for where in (key, kept):
        monkeypatch.setattr(where, part, lambda: "0" * 40, raising=False)
    assert run(cubes(), X)[1] == (1, 0)
    assert len(files(folder)) == 2


def test_settings_of_numba_are_part_of_the_key(monkeypatch):
    packed = pack(tape_of(cubes(), X))
    before = key.program_key(packed)
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert key.program_key(packed) != before


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """A file that describes the processor, which this test writes; and who else may be asked."""
    monkeypatch.setattr(key, "_CPUINFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(key, "_processor_by_llvm", lambda: ("what LLVM says",))
    return tmp_path / "cpuinfo"


CORE = """processor\t: {core}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R)
stepping\t: 7
cpu MHz\t\t: {speed}
flags\t\t: fpu sse4_2 avx2 {flags}

"""


def test_the_processor_is_known_without_llvm(cpuinfo):
    """Which core is described first, and how fast it runs at the moment, doesn't matter."""

    def found(*cores, flags="avx512f"):
        cpuinfo.write_text("".join(CORE.format(core=c, speed=c**2, flags=flags) for c in cores))
        return key.processor_key.__wrapped__()

    assert found(0, 1) == found(5) == found(*range(100)) != found(0, flags="")
    assert found(0, flags="avx512f " * 2000) != found(0, flags="avx512f " * 2001)  # to the end


@pytest.mark.parametrize("text", [None, "", "processor: 0\nflags: fpu\n\n", "\n\n"])
def test_where_the_processor_isnt_described_llvm_is_asked(text, cpuinfo, monkeypatch):
    if text is not None:
        cpuinfo.write_text(text)
    asked = key.processor_key.__wrapped__()
    monkeypatch.setattr(key, "_processor_by_llvm", lambda: ("something else",))
    assert key.processor_key.__wrapped__() != asked


def test_sources_that_changed_under_the_process_are_not_those_that_run(folder, monkeypatch):
    """As when tapegrad is upgraded while a program runs."""
    monkeypatch.setattr(key, "LOADED", 0.0)
    assert [run(cubes(), X)[1] for _ in range(2)] == [(1, 0)] * 2
    assert not folder.exists()


# ---- damaged, foreign and malicious files


class Trap:
    """What is unpickled of it leaves a file."""

    def __reduce__(self):
        return Path.touch, (Path("trapped"),)


def flip(at):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)

    return damage


def resigned(change):
    """Another content with a checksum that is right."""

    def damage(path):
        content = change(path.read_bytes().partition(b"\n")[2])
        disk.write(f"{path.parent.name}/{path.name}", content)

    return damage


def swapped(path):
    """The code of another tape."""
    run(cubes(5.0), X)
    (other,) = set(files(path.parents[1])) - {path}
    path.write_bytes(other.read_bytes())


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a bit of the checksum": flip(20),
    "a bit of the driver": flip(200),
    "a bit of the code": flip(-100),
    "of another tape": swapped,
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "pickle with a checksum": resigned(lambda _: pickle.dumps(Trap())),
    "no JSON": resigned(lambda _: b"rubbish"),
    "JSON of something else": resigned(lambda _: b"[1, 2]\n"),
    "no code": resigned(lambda content: content.partition(b"\n")[0] + b"\n"),
    "no machine code": resigned(lambda content: content.partition(b"\n")[0] + b"\n" + b"x" * 9999),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "readable only": lambda path: path.chmod(0o400),
    "writable by others": lambda path: path.chmod(0o666),
}
STILL_GOOD = {"readable only"}
NOT_REPLACED = {"a folder"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_anew_and_replaced(damage, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(cubes(), X)
    (path,) = files(folder)
    DAMAGES[damage](path)
    found, how = run(cubes(), X)
    np.testing.assert_array_equal(found, 9 * X**2)
    assert how == ((0, 1) if damage in STILL_GOOD else (1, 0))
    if damage not in NOT_REPLACED:
        assert run(cubes(), X)[1] == (0, 1)
    assert not Path("trapped").exists()


def other_user(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    return "belongs to another user"


def writable(folder, monkeypatch):
    folder.chmod(0o770)
    return "can be written to by other users"


@pytest.mark.parametrize("theirs", [other_user, writable])
def test_a_folder_that_others_could_have_filled_is_refused(theirs, folder, monkeypatch):
    run(cubes(), X)
    before = [path.stat().st_mtime_ns for path in files(folder)]
    message = theirs(folder, monkeypatch)
    with pytest.warns(RuntimeWarning, match=message) as caught:
        hows = [run(cubes(), X)[1], run(cubes(4.0), X)[1]]
    assert hows == [(1, 0), (1, 0)]
    assert len(caught) == 1 and "chmod" in str(caught[0].message)
    assert [path.stat().st_mtime_ns for path in files(folder)] == before


def test_a_file_that_another_user_owns_is_not_read(folder, monkeypatch):
    """In a folder of the user's own, as after somebody moved it there."""

    def theirs(file, fstat=os.fstat):
        found = list(fstat(file))
        found[stat.ST_UID] += 1
        return os.stat_result(found)

    run(cubes(), X)
    (path,) = files(folder)
    name = f"{path.parent.name}/{path.name}"
    assert disk.read(name) is not None
    monkeypatch.setattr(os, "fstat", theirs)
    assert disk.read(name) is None


def test_only_the_user_may_read_and_write(folder):
    run(cubes(), X)
    (path,) = files(folder)
    assert [p.stat().st_mode & 0o777 for p in (folder, path.parent, path)] == [0o700, 0o700, 0o600]


# ---- a disk that doesn't want to


@pytest.mark.parametrize("step", ["mkstemp", "fdopen", "replace"])
def test_a_full_or_read_only_disk_is_no_error(step, folder, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    import tempfile

    monkeypatch.setattr(tempfile if step == "mkstemp" else os, step, fail)
    found, how = run(cubes(), X)
    np.testing.assert_array_equal(found, 9 * X**2)
    assert how == (1, 0)
    assert files(folder) == []


def test_a_folder_that_can_not_be_touched_is_read(folder, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    run(cubes(), X)
    monkeypatch.setattr(os, "utime", fail)
    assert run(cubes(), X)[1] == (0, 1)


def test_a_folder_that_can_not_be_made(tmp_path, folder, monkeypatch):
    """Somebody who asked for it is told; the default one is just not there."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="TAPEGRAD_CACHE_DIR names, can't be used") as caught:
        assert [run(cubes(), X)[1] for _ in range(2)] == [(1, 0)] * 2
    assert len(caught) == 1
    monkeypatch.delenv("TAPEGRAD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run(cubes(), X)[1] == (1, 0)


@pytest.mark.parametrize("why", [errno.EROFS, errno.EACCES])
def test_a_home_that_can_not_be_written_to(why, tmp_path, monkeypatch):
    """Nobody asked for a cache there, so nobody is told that there is none."""

    def fail(path, *args, **kwargs):
        raise OSError(why, os.strerror(why), path)

    for name in ("TAPEGRAD_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "mkdir", fail)
    assert [run(cubes(), X)[1] for _ in range(2)] == [(1, 0)] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/tapegrad"),
        ("linux", {"XDG_CACHE_HOME": "relative", "HOME": "/me"}, "/me/.cache/tapegrad"),
        ("linux", {"HOME": "/me"}, "/me/.cache/tapegrad"),
        ("linux", {"HOME": "no home"}, None),
        ("darwin", {"HOME": "/me"}, "/me/Library/Caches/tapegrad"),
        ("win32", {"LOCALAPPDATA": "/profile"}, "/profile/tapegrad"),
        ("win32", {}, None),
        ("linux", {"TAPEGRAD_CACHE_DIR": "~/mine", "HOME": "/me"}, "/me/mine"),
    ],
)
def test_where_it_is(platform, variables, expected, monkeypatch):
    for name in ("TAPEGRAD_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert disk.location() == expected


# ---- its size


def fill(*names):
    """A kilobyte under each name, used one after another."""
    for age, name in enumerate(names):
        disk.write(f"{name * 40}/{'0' * 40}", b"x" * 1000)
        path = Path(disk.location()) / (name * 40) / ("0" * 40)
        if path.exists():
            os.utime(path, (age, age))


def has(name):
    return disk.read(f"{name * 40}/{'0' * 40}") is not None


def test_the_least_recently_used_files_go_first(folder, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_SIZE", "0.0035")
    fill("a", "b", "c")
    assert has("a")  # which makes it the last that was used
    disk.write(f"{'d' * 40}/{'0' * 40}", b"x" * 1000)
    assert [has(name) for name in "abcd"] == [True, False, True, True]
    assert not (folder / ("b" * 40)).exists()
    assert disk.info().bytes <= 3500


def test_a_size_that_is_no_number(folder, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE_SIZE", "lots")
    with pytest.warns(RuntimeWarning, match="'lots', and not a number of megabytes"):
        assert disk.limit() == 500e6


def test_clearing_touches_nothing_else(folder, tmp_path):
    fill("a", "b")
    (folder / "notes").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    for path in (folder / "notes" / "mine", outside / "mine"):
        path.touch()
    (folder / ("c" * 40)).symlink_to(outside)
    disk.clear()
    assert disk.info()[1:3] == (0, 0)
    assert (folder / "notes" / "mine").exists() and (outside / "mine").exists()


def test_the_command_line(folder, monkeypatch):
    fill("a", "b")

    def said(*arguments):
        outcome = CliRunner().invoke(main, arguments)
        assert outcome.exit_code == 0
        return outcome.output

    assert str(folder) in said("cache", "info") and "tapes   2" in said("cache", "info")
    assert said("cache", "clear") == "removed 2 compiled tapes\n"
    assert "tapes   0" in said("cache", "info")
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", "off")
    assert "nothing is kept" in said("cache", "info")
    assert said("cache", "clear") == "removed 0 compiled tapes\n"


# ---- other processes

PROGRAM = """
import sys
import numpy as np
from tapegrad import grad


def f(x):
    return np.sum(np.exp(x @ x) * x)


x = np.eye(40)
df = grad(f, compile=sys.argv[1])
expected = grad(f, compile="never")(x)
for _ in range(3):
    np.testing.assert_allclose(df(x), expected)
info = df.cache_info()
print(info.compiles, info.loads, "numba" in sys.modules)
assert info.compiles or "scipy" not in sys.modules  # its BLAS is found without it

import scipy.linalg.cython_blas  # tapegrad's way to BLAS leaves it as it is for others

assert scipy.linalg.cython_blas.__pyx_capi__
"""


def test_the_command_line_in_a_process_of_its_own(folder):
    fill("a")
    command = [sys.executable, "-m", "tapegrad", "cache"]
    info = subprocess.run([*command, "info"], capture_output=True, text=True, check=True)
    assert str(folder) in info.stdout and "tapes   1" in info.stdout
    cleared = subprocess.run([*command, "clear"], capture_output=True, text=True, check=True)
    assert cleared.stdout == "removed 1 compiled tapes\n"
    assert files(folder) == []


# The evidence of a Gaussian process: Cholesky's factor, triangles, LU factors, matrix products.
EVIDENCE = """
import platform
import sys
import numpy as np
from tapegrad import linalg, value_and_grad


def evidence(p, x, y):
    d = x[:, None] - x
    K = p["scale"] * np.exp(-((d / p["length"]) ** 2)) + 0.1 * np.eye(len(x), dtype=x.dtype)
    L = np.linalg.cholesky(K)
    z = linalg.solve_triangular(L, y, lower=True)
    return z @ z + np.linalg.slogdet(K)[1] + np.trace(np.linalg.inv(K)) + y @ np.linalg.solve(K, y)


rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 40)).astype(sys.argv[2])
p = {"scale": np.ones((), x.dtype), "length": np.ones((), x.dtype)}
df = value_and_grad(evidence, compile=sys.argv[1])
value, found = df(p, x, y)
print(*[np.asarray(v).tobytes().hex() for v in (value, found["scale"], found["length"])])
info = df.cache_info()
compiling = {"numba", "networkx", "tapegrad.emit.numba_source", "tapegrad.schedule.lower"}
compiling |= {"llvmlite.binding"} if platform.machine() == "x86_64" else set()
print(info.compiles, info.loads, *sorted(compiling.intersection(sys.modules)))
"""


def process(*arguments, program=PROGRAM):
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    )


def answer(started):
    out, _ = started.communicate(timeout=300)
    assert started.returncode == 0
    return tuple(out.split())


def test_eight_processes_at_once_and_one_after_them(folder):
    """One of them compiles, and the others wait for that."""
    found = [answer(started) for started in [process("always") for _ in range(8)]]
    assert sorted(found) == [("0", "1", "False")] * 7 + [("1", "0", "False")]
    assert len(files(folder)) == 1
    assert answer(process("auto")) == ("0", "1", "False")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lapack_is_found_in_another_process(dtype, folder):
    """Routines stand in the code as names: each process has them at other addresses. One that
    finds its code loads nothing of what compiles, nor LLVM for its linker."""
    first = answer(process("always", dtype, program=EVIDENCE))
    assert first[3:] == ("1", "0")
    code = b"".join(path.read_bytes() for path in files(folder))
    letter = {"float64": "d", "float32": "s"}[dtype]
    for name in ("potrf", "getrf", "getri", "getrs", "trsv", "trsm", "symm", "gemm"):
        assert f"tapegrad_{letter}{name}".encode() in code
    second = answer(process("auto", dtype, program=EVIDENCE))
    assert second == (*first[:3], "0", "1")


def test_what_does_not_use_it(folder):
    """simplegrad, vjp and a tape's compile neither read nor write: they belong to their caller."""
    w, x = np.ones(3), np.ones((5, 3))

    def f(w, x):
        return np.sum(np.tanh(x @ w) ** 2)

    tg.simplegrad(f, w, x)(w, x)
    _, pull = tg.vjp(f, w, x)
    pull(1.0)
    tg.trace(f, w, x)[1].compile()(w, x)
    assert not files(folder)
    tg.grad(f, compile="always")(w, x)
    assert files(folder)
