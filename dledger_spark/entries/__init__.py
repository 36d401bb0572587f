"""Entries of a log as Arrow columns, and their sums."""
