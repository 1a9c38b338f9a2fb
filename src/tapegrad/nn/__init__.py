"""What networks are made of: plain functions of NumPy arrays, named as in torch.nn.functional.

from tapegrad import nn

def loss(weight, images, labels):
    return np.mean((nn.conv2d(images, weight, padding=1) - labels) ** 2)
"""

from tapegrad.nn.attention import (
    scaled_dot_product_attention,
    soft_attention,
)
from tapegrad.nn.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tapegrad.nn.ctc import (
    ctc_loss,
)
from tapegrad.nn.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from tapegrad.nn.recurrent import (
    fast_weights,
    fast_weights_cell,
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn,
    rnn_cell,
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
    "ctc_loss",
    "fast_weights",
    "fast_weights_cell",
    "gru",
    "gru_cell",
    "lstm",
    "lstm_cell",
    "max_pool1d",
    "max_pool2d",
    "rnn",
    "rnn_cell",
    "scaled_dot_product_attention",
    "soft_attention",
]


def __dir__() -> list[str]:
    return __all__
