"""A running member of a group: its turns, its syncs, and the calls of its application."""
