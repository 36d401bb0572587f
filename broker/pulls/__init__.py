"""Pulls: messages for consumers, at once or when they arrive."""
