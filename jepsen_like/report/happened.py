"""One event of a simulated run, as a picture needs it."""

from __future__ import annotations

from typing import NamedTuple


class Happened(NamedTuple):
    """One event.

    Attributes:
        at_s: when, in virtual seconds.
        kind: "sent", "arrived", "lost", "role", "committed", "synced", "applied", "state" (up,
            down or frozen), "called", "answered", "note".
        who: the member; empty for events of messages that were sent before, and for notes.
        what: the rest in words.
        number: of a message, a call or an entry.
        to: the receiver of a message, or the member that a client calls.
    """

    at_s: float
    kind: str
    who: str
    what: str = ""
    number: int = 0
    to: str = ""
