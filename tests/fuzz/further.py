"""Lines of plain NumPy: random numbers, complex numbers, further functions, `where=` and `out=`.
Their holes are those of `productions.py`, and

    {z} complex    {zv} complex, with axes    {zu} complex vector    {many} how often a loop runs
    {g} a Generator    {rs} a RandomState
"""

# ---- random numbers

DRAWS = [
    "np.random.normal(size=3) * {s}",
    "np.random.normal({s}, 0.5)",
    "np.random.normal({s}, np.abs({s}) + 0.1, size=3)",
    "{x} + 0.1 * np.random.standard_normal(np.shape({x}))",
    "{v} * (np.random.rand(*{v}.shape) > 0.3)",
    "np.random.randn(2, 3) * {s}",
    "np.random.uniform({s}, {s} + 1.0)",
    "np.random.uniform(-1.0, 1.0, {v}.shape) * {v}",
    "np.random.exponential(np.abs({s}) + 0.5, 2)",
    "np.random.laplace({s}, 0.3, 2)",
    "np.random.random(2) + {s}",
    "{v}[np.random.randint(0, len({v}), 2)]",
    "{v}[np.random.permutation(len({v}))]",
    "np.random.choice(len({v}), 2) * {s}",
    "np.random.choice({u}, 2)",
    "np.random.permutation({v})",
    "np.random.poisson(2.0, 3) * {s}",
    "np.random.binomial(3, 0.4) * {x}",
    "np.random.gamma(2.0, 0.5) * {x}",
    "np.random.beta(2.0, 3.0, {v}.shape) * {v}",
    "np.random.lognormal({s}, 0.3)",
    "np.random.multivariate_normal([0.0, 1.0], np.eye(2)) * {s}",
    "np.random.default_rng(5).normal(size=2) * {s}",
    "np.random.RandomState(3).rand(2) * {s}",
    "{s} if np.random.rand() > 0.5 else {s} * 2.0",
    "random.gauss(0.0, 1.0) * {x}",
    "random.gauss({s}, 0.5)",
    "random.random() * {s}",
    "random.uniform(0.5, 1.5) * {x}",
    "random.choice([0.5, 1.5, {s}])",
    "{v}[random.randrange(len({v}))]",
    "random.randint(1, 3) * {s}",
    "random.sample(range(4), 2)[0] * {s}",
    "random.normalvariate(0.0, 0.5) + {s}",
    "{g}.normal(size=3) * {s}",
    "{g}.normal({s}, 0.3, 3)",
    "{g}.standard_normal(np.shape({x})) * {x}",
    "{g}.uniform(0.5, 1.5, {v}.shape) * {v}",
    "{v}[{g}.integers(0, len({v}), 2)]",
    "{g}.permutation({v})",
    "{g}.choice({v})",
    "{g}.choice(len({v}), 2, p=None) * {s}",
    "{g}.random() * {s}",
    "{g}.exponential(size=2) * {s}",
    "{x} + 0.1 * {g}.normal(size=np.shape({x}))",
    "{x} * 2.0 if {g}.random() > 0.5 else {x}",
    "{rs}.normal(size=3) * {s}",
    "{rs}.normal({s}, 0.3, 2)",
    "{rs}.rand(2) + {s}",
    "{v}[{rs}.randint(0, len({v}), 2)]",
    "{rs}.uniform(size={v}.shape) * {v}",
    "np.random.normal(size=int({n})) * {s}",
    "np.random.normal([{s}, 0.0], [1.0, 0.5])",
    "np.random.triangular(0.0, 0.5, 1.0) * {s}",
    "np.random.default_rng(int({n})).random() * {s}",
    "np.random.choice([{s}, 1.0], 3)",
    "np.array([np.random.rand() * {s} for k in range({many})])",
    "{x} if np.random.rand() < 0.3 else np.random.rand() * {x}",
    "random.choices([{s}, 1.0], k=2)[0]",
    "random.sample([{s}, 1.0, 2.0], 2)[0]",
    "random.expovariate(1.5) * {s}",
    "random.lognormvariate({s}, 0.1)",
    "random.Random(3).random() * {s}",
    "{g}.integers({n} + 1) * {s}",
    "{g}.gamma(2.0, np.abs({s}) + 0.1, 2)",
    "{g}.dirichlet([1.0, 2.0]) * {s}",
    "{g}.choice([0.5, {s}, 1.5])",
    "{g}.multivariate_normal([{s}, 0.0], np.eye(2))",
    "{g}.standard_normal(out=np.empty(2)) * {s}",
    "{g}.spawn(1)[0].normal() * {s}",
    "{rs}.choice({u}, 2)",
    "{rs}.permutation({v})",
    "{rs}.exponential(np.abs({s}) + 0.2)",
    """\
def {fn}(n):
    return np.random.normal(size=n) * {s}
{out} = {fn}(2) + {fn}(2)""",
    """\
{out} = {x} * 1.0
for k in range(np.random.randint(1, 4)):
    {out} = {out} * 0.5 + {s}""",
    """\
{out} = {x} * 1.0
while random.random() < 0.6:
    {out} = {out} * 0.5""",
    """\
{out} = {g}.normal(size=3)
{out}[0] = {s}
{out}[1:] *= {s}""",
    """\
{out} = 0.0
for k in range({many}):
    {out} = {out} + 0.1 * np.tanh({s} + 0.2 * np.random.normal())""",
    """\
{out} = 0.0
for k in range({many}):
    {out} = {out} + 0.1 * {s} * {g}.normal(size=2)""",
    """\
{out} = np.zeros({many})
for k in range(1, {many}):
    {out}[k] = 0.8 * {out}[k - 1] + {s} * random.gauss(0.0, 0.3)""",
    """\
np.random.seed(4)
{out} = np.random.normal(size=2) * {s}""",
    """\
{out} = np.arange(4)
np.random.shuffle({out})
{out} = {out} * {s}""",
    """\
{fn} = [0.5, 1.0, {s}]
random.shuffle({fn})
{out} = {fn}[0]""",
    """\
{out} = {v}.copy()
{g}.shuffle({out})""",
    """\
{out} = {v}.copy()
np.random.shuffle({out})""",
    """\
{out} = {v}.copy()
random.shuffle({out})""",
]

