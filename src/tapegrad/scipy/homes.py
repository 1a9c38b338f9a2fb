"""SciPy's modules with traceable functions, and the modules here that declare these."""

HOMES = {
    "scipy.special": "special",
    "scipy.stats": "stats",
    "scipy.linalg": "linalg",
    "scipy.optimize": "optimize",
    "scipy.optimize.elementwise": "optimize.elementwise",
    "scipy.integrate": "integrate",
    "scipy.signal": "signal",
    "scipy.signal.windows": "signal.windows",
    "scipy.interpolate": "interpolate",
    "scipy.ndimage": "ndimage",
    "scipy.sparse": "sparse",
    "scipy.sparse.linalg": "sparse.linalg",
    "scipy.spatial": "spatial",
    "scipy.spatial.distance": "distance",
    "scipy.spatial.transform": "transform",
    "scipy.fft": "fft",
    "scipy.fftpack": "fftpack",
}
