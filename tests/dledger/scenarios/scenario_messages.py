"""How scenarios name messages: a kind, a detail, who sends it and who is to get it."""

from __future__ import annotations

import re
from typing import NamedTuple

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    Recall,
    Recollection,
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

ANYBODY = "*"

_PUSHES = ("compare", "truncate", "append", "commit")
_ASKED = ("pre-vote", "vote", "heartbeat", "read", "snapshot", "inquiry", *_PUSHES)

KINDS = frozenset({"stand", "reminder", *_ASKED, *(f"{kind}-answer" for kind in _ASKED)})

_DETAIL = re.compile(r"[0-9]+(?:-[0-9]+)?|none|yes|no")
_FORM = "[first|last] [KIND [DETAIL]] [NAME > NAME]"


# A member that is still receiving says how many bytes it has.
_SNAPSHOT_ANSWERS = {InstallOutcome.AGREES: "yes", InstallOutcome.REFUSED: "no"}


class Sent(NamedTuple):
    """A message on its way."""

    sender: str
    receiver: str
    message: Message

    @property
    def kind(self) -> str:
        """What a scenario calls it."""
        return kind_of(self.message)

    @property
    def text(self) -> str:
        """Kind and detail."""
        detail = detail_of(self.message)
        return f"{self.kind} {detail}" if detail else self.kind


class Pattern(NamedTuple):
    """Which messages are meant: `first append 4-5 n1 > n2`, or any part of that."""

    which: str | None
    kind: str | None
    detail: str | None
    sender: str
    receiver: str

    def matches(self, sent: Sent) -> bool:
        """Whether this message is one of them (`first` and `last` left aside)."""
        return (
            self.kind in (None, sent.kind)
            and self.detail in (None, detail_of(sent.message))
            and self.sender in (ANYBODY, sent.sender)
            and self.receiver in (ANYBODY, sent.receiver)
        )


def parse_pattern(text: str) -> Pattern:
    """Read a pattern; an empty one means every message. Raises ValueError."""
    words = text.split()
    sender = receiver = ANYBODY
    if len(words) >= 3 and words[-2] == ">":
        sender, _, receiver = words[-3:]
        del words[-3:]
    which = words.pop(0) if words and words[0] in ("first", "last") else None
    kind = words.pop(0) if words else None
    detail = words.pop(0) if words else None
    if kind is not None and kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of message: {', '.join(sorted(KINDS))}")
    if words or (detail is not None and _DETAIL.fullmatch(detail) is None):
        raise ValueError(f"the form is: {_FORM}")
    return Pattern(which, kind, detail, sender, receiver)


def kind_of(message: Message) -> str:
    """What a scenario calls such a message."""
    match message:
        case VoteRequest():
            return "pre-vote" if message.pre else "vote"
        case VoteResponse():
            return "pre-vote-answer" if message.pre else "vote-answer"
        case PushRequest():
            return message.phase.name.lower()
        case PushResponse():
            return f"{message.phase.name.lower()}-answer"
        case Heartbeat():
            return "heartbeat"
        case HeartbeatResponse():
            return "heartbeat-answer"
        case TimeoutNow():
            return "stand"
        case ReadRequest():
            return "read"
        case ReadResponse():
            return "read-answer"
        case InstallSnapshot():
            return "snapshot"
        case InstallSnapshotResponse():
            return "snapshot-answer"
        case Inquiry():
            return "inquiry"
        case InquiryAnswer():
            return "inquiry-answer"
        case Reminder():
            return "reminder"
        case Recall():
            return "recall"
        case Recollection():
            return "recollection"


def detail_of(message: Message) -> str:
    """The one thing about it that scenarios look at."""
    match message:
        case VoteResponse():
            return "yes" if message.granted else "no"
        case PushRequest() if message.phase is Phase.APPEND:
            first, last = message.prev_index + 1, message.last_index
            return f"{first}" if first == last else f"{first}-{last}"
        case PushRequest() if message.phase is Phase.COMMIT:
            return index_text(message.committed)
        case PushRequest():
            return index_text(message.prev_index)
        case PushResponse() if not message.ok:
            return "no"
        case PushResponse() if message.phase is Phase.APPEND:
            return index_text(message.match)
        case PushResponse():
            return "yes"
        case Heartbeat():
            return index_text(message.committed)
        case ReadResponse():
            return index_text(message.index)
        case InstallSnapshot():
            return f"{message.offset}" if message.length else "none"
        case InstallSnapshotResponse():
            return _SNAPSHOT_ANSWERS.get(message.outcome) or f"{message.received}"
        case _:
            return ""


def index_text(index: int) -> str:
    """How scenarios write an index: `none` is the one before the first."""
    return "none" if index < 0 else str(index)
