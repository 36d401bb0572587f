"""What the last words of a member advise, and whether it works.

An operator does what an error message says. So does the harness: a message whose advice does not
bring the member back is a finding about the message, or about the member.
"""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    """What is done with a member that ended by itself."""

    START = "start it again"
    REPAIR = "dledger repair --from the folder of another member"
    REJOIN = "dledger rejoin"
    EMPTY_FOLDER = "start it on an empty folder"
    JOIN = "start it with joining"
    FREE_DISK = "free the disk, then start it again"
    NONE = "no remedy is known for these words"


# What messages say, and the remedies that they name, the first of them first.
_WORDS: tuple[tuple[str, tuple[Remedy, ...]], ...] = (
    ("`dledger repair`", (Remedy.REPAIR, Remedy.REJOIN)),
    ("`dledger rejoin`", (Remedy.REJOIN,)),
    ("start it with --join", (Remedy.JOIN,)),
    ("free or replace the disk", (Remedy.FREE_DISK,)),
    ("free some of", (Remedy.FREE_DISK,)),
    ("repair or replace it", (Remedy.FREE_DISK,)),
    ("mount it for writing", (Remedy.FREE_DISK,)),
    ("in an empty folder", (Remedy.EMPTY_FOLDER,)),
    ("with an empty folder", (Remedy.EMPTY_FOLDER,)),
    ("give it an empty one", (Remedy.EMPTY_FOLDER,)),
    ("from another member", (Remedy.EMPTY_FOLDER,)),
    ("then start the node again", (Remedy.START,)),
    ("then start again", (Remedy.START,)),
    ("start it again, and report", (Remedy.START,)),
    ("stop the process that listens there", (Remedy.START,)),
)

# Errors that no fault of a run explains: they are findings by themselves, whatever they advise.
_BUGS = ("NodeFailed:", "InvariantBroken:", "MachineFailed:", "RestoreFailed:", "Traceback")
_STOPPED = "stopped: "


def last_words(log: str) -> str:
    """What ended a member, from the end of its log: the last line that says something.

    The frames that Python draws around several errors say nothing.
    """
    lines = [line.strip(" |") for line in log.splitlines() if line.strip(" |+-")]
    if not lines:
        return ""
    _, found, words = lines[-1].partition(_STOPPED)
    return words if found else lines[-1]


def remedies(words: str) -> tuple[Remedy, ...]:
    """What the words advise, to be tried in this order."""
    for text, found in _WORDS:
        if text in words:
            return found
    return (Remedy.NONE,)


def is_bug(log_end: str) -> bool:
    """Whether the end of a log shows an error that must never happen, fault or not."""
    return any(mark in log_end for mark in _BUGS)
