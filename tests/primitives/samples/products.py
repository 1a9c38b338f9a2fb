"""Of sums of products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.primitives.samples.drawn import Sample, normal

from tapegrad.primitives.contractions import Einsum
from tapegrad.primitives.multilinear import Products


def of_products(kind: Any) -> list[Sample]:
    def sum_of_products(subscripts: str) -> Any:
        *terms, out = subscripts.replace("->", ",").split(",")

        def reference(*xs: Any) -> Any:
            shapes = [n for x in xs for n in x.shape]
            extents = dict(zip("".join(terms), shapes, strict=True))
            result = np.zeros([extents[k] for k in out])
            for at in np.ndindex(*extents.values()):
                place = dict(zip(extents, at, strict=True))
                *ats, at_out = (tuple(place[k] for k in term) for term in (*terms, out))
                result[at_out] += math.prod(x[at] for x, at in zip(xs, ats, strict=True))
            return result

        return reference

    cases = [
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("ij,jk->ik", (3, 3), (3, 3)),
        ("ij,jk->ik", (1, 3), (3, 1)),
        ("ij,jk->ik", (2, 0), (0, 3)),
        ("i,i->", (3,), (3,)),
        ("i,i->", (0,), (0,)),
        ("ij,j->i", (2, 3), (3,)),
        ("i,ij->j", (2,), (2, 3)),
        ("ji,jk->ik", (3, 2), (3, 4)),
        ("ij,kj->ik", (2, 3), (4, 3)),
        ("ji,kj->ik", (3, 2), (4, 3)),
        ("hij,hjk->hik", (5, 2, 3), (5, 3, 2)),
        ("hij,jk->hik", (5, 2, 3), (3, 2)),
        ("ij,hjk->ihk", (2, 3), (5, 3, 2)),
        ("hj,hj->h", (4, 3), (4, 3)),
        ("ihj,khj->hik", (2, 3, 4), (3, 3, 4)),  # heads in the middle
        ("hik,khd->ihd", (2, 3, 4), (4, 2, 3)),
        ("nij,nik->jk", (2, 3, 4), (2, 3, 2)),  # two axes are summed
        ("ijk,kji->", (2, 3, 2), (2, 3, 2)),
        ("ikj,lk->jli", (2, 3, 2), (4, 3)),
    ]
    several = [
        ("ij,jk,k->", (2, 3), (3, 4), (4,)),
        ("ij,jk,kl->il", (2, 3), (3, 3), (3, 2)),
        ("ij,jk,ki->i", (2, 3), (3, 2), (2, 2)),
        ("i,jk,kl,l->j", (2,), (3, 2), (2, 3), (3,)),  # one operand is summed up alone
        ("hij,hjk,kl->hil", (2, 3, 2), (2, 2, 3), (3, 2)),
        (",ij,jk->ik", (), (3, 2), (2, 3)),
    ]
    each = {Einsum: cases, Products: several}
    return [
        Sample(
            kind(text),
            tuple(normal(*shape, seed=k) for k, shape in enumerate(shapes)),
            sum_of_products(text),
            label=text,
        )
        for text, *shapes in each[kind]
    ]
