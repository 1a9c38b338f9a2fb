"""Control flow that stays on the tape: branches that go both ways, with what their sides leave and
write, `cond`, and parts of a program that run again for the derivative."""
