"""The members of a group, and how a group changes."""
