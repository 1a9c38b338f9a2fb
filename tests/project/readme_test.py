"""What the documents say is true: their Python runs, and prints what they show.

The Python blocks of a document run in order, in one namespace. A ```text block right after one
shows what it prints; `make golden` rewrites it. A block marked ```python raises ends with an
error, whose message, wrapped, is what the text block shows. A name after the language, as in
```python loss.py, is the file that the block pretends to be: tapes show it with their lines. One of
```python needs jax is left out where that package isn't installed.
"""

import ast
import contextlib
import doctest
import importlib.util
import inspect
import io
import linecache
import re
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tapegrad
import tapegrad.api
import tapegrad.errors
import tapegrad.testing

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


@dataclass
class Block:
    """A piece of Python in a document, and what it is shown to print, None if that isn't shown."""

    code: str
    file: str
    raises: bool
    shown: str | None
    line: int
    needs: tuple[str, ...]

    def run(self, folder, namespace):
        """What the block prints, or the message of the error that it raises."""
        path = str(folder / f"line{self.line}" / self.file)  # tapes print the last part
        linecache.cache[path] = (len(self.code), None, self.code.splitlines(True), path)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if self.raises:
                with pytest.raises(Exception) as caught:
                    exec(compile(self.code, path, "exec"), namespace)
                message = f"{caught.type.__name__}: {caught.value}"
                print(textwrap.fill(message, 88, break_long_words=False, break_on_hyphens=False))
            else:
                exec(compile(self.code, path, "exec"), namespace)
        return "\n".join(map(str.rstrip, printed.getvalue().rstrip().splitlines())) + "\n"


def blocks(text):
    """The blocks of a document, with the places of what they are shown to print."""
    for match in BLOCK.finditer(text):
        words = match[1].split()
        line = text.count("\n", 0, match.start()) + 2
        files = [word for word in words if word.endswith(".py")]
        raises = "raises" in words
        needs = tuple(match[1].partition("needs ")[2].split())
        file = files[0] if files else "example.py"
        yield Block(match[2], file, raises, match[3], line, needs), match


@pytest.mark.every(12)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_runs_and_prints_what_is_shown(path, tmp_path, monkeypatch, request, own_answers):
    text = path.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # for what the blocks save
    namespace = {"__name__": "document"}
    printed, places = [], []
    for block, match in blocks(text):
        if not all(importlib.util.find_spec(name) for name in block.needs):
            continue
        found = block.run(tmp_path, namespace)
        if block.shown is not None:
            printed.append((block.line, found, block.shown))
            places.append(match.span(3))
    namespace.clear()  # a class that a page registers would keep the boxes that it has made
    if request.config.getoption("--update-golden", default=False):
        for (_, found, _), (start, end) in zip(printed[::-1], places[::-1], strict=True):
            text = text[:start] + found + text[end:]
        path.write_text(text, encoding="utf-8")
        return
    for line, found, expected in printed:
        assert found == expected, f"{path.name}:{line} prints something else"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def drawn(folder, indent="    "):
    """The picture of a folder: each file with the first sentence of its docstring."""
    files = (
        sorted(folder.glob("*.py"))
        if folder.name == "tapegrad"
        else sorted(folder.glob("[!_]*.py"))
    )
    shown = [*files, *sorted(path.parent for path in folder.glob("*/__init__.py"))]
    for path in shown:
        name, file = (f"{path.name}/", path / "__init__.py") if path.is_dir() else (path.name, path)
        doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        sentence = re.split(r"[.:]\s*(?:\n|$)|\. ", doc)[0]
        mark, inner = ("└──", "    ") if path is shown[-1] else ("├──", "│   ")
        start = f"{indent}{mark} {name}"
        yield f"{start:<32} {textwrap.shorten(sentence, 84, placeholder=' ...')}"
        if path.is_dir():
            yield from drawn(path, indent + inner)


