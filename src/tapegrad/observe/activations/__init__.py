"""Followed frames, and the notes of a run: the objects that it has created, its random draws, the
changes to undo if it is repeated, and facts learned by earlier traces. The handlers of instructions
write their notes here."""
