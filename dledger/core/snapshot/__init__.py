"""Snapshots between members: offered, sent and taken in."""
