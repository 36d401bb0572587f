"""Consumer groups: their settings, and how they are made, changed and deleted."""
