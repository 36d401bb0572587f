"""Consume queues in files, and the key index: where the messages of a queue, or with a key, lie."""
