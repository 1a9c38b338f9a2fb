"""pandas' Series and DataFrames as trees: numbers are branches, labels stay with them.

pandas isn't imported: if one of its objects is passed, it has been. A Series has one branch. So has
a DataFrame whose columns share one dtype; otherwise each column is a branch. Columns that don't
hold numbers aren't traced; they are compared by contents.
"""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegrad.core.instances import Functions
from tapegrad.core.statics import Returnable, exact_key, is_comparable, unlike
from tapegrad.core.values import Value


def pandas() -> Any:
    """The pandas module, if the program has imported it."""
    return sys.modules.get("pandas")


def is_series(x: Any) -> bool:
    """Whether this is a Series, but not of a subclass."""
    return type(x) is getattr(pandas(), "Series", None)


def is_frame(x: Any) -> bool:
    """Whether this is a DataFrame, but not of a subclass."""
    return type(x) is getattr(pandas(), "DataFrame", None)


class Column(Returnable):
    """A column without numbers, with its present contents."""

    def __init__(self, series: Any) -> None:
        self.series = series
        self.key = contents_key(series.array)

    def stay(self) -> bool:
        self.series = self.series.copy()
        return super().stay()

    def __repr__(self) -> str:
        return f"a column of dtype {self.series.dtype}"


class Labels(Returnable):
    """The parts of a Series or DataFrame besides its numbers: its index, and its name or columns.

    A `whole` frame is one array with two axes; any other is a list of columns.
    """

    def __init__(self, index: Any, columns: Any = None, name: Any = None, whole: bool = True):
        self.index, self.columns, self.name, self.whole = index, columns, name, whole

    @property
    def key(self) -> Any:
        name = exact_key(self.name)
        columns = None if self.columns is None else index_key(self.columns)
        return index_key(self.index), columns, unlike() if name is None else name, self.whole

    def stay(self) -> bool:
        self.index, self.columns = _view(self.index), _view(self.columns)
        return super().stay()

    def __repr__(self) -> str:
        if self.columns is None:
            return f"Series of {len(self.index)}"
        return f"DataFrame of {len(self.index)} rows with the columns {list(self.columns)}"


def is_of_numbers(dtype: Any) -> bool:
    """Whether a column's dtype is a numeric dtype of NumPy's."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiubc"


def copies_on_write() -> bool:
    """Whether writing to a table never changes another one, as in pandas 3."""
    pd = pandas()
    return bool(pd.__version__ >= "3" or pd.options.mode.copy_on_write)


def taken_apart(x: Any) -> tuple[list[Any], Labels]:
    """The branches of a Series or DataFrame, and its labels."""
    if is_series(x):
        return [_numbers(x)], Labels(x.index, name=x.name)
    dtypes = list(x.dtypes)
    whole = bool(dtypes) and is_of_numbers(dtypes[0]) and all(d == dtypes[0] for d in dtypes)
    # pandas stores columns one after the other.
    columns = [x.to_numpy().T] if whole else [_numbers(x.iloc[:, k]) for k in range(len(dtypes))]
    return columns, Labels(x.index, x.columns, whole=whole)


def _numbers(series: Any) -> Any:
    return series.to_numpy() if is_of_numbers(series.dtype) else Column(series)


def built(labels: Labels, branches: Sequence[Any]) -> Any:
    """A Series or DataFrame of pandas, made of arrays."""
    pd = pandas()
    if all(x is None for x in branches) and branches:  # the cotangents of integers
        return None
    # pandas turns an array of objects into a column of strings, but keeps a Series as it is.
    values = [x.series.copy() if isinstance(x, Column) else x for x in branches]
    index = _view(labels.index)  # whose name can be set
    if labels.columns is None and isinstance(values[0], pd.Series):
        return pd.Series(values[0].array, index, values[0].dtype, labels.name, copy=False)
    if labels.columns is None:
        return pd.Series(values[0], index=index, name=labels.name, copy=False)
    if labels.whole:
        return pd.DataFrame(values[0].T, index, _view(labels.columns), copy=False)
    there = [k for k, x in enumerate(values) if x is not None]
    frame = pd.DataFrame({k: _renamed(values[k], index) for k in there}, index)
    frame.columns = labels.columns[there]
    return frame


def _renamed(x: Any, index: Any) -> Any:
    """A column with this index. An array is returned as it is."""
    if not isinstance(x, pandas().Series):
        return x
    return pandas().Series(x.array, index, x.dtype, copy=False)


def turned(labels: Labels, branches: Sequence[Any]) -> list[Any]:
    """The branches with the table's rows as their first axis, or back."""
    if labels.columns is None or not labels.whole:
        return list(branches)
    return [getattr(x, "T", x) for x in branches]


