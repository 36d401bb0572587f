"""One run of a service as data: the group, and everything that clients and faults do to it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from dledger.renamed import renamed_fields
from jepsen_like.chaos.service import Call

# The name of whichever member leads; if none leads, nothing happens.
LEADER = "leader"


# An entry of a client whose calls are not known before the run has at most so many bytes.
ADAPTIVE_BODY_BYTES = 1024
# Segments are made for bodies of this size at least.
LEAST_BODY_BYTES = 64


class Do(StrEnum):
    """What a step does. Faults end after `Step.for_s` seconds."""

    APPEND = "append"
    READ = "read"
    TURN = "turn"  # the client makes its next call, unless it waits for an answer
    KILL = "kill"  # the process ends; what it wrote stays
    CUT_POWER = "cut power"  # the machine stops; what was not synced may be lost
    CLOSE = "close"  # the member is closed in order
    FREEZE = "freeze"  # the process stands still
    CUT_OFF = "cut off"  # no message gets to the member or from it
    MUTE = "mute"  # messages from it are lost, and it hears the others
    FAIL_SYNC = "fail sync"  # the next sync of its disk fails, and ends its process
    TRANSFER = "transfer"  # it is asked to give up leadership


class Step(NamedTuple):
    """One thing that happens.

    The calls of clients that adapt are not part of it: they follow from the answers.

    Attributes:
        at_s: when, in virtual seconds.
        do: what.
        member: to which one. Several that are cut off together stand with blanks between.
        for_s: how long a fault lasts, in virtual seconds.
        body: of an append.
        call: what the append or the read is in the words of a service for `jepsen-like run`.
        client: the number of the client that makes this call; it makes one at a time.
    """

    at_s: float
    do: str
    member: str = LEADER
    for_s: float = 0.0
    body: bytes = b""
    call: Call | None = None
    client: int = 0

    @property
    def entry(self) -> bytes:
        """The body of the appended entry."""
        return self.body if self.call is None else self.call.entry

    @property
    def is_fault(self) -> bool:
        """Whether it breaks something."""
        return self.do not in (Do.APPEND, Do.READ, Do.TURN)

    @property
    def ends_s(self) -> float:
        """When a fault is over."""
        return self.at_s + self.for_s

    def __str__(self) -> str:
        words = [f"{self.at_s:.3f} s: {self.do}"]
        if self.call is not None:
            words.append(f"{self.call.function} {self.call.value!r} of {self.call.key!r} at")
        elif self.do == Do.APPEND:
            words.append(f"{self.body!r} at")
        elif self.do == Do.TURN:
            words.append(f"of client {self.client}, reads at")
        words.append(self.member)
        if self.for_s:
            words.append(f"for {self.for_s:.3f} s")
        return " ".join(words)


@renamed_fields(seconds="length_s")
class Schedule(NamedTuple):
    """A run of a service. Equal schedules give equal runs.

    Attributes:
        seed: decides on the speed of network and disks, and on election timeouts.
        nodes: how many members.
        length_s: of virtual time; then everything is put right, and the end is checked.
        steps: what happens meanwhile, in the order of their times.
    """

    seed: int
    nodes: int
    length_s: float
    steps: Sequence[Step]

    @property
    def largest_body_bytes(self) -> int:
        """The length of the longest body, rounded up to a power of two."""
        longest = max((len(step.entry) for step in self.steps), default=0)
        if any(step.do == Do.TURN for step in self.steps):
            longest = max(longest, ADAPTIVE_BODY_BYTES)
        return 1 << max(longest - 1, LEAST_BODY_BYTES - 1).bit_length()

    @property
    def faults(self) -> int:
        """How many steps break something."""
        return sum(step.is_fault for step in self.steps)
