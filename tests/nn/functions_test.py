"""Values and derivatives of activations, normalisation, losses, indices and layers: beside
PyTorch's and beside differences."""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from tests.nn.calls import CALLS, FUNCTIONAL, METHODS, STOPPED

from tapegrad import gradcheck, nn, vjp


def pulled(f, xs, mode):
    """The value of `f`, and the cotangents of its arguments for a random one of that."""
    value, pullback = vjp(f, *xs, compile=mode)
    ct = np.random.default_rng(1).normal(size=np.shape(value)).astype(np.result_type(value))
    found = pullback(ct)
    return value, ct, found if isinstance(found, tuple) else (found,)


@pytest.mark.every(16)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("call", [*FUNCTIONAL, *METHODS, *STOPPED], ids=str)
def test_values_and_cotangents_are_torchs(call, mode, pytorch):
    """In one of both precisions, as the name of the call decides: compiled and played alike."""
    dtype = ("f8", "f4")[zlib.crc32(str(call).encode()) % 2]
    if call.name in ("hardsigmoid", "hardswish"):
        dtype = "f4"  # PyTorch's 1/6 is one of float32, whatever the argument
    xs = [x.astype(dtype) for x in call.moved().values()]
    value, ct, cotangents = pulled(call.ours(dtype), xs, mode)

    def wanted(torch):
        theirs = getattr(torch if call in METHODS else torch.nn.functional, call.name)
        tensors = [torch.tensor(x, requires_grad=True) for x in xs]
        out = call.function(theirs, torch.tensor, dtype)(*tensors)
        out.backward(torch.tensor(ct))
        return [out.detach(), *[t.grad for t in tensors]]

    pytorch.agrees([value, *cotangents], wanted, {"f8": 1e-12, "f4": 2e-5}[dtype])


@pytest.mark.every(16)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_derivatives_are_those_of_differences(call):
    assert gradcheck(call.ours(), tuple(call.moved().values()), rtol=1e-5, atol=1e-6)


@pytest.mark.every(32)
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_values_are_those_of_plain_numpy_without_a_warning(call, mode):
    """Of float32, which stays that: traced, and called as it is."""
    xs = [x.astype("f4") for x in call.moved().values()]
    f = call.ours("f4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = f(*xs)
        value, _, cotangents = pulled(f, xs, mode)
    assert np.result_type(plain) == np.result_type(value) == np.float32
    assert all(np.result_type(ct) == np.float32 for ct in cotangents)
    np.testing.assert_allclose(value, plain, rtol=2e-5, atol=2e-5 * abs(plain).max())


def test_each_function_is_called_here():
    others = {"dropout", "one_hot"}  # whose tests are in own_test.py
    modules = ("activations", "classification", "images", "indexing", "layers", "losses")
    modules = [f"tapegrad.nn.{name}" for name in (*modules, "normalisation")]
    functions = {name: getattr(nn, name) for name in nn.__all__ if name != "models"}
    names = {name for name, f in functions.items() if f.__module__ in modules}
    assert names == {call.name for call in CALLS} | others


def test_the_page_lists_each_function():
    page = (Path(__file__).parents[2] / "docs" / "nn.md").read_text(encoding="utf-8")
    listed, _ = page.split("## What differs from PyTorch")
    assert {name for name in nn.__all__ if f"`{name}`" not in listed} == set()
