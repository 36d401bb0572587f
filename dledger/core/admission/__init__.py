"""Members whose disk may have lost promises."""
