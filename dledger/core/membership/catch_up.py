"""Decides when a learner has caught up far enough to become a voter (thesis 4.2.1).

A voter that lacks the log makes every commit wait for another member, so one more failure stops the
group. A new voter is therefore a learner first, and receives the log in rounds. Each round covers
the entries that the leader's log held when the round began. Rounds get shorter as long as the
learner is faster than the group's clients. Once a round is shorter than an election timeout, the
rest of the log delays the group no longer than an election would, and the learner may vote.

A learner that lacks discarded entries gets a snapshot first, which may take hours. Both entries and
bytes of a snapshot that it acknowledges are progress.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from dledger.core.membership.change_errors import LearnerBehind, VoterInDoubt, VotersSilent
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import AddLearner, AddVoter, Change
from dledger.core.membership.quorum import VoteOutcome
from dledger.entry import BEFORE_FIRST_INDEX

# A learner that has not caught up after so many rounds is too slow (the number of the thesis).
MAX_ROUNDS = 10

# So few entries take milliseconds. A learner that lacks no more at a round's end has caught up.
NEARLY_NONE_ENTRIES = 1_000

# A learner that acknowledges nothing new for so many election timeouts is down or cut off.
STALLED_AFTER_TIMEOUTS = 10

# The file of a snapshot is read as a whole, to check it, on the leader before its first byte leaves
# and on the learner after its last byte came. Nothing is acknowledged meanwhile. The slowest disks
# in use (networked, with other work) read so many bytes a second.
LEAST_CHECKED_BYTES_PER_S = 16 * 1024 * 1024


class Verdict(Enum):
    """The progress of a learner, as judged by its leader."""

    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"  # it keeps up with the clients, and may be promoted
    TOO_SLOW = "too slow"  # the clients write faster than it catches up
    STALLED = "stalled"  # it makes no progress


class Transfer(NamedTuple):
    """A snapshot on its way to a learner: its last entry, the bytes that the learner says it has,
    and those of the whole file.

    `refused`: the learner cannot install it, and logs why. `installed`: its log begins anew there.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    received: int
    size: int
    refused: bool = False
    installed: bool = False


class LearnerProgress(NamedTuple):
    """What a learner has acknowledged, and when its leader last heard it.

    `match_index`: its log is durable up to there and agrees with the leader's. `proven`: its
    acknowledgements count. `lacks_snapshot`: it needs a snapshot, and the leader has none.
    """

    match_index: int
    heard_at: float
    proven: bool = True
    transfer: Transfer | None = None
    lacks_snapshot: bool = False


