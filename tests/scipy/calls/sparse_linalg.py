"""Calls of the functions of scipy.sparse.linalg; see tests/scipy/names_test.py."""

_SETTINGS = "rtol=1e-14, atol=0"

CALLS = f"""
spsolve: linalg.spsolve(scipy.sparse.csc_array(x), w[0])
spsolve: linalg.spsolve(scipy.sparse.csr_array(w), x)
spsolve: linalg.spsolve(scipy.sparse.csr_matrix(w + 1j), x[0])
spsolve: linalg.spsolve(scipy.sparse.diags_array(x[0]).tocsc(), x[1])
spsolve_triangular: linalg.spsolve_triangular(scipy.sparse.csr_array(np.tril(w)), x)
spsolve_triangular: linalg.spsolve_triangular(scipy.sparse.csr_array(np.triu(w)), x[0], lower=False)
splu: linalg.splu(scipy.sparse.csc_array(x)).solve(x[0])
splu: linalg.splu(scipy.sparse.csc_array(w)).solve(x)
splu: linalg.splu(scipy.sparse.csc_array(w)).solve(x[0], "T")
factorized: linalg.factorized(scipy.sparse.csc_array(x))(w[0])
factorized: linalg.factorized(scipy.sparse.csc_array(w))(x[0])
expm_multiply: linalg.expm_multiply(scipy.sparse.csr_array(w), x)
expm_multiply: linalg.expm_multiply(scipy.sparse.csc_array(w), x[0])
norm: linalg.norm(scipy.sparse.csr_array(x))
norm: linalg.norm(scipy.sparse.csr_array(x), 1)
bicg: linalg.bicg(scipy.sparse.csr_array(w), x[0], {_SETTINGS})[0]
bicgstab: linalg.bicgstab(scipy.sparse.csr_array(w), x[0], {_SETTINGS})[0]
cg: linalg.cg(scipy.sparse.csr_array(w @ w.T), x[0], {_SETTINGS})[0]
cg: linalg.cg(x @ x.T, x[0], x0=x[1], {_SETTINGS})[0]
cgs: linalg.cgs(w, x[0], {_SETTINGS})[0]
gmres: linalg.gmres(x, w[0], {_SETTINGS})[0]
gmres: linalg.gmres(scipy.sparse.csc_array(x), w[0], x0=x[0], restart=3, {_SETTINGS})[0]
lgmres: linalg.lgmres(x, w[0], {_SETTINGS})[0]
minres: linalg.minres(w @ w.T, x[0], rtol=1e-14)[0]
qmr: linalg.qmr(w, x[0], {_SETTINGS})[0]
tfqmr: linalg.tfqmr(w, x[0], {_SETTINGS})[0]
gcrotmk: linalg.gcrotmk(w, x[0], {_SETTINGS})[0]
LaplacianNd: linalg.LaplacianNd((3,)).toarray()
aslinearoperator: linalg.aslinearoperator(x) @ w[0]
LinearOperator: linalg.LinearOperator((3, 3), matvec=lambda v: x @ v).matvec(w[0])
SuperLU: linalg.splu(scipy.sparse.csc_array(w)).L.toarray()
eigs: linalg.eigs(x, k=1)
eigsh: linalg.eigsh(x @ x.T, k=1)[0]
expm: linalg.expm(scipy.sparse.csc_array(x))
funm_multiply_krylov: linalg.funm_multiply_krylov(scipy.linalg.expm, w, x[0])
inv: linalg.inv(scipy.sparse.csc_array(x))
is_sptriangular: linalg.is_sptriangular(scipy.sparse.csc_array(x))
lobpcg: linalg.lobpcg(x, w)
lsmr: linalg.lsmr(x, w[0], atol=1e-15, btol=1e-15, conlim=0, maxiter=50)[0]
lsqr: linalg.lsqr(x, w[0], atol=1e-15, btol=1e-15, conlim=0)[0]
matrix_power: linalg.matrix_power(scipy.sparse.csc_array(x), 2)
onenormest: linalg.onenormest(x)
spbandwidth: linalg.spbandwidth(scipy.sparse.csc_array(x))
spilu: linalg.spilu(scipy.sparse.csc_array(x))
svds: linalg.svds(x, k=1)[1]
use_solver: linalg.use_solver(useUmfpack=False)
"""
