"""The decision table of recovery: what happens to a record. Pure.

The rows are tried from the top; the first whose columns all agree decides. None in a column agrees
with both values. docs/storage-format.md says why no row cuts an acknowledged entry silently.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from dledger.store.walk import Findings


class Verdict(Enum):
    """What happens to a record and all that follows it."""

    KEEP = auto()  # the entry is part of the log; the walk goes on
    CUT = auto()  # the log ends before the record; the rest is zeroed
    CUT_AND_MARK = auto()  # cut, and mark the folder: acknowledged entries may be lost
    REFUSE = auto()  # the files stay as they are, and the store does not open


class Evidence(NamedTuple):
    """The facts about a record."""

    findings: Findings
    recorded: bool  # its index is recorded as committed
    synced: bool  # the synced mark says that its entry was durable here
    unfinished: bool  # it looks like a write that a crash interrupted
    intact_behind: bool  # an intact entry that could follow the log lies after it


class Row(NamedTuple):
    """One row: what must agree, the verdict, and the reason."""

    intact: bool | None
    recorded: bool | None
    synced: bool | None
    unfinished: bool | None
    intact_behind: bool | None
    verdict: Verdict
    reason: str

    def agrees(self, evidence: Evidence) -> bool:
        facts = (
            all(evidence.findings),
            evidence.recorded,
            evidence.synced,
            evidence.unfinished,
            evidence.intact_behind,
        )
        return all(want is None or want == fact for want, fact in zip(self[:5], facts, strict=True))


_COMMITTED = "entries from here on are recorded as committed"
_SYNCED = "an entry that was synced is broken"

TABLE = (
    Row(True, None, None, None, None, Verdict.KEEP, "an intact entry that follows the one before"),
    Row(False, True, None, None, None, Verdict.REFUSE, _COMMITTED),
    Row(False, False, None, False, True, Verdict.REFUSE, "intact entries follow the broken one"),
    Row(False, False, True, True, None, Verdict.CUT_AND_MARK, _SYNCED),
    Row(False, False, True, False, False, Verdict.CUT_AND_MARK, _SYNCED),
    Row(False, False, False, True, None, Verdict.CUT, "a write that was not synced is incomplete"),
    Row(False, False, False, False, False, Verdict.CUT, "a torn write at the log's end"),
)


def decide(evidence: Evidence) -> Row:
    return next(row for row in TABLE if row.agrees(evidence))
