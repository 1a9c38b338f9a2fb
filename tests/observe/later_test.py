"""Calls that have an effect outside: each call of a derivative makes them with its own numbers.

Every program runs plainly beside, in a folder of its own. After each call both folders, and what
the program keeps, are alike.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import datetime
import io
import json
import os
import pathlib
import pickle
import pprint
import shutil
import tempfile
from typing import Any

import numpy as np
import pytest

from tapegrad import defvjp, grad, jacfwd, jit, primitive, stop_gradient, value_and_grad
from tapegrad.errors import ConversionError

POINTS = [*np.random.default_rng(1).normal(size=(5, 3))]


class Logger:
    """A class of the user's, which keeps what it is told."""

    def __init__(self, names):
        self.names = names

    def info(self, text):
        self.names.append(text)


class Program:
    """What a program has at hand: a folder, an open file, a number and lists."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = open(folder / "open", "a")  # noqa: SIM115
        self.rate = 2.0
        self.names: list[Any] = []
        self.note = ""
        self.log = Logger(self.names)

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def left(self) -> Any:
        """What is in the folder, and what it keeps."""
        self.file.flush()
        found = sorted(self.folder.rglob("*"))
        files = {str(p.relative_to(self.folder)): p.is_file() and p.read_bytes() for p in found}
        return files, self.names, self.note, os.environ.get("TAPEGRAD_TEST")


def appended(p, x):
    loss = np.sum(x**2)
    with open(p.path("log"), "a") as log:
        log.write(f"{loss:.4f} {loss!r:>9}\n")
        print("loss", loss, x, file=log)
    return loss


def in_branches(p, x):
    loss = np.sum(x**2)
    if x[0] > 0:
        with open(p.path("log"), "a") as log:
            log.write(f"large {loss}\n")
        return loss * 2
    with open(p.path("log"), "a") as log:
        log.write("small\n")
    return loss


def in_rounds(p, x):
    t = x[0]
    with open(p.path("log"), "a") as log:
        for k in range(30):
            t = t * 0.8 + 0.1 * x[1]
            if k % 10 == 0:
                log.write("%d %.3f\n" % (k, t))  # noqa: UP031
    return t


def opened_in_rounds(p, x):
    t = x[0]
    for _ in range(30):
        t = t * 0.8 + 0.1 * x[1]
        with open(p.path("log"), "a") as log:
            log.write(str(t) + "\n")
    return t


def before_a_loop_of_unknown_length(p, x):
    with open(p.path("log"), "a") as log:
        log.write("{} {:.3f}\n".format("begun", x[0]))
    t, n = x[0], 0
    while True:
        n += 1
        new = t * 0.8 + 0.1 * x[1]
        if abs(new - t) < 1e-3:
            break
        t = new
        if n >= 7:
            break
    return t


def rows(p, x):
    loss = np.sum(x**2)
    with open(p.path("rows.csv"), "a", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", 1, loss, float(loss)])
        writer.writerow([*x])
        named = csv.DictWriter(file, fieldnames=["loss", "n"])
        named.writeheader()
        named.writerow({"loss": loss, "n": 3})
    return loss


def as_json(p, x):
    with open(p.path("loss.json"), "w") as file:
        json.dump({"loss": float(np.sum(x)), "x": list(map(float, x)), "n": 3}, file)
    return np.sum(x**2)


def arrays(p, x):
    os.makedirs(p.path("out", "deep"), exist_ok=True)
    np.save(p.path("out", "deep", "x.npy"), x)
    np.savez(p.path("out", "y.npz"), a=x**2, b=np.ones(2))
    np.savetxt(p.path("out", "z.txt"), x.reshape(1, -1))
    with open(p.path("bytes"), "ab") as file:
        file.write(np.array([1.0, 2.0]).tobytes())
        np.save(file, x)
    return np.sum(x**2)


def as_they_were(p, x):
    """Later changes don't count."""
    y, row = x**2, [1, 2.0]
    with open(p.path("log"), "a") as file:
        json.dump(row, file)
        row.append(7)
        json.dump(row, file)
        np.savetxt(file, y)
        y[0] = 5.0
        np.savetxt(file, y)
    return np.sum(y)