def names_of(labels: Labels) -> list[str]:
    """The names of the branches for messages."""
    if labels.columns is None or labels.whole:
        return [""]  # the name of the whole
    return [str(name) for name in labels.columns]


def as_trees(stand_in: type, made: Any) -> None:
    """Register Series and DataFrames as trees. `made(labels, arrays)` makes the `stand_in` for one
    while a function is traced; it holds both."""
    from tapegrad.core import instances

    def unflatten(labels: Labels, branches: Sequence[Any]) -> Any:
        plain = all(isinstance(x, (np.ndarray, np.generic, Column, type(None))) for x in branches)
        traced = any(isinstance(x, Value) for x in branches)
        if plain and not traced:
            return built(labels, branches)
        return made(labels, turned(labels, branches))

    def key(cls: type, labels: Labels) -> Any:
        return labels.key

    def stood_in(x: Any) -> Any:
        branches, labels = taken_apart(x)
        return made(labels, turned(labels, branches))

    def held(x: Any) -> tuple[list[Any], Labels]:
        return turned(x._labels, x._branches), x._labels

    def adopted(cls: type) -> Functions | None:
        if cls in (getattr(pandas(), "Series", None), getattr(pandas(), "DataFrame", None)):
            return Functions(taken_apart, unflatten, key, names_of, stood_in)
        return None

    own = Functions(held, unflatten, key, names_of)
    instances.declare(stand_in, own)
    instances.adopt("pandas", adopted)


# ---- contents


class Contents:
    """The contents of a Series, DataFrame or index at one moment.

    `held` are the arrays that held them. Objects that pandas has made of the table share their
    memory, and may be inputs of a tape. So these arrays must be unchanged too, even if the table
    has other arrays by now: a new column may give the table its former contents.
    """

    def __init__(self, x: Any) -> None:
        self.kind = type(x)
        self.held: list[Any] = []
        if not is_table(x):  # an index, which is immutable except for its names
            self.labels, self.blocks = index_key(x), []
            return
        self.labels = _labels_key(x)
        self.blocks = [(*_placed(b), _Copy(b.values)) for b in x._mgr.blocks]
        self.held = [b.values for b in x._mgr.blocks]

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays of numbers."""
        return [x for x in self.held if isinstance(x, np.ndarray)]

    def are_in(self, x: Any) -> bool:
        """Whether an object has this class and indistinguishable contents."""
        if type(x) is not self.kind:
            return False
        if not is_table(x):
            return bool(index_key(x) == self.labels)
        blocks = x._mgr.blocks
        if len(blocks) != len(self.blocks) or _labels_key(x) != self.labels:
            return False
        return all(
            _placed(b) == (at, shape)
            and copy.is_of(b.values)
            and (b.values is held or copy.is_of(held))
            for b, (at, shape, copy), held in zip(blocks, self.blocks, self.held, strict=True)
        )


def is_table(x: Any) -> bool:
    """Whether this is a Series or DataFrame, or of a subclass."""
    pd = pandas()
    return pd is not None and isinstance(x, (pd.Series, pd.DataFrame)) and hasattr(x, "_mgr")


def is_pandas_class(kind: type) -> bool:
    """Whether a class belongs to pandas, by its module's name."""
    return str(kind.__module__).partition(".")[0] == "pandas"


@functools.lru_cache(maxsize=4096)
def is_pandas_file(file: str) -> bool:
    """Whether a file belongs to pandas."""
    folders = getattr(pandas(), "__path__", None) or ()
    return any(file.startswith(folder) for folder in folders)


def is_pandas_object(x: Any) -> bool:
    """Whether this is a Series, DataFrame or index of pandas' own classes."""
    pd: Any = pandas()
    if pd is None or not is_pandas_class(type(x)):
        return False
    return is_table(x) or isinstance(x, getattr(pd, "Index", ()))


