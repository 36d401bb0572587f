"""Simulates a group that runs a user's own state machine."""
