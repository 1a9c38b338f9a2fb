"""What the distributions hold."""

import shutil
import subprocess
import sys
import tarfile
import tomllib

import pytest
from tests.project.readme_test import ROOT, repository_files

BUILD = "from setuptools import build_meta; print(build_meta.build_sdist('built'))"


def test_the_source_distribution_is_the_repository(tmp_path):
    """Who gets it can run the tests, and read the documents."""
    pytest.importorskip("setuptools", minversion="77")
    tracked = [path for path in repository_files() if path.is_file()]
    for path in tracked:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    archive = tmp_path / "built" / done.stdout.split()[-1]
    with tarfile.open(archive) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    wanted = {str(path.relative_to(ROOT)) for path in tracked} - {".gitignore"}
    assert wanted - held == set()
    made = {"", "PKG-INFO", "setup.cfg"}  # by setuptools
    beyond = {name for name in held - wanted - made if "egg-info" not in name}
    assert {name for name in beyond if not any(w.startswith(f"{name}/") for w in wanted)} == set()


def test_classifiers_name_what_is_tested():
    """The versions of Python that CONTRIBUTING.md says the tests run with, and Linux."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    versions = [c.removeprefix(prefix) for c in project["classifiers"] if c.startswith(prefix)]
    assert versions == ["3 :: Only", "3.11", "3.12", "3.13", "3.14"]
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    assert "3.11, 3.12, 3.13 or 3.14" in " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
