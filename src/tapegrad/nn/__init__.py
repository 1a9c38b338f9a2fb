"""What networks are made of: plain functions of NumPy arrays, named as in torch.nn.functional.

from tapegrad import nn

def loss(weight, images, labels):
    return np.mean((nn.conv2d(images, weight, padding=1) - labels) ** 2)
"""

from tapegrad.nn.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tapegrad.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "max_pool1d",
    "max_pool2d",
]


def __dir__() -> list[str]:
    return __all__
