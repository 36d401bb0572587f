"""Queries: messages by a key, or by the unique key that each has, and the index that finds them."""
