"""Calls of the functions and classes of scipy.spatial; see tests/scipy/names_test.py."""

CALLS = """
KDTree: spatial.KDTree(x).query(w)[0]
KDTree: spatial.KDTree(w).query(x, k=2)[0]
KDTree: spatial.KDTree(w).query(x[0])[0]
KDTree: spatial.KDTree(w).query(x, k=[1, 3], p=1)[0]
KDTree: spatial.KDTree(w).query(1.1 * x, k=2, p=np.inf)[0]
KDTree: spatial.KDTree(w, boxsize=1.0).query(x, k=2)[0]
KDTree: spatial.KDTree(w).query(x + spatial.KDTree(w).query(x)[1], 2)[0]
KDTree: [np.sum((x[i] - w[j]) ** 3) for i, js in enumerate(spatial.KDTree(w).query_ball_point(x, 0.4)) for j in js]
KDTree: [np.sum((x[i] - w[j]) ** 3) for i, js in enumerate(spatial.KDTree(x).query_ball_tree(spatial.KDTree(w), 0.4)) for j in js]
cKDTree: spatial.cKDTree(x).query(x, k=2)[0][:, 1]
cKDTree: spatial.cKDTree(x).query(x, 3)[0][:, 1:] * x[spatial.cKDTree(x).query(x, 2)[1][:, 1], :2]
cKDTree: [np.sum((x[i] - x[j]) ** 3) for i, j in sorted(spatial.cKDTree(x).query_pairs(0.9))]
cKDTree: s * spatial.cKDTree(x).count_neighbors(spatial.cKDTree(w), s)
distance_matrix: spatial.distance_matrix(x, w)
minkowski_distance: spatial.minkowski_distance(x, w, 3)
minkowski_distance_p: spatial.minkowski_distance_p(x, w, 1)
procrustes: spatial.procrustes(x, w)[1:]
"""
