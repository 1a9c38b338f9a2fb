"""Compiled code on disk: who finds it, who must not, and what may go wrong with the files.

A function that is made anew is traced anew and looks on the disk, as one in another process does,
so most tests need only one process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import platform
import shutil
import socket
import stat
import subprocess
import sys
import warnings
from array import array
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.primitives.samples import all_samples

import tapegrad as tg
from tapegrad.__main__ import main
from tapegrad.backends.cpu import processor
from tapegrad.compiler import disk, key
from tapegrad.compiler.packed import pack
from tapegrad.ir.tape import Aval, Builder, Tape
from tapegrad.primitives.control import ForeignCall
from tapegrad.primitives.kinds import Control
from tapegrad.runtime import reuse
from tapegrad.runtime.tier import Tier

X = np.array([0.5, -1.0, 2.0])


@pytest.fixture(autouse=True)
def sources(monkeypatch):
    """Sources that somebody edits while the tests run are taken for those that run."""
    forget = key._sources.cache_clear  # a test may put something else in its place
    monkeypatch.setattr(key, "LOADED", float("inf"))
    monkeypatch.setattr(key, "SETTLED", float("inf"))  # these tests count files
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
    """A new function, of whose code nothing is in memory."""
    reuse.forget()
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
    """The files of programs, which have a driver's lines, as kernels have not."""
    return sorted(path for path in folder.glob("*/*") if b'"lines"' in path.read_bytes())


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
        if not isinstance(p, (Control, ForeignCall)):
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
            return np.array([factor * array("d", [v])[0] for v in x])

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
            (x,) = builder.call(ForeignCall("f", function, (x.aval,), 1), [x])
        return pack(builder.finish([x]))

    one, same = tape(np.sin, np.sin), tape(np.cos, np.cos)
    other, again = tape(np.sin, np.cos), tape(np.exp, np.sin)
    assert key.program_key(one) == key.program_key(same) != key.program_key(other)
    assert key.program_key(other) == key.program_key(again)


@pytest.mark.parametrize("where, part", [(key, "_sources"), (processor, "processor_key")])
def test_other_versions_and_processors_have_their_own_code(where, part, folder, monkeypatch):
    run(cubes(), X)
    monkeypatch.setattr(where, part, lambda: "0" * 40)
    assert run(cubes(), X)[1] == (1, 0)
    assert len(files(folder)) == 2


def test_sources_are_read_again_where_one_was_changed(folder, tmp_path, monkeypatch):
    """Their digest is kept under their sizes, times and places."""
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    one, other = package / "one.py", package / "inner" / "other.py"
    one.write_text("1")
    other.write_text("2")
    read: list[str] = []
    real = key._contents
    monkeypatch.setattr(key, "PACKAGE", str(package))
    monkeypatch.setattr(key, "_contents", lambda paths: read.append("all") or real(paths))
    monkeypatch.setattr(key, "SETTLED", 2.0)

    def digest():
        key._sources.cache_clear()
        read.clear()
        return key._sources(), len(read)

    first, _ = digest()
    assert digest() == (first, 1)  # a change within a tick of the clock wouldn't be seen
    monkeypatch.setattr(key, "SETTLED", -1.0)
    assert digest() == (first, 1)
    assert digest() == (first, 0)
    before = other.stat()
    other.write_text("3")  # as long as before
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest() != (first, 0)
    second, _ = digest()
    assert second != first
    other.unlink()
    assert digest()[0] not in (first, second, "")
    monkeypatch.setattr(key, "LOADED", 0.0)
    assert digest()[0] == ""


