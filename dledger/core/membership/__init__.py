"""Who belongs to a group, and how that changes."""
