"""DataFrames that the function makes, and rows by plain columns beside traced ones."""

import numpy as np
import pytest

from tapegrad import grad, value_and_grad
from tapegrad.errors import TapegradError

pd = pytest.importorskip("pandas")

rng = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "x": rng.normal(size=9),
        "w": rng.integers(0, 3, 9).astype(float),
        "k": rng.integers(0, 3, 9),
        "t": rng.permutation(9).astype(float),
        "s": list("abcbacabc"),
    }
)


def copied(b):
    d = TABLE.copy()
    d["y"] = d["x"] * b[0]
    return (d["y"] ** 2).sum()


def put_together(b):
    d = pd.DataFrame({"x": TABLE["x"], "w": TABLE["w"]})
    d["y"] = d["x"] * b[0]
    return (d["y"] * d["w"]).sum()


def numbers_put(b):
    d = TABLE.copy()
    d["y"] = (d["x"] * b[0]).to_numpy()
    return (d.groupby("w")["y"].mean() ** 2).sum()


def merged(b):
    d = TABLE.merge(pd.DataFrame({"s": list("abc"), "c": [1.0, 2.0, 3.0]}), on="s")
    d["y"] = d["x"] * b[0] * d["c"]
    return (d["y"] ** 2).sum()


def in_two_functions(b):
    def put(d):
        d["y"] = d["x"] * b[0]
        return d

    tables = [TABLE.copy()]
    put(tables[0])
    return (tables[0]["y"] ** 2).sum()


def added(b):
    d = TABLE.copy()
    d["y"] = 1.0
    d["y"] += d["x"] * b[0]
    return (d["y"] ** 2).sum()


def an_attribute(b):
    d = TABLE.copy()
    d.x = d["x"] * b[0]
    d.x = d.x * b[1]
    return (d["x"] ** 2).sum()


def by_name(b):
    d = TABLE.assign(y=TABLE["x"] * b[0])
    return sum((d.groupby(key)["y"].sum() ** 2).sum() for key in ("w", "k", ["w", "s"]))


def by_array(b):
    d = TABLE[["x", "w"]].assign(y=TABLE["x"] * b[0])
    total = (d.groupby(d["w"].to_numpy())["y"].sum() ** 2).sum()
    return (
        total + (d.groupby(d["w"])["y"].sum() ** 2).sum() + (d.groupby("w").sum() ** 2).sum().sum()
    )


def in_order(b):
    d = TABLE.assign(x=TABLE["x"] * b[0]).sort_values(["k", "t"], ascending=[False, True])
    last = d.reset_index(drop=True).set_index("t").sort_index()
    return (d["x"].cumsum() ** 2).sum() + (last["x"].cumsum() ** 2).sum()


def as_one_array(b):
    d = TABLE[["x", "w"]].assign(y=TABLE["x"] * b[0] + b[1])
    return np.exp(d * 0.1).sum().sum() + d.median().sum() + d.corr().loc["y", "w"]


def another_name(b):
    s = TABLE["x"] * b[0]
    same = s
    s += b[1]
    s *= s
    return (same * TABLE["w"]).sum()


def a_made_one(b):
    s = TABLE["x"].copy()
    same, held = s, [s]
    s += TABLE["w"] * b[0]
    return (same * held[0]).sum()


def passed(b):
    def change(s):
        s /= 2.0
        s -= b[1]

    held = {"s": TABLE["x"] * b[0]}
    one = held["s"]
    change(one)
    held["s"] **= 2
    return (one * held["s"]).sum()


def a_copy(b):
    s = (TABLE["x"] * b[0]).rename("before")
    copied, named = s.copy(), s.rename("after")
    s += TABLE["w"] * b[1]
    return (s * copied * named).sum() * len(s.name)


def a_table(b):
    d = TABLE[["x", "w"]] * b[0]
    same, made = d, TABLE[["x", "w"]].copy()
    also = made
    d += b[1]
    made *= b[0]
    return (same["x"] * also["w"]).sum()