def test_settings_of_numba_are_part_of_the_key(monkeypatch):
    packed = pack(tape_of(cubes(), X))
    before = key.program_key(packed)
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert key.program_key(packed) != before


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """A file that describes the processor, which this test writes; and who else may be asked."""
    monkeypatch.setattr(processor, "_CPUINFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "_processor_by_llvm", lambda: ("what LLVM says",))
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
        return processor.processor_key.__wrapped__()

    assert found(0, 1) == found(5) == found(*range(100)) != found(0, flags="")
    assert found(0, flags="avx512f " * 2000) != found(0, flags="avx512f " * 2001)  # to the end


@pytest.mark.parametrize("text", [None, "", "processor: 0\nflags: fpu\n\n", "\n\n"])
def test_where_the_processor_isnt_described_llvm_is_asked(text, cpuinfo, monkeypatch):
    if text is not None:
        cpuinfo.write_text(text)
    asked = processor.processor_key.__wrapped__()
    monkeypatch.setattr(processor, "_processor_by_llvm", lambda: ("something else",))
    assert processor.processor_key.__wrapped__() != asked


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


def bound(path):
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as s:  # its name is short
        s.bind(path.name)


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
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "a link to what was there": lambda path: (
        path.rename(path.parents[2] / "x") and (path.symlink_to(path.parents[2] / "x"))
    ),
    "a link to a file without an end": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),  # to open one is to wait
    "a socket": lambda path: (path.unlink(), bound(path)),
    "huge": lambda path: os.truncate(path, 2**40),  # with a hole
    "readable only": lambda path: path.chmod(0o400),
    "writable by others": lambda path: path.chmod(0o666),
}
if not hasattr(os, "mkfifo"):  # Windows: links take rights that few have, holes are written out
    for name in [name for name in DAMAGES if name.startswith("a link")]:
        del DAMAGES[name]
    for name in ("a FIFO", "a socket", "huge"):
        del DAMAGES[name]
STILL_GOOD = {"readable only"}
NOT_REPLACED = {"a folder"}


@pytest.mark.every(8)
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


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has profiles instead")


@pytest.fixture
def umask():
    """Files are made as the program says, for everybody if it doesn't."""
    before = os.umask(0)
    yield
    os.umask(before)


@posix
@pytest.mark.parametrize("asked", [True, False])
def test_only_the_user_may_read_and_write(asked, umask, tmp_path, folder, monkeypatch):
    """Whatever the umask, of the folders above that have to be made, too."""
    folder = tmp_path / "above" / "it" / "tapegrad"
    if asked:
        monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(folder))
    else:
        monkeypatch.delenv("TAPEGRAD_CACHE_DIR")
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))
    run(cubes(), X)
    (path,) = files(folder)
    folders = (folder.parents[1], folder.parent, folder, path.parent)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (*folders, path)] == [0o700] * 4 + [0o600]


GROUP = "a" * 40
NAME = f"{GROUP}/{'0' * 40}"


def looks(monkeypatch, path, **changes):
    """What is at a path is another's, or has another mode, as far as anybody can see."""
    given = os.lstat

    def lstat(where, *args, **kwargs):
        found = given(where, *args, **kwargs)
        if os.fspath(where) != os.fspath(path):
            return found
        fields = list(found)
        for name, value in changes.items():
            fields[getattr(stat, name)] = value
        return os.stat_result(fields)

    monkeypatch.setattr(os, "lstat", lstat)


def link_to_itself(group, monkeypatch):
    moved = group.parents[1] / "elsewhere"
    group.rename(moved)
    group.symlink_to(moved)


SOMEBODY = 12345  # neither root nor who runs the tests
GROUPS = {
    "of another user": lambda g, m: looks(m, g, ST_UID=SOMEBODY),
    "writable by a group": lambda g, m: g.chmod(0o770),
    "writable by all": lambda g, m: g.chmod(0o702),
    "a link": link_to_itself,
    "a file": lambda g, m: (shutil.rmtree(g), g.touch()),
    "a FIFO": lambda g, m: (shutil.rmtree(g), os.mkfifo(g)),
}


@posix
@pytest.mark.parametrize("what", GROUPS)
@pytest.mark.filterwarnings("ignore:the folder")
def test_a_folder_in_it_that_others_could_have_filled_is_refused(what, folder, monkeypatch):
    """Somebody may have moved it there, or its mode have been changed."""
    disk.write(NAME, b"content")
    assert disk.read(NAME) == b"content"
    GROUPS[what](folder / GROUP, monkeypatch)
    before = sorted(folder.parent.rglob("*"))
    assert disk.read(NAME) is None
    disk.write(NAME, b"content")
    assert sorted(folder.parent.rglob("*")) == before
    assert disk.read(NAME) is None


@posix
@pytest.mark.parametrize("kind", ["a file", "a FIFO", "a link to a device"])
def test_the_folder_is_something_else(kind, folder):
    if kind == "a file":
        folder.touch()
    elif kind == "a FIFO":
        os.mkfifo(folder)
    else:
        folder.symlink_to("/dev/zero")
    with pytest.warns(RuntimeWarning, match="can't be used: Not a directory"):
        disk.write(NAME, b"content")
    assert disk.read(NAME) is None and disk.info().files == 0
    disk.clear()


