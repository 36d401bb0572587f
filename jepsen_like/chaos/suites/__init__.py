"""Suites: many runs, one after another, and a table of their results."""
