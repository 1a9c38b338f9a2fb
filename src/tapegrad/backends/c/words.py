"""The functions that kernels may call, in C: of float64, and of float32 where they end in `f`."""

from __future__ import annotations

# libm's functions, by the name in kernels.
LIBM = {
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: name for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{name: name for name in ("erf", "erfc", "cbrt", "lgamma", "sqrt", "copysign")},
    **{name: name for name in ("floor", "ceil", "trunc", "rint", "fmax", "fmin")},
    "power": "pow",
    "abs": "fabs",
}

# Functions that C lacks or defines otherwise: {T} is the type, {f} its suffix.
OWN = {
    **dict.fromkeys(("maximum", "largest"), "return x >= y || x != x ? x : y;"),
    **dict.fromkeys(("minimum", "smallest"), "return x <= y || x != x ? x : y;"),
    "sign": "return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;",
    "sech_square": "{T} e = exp{f}(-2 * fabs{f}(x)), w = 1 + e; return 4 * e / (w * w);",
}

# Functions that test a number for a property.
TESTS = ("isnan", "isinf", "isfinite")

# Functions of integers: the smaller of two bounds; and an index that may count from the end. One
# that is out of range becomes 0, and the kernel's status reports it.
ON_WHOLE = {
    "min": """\
static inline int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
""",
    "wrapped": """\
static inline int64_t wrapped(int64_t k, int64_t n) {
    k = k < 0 ? k + n : k;
    return k < 0 || k >= n ? 0 : k;
}
""",
}

# Names that a variable can't have: C's keywords, and the functions that are called.
KEYWORDS = (
    *("auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double"),
    *("else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "int64_t", "long"),
    *("main", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct"),
    *("switch", "typedef", "union", "unsigned", "void", "volatile", "while"),
    *("true", "false", "NAN", "INFINITY", "memset"),
)
PRODUCTS = ("matmul", "matmul_of_windows", "place_of")
RESERVED = frozenset(
    [*KEYWORDS, *TESTS, *ON_WHOLE]
    + [name + suffix for name in (*LIBM.values(), *OWN, *PRODUCTS) for suffix in ("", "f")]
)


def own(name: str, arity: int, kind: str, suffix: str) -> str:
    """The definition of a function in `OWN`."""
    body = OWN[name].replace("{T}", kind).replace("{f}", suffix)
    given = ", ".join(f"{kind} {x}" for x in "xy"[:arity])
    return f"static inline {kind} {name}{suffix}({given}) {{\n    {body}\n}}\n"


def product(kind: str, suffix: str) -> str:
    """The definition of the product of two matrices, each passed with the strides of its rows and
    columns."""
    return f"""\
static void matmul{suffix}(
    const {kind} *x, int64_t x_row, int64_t x_column, const {kind} *y, int64_t y_row,
    int64_t y_column, {kind} *out, int64_t row, int64_t column, int64_t m, int64_t n,
    int64_t terms, bool adds) {{
    for (int64_t i = 0; i < m; i += 1) {{
        for (int64_t j = 0; j < n; j += 1) {{
            {kind} sum = 0;
            for (int64_t k = 0; k < terms; k += 1) {{
                sum += x[i * x_row + k * x_column] * y[k * y_row + j * y_column];
            }}
            {kind} *to = out + i * row + j * column;
            *to = adds ? *to + sum : sum;
        }}
    }}
}}
"""


def product_of_windows(kind: str, suffix: str) -> str:
    """The same, where the second matrix has its rows and columns along several axes."""
    return f"""\
static int64_t place_of{suffix}(const int64_t *ways, int64_t number) {{
    int64_t far = 0;
    for (int64_t axis = ways[0] - 1; axis > 0; axis -= 1) {{
        far += number % ways[2 * axis + 1] * ways[2 * axis + 2];
        number /= ways[2 * axis + 1];
    }}
    return far + number * ways[2];
}}

static void matmul_of_windows{suffix}(
    const {kind} *x, int64_t x_row, int64_t x_column, const {kind} *y, const int64_t *y_rows,
    const int64_t *y_columns, {kind} *out, int64_t row, int64_t column, int64_t m, int64_t n,
    int64_t terms, bool adds) {{
    for (int64_t j = 0; j < n; j += 1) {{
        const {kind} *at = y + place_of{suffix}(y_columns, j);
        for (int64_t i = 0; i < m && !adds; i += 1) {{
            out[i * row + j * column] = 0;
        }}
        for (int64_t k = 0; k < terms; k += 1) {{
            {kind} factor = at[place_of{suffix}(y_rows, k)];
            for (int64_t i = 0; i < m; i += 1) {{
                out[i * row + j * column] += x[i * x_row + k * x_column] * factor;
            }}
        }}
    }}
}}
"""
