"""Consumers that pull: subscriptions, reading, calls of the listener, commits."""
