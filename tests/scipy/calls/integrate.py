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
quad!: integrate.quad(lambda t: np.exp(-s * t), x[0, 1], np.inf, epsabs=1e-11, epsrel=1e-11)
quad!: integrate.quad(lambda t: np.exp(-s * t**2 + x[0, 1] * t), -np.inf, np.inf, epsabs=1e-10, epsrel=1e-10)[0]
quad!: integrate.quad(lambda t: np.exp(s * t) * t, -np.inf, x[0, 1], epsabs=1e-11, epsrel=1e-11)[0]
quad!: integrate.quad(lambda t: s * t if t < 0.5 else 0.25 * s / t, 0, 1, points=[0.5])[0]
quad_vec: integrate.quad_vec(lambda t: np.exp(-x * t), 0, s)
quad_vec!: integrate.quad_vec(lambda t: np.exp(-x * t), s, np.inf)[0]
fixed_quad: integrate.fixed_quad(lambda t: np.exp(-s * t), 0, x[0, 1], n=7)[0]
dblquad!: integrate.dblquad(lambda y, t, a: np.exp(-a * y * t), 0, s, lambda t: t, 1, args=(s,))[0]
tplquad: integrate.tplquad(lambda z, y, t: s * z * y * t, 0, 1, 0, 1, 0, 1)[0]
nquad!: integrate.nquad(lambda t, u: s * t * u, [lambda u: [0, s * u], [0, x[0, 1]]])[0]
cubature: integrate.cubature(lambda t: s * t[:, 0], [0], [1])
qmc_quad: integrate.qmc_quad(lambda t: s * t[0], 0, 1, n_estimates=2)
tanhsinh: integrate.tanhsinh(lambda t: s * t, 0, 1).integral
nsum: integrate.nsum(lambda k: s / k**2, 1, 10).sum
solve_bvp: integrate.solve_bvp(lambda t, y: np.stack([y[1], -s * y[0]]), lambda a, b: np.array([a[0], b[0] - 1]), np.linspace(0, 1, 5), np.zeros((2, 5))).y
solve_ivp: integrate.solve_ivp(lambda t, y: s * y - x[0, 1] * y**2 * np.cos(t), (0.0, 0.2), x[0], t_eval=[0.0, 0.1, 0.2], rtol=1e-8, atol=1e-9).y
solve_ivp!: integrate.solve_ivp(lambda t, y, a: a @ y, (0.0, 0.4), x[0], args=(x,), rtol=1e-7).y[:, -1]
solve_ivp!: integrate.solve_ivp(lambda t, y: x @ y * np.sin(t), (0.2, s), np.ones(3), method="DOP853", t_eval=w[0, 1:2]).y
solve_ivp!: integrate.solve_ivp(lambda t, y: x @ y, (1.0, 0.9), x[0], method="RK23", t_eval=[0.95, 0.9], rtol=1e-6).y
solve_ivp!: integrate.solve_ivp(lambda t, y: -x @ y, (0.0, 0.1), x[0], method="LSODA", t_eval=[0.1], rtol=1e-12, atol=1e-13).y
odeint!: integrate.odeint(lambda y, t, a: -a * y + x[0] * t, x[1], [0.0, 0.1, 0.2], args=(s,), rtol=1e-12, atol=1e-13)
BDF: integrate.BDF(lambda t, y: s * y, 0.0, x[0], 1.0).t
DOP853: integrate.DOP853(lambda t, y: s * y, 0.0, x[0], 1.0).t
LSODA: integrate.LSODA(lambda t, y: s * y, 0.0, x[0], 1.0).t
RK23: integrate.RK23(lambda t, y: s * y, 0.0, x[0], 1.0).t
RK45: integrate.RK45(lambda t, y: s * y, 0.0, x[0], 1.0).t
Radau: integrate.Radau(lambda t, y: s * y, 0.0, x[0], 1.0).t
DenseOutput: integrate.DenseOutput(s, 1.0)
OdeSolution: integrate.OdeSolution([0.0, 1.0], [integrate.DenseOutput(0.0, 1.0)]).t_min
OdeSolver: integrate.OdeSolver(lambda t, y: y, 0.0, x[0], 1.0, False).t
lebedev_rule: integrate.lebedev_rule(3)
newton_cotes: integrate.newton_cotes(3)
"""
