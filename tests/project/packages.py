"""`make packages`: build both distributions, and try them in environments that hold nothing else.

Each is installed with the oldest version of each dependency that pyproject.toml admits and there is
a wheel of, and with the newest; there `smoke.py` has to run. The source distribution brings Dask,
the wheel doesn't. Arguments are Pythons to try, that of
the environment if there are none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
VERSIONS = {"oldest": "lowest-direct", "newest": "highest"}  # as uv calls it
UV = [find_uv_bin(), "--quiet", "--no-config"]
CLEAN = {name: x for name, x in os.environ.items() if not name.startswith("PYTHON")}


def run(command: list[str], folder: str | Path = ".") -> str:
    environment = {**CLEAN, "TAPEGRAD_CACHE_DIR": f"{folder}/cache"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def dependencies() -> list[str]:
    """Their names. Of these no source distribution is built: whoever installs tapegrad gets wheels,
    where there are any."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.match(r"[\w.-]+", line)[0] for line in project["dependencies"]]


def tried(distribution: Path, python: str, resolution: str, extra: str) -> str:
    """Install a distribution beside nothing else but an extra, and run the program there."""
    binary = [option for name in dependencies() for option in ("--only-binary", name)]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run([*UV, "venv", "--python", python, "--no-python-downloads", f"{home}/venv"])
        inside = f"{home}/venv/{'Scripts' if os.name == 'nt' else 'bin'}/python"
        pip = [*UV, "pip"]
        said = ["--python", inside, "--output-file", f"{home}/versions.txt", *binary]
        said += ["--resolution", resolution, *(["--extra", extra] if extra else [])]
        run([*pip, "compile", *said, str(ROOT / "pyproject.toml")])
        wanted = f"{distribution}[{extra}]" if extra else str(distribution)
        run([*pip, "install", "--python", inside, "-c", f"{home}/versions.txt", wanted])
        shutil.copy(Path(__file__).with_name("smoke.py"), home)
        return run([inside, "smoke.py"], home)


def main(pythons: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run([*UV, "build", "--out-dir", folder, str(ROOT)])
        distributions = sorted([*Path(folder).glob("*.whl"), *Path(folder).glob("*.tar.gz")])
        assert len(distributions) == 2, distributions
        for python in pythons or [sys.executable]:
            for distribution in distributions:
                for age, resolution in VERSIONS.items():
                    start = time.monotonic()
                    kind, extra = (
                        ("wheel", "") if distribution.suffix == ".whl" else ("sdist", "dask")
                    )
                    found = tried(distribution, python, resolution, extra)
                    spent = time.monotonic() - start
                    print(f"{python}, {kind}, {age}: {spent:.0f} s, {found.strip()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
