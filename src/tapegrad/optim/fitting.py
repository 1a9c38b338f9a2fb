"""Training on minibatches: `fit`.

The order of the rows follows from the seed and the number of the epoch, every sum is taken in a
fixed order, and every step runs in machine code. So a run is reproducible bit for bit, and a killed
run continues from its checkpoint with the same result.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tapegrad.api import jit
from tapegrad.core.tables import is_table
from tapegrad.core.trees import mapped
from tapegrad.errors import ArgumentError
from tapegrad.optim.checkpoints import digest, load_notes, load_tree, save_tree
from tapegrad.optim.optimiser import Optimiser, State
from tapegrad.optim.rules import adam
from tapegrad.optim.stepping import training_step
from tapegrad.trees import tree_map
from tapegrad.typing import Compile

# Relative tolerance of the last step's loss when it is recomputed, maybe on another machine
_TOLERANCE = 1e-9
_NEAR_SINGLE = 1e-3  # in float32 and less


@dataclass(frozen=True)
class Fitted:
    """The result of `fit`.

    params : the parameters; with validation data, the parameters of the best epoch.
    state : the optimiser's state after the last step.
    history : for each epoch a dict of "epoch" (from 1), "loss" (the mean over the rows, while
        training) and, with validation data, "validation".
    best : the epoch of the best validation loss; without validation data, the last one.
    stopped : whether the run ended early because the validation loss no longer fell.
    """

    params: Any
    state: State
    history: list[dict[str, float]] = field(repr=False)
    best: int
    stopped: bool


def fit(
    loss: Callable[..., Any],
    params: Any,
    data: Any,
    optimiser: Optimiser | None = None,
    *,
    epochs: int = 10,
    batch_size: int | None = 32,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    validation: Any = None,
    patience: int | None = None,
    min_change: float = 0.0,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    progress: bool = False,
    callback: Callable[[dict[str, float], Any], Any] | None = None,
    compile: Compile = "always",
) -> Fitted:
    """Minimise the mean of a loss over minibatches of data.

        fitted = fit(loss, params, (x, y), adam(1e-3), epochs=20, batch_size=64)

    Parameters
    ----------
    loss : `loss(params, *batch)`, the mean over the rows of a batch. A parameter `rng` of the loss
        receives a generator (`np.random.Generator`), for dropout for example; its draws follow from
        the seed and the checkpoint too.
    params : a tree of arrays and floats.
    data : an array or a pandas table, or a tree of them, all with the same number of rows. A tuple
        is passed as several arguments. The rows of a batch of a table are numbered from 0.
    optimiser : the optimiser; `adam()` by default.
    epochs : the number of passes over the rows.
    batch_size : the number of rows of a step; None for all of them.
    shuffle : whether each epoch visits the rows in a new order.
    drop_last : leave out the rows that don't fill a batch.
    seed : the seed of the orders and of `rng`.
    validation : data of the same form, on which the loss is computed after each epoch, without
        `rng` if it has a default.
    patience : stop after this number of epochs without a better validation loss.
    min_change : the amount by which a better validation loss must be below the best one.
    checkpoint : a file. If it exists, the run continues from it; it is written after each epoch.
        It is an error if the data, the loss or the optimiser differ from those of the run that
        wrote it.
    checkpoint_every : also write it each time after this number of steps.
    progress : show a progress bar (tqdm) of the steps.
    callback : called after each epoch with its entry of the history and the parameters. If it
        returns True, the run stops.
    compile : "always", or "never" or "auto" as in `grad`. With "auto" the bits of the result depend
        on the time at which machine code is ready.

    Returns
    -------
    Fitted : parameters, state and history.

    Raises
    ------
    ArgumentError : the data have no rows, or arrays of different lengths; an option is invalid;
        the checkpoint belongs to another run.
    FloatingPointError : the loss of a step isn't finite. The message names the step; the
        checkpoint before it remains.
    """
    order = Order(_rows(data), batch_size, shuffle, drop_last, seed)
    _check(patience, validation, checkpoint, checkpoint_every)
    optimiser = optimiser or adam()
    run = Run(loss, training_step(loss, optimiser, compile=compile), params, optimiser, order)
    run.data = "" if checkpoint is None else digest(data)
    run.compile(data, validation, compile)
    end = Ending(epochs, validation, patience, min_change, callback)
    return run.to_the_end(
        lambda rows: _rows_of(data, rows), end, checkpoint, checkpoint_every, progress
    )


class Ending(NamedTuple):
    """The end of a run, and the validation after each epoch."""

    epochs: int
    validation: Any = None
    patience: int | None = None
    min_change: float = 0.0
    callback: Callable[[dict[str, float], Any], Any] | None = None


@dataclass(frozen=True)
class Order:
    """The rows of each batch: a function of the seed and the epoch alone."""

    rows: int
    size: int | None
    shuffle: bool
    drop_last: bool
    seed: int

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ArgumentError(f"batch_size is {self.size}, and must be at least 1")
        if self.batches == 0:
            raise ArgumentError(f"{self.rows} rows fill no batch of {self.size}: drop_last=False")

    @property
    def batches(self) -> int:
        """The number of batches in an epoch."""
        size = self.size or self.rows
        return self.rows // size if self.drop_last else -(-self.rows // size)

    def of(self, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch; the last batch may be shorter."""
        at = np.arange(self.rows)
        if self.shuffle:
            at = np.random.default_rng([self.seed, epoch]).permutation(at)
        size = self.size or self.rows
        return [at[k * size : (k + 1) * size] for k in range(self.batches)]


