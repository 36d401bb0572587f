"""The error of a run that itself went wrong."""

from __future__ import annotations

from dledger.declared_error import DeclaredError


class HarnessFailed(DeclaredError):
    """The run itself went wrong: its text says how. Nothing is known of the system."""

    problem: str
