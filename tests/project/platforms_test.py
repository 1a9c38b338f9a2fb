"""What only some systems have stands behind a branch. `make check` holds the types to that, for
Windows and macOS; here the code runs without it."""

import subprocess
import sys

WITHOUT = """
import importlib, mmap, os, pkgutil, select, signal, sys, _socket
import llvmlite.binding, networkx, numba, opt_einsum, optree, scipy.linalg, scipy.sparse
import scipy.special
import numpy as np

gone = {
    os: "O_CLOEXEC O_NOFOLLOW O_NONBLOCK WIFSTOPPED WNOHANG WUNTRACED fork geteuid getuid nice "
    "pipe2 posix_spawn register_at_fork sched_getaffinity sched_yield set_blocking uname waitpid",
    signal: "SIGCHLD SIGHUP SIGKILL SIGPIPE SIG_BLOCK pthread_sigmask",
    select: "poll POLLIN POLLOUT",
    mmap: "MAP_ANONYMOUS MAP_PRIVATE PROT_EXEC PROT_READ PROT_WRITE",
    _socket: "socketpair",
}
for module, names in gone.items():
    for name in names.split():
        delattr(module, name)
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource"]))
sys.platform = "win32"
import tapegrad

for module in pkgutil.walk_packages(tapegrad.__path__, "tapegrad."):
    if not module.name.endswith(("__main__", "compiler.worker", ".wavelets", ".polars")):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            assert "pip install" in str(error), error  # of another package, which isn't here
x = np.linspace(0.0, 1.0, 50_000)
for compile in ("never", "auto", "always"):
    g = tapegrad.grad(lambda x: np.sum(np.sin(x) ** 2), compile=compile)
    for _ in range(20):
        np.testing.assert_allclose(g(x), np.sin(2 * x))
from tapegrad.compiler.client import client

assert client.worker is None and client.inside is not None
"""


def test_a_system_without_forks_compiles_inside(tmp_path):
    """All modules are imported without what Windows lacks, and derivatives are compiled and kept.
    The process next door alone isn't there, which forks."""
    environment = {"TAPEGRAD_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, env=environment)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
