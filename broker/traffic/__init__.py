"""Counts messages that are stored and given: in all, by topic and by group."""
