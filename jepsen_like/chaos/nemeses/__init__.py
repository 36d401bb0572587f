"""The faults of a run, and their times."""