class _Place(NamedTuple):
    """The arrays and numbers of a run, which a checkpoint holds.

    `total` is the sum of the losses of this epoch's rows so far, and `best` are the parameters of
    the best epoch. `loss` is the loss of the last step, at the parameters `before`.
    """

    params: Any
    state: State
    best: Any
    total: Any
    before: Any
    loss: Any


@dataclass
class _Known:
    """The progress of a run. `lowest` is the best validation loss, of epoch `best`."""

    epoch: int = 0
    batch: int = 0
    best: int = 0
    lowest: float = np.inf
    stopped: bool = False
    history: list[dict[str, float]] = field(default_factory=list)


class Run:
    """A run: its step, and its state between two steps."""

    def __init__(
        self,
        loss: Callable[..., Any],
        trained: Any,
        params: Any,
        optimiser: Optimiser,
        order: Order,
    ) -> None:
        self.optimiser = optimiser
        self.order = order
        self.draws = np.random.default_rng([order.seed, 0, 1])
        self.drawn, self.measuring = _drawing(loss, self.draws)
        self.trained = trained
        self.measured: Any = loss
        params = tree_map(_as_numpy, params)
        zero = np.float64(0.0)
        self.place = _Place(params, optimiser.init(params), params, zero, params, zero)
        self.known = _Known()
        self.drew: Any = None  # the generator's state before the last step
        self.data = ""

    def compile(self, data: Any, validation: Any, compile: Compile) -> None:
        """Compile all steps, always in the same order, so that the results of a continued run don't
        depend on the point at which it was interrupted."""
        self.measured = jit(self.measured, compile=compile)
        if compile == "always":
            before = self.draws.bit_generator.state
            for size in dict.fromkeys(len(rows) for rows in self.order.of(0)):
                batch = _rows_of(data, np.arange(size))
                self.trained.compile(self.place.params, self.place.state, *batch, **self.drawn)
            if validation is not None:
                given = _arguments(validation)
                self.measured.compile(self.place.params, *given, **self.measuring)
            self.draws.bit_generator.state = before

    def step(self, batch: tuple[Any, ...], rows: int) -> None:
        """Take one step along the gradient of a batch."""
        place = self.place
        self.drew = self.draws.bit_generator.state if self.drawn else None
        value, params, state = self.trained(place.params, place.state, *batch, **self.drawn)
        if not np.isfinite(value):
            raise FloatingPointError(
                f"the loss is {value} at batch {self.known.batch + 1} of epoch "
                f"{self.known.epoch + 1}. Clipping (optimiser.clipped(norm=1.0)) or a smaller "
                "learning rate may help"
            )
        loss = np.float64(value)
        self.place = _Place(
            params, state, place.best, place.total + loss * rows, place.params, loss
        )
        self.known.batch += 1

    def to_the_end(
        self,
        batch_of: Callable[[np.ndarray], tuple[Any, ...]],
        end: Ending,
        checkpoint: str | os.PathLike[str] | None,
        every: int | None,
        progress: bool,
    ) -> Fitted:
        """Take all remaining steps; `batch_of(rows)` is a batch."""
        if end.epochs < 0:
            raise ArgumentError(f"epochs is {end.epochs}, and must be at least 0")
        if checkpoint is not None and os.path.exists(checkpoint):
            self.go_on(checkpoint, batch_of)
        known, batches = self.known, self.order.batches
        done = known.epoch * batches + known.batch
        with bar(progress, end.epochs * batches, done) as shown:
            while known.epoch < end.epochs and not known.stopped:
                for rows in self.order.of(known.epoch)[known.batch :]:
                    self.step(batch_of(rows), len(rows))
                    shown.update(1)
                    if checkpoint and every and known.batch % every == 0:
                        self.save(checkpoint)
                entry = self.end_epoch(end.validation, end.patience, end.min_change)
                if end.callback is not None and end.callback(entry, self.place.params) is True:
                    known.stopped = True
                shown.set_postfix(entry)
                if checkpoint is not None:
                    self.save(checkpoint)
        return Fitted(self.place.best, self.place.state, known.history, known.best, known.stopped)

    def end_epoch(self, validation: Any, patience: int | None, change: float) -> dict[str, float]:
        """The history entry of the epoch; keeps the parameters if they are the best."""
        known, params = self.known, self.place.params
        known.epoch, known.batch = known.epoch + 1, 0
        seen = sum(len(rows) for rows in self.order.of(0))
        entry = {"epoch": known.epoch, "loss": float(self.place.total) / seen}
        is_best = True
        if validation is not None:
            found = self.measured(params, *_arguments(validation), **self.measuring)
            entry["validation"] = float(found)
            is_best = entry["validation"] < known.lowest - change
        if is_best:
            known.best, known.lowest = known.epoch, entry.get("validation", np.inf)
            self.place = self.place._replace(best=params)
        self.place = self.place._replace(total=np.float64(0.0))
        known.history.append(entry)
        known.stopped = patience is not None and known.epoch - known.best >= patience
        return entry

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint."""
        notes = {
            "run": self._said(),
            "known": vars(self.known),
            "draws": self.draws.bit_generator.state,
            "drew": self.drew,
        }
        save_tree(path, self.place, notes)

    def go_on(
        self,
        path: str | os.PathLike[str],
        batch_of: Callable[[np.ndarray], tuple[Any, ...]],
    ) -> None:
        """Continue the run that wrote this checkpoint."""
        notes = load_notes(path)
        run = notes.get("run", {}) if isinstance(notes, dict) else {}
        for name, now in self._said().items():
            if run.get(name) != now:
                raise ArgumentError(
                    f"{os.fspath(path)} is of a run whose {name} is {run.get(name)!r}, and not "
                    f"{now!r}. Pass the same, or another file"
                )
        self.place, _ = load_tree(path, like=self.place)
        self.known, self.drew = _Known(**notes["known"]), notes["drew"]
        if self.known.epoch or self.known.batch:
            self._check_last_step(os.fspath(path), batch_of)
        self.draws.bit_generator.state = notes["draws"]

    def _check_last_step(
        self, path: str, batch_of: Callable[[np.ndarray], tuple[Any, ...]]
    ) -> None:
        """Recompute the last step's loss; an ArgumentError if it differs."""
        place, known = self.place, self.known
        epoch, batch = (known.epoch, known.batch) if known.batch else (known.epoch - 1, 0)
        if self.drawn:
            self.draws.bit_generator.state = self.drew
        rows = self.order.of(epoch)[batch - 1]
        value = self.trained(place.before, place.state, *batch_of(rows), **self.drawn)[0]
        near = _TOLERANCE if np.asarray(value).dtype == np.float64 else _NEAR_SINGLE
        size = max(abs(x) for x in (place.loss, *[entry["loss"] for entry in known.history]))
        if not abs(np.float64(value) - place.loss) <= near * size:
            raise ArgumentError(
                f"{path} is of another run: the loss of its last step was {place.loss:.9g}, and is "
                f"{np.float64(value):.9g} now. Pass the loss and the data of the run that wrote "
                "it, or another file"
            )

    def _said(self) -> dict[str, Any]:
        """The settings that a continued run must share with the run before."""
        order = self.order
        return {
            "optimiser": self.optimiser.name,
            "optimiser's first steps": _first_steps(self.optimiser),
            "checksum of the data": self.data,
            "batch_size": order.size,
            "rows": order.rows,
            "shuffle": order.shuffle,
            "drop_last": order.drop_last,
            "seed": order.seed,
        }


