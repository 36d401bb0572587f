"""The connected members of consumer groups."""
