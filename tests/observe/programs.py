"""Programs that read what isn't passed, by every instruction that Python has for it.

A program is a text that defines `f`, linear in its argument but for a constant. After it comes the
change that is made to what it reads.
"""

from __future__ import annotations

import sys

# What the programs find.
SETTING = """
import collections, contextlib, sys
import numpy as np

class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

class Upper:
    rate = 2.0
    def get(self):
        return self.held

class Lower(Upper):
    held = 3.0
    rate = 7.0
    def get(self):
        return 0.0
    def rated(self):
        return super().rate
    def got(self):
        return super().get()
    def named(self):
        return super(Lower, self).rate

class Answers:
    def __lt__(self, other):
        return flags

class Held:
    def __enter__(self):
        return box.scale
    def __exit__(self, *exc):
        return None

def scaled(x, by, plus=0.0, **more):
    return x * by + x * plus + x * sum(more.values())

def yields():
    for v in items:
        got = yield v
    return box.scale

def hands_on():
    back = yield from yields()
    yield back

def in_cells():
    cell, other = 2.0, 5.0
    def f(x):
        return x * cell * other
    def change(v):
        nonlocal cell
        cell = v
    return f, change

held, change_cell = in_cells()
box = Box(scale=2.0, none=None)
lower = Lower()
items = [1.0, 2.0, 3.0]
flags = [1]
pair = (2.0,)
table = {"plus": 2.0, "b": 3.0}
array = np.array([1.0, 2.0, 4.0])
whole = np.array([1, 2, 4])
kinds = KeyError
first = 1
scale = 2.0
"""

# What one of them runs with `exec`.
RUN = "a = scale\nb = a + 1.0\ndel a"
SETTING += f"run = {RUN!r}\n"

