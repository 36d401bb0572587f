"""When a leader wakes up for a peer that it sends a snapshot to."""

from __future__ import annotations

from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.messages import InstallOutcome, InstallSnapshotResponse, Phase, PushResponse
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.core.snapshot.snapshot_sender import (
    FIRST_ANSWER_TIMEOUT_S,
    MAX_PIECES_IN_FLIGHT,
    REFUSED_RETRY_S,
)
from tests.dledger.core.core_group import EntriesAtOnce, view_of

PIECE_BYTES = 100
PIECES = 2 * MAX_PIECES_IN_FLIGHT
OFFER = SnapshotOffer(80, 1, 240, PIECES * PIECE_BYTES, LogBegin(69, 1, 207, 6900))
NOW = float("-inf")


class OneSnapshot:
    """The snapshots of a leader that has one."""

    piece_bytes = PIECE_BYTES

    def newest(self) -> SnapshotOffer:
        return OFFER

    def holds(self, offer: SnapshotOffer) -> bool:
        return offer == OFFER


def sending() -> EntryDispatcher:
    """n1's dispatcher, which begins to send the snapshot at time 0. More entries wait for n1."""
    view = view_of([1] * 100)
    view.discard_before(50)
    dispatcher = EntryDispatcher("n1", 1, view, EntriesAtOnce(10), 0.0, Agenda(), OneSnapshot())
    while dispatcher.phase is not Phase.INSTALL_SNAPSHOT:
        [probe] = dispatcher.pump(99, 0.0)
        refusal = PushResponse(
            1, probe.phase, ok=False, index=probe.prev_index, hint_index=4, hint_term=1
        )
        dispatcher.receive(refusal, 0.0)
    return dispatcher


def answer(
    dispatcher: EntryDispatcher,
    received: int,
    now: float,
    outcome: InstallOutcome = InstallOutcome.RECEIVING,
) -> None:
    dispatcher.receive_install(InstallSnapshotResponse(1, outcome, *OFFER.identity, received), now)


def test_a_leader_sleeps_until_the_peers_answer_about_a_snapshot_is_overdue() -> None:
    dispatcher = sending()
    assert dispatcher.next_deadline(99) <= 0.0
    assert [piece.length for piece in dispatcher.pump_snapshot(0.0)] == [0]
    assert dispatcher.next_deadline(99) == FIRST_ANSWER_TIMEOUT_S


def test_a_leader_wakes_at_once_while_more_pieces_of_a_snapshot_may_leave() -> None:
    dispatcher = sending()
    dispatcher.pump_snapshot(0.0)
    answer(dispatcher, 0, 0.25)
    assert dispatcher.next_deadline(99) == NOW
    assert len(dispatcher.pump_snapshot(0.25)) == MAX_PIECES_IN_FLIGHT
    assert dispatcher.next_deadline(99) == 0.25 + FIRST_ANSWER_TIMEOUT_S


def test_a_leader_that_waits_for_an_answer_about_a_snapshot_has_nothing_to_send_before() -> None:
    dispatcher = sending()
    dispatcher.pump_snapshot(0.0)
    for received in range(0, PIECES, MAX_PIECES_IN_FLIGHT):
        now = received * 0.01
        answer(dispatcher, received * PIECE_BYTES, now)
        dispatcher.pump_snapshot(now)
        due = dispatcher.next_deadline(99)
        just_before = (now + due) / 2
        assert (dispatcher.pump(99, just_before), dispatcher.pump_snapshot(just_before)) == ([], [])


def test_a_leader_sleeps_while_a_peer_that_refused_a_snapshot_is_left_alone() -> None:
    dispatcher = sending()
    dispatcher.pump_snapshot(0.0)
    answer(dispatcher, 0, 1.0, InstallOutcome.REFUSED)
    assert dispatcher.next_deadline(99) == 1.0 + REFUSED_RETRY_S


def test_a_leader_compares_the_logs_at_once_when_the_peer_has_the_snapshot() -> None:
    dispatcher = sending()
    dispatcher.pump_snapshot(0.0)
    answer(dispatcher, 0, 2.0, InstallOutcome.AGREES)
    assert dispatcher.phase is Phase.COMPARE
    assert dispatcher.next_deadline(99) == 2.0
