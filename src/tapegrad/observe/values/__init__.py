"""What is known of traced values below the tracers: that they stand for operands, which have the
same bits in played and compiled code, and what texts of them are for."""
