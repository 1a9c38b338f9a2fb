"""Values that each call of a derivative computes anew and passes to the tape: random numbers, with
their distributions and words of bits, and objects that each call creates."""
