"""Facts that primitives declare about themselves, in groups, checked when they are declared."""

from __future__ import annotations


class Algebra:
    """The algebraic properties of a primitive. Operands are given by their positions.

    The primitive is linear with a finite slope in each operand of `linear`, for fixed values of the
    others. It is jointly linear in those of `additive`: f(x, y) = f(x, 0) + f(0, y). If
    `commutative`, the order of the operands changes no bit of the result. If it `selects`, its
    rules choose among cotangents and never multiply them. If it is linear `by_rows`, it applies one
    linear map to each row of the last operand.
    """

    __slots__ = ("additive", "by_rows", "commutative", "linear", "selects")

    def __init__(
        self,
        linear: tuple[int, ...] = (),
        additive: tuple[int, ...] = (),
        *,
        commutative: bool = False,
        selects: bool = False,
        by_rows: bool = False,
    ) -> None:
        self.linear, self.additive = linear, additive
        self.commutative, self.selects, self.by_rows = commutative, selects, by_rows
        known = (*linear, *additive)
        if len({*known}) < len(known) or any(k < 0 for k in known):
            raise ValueError(f"{known}: an operand is in one of `linear` and `additive`, once")
        if commutative and known not in ((), (0, 1)):
            raise ValueError(f"{known}: both operands of what is commutative are alike")

    def holds(self, count: int) -> bool:
        """Whether all positions fit a function of `count` operands."""
        return all(k < count for k in (*self.linear, *self.additive))


class Ties:
    """The derivatives of a primitive at a kink or a tie of equal values.

    If the kink is a point, `origin` says what is 0 there: result number `origin`, or if `origin` is
    negative, an operand (-1 is the last one). If it `leans`, operands other than the first enter
    derivatives at ties only. It is `balanced` if the slope at a tie is the mean of the slopes on
    both sides.
    """

    __slots__ = ("balanced", "leans", "origin")

    def __init__(
        self, origin: int | None = None, leans: bool = False, balanced: bool = True
    ) -> None:
        self.origin, self.leans, self.balanced = origin, leans, balanced


PLAIN, SMOOTH = Algebra(), Ties()
