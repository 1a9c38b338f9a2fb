"""Watching the one run of a function that a trace makes: what it reads of the outside.

    frames.py        the operands of the instruction that a frame is about to run
    heights.py       how high a frame's stack is before each of its instructions
    watching.py      how Python calls back before each instruction of a frame
    observer.py      which frames are followed, and how long
    activation.py    a frame that is followed, and which instructions are noted by what
    instructions.py  what each of Python's instructions reads, writes and calls
    uses.py          values that are taken, looked up and changed
    lookups.py       how Python finds an attribute
    calls.py         what a call of C code may read: of what is proven harmless, its arguments
    generators.py    generators of random numbers that are made, and draw
    identities.py    which object a value is, for which a trace has another
    by_name.py       Python's own functions that look something up by name, or ask for a type
    settings.py      settings of libraries, which their functions read
    harmless.py      what is proven harmless
    plainly.py       looking at objects without calling methods of their own
    reads.py         what was read, as guards that a later call can check
    places.py        places that a run writes to
    naming.py        keys and attributes, as the texts of guards have them
    comparing.py     how guards compare what they find

Every object that a program computes with comes to it by an instruction. So by following them it is
known exactly which places were read, and what was found there. What happens inside C code isn't
seen: of the functions that are known to depend on their arguments alone, all of the arguments count
as read, and a tape on which any other took part isn't used again.
"""
