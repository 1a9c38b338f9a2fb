"""A model: a description of parameters, and a function of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegrad.random import split
from tapegrad.trees import tree_flatten, tree_map

__all__ = ["Model", "sequential"]

ERRORS = (IndexError, TypeError, ValueError)  # errors of shapes and types that don't fit


class Start:
    """The initial value of an array: its shape, and the function that draws it."""

    def __init__(self, shape: tuple[int, ...], draw: Callable[[Any, tuple[int, ...]], Any]) -> None:
        self.shape = shape
        self.draw = draw


def uniform(bound: float, *shape: int) -> Start:
    """Uniform from -bound to bound."""
    return Start(shape, lambda rng, shape: rng.uniform(-bound, bound, shape))


def normal(*shape: int) -> Start:
    return Start(shape, lambda rng, shape: rng.normal(size=shape))


def full(value: float, *shape: int) -> Start:
    return Start(shape, lambda rng, shape: np.full(shape, value))


def drawn(starts: Any, rng: Any, dtype: Any) -> Any:
    """The arrays of a tree of `Start`."""
    return tree_map(lambda s: s.draw(rng, s.shape).astype(dtype), starts)


class Model:
    """A function of parameters, and their initial values; the object itself holds no numbers.

        model = models.mlp(64, [50, 10], classifier=True)
        params = model.init(np.random.default_rng(0))
        scores = model(params, images)

    Parameters are dicts and lists of arrays, ready for `grad`, `vmap`, `tapegrad.optim` and
    `save_tree`.

    `model(params, *inputs, state=None, training=False, rng=None)`:

    training : whether dropout is active, and batch normalisation uses the batch's statistics.
    rng : the source of dropout's draws: a NumPy generator, a key of `tapegrad.random`, which is
        split among the layers that draw, or None for `np.random`.
    state : the state carried from call to call, made by `model.state(...)`: running statistics of
        batch normalisation, and hidden states. If it is passed, the result is
        `(output, new state)`, otherwise the output. The arguments are not changed.

    Raises ValueError, IndexError or TypeError for shapes that don't fit, with a note that names the
    part of the model.
    """

    def __init__(
        self,
        name: str,
        starts: Any,
        apply: Callable[..., tuple[Any, Any]],
        state: Callable[[int | None], Any] = lambda n: {},
    ) -> None:
        """`starts` is a tree of `Start`; `apply(params, state, training, rng, *inputs)` returns the
        output and the next state; `state(n)` is a tree of `Start`, with hidden states if n is a
        number."""
        self.name = name
        self._starts = starts
        self._apply = apply
        self._state = state

    def __repr__(self) -> str:
        return f"Model({self.name})"

    def init(self, rng: Any, dtype: Any = np.float32) -> Any:
        """New parameters, drawn by a NumPy generator such as `np.random.default_rng(0)`."""
        return drawn(self._starts, rng, dtype)

    def state(self, n: int | None = None, dtype: Any = np.float32) -> Any:
        """The state before the first call: running means 0 and variances 1.

        With n, the number of sequences in a batch, it contains hidden states, initially 0, and each
        call continues where the last one ended. Without n, each call starts from zero states.
        """
        return drawn(self._state(n), None, dtype)

    def __call__(
        self,
        params: Any,
        *inputs: Any,
        state: Any = None,
        training: bool = False,
        rng: Any = None,
    ) -> Any:
        self._check(params)
        found, after = self._apply(params, state, training, rng, *inputs)
        return found if state is None else (found, after)

    def _check(self, params: Any) -> None:
        """Check that the parameters have the tree and the shapes of this model's."""
        wanted, starts, _ = tree_flatten(self._starts, paths=True)
        paths, leaves, _ = tree_flatten(params, paths=True)
        for path in dict.fromkeys([*wanted, *paths]):
            place = "params" + "".join(f"[{key!r}]" for key in path)
            if path not in wanted or path not in paths:
                told = "there is no" if path in wanted else "it has no parameter"
                raise ValueError(f"{self.name}: {told} {place}")
            shape, must = np.shape(leaves[paths.index(path)]), starts[wanted.index(path)].shape
            if shape != must:
                raise ValueError(f"{self.name}: {place} has shape {shape}, and must have {must}")


def keys_of(rng: Any, count: int) -> Sequence[Any]:
    """The source of random numbers for each of `count` parts: a generator is shared, a key
    split."""
    if rng is None or hasattr(rng, "random"):
        return [rng] * count
    keys = split(rng, count)
    return [keys[k] for k in range(count)]


def sequential(*parts: Any, **named: Any) -> Model:
    """A chain: each part takes the result of the part before. Parts are models or functions.

        sequential(embedding(100, 32), lstm(32, 64), np.tanh, linear(64, 100))
        sequential(first=linear(3, 8), then=nn.relu, last=linear(8, 1))

    Parameters and state are lists with one entry for each part, {} for a function; with named parts
    they are dicts of the parts that have parameters or a state.

    Raises
    ------
    TypeError : only some parts have names, or a part isn't callable.
    """
    return chain("sequential", *parts, **named)


def chain(name: str, *parts: Any, **named: Any) -> Model:
    """`sequential` under another name."""
    if bool(parts) == bool(named):
        raise TypeError("sequential: all parts have names, or none of them; there is at least one")
    items = list(named.items()) if named else list(enumerate(parts))
    for key, part in items:
        if not callable(part):
            raise TypeError(f"sequential: part {key!r} is a {type(part).__name__}, not a function")

    def together(found: dict[Any, Any]) -> Any:
        """Parameters or states of the parts, as a list or a dict."""
        if named:
            return {key: x for key, x in found.items() if _holds(x)}
        return [found.get(key, {}) for key, _ in items]

    def apply(params: Any, state: Any, training: bool, rng: Any, x: Any) -> tuple[Any, Any]:
        draws = keys_of(rng, len(items))
        after = {}
        for (key, part), drawing in zip(items, draws, strict=True):
            try:
                if isinstance(part, Model):
                    own = params.get(key, {}) if named else params[key]
                    before = (state.get(key, {}) if named else state[key]) if state else {}
                    x, after[key] = part._apply(own, before, training, drawing, x)
                else:
                    x = part(x)
            except ERRORS as error:
                error.add_note(f"In part {key!r} of {name}, {part!r}.")
                raise
        return x, together(after)

    models = {key: part for key, part in items if isinstance(part, Model)}
    return Model(
        name,
        together({key: model._starts for key, model in models.items()}),
        apply,
        lambda n: together({key: model._state(n) for key, model in models.items()}),
    )


def _holds(tree: Any) -> bool:
    """Whether a tree has a leaf."""
    return any(map(_holds, tree)) if type(tree) is list else tree != {}
