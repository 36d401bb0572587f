"""One process of a member that runs a user's state machine, checked as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from dledger.core.replica import Replica
from dledger.entry import Entry
from dledger.state_machine import (
    RetainingMachine,
    SnapshottingMachine,
    StateMachine,
    snapshot_format,
)
from dledger.store.segment_store import SegmentStore
from jepsen_like.simulation.machine import MachineState
from jepsen_like.simulation.service.machine_error import called
from jepsen_like.simulation.service.service_book import NEVER_RAISES, ServiceBook
from jepsen_like.simulation.watched_machine import WatchedMachine
from jepsen_like.simulation.witness import InvariantViolated
from jepsen_like.users_code import raised_in

# Whether a chunk of a snapshot is of the user's machine, or of the sums of the simulation.
_OF_USER, _OF_SUMS = b"U", b"S"


class ServiceMember:
    """A user's machine beside the sums of the simulation. Implements MemberMachine.

    `failed` is told of errors of the user's code that the member would only log. `is_restoring` is
    whether the machine was restored, and the member does not know of it yet.
    """

    def __init__(
        self,
        name: str,
        watched: WatchedMachine,
        machine: StateMachine,
        book: ServiceBook,
        changed: Callable[[], None],
        failed: Callable[[InvariantViolated], None],
    ) -> None:
        self.machine = machine
        self._name = name
        self._watched = watched
        self._book = book
        self._changed = changed
        self._failed = failed
        self.is_restoring = False
        self._replica: Replica | None = None

    @property
    def snapshot_format(self) -> str:
        if isinstance(self.machine, SnapshottingMachine):
            return f"simulated+{snapshot_format(self.machine)}"
        return "simulated"

    @property
    def state(self) -> MachineState:
        return self._watched.state

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        self._watched.apply(entries)
        results = self.machine.apply(entries)
        # The member itself refuses a result that is not a list.
        if _is_list(results) and len(results) == len(entries):
            self._book.applied(self._name, entries, results, self.machine)
        self._changed()
        return results

    def snapshot(self) -> Iterator[bytes]:
        """Return the state in chunks, each of the user's machine or of the sums."""
        assert isinstance(self.machine, SnapshottingMachine)
        sums = [_OF_SUMS + chunk for chunk in self._watched.snapshot()]
        with _Telling(self._failed):
            chunks = iter(self.machine.snapshot())
        return chain(self._users(chunks), sums)

    def _users(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            with _Telling(self._failed):
                chunk = next(chunks, None)
                if chunk is None:
                    return
                marked = _OF_USER + chunk
            yield marked

    def restore(self, chunks: Iterator[bytes]) -> None:
        assert isinstance(self.machine, SnapshottingMachine)
        found = list(chunks)
        with _Telling(self._failed):
            self.machine.restore(chunk[1:] for chunk in found if chunk.startswith(_OF_USER))
        self._watched.restore(chunk[1:] for chunk in found if chunk.startswith(_OF_SUMS))
        self.is_restoring = True

    def begin(self, store: SegmentStore, replica: Replica) -> None:
        self._replica = replica
        self._watched.begin(store, replica)
        self._look_at_restored()

    def moved(self) -> None:
        self._watched.moved()
        self._look_at_restored()

    def follow(self) -> None:
        self._watched.follow()

    def _look_at_restored(self) -> None:
        if self.is_restoring and self._replica is not None:
            self.is_restoring = False
            self._changed()
            self._book.restored(self._name, self._replica.state.applied, self.machine)


class _RetainingMember(ServiceMember):
    """A member whose machine decides how much of the log is kept."""

    def log_kept_from(self) -> int:
        assert isinstance(self.machine, RetainingMachine)
        return called("log_kept_from", self.machine.log_kept_from)


def service_member(
    name: str,
    watched: WatchedMachine,
    machine: StateMachine,
    book: ServiceBook,
    changed: Callable[[], None],
    failed: Callable[[InvariantViolated], None],
) -> ServiceMember:
    """Return the member for a machine, with the optional methods that the machine has."""
    kind = _RetainingMember if isinstance(machine, RetainingMachine) else ServiceMember
    return kind(name, watched, machine, book, changed, failed)


def _is_list(results: object) -> bool:
    return isinstance(results, Sequence)


class _Telling:
    """Reports every error in the block, which goes on to the caller."""

    def __init__(self, failed: Callable[[InvariantViolated], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, Exception | SystemExit) and not isinstance(error, InvariantViolated):
            self._failed(InvariantViolated(NEVER_RAISES, raised_in(error)))
