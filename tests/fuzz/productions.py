"""The table that random programs are drawn from: one line of NumPy each, with holes.

A line has at most one main operand, which other holes look at:

    {x} real    {v} real, with axes    {m} real matrix, or more axes    {w} real, to be written to
    {u} real vector    {i} integers    {b} booleans    {n} a whole number

What the other holes are filled with is in `holes.py`. {fn} and {out} are new names, the same ones
in all of a line.

An expression gets a name; anything else is a statement.
"""

# ---- what programs are given: real numbers first, which is what the first argument is

INPUTS = [
    ["reals(SHAPE)", "reals(SHAPE)", "reals(SHAPE)", "reals(SHAPE, np.float32)", "number()"],
    ["reals(SHAPE)", "number()", "{'a': reals(SHAPE), 'b': number()}"],
    ["[reals(SHAPE), number()]", "(reals(SHAPE), reals(SHAPE))", "reals(SHAPE)", "number()"],
    ["whole(1, 4)", "wholes(SHAPE)", "wholes(SHAPE, np.int32)", "wholes(SHAPE, np.uint8)"],
    ["flags(SHAPE)", "indices(4, 2)", "indices(3, 3)", "indices(2, 1)"],
    ["chosen(np.sin, np.tanh, np.arctan)", "chosen('sin', 'cos')", "flag()", "None"],
]

# ---- expressions and statements

SMOOTH = [
    "np.sin({x})",
    "np.tanh({x})",
    "np.exp(-{x})",
    "np.exp({x} * 0.3)",
    "-{x}",
    "{x} ** 2",
    "{x} ** 3",
    "{x} ** 0.5",
    "(np.abs({x}) + 0.5) ** {y}",
    "(np.abs({x}) + 0.5) ** -1.5",
    "2.0 ** {x}",
    "np.log(np.abs({x}) + 0.5)",
    "np.log1p({x} ** 2)",
    "np.sqrt({x} ** 2 + 0.1)",
    "np.cbrt(np.abs({x}) + 0.2)",
    "1 / (1 + np.exp(-{x}))",
    "np.arctan({x})",
    "np.arcsin(np.tanh({x}) * 0.9)",
    "np.arctan2({x}, np.abs({y}) + 0.3)",
    "np.hypot({x}, {y})",
    "np.logaddexp({x}, {y})",
    "np.expm1({x})",
    "np.cosh({x})",
    "np.sinc({x})",
    "np.reciprocal({x})",
    "np.square({x})",
    "np.positive({x})",
    "np.float_power(np.abs({x}) + 0.5, {y})",
    "{x} + {y}",
    "{x} - {y}",
    "{y} - {x}",
    "{x} * {y}",
    "{y} * {x}",
    "{x} / {y}",
    "{x} / (np.abs({y}) + 0.5)",
    "np.multiply({x}, {y}, dtype=np.float64)",
    "np.add({x}, {i2})",
    "{x} * {c}",
]

KINKED = [
    "np.abs({x})",
    "np.maximum({x}, {y})",
    "np.minimum({x}, {y})",
    "np.fmax({x}, {y})",
    "np.sign({x}) * {y}",
    "np.floor({x})",
    "np.round({x}, {int})",
    "np.rint({x} * 2)",
    "np.trunc({x}) + {x}",
    "{x} // {y}",
    "{x} % {y}",
    "np.fmod({x}, {y})",
    "divmod({x}, {y})[1]",
    "np.modf({x})[0]",
    "np.clip({x}, -0.7, 0.9)",
    "np.clip({x}, {y}, None)",
    "{x}.clip(min={y})",
    "np.where({c}, {x}, {y})",
    "np.where({x} > 0, np.log({x}), {x})",
    "np.where({c}, {y}, {x})",
    "np.heaviside({x}, 0.5) * {y}",
    "np.copysign({x}, {y})",
    "np.nan_to_num({x})",
    "np.select([{x} > 1, {x} > 0], [{x}, {x} * 2], {y})",
    "np.piecewise({x}, [{x} < 0, {x} >= 0], [lambda t: t * 2, lambda t: t ** 2])",
    "np.interp({x}, [-1.0, 0.0, 1.5], [0.3, 1.0, -0.7])",
    "np.isfinite({x}) * {y}",
]

