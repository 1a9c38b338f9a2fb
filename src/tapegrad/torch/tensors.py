"""Tensors and arrays that share memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tapegrad.core.arrays import is_half
from tapegrad.core.values import dtype_called
from tapegrad.errors import ArgumentError

Tensor = Any


def is_real(x: Tensor) -> bool:
    """Whether a tensor can have a derivative."""
    return x.is_floating_point() or x.is_complex()


def conjugate(x: Any) -> Any:
    """The conjugate: PyTorch's cotangents of complex numbers are the conjugates of tapegrad's."""
    return np.conj(x) if x.dtype.kind == "c" else x


def as_array(x: Any) -> Any:
    """A tensor's memory as an array; other objects unchanged."""
    if not isinstance(x, torch.Tensor):
        return x
    try:
        if x.dtype == torch.bfloat16:  # a dtype of NumPy's arrays only with ml_dtypes
            return x.detach().view(torch.int16).numpy().view(dtype_called("bfloat16"))
        return x.detach().numpy()
    except (TypeError, RuntimeError) as error:
        if x.is_conj() or x.is_neg():
            return x.detach().resolve_conj().resolve_neg().numpy()
        raise ArgumentError(
            f"a tensor on {x.device} of {x.dtype} can't be had as an array: {error}"
        ) from None


def as_tensor(x: Any) -> Tensor:
    """An array's memory as a tensor."""
    if not isinstance(x, np.ndarray):
        x = np.asarray(x)
    flags = x.flags
    if not flags.writeable or (not flags.c_contiguous and min(x.strides) < 0):
        x = x.copy(order="C")  # PyTorch accepts no read-only arrays and no negative strides
    if is_half(x.dtype) and x.dtype != np.float16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)