class CatchUp:
    """The catch-up of one learner, as its leader sees it: from round 1 on. Times in seconds."""

    __slots__ = (
        "_last_match",
        "_most",
        "_moved_at",
        "_round_began",
        "_target",
        "_timeout_s",
        "_transfer",
        "round",
        "verdict",
    )

    def __init__(self, last_index: int, election_timeout_s: float, now: float) -> None:
        self._timeout_s = election_timeout_s
        self._target = last_index
        self._round_began = now
        self._last_match = -1
        self._moved_at = now
        self._transfer: Transfer | None = None
        self._most: Transfer | None = None  # the most that the learner had of that snapshot
        self.round = 1
        self.verdict = Verdict.CATCHING_UP

    def observe(self, progress: LearnerProgress, last_index: int, now: float) -> Verdict:
        """Judge the learner by its progress toward the end of the leader's log, `last_index`;
        return the verdict.

        No round ends while the learner is in doubt, because its vote would not count. Rounds go on
        after each verdict: a learner that caught up may fall behind, and a slow one may catch up.
        """
        match_index = progress.match_index
        if match_index > self._last_match:
            self._last_match = match_index
            self._moved_at = now
        self._observe_transfer(progress.transfer, now)
        quick = now - self._round_began < self._timeout_s
        if match_index >= self._target and progress.proven:
            self._end_round(quick or last_index - match_index <= NEARLY_NONE_ENTRIES)
            self._target = last_index
            self._round_began = now
        elif now - self._moved_at >= self._patience_s:
            self.verdict = Verdict.STALLED
        elif not (quick or self.verdict is Verdict.TOO_SLOW):
            self.verdict = Verdict.CATCHING_UP
        return self.verdict

    def _observe_transfer(self, transfer: Transfer | None, now: float) -> None:
        """Note whether the learner has more of a snapshot than ever before.

        Another offer alone is no progress: the leader makes it, whether the learner lives or not.
        """
        self._transfer = transfer
        if transfer is None:
            return
        known = self._most
        if known is None or transfer.index != known.index:
            known = Transfer(transfer.index, 0, transfer.size)
        if transfer.received > known.received or transfer.installed > known.installed:
            known = transfer
            self._moved_at = now
        self._most = known

    @property
    def _patience_s(self) -> float:
        patience_s, transfer = STALLED_AFTER_TIMEOUTS * self._timeout_s, self._transfer
        if transfer is None or transfer.refused or transfer.installed or self._most is None:
            return patience_s
        if 0 < self._most.received < transfer.size:
            return patience_s
        return patience_s + transfer.size / LEAST_CHECKED_BYTES_PER_S

    def waits_for(self, progress: LearnerProgress, last_index: int, now: float) -> str:
        """Return what the learner lacks, as the end of a sentence that begins with its name."""
        transfer, quiet_s = progress.transfer, now - self._moved_at
        quiet = f"acknowledged nothing new for {quiet_s:.1f} s"
        if now - progress.heard_at >= STALLED_AFTER_TIMEOUTS * self._timeout_s:
            quiet = f"has not answered for {now - progress.heard_at:.1f} s"
        if progress.lacks_snapshot:
            return "needs a snapshot, and the leader has none to send"
        if transfer is None or transfer.installed:
            if progress.match_index >= last_index:
                return f"has the whole log, is not proven yet, and {quiet}"
            have = f"entry {progress.match_index}" if progress.match_index >= 0 else "none"
            return f"has {have} of the log up to entry {last_index}, and {quiet}"
        name = f"the snapshot of entry {transfer.index}"
        if transfer.refused:
            return f"refused {name}, of {transfer.size} bytes, and logs why"
        if transfer.received >= transfer.size:
            return f"has all {transfer.size} bytes of {name}, checks them, and {quiet}"
        return f"has {transfer.received} of {transfer.size} bytes of {name}, and {quiet}"

    def _end_round(self, keeps_up: bool) -> None:
        if keeps_up:
            self.verdict = Verdict.CAUGHT_UP
            self.round = 1
        elif self.round == MAX_ROUNDS:
            self.verdict = Verdict.TOO_SLOW
        else:
            self.verdict = Verdict.CATCHING_UP
            self.round += 1


def learners_first(configuration: Configuration, changes: Sequence[Change]) -> list[Change]:
    """Return the changes to make first: every new voter begins as a learner."""
    strangers = {
        wanted.member: wanted.address
        for wanted in changes
        if isinstance(wanted, AddVoter) and wanted.member not in configuration.members
    }
    return [AddLearner(member, address) for member, address in strangers.items()]


def new_voters(before: Configuration, after: Configuration) -> frozenset[str]:
    """Return the members that vote only after the change: they must have caught up."""
    return after.voting_members - before.voting_members


def check_caught_up(
    before: Configuration,
    after: Configuration,
    match_indexes: Mapping[str, int],
    last_index: int,
    in_doubt: Collection[str] = (),
    caught_up: Collection[str] = (),
) -> None:
    """Raise LearnerBehind if a new voter would lack more than NEARLY_NONE_ENTRIES, and VoterInDoubt
    if a voter is in doubt: without the other voters it might never be proven.

    `match_indexes` has the index up to which each member's log agrees with the leader's, which ends
    at `last_index`; a member that is missing there has nothing. Members in `caught_up` pass,
    however many entries they lack: under heavy writes, many entries are always on their way to
    them.
    """
    for member in sorted(new_voters(before, after).difference(caught_up)):
        lag = last_index - match_indexes.get(member, BEFORE_FIRST_INDEX)
        if lag > NEARLY_NONE_ENTRIES:
            raise LearnerBehind(member, lag)
    for member in sorted(after.voting_members.intersection(in_doubt)):
        raise VoterInDoubt(member)


def check_heard(before: Configuration, after: Configuration, heard: Collection[str]) -> None:
    """Raise VotersSilent unless the new voters, and the old ones that have answered this leader,
    form a quorum of `after`.

    A voter that has never answered may be down or have lost its data. In the latter case it could
    neither vote nor count until the other voters decide without it (etcd: not enough started
    members). `check_caught_up` checks the new voters.
    """
    able = new_voters(before, after).union(heard)
    if after.quorum.outcome(dict.fromkeys(able, True)) is not VoteOutcome.WON:
        raise VotersSilent(sorted(after.voting_members - able))
