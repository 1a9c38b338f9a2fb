"""What primitives say of themselves: facts that belong together, checked when declared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Algebra:
    """What a primitive is like as a function of its operands, which are told by their numbers.

    In those of `linear` it is linear with a finite slope, the others given; in those of `additive`
    linear together, if the others of these are 0. If it is `commutative` their order makes no
    difference to any bit. The rules of what `selects` choose among cotangents, and never multiply.
    """

    linear: tuple[int, ...] = ()
    additive: tuple[int, ...] = ()
    commutative: bool = False
    selects: bool = False
    by_rows: bool = False  # whether it is one linear map of each row of the last operand

    def __post_init__(self) -> None:
        known = (*self.linear, *self.additive)
        if len({*known}) < len(known) or any(k < 0 for k in known):
            raise ValueError(f"{self}: an operand is in one of `linear` and `additive`, once")
        if self.commutative and known not in ((), (0, 1)):
            raise ValueError(f"{self}: both operands of what is commutative are alike")

    def holds(self, count: int) -> bool:
        """Whether it can be of a function of so many operands."""
        return all(k < count for k in (*self.linear, *self.additive))


@dataclass(frozen=True)
class Ties:
    """What derivatives are like where a function has a kink, or values are equal."""

    origin: int | None = None  # the result, or from -1 on the operand, that is 0 where the kink is
    leans: bool = False  # whether the operands but the first count in derivatives at ties alone
    balanced: bool = True  # whether the slope at a tie is the mean of those of both sides


PLAIN, SMOOTH = Algebra(), Ties()
