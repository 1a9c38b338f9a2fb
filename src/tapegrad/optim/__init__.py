"""Optimisers on trees of parameters, schedules of learning rates, clipping, and training.

    from tapegrad import optim

    step = optim.training_step(loss, optim.adam(1e-3))
    state = optim.adam(1e-3).init(params)
    value, params, state = step(params, state, x, y)

An optimiser is pure: `init(params)` and `update(grads, state, params)`. `fit` trains on minibatches
and continues from a checkpoint if there is one. `minimise`, `lbfgs` and `conjugate_gradient` are
SciPy's methods on trees.
"""

from tapegrad.optim.checkpoints import load_notes, load_tree, save_tree
from tapegrad.optim.clipping import clip_by_norm, clip_by_value, global_norm
from tapegrad.optim.fitting import Fitted, fit
from tapegrad.optim.minimising import conjugate_gradient, lbfgs, minimise
from tapegrad.optim.optimiser import Optimiser, State
from tapegrad.optim.rules import (
    adadelta,
    adagrad,
    adam,
    adamax,
    adamw,
    asgd,
    lion,
    rmsprop,
    rprop,
    sgd,
)
from tapegrad.optim.schedules import (
    constant,
    cosine,
    exponential,
    inverse_sqrt,
    linear,
    one_cycle,
    piecewise,
    polynomial,
    warmup,
)
from tapegrad.optim.stepping import training_step, update

__all__ = [
    "Fitted",
    "Optimiser",
    "State",
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "clip_by_norm",
    "clip_by_value",
    "conjugate_gradient",
    "constant",
    "cosine",
    "exponential",
    "fit",
    "global_norm",
    "inverse_sqrt",
    "lbfgs",
    "linear",
    "lion",
    "load_notes",
    "load_tree",
    "minimise",
    "one_cycle",
    "piecewise",
    "polynomial",
    "rmsprop",
    "rprop",
    "save_tree",
    "sgd",
    "training_step",
    "update",
    "warmup",
]


def __dir__() -> list[str]:
    return __all__
