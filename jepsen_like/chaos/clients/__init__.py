"""The clients of a run, which record its history."""
