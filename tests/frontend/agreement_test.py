"""Traced is untraced: every call of a table, on arrays of many shapes and dtypes.

What a call gives while it is traced has NumPy's type, dtype, shape, layout and value, and what
NumPy refuses is refused; then the tape is played for other values.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tapegrad import jit
from tapegrad.core.request import Request
from tapegrad.errors import TapegradError
from tapegrad.observe.answers.swapping import Names
from tapegrad.tracing.runs.run import trace_function
from tapegrad.tracing.tracers.tracer import Tracer

ARRAYS: list[tuple[str, tuple[int, ...]]] = [
    *(("f8", ()), ("f8", (4,)), ("f8", (3, 3)), ("f4", (4,))),
    *(("i4", (3, 3)), ("b1", ()), ("b1", (4,)), ("u1", (3, 3))),
]
FORMS = {
    "sum prod nansum nanprod": [
        "", "axis=0", "axis=(0,-1)", "axis=()", "keepdims=True", "dtype='f4'", "initial=2.5",
        "where=x>0", "axis=-1,where=x>0,initial=1,keepdims=True", "axis=0,out=np.zeros_like(x[0])",
        "dtype=bool", "axis=7",
    ],
    "mean var std nanmean nanvar nanstd": [
        "", "axis=0", "axis=(0,-1)", "keepdims=True", "dtype='f4'", "axis=0,where=x>0",
        "axis=0,out=np.zeros_like(x[0],np.result_type(x,'f4'))",
    ],
    "var std nanvar nanstd": ["ddof=1", "axis=0,correction=2", "mean=np.mean(x)", "ddof=20"],
    "max min nanmax nanmin": [
        "", "axis=0", "axis=(0,-1)", "keepdims=True", "initial=1", "where=x>0",
        "axis=0,where=x>1,initial=1,keepdims=True", "axis=0,out=np.zeros_like(x[0])",
    ],
    "any all": ["", "axis=0", "axis=(0,-1)", "keepdims=True", "axis=0,where=x>0"],
    "argmax argmin": ["", "axis=0", "axis=-1,keepdims=True", "keepdims=True"],
    "cumsum cumprod nancumsum nancumprod": ["", "axis=0", "dtype='f4'"],
    "median ptp average count_nonzero": ["", "axis=(0,-1)", "axis=0,keepdims=True"],
    "logaddexp.reduce hypot.reduce maximum.reduce fmax.reduce add.reduce logical_or.reduce": [
        "", "axis=-1,keepdims=True", "initial=1", "where=x>0,initial=1", "dtype='f8'",
    ],
    "maximum.accumulate add.accumulate": ["", "axis=-1", "dtype='f8'"],
    "quantile": [
        "q=.3", "q=0", "q=[[.1,.2]],axis=0,keepdims=True", "q=np.float32(.5)", "q=1.5",
        *(f"q=.3,method='{m}'" for m in (
            "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "hazen", "weibull",
            "interpolated_inverted_cdf", "median_unbiased", "normal_unbiased", "lower", "higher",
            "midpoint", "nearest", "nonsense")),
    ],
    "cov": [
        "", "rowvar=False", "ddof=0", "ddof=9", "ddof=1.5", "bias=True", "dtype='f4'", "y=x",
        "fweights=np.arange(x.shape[-1])+1", "aweights=np.arange(x.shape[-1])+.5",
        "fweights=[1.5]*x.shape[-1]", "aweights=-x[0]", "y=x,rowvar=False,bias=True",
        "fweights=np.arange(x.shape[-1])+1,aweights=np.arange(x.shape[-1])+.5,ddof=2",
    ],
    "corrcoef": ["", "rowvar=False", "y=x+1", "dtype='f4'"],
    "gradient": ["", "axis=0", "edge_order=2"],
    "unwrap": ["", "axis=0", "period=4", "discont=4."],
    "clip": ["a_min=0,a_max=1", "a_min=None,a_max=None", "a_min=0", "a_min=0,a_max=1,dtype='f8'"],
    "round": ["", "decimals=1", "decimals=-1"],
    "linalg.norm": ["", "ord=1", "ord=2", "ord=-1", "ord=np.inf", "ord='fro'", "axis=0",
        "axis=(0,1),keepdims=True", "ord=3,axis=-1", "ord='x'"],
    "argwhere nonzero flatnonzero diag_indices_from tril_indices_from iscomplex": [""],
    "iscomplexobj isrealobj ndim shape size isscalar iterable common_type isfortran": [""],
    "squeeze": ["", "axis=0"], "size": ["axis=0", "axis=(0,1)"],
}  # fmt: skip
CALLS = (
    [
        f"np.{name}(x{',' if form else ''}{form})"
        for names, forms in FORMS.items()
        for name in names.split()
        for form in forms
    ]
    + """np.result_type(x,np.float32)
