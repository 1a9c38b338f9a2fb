"""Files that the function reads are compared at each call: what is in them counts."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import pickle
import sys
import tempfile

import numpy as np
import pandas as pd
import pytest

from tapegrad import grad

X = np.array([1.0, 2.0])


def by_open(file):
    with open(file) as lines:
        return float(next(lines)) + len(lines.readline())


def by_lines(file):
    with open(str(file), encoding="utf-8") as lines:
        return sum(float(line) for line in lines)


def in_binary(file):
    stream = open(file, "rb")  # noqa: SIM115
    try:
        return float(stream.read().split()[0])
    finally:
        stream.close()


def by_json(file):
    with open(file) as stream:
        return float(json.load(stream))


def by_its_folder(file):
    found = file.parent.resolve() / file.name
    if not found.is_file() or not os.path.exists(file):
        raise FileNotFoundError
    with found.open() as lines:
        return float(next(csv.reader(lines))[0])


def in_memory(file):
    return float(np.loadtxt(io.StringIO(file.read_text())))


def by_pandas(file):
    return pd.read_csv(file.with_suffix(".txt"), header=None)[0].iloc[0]


READERS = [by_open, by_lines, in_binary, by_json, lambda file: float(file.read_text())]
READERS += [by_its_folder, in_memory, by_pandas]


@pytest.mark.every(8)
@pytest.mark.parametrize("read", READERS)
def test_a_file_is_read_anew_where_it_has_changed(read, tmp_path):
    file = tmp_path / "scale.txt"

    def f(x):
        return read(file) * np.sum(x**2)

    g = grad(f, compile="never")
    for scale in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0):
        file.write_text(f"{scale}\n")
        assert np.allclose(g(X), 2 * read(file) * X)
    assert g.cache_info().traces == 2
    file.unlink()
    with pytest.raises(FileNotFoundError):
        g(X)


def in_context(file):
    with np.load(file) as arrays:
        return arrays["a"]


@pytest.mark.parametrize("load", [lambda file: np.load(file)["a"], in_context])
def test_an_archive_of_arrays(load, tmp_path):
    file = tmp_path / "arrays.npz"
    g = grad(lambda x: np.sum(load(file) * x), compile="never")
    for k in range(6):
        np.savez(file, a=X * (1 + k // 3))
        assert np.array_equal(g(X), X * (1 + k // 3))
    assert g.cache_info().traces == 2


@pytest.mark.every(2)
@pytest.mark.parametrize("package", ["joblib", "scipy"])
def test_a_file_that_a_package_reads(package, tmp_path):
    file = str(tmp_path / "arrays")
    joblib, matlab = pytest.importorskip("joblib"), pytest.importorskip("scipy.io")

    def f(x):
        if package == "joblib":
            return np.sum(joblib.load(file)["a"] * x)
        return np.sum(matlab.loadmat(file, appendmat=False)["a"][0] * x)

    g = grad(f, compile="never")
    for k in range(6):
        a = {"a": X * (1 + k // 3)}
        if k % 3 == 0:  # a MATLAB file says when it was written, and is another one at each second
            joblib.dump(a, file) if package == "joblib" else matlab.savemat(
                file, a, appendmat=False
            )
        assert np.array_equal(g(X), a["a"])
    assert g.cache_info().traces <= 3


@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
def test_a_file_that_is_written_to_is_written_at_each_call(tmp_path):
    file = tmp_path / "log.txt"

    def f(x):
        with open(file, "a") as log:
            log.write("called\n")
        return np.sum(x**2)

    g = grad(f, compile="never")
    for _ in range(5):
        g(X)
    assert file.read_text() == 5 * "called\n"


@pytest.mark.filterwarnings("ignore:grad_.* was traced for three calls")
def test_a_file_that_was_opened_outside_is_read_on(tmp_path):
    (tmp_path / "numbers").write_text("1\n2\n3\n4\n5\n")
    with open(tmp_path / "numbers") as numbers:
        g = grad(lambda x: float(numbers.readline()) * x, compile="never")
        assert [g(1.0) for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_is_pickled_counts():
    held = {"rate": 2.0}

    def f(x):
        return pickle.loads(pickle.dumps(held))["rate"] * np.sum(x)

    g = grad(f, compile="never")
    for k in range(6):
        held["rate"] = 2.0 + k // 3
        assert np.array_equal(g(X), [held["rate"]] * 2)
    assert g.cache_info().traces == 2


def test_what_is_written_for_the_user_to_see(capsys):
    def f(x):
        sys.stdout.write("called\n")
        sys.stdout.flush()
        return np.sum(x**2)

    g = grad(f, compile="never")
    for _ in range(5):
        assert np.array_equal(g(X), 2 * X)
    assert g.cache_info().traces == 1


RATE = 2.0


def test_a_memory_that_is_made_inside_is_the_calls_own(monkeypatch):
    def f(x):
        @functools.cache
        def number(n):
            return RATE if n < 2 else number(n - 1) + number(n - 2)

        return number(8) * np.sum(x)

    g = grad(f, compile="never")
    for k in range(6):
        monkeypatch.setitem(globals(), "RATE", 2.0 + k // 3)
        assert np.allclose(g(X), 34 * RATE)
    assert g.cache_info().traces == 2


def test_a_folder_for_a_while_has_advice_of_its_own():
    def f(x):
        with tempfile.TemporaryDirectory() as folder:
            np.savetxt(os.path.join(folder, "a.txt"), x)
        return np.sum(x**2)

    g = grad(f, compile="never")
    with pytest.warns(RuntimeWarning, match=r"files_test.py:\d+: `with temp.*files outside"):
        for k in (1.0, 2.0, 3.0, 4.0):
            np.testing.assert_array_equal(g(np.array([k])), [2 * k])
