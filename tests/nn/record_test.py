"""What is recorded of PyTorch's numbers tells right from wrong where PyTorch isn't installed."""

import json

import numpy as np
import pytest
from tests.nn import agreeing
from tests.nn.agreeing import PyTorch, drawn, told


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A test's record of these arrays, without PyTorch."""
    file = tmp_path / "torch.json"
    monkeypatch.setattr(agreeing, "RECORD", file)
    monkeypatch.setattr(agreeing, "HERE", False)

    def record(*arrays):
        file.write_text(json.dumps({"here 1": [*map(told, arrays)]}))
        return PyTorch("here", False)

    return record


@pytest.mark.parametrize("shape", [(), (3,), (7, 9), (0, 2), (60, 50)])
def test_the_same_numbers_agree_and_others_do_not(shape, recorded):
    (x,) = drawn(shape)
    recorded(x).agrees([x * (1 + 1e-14)], None, 1e-12)
    recorded(x.astype("f4")).agrees([x.astype("f4") * np.float32(1 + 1e-7)], None, 2e-5)
    for change in (1e-6, np.nan, np.inf, -np.inf):
        if x.size:
            other = x.copy()
            other[(-1,) * x.ndim] += change
            with pytest.raises(AssertionError):
                recorded(x).agrees([other], None, 1e-12)
    for found in (x.astype("f4"), x[None]):
        with pytest.raises(AssertionError):
            recorded(x).agrees([found], None, 1e-12)


def test_arrays_in_another_order_are_others(recorded):
    (x,) = drawn((4, 5))
    for other in (x[::-1], x[:, ::-1], -x):
        with pytest.raises(AssertionError):
            recorded(x).agrees([other], None, 1e-12)


def test_what_is_not_recorded_is_said(recorded):
    pytorch = recorded(np.ones(3))
    pytorch.agrees([np.ones(3)], None, 0)
    with pytest.raises(AssertionError, match="make torch"):
        pytorch.agrees([np.ones(3)], None, 0)
    with pytest.raises(ValueError, match="longer"):
        recorded(np.ones(3), np.ones(2)).agrees([np.ones(3)], None, 0)
