"""Resets of the offsets of consumer groups."""