def in_a_function(p, x):
    def log(file, value):
        file.write(f"{value:.3f}\n")

    with open(p.path("log"), "a") as file:
        log(file, np.sum(x))
        log(file, np.max(x))
    return np.sum(x**2)


def of_the_outside(p, x):
    p.file.write(f"{np.sum(x):.3f}\n")
    p.file.flush()
    return np.sum(x**2)


def closed_at_last(p, x):
    file = open(p.path("log"), "a")  # noqa: SIM115
    try:
        file.write(f"{np.sum(x):.3f}\n")
        file.write(", ".join([f"{v:.2f}" for v in x]))
    finally:
        file.close()
    shutil.copy(p.path("log"), p.path("copy"))
    return np.sum(x**2)


def by_paths(p, x):
    folder = p.folder / "results"
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text(f"{np.sum(x)}")
    (folder / "a.txt").rename(folder / "b.txt")
    with (folder / "c.txt").open("a") as file:
        file.write("c")
    return np.sum(x**2)


def environment(p, x):
    os.environ["TAPEGRAD_TEST"] = "1"
    os.environ["TAPEGRAD_TEST"] += "2"
    return np.sum(x**2) * float(os.environ["TAPEGRAD_TEST"])


def texts_that_are_kept(p, x):
    p.note = f"loss {np.sum(x):.3f}"
    p.names.append("max " + str(np.max(x)))
    return np.sum(x**2)


def texts_that_are_printed(p, x):
    with open(p.path("log"), "a") as file:
        print(f"loss {np.sum(x):.3f}", format(x[0], "g"), file=file)
        pprint.pprint({"max": float(np.max(x))}, stream=file)
        file.write(pprint.pformat([float(np.max(x))]))
    return np.sum(x**2)


def texts_of_plain_numbers(p, x):
    text = json.dumps({"loss": float(np.sum(x)), "x": (2 * x).tolist()}, indent=1)
    with open(p.path("log"), "a") as file:
        file.write(text + "\n")
        file.write(np.format_float_positional(np.sum(x), precision=3))
        file.write(np.format_float_scientific(np.sum(x)))
        file.write(np.array2string(2 * x, precision=2))
        file.write(np.array_str(2 * x) + np.array_repr(2 * x))
    return np.sum(x**2)


def table(x):
    text = "values\n"
    for v in x:
        text += f"{2 * v:8.3f} |"
    return text


def texts_in_place(p, x):
    with open(p.path("log"), "a") as file:
        print(table(x), file=file)
    return np.sum(x**2)


def by_a_logger_of_its_own(p, x):
    p.log.info(f"loss {np.sum(x):.3f}")
    return np.sum(x**2)


def lengths(p, x):
    with open(p.path("log"), "a") as file:
        print(len(p.names), file=file)
        p.names.append(np.sum(x))
        print(len(p.names), file=file)
    return np.sum(x**2)


ONCE = [appended, rows, as_json, arrays, as_they_were, in_a_function, of_the_outside]
ONCE += [closed_at_last, by_paths, environment, texts_that_are_kept, lengths]
ONCE += [texts_that_are_printed, texts_of_plain_numbers, texts_in_place, by_a_logger_of_its_own]
ONCE += [in_rounds, opened_in_rounds, before_a_loop_of_unknown_length]


def made_where_there_is_none(p, x):
    if not os.path.exists(p.path("sub")):
        os.mkdir(p.path("sub"))
    return np.sum(x**2)


def raises(p, x):
    with open(p.path("log"), "a") as file:
        file.write("before\n")
        if x[0] > 0.3:
            raise ValueError(f"too large: {np.sum(x)}")
        file.write("after\n")
    return np.sum(x**2)


ONCE.append(raises)
TWICE = [made_where_there_is_none, in_branches]


def read_again(p, x):
    np.save(p.path("a.npy"), np.arange(3.0) + p.rate)
    return np.sum(x * np.load(p.path("a.npy")))


def looked_for_afterwards(p, x):
    os.makedirs(p.path("sub"), exist_ok=True)
    with open(p.path("sub", "log"), "a") as file:
        file.write("x")
    size = len(os.listdir(p.path("sub"))) + os.path.getsize(p.path("sub", "log"))
    return np.sum(x**2) * size


