"""Lines of plain NumPy: arrays that a program makes and fills, lists of traced values, `math`, and
integers and booleans that leave the trace. Their holes are those of `productions.py`, and

    {many} how often a loop runs
"""

# ---- arrays that a program makes

MADE = [
    "np.array([{s}, {s}, 1.0])",
    "np.array([[{s}, 0.0], [1, {s}]])",
    "np.asarray([{s}, {s}])",
    "np.asarray(({s}, {s}), dtype=np.float64)",
    "np.array([{x}, {x2}])",
    "np.array([{v}[0], {v}[-1]])",
    "np.array({x})",
    "np.array({x}, ndmin=2)",
    "np.array([t * {s} for t in {v}])",
    "np.array([{s}, {n}])",
    "np.asarray({x}) * {s}",
    "np.ascontiguousarray({v})",
    "np.asfortranarray({m}).reshape(-1, order='A')",
    "np.array([{s}, 1.0], dtype=np.float32)",
    "np.full((2, 3), {s})",
    "np.full({v}.shape, {s})",
    "np.full_like({v}, {s})",
    "np.arange(3) + {s}",
    "np.arange(0.0, 1.0, 0.25) * {s}",
    "np.arange(len({v})) * {s}",
    "np.linspace({s}, {s}, 4)",
    "np.linspace(0.0, {x}, 3)",
    "np.linspace({s}, 2.0, 3, endpoint=False)",
    "np.geomspace(np.abs({s}) + 0.5, 4.0, 3)",
    "np.logspace(0.0, {s}, 3)",
    "np.r_[{s}, {u}]",
    "np.r_[{u}, 0.0, {u2}]",
    "np.r_[0:3, {s}]",
    "np.c_[{u}, {u}]",
    "np.c_[{m}, {m}]",
    "np.eye(3) * {s}",
    "np.identity(2) + {s}",
    "np.diag([{s}, 2.0, {s}])",
    "np.vander({u}, 3)",
    "np.tri(3)[{bit}] * {s}",
    "np.mgrid[0:2, 0:3] * {s}",
    "np.fromfunction(lambda i, j: i * {s} + j, (2, 3))",
    "np.block([[np.eye(2) * {s}, np.zeros((2, 1))], [np.ones((1, 2)), np.array([[{s}]])]])",
    "np.concatenate([[{s}], {u}])",
    "np.zeros(3) + {s}",
    "np.ones((2, 1)) * {u}",
    "np.empty(0).sum() + {x}",
    "np.stack([np.zeros(2), np.array([{s}, 1.0])])",
    "np.fromiter([0.5, 1.5], float) * {s}",
    "np.asarray({x}).astype(np.float64, copy=False)",
    "np.broadcast_to(np.array([{s}, 1.0]), (3, 2))",
    "np.array([[{s}] * 2] * 3)",
    "np.array([*{v}, *{v}])",
    "np.atleast_1d([{s}, {s}])",
]

