"""Tables of the wire, observed: each message is encoded, and what its fields move is looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

from dledger.config import Address
from dledger.core import entry_dispatcher, round_trip
from dledger.core.ledger_view import TermRun
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
from dledger.core.snapshot import snapshot_offer
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.store.birth_record import voters_sum
from dledger.wire import client_protocol, codec, frame
from dledger.wire.channel_protocol import (
    Opening,
    encode_channel_refused,
    encode_closing,
    encode_opened,
    encode_opening,
)
from dledger.wire.frame import Frame, FrameDecoder
from dledger.wire.group_identity import GroupIdentity
from dledger.wire.handshake import Caller, Hello, encode_hello, encode_refused, encode_welcome
from docs._ext.message_words import MESSAGES, OPERATIONS

KIND_MASK = (1 << codec.CHANNEL_SHIFT) - 1

_SOME_GROUP = GroupIdentity(
    voters_sum=voters_sum(["n0", "n1", "n2"]), birth="5f0c83b2a94d17e6c2d84b7f3a9160ed"
)
_BEGIN = LogBegin(before_index=18, before_term=2, before_chain=7, pos=64)
SAMPLES: tuple[Message, ...] = (
    VoteRequest(7, 41, 6, False, False),
    VoteResponse(7, False, False, 40, 6),
    PushRequest(7, Phase.COMPARE, 40, 6, 41, 39, 5, (TermRun(7, 41),), b"entries"),
    PushResponse(7, Phase.COMPARE, False, 40, 39, 38, 42, 37, 4, False),
    Heartbeat(7, 41, 12),
    HeartbeatResponse(7, 12, 500),
    TimeoutNow(7),
    ReadRequest(7, 3),
    ReadResponse(7, 3, 41),
    InstallSnapshot(7, SnapshotOffer(20, 3, 8, 250, _BEGIN), 100, 5, 9, b"piece"),
    InstallSnapshotResponse(7, InstallOutcome.RECEIVING, 20, 3, 8, 100),
    Inquiry(7, 99),
    InquiryAnswer(7, 99, 41, False, False, False, 3),
    Reminder(7, 41),
    Recall(7, 99),
    Recollection(7, 99, 6, True, 41),
)


class Field(NamedTuple):
    """A field as it travels: its place in the header behind the kind; None: it is the payload."""

    name: str
    place: int | None
    type: str


def sent_as(message: Message) -> Frame:
    """The frame of a message."""
    payload = getattr(message, "payload", b"")
    (found,) = FrameDecoder().feed(codec.encode_message(message, payload))
    return codec.behind_newer(found) if found.header[0] == codec.NEWER else found


def kind_of(message: Message) -> int:
    """The number of its kind."""
    number = sent_as(message).header[0]
    assert isinstance(number, int)
    return number & KIND_MASK


def fields_of(message: Message) -> list[Field]:
    """The fields of a message, in the order in which they travel."""
    before = sent_as(message)
    found: list[Field] = []
    for name, other in variations(message):
        after = sent_as(other)
        if after.payload != before.payload:
            found.append(Field(name, None, "bytes"))
            continue
        moved = [
            place
            for place, (one, two) in enumerate(zip(before.header, after.header, strict=True))
            if one != two
        ]
        found += [Field(name, place, _type(before.header[place], name)) for place in moved]
    return sorted(found, key=lambda field: (field.place is None, field.place or 0))


def variations(message: Message) -> Iterator[tuple[str, Message]]:
    """The message with one field changed, for each field that travels."""
    for name, value in zip(message._fields, message, strict=True):
        if isinstance(value, SnapshotOffer):
            yield from _of_offer(message, value)
        elif name not in ("facts", "changes", "contradicts"):  # found by the receiver
            yield name, _changed(message, name, _other(value))


def _of_offer(message: Message, offer: SnapshotOffer) -> Iterator[tuple[str, Message]]:
    for name, value in zip(offer._fields, offer, strict=True):
        if isinstance(value, LogBegin):
            for inner, number in zip(value._fields, value, strict=True):
                begin = _changed(value, inner, number + 1)
                yield inner, _changed(message, "offer", offer._replace(begin=begin))
        else:
            named = "snapshot_term" if name == "term" else name
            yield named, _changed(message, "offer", _changed(offer, name, _other(value)))


def _changed(fields: Any, name: str, value: object) -> Any:
    """A named tuple with another value in one field."""
    return fields._replace(**{name: value})


def _other(value: object) -> object:
    match value:
        case bool():
            return not value
        case Phase.COMPARE:
            return Phase.TRUNCATE
        case InstallOutcome.RECEIVING:
            return InstallOutcome.AGREES
        case int():
            return value + 1
        case bytes():
            return value + b"."
        case tuple():
            return (*value, TermRun(9, 44))
        case _:
            raise TypeError(f"no other value than {value!r} is known")


def _type(value: object, name: str) -> str:
    if name in ("phase", "outcome"):
        return "integer, by name"
    return {bool: "boolean", int: "integer", list: "list of integers"}[type(value)]


# --- tables in Markdown ---------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def peer_messages() -> str:
    """Every message between members: kind, name, sender and moment."""
    rows = [
        (f"{kind_of(sample)}", f"`{type(sample).__name__}`", *MESSAGES[type(sample)][:2])
        for sample in sorted(SAMPLES, key=kind_of)
    ]
    return table(("kind", "message", "from", "when"), rows)


def peer_fields() -> str:
    """A table for each message, with each of its fields."""
    parts = []
    for sample in sorted(SAMPLES, key=kind_of):
        name, words = type(sample).__name__, MESSAGES[type(sample)].fields
        rows = [
            (
                "payload" if field.place is None else field.place,
                f"`{field.name}`",
                field.type,
                words[field.name],
            )
            for field in fields_of(sample)
        ]
        parts.append(f"**{kind_of(sample)}: {name}**\n")
        parts.append(table(("place", "field", "type", "meaning"), rows))
    return "\n".join(parts)


def shared_kinds() -> str:
    """The two kinds of frames that hold what many groups say."""
    rows = [
        (codec.SHARED_HEARTBEATS, "heartbeats of many channels", Heartbeat._fields),
        (codec.SHARED_RESPONSES, "their answers", HeartbeatResponse._fields),
    ]
    return table(
        ("kind", "holds", "of each"),
        [(kind, words, ", ".join(("channel", *fields))) for kind, words, fields in rows],
    )


def phases() -> str:
    """The phases by number."""
    return table(("number", "phase"), [(int(phase), phase.name) for phase in Phase])


def first_frames() -> str:
    """What opens a connection and its channels, as it is sent."""
    there = Address("10.0.0.1", 20911)
    rows = [
        (encode_hello(Hello(Caller.PEER, address=there)), "caller", "a process with members"),
        (
            encode_hello(Hello(Caller.CLIENT, "orders", "n1")),
            "caller",
            "a client: the group it means, and the member, or an empty text for any",
        ),
        (
            encode_welcome("n1"),
            "called",
            "accepted; names the member to a client, and the address to a peer",
        ),
        (
            encode_refused("this is a node of bills, not of group orders", True, ["bills"]),
            "called",
            "refused: the reason, whether it lasts, and the groups that are here",
        ),
        (
            encode_opening(Opening(1, "orders", "n0", "n1", _SOME_GROUP)),
            "peer that called",
            "channel 1: group, sender, receiver, generation and mark, first voters, birth",
        ),
        (encode_opened(1), "called", "the channel takes messages"),
        (encode_channel_refused(1, "there is no member"), "called", "none may, now or any more"),
        (encode_closing(1), "peer that called", "the channel is not needed any more"),
    ]
    return table(
        ("header", "from", "meaning"),
        [(f"`{_shown(encoded)}`", sender, words) for encoded, sender, words in rows],
    )


def _shown(encoded: bytes) -> str:
    (found,) = FrameDecoder().feed(encoded)
    return json.dumps(found.header)


def client_operations() -> str:
    """The requests of clients and their answers."""
    return table(
        ("operation", "numbers", "payload", "answer"),
        [
            (f"`{operation}`", *OPERATIONS.get(operation, ("", "", "")))
            for operation in client_protocol.Operation
        ],
    )


def limits() -> str:
    """The limits of both protocols, with their values."""
    mib, kib = 1024 * 1024, 1024
    rows = [
        ("a frame", f"{frame.MAX_FRAME_BYTES / mib:.2f} MiB", "the largest entry and a header"),
        ("a header", f"{frame.MAX_HEADER_BYTES:,} bytes", "the term runs of a batch"),
        (
            "pushes on their way to a peer",
            entry_dispatcher.MAX_BATCHES_IN_FLIGHT,
            "a push of one large entry counts as many",
        ),
        (
            "a push without an answer",
            f"{round_trip.LEAST_WAIT_S * 1000:g} ms beyond the measured round trip",
            f"at most {round_trip.MOST_WAIT_S:g} s; then the logs are compared anew",
        ),
        ("a piece of a snapshot", f"{snapshot_offer.PIECE_BYTES // kib} KiB", ""),
        ("bodies in one question", f"{client_protocol.MAX_BODIES:,}", ""),
        (
            "questions of one connection that a node works on",
            f"{client_protocol.MAX_OPEN_REQUESTS:,}, {client_protocol.MAX_OPEN_BYTES // mib} MiB",
            "beyond that it reads no further",
        ),
        (
            "entries in one answer",
            f"{client_protocol.MAX_ENTRIES_BYTES // mib} MiB",
            "or one larger entry",
        ),
        (
            "wait for an entry that is not there yet",
            f"{client_protocol.MAX_WAIT_MS // 1000} s",
            "longer ones are cut to this",
        ),
    ]
    return table(("what", "limit", ""), rows)


def all_messages() -> set[type]:
    """Every class of message that members exchange."""
    return set(get_args(Message))
