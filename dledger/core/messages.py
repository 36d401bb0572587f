"""What members of a group say to each other. Every message carries its sender's term.

A push carries the raw bytes of its entries as `payload`: the core passes them through and never
looks inside; the node fills them in before a push leaves and checks them when one arrives.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from dledger.core.ledger_view import TermRun
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM


class Phase(IntEnum):
    """What a leader is doing with one peer's log."""

    COMPARE = 1  # looking for the last index where the two logs agree
    TRUNCATE = 2  # having the peer drop what it has beyond that point
    APPEND = 3  # streaming entries
    COMMIT = 4  # nothing to stream: only the commit index moves
    INSTALL_SNAPSHOT = 5  # sending a snapshot: what the peer lacks is no longer in the log


class InstallOutcome(IntEnum):
    """How far a member is with a snapshot that its leader offers."""

    RECEIVING = 1  # it has the file up to `received`
    AGREES = 2  # its log agrees with the offer's beginning, installed or not: append from there
    REFUSED = 3  # it cannot take it; its log says why


class VoteRequest(NamedTuple):
    """A candidate asks for a vote (Raft 5.2), or whether it would get one (`pre`, thesis 9.6)."""

    term: int  # of a pre-vote: the term the candidate would start
    last_index: int
    last_term: int
    pre: bool
    handed_over: bool = False  # its leader told it to stand: voters need not spare that leader


class VoteResponse(NamedTuple):
    """The answer. A granted pre-vote repeats the term that was asked for and promises nothing.

    A refusal tells how far the voter knows its log to be committed, and the term of that entry: the
    candidate may have it, and not know that it is committed. If it brought a configuration in which
    the voter votes no more, nobody else may be left to tell.
    """

    term: int
    granted: bool
    pre: bool
    committed: int = BEFORE_FIRST_INDEX
    committed_term: int = NO_TERM


class PushRequest(NamedTuple):
    """A leader moves one peer's log: COMPARE, TRUNCATE, APPEND or COMMIT.

    `prev_index`/`prev_term` name the entry the push rests on. APPEND covers prev_index + 1 to
    `last_index`, whose terms are `runs`. TRUNCATE names in `next_term` the leader's term at
    prev_index + 1: only an entry that contradicts it is dropped.
    """

    term: int
    phase: Phase
    prev_index: int
    prev_term: int
    last_index: int
    committed: int
    next_term: int = NO_TERM
    runs: tuple[TermRun, ...] = ()
    payload: bytes = b""
    facts: object = None  # what the receiving node's check of the payload found; never sent
    changes: tuple[tuple[int, NumberedConfiguration], ...] = ()  # in the payload; never sent


class PushResponse(NamedTuple):
    """What became of a push.

    `index` repeats the push's prev_index (COMPARE, TRUNCATE, and every refusal) or is the end of
    what is acknowledged (APPEND). `match` is the highest index that agrees with the leader's log
    and is durable here; only that counts toward a commit. `verified` is the highest index that
    agrees, durable or not. A refusal says where to look next: the sender's entry `hint_index` of
    term `hint_term`.
    """

    term: int
    phase: Phase
    ok: bool
    index: int  # type: ignore[assignment]  # hides tuple.index
    match: int = BEFORE_FIRST_INDEX
    verified: int = BEFORE_FIRST_INDEX
    last_index: int = BEFORE_FIRST_INDEX
    hint_index: int = BEFORE_FIRST_INDEX
    hint_term: int = NO_TERM
    proven: bool = True  # else `match` tells how far it is, and counts for nothing


class Heartbeat(NamedTuple):
    """A leader is alive. `round` numbers the broadcasts, so that an answer confirms a read."""

    term: int
    committed: int
    round: int


class HeartbeatResponse(NamedTuple):
    """The receiver still follows: the leader was leader when it sent that round.

    For `promised_ms` of its own clock from then on it votes for nobody else; 0: no promise.
    """

    term: int
    round: int
    promised_ms: int = 0


class TimeoutNow(NamedTuple):
    """A leader hands over: the receiver has the whole log and is to stand at once."""

    term: int


class ReadRequest(NamedTuple):
    """A follower asks how far its reads have to wait. Numbers grow, and are never used again."""

    term: int
    number: int


class ReadResponse(NamedTuple):
    """The leader still led after that question came; `index` was committed by then."""

    term: int
    number: int
    index: int  # type: ignore[assignment]  # hides tuple.index


class InstallSnapshot(NamedTuple):
    """A leader sends `length` bytes of a snapshot's file from `offset` on; 0: it only asks.

    The core says which bytes; the node fills in `payload` and its CRC-32.
    """

    term: int
    offer: SnapshotOffer
    offset: int
    length: int
    crc: int = 0
    payload: bytes = b""


class InstallSnapshotResponse(NamedTuple):
    """What became of the offer of the snapshot (`index`, `snapshot_term`, `chain`)."""

    term: int
    outcome: InstallOutcome
    index: int  # type: ignore[assignment]  # hides tuple.index
    snapshot_term: int
    chain: int
    received: int = 0

    @property
    def identity(self) -> tuple[int, int, int]:
        """That of the offer."""
        return self.index, self.snapshot_term, self.chain


class Inquiry(NamedTuple):
    """A member whose folder is new or was emptied asks what it may have forgotten: see Admission.

    `number` is drawn anew in each life of the asking process, and repeated by the answer.
    """

    term: int
    number: int


class InquiryAnswer(NamedTuple):
    """What another member is: new itself, proven, the leader; and how many voters there are (0: it
    cannot tell).

    `last_index` is where the log ended; a leader's (`leads`) when it was first asked under that
    number, and it has appended an entry since.
    """

    term: int
    number: int
    last_index: int
    is_new: bool
    proven: bool
    leads: bool
    voters: int


class Reminder(NamedTuple):
    """A leader tells a member how far that one has acknowledged the log in this term."""

    term: int
    acknowledged: int


# What only a leader says, what only a leader is told, and what counts only from members.
FromLeader = PushRequest | Heartbeat | TimeoutNow | InstallSnapshot | Reminder
ToLeader = PushResponse | HeartbeatResponse | ReadRequest | InstallSnapshotResponse
Answer = VoteResponse | PushResponse | HeartbeatResponse | InstallSnapshotResponse | InquiryAnswer

Message = (
    VoteRequest
    | VoteResponse
    | PushRequest
    | PushResponse
    | Heartbeat
    | HeartbeatResponse
    | TimeoutNow
    | ReadRequest
    | ReadResponse
    | InstallSnapshot
    | InstallSnapshotResponse
    | Inquiry
    | InquiryAnswer
    | Reminder
)
