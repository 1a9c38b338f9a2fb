"""What each call makes anew and passes to the tape: random numbers, by the distributions and words
that they are drawn with, and values that objects are made for at each call."""
