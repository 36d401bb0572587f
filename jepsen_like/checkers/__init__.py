"""Checkers: each reads a history and says whether a promise was kept. See docs/checkers.md."""