def caught(p, x):
    try:
        os.mkdir(p.path("sub"))
    except FileExistsError:
        return np.sum(x**3)
    return np.sum(x**2)


def suppressed(p, x):
    with contextlib.suppress(FileExistsError):
        os.mkdir(p.path("sub"))
    return np.sum(x**2)


def counted(p, x):
    with open(p.path("log"), "a") as file:
        return np.sum(x**2) * (file.write("three") + file.tell())


def what_the_run_changes(p, x):
    with open(p.path("log"), "a") as file:
        p.names.append("a")
        json.dump(p.names, file)
        p.names.append("b")
        json.dump(p.names, file)
    return np.sum(x**2)


EACH = [read_again, looked_for_afterwards, caught, suppressed, counted, what_the_run_changes]


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return repr(error)


@pytest.mark.every(16)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("f", [*ONCE, *TWICE, *EACH])
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_each_call_has_its_own(f, compile, tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_TEST", "")
    plain, ours = Program(tmp_path / "plain"), Program(tmp_path / "ours")
    g = value_and_grad(lambda x: f(ours, x), compile=compile)
    for k, x in enumerate(POINTS):
        plain.rate = ours.rate = 2.0 + k // 3
        expected = outcome(f, plain, x.copy())
        left = plain.left()
        monkeypatch.setenv("TAPEGRAD_TEST", "")
        found = outcome(g, x.copy())
        if isinstance(expected, str):
            assert found == expected
        else:
            np.testing.assert_allclose(found[0], expected)
        assert repr(ours.left()) == repr(left)
    traces = g.cache_info().traces
    assert traces == (1 if f in ONCE else 2 if f in TWICE else len(POINTS))
    for program in (plain, ours):
        program.file.close()


@pytest.mark.parametrize(
    "misused",
    [
        len,
        lambda t: float(t),
        lambda t: t == "1.0",
        lambda t: {t: 1.0}[t],
        lambda t: float(", ".join(c for c in [t])),
        lambda t: float(t.replace("a", "")),
        lambda t: 1.0 if t else 2.0,
    ],
)
def test_what_texts_of_traced_values_are_not_for(misused, tmp_path):
    """where they are written to a file, too"""

    def f(x):
        t = f"{np.sum(x):.1f}"
        with open(tmp_path / "log", "a") as file:
            file.write(t)
        return np.sum(x**2) * misused(t)

    with pytest.raises(ConversionError, match=r"a text is made of a traced value"):
        grad(f)(POINTS[0])


def test_texts_in_memory():
    """What goes into a stream may be read again, by whoever."""

    def directly(x):
        stream = io.StringIO()
        stream.write(str(2 * x[0]))
        return np.sum(x) * float(stream.getvalue())

    def by_rows(x):
        stream = io.StringIO()
        csv.writer(stream).writerow([str(2 * v) for v in x])
        return np.sum(x) * float(stream.getvalue().split(",")[0])

    for f in (directly, by_rows):
        with pytest.raises(ConversionError, match=r"a text is made of a traced value"):
            grad(f)(POINTS[0])


def test_what_fails_at_a_later_call_fails_there(tmp_path):
    folder = tmp_path / "sub"
    folder.mkdir()

    def f(x):
        with open(folder / "log", "w") as file:
            file.write(str(x[0]))
        return np.sum(x**2)

    g = grad(f, compile="never")
    g(POINTS[0])
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        g(POINTS[1])
    folder.mkdir()
    g(POINTS[2])
    assert (folder / "log").read_text() == str(POINTS[2][0])


@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_in_an_inner_derivative(tmp_path):
    """it is made as often as plain Python does"""

    def inner(y):
        with open(tmp_path / "log", "a") as file:
            file.write("inner\n")
        return np.sum(y**3)

    g = grad(lambda x: np.sum(grad(inner)(x) * x), compile="never")
    for k in range(3):
        np.testing.assert_allclose(g(POINTS[k]), 9 * POINTS[k] ** 2)
        assert (tmp_path / "log").read_text() == (k + 1) * "inner\n"


# ---- what is read again


def saved(p, x):
    np.save(p.path("a.npy"), 2 * x)
    return np.sum(np.load(p.path("a.npy")) * x)


def saved_by_half_a_name(p, x):
    np.save(p.path("a"), 2 * x)
    return np.sum(np.load(p.path("a.npy")) * x)


def saved_as_text(p, x):
    np.savetxt(p.path("a.txt"), x)
    return np.sum(np.loadtxt(p.path("a.txt")) * x)


def saved_as_several(p, x):
    np.savez(p.path("a.npz"), a=x)
    return np.sum(np.load(p.path("a.npz"))["a"] * x)


def copied(p, x):
    np.save(p.path("a.npy"), x)
    shutil.copy(p.path("a.npy"), p.path("b.npy"))
    return np.sum(np.load(p.path("b.npy")) * x)


def by_a_link(p, x):
    np.save(p.path("a.npy"), x)
    if not os.path.exists(p.path("b.npy")):
        os.link(p.path("a.npy"), p.path("b.npy"))
    return np.sum(np.load(p.path("b.npy")) * x)


def in_a_folder_for_a_while(p, x):
    with tempfile.TemporaryDirectory() as folder:
        np.save(os.path.join(folder, "a.npy"), x)
        return np.sum(np.load(os.path.join(folder, "a.npy")) * x)


def in_a_file_with_a_name(p, x):
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write(str(np.sum(x)))
        file.flush()
        with open(file.name) as again:
            return x[0] * float(again.read())


def in_the_same_file(p, x):
    with open(p.path("a"), "w+") as file:
        file.write(repr(float(np.sum(x))))
        file.seek(0)
        return x[0] * float(file.read())


def by_lines(p, x):
    with open(p.path("a"), "w") as file:
        print(x[0], file=file)
    with open(p.path("a")) as file:
        return x[0] * sum(float(line) for line in file)


def by_a_path(p, x):
    (p.folder / "a").write_text(str(x[0]))
    return x[0] * float((p.folder / "a").read_text())


def by_json(p, x):
    with open(p.path("a"), "w") as file:
        json.dump({"a": float(x[0])}, file)
    with open(p.path("a")) as file:
        return x[0] * json.load(file)["a"]


def by_csv(p, x):
    with open(p.path("a"), "w") as file:
        csv.writer(file).writerow([float(v) for v in x])
    with open(p.path("a")) as file:
        return x[0] * float(next(csv.reader(file))[0])


def by_pickle(p, x):
    with open(p.path("a"), "wb") as file:
        pickle.dump(float(x[0]), file)
    with open(p.path("a"), "rb") as file:
        return x[0] * pickle.load(file)


def by_a_variable_of_the_environment(p, x):
    os.environ["TAPEGRAD_TEST"] = str(float(x[0]))
    return x[0] * float(os.environ["TAPEGRAD_TEST"])


def by_a_stream(p, x):
    stream = io.StringIO()
    stream.write(str(float(x[0])))
    return x[0] * float(stream.getvalue())


def by_what_is_printed_to_a_stream(p, x):
    stream = io.StringIO()
    print(float(x[0]), file=stream)
    return x[0] * float(stream.getvalue())


def by_a_text(p, x):
    return x[0] * float(f"{x[0]:.3f}")


READ = [saved, saved_by_half_a_name, saved_as_text, saved_as_several, copied, by_a_link]
READ += [in_a_folder_for_a_while, in_a_file_with_a_name, in_the_same_file, by_lines, by_a_path]
READ += [by_json, by_csv, by_pickle, by_a_variable_of_the_environment, by_a_stream]
READ += [by_what_is_printed_to_a_stream, by_a_text]


@pytest.mark.every(8)
@pytest.mark.parametrize("f", READ)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_what_is_written_and_read_again_has_no_derivative(f, tmp_path, monkeypatch):
    """but the value, also where no derivative goes that way"""
    monkeypatch.setenv("TAPEGRAD_TEST", "")
    p, x = Program(tmp_path / "folder"), POINTS[0]
    again = r"later_test.py:\d+: .* again \(.*later_test.py:\d+: .*carries no derivative.*stop_grad"
    with pytest.raises(ConversionError, match=again):
        grad(lambda x: f(p, x))(x)
    with pytest.raises(ConversionError, match=again):
        jacfwd(lambda x: f(p, x))(x)
    with pytest.raises(ConversionError, match=again):
        grad(jit(lambda x: f(p, x)))(x)
    with pytest.raises(ConversionError, match=again):
        grad(lambda x: np.sum(grad(lambda y: f(p, y))(x)))(x)
    found = grad(lambda y, x: np.sum(y**2) * f(p, x))
    for x in POINTS[:3]:
        expected = 4.0 * f(p, x)
        np.testing.assert_allclose(found(2.0, x), expected)
    p.file.close()


def with_what_was_there(p, x):
    with open(p.path("log"), "a") as file:
        file.write(f"{np.sum(x)}\n")
        print("", ".", file=file)
    with open("rate") as file:
        return np.sum(x**2) * float(file.read()) * len(os.environ["TAPEGRAD_TEST"])


def with_integers(p, x):
    np.save(p.path("a.npy"), x > 0)
    with open(p.path("a"), "w") as file:
        file.write(str(int(np.sum(x > 0))))
    with open(p.path("a")) as file:
        return np.sum(x[np.load(p.path("a.npy"))] ** 2) * int(file.read())


def with_constants(p, x):
    np.save(p.path("a.npy"), stop_gradient(x) ** 2)
    return np.sum(np.load(p.path("a.npy")) * x)


def with_numbers_of_texts(p, x):
    known = {str(x[0]): 1.0}
    return np.sum(x**2) * float("0.75") * known[str(x[0])]


GO_ON = {
    with_what_was_there: lambda x: 2 * x * 0.5 * 3,
    with_integers: lambda x: 2 * x * (x > 0) * np.sum(x > 0),
    with_constants: lambda x: x**2,
    with_numbers_of_texts: lambda x: 2 * x * 0.75,
}


@pytest.mark.parametrize("f", GO_ON)
@pytest.mark.filterwarnings("ignore:.* was traced for three calls")
def test_what_may_be_read(f, tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_TEST", "abc")
    p = Program(tmp_path / "folder")
    (p.folder / "rate").write_text("0.5")
    monkeypatch.chdir(p.folder)
    g = grad(lambda x: f(p, x), compile="never")
    for x in POINTS[:3]:
        np.testing.assert_allclose(g(x), GO_ON[f](x))
    p.file.close()


def test_a_file_is_parsed_once_for_all_functions_in_it(monkeypatch, capsys):
    parsed, parse = [], ast.parse
    functions = (
        lambda x: (print(f"at {x:.1f}"), x * x)[1],
        lambda x: (print(f"from {x:.1f} on"), x + x)[1],
    )
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", lambda text: (parsed.append(text), parse(text))[1])
        for f in functions:
            grad(f, compile="never")(2.0)
    assert len([text for text in parsed if "test_a_file_is_parsed_once" in text]) <= 1
    assert capsys.readouterr().out == "at 2.0\nfrom 2.0 on\n"


def test_a_list_of_numbers_that_a_call_gives():
    """Each of them is its own, where the call was passed a text that says when it is, or a
    primitive's of traced values."""
    read = primitive(lambda x: np.array(json.loads(json.dumps([x[0] ** 2, x[1] ** 2, 5.0]))))
    total = primitive(lambda x: np.sum(json.loads(json.dumps((x**2).tolist()))))
    defvjp(read, lambda ct, out, x: ct[:2] * 2 * x)

    def dated(x):
        return x[0] * np.sum(json.loads(datetime.date.today().strftime("[%Y, 1]")))

    year = datetime.date.today().year
    np.testing.assert_array_equal(grad(dated, compile="never")(np.ones(2)), [year + 1, 0])
    for x in (np.array([1.0, 2.0]), np.array([3.0, 4.0])):
        np.testing.assert_array_equal(jit(read, compile="never")(x), [*x**2, 5.0])
        np.testing.assert_array_equal(jit(total, compile="never")(x), np.sum(x**2))
        g = grad(lambda x: read(x) @ [1.0, 10.0, 100.0], compile="never")
        np.testing.assert_array_equal(g(x), [2 * x[0], 20 * x[1]])
