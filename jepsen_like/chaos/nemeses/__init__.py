"""What breaks in a run, and when."""
