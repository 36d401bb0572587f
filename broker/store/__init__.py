"""Consume queues: which messages of the log belong to which queue, as files."""
