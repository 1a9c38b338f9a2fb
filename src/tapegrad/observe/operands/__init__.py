"""What stands on a frame's stack where an instruction is about to run, and what is put in its
place: answers, plain integers, arrays and tables that become traced ones with all who hold them."""