np.result_type(1.0,x,'f4')
np.can_cast(x.dtype,'f4')
np.may_share_memory(x,x+1)
np.array_equal(x,x)
np.sort(x,stable=True,descending=True)
np.sort(x,axis=0,descending=True)
np.sort(x,axis=None,descending=None)
np.sort(x,kind='stable',descending=True)
np.argsort(x,stable=True,descending=True)
np.cross(x,x)
np.cross(x[...,:2],[1,2])
np.cross([1,2,3],x[...,:2])
np.correlate([1,2],x,'same')
np.convolve(x,x,'same')
np.einsum('ii',x)
np.einsum('ij->i',x,dtype='f4')
np.vecdot(x,x)
np.matmul(x,x,dtype='f8')
np.tensordot(x,x,1)
np.inner(x,x)
np.greater(x,0,dtype=bool)
np.add(x,1,dtype='f4')
np.add(x,x,dtype='i4')
np.add(x,x,dtype=np.dtypes.Float32DType)
x.transpose(np.arange(x.ndim))
np.add(x,1.5,casting='no')
np.concatenate([x,x],dtype='i4')
np.stack([x,x],dtype='f4',axis=-1)
np.vsplit(x,1)
np.dsplit(x,1)
np.tile(x,(2,1))
np.pad(x,1.5)
np.rot90(x,1,(0,0))
np.diff(x,0)
np.ediff1d(x)
np.choose(x,[1,2])
np.choose(np.abs(x).astype(int)%5,[x,x],mode='clip')
np.select([x],[x])
np.vander(x,2)
np.bincount(x)
np.bincount(np.abs(x).astype('i4').ravel(),minlength=3)
np.digitize(x,[2,1,0])
np.linalg.outer(x,x)
np.linalg.det(x)
np.linalg.matrix_power(x,2.0)
np.nan_to_num(x)
x.astype('f4',order='F')
x.T.astype('f4',order='C')
x.item(0)
x.item()
x.item(1,1)
x.item((0,0))
x.tolist()
x.flat[1]
x.flat[1:3]
next(x.flat)
(lambda it: (next(it), *it))(x.flat)
(lambda it: (*it, *it))(x.flat)
(lambda it: tuple(a-2*b for a,b in zip(it,it)))(x.flat)
(lambda it: (next(it), it[1], next(it)))(x.flat)
x.flat.copy()
x.flat.base
x.round(1)
np.argpartition(x,1)
np.argpartition(x,-1,axis=0)
np.partition(x,(0,-1),axis=None)
np.partition(x,1,axis=0)
np.partition(x,7)
np.partition(x,1.0)
np.partition(x,1,kind='quick')
np.lexsort((x,x))
np.lexsort((x,x>1),axis=0)
np.lexsort(x)
np.searchsorted(x,[0.5,1.5],sorter=np.argsort(x))
np.searchsorted(x,[0.5,1.5],sorter=np.argsort(x)*1.0)
np.searchsorted(np.sort(x,None),x,side='rite')
np.unravel_index(np.abs(x).astype(int),(9,99))
np.unravel_index(np.abs(x).astype(int),(9,99),order='F')
np.unravel_index(x,(9,99))
np.ravel_multi_index((np.abs(x).astype(int),)*2,(99,88))
np.ravel_multi_index((x.astype(int),)*2,(9,8),mode=('wrap','clip'),order='F')
np.ravel_multi_index((x.astype(int),)*2,(9,8))
np.histogram(x)
np.histogram(x,4,(0,1))
np.histogram(x,[0,1,2,5],density=True)
np.histogram(x,5,weights=x)
np.histogram(x,'auto')
np.histogramdd(x,[3]*x.shape[-1])
np.histogram2d(x.ravel(),x.ravel(),3,weights=x.ravel())
np.subtract(x,x,dtype='i4',casting='unsafe')
np.emath.logn(2,np.abs(x))
np.fft.fftshift(x)
np.nanmedian(x)
np.nanmedian(x,axis=-1,keepdims=True)
np.nanmedian(x,axis=0,out=np.zeros_like(x[0]))
np.nanmedian(x*0/0)
np.nanquantile(x,[[.1,.7]],axis=0)
np.nanquantile(x,np.float32(.3),axis=-1,keepdims=True)
np.nanquantile(x*0/0,.4,axis=0)
np.nanpercentile(x,[30,101],axis=0)
np.nanquantile(x,.3,method='closest_observation',axis=0)
np.nanquantile(x,.3,method='hazen')
np.nanquantile(x,.3,method='midpoint',axis=0)
np.nanquantile(x,.3,method='higher',axis=0)
np.quantile(x,[0,.3,1],weights=np.abs(x),method='inverted_cdf',axis=0)
np.quantile(x,.3,weights=np.arange(x.shape[-1])+1,method='inverted_cdf',axis=-1,keepdims=True)
np.quantile(x,.3,weights=np.ones(x.shape))
np.quantile(x,.3,weights=-np.ones(x.shape),method='inverted_cdf')
np.quantile(x,.3,weights=np.ones(7),method='inverted_cdf',axis=0)
np.nanquantile(x,[0,.3,1],weights=np.abs(x),method='inverted_cdf',axis=0)
x.strides
x.T.strides
x[::2].strides
(x+1).base is None
x[...,::2].base is x
x.T.flags.f_contiguous
(x+1).flags.owndata
(x+1).T.flags['C']
(x+1).flags.carray
np.broadcast_to(x,(2,*x.shape)).flags.writeable
x.to_device('gpu')
np.frexp(x)
np.frexp(x*1e-310)
np.ldexp(x,np.arange(3))
np.ldexp(x,x)
np.nextafter(x,x+1)
np.subtract.reduce(x,axis=-1,keepdims=True)
np.subtract.reduce(x,axis=(0,1))
np.subtract.reduce(x,where=x>0)
np.subtract.reduce(x,where=x>0,initial=2)
np.divide.reduce(x)
np.logaddexp2.reduce(x,where=x>0)
np.logaddexp2.reduce(x,axis=())
np.bitwise_or.reduce(x,axis=None)
np.logical_xor.reduce(x)
np.sin.reduce(x)
np.subtract.accumulate(x,axis=-1)
np.logical_or.accumulate(x)
np.add.reduceat(x,[0,2,1])
np.add.reduceat(x,[0,9])
np.add.reduceat(x,[])
np.add.reduceat(x,np.array([0,1]),axis=-1,dtype='f4')
np.multiply.reduceat(x,[0,2,1])
np.logical_or.reduceat(x,[0,2])
np.add(x,1,order='F')
np.clip(x,0,1,where=x>0,out=np.ones_like(x))
x.ravel('K')
x.T.ravel('K')
np.ravel(x.T,'A')
x.T.reshape(-1,order='A')
x.reshape(-1,order='K')
x.ravel('k')
x.T.ravel('a')
np.reshape(x,-1,order=b'F')
x.reshape(-1,order='f')
x.flatten('f')
x.copy('f').ravel('K')
(x+x).astype('f8',order='f')
np.add(x,x,order='f').ravel('K')
np.array(x,order='f').ravel('k')
np.zeros_like(x,order='f')
np.full((2,2),x.ravel()[0],order='f')
np.unravel_index(np.abs(x).astype(int),(9,99),order='f')
np.sort(x,kind='Stable')
np.take(x,[0,99,-99],mode=0)
np.take(x,[0,99,-99],mode=1)
x.take([0,99],mode=2)
x.take([0,1],mode=b'raise')
np.take(x,[0,1],mode=None)
np.choose(np.abs(x).astype(int)%5,[x,x],mode=1)
np.choose(np.abs(x).astype(int)%5,[x,x],mode=np.array(0))
np.choose(x>0,[x,x],mode=True)
np.ravel_multi_index((x.astype(int),)*2,(9,8),mode=(1,0))
np.convolve(x,x,0)
np.correlate(x,[1,2],1)
np.correlate(x,[1,2],np.int64(2))
np.gradient(x,edge_order=0)
np.sum(x,where='a')
np.sum(x,axis=0,where=['a','',1])
np.any(x,where=None)
np.max(x,where=0.5,initial=0)
np.add(x,x,where='',out=np.zeros_like(x))
np.var(x,mean=None)
np.pad(x,2,'median')
np.pad(x,2,'empty')[(slice(2,-2),)*x.ndim]
np.pad(x,2,'maximum',stat_length=1)
np.pad(x,5,'reflect',reflect_type='odd')
np.pad(x,5,'symmetric',reflect_type='odd')
np.matvec(x,x)
np.unique(np.tile(x,(2,1)),True,True,True,0)
np.unique(np.tile(x,2),True,True,True,-1)
np.unique(x>0,axis=1)
np.spacing(x)
np.interp(x,[0,.3,.5],[3,4,1],period=-1)
np.interp(x,[0,.3,.5],[3,4,1],period=0)
np.interp(x,[0,.3,.5],[3,4],period=1)
np.polymul([0,1],x)
np.polymul(x*0,x)
np.max(x,initial=None)
np.nanmin(x,axis=0,initial=None)
np.divmod(x,2,dtype='f8')
np.modf(x,dtype='f4')
np.equal(x,1,dtype='f4')
np.logical_and(x,x[::-1],casting='no')
np.signbit(x,dtype=float)
np.pad(x,1,where=x>0)
np.add.reduce(x,out=np.zeros(x.shape[1:]))
np.remainder.reduce(x,axis=-1,out=np.zeros(x.shape[:-1]))
np.multiply.accumulate(x,out=np.zeros(x.shape))
np.subtract.outer(x,2)
np.hypot.outer([1,2],x)
np.array(x,order='F')
np.array(x.T,order='A')
np.asarray(x,order='F')
np.asarray(x,None,'C')
np.full((2,2),x.ravel()[0],order='F')
np.full((2,2),x.ravel()[0],order='K')
np.clip(x,0,1,order='F')
np.nanvar(x,dtype=int)
np.argmax(x,out=np.zeros(()))
np.packbits(x>0)
np.packbits(x,0,'little')
np.packbits(np.tile(x>1,5),axis=-1)
np.unpackbits(x)
np.unpackbits(x,-1,bitorder='little')
np.unpackbits(x,0,-3)
np.unpackbits(x,0,40)
np.unpackbits(x,count=-999)
np.unpackbits(x,7)
np.require(x,'f4','C')
np.require(x,None,['F','O'])
np.asarray_chkfinite(x)
np.asarray_chkfinite(x/0)
np.asarray(x.ravel()[0])
np.lib.stride_tricks.sliding_window_view(x,2,axis=0).sum(-1)
np.lib.stride_tricks.sliding_window_view(x,7,axis=0)
np.lib.stride_tricks.sliding_window_view(x,(2,2)).sum((-1,-2))
np.lib.stride_tricks.sliding_window_view(np.tile(x,40),35,axis=-1).max()""".splitlines()
)
WRITES = """y.flat[1]=x.flat[0]
y.flat[[0,2]]=[7,8]
y.T.flat[1]=5
y.flat=7
np.put(y,[0,-1],[5,6])
np.put(y,[0,99],[5,6],mode='wrap')
np.put(y,[0,99],[5,6],mode=0)
np.put(y,[0,99],[5,6],mode=1)
np.put(y,np.arange(2)*99+(x.ravel()[:1]>99),5)
np.place(y,y>0,[1,2])
np.putmask(y,y>0,[1,2])
np.putmask(y,y>0,y*2)
np.copyto(y,5)
np.copyto(y,2.5)
np.fill_diagonal(y,9)
np.clip(y,0,1,out=y)
np.fill_diagonal(y,x[:2],wrap=True)
np.fill_diagonal(y[...,:2],9,True)
np.multiply.at(y,[0,1,0,0],np.array([2,3,4,5]).reshape((4,)+(1,)*(y.ndim-1)))
np.maximum.at(y,y>0,5)
np.maximum.at(y,(slice(None),[0,0]),3)
np.divide.at(y,[0,0],2.)
np.negative.at(y,...)
np.power.at(y,[0,9],2)
y.partition(1)
y.partition(1,axis=0)""".splitlines()


def made(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    x = 3 * np.random.default_rng(seed).standard_normal(shape)
    x = x > 0 if dtype == "b1" else np.abs(10 * x) if dtype == "u1" else x
    x = np.asarray(x).astype(dtype)
    if x.size > 2 and seed == 1 and x.dtype.kind == "f":
        x.flat[2] = np.nan
    return x


def function(text: str) -> Any:
    if text in WRITES:
        names: dict[str, Any] = {"np": np}
        exec(f"def f(x):\n    y = x.copy()\n    {text}\n    return y", names)
        return names["f"]
    return eval(f"lambda x: {text}", {"np": np})


def outcome(f: Any, x: np.ndarray) -> Any:
    try:
        return f(x.copy())
    except Exception as error:
        return error


def seen(f: Any, x: np.ndarray) -> Any:
    """What `f` gives while it is traced."""
    results: list[Any] = []
    trace_function(Request(lambda x: results.append(plain(f(x))), [x]))
    return results[0]


def outcomes(functions: Sequence[Any], xs: Sequence[np.ndarray]) -> list[Any]:
    """The outcomes of all functions for all arrays while they are traced. Names of modules mean
    something else in such runs; they are changed once for all, which takes longer than a run."""
    with Names():
        return [outcome(lambda x, f=f: seen(f, x), x) for f in functions for x in xs]


def plain(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [plain(part) for part in result]
    if isinstance(result, Tracer):
        value = result._read()[1]
        return value.item() if result._weak else value
    return result


def differs(wanted: Any, found: Any, exact: bool) -> str:
    """What is different, if anything is; `exact`, in type and layout too."""
    if isinstance(found, TapegradError):
        return ""  # refused, with words of its own
    if _is_error(wanted) or _is_error(found):
        return "" if _alike(type(wanted), type(found)) else f"{wanted!r} and {found!r}"
    if isinstance(wanted, (tuple, list)):
        parts = [differs(a, b, exact) for a, b in zip(wanted, found, strict=True)]
        return next(filter(None, parts), "")
    if exact and type(wanted) is not type(found):
        return f"{type(wanted)} and {type(found)}"
    if not isinstance(wanted, (np.ndarray, np.generic, int, float)):
        return "" if wanted == found else f"{wanted} and {found}"
    a, b = np.asarray(wanted), np.asarray(found)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{a.shape} {a.dtype} and {b.shape} {b.dtype}"
    if exact and a.ndim > 1 and a.size > 1 and a.flags.c_contiguous != b.flags.c_contiguous:
        return "another layout"
    tolerance = {"f4": 3e-5, "f8": 1e-11}.get(a.dtype.str[1:], 0)
    largest = np.max(np.abs(np.nan_to_num(np.float64(a), posinf=0, neginf=0)), initial=1.0)
    return "" if np.allclose(a, b, tolerance, tolerance * largest, True) else f"{a} and {b}"


def _is_error(x: Any) -> bool:
    return isinstance(x, Exception)


def _alike(wanted: type, found: type) -> bool:
    """Whether who catches the one catches the other: NumPy has classes of its own."""
    if not (issubclass(wanted, Exception) and issubclass(found, Exception)):
        return False
    kinds = (TypeError, ValueError, IndexError, ArithmeticError)
    return any(issubclass(wanted, k) and issubclass(found, k) for k in kinds)


@pytest.mark.every(9)
@pytest.mark.parametrize("text", CALLS + WRITES)
def test_traced_is_untraced(text):
    f = function(text)
    exact = [made(shape, dtype, 0) for dtype, shape in ARRAYS]
    with_nan = [made(shape, dtype, 1) for dtype, shape in ARRAYS if dtype == "f8"]
    x, later = (made((3, 3), "f8", seed) for seed in (0, 2))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        arrays = [*exact, *with_nan]
        wanted = [outcome(f, x) for x in arrays]
        found = outcomes([f], arrays)
        wrong = [
            f"{x.dtype}{x.shape}: {words}"
            for k, x in enumerate(arrays)
            if (words := differs(wanted[k], found[k], k < len(exact)))
        ]
        if not _is_error(outcome(f, x)):
            played = jit(f, compile="never")
            outcome(played, x)
            words = differs(outcome(f, later), outcome(played, later), False)
            wrong += [f"played: {words}"] * bool(words)
    assert not wrong
