"""The state that the log gives a service: every member is compared with it.

A separate machine gets each entry by itself, as soon as any member has applied it. Members get runs
of entries, restart, and restore snapshots; a state that depends on any of this differs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from dledger.entry import Entry
from dledger.state_machine import SnapshottingMachine, StateMachine
from jepsen_like.fingerprint import difference, digest, shortened, told
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.witness import InvariantViolated
from jepsen_like.users_code import raised_in

EQUAL_STATES = "equal logs give equal states"
EQUAL_RESULTS = "equal logs give equal results"
SNAPSHOT_HAS_ALL = "a snapshot has the whole state"
SNAPSHOT_IS_OF_A_MOMENT = "a snapshot is of one moment"
NEVER_RAISES = "the state machine never raises"
RESTORED = "has restored the snapshot of entry"
# At the end, snapshots are tried at so many places of the log.
SNAPSHOTS_TRIED = 3


class ServiceBook:
    """The entries of a service, and the state and the result after each of them."""

    def __init__(self, service: Service) -> None:
        self.entries: list[Entry] = []
        self.results: list[object] = []
        service.check()
        self._service = service
        self._machine = service.new_machine()
        self._indexes: list[int] = []
        self._states: list[bytes] = []
        self._told_results: list[bytes] = []
        self._begin = b""

    def begin(self) -> None:
        """Note the state before the first entry. Raises InvariantViolated."""
        self._begin = digest(self._service.state_of(self._machine))

    # --- as the run goes on -------------------------------------------------------------------

    def applied(
        self, name: str, entries: Sequence[Entry], results: Sequence[object], machine: StateMachine
    ) -> None:
        """Check a member that applied a run of entries. Raises InvariantViolated."""
        if not entries:
            return
        for entry in entries:
            if not self._indexes or entry.index > self._indexes[-1]:
                self._go_on(entry)
        first = bisect_right(self._indexes, entries[0].index) - 1
        for at, (entry, result) in enumerate(zip(entries, results, strict=True), first):
            if digest(result) != self._told_results[at]:
                raise InvariantViolated(
                    EQUAL_RESULTS,
                    f"{name} answers entry {entry.index} ({shortened(repr(entry.body))}) with "
                    f"{shortened(told(result))}; one machine that got the same entries one by one, "
                    f"with {shortened(told(self.results[at]))}",
                )
        self._compare(name, entries[-1].index, machine, EQUAL_STATES, "has applied entry")

    def _go_on(self, entry: Entry) -> None:
        results = self._machine.apply([entry])
        if len(results) != 1:
            raise InvariantViolated(NEVER_RAISES, f"{len(results)} results for one entry")
        self.entries.append(entry)
        self.results.append(results[0])
        self._indexes.append(entry.index)
        self._told_results.append(digest(results[0]))
        self._states.append(digest(self._service.state_of(self._machine)))

    def restored(self, name: str, index: int, machine: StateMachine) -> None:
        """Check a member that restored the snapshot of `index`. Raises InvariantViolated."""
        self._compare(name, index, machine, SNAPSHOT_HAS_ALL, RESTORED)

    def _state_after(self, index: int) -> bytes:
        count = bisect_right(self._indexes, index)
        return self._states[count - 1] if count else self._begin

    def _compare(
        self, name: str, index: int, machine: StateMachine, promise: str, did: str
    ) -> None:
        state = self._service.state_of(machine)
        if digest(state) == self._state_after(index):
            return
        again = self.replayed(bisect_right(self._indexes, index))
        how = difference(state, self._service.state_of(again))
        how = how or f"it is {shortened(told(state))}, which no second run of the log gives"
        raise InvariantViolated(
            promise,
            f"{name} {did} {index}; unlike after one run of the log up to there, {how}",
        )

    def replayed(self, count: int) -> StateMachine:
        """Return a new machine that has applied the first `count` entries, in one run."""
        machine = self._service.new_machine()
        if count:
            machine.apply(self.entries[:count])
        return machine

    # --- at the end ---------------------------------------------------------------------------

    def check_replay(self) -> None:
        """Check that the whole log applied at once gives the same. Raises InvariantViolated."""
        machine = self._service.new_machine()
        if self.entries:
            results = machine.apply(self.entries)
            self.applied("a replay of the whole log", self.entries, results, machine)

    def check_snapshots(self) -> None:
        """Check at some places of the log that a snapshot and the rest give the state of the
        whole. Raises InvariantViolated.
        """
        if not isinstance(self._machine, SnapshottingMachine):
            return
        count = len(self.entries)
        for at in sorted({count * part // SNAPSHOTS_TRIED for part in range(SNAPSHOTS_TRIED + 1)}):
            self._check_snapshot(at)

    def _check_snapshot(self, count: int) -> None:
        rest = self.entries[count:]
        index = self._indexes[count - 1] if count else -1
        saved = self.replayed(count)
        assert isinstance(saved, SnapshottingMachine)
        chunks = iter(saved.snapshot())
        if rest:
            saved.apply(rest)
        restored = self._service.new_machine()
        assert isinstance(restored, SnapshottingMachine)
        restored.restore(self._checked(chunks))
        promise = SNAPSHOT_HAS_ALL
        if digest(self._service.state_of(restored)) != self._state_after(index):
            fresh = self._service.new_machine()
            assert isinstance(fresh, SnapshottingMachine)
            at_once = self.replayed(count)
            assert isinstance(at_once, SnapshottingMachine)
            fresh.restore(iter(list(at_once.snapshot())))
            if digest(self._service.state_of(fresh)) == self._state_after(index):
                promise = SNAPSHOT_IS_OF_A_MOMENT
        self._compare(
            "a new machine", index, restored, promise, "has restored the snapshot of entry"
        )
        if rest:
            results = restored.apply(rest)
            self.applied("a machine restored from a snapshot", rest, results, restored)

    @staticmethod
    def _checked(chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                raise InvariantViolated(
                    NEVER_RAISES, f"snapshot() yields {type(chunk).__name__}, not bytes"
                )
            yield bytes(chunk)

    def digests(self) -> list[tuple[bytes, bytes]]:
        """Return the digests of each entry's result and of the state after it."""
        return list(zip(self._told_results, self._states, strict=True))


def check_end(book: ServiceBook) -> None:
    """Do all checks at the end of a run that need no other process. Raises InvariantViolated."""
    try:
        book.check_replay()
        book.check_snapshots()
    except InvariantViolated:
        raise
    except (Exception, SystemExit) as error:
        raise InvariantViolated(NEVER_RAISES, raised_in(error)) from error
