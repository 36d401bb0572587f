"""Queries of messages by a key or by their unique key, and the tasks that keep the key index."""
