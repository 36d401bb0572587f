"""Checks what must hold after every step, over the whole history of a group with its crashes.

The promises are Raft's (paper, figure 3) and the library's own. Everything is checked as it
changes, so that a step costs a few comparisons: equal (index, chain sum) on two nodes means equal
history up to there, so one comparison stands for a whole log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import (
    Message,
    PushResponse,
    Recall,
    Recollection,
    VoteRequest,
    VoteResponse,
)
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import LogBegin
from jepsen_like.simulation.group_history import GroupHistory, founding, is_quorum
from jepsen_like.simulation.witness import InvariantViolated, Witness

__all__ = ["InvariantViolated", "Invariants"]


class Invariants:
    def __init__(self, names: Sequence[str], began_with: Configuration | None = None) -> None:
        self.witnesses = {name: Witness(name) for name in names}
        self.groups = GroupHistory(began_with or founding(names))
        self.committed: list[int] = []  # chain sum of every entry known committed, by index
        self._commit_terms: list[int] = []  # the term in which each of them was committed
        self._sums: list[int] = []  # the machine's sum after each applied entry, by index
        self._leaders: dict[int, str] = {}  # by term
        self._entries: dict[tuple[int, int], int] = {}  # (term, index) -> chain sum
        self._leases: dict[str, tuple[int, float]] = {}  # term, and until when in true time
        self._now_s = 0.0
        self.in_doubt: set[str] = set()  # members not proven to have a complete folder
        self.wiped_members: set[str] = set()  # members that lost a disk and are not proven since
        self.went_back_members: set[str] = set()  # of these, members with an older folder
        self.asking: set[str] = set()  # of these, members that ask what they have forgotten
        self._proven: set[str] = set()

    # --- what leaves a node ---------------------------------------------------------------------

    def released(self, name: str, peer: str, message: Message) -> None:
        """Check a message that is sent: what it promises must be on disk."""
        witness = self.witnesses[name]
        if isinstance(message, PushResponse):
            if message.match > witness.synced_index:
                raise InvariantViolated(
                    "acknowledged is durable",
                    f"{name} acknowledges {message.match}, its disk has {witness.synced_index}",
                )
        elif isinstance(message, VoteResponse):
            if message.pre:
                return
            if message.granted:
                before = witness.votes.setdefault(message.term, peer)
                if before != peer:
                    raise InvariantViolated(
                        "one vote a term",
                        f"{name} votes for {peer} and {before} in term {message.term}",
                    )
                self._check_promise(witness, message.term, peer, f"votes for {peer}")
        elif isinstance(message, VoteRequest):
            if message.pre:
                return
            self._check_promise(witness, message.term, name, "stands")
        elif isinstance(message, Recall | Recollection):
            return  # they concern the asker's promises, and no member enters their term
        witness.released_term = max(witness.released_term, message.term)

    @staticmethod
    def _check_promise(witness: Witness, term: int, voted_for: str, does: str) -> None:
        promise = witness.synced_promise
        if (promise.term, promise.voted_for) != (term, voted_for):
            raise InvariantViolated(
                "votes are durable",
                f"{witness.name} {does} in term {term}, its disk says {promise}",
            )

    # --- a node's log and disk --------------------------------------------------------------------

    def written(
        self,
        name: str,
        first: int,
        term_chains: Sequence[tuple[int, int]],
        changes: Sequence[tuple[int, NumberedConfiguration]] = (),
    ) -> None:
        """Note entries written from `first` on: (term, chain sum) of each, and the changes of the
        group among them.
        """
        chains = self.witnesses[name].chains
        if first != len(chains):
            raise InvariantViolated(
                "logs are dense", f"{name} writes {first} behind {len(chains) - 1}"
            )
        for index, (term, chain) in enumerate(term_chains, first):
            if self._entries.setdefault((term, index), chain) != chain:
                raise InvariantViolated(
                    "log matching", f"{name} has another entry {index} of term {term}"
                )
            chains.append(chain)
        for index, change in changes:
            self.groups.seen(index, chains[index], change)

    def created(self, name: str, term: int, index: int) -> None:
        """Check that no leader made this new entry before."""
        if (term, index) in self._entries:
            raise InvariantViolated(
                "log matching", f"{name} makes entry {index} of term {term} a second time"
            )

    def truncated(self, name: str, index: int) -> None:
        """Check that no dropped entry, those after `index`, is committed, known here or not."""
        witness = self.witnesses[name]
        lost = index + 1
        both = min(len(self.committed), len(witness.chains))
        if lost < both and witness.chains[lost] == self.committed[lost]:
            raise InvariantViolated(
                "committed entries stay", f"{name} drops entry {lost}, which is committed"
            )
        if index < witness.committed:
            raise InvariantViolated(
                "committed entries stay",
                f"{name} cuts at {index}, though it knows {witness.committed} is committed",
            )
        del witness.chains[lost:]
        witness.synced_index = min(witness.synced_index, index)

    def restarting(self, name: str, begin: LogBegin, snapshot: int) -> None:
        """Check that a log may be replaced by one that begins after a snapshot.

        No entry after that beginning may be committed, all before it must be. `snapshot` is the
        snapshot's last entry.
        """
        witness, committed, before = self.witnesses[name], self.committed, begin.before_index
        if before >= len(committed) or committed[before] != begin.before_chain:
            raise InvariantViolated(
                "logs begin behind committed entries",
                f"{name} is to begin behind entry {before}, which is another one or not committed",
            )
        agreed = 0
        for mine, ours in zip(witness.chains, committed, strict=False):
            if mine != ours:
                break
            agreed += 1
        if agreed > before:
            raise InvariantViolated(
                "committed entries stay",
                f"{name} drops a log that is right up to {agreed - 1} for one behind {before}",
            )
        witness.restart = begin
        witness.told = snapshot
        # From here on a crash may leave the correct part of the old log, or the new one.
        witness.synced_index = min(witness.synced_index, agreed - 1)

    def restarted(self, name: str) -> None:
        witness = self.witnesses[name]
        if (begin := witness.restart) is not None:
            witness.chains = self.committed[: begin.before_index + 1]
            witness.synced_index = begin.before_index
            witness.restart = None

    def restored(self, name: str, index: int, state: int) -> None:
        """Check the sum of a machine that restored the snapshot of entry `index`."""
        witness = self.witnesses[name]
        if index <= witness.applied:
            raise InvariantViolated(
                "applied in order", f"{name} goes back from {witness.applied} to snapshot {index}"
            )
        if index >= len(self._sums) or self._sums[index] != state:
            raise InvariantViolated(
                "machines agree", f"the snapshot of {index} gave {name} another state"
            )
        witness.applied = index

    def synced(self, name: str, index: int, promise: HardState | None) -> None:
        """Note that entries up to `index`, and `promise` if given, are on disk."""
        witness = self.witnesses[name]
        witness.synced_index = max(witness.synced_index, index)
        if promise is not None:
            witness.synced_promise = promise

    def recovered(
        self,
        name: str,
        term_chains: Sequence[tuple[int, int]],
        promise: HardState,
        changes: Sequence[tuple[int, NumberedConfiguration]] = (),
        first: int = 0,
        told: int = -1,
    ) -> None:
        """Check a node that came back after a crash: (term, chain sum) of all its entries, its
        record, and the changes of the group in its log.

        `first` is where its log begins: all entries before it must be committed. `told` is the last
        entry of a snapshot that the log does not reach yet.
        """
        witness = self.witnesses[name]
        if first > len(self.committed):
            raise InvariantViolated(
                "logs begin behind committed entries",
                f"{name} recovers a log that begins at {first}",
            )
        if witness.restart is not None and first == witness.restart.before_index + 1:
            self.restarted(name)
        witness.restart = None
        for index, (term, chain) in enumerate(term_chains, first):
            # An entry may be new: the power failed right after its write.
            if not chain or self._entries.setdefault((term, index), chain) != chain:
                raise InvariantViolated(
                    "recovered entries are real",
                    f"{name} recovers entry {index} of term {term} with sum {chain}, "
                    "which no member wrote",
                )
        chains = self.committed[:first] + [chain for _, chain in term_chains]
        for index, change in changes:
            self.groups.seen(index, chains[index], change)
        kept = witness.synced_index
        if kept >= len(chains) or (kept >= 0 and chains[kept] != witness.chains[kept]):
            raise InvariantViolated(
                "synced entries survive",
                f"{name} had synced {kept}, after the crash its log ends at {len(chains) - 1}",
            )
        before = witness.synced_promise
        if promise.term < before.term or (
            promise.term == before.term
            and before.voted_for is not None
            and promise.voted_for != before.voted_for
        ):
            raise InvariantViolated(
                "votes are durable", f"{name} had recorded {before}, after the crash {promise}"
            )
        if promise.term < witness.released_term:
            raise InvariantViolated(
                "terms never go back",
                f"{name} promised in term {witness.released_term}, is back in term {promise.term}",
            )
        witness.chains = chains
        witness.synced_index = len(chains) - 1
        witness.synced_promise = promise
        witness.term = promise.term
        witness.committed = witness.applied = -1
        witness.told = told

    def wiped(self, name: str) -> None:
        """Note that a disk was emptied: its node forgot its promises; the other members did not."""
        witness = self.witnesses[name]
        self.in_doubt.add(name)
        self.wiped_members.add(name)
        witness.lost_chains = witness.chains[: witness.synced_index + 1]
        witness.chains = []
        witness.synced_index = witness.committed = witness.applied = witness.told = -1
        witness.restart = None
        witness.synced_promise = HardState()
        witness.released_term = witness.term = 0

    def went_back(self, name: str) -> None:
        """Note that the folder of a node is an older copy: it forgot its promises since."""
        self.wiped(name)
        self.went_back_members.add(name)

    def mislaid(self, name: str) -> Witness:
        """Note that a disk was taken out, and may be put back; return its node's witness."""
        witness = copy(self.witnesses[name])
        self.wiped(name)
        self.wiped_members.discard(name)  # nothing that only it held is given up
        return witness

    def put_back(self, witness: Witness) -> None:
        """Put a mislaid disk back. Its member must not have been proven without it."""
        name = witness.name
        if name not in self.in_doubt:
            raise InvariantViolated(
                "silence begins no group",
                f"{name} was proven with an empty disk, though no quorum could tell it anything",
            )
        witness.votes |= self.witnesses[name].votes
        self.witnesses[name] = witness
        self.in_doubt.discard(name)

    def look_at_standing(self, name: str, replica: Replica) -> None:
        """Check that a member proven after losing its disk has all committed entries it had."""
        witness = self.witnesses[name]
        # A restored member counts as in doubt while it asks for what it may have forgotten, but the
        # entries that it has by now count.
        self.asking.discard(name)
        if replica.state.proven and replica.state.recalls and name in self.wiped_members:
            self.asking.add(name)
            return
        if not replica.state.proven:
            self.in_doubt.add(witness.name)
            return
        self.in_doubt.discard(witness.name)
        self.wiped_members.discard(witness.name)
        lost, witness.lost_chains = witness.lost_chains, []
        if name in self.went_back_members:
            # It may lack entries that it acknowledged in messages that never arrived.
            self.went_back_members.discard(name)
            lost = []
        if not lost:
            return
        self._proven.add(witness.name)
        held = min(len(lost), len(self.committed)) - 1
        while held >= 0 and lost[held] != self.committed[held]:
            held -= 1
        if held > witness.synced_index or (held >= 0 and witness.chains[held] != lost[held]):
            raise InvariantViolated(
                "proven members hold what they held",
                f"{witness.name} is proven up to {witness.synced_index}, it had {held}",
            )

    def take_proven(self, name: str) -> bool:
        """Return whether a node that had lost its disk was proven since the last call."""
        proven = name in self._proven
        self._proven.discard(name)
        return proven

    # --- a turn of a node -------------------------------------------------------------------------

    def after_turn(self, name: str, replica: Replica) -> None:
        witness, state = self.witnesses[name], replica.state
        if state.term != witness.term:
            if state.term < witness.term:
                raise InvariantViolated(
                    "terms never go back", f"{name} goes from {witness.term} to {state.term}"
                )
            witness.term = state.term
        if state.role is Role.LEADER:
            self.elected(name, state.term, state.committed)
        last = len(witness.chains) - 1
        if replica.view.last_index != last:
            raise InvariantViolated(
                "the core mirrors the store",
                f"{name} counts {replica.view.last_index}, its store ends at {last}",
            )
        if not (
            state.applied <= min(state.committed, state.durable)
            and max(state.committed, state.durable) <= last
        ):
            raise InvariantViolated(
                "watermarks",
                f"{name}: applied {state.applied}, committed {state.committed}, "
                f"durable {state.durable}, end {last}",
            )
        if state.durable > witness.synced_index:
            raise InvariantViolated(
                "durable is on disk",
                f"{name} counts {state.durable}, its disk has {witness.synced_index}",
            )
        self.check_committed(name, state.committed)
        # A snapshot has the configuration at its last entry, before the log has that entry.
        known, log = max(state.committed, witness.told), witness.chains
        in_force = self.groups.in_force(log if known < len(log) else self.committed, known).index
        if state.membership.index != in_force:
            raise InvariantViolated(
                "committed configurations are in force",
                f"{name} goes by configuration {state.membership.index}, not by {in_force}",
            )
        self.look_at_standing(name, replica)

    def lease(self, name: str, term: int, until_s: float, now_s: float) -> None:
        """Note that `name` serves reads by its lease until `until_s` (minus infinity: no lease)."""
        self._leases[name] = (term, until_s)
        self._now_s = now_s

    def elected(self, name: str, term: int, committed: int) -> None:
        """Check a leader that begins its term, with this commit index.

        In the same turn it may commit more, and by other voters.
        """
        if self._leaders.get(term) == name:
            return  # a later no-op of the same term: it proves a member that was in doubt
        witness = self.witnesses[name]
        # A leader of an older term harms no lease either: it commits nothing.
        for holder, (lease_term, until_s) in self._leases.items():
            if holder != witness.name and lease_term < term and until_s > self._now_s:
                raise InvariantViolated(
                    "leases exclude leaders",
                    f"{witness.name} leads term {term}, the lease of {holder} lasts another "
                    f"{until_s - self._now_s:.6f} s",
                )
        before = self._leaders.setdefault(term, witness.name)
        if before != witness.name:
            raise InvariantViolated(
                "one leader a term", f"{witness.name} and {before} lead term {term}"
            )
        vote = witness.votes.setdefault(term, witness.name)
        if vote != witness.name:
            raise InvariantViolated(
                "one vote a term", f"{witness.name} leads term {term}, its vote went to {vote}"
            )
        voters = [w.name for w in self.witnesses.values() if w.votes.get(term) == witness.name]
        group = self.groups.in_force(witness.chains, committed).configuration
        if not is_quorum(group, voters):
            raise InvariantViolated(
                "leaders have a quorum's votes",
                f"{witness.name} leads term {term} by the votes of {voters}",
            )
        # It may lack the commits of later terms: it may have been elected by votes that arrived
        # late, and hear of its successor only now.
        last = bisect_left(self._commit_terms, term) - 1
        if last >= 0 and (
            len(witness.chains) <= last or witness.chains[last] != self.committed[last]
        ):
            raise InvariantViolated(
                "leader completeness",
                f"{witness.name} leads term {term} without the committed entry {last}",
            )

    def check_committed(self, name: str, index: int) -> None:
        witness = self.witnesses[name]
        if index == witness.committed:
            return
        if index < witness.committed:
            raise InvariantViolated(
                "commits never go back",
                f"{witness.name} goes from {witness.committed} to {index}",
            )
        before, witness.committed = witness.committed, index
        known = min(index, len(self.committed) - 1)
        if known >= 0 and witness.chains[known] != self.committed[known]:
            raise InvariantViolated(
                "committed entries are equal",
                f"{witness.name} commits another entry at or below {known}",
            )
        if index < len(self.committed):
            return
        self._check_quorum(witness, before, index)
        self.committed.extend(witness.chains[len(self.committed) : index + 1])
        self._commit_terms += [witness.term] * (len(self.committed) - len(self._commit_terms))

    def _check_quorum(self, witness: Witness, before: int, index: int) -> None:
        """Check the first commit of an entry: a quorum of disks must have it."""

        def holders(at: int) -> list[str]:
            return [
                other.name
                for other in self.witnesses.values()
                if self._holds(other, at, witness.chains[at])
            ]

        if not self.groups.decides(witness.chains, before, index, holders):
            raise InvariantViolated(
                "committed is durable on a quorum",
                f"{witness.name} commits {index}, which is on the disks of {holders(index)}",
            )

    def _holds(self, witness: Witness, index: int, chain: int) -> bool:
        """Return whether a node counts as having an entry: on its disk, or on the one it had when
        it acknowledged it. The log of a member in doubt does not count.
        """
        own = witness.name in self.asking and witness.chains[index : index + 1] == [chain]
        if own and witness.synced_index >= index:
            return True
        if witness.name not in self.in_doubt:
            return witness.synced_index >= index and witness.chains[index] == chain
        return witness.lost_chains[index : index + 1] == [chain]

    def applied(self, name: str, first: int, sums: Sequence[int]) -> None:
        """Check entries applied from `first` on, by the machine's sum after each."""
        witness = self.witnesses[name]
        if first != witness.applied + 1:
            raise InvariantViolated(
                "applied in order", f"{name} applies {first} behind {witness.applied}"
            )
        witness.applied += len(sums)
        if witness.applied >= len(self.committed):
            raise InvariantViolated(
                "applied is committed", f"{name} applies {witness.applied}, too early"
            )
        known = min(witness.applied, len(self._sums) - 1)
        if known >= first and sums[known - first] != self._sums[known]:
            raise InvariantViolated(
                "machines agree", f"{name} has another state at or below {known}"
            )
        self._sums.extend(sums[max(0, len(self._sums) - first) :])
