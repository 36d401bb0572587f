"""The decision table of recovery, as it stands in the code."""

from __future__ import annotations

from dledger.store.recovery_table import TABLE
from docs._ext.message_tables import table

_WORDS = {True: "yes", False: "no", None: ""}


def recovery() -> str:
    """The rows, tried from the top."""
    return table(
        (
            "an intact entry that follows",
            "up to `committed`",
            "up to the synced mark",
            "looks unfinished",
            "intact entries behind",
            "",
            "because",
        ),
        [
            (*(_WORDS[fact] for fact in row[:5]), row.verdict.name.lower(), row.reason)
            for row in TABLE
        ],
    )
