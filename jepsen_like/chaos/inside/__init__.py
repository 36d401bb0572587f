"""Faults that come from inside of a member: its calls of the C library do something else."""