def _first_steps(optimiser: Optimiser) -> str:
    """A fingerprint of an optimiser's settings: the parameters after three steps, the last of them
    at count 1000."""
    params, grads = np.array([1.0, -2.0]), np.array([0.5, -3.0])
    state = optimiser.init(params)
    for count in (0, 1, 1000):
        state = state._replace(count=np.int64(count))
        params, state = optimiser.plain_update(grads / (1 + count), state, params)
    return " ".join(f"{x:.7g}" for x in params)


def _as_numpy(leaf: Any) -> Any:
    """A parameter as updates return it, in memory of its own."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return np.float64(leaf) if type(leaf) is float else leaf


def _drawing(
    loss: Callable[..., Any], draws: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keyword arguments of the loss, in training and in validation.

    Both contain the generator if the loss takes one; validation leaves it out if it has a default.
    """
    try:
        taken = inspect.signature(loss).parameters.get("rng")
    except (TypeError, ValueError):
        taken = None
    if taken is None:
        return {}, {}
    return {"rng": draws}, {"rng": draws} if taken.default is taken.empty else {}


def _arguments(data: Any) -> tuple[Any, ...]:
    """Data as the arguments of a loss after the parameters."""
    return data if type(data) is tuple else (data,)


def _rows_of(data: Any, rows: np.ndarray) -> tuple[Any, ...]:
    """Some rows of all arrays and tables, numbered from 0."""

    def part(x: Any) -> Any:
        return x.iloc[rows].reset_index(drop=True) if is_table(x) else np.asarray(x)[rows]

    return _arguments(mapped(part, data, is_table))


