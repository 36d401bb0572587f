"""The messages that members of a group exchange. Every message carries its sender's term.

A push carries the raw bytes of its entries as `payload`. The core passes them through and never
looks inside; the node fills them in before a push leaves, and checks them when one arrives.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from dledger.core.ledger_view import TermRun
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM


class Phase(IntEnum):
    """The phase of a leader's work on one peer's log."""

    COMPARE = 1  # looking for the last index where the two logs agree
    TRUNCATE = 2  # having the peer drop its entries beyond that point
    APPEND = 3  # streaming entries
    COMMIT = 4  # nothing to stream: only the commit index moves
    INSTALL_SNAPSHOT = 5  # sending a snapshot, because the log no longer has what the peer lacks


class InstallOutcome(IntEnum):
    """A member's answer to a snapshot that its leader offers."""

    RECEIVING = 1  # it has the file up to `received`
    AGREES = 2  # its log agrees with the offer's beginning, installed or not: append from there
    REFUSED = 3  # it cannot install the snapshot, and logs the reason


class VoteRequest(NamedTuple):
    """A candidate asks for a vote (Raft 5.2), or whether it would get one (`pre`, thesis 9.6)."""

    term: int  # of a pre-vote: the term that the candidate would start
    last_index: int
    last_term: int
    pre: bool
    handed_over: bool = False  # its leader told it to stand: voters need not spare that leader


class VoteResponse(NamedTuple):
    """The answer. A granted pre-vote repeats the requested term and promises nothing.

    A refusal carries the latest entry that the voter knows to be committed, and its term. The
    candidate may have that entry without knowing that it is committed. If the entry removed the
    voter from the configuration, perhaps no other member can tell the candidate.
    """

    term: int
    granted: bool
    pre: bool
    committed: int = BEFORE_FIRST_INDEX
    committed_term: int = NO_TERM


class PushRequest(NamedTuple):
    """A leader's message about one peer's log: COMPARE, TRUNCATE, APPEND or COMMIT.

    `prev_index`/`prev_term` name the entry that the push builds on. APPEND covers prev_index + 1 to
    `last_index`, whose terms are `runs`. TRUNCATE names in `next_term` the leader's term at
    prev_index + 1: the peer drops its entries from there on only if the first has another term.
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
    facts: object = None  # the receiving node's facts about the payload; never sent
    changes: tuple[tuple[int, NumberedConfiguration], ...] = ()  # in the payload; never sent
    # The receiving node found another entry of the same term at this index; never sent.
    contradicts: int = BEFORE_FIRST_INDEX


class PushResponse(NamedTuple):
    """The answer to a push.

    `index` repeats the push's prev_index (COMPARE, TRUNCATE, and every refusal) or is the last
    acknowledged entry (APPEND). `match` is the highest index that agrees with the leader's log
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
    proven: bool = True  # else `match` only shows progress, and counts toward nothing


class Heartbeat(NamedTuple):
    """A leader's sign of life. `round` numbers the broadcasts, so that answers confirm reads."""

    term: int
    committed: int
    round: int


class HeartbeatResponse(NamedTuple):
    """A follower's answer to a heartbeat: the leader still led when it sent that round.

    The follower votes for no other member for `promised_ms` of its own clock; 0: no promise.
    """

    term: int
    round: int
    promised_ms: int = 0


class TimeoutNow(NamedTuple):
    """A leader hands over: the receiver has the whole log and must stand at once."""

    term: int


class ReadRequest(NamedTuple):
    """A follower asks for the index that its reads must wait for. Numbers are never reused."""

    term: int
    number: int


class ReadResponse(NamedTuple):
    """The answer: the leader still led after it received the request, and had committed `index`."""

    term: int
    number: int
    index: int  # type: ignore[assignment]  # hides tuple.index


class InstallSnapshot(NamedTuple):
    """A leader sends `length` bytes of a snapshot's file from `offset` on. With length 0 it only
    asks how much the peer has.

    The core chooses the bytes; the node fills in `payload` and its CRC-32.
    """

    term: int
    offer: SnapshotOffer
    offset: int
    length: int
    crc: int = 0
    payload: bytes = b""


class InstallSnapshotResponse(NamedTuple):
    """The answer to the offer of the snapshot (`index`, `snapshot_term`, `chain`)."""

    term: int
    outcome: InstallOutcome
    index: int  # type: ignore[assignment]  # hides tuple.index
    snapshot_term: int
    chain: int
    received: int = 0

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.index, self.snapshot_term, self.chain


class Inquiry(NamedTuple):
    """A member whose folder is new or was emptied asks what it may have forgotten: see Admission.

    `number` is drawn at each start of the asking process; the answer repeats it.
    """

    term: int
    number: int


class InquiryAnswer(NamedTuple):
    """The answering member's state: whether it is new itself, proven, and the leader; and how many
    voters the group has (0: it does not know).

    `last_index` is the end of its log. A leader (`leads`) gives the end of its log when it first
    received this number; it has appended an entry since.
    """

    term: int
    number: int
    last_index: int
    is_new: bool
    proven: bool
    leads: bool
    voters: int


class Reminder(NamedTuple):
    """A leader tells a member the highest index that this member acknowledged in this term."""

    term: int
    acknowledged: int


class Recall(NamedTuple):
    """A member that starts asks what another one remembers of its promises: see Recalling.

    `number` is drawn at each start of the asking process; the answer repeats it.
    """

    term: int
    number: int


class Recollection(NamedTuple):
    """The answer: the asker was in the term `promised`, `voted` in it for the answering member, and
    acknowledged committed entries up to `held`; -1 where nothing is known.
    """

    term: int
    number: int
    promised: int
    voted: bool
    held: int


# Messages that are handled in any term, and whose term alone is not followed.
OfAnyTerm = VoteRequest | Inquiry | Recall | Recollection
# Messages that only a leader sends, that only a leader handles, and that count only from members.
FromLeader = PushRequest | Heartbeat | TimeoutNow | InstallSnapshot | Reminder
ToLeader = PushResponse | HeartbeatResponse | ReadRequest | InstallSnapshotResponse
Answer = (
    VoteResponse
    | PushResponse
    | HeartbeatResponse
    | InstallSnapshotResponse
    | InquiryAnswer
    | Recollection
)

Message = OfAnyTerm | FromLeader | ToLeader | VoteResponse | ReadResponse | InquiryAnswer
