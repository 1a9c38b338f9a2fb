"""Stretches of a run, rounds of loops and sides of branches: what they change, what is their own,
and whether they may be run twice. The loops ask, and so do branches that go both ways."""