REDUCTIONS = [
    "np.sum({x}, axis={axes}, keepdims={flag})",
    "np.sum({v}, where={c}, axis={axes})",
    "{x}.sum({axes})",
    "{v}.mean(axis={axes}, keepdims={flag})",
    "np.mean({v}, axis={axes}, where={x2} > -9)",
    "np.prod({x}, axis={axes})",
    "np.prod({v}, axis={axes}, where={c})",
    "np.max({v}, axis={axes}, keepdims={flag})",
    "np.min({v}, axis={axes})",
    "np.max({v}, axis={axes}, initial=0.4)",
    "np.max({v}, axis={axes}, where={c}, initial=-2.0)",
    "np.ptp({v}, axis={axis})",
    "np.var({v}, axis={axes})",
    "np.std({v}, axis={axes}, ddof=1, keepdims={flag})",
    "np.average({v}, axis={axis}, weights=np.abs({v}) + 0.1)",
    "np.median({v}, axis={axis})",
    "np.quantile({v}, 0.3, axis={axis})",
    "np.nansum({v}, axis={axes})",
    "np.linalg.norm({v})",
    "np.linalg.norm({v}, axis={axis}, keepdims={flag})",
    "np.linalg.norm({v}, 1, axis={axis})",
    "np.logaddexp.reduce({v}, axis={axis})",
    "np.add.reduce({v}, axis={axis})",
    "np.multiply.reduce({v})",
    "np.maximum.reduce({v}, axis={axis})",
    "np.add.accumulate({v})",
    "np.cumsum({v}, axis={axis})",
    "np.cumprod({v}, axis={axis})",
    "{v}.cumsum()",
    "np.trapezoid({v}, axis={axis})",
    "np.trace({m})",
    "np.argmax({v}, axis={axis})",
    "np.argmin({v})",
    "np.count_nonzero({v} > 0)",
    "np.any({v} > 1, axis={axis})",
    "np.all({v} > -0.5)",
    "sum({v})",
    "min({v}[0], {s})",
    "np.maximum.outer({v}, {v2})",
]

SHAPING = [
    "{x}.reshape({shape})",
    "np.reshape({x}, {shape}, order='F')",
    "{x}.reshape(-1)",
    "{x}.ravel()",
    "{x}.flatten()",
    "{x}.T",
    "np.transpose({v}, {perm})",
    "np.swapaxes({m}, 0, -1)",
    "np.moveaxis({m}, 0, -1)",
    "{m}.mT",
    "np.expand_dims({x}, {axis})",
    "{x}[None]",
    "{v}[..., None]",
    "np.squeeze({x})",
    "np.broadcast_to({x}, {wider})",
    "np.broadcast_arrays({x}, {y})[0]",
    "np.flip({v}, axis={axis})",
    "np.roll({v}, {int}, axis={axis})",
    "np.roll({v}, 1)",
    "np.rot90({m})",
    "np.tile({x}, {int2})",
    "np.repeat({v}, 2, axis={axis})",
    "np.repeat({x}, 2)",
    "np.pad({v}, 1)",
    "np.pad({v}, (1, 2), mode='edge')",
    "np.diag({v})",
    "np.diagonal({m})",
    "np.tril({m}, {int})",
    "np.triu({m})",
    "np.atleast_2d({x})",
    "np.zeros_like({x})",
    "np.ones_like({x}) * {s}",
    "np.full_like({x}, {s})",
    "np.copy({x})",
    "{x}.copy()",
    "np.diff({v}, axis={axis})",
    "np.gradient({v})",
    "np.resize({x}, {shape})",
    "{x}.view()",
    "{x} * 1",
]

JOINING = [
    "np.concatenate([{v}, {v2}], axis={axis})",
    "np.concatenate([{v}, {v2}], axis=None)",
    "np.stack([{x}, {x2}])",
    "np.stack([{x}, {y}], axis={axis})",
    "np.hstack([{x}, {x2}])",
    "np.vstack([{x}, {x2}])",
    "np.column_stack([{v}, {v2}])",
    "np.append({x}, {s})",
    "np.split({v}, [1])[{bit}]",
    "np.array_split({v}, 2)[{bit}]",
    "np.insert({v}, 1, {s})",
    "np.delete({v}, 0, axis={axis})",
    "np.meshgrid({v}, {v2})[{bit}]",
    "np.block([{v}, {v2}])",
    "np.stack([t * {s} for t in {v}])",
    "np.stack([{s}, {s}, {s}])",
]

