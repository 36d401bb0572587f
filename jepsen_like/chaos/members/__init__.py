"""The members of a run: one process each, started again when it ends."""
