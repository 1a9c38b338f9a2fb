"""Operands of the functions that SciPy evaluates: where they are smooth, and which of them are
fixed, since no derivative is known in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

# What an operand is drawn from, by its letter: an interval, or whole numbers. Capital letters are
# of what has no derivative.
DRAWN: dict[str, tuple[float, float]] = {
    "x": (0.3, 0.9),  # inside of (0, 1)
    "u": (0.6, 1.9),  # positive
    "w": (1.3, 2.6),
    "c": (4.0, 7.0),  # counts
    "d": (0.8, 0.85),
    "e": (1.35, 1.5),
    "f": (0.355, 0.36),
    "g": (0.70, 0.72),
    "h": (4.9, 5.1),
    "q": (0.6, 0.8),
    "l": (-3.0, -0.3),  # logarithms of probabilities
    "t": (20.0, 70.0),  # degrees
    "V": (0.3, 1.7),  # an order
    "K": (0.0, 2.0),  # any count
    "W": (0.1, 0.5),
    "X": (0.3, 0.9),
}
WHOLE = {"N": [1, 2, 3], "M": [0, 1, 2], "F": [5, 6, 7]}

_BY_SIGNATURE = """
u: j0 j1 y0 y1 ber bei ker kei berp beip kerp keip airy_0 airy_1 airy_2 airy_3
u: airye_0 airye_1 airye_2 airye_3 itairy_0 itairy_1 itairy_2 itairy_3 itj0y0_0 itj0y0_1 iti0k0_0
u: iti0k0_1 it2j0y0_0 it2j0y0_1 it2i0k0_0 it2i0k0_1 itstruve0 itmodstruve0 it2struve0
u: expi sici_0 sici_1 shichi_0 shichi_1 fresnel_0 fresnel_1 spence dawsn erfi rgamma cosm1
u: wrightomega kolmogorov gammasgn round
w: riemann_zeta zetac
ww: zeta
de: stdtridf
hfg: fdtridfd
uxx: bdtrin nbdtrin
xcx: bdtrik nbdtrik
xw: pdtrik
x: ellipk ellipe ellipkm1 ellipe_of_rest kolmogi
t: sindg cosdg tandg cotdg
l: ndtri_exp
uu: poch binom powm1 owens_t elliprc agm gammainc gammaincc chdtr chdtrc stdtr
ux: gammaincinv gammainccinv chdtri stdtrit ellipkinc ellipeinc ellipj_0 ellipj_1 ellipj_2 ellipj_3
xu: chdtriv
xx: tklmbda
uuu: elliprd elliprf elliprg gdtr gdtrc fdtr fdtrc voigt_profile radian
uux: betainc betaincc betaincinv betainccinv gdtrix fdtri
uxu: gdtrib
xuu: gdtria nrdtrimn
xux: btdtria
uxx: btdtrib
uqu: nrdtrisd
Vu: jv jve yv yve iv ive kv kve struve modstruve pbdv_0 pbdv_1 pbvv_0 pbvv_1 pbwa_0 pbwa_1 hyp0f1
VVu: hyp1f1 hyperu accurate_hyperu wright_bessel log_wright_bessel
VVVx: hyp2f1
VVVu: eval_jacobi eval_sh_jacobi
uVV: besselpoly
Nu: yn kn spherical_jn spherical_yn spherical_in spherical_kn spherical_jn_d
Nu: spherical_yn_d spherical_in_d spherical_kn_d expn pdtr pdtrc
Nx: eval_legendre eval_sh_legendre eval_chebyt eval_chebyu eval_chebyc eval_chebys eval_sh_chebyt
Nx: eval_sh_chebyu eval_laguerre eval_hermite eval_hermitenorm pdtri smirnov smirnovi
NX: smirnovp
NVx: eval_gegenbauer eval_genlaguerre lpmv
NMx: sph_legendre_p
MFx: bdtr bdtrc bdtri nbdtr nbdtrc nbdtri
NWt: mathieu_cem_0 mathieu_cem_1 mathieu_sem_0 mathieu_sem_1
NWx: mathieu_modcem1_0 mathieu_modcem1_1 mathieu_modcem2_0 mathieu_modcem2_1
NWx: mathieu_modsem1_0 mathieu_modsem1_1 mathieu_modsem2_0 mathieu_modsem2_1
NW: characteristic_a characteristic_b
uVu: chndtr
xVu: chndtrix
uVW: chndtrinc
"""
# To second order; SciPy's integrals of Airy functions have eight digits, and show no differences.
NOT_SMOOTH = {"smirnov", "smirnovi", "smirnovp", "itairy_0", "itairy_1", "itairy_2", "itairy_3"}


def _drawn(letters: str) -> list[Any]:
    rng = np.random.default_rng([len(letters), *map(ord, letters)])
    shapes = [(3,)] * (len(letters) - 1) + [(2, 3)]
    return [
        np.array(WHOLE[letter]) if letter in WHOLE else rng.uniform(*DRAWN[letter], shape)
        for letter, shape in zip(letters, shapes, strict=True)
    ]


def special_operands() -> Iterator[tuple[str, list[Any], tuple[int, ...]]]:
    """Names, operands, and which of them are fixed."""
    for line in filter(None, _BY_SIGNATURE.splitlines()):
        letters, _, names = line.partition(": ")
        fixed = tuple(k for k, letter in enumerate(letters) if letter.isupper())
        for name in names.split():
            yield name, _drawn(letters), fixed
