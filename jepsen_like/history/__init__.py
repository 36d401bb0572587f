"""Histories: clients' calls, their times, and their answers. See docs/histories.md."""
