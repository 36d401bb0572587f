"""Offsets that consumer groups have committed, and requests about the offsets of queues."""