INDEXING = [
    "{x}[{index}]",
    "{v}[{index}]",
    "{v}[{index}]",
    "{v}[{fancy}]",
    "{v}[{fancy}]",
    "{v}[{mask}]",
    "{v}[{index}][{bit}:]",
    "{v}[np.argsort({v}, axis=0)]",
    "{v}[np.argmax({v}.ravel()) % len({v})]",
    "np.take({v}, {places}, axis={axis})",
    "np.take({v}, [5, -3], mode='wrap')",
    "np.take_along_axis({v}, np.argsort({v}, axis={axis}), axis={axis})",
    "np.compress(np.arange(len({v})) > 0, {v}, axis=0)",
    "np.extract({v} > 0, {v})",
    "{v}.flat[{bit}]",
    "{v}[np.nonzero({v} > 0)]",
    "np.choose({v} > 0, [{y}, {x2}])",
    "{v}[{i2}]",
]

ORDER = [
    "np.sort({v}, axis={axis})",
    "np.sort({v}, axis=None)[::-1]",
    "np.argsort({v})",
    "{v}[np.argsort(-{v}[..., 0])]",
    "np.searchsorted(np.sort({v}.ravel()), {y})",
    "np.digitize({x}, [-1.0, 0.0, 1.0])",
]

LINEAR = [
    "np.linalg.inv({square})",
    "np.linalg.solve({square}, {m})",
    "np.linalg.solve({square}, {m}[..., 0])",
    "np.linalg.det({square})",
    "np.linalg.slogdet({square})[1]",
    "np.linalg.cholesky({definite})",
    "np.linalg.eigh({definite})[0]",
    "np.linalg.eigvalsh({definite})",
    "np.linalg.svd({m}, compute_uv=False)",
    "np.linalg.norm({m}, 2)",
    "np.linalg.norm({m}, 'nuc')",
    "np.linalg.pinv({square})",
    "np.linalg.lstsq({square}, {m}, rcond=None)[0]",
    "np.abs(np.linalg.qr({definite})[1])",
    "np.linalg.matrix_power({square}, -1)",
    "np.linalg.multi_dot([{m}, {m}.T, {m}])",
    "np.linalg.eigh({definite})[1] ** 2",
    "linalg.cho_solve(linalg.cho_factor({definite}), {m})",
    "linalg.cholesky({definite}, lower={flag})",
    "linalg.solve({square}, {m})",
    "linalg.solve({definite}, {m}, assume_a='pos')",
    "linalg.solve_triangular({square}, {m}, lower={flag})",
    "linalg.expm(0.3 * {square})",
]

PRODUCTS = [
    "{v} @ {fit}",
    "{v} @ {fit}",
    "{fit} @ {v}",
    "np.dot({v}, {fit})",
    "np.matmul({m}, {m}.T)",
    "np.inner({v}, {v2})",
    "np.outer({v}, {v2})",
    "np.vdot({v}, {v})",
    "np.tensordot({v}, {v2}, axes=0)",
    "np.tensordot({m}, {m}, axes=(0, 0))",
    "np.tensordot({m}, {fit}, axes=1)",
    "np.einsum('...i,...i->...', {v}, {y})",
    "np.einsum('ij,ij->j', {m}, {y})",
    "np.einsum('ij,jk->ki', {m}, {fit})",
    "np.einsum('i,j->ij', {v}, {v2})",
    "np.einsum('ii->i', {m} @ {m}.mT) * 1.0",
    "np.einsum('ij->ji', {m})",
    "np.kron({v}, {v2})",
    "np.cross({v}, {v2})",
    "np.convolve({v}, {v2})",
    "np.linalg.matrix_power({m} * 0.5, 2)",
    "np.polyval([0.5, {s}, 1.0], {x})",
]