def _labels_key(x: Any) -> Any:
    columns = getattr(x, "columns", None) if x.ndim == 2 else None
    name = exact_key(x.name) if x.ndim == 1 else None
    key = index_key(x.index), None if columns is None else index_key(columns)
    name = unlike() if x.ndim == 1 and name is None else name
    return *key, name, bool(x.attrs), x.flags.allows_duplicate_labels


def _placed(block: Any) -> tuple[bytes, Any]:
    """The columns that a block of memory holds, and the block's shape."""
    return np.asarray(block.mgr_locs.as_array).tobytes(), block.shape


class _Copy:
    """The contents of a block and their memory layout, which a copy of the array might not keep."""

    def __init__(self, values: Any) -> None:
        self.key = _block_key(values)
        self.objects: list[Any] | None = None  # immutable Python objects
        if _is_objects(values) and not isinstance(self.key[-1], unlike):
            self.objects = values.ravel().tolist()

    def is_of(self, values: Any) -> bool:
        """Whether a block has these contents in this layout. If the objects are identical, no key
        is computed."""
        if self.objects is not None and _is_objects(values):
            found = values.ravel().tolist()
            if len(found) == len(self.objects) and all(map(operator.is_, found, self.objects)):
                return True
        return bool(_block_key(values) == self.key)


def _block_key(values: Any) -> Any:
    if _is_numbers(values):
        return values.dtype, values.strides, values.tobytes()
    return contents_key(values if values.ndim == 1 else values.ravel())


def _is_objects(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.hasobject


def _is_numbers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and not values.dtype.hasobject


# ---- keys of labels and of columns' contents


_known: dict[int, tuple[weakref.ref[Any], Any]] = {}  # keys of indices, which are immutable


def index_key(index: Any) -> Any:
    """The key of an index: equal for indices that no function can tell apart. Its names may be set
    in place, so they are read each time."""
    held, content = _known.get(id(index), (None, None))
    if held is None or held() is not index:
        content = _content_key(index)
        if is_comparable(content):
            forget: Any = functools.partial(_known.pop, id(index))
            _known[id(index)] = weakref.ref(index, forget), content
    names = [exact_key(name) for name in index.names]
    return content, tuple([unlike() if name is None else name for name in names])


def _view(index: Any) -> Any:
    """An index with the same labels, and names of its own."""
    made = None if index is None else index.view()
    held, content = _known.get(id(index), (None, None))
    if held is not None and held() is index:
        forget: Any = functools.partial(_known.pop, id(made))
        _known[id(made)] = weakref.ref(made, forget), content
    return made


def _content_key(index: Any) -> Any:
    kind, pd = type(index), pandas()
    if kind is pd.RangeIndex:
        return kind, index.start, index.stop, index.step
    if kind is pd.MultiIndex:
        codes = [np.asarray(c).tobytes() for c in index.codes]
        return kind, tuple(map(index_key, index.levels)), tuple(codes)
    return kind, str(getattr(index, "freq", None)), contents_key(index.array)


def contents_key(array: Any) -> Any:
    """The key of a column: equal for columns of the same dtype with the same contents."""
    if hasattr(array.dtype, "numpy_dtype"):  # a NumPy array, wrapped by pandas
        array = array.to_numpy()
    dtype = str(array.dtype)
    if is_of_numbers(array.dtype):
        return dtype, np.asarray(array).tobytes()
    if hasattr(array, "asi8"):  # dates and durations
        return dtype, array.asi8.tobytes()
    if hasattr(array, "codes") and hasattr(array, "categories"):
        codes = np.asarray(array.codes).tobytes()
        return dtype, bool(array.ordered), codes, index_key(array.categories)
    if hasattr(array, "closed"):  # intervals, of which `cut` makes categories
        return dtype, array.closed, index_key(array.left), index_key(array.right)
    if hasattr(array, "sp_values"):
        return dtype, array.sp_index.indices.tobytes(), contents_key(array.sp_values)
    missing = pandas().NA
    found = [_Missing if x is missing else exact_key(x) for x in array]
    return dtype, unlike() if None in found else tuple(found)


_Missing = "missing"
