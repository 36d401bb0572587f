"""Topics: their names and settings, how they are made, changed and deleted."""