def test_the_picture_of_the_source_tree_is_right(request):
    page = ROOT / "docs" / "design.md"
    head, start, rest = page.read_text(encoding="utf-8").partition("    src/tapegrad/\n")
    picture, end, rest = rest.partition("\n\n")
    right = "\n".join(drawn(ROOT / "src" / "tapegrad"))
    if request.config.getoption("--update-golden"):
        page.write_text(f"{head}{start}{right}{end}{rest}", encoding="utf-8")
    else:
        assert picture == right


@pytest.mark.parametrize(
    ("page", "shown"),
    [("README.md", "`{}"), ("docs/guide.md", "`{}"), ("docs/reference.md", "::: tapegrad.{}\n")],
)
def test_every_public_name_is_shown(page, shown):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in tapegrad.__all__ if shown.format(name) not in text] == []


def test_the_reference_has_the_interface_for_libraries():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    declared = (ROOT / "src" / "tapegrad" / "extending" / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r" as (\w+)$", declared, re.M)
    assert names and [x for x in names if f"::: tapegrad.extending.{x}\n" not in text] == []


def test_each_entry_of_the_gallery_has_a_picture():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    entries = text.split("\n## ")[1:]
    assert [entry.splitlines()[0] for entry in entries if ".png)" not in entry] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 10_000


def test_every_error_is_explained():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert [name for name in public_errors() if f"## {name}" not in text] == []


def public_errors():
    return [
        name
        for name, value in vars(tapegrad.errors).items()
        if isinstance(value, type) and value.__module__ == tapegrad.errors.__name__
    ]


def test_examples_in_docstrings():
    names = {"np": np, **{name: getattr(tapegrad, name) for name in tapegrad.__all__}}
    for module in (tapegrad.api, tapegrad.testing):
        found = doctest.testmod(module, extraglobs=names)
        assert found.failed == 0


def test_public_functions_say_what_they_take_return_and_raise():
    """In sections, as NumPy's functions do."""
    nothing = {"clear_cache", "set_compile", "set_num_threads"}
    for module in (tapegrad, tapegrad.random):
        for name in module.__all__:
            function = getattr(module, name)
            if isinstance(function, type):
                continue
            sections = re.findall(r"^ *(\w+)\n *-{6,}$", function.__doc__, re.M)
            takes = ["Parameters"] if inspect.signature(function).parameters else []
            wanted = takes if name in nothing else [*takes, "Returns"]
            assert [s for s in sections if s != "Raises"] == wanted, name
    for name in ("grad", "value_and_grad", "jit", "vjp", "simplegrad", "trace", "gradcheck"):
        assert "Raises" in getattr(tapegrad, name).__doc__, name


def test_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in DOCUMENTS:
        for command in re.findall(r"\bmake ([a-z]+)", commands(path.read_text(encoding="utf-8"))):
            assert command in targets, f"make {command}, in {path.name}"


def commands(text):
    """What a document shows to be typed: indented lines, and what stands between backquotes."""
    indented = re.findall(r"^ {4}(?! *[│├└])(.*)$", text, re.M)  # without the picture of the files
    return "\n".join([*indented, *re.findall(r"`([^`\n]+)`", text)])


def test_the_readme_starts_with_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before_the_first_heading = text.split("\n## ")[0]
    assert "    make demo" in before_the_first_heading
    assert "    make test" in before_the_first_heading


def test_what_ci_runs():
    """What has to pass, and the job beside it."""
    for job, commands in {"run": ["check", "test"], "packages": ["packages"]}.items():
        script = (ROOT / ".ci" / job).read_text()
        assert re.findall(r"^make (\w+)$", script, re.M) == commands


# Paths of one machine, and hosts that packages are taken from: spelled so that this file has none.
FORBIDDEN = re.compile(
    r"(?<![\w.~/-])/(?:work|tmp|home|root|Users|mnt)(?:/|\b)"
    r"|\.\./shared|\bpypi\.|\bpythonhosted\b|\bfiles\.python|--index-url|--extra-index"
)


def test_nothing_belongs_to_one_machine():
    found = []
    for path in repository_files():
        if path == Path(__file__):
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            if match := FORBIDDEN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert found == []


def repository_files():
    """The files that git has or would take."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not in a git repository")
    names = listing.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]
