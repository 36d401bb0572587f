"""Faults from inside of a member: its calls of the C library are changed."""
