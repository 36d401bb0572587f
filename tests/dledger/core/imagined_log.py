"""The turn of a member whose log holds no bytes: only what the core counts, and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dledger.core.admission.standing import Standing
from dledger.core.entry_handler import Accepted, ConfigurationEntry, Restart, Truncation, Write
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.core.messages import InstallSnapshot, Message, PushRequest
from dledger.core.orphans import Orphans
from dledger.core.replica import Outcomes, Replica
from dledger.entry import Body, Magic
from dledger.errors import PeerFault
from dledger.network.ways import Way
from dledger.node.sync_schedule import Ended, SyncSchedule
from dledger.node.tally import Tally
from dledger.node.turn import MovesSnapshots, Turn
from dledger.store.log_store import SyncWork
from dledger.waits.pending_appends import PendingAppends

Changes = dict[int, NumberedConfiguration]


class ImaginedSync(NamedTuple):
    """What a sync that begins now will have made durable."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    epoch: int
    hard_state: HardState | None

    def run(self) -> None:
        """Nothing has to be done."""


class ImaginedLog:
    """The store, the writer and the batches of a member, which the core's own view stands for.

    Attributes:
        changes: of the group, by index.
        written: what the core had written, in order.
        standing: as the folder says.
    """

    record_due = False

    def __init__(
        self, replica: Replica, changes: Mapping[int, NumberedConfiguration], standing: Standing
    ) -> None:
        self.changes: Changes = dict(changes)
        self.written: list[Write] = []
        self.standing = standing
        self.orphans: Orphans | None = replica.handler.orphans
        self._replica = replica

    @property
    def last_index(self) -> int:
        return self._replica.view.last_index

    @property
    def epoch(self) -> int:
        return self._replica.handler.epoch

    def set_standing(self, standing: Standing) -> None:
        self.standing = standing

    def set_orphans(self, orphans: Orphans | None) -> None:
        self.orphans = orphans

    def carry_out(self, write: Write) -> None:
        self.written.append(write)
        if isinstance(write, Restart):
            self.changes.clear()
        elif isinstance(write, Truncation):
            for index in [index for index in self.changes if index > write.index]:
                del self.changes[index]
        elif isinstance(write, ConfigurationEntry):
            self.changes[write.index] = decode_configuration(write.body)
        elif isinstance(write, Accepted):
            self.changes.update(one for one in write.push.changes if one[0] >= write.first)

    def append(self, term: int, magic: Magic, bodies: Sequence[Body], first: int) -> int:
        return first + len(bodies) - 1

    def begin_sync(self, hard_state: HardState | None) -> ImaginedSync:
        return ImaginedSync(self.last_index, self.epoch, hard_state)

    def payload(self, first: int, end: int) -> bytes:
        return b""

    def sent(self, index: int) -> None:
        """No bytes are kept."""

    def filled(self, message: Message) -> Message:
        """A push carries changes in its payload; here it carries them beside it."""
        if not self.changes or not isinstance(message, PushRequest):
            return message
        covered = range(message.prev_index + 1, message.last_index + 1)
        changes = tuple(one for one in sorted(self.changes.items()) if one[0] in covered)
        return message._replace(changes=changes)


class _ImaginedWay:
    def __init__(self, peer: str, log: ImaginedLog, leaves: Callable[[str, Message], None]) -> None:
        self._peer = peer
        self._log = log
        self._leaves = leaves

    def send(self, message: Message, payload: bytes = b"") -> None:
        self._leaves(self._peer, self._log.filled(message))


class _ImaginedWays:
    def __init__(self, log: ImaginedLog, leaves: Callable[[str, Message], None]) -> None:
        self._log = log
        self._leaves = leaves

    def link_to(self, peer: str) -> Way:
        return _ImaginedWay(peer, self._log, self._leaves)


class _StartedSyncs:
    """Syncs that end when the test says so."""

    is_quick = False
    busy = False

    def __init__(self, begun: Callable[[SyncWork], None]) -> None:
        self._begun = begun

    def run(self, work: SyncWork, *, leads: bool) -> Ended | None:
        raise AssertionError("a disk that is slow is not waited for")

    def start(self, work: SyncWork) -> None:
        self._begun(work)


class NoSnapshots:
    """Pieces leave without bytes, and none is taken: a test moves them."""

    def send(self, link: Way, peer: str, message: InstallSnapshot) -> None:
        link.send(message)

    def turn(self, replica: Replica, *, sync_runs: bool) -> None:
        """Nothing to do."""


def imagined_turn(
    replica: Replica,
    log: ImaginedLog,
    leaves: Callable[[str, Message], None],
    begun: Callable[[SyncWork], None],
    transfer: MovesSnapshots,
) -> Turn:
    """A turn of which a test takes the steps one by one.

    `leaves` takes what is sent, `begun` a sync that has begun.
    """

    def told(outcomes: Outcomes) -> None:
        """A test that is interested takes the outcomes itself."""

    def apply(_now: float) -> None:
        """A test says what is applied."""

    def refused(fault: PeerFault) -> None:
        raise fault

    timeout_s = replica.config.election_timeout_s
    return Turn(
        replica,
        log,
        log,
        log,
        PendingAppends(),
        _ImaginedWays(log, leaves),
        SyncSchedule(log, _StartedSyncs(begun), None, timeout_s),
        transfer,
        told,
        apply,
        refused,
        lambda: 0.0,
        Tally(),
    )
