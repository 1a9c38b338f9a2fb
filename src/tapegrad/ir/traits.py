"""What primitives say of themselves: facts that belong together, checked when declared."""

from __future__ import annotations


class Algebra:
    """What a primitive is like as a function of its operands, which are told by their numbers.

    In those of `linear` it is linear with a finite slope, the others given; in those of `additive`
    linear together, if the others of these are 0. If it is `commutative` their order makes no
    difference to any bit. The rules of what `selects` choose among cotangents, and never multiply.
    What is linear `by_rows` is one linear map of each row of the last operand.
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
        """Whether it can be of a function of so many operands."""
        return all(k < count for k in (*self.linear, *self.additive))


class Ties:
    """What derivatives are like where a function has a kink, or values are equal.

    `origin` is the result, or from -1 on the operand, that is 0 where the kink is. Of what `leans`
    the operands but the first count in derivatives at ties alone. It is `balanced` if the slope at
    a tie is the mean of those of both sides.
    """

    __slots__ = ("balanced", "leans", "origin")

    def __init__(
        self, origin: int | None = None, leans: bool = False, balanced: bool = True
    ) -> None:
        self.origin, self.leans, self.balanced = origin, leans, balanced


PLAIN, SMOOTH = Algebra(), Ties()