FILLED = [
    """\
{out} = np.zeros(4)
for k in range(4):
    {out}[k] = {s} * k""",
    """\
{out} = np.empty({v}.shape)
for k in range(len({v})):
    {out}[k] = {v}[k] * {s}""",
    """\
{out} = np.zeros((3, 2))
{out}[0] = {s}
{out}[1:, 1] = {s}
{out}[2, 0] += {out}[0, 1]""",
    """\
{out} = np.zeros(({many}, 2))
{fn} = np.array([{s}, 0.5])
for k in range({many}):
    {fn} = np.array([0.9 * {fn}[0] - 0.1 * {fn}[1], np.sin({fn}[0] + {s})])
    {out}[k] = {fn}""",
    """\
{out} = np.zeros({many} + 1)
{out}[0] = {s}
for k in range({many}):
    {out}[k + 1] = 0.7 * {out}[k] + {v}.ravel()[k % {v}.size] * 0.1""",
    """\
{out} = np.zeros({many})
for k in range({many}):
    if {v}.ravel()[k % {v}.size] > 0:
        {out}[k] = {s}
    else:
        {out}[k] = {out}[k - 1] * 0.5 + 0.1""",
    """\
{out} = np.empty((2, *{v}.shape))
{out}[0] = {v}
{fn} = {out}[1]
{fn}[...] = {out}[0] * {s}""",
    """\
{out} = np.full({v}.shape, 0.5)
{fn} = {out}.ravel()
{fn}[{v}.ravel() > 0] = {s}""",
    """\
{out} = np.zeros(5)
{fn} = {out}[1::2]
{fn} += {s}
{out}[::-1][0] = {s}""",
    """\
{out} = np.zeros(len({u}), dtype=bool)
for k in range(len({u})):
    {out}[k] = {u}[k] > 0
{out} = {u}[{out}].sum()""",
    """\
{out} = np.zeros({v}.shape, dtype=int)
{out}[{v} > 0] = 2
{out} = {v} * {out}""",
    """\
{fn} = []
for k in range({many}):
    {fn}.append(np.array([{s} * k, 1.0]))
{out} = np.array({fn})""",
    """\
{out} = np.array([[0.0, {s}], [1.0, 0.0]])
{out}[{bit}] *= {s}
{out} = {out} @ {out} + np.eye(2)""",
    """\
{out} = np.ones({v}.shape)
{out} *= {v}
np.add({out}, {s}, out={out})""",
    """\
{out} = np.zeros(3)
np.add.at({out}, [0, 2, 0], {s})""",
    """\
{out} = np.zeros(4)
{out}[[0, 2]] = [{s}, 1.0]
{out}[1:3] += np.array([{s}, {s}])""",
    """\
{out} = np.ndarray((2, 2))
{out}[:] = {s}
{out}[0, 1:] = {s}""",
    """\
{out} = np.arange(4.0)
{out}[1:3] = {s}
{out} /= 2""",
    """\
{out} = np.zeros({v}.shape)
{out}.flat[0] = {s}
{out} = {out} + {v}""",
    """\
def {fn}(n):
    t = np.zeros(n)
    t[-1] = {s}
    return t
{out} = {fn}(3) + {fn}(1)""",
    """\
{out} = np.empty(({many}, 3))
{out}[:] = 0.1
for k in range(1, {many}):
    {out}[k, 1:] = {out}[k - 1, :-1] * {s} + 0.1
    {out}[k, 0] = {out}[k].sum() * 0.5""",
]

# ---- lists of traced values, and `math`

LISTS = [
    "np.sum([{s}, {s}])",
    "np.sum([{x}, {x}], axis=0)",
    "np.dot([{s}, 1.0], [{s}, {s}])",
    "np.dot([{s}, 1.0, {s}], np.arange(3.0))",
    "np.linalg.norm([{s}, {s}, 1.0])",
    "np.mean([{s}, {s}, 0.5])",
    "np.max([{s}, {s}, 0.4])",
    "np.prod([{s}, {s}, 0.9])",
    "np.cumsum([{s}, 1.0, {s}])",
    "np.outer([{s}, 1.0], {u})",
    "np.polyval([{s}, 1.0, {s}], {x})",
    "np.cross([{s}, 1.0, 0.5], [0.1, {s}, 2.0])",
    "np.interp({x}, [-1.0, 0.0, 1.0], [{s}, {s}, 0.5])",
    "np.where([True, False], [{s}, 1.0], {s})",
    "np.median([{s}, {s}, 0.3])",
    "np.std([{s}, {s}, 1.5])",
    "np.average([{s}, 1.0], weights=[0.3, 0.7])",
    "np.linalg.solve([[3.0, 0.1 * {s}], [0.3, 4.0]], [{s}, 1.0])",
    "np.linalg.det([[{s}, 1.0], [0.5, 2.0]])",
    "np.einsum('i,i->', [{s}, 2.0], [{s}, 1.0])",
    "np.concatenate([[{s}], [1.0, {s}]])",
    "np.convolve({u}, [{s}, 0.5])",
    "np.maximum.reduce([{s}, {s}])",
    "np.add.reduce([{s}, 1.0, {s}])",
    "np.sort([{s}, 0.3, {s}])",
    "np.clip([{s}, 1.0], 0.0, 1.2)",
    "np.hstack([[{s}, 1.0], {u}])",
    "np.maximum([{s}, 1.0], [0.5, {s}])",
    "[{s}, 1.0] @ np.array([[1.0, 2.0], [{s}, 0.5]])",
    "np.add([{s}, 1.0], 0.5)",
    "np.exp([{s}, {s}])",
    "np.reshape([{s}, {s}], (2, 1))",
    "np.tile([{s}, 1.0], 2)",
    "np.average({v}, axis=0, weights=[{s} * 0 + 1.0] * len({v}))",
    "sum([{s}, {s}], {s})",
    "max([{s}, {s}])",
    "min({s}, {s}, 0.4)",
]

