"""Consumer groups: their settings; how they are created, changed and deleted."""