# ---- complex numbers

COMPLEX = [
    "{x} + 1j * {y}",
    "np.exp(1j * {x})",
    "np.fft.fft({v})",
    "np.fft.ifft({v}, axis=0)",
    "np.fft.rfft({v})",
    "np.fft.irfft({zv})",
    "np.fft.fft({zv}, 4)",
    "np.fft.ifft({zv})",
    "np.fft.fft2({m})",
    "np.fft.fftshift({zv})",
    "np.fft.fft({zv}, norm='ortho')",
    "np.fft.rfft({u}) * np.fft.rfftfreq(len({u}))",
    "{z} * {z2}",
    "{z} * {y}",
    "{z} - {z2}",
    "{z} / (np.abs({z}) + 1.0)",
    "{z}.real",
    "{z}.imag * {s}",
    "np.real({z}) + np.imag({z})",
    "np.abs({z})",
    "np.conj({z})",
    "np.angle({z} + 3.0)",
    "np.exp(0.1 * {z})",
    "np.sin({z} * 0.5)",
    "np.tanh({z} * 0.3)",
    "np.sqrt({z} + 4.0)",
    "np.log({z} + 4.0)",
    "{z} ** 2",
    "({z} + 4.0) ** 0.5",
    "1.0 / ({z} + 4.0)",
    "np.vdot({zv}, {zv})",
    "np.dot({zu}, {zu})",
    "{zv} @ {zv}.conj().T",
    "np.outer({zu}, {zu})",
    "np.einsum('i,i->', {zu}, {zu}.conj())",
    "np.sum({z})",
    "np.mean({zv}, axis=0)",
    "np.prod({zv})",
    "np.cumsum({zv})",
    "np.concatenate([{zv}, {zv}])",
    "np.stack([{z}, {z}.conj()])",
    "{zv}[{index}]",
    "{zv}[::-1]",
    "{zv}.ravel()[:2]",
    "np.where({x} > 0, {x}, 1j * {x})",
    "np.array([{s} + 1j, {s}])",
    "complex({s}, {s}) * {x}",
    "{s} * np.complex128(1 - 2j)",
    "np.linalg.norm({zv})",
    "np.var({zv})",
    "{x}.astype(complex) * 1j",
    "np.linalg.eigvals({square})",
    "np.linalg.eigvals({square}).real.sum()",
    "np.iscomplex({z}) * {s}",
    "np.fft.ifft(np.fft.fft({v}) * 0.5).real",
    "np.fft.irfft(np.fft.rfft({v}), n={v}.shape[-1])",
    "np.abs({z}) ** 2",
    "np.mean({z} * {z}.conj()).real",
    "{zv}[{zv}.real > 0]",
    "np.where({z}.real > 0, {z}, {z}.conj())",
    "np.convolve({zu}, [1.0, 0.5j])",
    "np.exp(-1j * np.outer({u}, {u})) @ {u}",
    "np.diff({zu})",
    "np.cumprod({zv})",
    "np.dot({m}, 1j * {m}.T)",
    "np.trace(1j * {m})",
    "np.square({z}) + np.reciprocal({z} + 4.0)",
    "np.polyval([1j, {s}, 0.5], {x})",
    "np.roots([1.0, {s}, 2.5])",
    "np.linalg.eig({square})[0]",
    "np.max(np.abs({zv}))",
    "np.std({zv})",
    "np.kron({zu}, {u})",
    "np.linalg.matrix_power({square} + 0.1j, 2)",
    """\
{fn} = {square} + 0.3j * {definite}
{out} = np.linalg.inv({fn})""",
    """\
{fn} = {square} + 0.3j * {definite}
{out} = np.linalg.solve({fn}, {m})""",
    """\
{fn} = {square} + 0.3j * {definite}
{out} = np.linalg.det({fn})""",
    """\
{fn} = {square} + 0.3j * {definite}
{out} = np.linalg.eigvalsh({fn} @ {fn}.conj().mT)""",
    """\
{fn} = {square} + 0.3j * {definite}
{out} = np.linalg.cholesky({fn} @ {fn}.conj().mT)""",
    """\
{fn} = {square} + 0.3j * {definite}
{out} = np.linalg.svd({fn}, compute_uv=False)""",
    """\
{out} = np.zeros(3, dtype=complex)
{out}[0] = {s}
{out}[1:] += 1j * {s}""",
    """\
{out} = np.zeros({many}, complex)
for k in range(1, {many}):
    {out}[k] = {out}[k - 1] * 0.5j + {s}""",
    """\
{out} = {zv} * 1.0
{out}[0] = {s}
{out} *= 0.5j""",
    """\
{out} = {zv} * 1.0
{out}.real = {s}
{out}.imag[0] = 0.5""",
    """\
if np.abs({z}).sum() > {s}:
    {out} = {x} * 1j
else:
    {out} = {x} + 0.5j""",
]