@pytest.fixture
def above(tmp_path, monkeypatch):
    """A folder that isn't made to hold a cache, but will."""
    above = tmp_path / "above"
    above.mkdir(mode=0o755)
    monkeypatch.setattr(disk, "_warned", set())
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(above / "inner" / "cache"))
    forget = disk._is_private.cache_clear  # a test may put something else in its place
    forget()
    yield above
    forget()


ABOVE = {
    "the user's": (lambda a, m: None, True),
    "root's": (lambda a, m: looks(m, a, ST_UID=0), True),
    "sticky": (lambda a, m: a.chmod(0o1777), True),
    "another user's": (lambda a, m: looks(m, a, ST_UID=SOMEBODY), False),
    "another user's, and sticky": (
        lambda a, m: looks(m, a, ST_UID=SOMEBODY, ST_MODE=stat.S_IFDIR | 0o1777),
        False,
    ),
    "writable by all": (lambda a, m: a.chmod(0o757), False),
    "writable by a group": (
        lambda a, m: looks(m, a, ST_GID=SOMEBODY, ST_MODE=stat.S_IFDIR | 0o775),
        False,
    ),
    "writable by the user's own group": (
        lambda a, m: (
            m.setattr(disk, "_is_private", lambda group, user: group == SOMEBODY),
            looks(m, a, ST_GID=SOMEBODY, ST_MODE=stat.S_IFDIR | 0o775),
        ),
        True,
    ),
}