def _rows(data: Any) -> int:
    """The common number of rows of all arrays and tables."""
    shapes: list[tuple[int, ...]] = []
    mapped(lambda x: shapes.append(np.shape(x)), data, is_table)
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        listed = ", ".join(str(list(shape)) for shape in dict.fromkeys(shapes)) or "nothing"
        raise ArgumentError(f"data are arrays with the same number of rows, and here: {listed}")
    if shapes[0][0] == 0:
        raise ArgumentError("the data have no rows")
    return shapes[0][0]


def _check(patience: int | None, validation: Any, checkpoint: Any, every: int | None) -> None:
    """Check that the options are consistent."""
    if patience is not None and validation is None:
        raise ArgumentError("patience is about the loss on validation data: pass validation=")
    if patience is not None and patience < 1:
        raise ArgumentError(f"patience is {patience}, and must be at least 1")
    if every is not None and (checkpoint is None or every < 1):
        raise ArgumentError("checkpoint_every is a number of steps, beside a file: checkpoint=")


class _NoBar:
    """A bar that shows nothing."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: int) -> None:
        pass

    def set_postfix(self, entry: Any) -> None:
        pass


def bar(shown: bool, total: int | None, done: int, unit: str = "step") -> Any:
    """A progress bar of the steps, `done` of which are done."""
    if not shown:
        return _NoBar()
    from tqdm.auto import tqdm

    return tqdm(total=total, initial=done, unit=unit)
