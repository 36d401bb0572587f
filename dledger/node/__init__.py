"""A member of a group, running: one task turns, one syncs, one applies."""
