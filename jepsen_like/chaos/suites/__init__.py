"""Suites: many runs, one after another, and a table of what came of them."""
