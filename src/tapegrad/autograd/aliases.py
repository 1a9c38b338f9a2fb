"""Modules' names that are aliases of other modules.

    tapegrad.autograd.scipy.stats.norm  -->  scipy.stats.norm
    autograd.numpy                      -->  tapegrad.autograd.numpy      while installed

The target is imported when the alias is. The alias is the very same module, not a copy.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

OURS = "tapegrad.autograd"
THEIRS = "autograd"


class Aliases(MetaPathFinder, Loader):
    """Finds the modules whose names begin with `name`: they are those of `target`."""

    def __init__(self, name: str, target: str) -> None:
        self.name = name
        self.target = target

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name and not fullname.startswith(f"{self.name}."):
            return None
        try:
            named(self._stands_for(fullname))
        except ModuleNotFoundError:
            return None
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Replace the new module by the one that its name is an alias of."""
        name = module.__name__
        sys.modules[name] = named(self._stands_for(name))

    def _stands_for(self, name: str) -> str:
        return self.target + name.removeprefix(self.name)


class Additions(Aliases):
    """Aliases of a package `name` that has files of its own, which take precedence."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.name}."):
            return None
        return PathFinder.find_spec(fullname, path) or super().find_spec(fullname, path, target)


def named(name: str) -> Any:
    """The module of this name, or the object, such as a distribution of scipy.stats."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        module, _, attribute = name.rpartition(".")
        if error.name != name or module not in sys.modules:
            raise
        try:
            return getattr(sys.modules[module], attribute)
        except AttributeError:
            raise error from None


_installed = Aliases(THEIRS, OURS)


def install() -> None:
    """Make `import autograd` mean `tapegrad.autograd`, for all later imports.

        import tapegrad.autograd
        tapegrad.autograd.install()
        import autograd.numpy as np
        from autograd import grad

    That includes `autograd.numpy`, `autograd.scipy.stats` and all others. HIPS autograd itself
    needn't be installed. `uninstall()` undoes it; a second `install()` does nothing.

    Raises
    ------
    ImportError : HIPS autograd has been imported already, so some imported modules use it.
    """
    if _installed in sys.meta_path:
        return
    found = sys.modules.get(THEIRS)
    if found is not None:
        where = getattr(found, "__file__", None)
        raise ImportError(
            f"HIPS autograd was imported before ({where}), so functions that use it would meet "
            "those that use tapegrad. Call tapegrad.autograd.install() first, before any import "
            "that needs autograd"
        )
    sys.meta_path.insert(0, _installed)


def uninstall() -> None:
    """Undo `install()`: `import autograd` finds HIPS autograd again, if it is installed. Modules
    that were imported meanwhile keep tapegrad's functions."""
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_installed)
        for name in [*sys.modules]:
            if name == THEIRS or name.startswith(f"{THEIRS}."):
                del sys.modules[name]
