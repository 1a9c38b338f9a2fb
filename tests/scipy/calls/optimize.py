"""Calls of the functions of scipy.optimize; see tests/scipy/names_test.py."""

CALLS = """
brentq: optimize.brentq(lambda t: t**3 + t - s, 0.0, 2.0)
brentq: optimize.brentq(lambda t, a, b: a * t**3 + t - b, 0.0, 2.0, args=(x[1, 1], s))
brentq: optimize.brentq(lambda t: t - s if t < 0.3 else t**2 - s * x[0, 1], 0.0, 2.0, full_output=True)[1].root
brenth: optimize.brenth(lambda t: np.exp(t) - 2 - s, 0.0, 2.0)
ridder: optimize.ridder(lambda t: np.exp(t) - 2 - s, 0.0, 2.0)
bisect: optimize.bisect(lambda t: np.exp(t) - 2 - s, 0.0, 2.0, xtol=1e-14)
toms748: optimize.toms748(lambda t: np.exp(t) - 2 - s, 0.0, 2.0)
newton: optimize.newton(lambda t: t**3 + t - s, 0.5, tol=1e-14)
newton: optimize.newton(lambda t: t**3 + t - s, 0.5, fprime=lambda t: 3 * t**2 + 1, tol=1e-14, full_output=True)[1].root
newton: optimize.newton(lambda t: t**3 + t - x[0], np.ones(3), fprime=lambda t: 3 * t**2 + 1, tol=1e-14)
root_scalar: optimize.root_scalar(lambda t: t**3 + t - s, bracket=[0.0, 2.0]).root
root_scalar: optimize.root_scalar(lambda t: (t**3 + t - s, 3 * t**2 + 1), fprime=True, x0=0.5, method="newton", xtol=1e-14).root
fixed_point: optimize.fixed_point(lambda t: np.cos(t) * x[0], np.ones(3), xtol=1e-14)
fsolve: optimize.fsolve(lambda v: [v[0] + v[1] ** 3 - s, v[0] - v[1] + x[1, 2]], [0.5, 0.5], xtol=1e-12)
fsolve: optimize.fsolve(lambda v, a: a @ v + v**3 - w[0], np.ones(3), args=(x,), fprime=lambda v, a: a + 3 * np.diag(v**2), xtol=1e-12)
root: optimize.root(lambda v: x @ v + v**3 - w[0], np.ones(3), tol=1e-12).x
root: optimize.root(lambda v: (x @ v + v**3 - w[0], x + 3 * np.diag(v**2)), np.ones(3), jac=True, method="lm", tol=1e-14).x
minimize: optimize.minimize(lambda v: np.sum(np.cosh(v) - x[0] * v) + (v[0] - v[1]) ** 2, np.zeros(3), method="trust-exact", jac=lambda v: np.sinh(v) - x[0] + 2 * (v[0] - v[1]) * np.array([1, -1, 0]), hess=lambda v: np.diag(np.cosh(v)) + 2 * np.array([[1, -1, 0], [-1, 1, 0], [0, 0, 0]]), tol=1e-12).x
minimize: optimize.minimize(lambda v, a: (np.sum(v**4 / 4 + v**2 - a * v), v**3 + 2 * v - a), np.zeros(3), args=(x[1],), jac=True, bounds=[(0, 0.2), (None, 0.3), (0.0, None)], tol=1e-15, options={"ftol": 1e-16}).x
minimize: optimize.minimize(lambda v: np.sum((v - x[0]) ** 2), np.zeros(3), jac=lambda v: 2 * (v - x[0]), bounds=list(zip(w[0], w[1] + s)), options={"ftol": 1e-16, "gtol": 1e-14}).fun
minimize_scalar: optimize.minimize_scalar(lambda t: (t - s) ** 2 + 1, tol=1e-15).x
minimize_scalar: optimize.minimize_scalar(lambda t: (t**2 - s) ** 2, bounds=(0.0, 2.0), options={"xatol": 1e-15}).fun
least_squares: optimize.least_squares(lambda v: x @ v + 0.1 * v**3 - w[0], np.zeros(3), xtol=1e-15, ftol=1e-15, gtol=1e-15).x
least_squares: optimize.least_squares(lambda v: s * w[:, :2] @ v - x[2], np.zeros(2), jac=lambda v: s * w[:, :2], xtol=1e-15, ftol=1e-15, gtol=1e-15, bounds=([-1, -1], [s, 2])).x
least_squares: optimize.least_squares(lambda v: s * w[:, :2] @ v - x[2], np.zeros(2), jac=lambda v: s * w[:, :2], xtol=1e-15, ftol=1e-15, gtol=1e-15, loss="soft_l1", f_scale=0.5).x
curve_fit: optimize.curve_fit(lambda t, a, b: a * t + b * t**2, w[:, 0], x[0], p0=[1.0, 1.0], sigma=x[2], jac=lambda t, a, b: np.stack([t, t**2], 1), ftol=1e-15, xtol=1e-15)[0]
linear_sum_assignment: optimize.linear_sum_assignment(x)
rosen: optimize.rosen(x)
rosen_der: optimize.rosen_der(x[0])
rosen_hess: optimize.rosen_hess(x[0])
rosen_hess_prod: optimize.rosen_hess_prod(x[0], x[1])
BFGS: optimize.BFGS(init_scale=s)
HessianUpdateStrategy: optimize.HessianUpdateStrategy()
InverseJacobian: optimize.InverseJacobian(optimize.BroydenFirst())
LbfgsInvHessProduct: optimize.LbfgsInvHessProduct(x, x)
NonlinearConstraint: optimize.minimize(lambda v: np.sum((v - 1 - x[0] ** 2) ** 2), np.full(3, 0.1), jac=lambda v: 2 * (v - 1 - x[0] ** 2), method="SLSQP", constraints=[optimize.NonlinearConstraint(lambda v: np.sum(v**2), -np.inf, s**2, lambda v: 2 * v)], options={"ftol": 1e-13}).x
OptimizeResult: optimize.OptimizeResult(x=x)
RootResults: optimize.RootResults(s, 1, 1, 0, "brentq")
anderson: optimize.anderson(lambda v: v - x[0], np.ones(3), f_tol=1e-13)
approx_fprime: optimize.approx_fprime(np.ones(3), lambda v: np.sum(v * x[0]))
basinhopping: optimize.basinhopping(lambda v, a: (np.sum((v - a) ** 4 + v**2), 4 * (v - a) ** 3 + 2 * v), np.ones(3), niter=1, rng=1, minimizer_kwargs={"jac": True, "args": (x[0],), "bounds": [(-2, 2)] * 3, "tol": 1e-15}).fun
bracket: optimize.bracket(lambda t: (t - s) ** 2)
brent: optimize.brent(lambda t: (t - s) ** 2, tol=1e-15)
broyden1: optimize.broyden1(lambda v: v + 0.1 * v**3 - x[0], np.ones(3), f_tol=1e-13)
broyden2: optimize.broyden2(lambda v: v + 0.1 * v**3 - x[0], np.ones(3), f_tol=1e-13)
brute: optimize.brute(lambda v: (v[0] - s) ** 4 + v[0] ** 2, [(0, 1)], full_output=True, finish=optimize.minimize)[1]
check_grad: optimize.check_grad(lambda v: np.sum(v * x[0]), lambda v: x[0], np.ones(3))
diagbroyden: optimize.diagbroyden(lambda v: v - x[0], np.ones(3), f_tol=1e-13)
differential_evolution: optimize.differential_evolution(lambda v: np.sum((v - s) ** 4 + v**2), [(0, 1)], rng=0, tol=1e-6).fun
direct: optimize.direct(lambda v: (v[0] - s) ** 4 + v[0] ** 2, [(0, 1)], eps=1e-9).fun
dual_annealing: optimize.dual_annealing(lambda v: np.sum((v - x[0, :2]) ** 4 + v**2), [(-1, 1)] * 2, rng=0, maxiter=20).fun
excitingmixing: optimize.excitingmixing(lambda v: x[0] - v, np.ones(3), alpha=0.9, f_tol=1e-13)
fmin: optimize.fmin(lambda t: np.sum((t - s) ** 2), 0.1, xtol=1e-14, ftol=1e-14, disp=False)
fmin_bfgs: optimize.fmin_bfgs(lambda t: np.sum(np.cosh(t - s)), 0.1, lambda t: np.sinh(t - s), gtol=1e-13, disp=False)
fmin_cg: optimize.fmin_cg(lambda t: np.sum((t - s) ** 2), 0.1, lambda t: 2 * (t - s), disp=False, full_output=True)[0]
fmin_cobyla: optimize.fmin_cobyla(lambda t: np.sum((t - s) ** 2), 0.1, [])
fmin_l_bfgs_b: optimize.fmin_l_bfgs_b(lambda t: (np.sum(np.cosh(t - s)), np.sinh(t - s)), 0.1, factr=0.1, pgtol=1e-14)[0]
fmin_ncg: optimize.fmin_ncg(lambda t: np.sum(np.cosh(t - s)), 0.1, lambda t: np.sinh(t - s), avextol=1e-14, disp=False)
fmin_powell: optimize.fmin_powell(lambda t: np.sum((t - s) ** 2), 0.1, disp=False)
fmin_slsqp: optimize.fmin_slsqp(lambda t: np.sum((t - s) ** 2), 0.1, fprime=lambda t: 2 * (t - s), acc=1e-15, iprint=0)
fmin_tnc: optimize.fmin_tnc(lambda t: (np.sum(np.cosh(t - s)), np.sinh(t - s)), [0.1], ftol=1e-15, xtol=1e-15, pgtol=1e-15, disp=False)[0]
fminbound: optimize.fminbound(lambda t: (t - s) ** 2, 0, 1)
golden: optimize.golden(lambda t: (t - s) ** 2, tol=1e-15)
isotonic_regression: optimize.isotonic_regression(x[0]).x
leastsq: optimize.leastsq(lambda v: v - x[0], np.ones(3))[0]
line_search: optimize.line_search(lambda v: np.sum((v - x[0]) ** 2), lambda v: 2 * (v - x[0]), np.zeros(3), np.ones(3))[0]
linearmixing: optimize.linearmixing(lambda v: v - x[0], np.ones(3), alpha=-0.5, f_tol=1e-13)
linprog: optimize.linprog([-1.0, -2.0], A_ub=[[1.0, 1.0], [s, 3.0]], b_ub=[4.0, 3.0 + s]).x
linprog_verbose_callback: optimize.linprog_verbose_callback(optimize.OptimizeResult(x=w[0], fun=1.0, phase=1, status=0, nit=0, message="", complete=False, slack=w[0], con=w[0]))
lsq_linear: optimize.lsq_linear(x, w[0]).x
milp: optimize.milp(x[0]).x
newton_krylov: optimize.newton_krylov(lambda v: v + 0.1 * v**3 - x[0], np.ones(3), f_tol=1e-13)
nnls: optimize.nnls(x, w[0])[0]
quadratic_assignment: optimize.quadratic_assignment(x, x, options={"rng": 0}).col_ind
shgo: optimize.shgo(lambda v: np.sum((v - s) ** 4 + v**2), [(0, 1)]).fun
show_options: optimize.show_options(disp=False)
LinearConstraint: optimize.minimize(lambda v: np.sum((v - x[0]) ** 2), np.zeros(3), jac=lambda v: 2 * (v - x[0]), method="SLSQP", constraints=optimize.LinearConstraint(x[:1] ** 2 + 1, s, s), options={"ftol": 1e-15}).x
"""
