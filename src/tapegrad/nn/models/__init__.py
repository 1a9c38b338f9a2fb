"""Models: descriptions of parameters, and functions of the parameters.

from tapegrad.nn import models

model = models.mlp(64, [50, 10], classifier=True)
params = model.init(np.random.default_rng(0))

def loss(params, images, labels):
    return nn.cross_entropy(model(params, images), labels)
"""

from tapegrad.nn.models.attention import (
    soft_attention,
    transformer,
    transformer_block,
)
from tapegrad.nn.models.layers import (
    batch_norm,
    conv2d,
    dropout,
    embedding,
    layer_norm,
    linear,
)
from tapegrad.nn.models.model import (
    Model,
    sequential,
)
from tapegrad.nn.models.networks import (
    mlp,
    spatial,
)
from tapegrad.nn.models.recurrent import (
    fast_weights,
    gru,
    lstm,
    rnn,
)

__all__ = [
    "Model",
    "batch_norm",
    "conv2d",
    "dropout",
    "embedding",
    "fast_weights",
    "gru",
    "layer_norm",
    "linear",
    "lstm",
    "mlp",
    "rnn",
    "sequential",
    "soft_attention",
    "spatial",
    "transformer",
    "transformer_block",
]


def __dir__() -> list[str]:
    return __all__
