"""Retention: how long messages are kept, and what happens when the disk is full."""
