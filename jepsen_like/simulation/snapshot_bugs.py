"""Bugs planted on purpose in snapshots and logs that begin after one."""

from __future__ import annotations

from typing import Any

from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.core.snapshot.snapshot_receiver import SnapshotReceiver
from dledger.core.snapshot.snapshot_sender import SnapshotSender
from dledger.store.incoming_snapshot import IncomingSnapshot, Received
from dledger.store.segment_log import SegmentLog
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_file import SnapshotReader
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _install_drops_what_agrees() -> list[Replacement]:
    def agrees(self: SnapshotReceiver, offer: SnapshotOffer) -> bool:
        return offer.begin.before_index < self._view.before_begin

    def check_restart(self: SegmentLog, begin: LogBegin) -> None:
        self._extent.committed = -1

    return [
        Replacement(SnapshotReceiver, "_agrees", agrees),
        Replacement(SegmentLog, "check_restart", check_restart),
    ]


def _pieces_in_any_order() -> list[Replacement]:
    taken = IncomingSnapshot.take

    def take(self: IncomingSnapshot, offer: SnapshotOffer, _: int, piece: bytes) -> Received:
        taken(self, offer, -1, b"")
        piece = piece[: offer.size - self._count]
        return taken(self, offer, self._count, piece)

    def verify(self: SnapshotReader) -> None:
        return

    return [
        Replacement(IncomingSnapshot, "take", take),
        Replacement(SnapshotReader, "verify", verify),
    ]


def _snapshot_applied_from_the_log() -> list[Replacement]:
    applied_to = Replica.applied_to

    def applied(self: Replica, index: int) -> None:
        applied_to(
            self, self.view.before_begin if self.state.applied < self.view.before_begin else index
        )

    return [Replacement(Replica, "applied_to", applied)]


def _install_answer_lost_pins() -> list[Replacement]:
    pumped = SnapshotSender.pump

    def pump(self: SnapshotSender, now: float) -> list[InstallSnapshot]:
        messages = pumped(self, now)
        self._deadline = float("inf")
        return messages

    received = SnapshotSender.receive

    def receive(self: SnapshotSender, *arguments: Any) -> None:
        received(self, *arguments)
        self._deadline = float("inf")

    return [
        Replacement(SnapshotSender, "pump", pump),
        Replacement(SnapshotSender, "receive", receive),
    ]


def _log_cut_before_the_snapshot() -> list[Replacement]:
    discarded = SegmentStore.discard_before

    def discard_before(self: SegmentStore, index: int) -> None:
        discarded(self, min(self._extent.committed, self.synced_index, index + 20))

    return [Replacement(SegmentStore, "discard_before", discard_before)]


SNAPSHOT_BUGS = (
    SeededBug(
        "install-drops-what-agrees",
        "a snapshot replaces a log that holds what it begins behind",
        _install_drops_what_agrees,
    ),
    SeededBug(
        "pieces-in-any-order",
        "a piece is taken for the next one, and the file is not read through",
        _pieces_in_any_order,
    ),
    SeededBug(
        "snapshot-applied-from-the-log",
        "what is in a snapshot is applied once more from the log",
        _snapshot_applied_from_the_log,
    ),
    SeededBug(
        "install-answer-lost-pins",
        "a leader asks about a snapshot once, and waits for ever",
        _install_answer_lost_pins,
    ),
    SeededBug(
        "log-cut-before-the-snapshot",
        "a log is dropped further than any snapshot reaches",
        _log_cut_before_the_snapshot,
    ),
)
