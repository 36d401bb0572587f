"""Follower side: handles a leader's pushes, and acknowledges entries that agree and are durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dledger.core.agenda import TELL, WRITE
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import Phase, PushRequest, PushResponse
from dledger.core.orphans import Orphans
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM
from dledger.errors import PeerFault


class Accepted(NamedTuple):
    """Write the entries of `push` from `first` on; those before it are here already."""

    push: PushRequest
    first: int


class Truncation(NamedTuple):
    """Drop every entry behind `index`."""

    index: int  # type: ignore[assignment]  # hides tuple.index


class NoopEntry(NamedTuple):
    """Append the empty entry that opens a leader's term (Raft section 8)."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int


class ConfigurationEntry(NamedTuple):
    """Append this leader's change of the group, as an entry of magic 3."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    body: bytes


class Restart(NamedTuple):
    """Drop the whole log, and begin an empty one at `begin`: a snapshot replaces the entries."""

    begin: LogBegin


Write = Accepted | Truncation | NoopEntry | ConfigurationEntry | Restart


class EntryHandler:
    """Compares this member's log with that of the leader of the present term.

    `verified` is the highest index known to agree with that leader. No entry above it is ever
    acknowledged or committed, however long the log is.

    `orphans`: the committed entries here that the group lost, if it did. This member then
    overwrites none of its entries and acknowledges nothing.
    """

    __slots__ = (
        "_state",
        "_sums_compared",
        "_view",
        "ack_due",
        "epoch",
        "orphans",
        "verified",
        "writes",
    )

    def __init__(
        self, state: MemberState, view: LedgerView, orphans: Orphans | None = None
    ) -> None:
        self._state = state
        self._view = view
        self.orphans = orphans
        # Whether a push of this term's leader was compared with the entries before the orphans.
        self._sums_compared = False
        self.verified = -1
        self.ack_due = False
        # The number of cuts of the log: a sync that began before a cut proves nothing after it.
        self.epoch = 0
        self.writes: list[Write] = []

    def enter_term(self) -> None:
        """Forget what the last leader verified: the next leader's log is only known to share the
        committed entries.

        A member that restarts finds itself in the term that it was in. Entries of that term come
        from its leader, which drops none of them, so a log that ends with one agrees with the
        leader's to its end (log matching, Raft section 5.3). The leader need not know of the
        restart: its next heartbeat tells this member what is committed.
        """
        self._sums_compared = False
        self.verified = self._state.committed
        if self._view.last_term == self._state.term:
            self.verified = self._view.last_index
        self.ack_due = False

    def write(self, write: Write) -> None:
        """Have the next turn carry out a write."""
        self.writes.append(write)
        self._state.agenda.due |= WRITE

    def handle(self, push: PushRequest) -> PushResponse | None:
        """Handle one push of the present leader; return the answer that may be given now, if any.

        Raises PeerFault if the push would overwrite a committed entry.
        """
        if push.contradicts != BEFORE_FIRST_INDEX:
            self._diverged(push.contradicts)
            return None
        if not self._agrees(push):
            return self._refusal(push)
        if self.orphans is not None:
            self._recognize(push.prev_index)
        self.verified = max(self.verified, push.prev_index)
        if push.phase is Phase.APPEND:
            return self._append(push)
        if push.phase is Phase.TRUNCATE:
            self._truncate(push)
        self.commit(push.committed)
        if push.phase is Phase.COMMIT:
            return None
        return self._answer(push.phase, push.prev_index)

    def commit(self, committed: int) -> bool:
        """Follow the leader's commit index, as far as the logs are known to agree; return whether
        this member's commit index moved.
        """
        return self._state.commit(min(committed, self.verified))

    def restart_log(self, begin: LogBegin, group: NumberedConfiguration | None) -> None:
        """Drop the log in favour of a snapshot; SnapshotReceiver decides when that is safe.

        `group` is in force at the snapshot's last entry; None means the configuration that the
        group began with.
        """
        before = begin.before_index
        self._state.membership.restarted(group)
        self._view.restart(before, begin.before_term)
        self._state.durable = before
        self.verified = before
        self.ack_due = False
        self.epoch += 1
        self.write(Restart(begin))
        self._state.agenda.due |= TELL  # another configuration may be in force
        self.commit(before)

    def learn_committed(self, index: int) -> None:
        """Commit up to `index`, which a member other than the leader knows to be committed. Every
        leader has that entry and all entries before it.
        """
        if self._state.commit(index):
            self.verified = max(self.verified, index)

    def acknowledgement(self) -> PushResponse | None:
        """Return the acknowledgement that a finished sync allows, once."""
        if not self.ack_due or self.orphans is not None:
            return None
        match = min(self.verified, self._state.durable)
        self.ack_due = match < self.verified
        return self._answer(Phase.APPEND, match)

    def _agrees(self, push: PushRequest) -> bool:
        prev = push.prev_index
        if prev <= self._view.before_begin:
            return True
        # NO_TERM stands for "not in this log": two logs that both lack an entry do not agree on it.
        if prev <= self._view.last_index and self._view.term_at(prev) == push.prev_term != NO_TERM:
            return True
        if prev <= self._state.committed:
            # The refusal makes the leader compare further back, down to the first such entry.
            self.orphaned_at(prev)
        return False

    def orphaned_at(self, index: int) -> None:
        """Note that the leader has another entry at `index`, though it is committed here."""
        first = index if self.orphans is None else min(index, self.orphans.first)
        self._keep(Orphans(first, self._state.committed))
        self.ack_due = False

    def has_all(self) -> None:
        """Note that the group has all entries that are committed here."""
        if self.orphans is not None:
            self._keep(None)

    def _keep(self, orphans: Orphans | None) -> None:
        self.orphans = orphans
        self._state.agenda.due |= WRITE | TELL

    def _diverged(self, index: int) -> None:
        """Note that the leader has another entry of the same term at `index`. Both were made by
        leaders of that term, so the logs differ from where it begins.
        """
        term = self._view.term_at(index)
        first = self._view.last_index_with_term_at_most(term - 1, index) + 1
        if first <= self._state.committed:
            self._sums_compared = True
            self.orphaned_at(first)

    def _recognize(self, index: int) -> None:
        """Note that the leader has the entry at `index`, and with it all before it (log matching):
        the group has got its orphans back if that is the last of them.
        """
        if self.orphans is not None and index >= self.orphans.last:
            self._keep(None)

    def _append(self, push: PushRequest) -> PushResponse | None:
        conflict = self._first_conflict(push)
        if conflict is not None:
            if conflict <= self._state.committed:
                self._sums_compared = True
                self.orphaned_at(conflict)
                raise self._fault(f"it contradicts the committed entry {conflict}")
            self._recognize(conflict - 1)
            self.verified = max(self.verified, conflict - 1)
            return self._answer(Phase.APPEND, push.prev_index, ok=False)
        first_new = max(self._view.last_index, push.prev_index) + 1
        if first_new <= push.last_index:
            self._extend(push, first_new)
            self.write(Accepted(push, first_new))
            for index, change in push.changes:
                # A snapshot may already have brought changes that the log reaches only now.
                if index >= first_new and index > self._state.membership.index:
                    self._state.membership.appended(index, change)
        if self.orphans is not None:
            self._recognize(push.last_index)
        self.verified = max(self.verified, push.last_index)
        self.commit(push.committed)
        if self._state.durable >= self.verified:
            return self._answer(Phase.APPEND, push.last_index)
        self.ack_due = True
        return None

    def _first_conflict(self, push: PushRequest) -> int | None:
        """Return the first index of the push at which this log has another term."""
        view = self._view
        if push.prev_index >= view.last_index:
            return None
        last_here = min(push.last_index, view.last_index)
        for term, first, run_end in _runs_of(push):
            # Discarded entries were committed, so they agree.
            index = max(first, view.before_begin + 1)
            while index <= min(run_end, last_here):
                if view.term_at(index) != term:
                    return index
                index = view.run_end(index) + 1
        return None

    def _extend(self, push: PushRequest, first_new: int) -> None:
        for term, first, run_end in _runs_of(push):
            if run_end >= first_new:
                self._view.extend(term, run_end - max(first, first_new) + 1)

    def _truncate(self, push: PushRequest) -> None:
        """Drop entries only if they are proven to contradict the leader; never committed ones."""
        contradicted = push.prev_index + 1
        # Discarded entries were committed, so a late cut there contradicts nothing.
        if not self._view.before_begin < contradicted <= self._view.last_index:
            return
        if self._view.term_at(contradicted) == push.next_term:
            return
        if push.prev_index < self._state.committed:
            self.orphaned_at(contradicted)
            if not self._sums_compared:
                # Cut nothing, and accept the push: the sums of the entries that the leader sends
                # next show whether the entries before are equal, too. Terms alone do not show that
                # if a member voted twice in one term.
                return
            raise self._fault(
                f"it would cut the log at {push.prev_index}, and {self._state.committed} is "
                "committed"
            )
        self._view.truncate_after(push.prev_index)
        self._state.membership.truncated_after(push.prev_index)
        self._state.durable = min(self._state.durable, push.prev_index)
        self.epoch += 1
        self.write(Truncation(push.prev_index))

    def _fault(self, problem: str) -> PeerFault:
        return PeerFault(self._state.leader or "a leader", problem)

    def _answer(self, phase: Phase, index: int, *, ok: bool = True) -> PushResponse:
        # Every leader has the committed entries, unless the group lost some. So until entries were
        # appended, the answer covers only the entries that were compared.
        verified = self.verified
        if phase is not Phase.APPEND:
            verified = min(verified, index)
        elif self.orphans is not None:
            verified = min(verified, max(index, self.orphans.first - 1))
        return PushResponse(
            term=self._state.term,
            phase=phase,
            ok=ok,
            index=index,
            match=min(verified, self._state.durable),
            verified=verified,
            last_index=self._view.last_index,
            proven=self._state.proven,
        )

    def _refusal(self, push: PushRequest) -> PushResponse:
        """Refuse a push, because the logs differ at prev_index; name the last entry that could
        agree. A refusal acknowledges nothing: a leader that lost committed entries would count
        them for its own.
        """
        hint = self._view.last_index_with_term_at_most(push.prev_term, push.prev_index)
        nothing = BEFORE_FIRST_INDEX
        return self._answer(push.phase, push.prev_index, ok=False)._replace(
            hint_index=hint, hint_term=self._view.term_at(hint), match=nothing, verified=nothing
        )


def _runs_of(push: PushRequest) -> Iterator[tuple[int, int, int]]:
    """Yield the term, the first and the last index of each run of equal terms in a push."""
    for at, run in enumerate(push.runs, 1):
        is_last = at == len(push.runs)
        last = push.last_index if is_last else push.runs[at].first_index - 1
        yield run.term, run.first_index, last
