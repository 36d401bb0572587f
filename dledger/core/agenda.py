"""What a member has to do: the steps of its next turn, and when it must look at the clock.

A part that has something to do marks its step; a turn visits the marked steps alone. So a part that
is quiet costs a turn nothing, however many parts there are. The order of the steps is that of the
paper: receive, write, send, sync, apply. The turn always goes on with the first step that is
marked: the acknowledgement that a follower's sync allows leaves before anything is applied.
"""

from __future__ import annotations

from typing import Final

# The steps of a turn, in their order.
RECEIVE: Final = 1 << 0  # messages, finished syncs and the like have arrived
TICK: Final = 1 << 1  # a deadline has passed, or a part wants to look at the clock
INSTALL: Final = 1 << 2  # pieces of a snapshot have arrived, or were written
WRITE: Final = 1 << 3  # the log, or the record of promises, has to be written
PROPOSE: Final = 1 << 4  # submissions wait
CONFIRM: Final = 1 << 5  # reads wait to be confirmed
REPLICATE: Final = 1 << 6  # a follower may be sent something
ASK: Final = 1 << 7  # a question about this member's own promises may be due
SEND: Final = 1 << 8  # messages wait in the outbox
# A follower syncs before it applies, because the leader waits for its acknowledgement. A leader
# applies first: its callers wait for that, and its followers for nothing.
FOLLOWER_SYNC: Final = 1 << 9
TELL: Final = 1 << 10  # something changed that others watch: roles, reads, the group
APPLY: Final = 1 << 11  # entries can be applied
LEADER_SYNC: Final = 1 << 12
PLAN: Final = 1 << 13  # all deadlines have to be looked at

ALL: Final = -1

_NEVER = float("inf")


class Agenda:
    """The agenda of one member. All its parts share it.

    Attributes:
        due: the steps that the present turn, or the next one, visits.
        later: steps that the turn after that begins with: parts put theirs here that want to be
            visited once a turn.
        wakes_at: when the next turn is due at the latest, in seconds by the member's patience. A
            part lowers it when its own deadline is earlier. A deadline that was put off is found
            when this time comes, and all deadlines are looked at.
    """

    __slots__ = ("due", "later", "wakes_at")

    def __init__(self) -> None:
        self.due = 2 * PLAN - 1  # a member that starts looks at everything once
        self.later = 0
        self.wakes_at = _NEVER

    def wake_by(self, at: float) -> None:
        """Have a turn taken at `at`, or earlier."""
        self.wakes_at = min(self.wakes_at, at)
