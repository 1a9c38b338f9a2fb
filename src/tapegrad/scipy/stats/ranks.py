"""Statistics of ranks, which small changes of the samples leave as they are.

SciPy computes them anew at each call, NaNs and axes included, and their derivative is 0.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from tapegrad.core.trees import flatten
from tapegrad.ir.tape import Aval
from tapegrad.primitives.control import ForeignCall
from tapegrad.scipy.declaring import answering, any_traced
from tapegrad.scipy.outside import Constant, recorded
from tapegrad.tracing.answers import declare
from tapegrad.tracing.floating import is_operand
from tapegrad.tracing.mixed import mixed_tree
from tapegrad.tracing.run import input_aval
from tapegrad.tracing.tracer import Tracer

HOME = "scipy.stats"
NAMES = """
    rankdata spearmanr kendalltau weightedtau somersd chatterjeexi mannwhitneyu wilcoxon ranksums
    kruskal friedmanchisquare brunnermunzel mood ansari cramervonmises_2samp page_trend_test
"""


def each(f: Any, found: Any) -> Any:
    """`f` of a result of SciPy's, or of each of the arrays that it has."""
    if not (isinstance(found, tuple) or hasattr(found, "statistic")):
        return f(found)
    if isinstance(found, tuple):
        new = tuple.__new__(type(found), map(f, found))
    else:
        new = object.__new__(type(found))
    for name, x in getattr(found, "__dict__", {}).items():
        new.__dict__[name] = f(x) if isinstance(x, _ARRAYS) else x
    return new


_ARRAYS = (Tracer, np.ndarray, np.number, float)


def _of_ranks(name: str) -> None:
    original = getattr(stats, name, None)
    if original is None:
        return

    def constant(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        on_tape = list(map(is_operand, leaves))
        operands = [x for x, yes in zip(leaves, on_tape, strict=True) if yes]
        arguments = mixed_tree(structure, leaves, on_tape, [input_aval(x) for x in operands])

        def computed(values: Sequence[Any]) -> Any:
            args, kwargs = arguments.fill([np.array(x)[()] for x in values])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return original(*args, **kwargs)

        def numbers(found: Any) -> list[Any]:
            parts: list[Any] = []
            each(lambda x: parts.append(np.asarray(x)), found)
            return parts

        plain = computed([x._concrete if isinstance(x, Tracer) else x for x in operands])
        values = numbers(plain)
        types = tuple(Aval(x.shape, x.dtype) for x in values)
        rule = Constant()
        call = ForeignCall(
            name,
            lambda *xs: numbers(computed(xs)),
            types,
            len(types),
            rule.backward,
            forward=rule.forward,
        )
        rest = iter(recorded(call, operands, values))
        return each(lambda x: next(rest), plain)

    constant.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    constant.__name__ = name
    declare(stats, name, answering(constant, original, f"{HOME}.{name}"), when=any_traced)


for _name in NAMES.split():
    _of_ranks(_name)