INTEGERS = [
    "{i} * 2 - 1",
    "{i} + {n}",
    "{i} // 2",
    "{i} % 3",
    "{i}.sum()",
    "np.cumsum({i})",
    "{i} / 2",
    "{i} > 0",
    "({x} * 2).astype(int)",
    "np.floor({x} * 3).astype(np.int32)",
    "{i} ** 2",
    "{i} & 3",
    "np.abs({i})",
    "np.max({i})",
    "{i}[::-1]",
    "np.bincount(np.abs({i}.ravel()))",
    "np.arange(int({n}))",
    "{n} + 1",
    "np.where({i} > 0, {i}, 0)",
]

FLAGS = [
    "{x} > {y}",
    "{x} <= {y}",
    "{x} == {x}",
    "~{b}",
    "{b} & ({x2} > 0)",
    "{b} | {b}",
    "np.logical_not({x} > 0.5)",
    "{b} * {s}",
    "{b}.sum()",
    "np.isclose({x}, {y})",
    "np.signbit({x})",
]

CASTS = [
    "{x}.astype(np.float32)",
    "{x}.astype(np.float64)",
    "{x} * np.float32(1.5)",
    "{x} + np.float64(0.25)",
    "np.sum({x}, dtype=np.float32)",
    "{b}.astype(float)",
    "{i}.astype(np.float32)",
    "{x} * {i2}",
    "{x} + {n}",
    "np.zeros_like({x}, dtype=np.float32)",
    "np.zeros_like({x}, shape={shape})",
    "np.ones_like({i}, dtype=float)",
]

WRITES = [
    "{w}[{index}] = {y}",
    "{w}[{index}] = {s}",
    "{w}[{index}] += {s}",
    "{w}[{index}] *= {x2}",
    "{w}[{index}] -= {w}[{index}]",
    "{w}[1:] = {w}[:-1]",
    "{w}[:-1] += {w}[1:]",
    "{w}[::-1] = {w}",
    "{w}[...] = {y}",
    "{w}[{fancy}] = {s}",
    "{w}[{fancy}] = {y}",
    "{w}[{fancy}] += {s}",
    "{w}[{mask}] = {s}",
    "{w}[{mask}] *= {s}",
    "{w}[{mask}] = {w}[{mask}] ** 2",
    "{w} += {y}",
    "{w} *= {y}",
    "{w} /= np.abs({y}) + 0.5",
    "{w} **= 2",
    "{w} %= 0.7",
    "np.add({w}, {y}, out={w})",
    "np.multiply({x2}, {s}, out={w})",
    "np.exp(-{x2}, out={w})",
    "np.multiply({w}, {y}, out={w}, where={c})",
    "np.copyto({w}, {y})",
    "np.copyto({w}, {s}, where={c})",
    "np.add.at({w}, {places}, {s})",
    "np.fill_diagonal({w}, {s})",
    "np.put({w}, [0, -1], {s})",
    "np.clip({w}, -0.8, 0.8, out={w})",
    "np.cumsum({w}, axis=0, out={w})",
    "{w}.fill({s})",
    "{w}.sort()",
    "{w}.reshape(-1)[{bit}] = {s}",
    "{w}.ravel()[{bit}:] *= {s}",
    "{w}.T[{bit}] = {s}",
    "{w}.flat[{bit}] = {s}",
    "{w}[{index}][{bit}:] = {s}",
    "{w}[{index}, ...].fill({s})",
    "{w}[0], {w}[-1] = {w}[-1], {w}[0]",
    "np.maximum({w}, {y}, out={w})",
]

FUNCTIONS = [
    "(lambda t: t * {s} + {x2})({x})",
    "np.stack([np.sum(t * {s}) for t in {v}])",
    "[t for t in {v}][-1]",
    "dict(a={x}, b={s})['a']",
    "{x} if {cond} else {y}",
    "len({v}) * {s}",
    "{v}.shape[0] * {v}",
    "{x} * {n}",
    "{v}[{n} % len({v})]",
    "np.apply_along_axis(np.sum, {axis}, {v})",
]

