"""The present members of consumer groups, as they say themselves."""
