"""Values that a function reaches without being passed them, and values that it leaves outside: lent
arrays, numbers that it reads and sets, values that it stores, and leaked tracers."""