# What follows the shapes of what a program is given, whatever they are.
EXTENTS = [
    "np.sum({x}) / len({v})",
    "np.sum({x} ** 2) / {v}.shape[0]",
    "{x} / {v}.size",
    "{x} * {v}.ndim",
    "{x} * np.size({x2})",
    "{x} * np.ndim({x2})",
    "np.ones({v}.shape) * {y}",
    "np.zeros(len({v})) + {s}",
    "np.arange(len({v})) * {s}",
    "np.linspace(0.0, 1.0, len({v})) * {s}",
    "np.eye(len({v})) * {s}",
    "np.full({v}.shape[:1], {s})",
    "np.mean({x}) + {s}",
    "{v} - {v}.mean(axis=0)",
    "({v} - np.mean({v})) / (np.std({v}) + 0.1)",
    "{v}[: len({v2})]",
    "{v}.reshape(len({v}), -1)",
    "{v}.reshape(-1)[:2].sum()",
    "np.concatenate([{v}.ravel(), {v2}.ravel()])",
    "{m} @ np.ones({m}.shape[-1])",
    "{m} @ {m}.T + {s}",
    "{m} @ {fit} + {y}",
    "np.broadcast_to({x}, (2, *{v}.shape))",
    "{x} * (2.0 if {v}.ndim > 1 else 3.0)",
    "np.asarray({x}) * 1.0",
    "{v}[len({v}) // 2]",
    "{v}.sum(axis=tuple(range({v}.ndim)))",
    "np.sum({x}) * {v2}.shape[-1]",
    "{x} * ({v}.nbytes // {v}.itemsize)",
]

# What isn't a number decides, or computes.
CHOSEN = [
    "{act}({x})",
    "{act}({x}) * {act}({y})",
    "np.sin({x}) if {mode} == 'sin' else np.cos({x})",
    "{{'sin': np.sin, 'cos': np.cos}}[{mode}]({x})",
    "{x} * (2.0 if {none} is None else {none})",
    "{x} if {none} is None else {x} + 1.0",
    "{x} * len({mode})",
]

# Statements of several lines: functions, classes, loops, what is raised and caught.
WRITTEN_OUT = [
    """\
def {fn}(t):
    if np.sum(t) > {s}:
        return t * {s}
    return np.sin(t)
{out} = {fn}({x})""",
    """\
def {fn}(t, u=2.0):
    return np.tanh(t) * u
{out} = {fn}({x}) + {fn}({x}, u={s})""",
    """\
def {fn}(*ts, **us):
    return sum(ts) * us['u']
{out} = {fn}({x}, {y}, u={s})""",
    """\
def {fn}(t):
    t[...] = t * {s}
    return t
{out} = {fn}({v}.copy())""",
    """\
def {fn}(ts):
    for t in ts:
        yield t * {s}
{out} = np.stack(list({fn}({v})))""",
    """\
{fn} = 0.0
def {fn}_add(t):
    nonlocal {fn}
    {fn} = {fn} + t
for t in {v}:
    {fn}_add(t)
{out} = {fn} * {s}""",
    """\
class {fn}:
    scale = {s}
    def __init__(self, w):
        self.w = w
    def __call__(self, t):
        return np.tanh(t * self.w) * self.scale
{out} = {fn}({s})({x})""",
    """\
{fn} = [t * {s} for t in {v} if np.sum(t) > 0]
{out} = sum({fn}, {y})""",
    """\
{fn} = {{k: t for k, t in enumerate({v})}}
{out} = {fn}[0] - {fn}[len({fn}) - 1]""",
    """\
{fn}, *{fn}s = [t * {s} for t in {v}]
{out} = {fn} + sum({fn}s)""",
    """\
{fn} = []
for t in {v}:
    {fn}.append(t * {s})
    if np.sum(t) > 0.5:
        break
{out} = sum({fn}) + {y}""",
    """\
try:
    {out} = np.linalg.cholesky({m} @ {m}.mT - 0.3 * np.eye({m}.shape[-2]))
except np.linalg.LinAlgError:
    {out} = {m} * 2.0""",
    """\
try:
    {out} = np.linalg.inv({m})
except (ValueError, np.linalg.LinAlgError):
    {out} = {m} * {s}""",
    """\
try:
    if {cond}:
        raise ValueError('no')
    {out} = {x} * {s}
except ValueError:
    {out} = np.sin({x})""",
    """\
try:
    {out} = {v}[2] * 1.0
except IndexError:
    {out} = {v}[0] * 2.0
finally:
    {out} = {out} + {s}""",
    """\
try:
    {out} = {v} @ {v2}
except ValueError:
    {out} = {v} * 0.5""",
    """\
{out} = {x} * 1.0
for k in range(5):
    if np.sum(np.abs({out})) > 3:
        break
    if k % 2:
        continue
    {out} = {out} * 1.5 + 0.1
else:
    {out} = {out} - 1.0""",
    """\
{out} = {x} * 1.0
while np.sum({out} * {out}) > 0.1:
    {out} = {out} * 0.5""",
    """\
with np.errstate(all='ignore'):
    {out} = np.sqrt(np.abs({x}) + 0.1)""",
    """\
if {cond}:
    return {x} * {s}""",
    """\
{out} = np.zeros_like({v})
{fn} = {out}.reshape(-1)
{fn}[:1] = {s}
{fn} += 0.5""",
    """\
{out} = np.copy({v})
{fn} = {out}[::2]
{fn} *= {s}
{out}[1:] += {fn}[:1]""",
    """\
{out} = {v}.copy()
for k in range(len({out})):
    {out}[k] = {out}[k - 1] * {s} + {out}[k]""",
    """\
{out} = np.zeros_like({v})
np.multiply({v}, {s}, out={out})
np.add({out}, {v}, out={out}, where={v} > 0)""",
    """\
{out} = {x} * 1.0
{out} += {y}
{out} *= {s}
{out} -= {out}""",
    """\
{fn} = ({x}, {{'w': {s}}})
{out} = {fn}[0] * {fn}[1]['w']""",
    """\
if (n := len({v})) > 2:
    {out} = {v} / n
else:
    {out} = {v} * n""",
]

