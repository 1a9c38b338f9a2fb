"""Calls of the functions of scipy.sparse; see tests/scipy/names_test.py."""

_OF = "([1, 0, 1, 2, 1], [0, 1, 1, 2, 1])"
_DATA = "np.append(x[0], x[1, :2])"

CALLS = f"""
csr_array: sparse.csr_array(w) @ x
csr_array: x @ sparse.csr_array(w)
csr_array: sparse.csr_array(w).T @ x[0]
csr_array: sparse.csr_array(w).dot(x[0])
csr_array: sparse.csr_array(({_DATA}, {_OF}), shape=(3, 4)) @ w.T[[0, 1, 2, 0]]
csr_array: sparse.csr_array(({_DATA}, {_OF})).toarray()
csr_array: (sparse.csr_array((x[0], [2, 0, 1], [0, 1, 1, 3])) * s @ x[1]) + x[2]
csr_array: sparse.csr_array(x) * w @ x
csr_array: (sparse.csr_array(x) + sparse.csr_array(w) - s * x).sum()
csr_array: sparse.csr_array(x).sum(axis=0)
csr_array: sparse.csr_array(x).mean(axis=1)
csr_array: sparse.csr_array(x).diagonal(1)
csr_array: sparse.csr_array(w).multiply(x).toarray()
csr_array: (-sparse.csr_array(x) / s).trace()
csr_array: (2 * sparse.csr_array(w) + x)[0]
csr_matrix: sparse.csr_matrix(w) * x
csr_matrix: x * sparse.csr_matrix(w)
csr_matrix: sparse.csr_matrix(({_DATA}, {_OF})) * x
csr_matrix: (sparse.csr_matrix((x[0], [2, 0, 1], [0, 1, 1, 3])) * s).toarray()
csc_array: sparse.csc_array(w) @ x
csc_array: sparse.csc_array((x[0], [2, 0, 1], [0, 1, 1, 3])).T @ w
csc_array: sparse.csc_array((x[0], [2, 0, 1], [0, 1, 1, 3])).data
csc_matrix: sparse.csc_matrix(w).T * x[0]
csc_matrix: sparse.csc_matrix(({_DATA}, {_OF})).T @ x
coo_array: sparse.coo_array(w) @ x
coo_array: sparse.coo_array(({_DATA}, {_OF})).tocsr() @ x
coo_matrix: sparse.coo_matrix(w).T @ (x + 1j * w)
bsr_array: sparse.bsr_array(w) @ x
bsr_matrix: sparse.bsr_matrix(w) @ x
dia_array: x @ sparse.dia_array(w)
dia_matrix: sparse.dia_matrix(w) * x
dia_array: sparse.dia_array((x, [1, 0, -1]), shape=(4, 5)).T @ np.ones(4)
dia_matrix: sparse.dia_matrix((x[0], 1), shape=(2, 3)).toarray()
dok_array: sparse.dok_array(w) @ x
dok_matrix: sparse.dok_matrix(w) @ x
lil_array: sparse.lil_array(w) @ x
lil_matrix: sparse.lil_matrix(w) @ x
diags: sparse.diags([x[0], x[1, :2]], [0, -1]) @ w
diags: sparse.diags(x[0]).toarray()
diags: sparse.diags([1.0, s], [0, 1], shape=(3, 3)).toarray()
diags_array: sparse.diags_array([x[0], x[1, :2]], offsets=[0, 1]) @ w
diags_array: sparse.diags_array(x[0], offsets=1, format="csr").toarray()
vstack: sparse.vstack([sparse.csr_array(x), sparse.csr_array(w)]) @ x[0]
hstack: sparse.hstack([sparse.csr_array(x), w]).T @ x[0]
block_diag: sparse.block_diag((sparse.csr_array(x), w[:2])).toarray()
kron: sparse.kron(sparse.csr_array(x), w) @ np.arange(9.0)
kron: sparse.kron(sparse.csr_array(w), sparse.coo_array(x[:2])).toarray()
issparse: sparse.issparse(x)
block_array: sparse.block_array([[sparse.csr_array(x), None], [w, sparse.csr_array(x)]]).toarray()
bmat: sparse.bmat([[sparse.csr_array(x), None], [None, sparse.csr_array(w)]]).toarray()
eye: sparse.eye(3).toarray()
eye_array: sparse.eye_array(3) @ np.ones(3)
expand_dims: sparse.expand_dims(sparse.coo_array(x), axis=0)
find: sparse.find(sparse.csr_array(x))
get_index_dtype: sparse.get_index_dtype(x)
identity: sparse.identity(3) @ np.ones(3)
isspmatrix: sparse.isspmatrix(w)
isspmatrix_bsr: sparse.isspmatrix_bsr(w)
isspmatrix_coo: sparse.isspmatrix_coo(w)
isspmatrix_csc: sparse.isspmatrix_csc(w)
isspmatrix_csr: sparse.isspmatrix_csr(w)
isspmatrix_dia: sparse.isspmatrix_dia(w)
isspmatrix_dok: sparse.isspmatrix_dok(w)
isspmatrix_lil: sparse.isspmatrix_lil(w)
kronsum: sparse.kronsum(sparse.csr_array(x), sparse.csr_array(w)).toarray()
load_npz: sparse.issparse(w)
permute_dims: sparse.permute_dims(sparse.coo_array(x))
rand: sparse.rand(3, 3, rng=1).toarray()
random: sparse.random(3, 3, rng=1).toarray()
random_array: sparse.random_array((3, 3), rng=1).toarray()
safely_cast_index_arrays: sparse.safely_cast_index_arrays(sparse.coo_array(x))
save_npz: sparse.issparse(w)
sparray: isinstance(w, sparse.sparray)
spdiags: sparse.spdiags(x, [0, 1, -1], 3, 3).toarray()
spdiags: sparse.spdiags(x, [0, -1, 2], 5, 4) @ np.ones(4)
spdiags: sparse.spdiags(x, [0, 1, -5], 2, 6, format="csr").toarray()
spmatrix: isinstance(w, sparse.spmatrix)
swapaxes: sparse.swapaxes(sparse.coo_array(x), 0, 1)
tril: sparse.tril(sparse.csr_array(x)).toarray()
triu: sparse.triu(sparse.csr_array(x), 1).toarray()
"""