PROGRAMS: dict[str, tuple[str, str]] = {
    "an attribute": ("def f(x): return x * box.scale", "box.scale = 5.0"),
    "a global": ("def f(x): return x * scale", "scale = 5.0"),
    "a cell": ("f = held", "change_cell(7.0)"),
    "x[i:j] of a list": ("def f(x): return x * sum(items[first:3])", "items[1] = 7.0"),
    "x[i:j] with another i": ("def f(x): return x * sum(items[first:3])", "first = 2"),
    "x[i:j] of an array": ("def f(x): return x * np.sum(array[first:])", "array[2] = 7.0"),
    "x[i:j] of a traced array": (
        "def f(x): return (x * np.ones(3))[first:].sum()",
        "first = 2",
    ),
    "x[i:j:k]": ("def f(x): return x * sum(items[0:3:2])", "items[2] = 7.0"),
    "y[i:j] = x": (
        "def f(x):\n y = [0.0] * 3\n y[:2] = items[:2]\n y[first:] = [x, x * y[0]]\n return sum(y)",
        "items[0] = 5.0",
    ),
    "y[i:j] += x": (
        "def f(x):\n y = x * np.ones(3)\n y[first:] *= array[first:]\n return y.sum()",
        "array[1] = 9.0",
    ),
    "y[i] = x": (
        "def f(x):\n y = {}\n y[first] = x\n del y[first]\n y['a'] = box.scale\n return x * y['a']",
        "box.scale = 5.0",
    ),
    "signs": (
        "def f(x): return x * (np.sum(+array) - np.sum(-array) + np.sum(~whole))",
        "array[0] = 5.0; whole[1] = 7",
    ),
    "a plus alone": ("def f(x): return x * np.sum(+array)", "array[0] = 5.0"),
    "an attribute that goes again": (
        "def f(x):\n y = Box(a=1.0)\n y.b = scale\n x = x * y.b\n del y.b\n return x",
        "scale = 5.0",
    ),
    "not": ("def f(x): return x * (2.0 if not items else 3.0) * (not flags)", "flags.clear()"),
    "a plain if": ("def f(x):\n if items:\n  return x * 2.0\n return x", "items.clear()"),
    "and, or": (
        "def f(x):\n a = items and 2.0\n b = box.none or 3.0\n return x * b * (a or 1.0)",
        "items.clear(); box.none = 4.0",
    ),
    "while": (
        "def f(x):\n n = 0\n while n < len(items):\n  n += 1\n"
        " while not n > 9 or not items:\n  n += 3\n return x * n",
        "items.append(1.0)",
    ),
    "while of a container": (
        "def f(x):\n todo = list(items)\n while todo:\n  x = x * todo.pop()\n return x",
        "items.append(4.0)",
    ),
    "is None": (
        "def f(x):\n y = x if box.none is None else 2 * x\n"
        " return y if (first is not None) == True else 3 * y",
        "box.none = 1.0",
    ),
    "backwards at None": (
        "def f(x):\n for k in items:\n  if box.none is None:\n   continue\n  x = 2 * x\n"
        " for k in items:\n  if box.none is not None:\n   continue\n  x = 3 * x\n return x",
        "box.none = 1.0",
    ),
    "in": ("def f(x): return x * (2.0 in items) + x * ('c' not in table)", "items[1] = 7.0"),
    "a comparison's truth": (
        "def f(x):\n k = Answers()\n k.__lt__(1)\n if k < 1:\n  return 2 * x\n return x",
        "flags.clear()",
    ),
    "super().rate": ("def f(x): return x * lower.rated()", "Upper.rate = 5.0"),
    "super().get()": ("def f(x): return x * lower.got()", "Lower.held = 5.0"),
    "another super().get()": (
        "def f(x): return x * lower.got()",
        "Upper.get = lambda self: 7.0",
    ),
    "super(Lower, self)": ("def f(x): return x * lower.named()", "Upper.rate = 5.0"),
    "names of arguments": (
        "def f(x): return scaled(x, by=box.scale, plus=1.0)",
        "box.scale = 5.0",
    ),
    "names of arguments of C code": (
        "def f(x): return x * max(items, key=abs) + x * np.sum(array, axis=0)",
        "array[0] = 5.0; items[0] = -9.0",
    ),
    "names of arguments of a method": (
        "def f(x): return x * array.sum(axis=0) * int('{a}{b}'.format(a=first, b=2))",
        "array[0] = 5.0; first = 3",
    ),
    "stars": ("def f(x): return scaled(x, *pair, **table, c=1.0)", "table['b'] = 5.0"),
    "two stars": (
        "def f(x): return scaled(x, *pair, *items[:0], **table, **{'c': 2.0})",
        "table['plus'] = 5.0",
    ),
    "an inlined list": (
        "def f(x): return sum([v * x * box.scale for v in items])",
        "items[0] = 5.0",
    ),
    "an inlined list's attribute": (
        "def f(x): return sum([v * x * box.scale for v in items if v])",
        "box.scale = 5.0",
    ),
    "an inlined list's closure": (
        "def f(x):\n v = 1.0\n fs = [lambda: v * x for v in items]\n"
        " return sum([g() for g in fs]) * v + held(x)",
        "items[2] = 7.0; change_cell(1.0)",
    ),
    "an inlined set and dict": (
        "def f(x): return x * sum({v for v in items}) + x * len({k: v for k, v in table.items()})",
        "items[0] = 9.0; table['c'] = 1.0",
    ),
    "displays": (
        "def f(x):\n a = [*items, 1.0]\n b = {*items, 1.0}\n c = {**table, 'k': x}\n"
        " return x * (sum(a) + sum(b)) + sum(c.values())",
        "items[0] = 9.0; table['b'] = 7.0",
    ),
    "unpacking": (
        "def f(x):\n a, b, c = items\n d, *e = array\n return x * (a + b + c + d + e[0])",
        "items[0] = 9.0; array[1] = 9.0",
    ),
    "a generator": (
        "def f(x): return sum(v * x for v in hands_on())",
        "items[0] = 9.0",
    ),
    "what yield from gives": (
        "def f(x): return sum(v * x for v in hands_on())",
        "box.scale = 9.0",
    ),
    "send and throw": (
        "def f(x):\n g = yields()\n y = x * next(g) + x * g.send(1.0)\n"
        " try:\n  g.throw(KeyError('k'))\n except kinds:\n  y = y + x * box.scale\n return y",
        "box.scale = 9.0",
    ),
    "except": (
        "def f(x):\n try:\n  raise KeyError('k')\n except kinds as e:\n  return x * 2.0\n"
        " except Exception:\n  return x * 5.0\n finally:\n  box",
        "kinds = ValueError",
    ),
    "except*": (
        "def f(x):\n y = x\n try:\n  raise ExceptionGroup('', [KeyError('k')])\n"
        " except* kinds:\n  y = x * box.scale\n except* KeyError:\n  y = 9 * x\n return y",
        "box.scale = 9.0",
    ),
    "with": ("def f(x):\n with Held() as y:\n  return x * y", "box.scale = 9.0"),
    "with, raising": (
        "def f(x):\n with contextlib.suppress(kinds):\n  raise KeyError\n return x * box.scale",
        "box.scale = 9.0",
    ),
    "assert": (
        "def f(x):\n assert items, 'none'\n return x * len(items)",
        "items.append(1.0)",
    ),
    "case of a class": (
        "def f(x):\n match box:\n  case Box(scale=2.0):\n   return x\n"
        "  case Box(scale=s):\n   return x * s",
        "box.scale = 9.0",
    ),
    "case of a mapping": (
        "def f(x):\n match table:\n  case {'b': 3.0, **rest}:\n   return x * len(rest)\n"
        "  case {'b': v}:\n   return x * v",
        "table['b'] = 9.0",
    ),
    "case of a sequence": (
        "def f(x):\n match items:\n  case [a, b, c]:\n   return x * a\n"
        "  case [a, *_, b]:\n   return x * b",
        "items.append(9.0)",
    ),
    "formatted": (
        "def f(x): return x * (float(f'{box.scale}') + len(f'{items!r} and {scale:>{first}}'))",
        "items[0] = 22.5",
    ),
    "formatted with a width": (
        "def f(x): return x * len(f'{scale:>{first}}')",
        "first = 9",
    ),
    "a class": (
        "def f(x):\n class C:\n  a = scale\n  b: int = [scale for _ in items]\n  c = a\n  del c\n"
        " return x * C.a * len(C.b)",
        "scale = 9.0",
    ),
    "a class in a closure": (
        "def outer(v):\n def f(x):\n  class C:\n   a = v\n  return x * C.a * scale\n return f\n"
        "f = outer(2.0)",
        "scale = 9.0",
    ),
    "a name that is unbound again": (
        "def f(x):\n v = box.scale\n g = lambda: v\n y = x * g()\n del v\n return y",
        "box.scale = 9.0",
    ),
    "import": (
        "def f(x):\n import observed_settings\n from observed_settings import rate\n"
        " return x * rate * observed_settings.other",
        "import sys; sys.modules['observed_settings'].rate = 9.0",
    ),
}  # fmt: skip