# ---- further functions, where= and out=

FURTHER = [
    "np.partition({v}, 0, axis={axis})",
    "np.partition({u}, len({u}) // 2)[: len({u}) // 2].sum()",
    "{u}[np.argpartition({u}, 0)[:1]]",
    "np.unique({v})",
    "np.unique({i}) * {s}",
    "np.unique({i}, return_inverse=True)[1] * {s}",
    "np.unique({i}, return_counts=True)[1] * {s}",
    "{u}[np.lexsort(({u}, {u} > 0))]",
    "np.quantile({v}, [0.2, 0.7], axis={axis})",
    "np.quantile({v}, 0.4, method='lower')",
    "np.quantile({v}, {s} * 0 + 0.3, method='hazen')",
    "np.percentile({v}, 60.0, axis={axes})",
    "np.nanmedian({v}, axis={axis})",
    "np.nanquantile({v}, 0.4)",
    "np.add.reduceat({u}, [0, 1])",
    "np.maximum.reduceat({u}, [0, 0])",
    "np.multiply.accumulate({v})",
    "np.maximum.accumulate({v}, axis={axis})",
    "np.minimum.accumulate({u})",
    "np.logaddexp.accumulate({u})",
    "np.subtract.outer({u}, {u2})",
    "np.add.reduce({v}, axis={axis}, where={v} > 0)",
    "np.histogram({u}, bins=3, range=(-2.0, 2.0), weights={u})[0]",
    "np.interp({x}, [0.0, 0.4, 0.9], [0.3, 1.0, -0.7], period=1.5)",
    "np.cov({m})",
    "np.cov({u}, {u}, ddof=0)",
    "np.vectorize(lambda t: t * 2.0 if t > 0 else t)({v})",
    "np.apply_along_axis(lambda t: t * {s} + t.sum(), 0, {v})",
    "np.polyfit(np.arange(len({u})), {u}, 1)",
    "np.lib.stride_tricks.sliding_window_view({u}, 2)",
    "np.lib.stride_tricks.sliding_window_view({u}, 2).sum(axis=-1)",
    "np.cumulative_sum({u})",
    "np.ldexp({x}, 2)",
    "np.frexp({x})[0]",
    "np.i0({x})",
    "np.nanmax({v}, axis={axis})",
    "np.nancumsum({v})",
    "np.ediff1d({v})",
    "np.fliplr({m})",
    "np.linalg.slogdet({square})[0] * {s}",
    "np.linalg.svd({m}, full_matrices=False)[1]",
    "np.linalg.cond({square})",
    "np.unwrap({u} * 3)",
    "np.heaviside({x}, {s})",
    "np.divide({x}, {y}, out=np.zeros(np.shape({x})), where={x} > 0)",
    "np.sqrt({v}, out=np.ones({v}.shape), where={v} > 0)",
    "np.exp({v}, where={c}, out=np.zeros({v}.shape))",
    "np.sum({v}, axis={axis}, initial={s})",
    "np.cumsum({u}, out=np.empty(len({u})))",
    "np.dot({m}, {m}.T, out=np.empty(({m} @ {m}.T).shape))",
    "np.clip({v}, -0.5, {s}, out=np.empty({v}.shape))",
    "np.put_along_axis({w}, np.argmax({w}, axis=0)[None], {s}, axis=0)",
    "np.place({w}, {w} > 0, [{s}, 1.0])",
    "np.putmask({w}, {w} > 0, {s})",
    "np.add.at({w}, np.argsort({w}.ravel())[:1] % len({w}), {s})",
    "np.subtract.at({w}, [0, 0], {s})",
    "np.maximum.at({w}, [0, -1, 0], {s})",
    "np.maximum({w}, {s}, out={w}, where={c})",
    "np.sum({v}, axis=0, out={w})",
    "{w}[:] = [{s}] * len({w})",
]