MATH = [
    "math.exp({s} * 0.3)",
    "math.log(abs({s}) + 0.5)",
    "math.log(abs({s}) + 0.5, 2)",
    "math.sqrt({s} ** 2 + 0.1)",
    "math.sin({s}) * {x}",
    "math.cos({s}) + math.tan(0.3 * {s})",
    "math.tanh({s}) * math.cosh({s})",
    "math.atan2({s}, abs({s}) + 0.4)",
    "math.hypot({s}, {s}, 1.0)",
    "math.pow(abs({s}) + 0.5, {s})",
    "math.fabs({s}) * math.pi",
    "math.floor({s}) + {s}",
    "math.ceil({s}) * {x}",
    "math.log1p({s} ** 2) + math.expm1({s})",
    "math.erf({s}) + math.gamma(abs({s}) + 1.0)",
    "math.lgamma(abs({s}) + 0.5)",
    "math.copysign({s}, {s})",
    "math.fmod({s}, 0.7)",
    "math.fsum([{s}, {s}, 0.5])",
    "math.dist([{s}, 1.0], [0.2, {s}])",
    "math.prod([{s}, {s}, 0.5])",
    "math.degrees({s} * 0.01)",
    "{s} if math.isfinite({s}) else 0.0",
    "{x} * (2.0 if math.isclose({s}, {s}) else 1.0)",
    "math.asinh({s}) + math.atan({s})",
    "math.modf({s})[0]",
    "math.trunc({s}) * {s}",
    "abs({s}) ** 0.5 + float({s})",
]

# ---- integers and booleans that leave the trace

LEAVING = [
    "{v}[{i} % len({v})]",
    "{v}[int({n}) % len({v})]",
    "np.take({v}, {i}, mode='wrap')",
    "np.take(np.array([0.5, -1.0, 2.0]), {i} % 3) * {s}",
    "np.array([0.5, 1.5, -2.5])[{i} % 3]",
    "np.array([1.0, 2.0, 0.5])[np.argmax({v}) % 3] * {s}",
    "np.array([0.5, 1.5, 2.5])[np.argsort({u})[:2] % 3]",
    "np.ones(len({u}))[{u} > 0] * {s}",
    "{v}[{v2} > 0]",
    "{v}[{b}]",
    "np.asarray({b}, dtype=bool) * {s}",
    "np.array({b}) * {x}",
    "np.asarray({i}) * {s}",
    "np.array({i}, dtype=float) * {s}",
    "np.asarray({x} > 0, dtype=bool) * {x}",
    "sum(list({i}.ravel())) * {s}",
    "sum({v}.ravel()[k % {v}.size] for k in {i}.ravel().tolist())",
    "[1.0, -2.0, 3.0][int({n}) % 3] * {s}",
    "{{0: 1.0, 1: 2.0}}.get(int({n}), 0.5) * {x}",
    "np.arange(5.0)[: int({n})] * {s}",
    "np.flatnonzero({u} > 0).size * {s}",
    "{u}[np.flatnonzero({u} > 0)]",
    "{u}[np.where({u} > 0)[0]]",
    "np.isin({i}, [1, 2]) * {s}",
    "np.eye(3)[{i} % 3] * {s}",
    "max({i}.ravel().tolist()) * {s}",
    "{s} * sum(bool(t) for t in {b}.ravel())",
    "{s} * ({i}.ravel().tolist().count(1))",
    "np.zeros(int({n})) + {s}",
    "np.full(3, {s})[[int({n}) % 3, 0]]",
    "np.split({u}, [int({n})])[0].sum()",
    "np.repeat({u}, np.abs({i}).ravel()[: len({u})] % 3)",
    "np.bincount(np.abs({i}).ravel(), minlength=4) * {s}",
    "np.choose({i} % 2, [{s}, {s}])",
    "{v}[np.unravel_index({v}.argmax(), {v}.shape)]",
    "{m}[np.ix_([0, -1], [0])]",
    "({x} if {b}.all() else {x} * 2.0)",
    "np.array([k * {s} for k, t in enumerate({u}) if t > 0])",
    "np.where({i} > 0, {i}, 0.5) * {s}",
    "np.searchsorted([0.0, 0.5, 1.0], {x}) * {x}",
    "np.digitize({x}, np.array([-1.0, 0.0, 1.0])) * {s}",
    "np.array(['a', 'b'])[int({n}) % 2] == 'a'",
    "np.cumsum({b}.ravel())[-1:] * {s}",
    "np.sum({v}, where=np.asarray({v} > 0, dtype=bool))",
]
