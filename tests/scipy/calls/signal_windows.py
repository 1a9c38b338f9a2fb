"""Calls of the functions of scipy.signal.windows; see tests/scipy/names_test.py."""

CALLS = """
gaussian: windows.gaussian(5, s)
general_gaussian: windows.general_gaussian(5, s, x[0, 1] + 1)
general_cosine: windows.general_cosine(5, x[0])
general_hamming: windows.general_hamming(5, s)
kaiser: windows.kaiser(5, s)
kaiser_bessel_derived: windows.kaiser_bessel_derived(6, s)
exponential: windows.exponential(5, tau=s)
tukey: windows.tukey(5, s)
chebwin: windows.chebwin(5, 50 * s)
chebwin: windows.chebwin(6, 50 * s)
taylor: windows.taylor(5, 4, 30 * s)
get_window: windows.get_window(("general_gaussian", 1.5, s), 5)
get_window: windows.get_window(s, 5)
"""