# What makes a vector of vectors and square matrices of one length, again and again: loops that sum
# up, go backwards, sort or read all of what another loop has just written.
CHAINED = [
    "np.cross({u}, {u2})",
    "{m} @ {u}",
    "{u} @ {m}",
    "{m} @ np.cumprod({u})",
    "{m} @ np.roll({u}, 1)",
    "np.cumprod({u})",
    "np.cumsum({u})",
    "np.roll({u}, 1)",
    "np.roll({u}, -1) * {u}",
    "np.sort({u})",
    "{u}[::-1]",
    "np.prod({u}) * {u2}",
    "np.prod({u}) ** 2",
    "np.sum({u}) * {u2} + {u}",
    "np.max({u}) - {u}",
    "np.outer({u}, {u2})",
    "{u} + {u2}",
    "np.sin({u}) * {u2}",
    "np.diff({u}, append=0.5)",
    "np.convolve({u}, {u2}, 'same')",
    "np.tril({m}) @ {u}",
    "np.linalg.solve({square}, {u})",
    "np.where({u} > 0, {u}, {u2})",
    "np.concatenate([{u}[1:], {u2}[:1]])",
    "{u}[np.argsort({u2})]",
    "np.trace({m}) * {u}",
]
LENGTHS = (3, 3, 2, 4, 6, 7)

STEPS = [
    SMOOTH,
    SMOOTH,
    KINKED,
    REDUCTIONS,
    REDUCTIONS,
    SHAPING,
    SHAPING,
    JOINING,
    INDEXING,
    INDEXING,
    ORDER,
    PRODUCTS,
    LINEAR,
    INTEGERS,
    FLAGS,
    CASTS,
    WRITES,
    WRITES,
    WRITES,
    FUNCTIONS,
    EXTENTS,
    EXTENTS,
    CHOSEN,
    WRITTEN_OUT,
    WRITTEN_OUT,
]

# ---- blocks: how they begin

BLOCKS = [
    ["if {cond}:"],
    ["if {cond}:", "if {cond} and {cond}:", "if not {cond}:"],
    [
        "for {new} in range(3):",
        "for {new} in range({n}):",
        "for {new} in {v}:",
        "for {new} in range(len({v})):",
        "for {new}, {new} in enumerate({v}):",
        "for {new}, {new} in zip({v}, {v2}):",
        "for {new} in ({s}, {s}):",
        "for {new} in reversed(range(2)):",
    ],
    [
        "{count} = 0\nwhile {counter} < 4 and {cond}:\n    {counter} += 1",
        "{count} = 0\nwhile {counter} < min({n}, 4):\n    {counter} += 1",
    ],
]
