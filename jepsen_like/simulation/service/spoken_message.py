"""A message in a few words, for a picture."""

from __future__ import annotations

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

# Messages that only show that all is well, and those of members that have just started.
IDLE = ("heartbeat", "alive", "what do you have?", "what I have")


def spoken(message: Message) -> str:
    """Return the meaning of a message in a few words."""
    match message:
        case VoteRequest():
            return f"{'pre-vote' if message.pre else 'vote'}? term {message.term}"
        case VoteResponse():
            what = "pre-vote" if message.pre else "vote"
            return f"{what}: {'yes' if message.granted else 'no'}"
        case PushRequest() if message.payload:
            first, last = message.prev_index + 1, message.last_index
            return f"entry {first}" if first == last else f"entries {first}-{last}"
        case PushRequest():
            return f"{message.phase.name.lower()} at {message.prev_index}"
        case PushResponse():
            return f"has {message.match}" if message.ok else f"differs at {message.index}"
        case Heartbeat():
            return IDLE[0]
        case HeartbeatResponse():
            return IDLE[1]
        case InstallSnapshot():
            return "snapshot"
        case InstallSnapshotResponse():
            return f"snapshot: {message.outcome.name.lower()}"
        case ReadRequest():
            return "read?"
        case ReadResponse():
            return f"read at {message.index}"
        case TimeoutNow():
            return "stand now"
        case Inquiry():
            return IDLE[2]
        case InquiryAnswer():
            return IDLE[3]
        case _:
            return type(message).__name__.lower()