@posix
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("what", ABOVE)
def test_folders_in_which_others_could_replace_it_are_refused(what, there, above, monkeypatch):
    """And nothing is made there."""
    if there:
        disk.write(NAME, b"content")
        assert disk.read(NAME) == b"content"
    change, good = ABOVE[what]
    change(above, monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        disk.write(NAME, b"content")
        assert disk.read(NAME) == (b"content" if good else None)
    assert (above / "inner").exists() == (there or good)
    if good:
        assert not caught
    else:
        (warning,) = caught
        assert f"the folder {above}, above the cache folder" in str(warning.message)


@posix
def test_the_group_of_a_user_is_private_if_nobody_else_is_in_it(monkeypatch, above):
    import grp
    import pwd

    who = pwd.struct_passwd(("me", "x", 7, 70, "", "/me", "sh"))
    groups = {
        70: grp.struct_group(("me", "x", 70, ["me"])),
        71: grp.struct_group(("staff", "x", 71, ["me"])),
    }
    monkeypatch.setattr(pwd, "getpwuid", {7: who}.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    assert [disk._is_private(group, 7) for group in (70, 71, 72)] == [True, False, False]
    groups[70].gr_mem.append("you")
    disk._is_private.cache_clear()
    assert not disk._is_private(70, 7)
    assert not disk._is_private(70, 8)  # who isn't known


@posix
def test_links_are_followed_to_where_they_lead(above, tmp_path, monkeypatch):
    """What is above their end counts, and who made them."""
    real = tmp_path / "far" / "away"
    real.mkdir(parents=True)
    (above / "second").symlink_to("../far/./away/../away")
    (above / "inner").symlink_to(above / "second")
    disk.write(NAME, b"content")
    assert (real / "cache" / NAME).exists() and disk.read(NAME) == b"content"
    with monkeypatch.context() as m, pytest.warns(RuntimeWarning, match="second, above the cache"):
        looks(m, above / "second", ST_UID=SOMEBODY)
        assert disk.read(NAME) is None
    assert disk.read(NAME) == b"content"
    (tmp_path / "far").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="far, above the cache folder"):
        assert disk.read(NAME) is None


@posix
def test_links_that_lead_nowhere(above):
    (above / "inner").symlink_to(above / "inner")
    with pytest.warns(RuntimeWarning, match="can't be used"):
        disk.write(NAME, b"content")
    assert disk.read(NAME) is None


@posix
def test_root_leaves_the_home_of_another_user_alone(tmp_path, monkeypatch):
    """As under sudo, which may keep HOME. Nobody asked for a cache there, so nobody is told."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(disk, "_warned", set())
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(home))
    for name in ("TAPEGRAD_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    disk.write(NAME, b"by the user")
    assert disk.read(NAME) == b"by the user"
    if os.geteuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    before = sorted(home.rglob("*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disk.read(NAME) is None
        disk.write(NAME.replace("a", "b"), b"by root")
        disk.clear()
        assert sorted(home.rglob("*")) == before
        shutil.rmtree(home / ".cache")
        found, how = run(cubes(), X)
    np.testing.assert_array_equal(found, 9 * X**2)
    assert how == (1, 0)
    assert list(home.iterdir()) == []


@posix
def test_warnings_that_are_errors_break_no_call(folder, monkeypatch, capsys):
    """They are about the cache, which is no reason for a call to fail."""
    run(cubes(), X)
    for change in (
        lambda: folder.chmod(0o770),
        lambda: monkeypatch.setenv("TAPEGRAD_CACHE_SIZE", "lots"),
        lambda: monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(folder / "no folder" / "\udcff")),
        lambda: monkeypatch.setenv("TAPEGRAD_CACHE_DIR", "~nosuchuser/cache"),
    ):
        change()
        disk._warned.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, _ = run(cubes(), X)
        np.testing.assert_array_equal(found, 9 * X**2)
        assert "RuntimeWarning: " in capsys.readouterr().err
        folder.chmod(0o700)
        (folder / "no folder").touch()


def test_warnings_that_cannot_be_shown_break_no_call(folder, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("there is no window for it")

    monkeypatch.setenv("TAPEGRAD_CACHE_SIZE", "lots")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", fail)
        monkeypatch.setattr(sys, "stderr", None)
        assert disk.limit() == 500e6


# ---- a disk that doesn't want to


def test_a_file_that_grows_is_read_no_further_than_its_size(folder, monkeypatch):
    """It would be read for as long as somebody wrote to it."""
    disk.write(NAME, b"content")
    given = os.fstat

    def before(file):
        found = given(file)
        with open(folder / NAME, "ab") as growing:
            growing.write(b"more")
        return found

    monkeypatch.setattr(os, "fstat", before)
    assert disk.read(NAME) == b"content"


def test_files_larger_than_the_bound_are_neither_kept_nor_read(folder, monkeypatch):
    disk.write(NAME, b"x" * 5000)
    disk.write(NAME.replace("a", "b"), b"x" * 500)
    monkeypatch.setenv("TAPEGRAD_CACHE_SIZE", "0.003")
    assert disk.read(NAME) is None
    disk.write(NAME.replace("a", "c"), b"x" * 5000)  # for which all others would have to go
    assert disk.read(NAME.replace("a", "b")) == b"x" * 500
    assert not (folder / ("c" * 40)).exists()


@pytest.mark.parametrize("step", ["lstat", "open", "fstat", "read", "utime", "mkdir", "scandir"])
def test_a_folder_that_vanishes_at_any_moment(step, folder, monkeypatch):
    """It is removed just before each use, as by another process, and never in the way."""
    given = getattr(os, step)

    def gone(*args, **kwargs):
        with monkeypatch.context() as m:
            m.setattr(os, step, given)
            shutil.rmtree(folder, ignore_errors=True)
        return given(*args, **kwargs)

    disk.write(NAME, b"content")
    with monkeypatch.context() as m:
        m.setattr(os, step, gone)
        assert disk.read(NAME) in (None, b"content")
        disk.write(NAME, b"content")
        disk.info()
        disk.clear()
        disk.write(NAME, b"content")
    disk.write(NAME, b"again")
    assert disk.read(NAME) == b"again"


@pytest.mark.parametrize("step", ["mkstemp", "replace"])
def test_a_folder_that_vanishes_while_it_is_written_to(step, folder, monkeypatch):
    import tempfile

    where = tempfile if step == "mkstemp" else os
    given = getattr(where, step)

    def gone(*args, **kwargs):
        shutil.rmtree(folder)
        return given(*args, **kwargs)

    monkeypatch.setattr(where, step, gone)
    disk.write(NAME, b"content")
    assert disk.read(NAME) is None and not folder.exists()


def test_an_interrupt_stays_one_when_the_folder_has_vanished(folder, monkeypatch):
    def interrupted(*args):
        shutil.rmtree(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.write(NAME, b"content")


@posix
def test_names_of_any_bytes(tmp_path, folder, monkeypatch):
    odd = os.fsdecode(b"caf\xe9\n \xff")
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / odd))
    disk.write(NAME, b"content")
    (tmp_path / odd / GROUP / odd).touch()
    (tmp_path / odd / odd).touch()
    assert disk.read(NAME) == b"content"
    assert disk.info().files == 2
    assert CliRunner().invoke(main, ["cache", "info"]).exit_code == 0
    (tmp_path / odd).chmod(0o777)
    with pytest.warns(RuntimeWarning, match="chmod") as caught:
        assert disk.read(NAME) is None
    str(caught[0].message).encode()
    (tmp_path / odd).chmod(0o700)
    disk.clear()
    assert disk.info().files == 0 and (tmp_path / odd / odd).exists()


def test_the_folder_that_a_relative_path_starts_from_is_gone(tmp_path, folder, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", "cache")
    with contextlib.chdir(tmp_path):
        with contextlib.chdir("gone"):
            os.rmdir(tmp_path / "gone")
            assert disk.location() is None
            assert run(cubes(), X)[1] == (1, 0)
        assert disk.location() == str(tmp_path / "cache")


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
        ("linux", {"HOME": ""}, None),
        ("darwin", {"HOME": ""}, None),
        ("linux", {"TAPEGRAD_CACHE_DIR": "~/mine", "HOME": "/me"}, "/me/mine"),
        ("linux", {"TAPEGRAD_CACHE_DIR": "~/mine", "HOME": "no home"}, None),
        ("linux", {"TAPEGRAD_CACHE_DIR": "~/mine", "HOME": ""}, None),
        ("linux", {"TAPEGRAD_CACHE_DIR": "~nosuchuser/mine", "HOME": "/me"}, None),
        ("linux", {"TAPEGRAD_CACHE_DIR": "/~nosuchuser", "HOME": "/me"}, "/~nosuchuser"),
    ],
)
def test_where_it_is(platform, variables, expected, monkeypatch):
    for name in ("TAPEGRAD_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(disk, "_warned", set())
    asked = expected is None and "TAPEGRAD_CACHE_DIR" in variables
    told = pytest.warns(RuntimeWarning, match="that home isn't known") if asked else None
    with told or contextlib.nullcontext():
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

    assert "Usage:" in said("--help")
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
from scipy import linalg
from tapegrad import value_and_grad


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
compiling = {"numba", "networkx", "tapegrad.backends.source.emit", "tapegrad.schedule.lower"}
compiling |= {"llvmlite.binding"} if platform.machine() == "x86_64" else set()
print(info.compiles, info.loads, *sorted(compiling.intersection(sys.modules)))
"""


def process(*arguments, program=PROGRAM):
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True
    )


