"""Rounds of loops and sides of branches as parts of a run: their changes, their own objects, and
whether they may be run twice. Loops query this, and so do branches that are merged."""
