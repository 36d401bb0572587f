"""Queries of the data source: the entries that they read, and their division among tasks."""
