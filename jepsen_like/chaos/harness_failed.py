"""What went wrong with a run itself."""

from __future__ import annotations


class HarnessFailed(Exception):
    """The run itself went wrong: its text says how. Nothing is known of the system."""
