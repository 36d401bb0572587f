"""Offsets: what consumer groups have committed, and questions about offsets of queues."""