def in_rounds(b):
    s = TABLE["x"] * b[0]
    total, same = TABLE["w"] * 0.0, s
    also = total
    for k in range(30):
        s *= 1.01
        total += s * b[1] * k
    return (same * also).sum()


def masks(b):
    m = TABLE["x"] * b[0] > 0
    same = m
    m &= TABLE["w"] > 0
    return (same * TABLE["x"] * b[1]).sum()


def rows_by_name(b):
    t = pd.DataFrame.from_dict({"p": [b[0], b[1]], "q": [b[1] ** 2, 1.0]}, orient="index")
    records = pd.DataFrame.from_records([{"u": b[0], "v": 1.0}, {"u": b[1], "v": 2.0}])
    return t.mean().sum() * len(t.select_dtypes("number").columns) + records.mean().prod()


def mapped(b):
    kinds = pd.Series(["u", "v", "u"])
    t = pd.DataFrame({"k": kinds}).assign(v=kinds.map({"u": b[0], "v": b[1]}))
    u = pd.DataFrame({"k": ["u", "v"]}).merge(pd.DataFrame({"k": ["v", "u"], "w": b * b}), on="k")
    rates = kinds.map(pd.Series({"u": b[1], "v": b[0]}))
    return t.select_dtypes("number").sum().sum() + (rates * 2).sum() + u["w"].iloc[0]


@pytest.mark.every(16)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize(
    "f",
    [
        *(rows_by_name, mapped),
        *(copied, put_together, numbers_put, merged, in_two_functions, added, an_attribute),
        *(by_name, by_array, in_order, as_one_array),
        *(another_name, a_made_one, passed, a_copy, a_table, in_rounds, masks),
    ],
)
def test_made_tables(f, compile):
    """value as pandas has it, gradient as by central differences; traced once"""
    df = value_and_grad(f, compile=compile)
    for b in (np.array([0.7, 0.3]), np.array([-1.2, 2.0])):
        value, found = df(b)
        h = 1e-6 * np.eye(2)
        expected = [(f(b + e) - f(b - e)) / 2e-6 for e in h]
        np.testing.assert_allclose(value, f(b), rtol=1e-12)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert df.cache_info().traces == 1


def test_tables_that_others_hold():
    """one from outside, or one that an object in C holds, too -> refused"""
    table = TABLE.copy()

    def outside(b):
        table["y"] = table["x"] * b
        return table["y"].sum()

    def in_place(b):
        s = TABLE["x"].copy()
        held = np.empty(1, object)
        held[0] = s
        s += TABLE["x"] * b
        return held[0].sum()

    for f in (outside, in_place):
        with pytest.raises(TapegradError, match="is written"):
            grad(f)(2.0)
    pd.testing.assert_frame_equal(table, TABLE)


def test_groups_and_orders_by_traced_columns():
    """by what is traced -> refused, with what to do"""
    for f in (
        lambda b: TABLE.assign(w=TABLE["w"] * b).groupby("w")["x"].sum().sum(),
        lambda b: TABLE.assign(w=TABLE["w"] * b).sort_values("w")["x"].sum(),  # with ties
    ):
        with pytest.raises(TapegradError, match="column of traced numbers"):
            grad(f)(2.0)


@pytest.mark.parametrize("mode", ["never", "always"])
def test_labels_of_an_array_that_the_program_makes(mode):
    series = pd.Series([1.0, 2.0, 3.0], index=[10.0, 20.0, 30.0])

    def f(w, first):
        places = np.asarray([float(first), 30.0])
        labels = pd.Index(places)
        places[0] = 0.0
        return (w * series.iloc[series.index.get_indexer(labels)]).sum()

    df = grad(f, compile=mode)
    assert df(1.0, "10") == 4.0 and df(1.0, "20") == 5.0
