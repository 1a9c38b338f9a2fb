"""Whether tapegrad works on this machine, and what it finds there: `python -m tapegrad doctor`."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tapegrad.compiler import disk
from tapegrad.core.handlers import let_through


class Finding(NamedTuple):
    """What was looked at, what was found, and whether something is wrong with it."""

    subject: str
    text: str
    is_wrong: bool = False


def findings() -> Iterator[Finding]:
    """All findings, one after the other; what fails is one, too."""
    for subject, look in _LOOKS.items():
        try:
            found = look()
        except Exception as error:
            let_through(error)
            found = Finding(subject, f"{type(error).__name__}: {error}", True)
        yield found._replace(subject=subject)


def _versions() -> Finding:
    required = [
        re.match(r"[\w.-]+", x) for x in metadata.requires("tapegrad") or () if "extra" not in x
    ]
    names = ["tapegrad", *[x[0] for x in required if x is not None], "llvmlite"]
    return Finding(
        "", ", ".join(f"{name} {metadata.version(name)}" for name in dict.fromkeys(names))
    )


def _python() -> Finding:
    from tapegrad.observe.program.watching import can_watch

    blind = "" if can_watch() else "; runs can't be observed here, so each call is traced anew"
    where = f"{sys.executable}, {platform.platform()}{blind}"
    return Finding("", f"{platform.python_version()} at {where}", bool(blind))


def _machine() -> Finding:
    from tapegrad.backends.host import HOST

    return Finding("", HOST.described())


def _blas() -> Finding:
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return Finding("", f"{found['name']} {found.get('version', '')}")


def _cache() -> Finding:
    found = disk.info()
    if found.folder is None:
        return Finding(
            "", "off: each process compiles anew (TAPEGRAD_CACHE_DIR, or no home folder)"
        )
    size = f"{found.files} tapes, {found.bytes / 1e6:.1f} of {found.limit / 1e6:.0f} MB"
    try:
        os.makedirs(found.folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=found.folder):
            pass
    except OSError as error:
        return Finding("", f"{found.folder} can't be written to: {error}", True)
    return Finding("", f"{found.folder}, {size}")


def _compiler() -> Finding:
    from tapegrad.backends.host import HOST
    from tapegrad.compiler.client import client

    if fault := HOST.fault():
        return Finding("", fault, True)
    begun = time.perf_counter()
    from tapegrad.api import grad

    x = np.linspace(0.1, 1.0, 7)
    grad(_tested, compile="always")(x)
    took = time.perf_counter() - begun
    where = "in a process next door" if client.inside is None else "in this process"
    return Finding("", f"{where}; a first program took {took:.1f} s")


def _self_test() -> Finding:
    from tapegrad.api import grad

    x = np.linspace(0.1, 1.0, 7)
    wanted = _slope(x)
    worst = {}
    for mode in ("never", "always"):
        found = grad(_tested, compile=mode)(x)
        worst[mode] = float(np.max(np.abs(found - wanted) / np.abs(wanted)))
    text = f"played gradients are {worst['never']:.0e} off, compiled ones {worst['always']:.0e}"
    return Finding("", text, not max(worst.values()) < 1e-12)


def _tested(x: Any) -> Any:
    return np.sum(np.exp(-x) * np.sin(x) / (1.0 + x**2))


def _slope(x: np.ndarray) -> np.ndarray:
    """The derivative of that, by hand."""
    a = 1.0 + x**2
    return np.exp(-x) * ((np.cos(x) - np.sin(x)) / a - 2.0 * x * np.sin(x) / a**2)


def _settings() -> Finding:
    given = [
        f"{name}={x}" for name, x in sorted(os.environ.items()) if name.startswith("TAPEGRAD_")
    ]
    return Finding("", " ".join(given) or "none of TAPEGRAD_... is set")


_LOOKS: dict[str, Callable[[], Finding]] = {
    "versions": _versions,
    "python": _python,
    "settings": _settings,
    "machine": _machine,
    "BLAS": _blas,
    "cache": _cache,
    "compiler": _compiler,
    "self-test": _self_test,
}
