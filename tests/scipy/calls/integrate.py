"""Calls of the functions of scipy.integrate; see tests/scipy/names_test.py."""

CALLS = """
simpson: integrate.simpson(x)
simpson: integrate.simpson(x[:2], x=w[:2] + np.arange(3) * s, axis=1)
simpson: integrate.simpson(np.append(x, s), dx=0.1)
trapezoid: integrate.trapezoid(x)
trapezoid: integrate.trapezoid(x, x=np.cumsum(x, 0), axis=0)
cumulative_trapezoid: integrate.cumulative_trapezoid(x, dx=0.1, axis=0, initial=0)
cumulative_trapezoid: integrate.cumulative_trapezoid(w, x=np.cumsum(x, 1))
cumulative_simpson: integrate.cumulative_simpson(x, dx=0.1)
cumulative_simpson: integrate.cumulative_simpson(np.append(x[0], w), x=np.cumsum(np.append(w, x[0])), initial=s)
romb: integrate.romb(np.append(x, s)[:9], dx=s)
quad: integrate.quad(lambda t: np.exp(-s * t**2), 0, 1)
quad: integrate.quad(lambda t, a, b: np.sin(a * t) + b, s, x[1, 0], args=(s, x[1, 1]))[0]
quad: integrate.quad(lambda t: np.exp(-s * t), x[0, 1], np.inf, epsabs=1e-13, epsrel=1e-13)
quad: integrate.quad(lambda t: np.exp(-s * t**2 + x[0, 1] * t), -np.inf, np.inf, epsabs=1e-13, epsrel=1e-13)[0]
quad: integrate.quad(lambda t: np.exp(s * t) * t, -np.inf, x[0, 1], epsabs=1e-13, epsrel=1e-13)[0]
quad: integrate.quad(lambda t: s * t if t < 0.5 else 0.25 * s / t, 0, 1, points=[0.5])[0]
quad_vec: integrate.quad_vec(lambda t: np.exp(-x * t), 0, s)
quad_vec: integrate.quad_vec(lambda t: np.exp(-x * t), s, np.inf)[0]
fixed_quad: integrate.fixed_quad(lambda t: np.exp(-s * t), 0, x[0, 1], n=7)[0]
dblquad: integrate.dblquad(lambda y, t: s * y * t**2, 0, 1, 0, 1)[0]
tplquad: integrate.tplquad(lambda z, y, t: s * z * y * t, 0, 1, 0, 1, 0, 1)[0]
nquad: integrate.nquad(lambda t, u: s * t * u, [[0, 1], [0, 1]])[0]
cubature: integrate.cubature(lambda t: s * t[:, 0], [0], [1])
qmc_quad: integrate.qmc_quad(lambda t: s * t[0], 0, 1, rng=0) 
tanhsinh: integrate.tanhsinh(lambda t: s * t, 0, 1).integral
nsum: integrate.nsum(lambda k: s / k**2, 1, 10).sum
solve_bvp: integrate.solve_bvp(lambda t, y: np.stack([y[1], -s * y[0]]), lambda a, b: np.array([a[0], b[0] - 1]), np.linspace(0, 1, 5), np.zeros((2, 5))).y
"""
