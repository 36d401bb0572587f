"""Consumers that pull: what they subscribe to, read, call the listener with, and commit."""
