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
    Recall,
    Recollection,
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_TERM = "the sender's term"


class MessageWords(NamedTuple):
    """The sender of a message, the moment, and the meaning of its fields, in the class's order."""

    sender: str
    moment: str
    fields: dict[str, str]


MESSAGES: dict[type[Message], MessageWords] = {
    VoteRequest: MessageWords(
        "pre-candidate, candidate",
        "to every other voter: its election timer fired (`pre`), it won the pre-vote, or its "
        "leader told it to stand. A request for a real vote leaves once its own vote is on disk",
        {
            "term": "the candidate's term; of a pre-vote the term it would begin",
            "last_index": "the last entry of its log",
            "last_term": "that entry's term",
            "pre": "only a question; a pre-vote is no promise",
            "handed_over": "its leader told it to stand, so voters that hear a leader vote too",
        },
    ),
    VoteResponse: MessageWords(
        "the member that was asked",
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
        "a peer's log has to change: see the phases below",
        {
            "term": _TERM,
            "phase": "what the push is for",
            "prev_index": "the entry before the push",
            "prev_term": "its term",
            "last_index": "of APPEND: its last entry; otherwise `prev_index`",
            "committed": "the leader's commit index",
            "next_term": "of TRUNCATE: the leader's term at `prev_index` + 1",
            "runs": "of APPEND: where each term begins, as term, first index, term, first index",
            "payload": "of APPEND: the entries, byte for byte as they lie on disk",
        },
    ),
    PushResponse: MessageWords(
        "follower, learner",
        "once the disk has what the answer acknowledges",
        {
            "term": _TERM,
            "phase": "that of the push",
            "ok": "done; no: the logs differ",
            "index": "the push's `prev_index`, or the end of what is acknowledged",
            "match": "the log agrees and is on this disk up to here: this counts for a commit",
            "verified": "the log agrees up to here, on disk or not",
            "last_index": "the end of the sender's log",
            "hint_index": "of a refusal: compare here next",
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
            "promised_ms": "how long, by its clock, it votes for no other; 0: no promise",
        },
    ),
    TimeoutNow: MessageWords(
        "leader", "it hands over, and the receiver has its whole log", {"term": _TERM}
    ),
    ReadRequest: MessageWords(
        "follower, learner",
        "a caller reads there; repeated until it is answered",
        {"term": _TERM, "number": "grows, and is never used again"},
    ),
    ReadResponse: MessageWords(
        "leader",
        "a quorum answered a round that began after the question came",
        {"term": _TERM, "number": "that of the question", "index": "the commit index of then"},
    ),
    InstallSnapshot: MessageWords(
        "leader",
        "a peer lacks entries before the beginning of the leader's log",
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
        "a piece is in the file, or the offer is accepted or refused",
        {
            "term": _TERM,
            "outcome": "1 receiving, 2 agrees: append from where the log begins, 3 refused",
            "index": "with the next two: which offer is answered",
            "snapshot_term": "",
            "chain": "",
            "received": "bytes in the file",
        },
    ),
    Inquiry: MessageWords(
        "member in doubt",
        "its folder is new, was emptied, or lost something; until it is proven",
        {"term": _TERM, "number": "drawn anew at each start of the process"},
    ),
    InquiryAnswer: MessageWords(
        "every member",
        "at once",
        {
            "term": _TERM,
            "number": "that of the inquiry",
            "last_index": "the end of the log; a leader's when it first saw this number",
            "is_new": "the sender's own folder is new",
            "proven": "the sender's folder has lost no promise",
            "leads": "the sender leads",
            "voters": "number of voters; 0: unknown",
        },
    ),
    Reminder: MessageWords(
        "leader",
        "a member refused what it had acknowledged: an old answer, or its disk lost something",
        {"term": _TERM, "acknowledged": "how far that member has acknowledged the log"},
    ),
    Recall: MessageWords(
        "a member that starts",
        "to all other voters: what do they remember of its promises?",
        {"term": _TERM, "number": "drawn when the process started"},
    ),
    Recollection: MessageWords(
        "any member",
        "the answer to a recall",
        {
            "term": _TERM,
            "number": "of the question",
            "promised": "the highest term that the asker is known to have been in; -1: none",
            "voted": "whether it voted in that term for the member that answers",
            "held": "the last committed entry that it is known to have acknowledged; -1: none",
        },
    ),
}


class OperationWords(NamedTuple):
    """A request of clients: its numbers and payload, and the answer."""

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
    "query": OperationWords(
        "0 for the newest state, 1 for that of the member; 1 + the most ms that it may be old, or "
        "0; 2 + an entry that it has to include, or 0; wait in ms for that",
        "msgpack: the name and the arguments",
        "value: `[index, member]`; payload: the result, in msgpack",
    ),
    "watch": OperationWords(
        "2 + the entry after which changes are asked for, or 0 for the state; wait in ms",
        "msgpack: the parts of the path",
        "value: `[kind, index up to which this is all, leader]`; payload in msgpack: for kind 0 "
        "`[index, path, value]` a change and `[index, path]` a removal, for kind 1, the state, "
        "each path and its value",
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
