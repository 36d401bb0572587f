"""Histories: what clients called, when, and what they were told. See docs/histories.md."""