def answer(started):
    out, _ = started.communicate(timeout=600)
    assert started.returncode == 0
    return tuple(out.split())


def test_processes_at_once_and_one_after_them(folder):
    """One of them compiles, and the others wait for that."""
    found = [answer(started) for started in [process("always") for _ in range(3)]]
    assert sorted(found) == [("0", "1", "False")] * 2 + [("1", "0", "False")]
    assert len(files(folder)) == 1
    assert answer(process("auto")) == ("0", "1", "False")


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lapack_is_found_in_another_process(dtype, folder):
    """Routines stand in the code as names: each process has them at other addresses. One that
    finds its code loads nothing of what compiles, nor LLVM for its linker."""
    first = answer(process("always", dtype, program=EVIDENCE))
    assert first[3:] == ("1", "0")
    code = b"".join(path.read_bytes() for path in files(folder))
    letter = {"float64": "d", "float32": "s"}[dtype]
    for name in ("potrf", "getrf", "getri", "getrs", "trsv", "trsm", "symm", "gemm"):
        assert f"tapegrad_fortran_{letter}{name}".encode() in code
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


def test_sources_are_read_only_where_code_may_be_found(folder, monkeypatch):
    """They are many, and a first call that finds nothing waits for none of them."""
    read: list[str] = []
    real = key._sources
    monkeypatch.setattr(key, "_sources", lambda: read.append("all") or real())
    tape, other = tape_of(cubes(), X), tape_of(cubes(5.0), X)
    assert Tier(tape, "always", "f").executable() is not None and folder.exists()
    read.clear()
    assert Tier(other, "auto", "f")._kept() is None and not read
    assert Tier(tape, "auto", "f")._kept() is not None and read
