"""The advice in the last words of a member, and whether it works.

An operator follows the advice of an error message. So does the harness: a message whose advice does
not bring the member back is a finding about the message, or about the member.
"""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    START = "start it again"
    REPAIR = "dledger repair --from the folder of another member"
    REJOIN = "dledger rejoin"
    EMPTY_FOLDER = "start it on an empty folder"
    JOIN = "start it with joining"
    FREE_DISK = "free the disk, then start it again"
    NONE = "no remedy is known for these words"


# Texts of messages, and the remedies that they name, in order.
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

# Errors that no fault of a run explains: they are findings, whatever they advise.
_BUGS = ("NodeFailed:", "InvariantBroken:", "MachineFailed:", "RestoreFailed:", "Traceback")
_STOPPED = "stopped: "


def last_words(log: str) -> str:
    """Return the error that ended a member: the last line of its log with a word.

    Python draws frames around several errors; lines of frames have no words.
    """
    lines = [line.strip(" |") for line in log.splitlines() if line.strip(" |+-")]
    if not lines:
        return ""
    _, found, words = lines[-1].partition(_STOPPED)
    return words if found else lines[-1]


def remedies(words: str) -> tuple[Remedy, ...]:
    """Return the remedies that the words advise, to be tried in this order."""
    for text, found in _WORDS:
        if text in words:
            return found
    return (Remedy.NONE,)


def is_bug(log_end: str) -> bool:
    """Return whether the end of a log shows an error that must never happen, fault or not."""
    return any(mark in log_end for mark in _BUGS)
