"""Kernels as people write them who time NumPy: loops that fill what `np.zeros` and `np.empty` give,
lists, `math`, index tables. Nothing in here knows of derivatives.

Each is a function of its arguments alone; `KERNELS` has what to call it with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import zeros

_rng = np.random.default_rng(0)


def r(*shape: int) -> np.ndarray:
    return _rng.uniform(0.5, 1.5, shape)


def definite(n: int) -> np.ndarray:
    a = r(n, n)
    return a @ a.T + n * np.eye(n)


def jacobi_2d(A, B):
    A, B = A.copy(), B.copy()
    for _ in range(3):
        B[1:-1, 1:-1] = 0.2 * (
            A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1]
        )
        A[1:-1, 1:-1] = 0.2 * (
            B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1]
        )
    return A


def seidel_2d(A):
    A, N = A.copy(), len(A)
    for _ in range(2):
        for i in range(1, N - 1):
            A[i, 1:-1] += A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i, 2:]
            A[i, 1:-1] += A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            for j in range(1, N - 1):
                A[i, j] += A[i, j - 1]
                A[i, j] /= 9.0
    return A


def fdtd_2d(ex, ey, hz, fict):
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for t in range(len(fict)):
        ey[0, :] = fict[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return hz


def lu(A):
    A = A.copy()
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, A.shape[0]):
            A[i, j] -= A[i, :i] @ A[:i, j]
    return A


def ludcmp(A, b):
    A = lu(A)
    x, y = np.zeros_like(b), np.zeros_like(b)
    for i in range(len(b)):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(len(b) - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


def durbin(rr):
    y = np.empty(len(rr))
    alpha, beta = -rr[0], 1.0
    y[0] = -rr[0]
    for k in range(1, len(rr)):
        beta *= 1.0 - alpha * alpha
        alpha = -(rr[k] + np.dot(np.flip(rr[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def gramschmidt(A):
    A = A.copy()
    Q, R = np.zeros_like(A), np.zeros((A.shape[1], A.shape[1]), dtype=A.dtype)
    for k in range(A.shape[1]):
        nrm = np.dot(A[:, k], A[:, k])
        R[k, k] = np.sqrt(nrm)
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, A.shape[1]):
            R[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R[k, j]
    return Q, R


def cholesky(A):
    A = A.copy()
    A[0, 0] = np.sqrt(A[0, 0])
    for i in range(1, A.shape[0]):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[j, :j])
            A[i, j] /= A[j, j]
        A[i, i] -= np.dot(A[i, :i], A[i, :i])
        A[i, i] = np.sqrt(A[i, i])
    return A


def adi(u):
    u, N = u.copy(), u.shape[0]
    v, p, q = np.empty(u.shape), np.empty(u.shape), np.empty(u.shape)
    a, b, d, f = -0.1, 1.2, -0.15, -0.1
    for _ in range(2):
        v[0, 1 : N - 1] = 1.0
        p[1 : N - 1, 0] = 0.0
        q[1 : N - 1, 0] = v[0, 1 : N - 1]
        for j in range(1, N - 1):
            p[1 : N - 1, j] = -a / (a * p[1 : N - 1, j - 1] + b)
            q[1 : N - 1, j] = (
                -d * u[j, 0 : N - 2]
                + (1.0 + 2.0 * d) * u[j, 1 : N - 1]
                - f * u[j, 2:N]
                - a * q[1 : N - 1, j - 1]
            ) / (a * p[1 : N - 1, j - 1] + b)
        v[N - 1, 1 : N - 1] = 1.0
        for j in range(N - 2, 0, -1):
            v[j, 1 : N - 1] = p[1 : N - 1, j] * v[j + 1, 1 : N - 1] + q[1 : N - 1, j]
        u[1 : N - 1, 1 : N - 1] = 0.5 * v[1 : N - 1, 1 : N - 1].T
    return u


def doitgen(A, C4):
    A, (NR, NQ, NP) = A.copy(), A.shape
    for k in range(NR):
        A[k, :, :] = np.reshape(np.reshape(A[k], (NQ, 1, NP)) @ C4, (NQ, NP))
    return A


def correlation(data):
    mean, stddev = np.mean(data, axis=0), np.std(data, axis=0)
    stddev[stddev <= 0.1] = 1.0
    data = data - mean
    data /= np.sqrt(len(data)) * stddev
    corr = np.eye(data.shape[1], dtype=data.dtype)
    for i in range(data.shape[1] - 1):
        corr[i + 1 :, i] = corr[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
    return corr


def covariance(data):
    data = data - np.mean(data, axis=0)
    cov = np.zeros((data.shape[1], data.shape[1]), dtype=data.dtype)
    for i in range(data.shape[1]):
        cov[i:, i] = cov[i, i:] = data[:, i] @ data[:, i:] / (len(data) - 1.0)
    return cov


def nussinov(scores, seq):
    N = len(seq)
    table = np.zeros((N, N), scores.dtype)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            table[i, j] = max(table[i, j], table[i, j - 1])
            table[i, j] = max(table[i, j], table[i + 1, j])
            if i < j - 1:
                bonus = scores[i] if seq[i] + seq[j] == 3 else 0.0
                table[i, j] = max(table[i, j], table[i + 1, j - 1] + bonus)
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def floyd_warshall(path):
    path = path.copy()
    for k in range(len(path)):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))
    return path


def softmax(x):
    shifted = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return shifted / np.sum(shifted, axis=-1, keepdims=True)


def mlp(x, w1, b1, w2, b2):
    hidden = np.maximum(x @ w1 + b1, 0)
    return softmax(hidden @ w2 + b2)


def conv2d(inputs, weights):
    K = weights.shape[0]
    N, H, W = inputs.shape[0], inputs.shape[1] - K + 1, inputs.shape[2] - K + 1
    output = np.empty((N, H, W, weights.shape[3]), dtype=np.float64)
    for i in range(H):
        for j in range(W):
            output[:, i, j, :] = np.sum(
                inputs[:, i : i + K, j : j + K, :, np.newaxis] * weights[np.newaxis, :, :, :],
                axis=(1, 2, 3),
            )
    return output


def batchnorm(x, eps=1e-5):
    mean, std = np.mean(x, axis=0, keepdims=True), np.std(x, axis=0, keepdims=True)
    return (x - mean) / np.sqrt(std + eps)


def resnet(inputs, w1, w2):
    padded = np.zeros((inputs.shape[0], inputs.shape[1] + 2, inputs.shape[2] + 2, w1.shape[3]))
    x = batchnorm(conv2d(inputs, w1))
    padded[:, 1:-1, 1:-1, :] = np.maximum(x, 0)
    return np.maximum(batchnorm(conv2d(padded, w2)) + inputs, 0)


def maxpool2d(x):
    output = np.empty([x.shape[0], x.shape[1] // 2, x.shape[2] // 2, x.shape[3]], dtype=x.dtype)
    for i in range(x.shape[1] // 2):
        for j in range(x.shape[2] // 2):
            part = x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, :]
            output[:, i, j, :] = np.max(part, axis=(1, 2))
    return output


def lenet(inputs, w1, w2):
    x = maxpool2d(np.maximum(conv2d(inputs, w1), 0))
    return np.reshape(x, (inputs.shape[0], x.size // inputs.shape[0])) @ w2


def azimint(data, radius):
    rmax = radius.max()
    res = np.zeros(4, dtype=np.float64)
    for i in range(4):
        r1, r2 = rmax * i / 4, rmax * (i + 1) / 4
        mask = np.logical_and(r1 <= radius, radius < r2)
        values = data[mask]
        res[i] = values.mean() if len(values) else 0.0
    return res


def mandelbrot(x, y):
    """Without complex numbers: how far each point gets."""
    N = np.zeros((len(x), len(y)), dtype=np.int64)
    zx, zy = np.zeros((len(x), len(y))), np.zeros((len(x), len(y)))
    for n in range(4):
        inside = zx * zx + zy * zy < 4.0
        N[inside] = n
        zx[inside], zy[inside] = (
            (zx * zx - zy * zy + x[:, None])[inside],
            (2 * zx * zy + y)[inside],
        )
    return zx * zx + zy * zy + N


def nbody(mass, pos, vel):
    pos, vel, dt = pos.copy(), vel.copy(), 0.01
    energy = np.ndarray(3, dtype=np.float64)
    for i in range(3):
        dx = pos[:, 0:1].T - pos[:, 0:1]
        dy = pos[:, 1:2].T - pos[:, 1:2]
        inv = dx**2 + dy**2 + 0.1
        inv[inv > 0] = inv[inv > 0] ** (-1.5)
        acc = np.hstack(((dx * inv) @ mass, (dy * inv) @ mass))
        vel += acc * dt
        pos += vel * dt
        energy[i] = 0.5 * np.sum(mass * vel**2)
    return pos, energy


def cavity_flow(u, v):
    nt, dx = 3, 0.5
    u, v = u.copy(), v.copy()
    p, b = zeros(u.shape), zeros(u.shape)
    un = np.empty_like(u)
    for _ in range(nt):
        un = u.copy()
        b[1:-1, 1:-1] = (u[1:-1, 2:] - u[1:-1, :-2] + v[2:, 1:-1] - v[:-2, 1:-1]) / dx
        for _ in range(2):
            pn = p.copy()
            p[1:-1, 1:-1] = (
                0.25 * (pn[1:-1, 2:] + pn[1:-1, :-2] + pn[2:, 1:-1] + pn[:-2, 1:-1]) - b[1:-1, 1:-1]
            )
            p[:, -1] = p[:, -2]
            p[0, :] = p[1, :]
            p[-1, :] = 0
        u[1:-1, 1:-1] = un[1:-1, 1:-1] - 0.1 * (p[1:-1, 2:] - p[1:-1, :-2])
        u[0, :] = 0
        u[-1, :] = 1
    return u


def channel_flow(u):
    u, udiff, stepcount = u.copy(), 1.0, 0
    while udiff > 0.01 and stepcount < 5:
        un = u.copy()
        u[1:-1] = 0.5 * (un[2:] + un[:-2])
        udiff = (np.sum(u) - np.sum(un)) / np.sum(u)
        stepcount += 1
    return u


def contour_integral(a):
    """Without complex numbers: quadrature of the unit circle."""
    zz = np.array([[math.cos(t), math.sin(t)] for t in np.linspace(0, 6, 7)])
    P0 = np.zeros((len(a), len(a)))
    for z in zz:
        P0 += np.linalg.solve(a + z[0] * np.eye(len(a)), np.eye(len(a)) * z[1])
    return P0


def crc16(data):
    """The check stays an integer; what is returned is real."""
    crc = 0xFFFF
    for b in [3, 1, 2]:
        cur = 0xFF & b
        for _ in range(8):
            crc = (crc >> 1) ^ 0x8408 if (crc & 1) ^ (cur & 1) else crc >> 1
            cur >>= 1
    return data * (crc / 65536)


def deriche(img):
    alpha = 0.25
    a1 = (1.0 - math.exp(-alpha)) ** 2 / (1.0 + alpha - math.exp(2.0 * alpha))
    y1, y2 = np.empty_like(img), np.empty_like(img)
    y1[:, 0], y1[:, 1] = a1 * img[:, 0], a1 * img[:, 1]
    for j in range(2, img.shape[1]):
        y1[:, j] = a1 * img[:, j] + 0.5 * y1[:, j - 1] - 0.2 * y1[:, j - 2]
    y2[:, -1], y2[:, -2] = 0.0, a1 * img[:, -1]
    for j in range(img.shape[1] - 3, -1, -1):
        y2[:, j] = a1 * img[:, j + 1] + 0.5 * y2[:, j + 1] - 0.2 * y2[:, j + 2]
    return y1 + y2


def go_fast(a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    return a + trace


def hdiff(inp, coeff):
    I, J = inp.shape[0] - 4, inp.shape[1] - 4
    lap = 4.0 * inp[1 : I + 3, 1 : J + 3] - (
        inp[2 : I + 4, 1 : J + 3]
        + inp[0 : I + 2, 1 : J + 3]
        + inp[1 : I + 3, 2 : J + 4]
        + inp[1 : I + 3, 0 : J + 2]
    )
    res = lap[1:, 1 : J + 1] - lap[:-1, 1 : J + 1]
    limited = res * (inp[2 : I + 3, 2 : J + 2] - inp[1 : I + 2, 2 : J + 2]) > 0
    flx = np.where(limited, 0, res)
    out = np.zeros((I, J))
    out[:, :] = inp[2 : I + 2, 2 : J + 2] - coeff * (flx[1:, :] - flx[:-1, :])
    return out


def vadv(utens, wcon):
    I, K = utens.shape
    ccol = np.ndarray((I, K), dtype=utens.dtype)
    dcol = np.ndarray((I, K), dtype=utens.dtype)
    data_col = np.ndarray((I,), dtype=utens.dtype)
    for k in range(K):
        if k == 0:
            ccol[:, 0], dcol[:, 0] = 0.3 * wcon[:, 0], utens[:, 0]
        else:
            divided = 1.0 / (2.0 + wcon[:, k] - ccol[:, k - 1] * 0.2)
            ccol[:, k] = wcon[:, k] * divided
            dcol[:, k] = (utens[:, k] - dcol[:, k - 1] * 0.2) * divided
    out = np.zeros_like(utens)
    data_col[:] = dcol[:, K - 1]
    out[:, K - 1] = data_col
    for k in range(K - 2, -1, -1):
        data_col[:] = dcol[:, k] - ccol[:, k] * data_col
        out[:, k] = data_col
    return out


def spmv(values, x):
    rows, cols = np.array([0, 2, 3, 5]), np.array([0, 2, 1, 0, 1])
    y = np.empty(rows.size - 1, values.dtype)
    for i in range(rows.size - 1):
        part = cols[rows[i] : rows[i + 1]]
        y[i] = values[rows[i] : rows[i + 1]] @ x[part]
    return y


def scattering_self_energies(neigh, G, D):
    Sigma = np.zeros((2, 3, 2, 2), dtype=G.dtype)
    for k in range(2):
        for a in range(3):
            for b in range(2):
                dHG = G[k, neigh[a, b]] @ D[a, b]
                Sigma[k, a] += dHG @ D[a, b]
    return Sigma


def arc_distance(theta_1, phi_1, theta_2, phi_2):
    temp = (
        np.sin((theta_2 - theta_1) / 2) ** 2
        + np.cos(theta_1) * np.cos(theta_2) * np.sin((phi_2 - phi_1) / 2) ** 2
    )
    return 2 * np.arctan2(np.sqrt(temp), np.sqrt(1 - temp))


def compute(array_1, array_2):
    return np.clip(array_1, 0.7, 1.2) * 4.0 + array_2 * 3.0 + 9.0


def gemver(alpha, A, u1, v1, y, z):
    A = A + np.outer(u1, v1)
    x = np.zeros_like(y)
    x += 1.2 * y @ A + z
    w = np.zeros(len(A))
    w += alpha * A @ x
    return w


def symm(alpha, C, A, B):
    C, temp2 = C * 1.2, np.empty((C.shape[1],), dtype=C.dtype)
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            C[:i, j] += alpha * B[i, j] * A[i, :i]
            temp2[j] = B[:i, j] @ A[i, :i]
        C[i, :] += alpha * B[i, :] * A[i, i] + alpha * temp2
    return C


def trisolv(L, b):
    x = np.zeros(len(b))
    for i in range(x.shape[0]):
        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
    return x


def heat_3d(A):
    A = A.copy()
    B = np.empty_like(A)
    B[:] = A
    for _ in range(2):
        B[1:-1, 1:-1, 1:-1] = A[1:-1, 1:-1, 1:-1] + 0.125 * (
            A[2:, 1:-1, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[:-2, 1:-1, 1:-1]
        )
        A[1:-1, 1:-1, 1:-1] = B[1:-1, 1:-1, 1:-1] * 0.9
    return A


def distances(points):
    """Lists of results, `math`, and a table of indices."""
    pairs = np.array([(i, j) for i in range(len(points)) for j in range(i)])
    found = []
    for i, j in pairs:
        dx, dy = points[i] - points[j]
        found.append(math.hypot(dx, dy) + math.exp(-abs(dx)))
    return np.array(found)


_neigh = np.array([[1, 2], [0, 2], [1, 0]])
KERNELS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (jacobi_2d, (r(5, 5), r(5, 5))),
    (seidel_2d, (r(5, 5),)),
    (fdtd_2d, (r(4, 5), r(4, 5), r(4, 5), r(3))),
    (lu, (definite(4),)),
    (ludcmp, (definite(4), r(4))),
    (durbin, (r(5) / 9,)),
    (gramschmidt, (r(5, 3),)),
    (cholesky, (definite(4),)),
    (adi, (r(5, 5),)),
    (doitgen, (r(2, 3, 4), r(4, 4))),
    (correlation, (r(6, 4),)),
    (covariance, (r(6, 4),)),
    (nussinov, (r(6), np.array([0, 1, 2, 3, 1, 2]))),
    (floyd_warshall, (r(4, 4),)),
    (softmax, (r(2, 3),)),
    (mlp, (r(2, 3), r(3, 4), r(4), r(4, 2), r(2))),
    (conv2d, (r(2, 4, 4, 2), r(2, 2, 2, 3))),
    (resnet, (r(2, 4, 4, 2), r(1, 1, 2, 3), r(3, 3, 3, 2))),
    (lenet, (r(2, 5, 5, 1), r(2, 2, 1, 2), r(8, 3))),
    (azimint, (r(12), r(12))),
    (mandelbrot, (r(3) / 4, r(4) / 4)),
    (nbody, (r(3, 1), r(3, 2), r(3, 2))),
    (cavity_flow, (r(5, 5), r(5, 5))),
    (channel_flow, (r(6),)),
    (contour_integral, (definite(3),)),
    (crc16, (r(3),)),
    (deriche, (r(3, 6),)),
    (go_fast, (r(3, 3),)),
    (hdiff, (r(7, 7), r(3, 3))),
    (vadv, (r(3, 4), r(3, 4))),
    (spmv, (r(5), r(3))),
    (scattering_self_energies, (_neigh, r(2, 3, 2, 2), r(3, 2, 2, 2))),
    (arc_distance, (r(3) / 3, r(3) / 3, r(3) / 2, r(3) / 2)),
    (compute, (r(4), r(4))),
    (gemver, (1.5, r(3, 3), r(3), r(3), r(3), r(3))),
    (symm, (1.5, r(3, 4), r(3, 3), r(3, 4))),
    (trisolv, (definite(4), r(4))),
    (heat_3d, (r(4, 4, 4),)),
    (distances, (r(4, 2),)),
]
