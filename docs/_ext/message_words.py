"""What the messages and their fields mean, in words. A test finds what is missing."""

from __future__ import annotations

from typing import NamedTuple

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
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_TERM = "the sender's term"


class MessageWords(NamedTuple):
    """Who sends a message when, and what its fields say, in the order of its class."""

    sender: str
    moment: str
    fields: dict[str, str]


MESSAGES: dict[type[Message], MessageWords] = {
    VoteRequest: MessageWords(
        "pre-candidate, candidate",
        "to every other voter: its election timer fired (`pre`), it won the pre-vote, or its "
        "leader told it to stand. A request for a real vote leaves once the own vote is on disk",
        {
            "term": "the candidate's term; of a pre-vote the term it would begin",
            "last_index": "the last entry of its log",
            "last_term": "that entry's term",
            "pre": "only asks; binds nobody",
            "handed_over": "its leader told it to stand, so voters need not spare that leader",
        },
    ),
    VoteResponse: MessageWords(
        "whoever was asked",
        "at once for a pre-vote; for a vote once it is on disk",
        {
            "term": f"{_TERM}; a granted pre-vote repeats the term asked for",
            "granted": "yes or no",
            "pre": "answers a pre-vote",
            "committed": "of a refusal: how far the voter knows its log to be committed",
            "committed_term": "the term of that entry",
        },
    ),
    PushRequest: MessageWords(
        "leader",
        "whenever a peer's log has to move: see the phases below",
        {
            "term": _TERM,
            "phase": "what the push is for",
            "prev_index": "the entry that the push rests on",
            "prev_term": "its term",
            "last_index": "of APPEND: its last entry; else `prev_index`",
            "committed": "the leader's commit index",
            "next_term": "of TRUNCATE: the leader's term at `prev_index` + 1",
            "runs": "of APPEND: where each term begins, as term, first index, term, first index",
            "payload": "of APPEND: the entries, byte for byte as they lie on disk",
        },
    ),
    PushResponse: MessageWords(
        "follower, learner",
        "once what it says is true of its disk",
        {
            "term": _TERM,
            "phase": "that of the push",
            "ok": "done; no: the logs differ",
            "index": "the push's `prev_index`, or the end of what is acknowledged",
            "match": "agrees with the leader's log and is on this disk: what counts for a commit",
            "verified": "agrees, on disk or not",
            "last_index": "the end of the sender's log",
            "hint_index": "of a refusal: look here next",
            "hint_term": "the sender's term there",
            "proven": "whether the sender counts; no while it may have lost promises",
        },
    ),
    Heartbeat: MessageWords(
        "leader",
        "every `heartbeat_interval_ms` (100), and when a read needs a round",
        {
            "term": _TERM,
            "committed": "the leader's commit index",
            "round": "numbers the rounds, so that an answer confirms a read",
        },
    ),
    HeartbeatResponse: MessageWords(
        "follower, learner",
        "at once",
        {
            "term": _TERM,
            "round": "that of the heartbeat",
            "promised_ms": "it votes for nobody else for so long by its own clock; 0: no promise",
        },
    ),
    TimeoutNow: MessageWords(
        "leader", "it hands over, and the receiver has its whole log", {"term": _TERM}
    ),
    ReadRequest: MessageWords(
        "follower, learner",
        "somebody reads there; repeated until it is answered",
        {"term": _TERM, "number": "grows, and is never used again"},
    ),
    ReadResponse: MessageWords(
        "leader",
        "a quorum answered a round that began after the question came",
        {"term": _TERM, "number": "that of the question", "index": "was committed by then"},
    ),
    InstallSnapshot: MessageWords(
        "leader",
        "a peer lacks what the leader's log begins behind",
        {
            "term": _TERM,
            "index": "the last entry in the snapshot",
            "snapshot_term": "its term",
            "chain": "its chainCrc",
            "size": "bytes of the snapshot's file",
            "before_index": "the receiver's log is to begin behind this entry",
            "before_term": "its term",
            "before_chain": "its chainCrc",
            "pos": "the position where that log begins",
            "offset": "first byte of this piece",
            "length": "bytes in this piece; 0: it only asks how much is there",
            "crc": "CRC-32 of the piece",
            "payload": "the piece",
        },
    ),
    InstallSnapshotResponse: MessageWords(
        "follower, learner",
        "a piece is in the file, or the offer is settled",
        {
            "term": _TERM,
            "outcome": "1 receiving, 2 agrees: append from where the log begins, 3 refused",
            "index": "with the next two: which offer is answered",
            "snapshot_term": "",
            "chain": "",
            "received": "bytes that are there",
        },
    ),
    Inquiry: MessageWords(
        "member in doubt",
        "its folder is new, was emptied, or lost something; until it is proven",
        {"term": _TERM, "number": "drawn anew in each life of the process"},
    ),
    InquiryAnswer: MessageWords(
        "every member",
        "at once",
        {
            "term": _TERM,
            "number": "that of the inquiry",
            "last_index": "where the log ended; a leader's when it was first asked that",
            "is_new": "the sender's own folder is new",
            "proven": "the sender's folder holds all that was promised from it",
            "leads": "the sender leads",
            "voters": "how many voters there are; 0: it cannot tell",
        },
    ),
    Reminder: MessageWords(
        "leader",
        "a member refused what it had acknowledged: an old answer, or its disk lost something",
        {"term": _TERM, "acknowledged": "how far that member has acknowledged the log"},
    ),
}


class OperationWords(NamedTuple):
    """What a client can ask: the numbers and the payload of the question, and the answer."""

    numbers: str
    payload: str
    answer: str


OPERATIONS: dict[str, OperationWords] = {
    "status": OperationWords("", "", "value: a map, as `Node.status()`"),
    "leader": OperationWords(
        "1 + the term that the leader is to be above, wait in ms",
        "",
        "value: `[member, leader, term, ready, index of the configuration, {member: address}]`",
    ),
    "append": OperationWords(
        "size of each body",
        "the bodies",
        "value: `[first index, term, number of entries]`; payload: pos and size of the result (-1 "
        "for none) of each entry, as `>qi`, then the results",
    ),
    "entries": OperationWords(
        "first index, wait in ms, perhaps the most bytes",
        "",
        "value: `[index, term, pos, magic, size]` an entry; payload: the bodies",
    ),
    "transfer": OperationWords(
        "", "the member that shall lead, or nothing", "value: the new leader"
    ),
    "snapshot": OperationWords("", "", "value: `[index, term, size, path]`"),
    "change": OperationWords(
        "transition (0 automatic, 1 joint, 2 joint until told); then, if the change is for a "
        "certain configuration, its index + 1",
        "msgpack: `[kind, member]` or `[kind, member, address]` each; none: end the joint phase",
        "payload: the configuration in force then",
    ),
    "session_open": OperationWords(
        "ttl in ms", "", "value: `[kind, number, size]` an entry; payload: the results"
    ),
    "session_append": OperationWords(
        "session, sequence of the first body, answered, size of each body",
        "the bodies",
        "as above",
    ),
    "session_keep_alive": OperationWords("session", "", "as above"),
    "session_close": OperationWords("session", "", "as above"),
}
