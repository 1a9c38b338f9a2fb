"""Facts about places in codes, learned by traces that were discarded or repeated, and used by later
traces."""

from __future__ import annotations

from types import CodeType

from tapegrad.core.listing import kept_by_code

ASKED = "what is called is called anew by each call"
FOLLOWED_ON = "what is called is never called anew"
VARYING = "what is called anew has returned something else"
STEADY = "of these, the program needs plain numbers"
CHANGING = "a number is looked up that was another one at a later call"
FIXED = "what is looked up stays what it is, since a trace that took it for an input has failed"
UNEVEN = "a mask selects now so many elements, now others"
GONE_THROUGH = "a container is read as a whole that held something else at a later call"
THREADS = "threads of the function wait for each other"
BARE = "real numbers are plain here, as keys or for code in C, since a trace has failed"
VARIED = "a guard of an integer has failed, which the tape could compute with"
AT_ONCE = "a change is made where it stands, since the program looks at what it changes"


@kept_by_code
def places(code: CodeType, what: str) -> set[int]:
    """The offsets in a code for which this fact is known."""
    return set()
