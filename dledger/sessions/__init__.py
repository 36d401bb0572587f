"""Exactly-once appends: the table of sessions, its entries, and the client's side."""
