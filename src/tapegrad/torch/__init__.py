"""tapegrad and PyTorch in one program: functions as modules, and modules as functions.

    from tapegrad.torch import AutoModule

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), AutoModule(f, {"W": W, "b": b}))
    loss = AutoCriterion(g)(model(x), y)
    loss.backward()

Tensors and arrays share memory on the way in and out. tapegrad differentiates the functions, and
PyTorch the modules; `tapegrad.nn.functionalize` makes the function of a module. This module needs
PyTorch; tapegrad doesn't.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError("tapegrad.torch needs PyTorch: pip install torch") from error

from tapegrad.torch.modules import AutoCriterion, AutoModule

__all__ = ["AutoCriterion", "AutoModule"]


def __dir__() -> list[str]:
    return __all__
