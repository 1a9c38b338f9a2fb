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

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]


def __dir__() -> list[str]:
    return __all__
