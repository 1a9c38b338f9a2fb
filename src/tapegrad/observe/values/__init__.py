"""Properties of traced values that don't need the tracers: the operands that they represent, which
have the same bits in played and compiled code, and the uses of their texts."""
