"""Topics: their names and settings; how they are created, changed and deleted."""
