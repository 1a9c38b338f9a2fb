"""Calls of scipy.spatial.transform's classes; see tests/scipy/names_test.py."""

CALLS = """
Rotation: transform.Rotation(np.append(x[0], s)).as_matrix()
Rotation: transform.Rotation.from_rotvec(x).as_quat()
Rotation: transform.Rotation.from_matrix(x).as_rotvec()
Slerp: transform.Slerp([0, 1, 2], transform.Rotation.from_rotvec(x))([0.3, 1.6]).as_matrix()
Slerp: transform.Slerp([0, 1, 2], transform.Rotation.from_rotvec(w))(s + x[0]).as_rotvec()
"""
