"""Locks of ordered consumers: at most one client consumes a queue."""
