"""A member of a scenario's group: its core, what it wrote, and what its disk would keep."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.node.turn import Turn
from dledger.store.log_store import SyncWork
from tests.dledger.core.imagined_log import ImaginedLog

# A snapshot's file in a scenario, in bytes, and what is sent of it at once.
SNAPSHOT_BYTES = 250
PIECE_BYTES = 100


class Impossible(Exception):
    """A line asks for what cannot be: a message that is not there, a member that is down."""


@dataclass
class Settings:
    """What the lines before the first event say. A field of a member that is absent is as told."""

    names: list[str] = field(default_factory=list)
    learners: list[str] = field(default_factory=list)
    logs: dict[str, list[int]] = field(default_factory=dict)
    records: dict[str, HardState] = field(default_factory=dict)
    patience: dict[str, float] = field(default_factory=dict)  # default: by its place in the group
    batch: int = 100  # entries in one push
    timeout_ms: int = 500
    heartbeat_ms: int = 100
    drift: float | None = None
    preferred: str | None = None

    def patience_of(self, name: str, place: int) -> float:
        """How much longer than one election timeout a member waits, in election timeouts."""
        began = len(self.names) + len(self.learners)
        # Who joins later falls between those who were there.
        between = place // began / (place // began + 1)
        return self.patience.get(name, (place % began + between) / began)


class Image(NamedTuple):
    """A log as it lies on a disk."""

    before_begin: int
    before_begin_term: int
    terms: tuple[int, ...]
    changes: tuple[tuple[int, NumberedConfiguration], ...] = ()

    @property
    def last_index(self) -> int:
        """The last entry's index."""
        return self.before_begin + len(self.terms)

    def term_at(self, index: int) -> int | None:
        """The term of an entry that is there, or was discarded; None: there is none."""
        if index < self.before_begin:
            return None
        if index == self.before_begin:
            return self.before_begin_term
        at = index - self.before_begin - 1
        return self.terms[at] if at < len(self.terms) else None

    def view(self) -> LedgerView:
        """What a core sees that starts with this log."""
        runs: list[TermRun] = []
        for index, term in enumerate(self.terms, self.before_begin + 1):
            if not runs or runs[-1].term != term:
                runs.append(TermRun(term, index))
        return LedgerView(
            runs,
            last_index=self.last_index,
            before_begin=self.before_begin,
            before_begin_term=self.before_begin_term,
        )


def image_of(view: LedgerView, changes: Iterable[tuple[int, NumberedConfiguration]] = ()) -> Image:
    """A core's log, as its store would hold it, with the changes of the group in it."""
    kept = range(view.before_begin + 1, view.last_index + 1)
    terms = tuple(view.term_at(index) for index in kept)
    return Image(view.before_begin, view.before_begin_term, terms, tuple(sorted(changes)))


class Shelf:
    """The snapshots that a member can send: a SnapshotSource."""

    piece_bytes = PIECE_BYTES

    def __init__(self) -> None:
        self.offers: list[SnapshotOffer] = []

    def newest(self) -> SnapshotOffer | None:
        return self.offers[-1] if self.offers else None

    def holds(self, offer: SnapshotOffer) -> bool:
        return offer in self.offers


class Sync(NamedTuple):
    """A sync that has begun, and what it will have saved."""

    image: Image
    work: SyncWork


class ScenarioMember:
    """One replica, which may be down, and its disk."""

    def __init__(
        self, name: str, began_with: Configuration, patience: float, record: HardState, image: Image
    ) -> None:
        self.name = name
        self.began_with = began_with
        self.patience = patience
        self.image = image
        self.record = record
        self.record_written = record  # what a process that is killed leaves
        self.syncs: deque[Sync] = deque()
        self.shelf = Shelf()
        self.standing = Standing.PROVEN  # as its folder says
        self.noted = False  # outside of its folder, that its group has grown
        self.restarts = -1
        self.parts: dict[tuple[int, int, int], int] = {}  # bytes received, by snapshot
        self.arrived: InstallSnapshot | None = None  # whole, and to be installed after the syncs
        self.to_restore: SnapshotOffer | None = None  # once the log has reached it
        self.core: Replica | None = None
        self.log: ImaginedLog | None = None
        self.turn: Turn | None = None
        self.seen_at = 0.0  # when it last looked at the clock, in seconds

    @property
    def up(self) -> Replica:
        """The running core. Raises Impossible."""
        if self.core is None:
            raise Impossible(f"{self.name} is down")
        return self.core

    @property
    def steps(self) -> Turn:
        """The running core's turn, of which the steps are taken. Raises Impossible."""
        if self.turn is None:
            raise Impossible(f"{self.name} is down")
        return self.turn

    def share(self) -> float:
        """What its core draws at random: its patience, told apart in each life."""
        return self.patience + self.restarts * 2.0**-52

    @property
    def written(self) -> Image:
        """Its log as it is written, synced or not."""
        core, log = self.up, self.log
        return image_of(core.view, log.changes.items() if log is not None else ())

    @property
    def has_work(self) -> bool:
        """Whether a sync would make anything durable."""
        core = self.up
        state = core.state
        return bool(
            self.syncs or self.record_written != self.record or state.durable < core.view.last_index
        )