# These are traced at each call: what they do can't be checked at a later one.
EACH_TIME: dict[str, tuple[str, str]] = {
    "a text that is run": (
        "def f(x):\n found = {'scale': scale}\n exec(run, found)\n return x * found['b']",
        "scale = 9.0",
    ),
    "a global that is made": (
        "def f(x):\n global made\n made = [scale]\n y = x * made[0]\n del made\n return y",
        "scale = 9.0",
    ),
}

GENERIC: dict[str, tuple[str, str]] = {
    "a function with parameters of types": (
        "def f(x):\n def g[T: int, *Ts, **P](y: T) -> T: return y * scale\n return g(x)",
        "scale = 9.0",
    ),
    "an annotation in a class": (
        "def f(x):\n class C:\n  near = 1.0\n  def m[T](self, y: scale, z: near): pass\n"
        " a = C.m.__annotations__\n return x * a['y'] * a['z']",
        "scale = 9.0",
    ),
    "an annotation in a class in a closure": (
        "def outer(v):\n def f(x):\n  class C:\n   def m[T](self, y: v): pass\n"
        "  return x * C.m.__annotations__['y'] * scale\n return f\n"
        "f = outer(2.0)",
        "scale = 9.0",
    ),
    "formats in formats": (
        "def f(x): return x * float(f'{f'{box.scale}'}')",
        "box.scale = 9.0",
    ),
}
if sys.version_info >= (3, 12):
    PROGRAMS |= GENERIC
