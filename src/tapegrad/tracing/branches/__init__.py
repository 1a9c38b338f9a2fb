"""Control flow on the tape: branches whose both sides are recorded, with the values that they leave
and write; `cond`; and parts of a program that are recomputed for the derivative."""
