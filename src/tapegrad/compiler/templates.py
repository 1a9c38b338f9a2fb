"""Code on disk that many programs share: templates, which are kernels for any length, and functions
that kernels share.

They are kept in addition to programs. Programs hold all their machine code, and are found without
planning. A program that isn't found is planned; then its kernels are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tapegrad.backends.host import HOST
from tapegrad.backends.memo import is_common
from tapegrad.backends.target import Build
from tapegrad.compiler import code_store, disk
from tapegrad.compiler.key import kernel_key


def with_templates(build: Build, anew: bool = False) -> Build:
    """A builder that takes templates from disk, and builds and keeps the others. With `anew` all
    are built."""

    def found_or_built(work: Callable[[Any], bytes], sizes: Mapping[Any, int]) -> dict[Any, bytes]:
        names = {key: _name_of(key) for key in sizes}
        found = {}
        for key, name in names.items():
            if not anew and (code := code_store.find(name)) is not None:
                found[key] = code
        HOST.objects.add(found)
        new = build(work, {key: size for key, size in sizes.items() if key not in found})
        for key, code in new.items():
            code_store.keep(names[key], code)
        return found | new

    return found_or_built


def _name_of(key: Any) -> str | None:
    """The name under which a kernel is kept, or None if it isn't."""
    if disk.location() is None or not is_common(key):
        return None
    return code_store.named(kernel_key(key))
