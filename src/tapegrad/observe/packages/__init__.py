"""Calls of code that isn't followed: functions of installed packages and of C, which are one step,
the program's functions that they call back, and iterators that each call advances."""
