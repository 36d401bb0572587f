"""The protocol of snapshots: when one is sent, what is lost on the way, what it may replace."""

from __future__ import annotations

import pytest

from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import EntryDispatcher, needed_snapshots
from dledger.core.entry_handler import Restart
from dledger.core.followers import progress_of
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import Role
from dledger.core.membership.catch_up import LearnerProgress, Transfer
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import Membership
from dledger.core.messages import (
    Heartbeat,
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
)
from dledger.core.snapshot.snapshot_offer import PIECE_BYTES, LogBegin, SnapshotOffer
from dledger.core.snapshot.snapshot_sender import (
    FIRST_ANSWER_TIMEOUT_S,
    LAST_ANSWER_TIMEOUT_S,
    MAX_PIECES_IN_FLIGHT,
    REFUSED_RETRY_S,
    SnapshotSender,
)
from dledger.errors import PeerFault
from tests.dledger.core.core_group import HEARTBEAT_S, EntriesAtOnce, Group, Member, view_of

TWO = ["n0", "n1"]
SIZE = 5 * PIECE_BYTES + 100


class Source:
    """Snapshots of a leader that has them."""

    piece_bytes = PIECE_BYTES

    def __init__(self, *offers: SnapshotOffer) -> None:
        self.offers = list(offers)

    def newest(self) -> SnapshotOffer | None:
        return self.offers[-1] if self.offers else None

    def holds(self, offer: SnapshotOffer) -> bool:
        return offer in self.offers


def offer_at(view: LedgerView, index: int, before: int, size: int = SIZE) -> SnapshotOffer:
    begin = LogBegin(before, view.term_at(before), before * 3, before * 100)
    return SnapshotOffer(index, view.term_at(index), index * 3, size, begin)


def answer(
    offer: SnapshotOffer, received: int, outcome: InstallOutcome = InstallOutcome.RECEIVING
) -> InstallSnapshotResponse:
    return InstallSnapshotResponse(3, outcome, *offer.identity, received)


# --- what is sent -------------------------------------------------------------------------------


def sender() -> SnapshotSender:
    return SnapshotSender(offer_at(view_of([3] * 90), 80, 70), 3, 0.0)


def test_a_leader_asks_what_is_there_before_it_sends() -> None:
    sending = sender()
    assert [(m.offset, m.length) for m in sending.pump(0.0)] == [(0, 0)]
    assert sending.pump(0.0) == []
    sending.receive(answer(sending.offer, 2 * PIECE_BYTES), 0.1)
    pieces = sending.pump(0.1)
    assert [m.offset for m in pieces] == [n * PIECE_BYTES for n in (2, 3, 4, 5)]
    assert [m.length for m in pieces] == [PIECE_BYTES] * 3 + [100]


def test_no_more_pieces_than_the_window_are_on_their_way() -> None:
    sending = sender()
    sending.pump(0.0)
    sending.receive(answer(sending.offer, 0), 0.0)
    assert len(sending.pump(0.0)) == MAX_PIECES_IN_FLIGHT
    assert sending.pump(0.0) == []
    sending.receive(answer(sending.offer, PIECE_BYTES), 0.0)
    [piece] = sending.pump(0.0)
    assert piece.offset == MAX_PIECES_IN_FLIGHT * PIECE_BYTES


def test_a_lost_piece_is_sent_again_from_what_the_peer_has() -> None:
    sending = sender()
    sending.pump(0.0)
    sending.receive(answer(sending.offer, 0), 0.0)
    sending.pump(0.0)
    sending.receive(answer(sending.offer, PIECE_BYTES), 0.0)  # the second one was lost
    sending.pump(0.0)
    [question] = sending.pump(FIRST_ANSWER_TIMEOUT_S)
    assert question.length == 0
    sending.receive(answer(sending.offer, PIECE_BYTES), 0.6)
    assert [m.offset for m in sending.pump(0.6)][:2] == [PIECE_BYTES, 2 * PIECE_BYTES]


def test_a_silent_peer_is_asked_ever_less_often_and_never_given_up() -> None:
    sending = sender()
    at, asked = 0.0, []
    for _ in range(8):
        assert len(sending.pump(at)) == 1
        asked.append(sending.next_deadline() - at)
        at = sending.next_deadline()
    assert asked[0] == FIRST_ANSWER_TIMEOUT_S
    assert asked[-1] == LAST_ANSWER_TIMEOUT_S


def test_a_peer_that_refuses_is_left_alone_for_a_while() -> None:
    sending = sender()
    sending.pump(0.0)
    sending.receive(answer(sending.offer, 0, InstallOutcome.REFUSED), 1.0)
    assert sending.refused
    assert sending.pump(REFUSED_RETRY_S) == []
    assert sending.pump(1.0 + REFUSED_RETRY_S)[0].length == 0
    assert not sending.refused


def test_a_late_answer_does_not_take_the_transfer_back() -> None:
    sending = sender()
    sending.pump(0.0)
    sending.receive(answer(sending.offer, 0), 0.0)
    sending.pump(0.0)
    sending.receive(answer(sending.offer, 3 * PIECE_BYTES), 0.0)
    sending.receive(answer(sending.offer, PIECE_BYTES), 0.0)
    assert [m.offset // PIECE_BYTES for m in sending.pump(0.0)] == [4, 5]


# --- the phase ----------------------------------------------------------------------------------


def behind(source: Source | None = None) -> tuple[EntryDispatcher, LedgerView, Source]:
    """A dispatcher that has just learnt that its peer is behind the log's beginning."""
    view = view_of([1] * 40 + [3] * 60)
    view.discard_before(50)
    source = source or Source(offer_at(view, 80, 69))
    dispatcher = EntryDispatcher("n1", 3, view, EntriesAtOnce(100), 0.0, Agenda(), source)
    for at in range(5):
        for probe in dispatcher.pump(99, at * 1.0):
            refusal = PushResponse(
                3, probe.phase, False, probe.prev_index, -1, -1, 4, hint_index=4, hint_term=1
            )
            dispatcher.receive(refusal, at * 1.0)
    return dispatcher, view, source


def test_a_peer_behind_the_logs_beginning_is_sent_the_newest_snapshot() -> None:
    dispatcher, _, source = behind()
    assert dispatcher.phase is Phase.INSTALL_SNAPSHOT
    assert dispatcher.pump(99, 5.0) == []
    [question] = dispatcher.pump_snapshot(5.0)
    assert question.offer == source.newest()
    assert dispatcher.needed == source.newest()
    assert not dispatcher.lacks_snapshot


def test_a_leader_without_a_snapshot_goes_on_asking_and_says_so() -> None:
    dispatcher, view, source = behind(Source())
    assert dispatcher.phase is Phase.COMPARE
    assert dispatcher.lacks_snapshot
    source.offers.append(offer_at(view, 80, 69))
    [probe] = dispatcher.pump(99, 9.0)
    assert probe.prev_index == 49
    refusal = PushResponse(3, Phase.COMPARE, False, 49, hint_index=4, hint_term=1)
    dispatcher.receive(refusal, 9.0)
    assert dispatcher.sender is not None
    assert not dispatcher.lacks_snapshot


def test_after_an_install_the_logs_are_compared_where_the_new_one_begins() -> None:
    dispatcher, _, source = behind()
    dispatcher.pump_snapshot(5.0)
    dispatcher.receive_install(answer(source.offers[0], 0, InstallOutcome.AGREES), 6.0)
    [probe] = dispatcher.pump(99, 6.0)
    assert (probe.phase, probe.prev_index) == (Phase.COMPARE, 69)
    matched = PushResponse(3, Phase.COMPARE, True, 69, 69, 69, 69)
    dispatcher.receive(matched, 6.0)
    [push] = dispatcher.pump(99, 6.0)
    assert (push.phase, push.prev_index, push.last_index) == (Phase.APPEND, 69, 99)
    assert dispatcher.needed is None  # it has caught up


def test_a_leader_knows_at_each_step_how_much_of_a_snapshot_its_learner_has() -> None:
    dispatcher, _, source = behind()
    offer = source.offers[0]
    whole = Transfer(offer.index, 0, SIZE)
    assert progress_of(dispatcher).transfer == whole
    dispatcher.pump_snapshot(5.0)
    dispatcher.receive_install(answer(offer, PIECE_BYTES), 5.1)
    assert progress_of(dispatcher) == LearnerProgress(
        -1, 5.1, transfer=whole._replace(received=PIECE_BYTES)
    )
    dispatcher.pump_snapshot(5.1 + FIRST_ANSWER_TIMEOUT_S)  # a question: the count stays known
    assert progress_of(dispatcher).transfer == whole._replace(received=PIECE_BYTES)
    dispatcher.receive_install(answer(offer, 0, InstallOutcome.REFUSED), 6.0)
    refused = whole._replace(received=PIECE_BYTES, refused=True)
    assert progress_of(dispatcher).transfer == refused
    dispatcher.pump_snapshot(6.0 + REFUSED_RETRY_S)
    dispatcher.receive_install(answer(offer, SIZE), 40.0)
    assert progress_of(dispatcher).transfer == whole._replace(received=SIZE)
    dispatcher.lost(40.0)  # the connection breaks while the learner checks the file
    assert progress_of(dispatcher).transfer == whole._replace(received=SIZE)


def test_an_installed_snapshot_is_known_until_the_learner_has_the_rest() -> None:
    dispatcher, _, source = behind()
    dispatcher.pump_snapshot(5.0)
    dispatcher.receive_install(answer(source.offers[0], 0, InstallOutcome.AGREES), 6.0)
    transfer = progress_of(dispatcher).transfer
    assert transfer is not None
    assert transfer.installed
    lacking, _, _ = behind(Source())
    assert progress_of(lacking).lacks_snapshot


def test_a_snapshot_that_was_replaced_meanwhile_is_started_over() -> None:
    dispatcher, view, source = behind()
    first = source.offers[0]
    dispatcher.pump_snapshot(5.0)
    dispatcher.receive_install(answer(first, PIECE_BYTES), 5.0)
    source.offers = [offer_at(view, 95, 90)]
    [question] = dispatcher.pump_snapshot(5.1)
    assert (question.offer, question.length) == (source.offers[0], 0)
    dispatcher.receive_install(answer(first, 0, InstallOutcome.AGREES), 5.2)
    assert dispatcher.phase is Phase.INSTALL_SNAPSHOT  # an answer about the other one


def test_a_newer_snapshot_does_not_disturb_one_that_is_on_its_way() -> None:
    dispatcher, view, source = behind()
    first = source.offers[0]
    dispatcher.pump_snapshot(5.0)
    dispatcher.receive_install(answer(first, PIECE_BYTES), 5.0)
    source.offers.append(offer_at(view, 95, 90))
    assert {piece.offer for piece in dispatcher.pump_snapshot(5.1)} == {first}
    dispatcher.lost(5.2)
    assert dispatcher.phase is Phase.COMPARE
    assert dispatcher.needed == first  # it is gone on with when the peer is back


def test_a_snapshot_that_is_no_longer_there_leads_back_to_comparing() -> None:
    dispatcher, _, source = behind()
    source.offers.clear()
    assert dispatcher.pump_snapshot(5.0) == []
    assert dispatcher.phase is Phase.COMPARE
    assert dispatcher.lacks_snapshot
    assert dispatcher.next_deadline(99) > 5.0


def test_a_late_refusal_of_a_push_does_not_end_an_install() -> None:
    dispatcher, _, _ = behind()
    dispatcher.receive(PushResponse(3, Phase.COMPARE, False, 49, hint_index=4, hint_term=1), 5.0)
    assert dispatcher.phase is Phase.INSTALL_SNAPSHOT


def test_a_peer_that_is_silent_for_long_does_not_keep_the_log_from_being_dropped() -> None:
    dispatcher, _, source = behind()
    assert needed_snapshots([dispatcher], 10.0) == source.offers
    assert needed_snapshots([dispatcher], 100.0) == []


# --- the receiving side -------------------------------------------------------------------------


def follower(terms: list[int], committed: int = -1) -> Member:
    """n0, which follows n1 in term 3; all of its log is durable."""
    member = Member("n0", TWO, terms, HardState(3, None, committed))
    member.replica.receive("n1", Heartbeat(3, committed, 1), 0.0)
    member.leaving(0.0)
    return member


def offered(member: Member, offer: SnapshotOffer, term: int = 3) -> list[Message]:
    """Answers to an offer, for which every byte is on disk already."""
    message = InstallSnapshot(term, offer, 0, 0)
    member.replica.receive("n1", message, 0.0)
    for piece in member.replica.receiver.take_pieces():
        member.replica.receiver.install(piece)
    return [message for _, message in member.leaving(0.0)]


LEADER = view_of([1] * 40 + [3] * 60)


def test_an_empty_follower_begins_its_log_where_the_snapshots_log_begins() -> None:
    member = follower([])
    [done] = offered(member, offer_at(LEADER, 80, 69))
    assert isinstance(done, InstallSnapshotResponse)
    assert done.outcome is InstallOutcome.AGREES
    view, state = member.replica.view, member.replica.state
    assert (view.before_begin, view.last_index, view.last_term) == (69, 69, 3)
    assert (state.committed, state.durable, state.applied) == (69, 69, -1)
    assert member.written == [Restart(offer_at(LEADER, 80, 69).begin)]
    assert member.replica.handler.epoch == 1


def test_entries_behind_an_installed_snapshot_are_appended_as_usual() -> None:
    member = follower([])
    offered(member, offer_at(LEADER, 80, 69))
    push = PushRequest(3, Phase.APPEND, 69, 3, 99, 99, runs=LEADER.runs(70, 99))
    member.replica.receive("n1", push, 0.0)
    member.sync(0.0)
    assert member.replica.appliable == 99
    member.replica.applied_to(80)
    assert member.replica.state.applied == 80


def test_a_snapshot_that_the_log_contains_drops_nothing_and_moves_the_commit_index() -> None:
    member = follower([1] * 40 + [3] * 60, committed=20)
    [done] = offered(member, offer_at(LEADER, 80, 69))
    assert isinstance(done, InstallSnapshotResponse)
    assert done.outcome is InstallOutcome.AGREES
    assert member.replica.view.last_index == 99
    # Its last entry is of the leader's own term, so all of its log agrees.
    assert (member.committed, member.replica.handler.verified) == (80, 99)
    assert member.written == []


def test_a_log_that_reaches_the_beginning_but_not_the_snapshot_is_kept() -> None:
    member = follower([1] * 40 + [3] * 35)  # ends with 74
    offered(member, offer_at(LEADER, 80, 69))
    assert member.replica.view.last_index == 74
    assert member.committed == 69
    assert member.written == []


def test_a_log_of_another_history_is_dropped_though_it_is_longer() -> None:
    member = follower([1] * 40 + [2] * 200, committed=39)
    offered(member, offer_at(LEADER, 80, 69))
    assert member.replica.view.last_index == 69
    assert len(member.written) == 1


def test_what_is_committed_here_is_never_replaced_by_a_snapshot_of_another_history() -> None:
    member = follower([1] * 40 + [2] * 60, committed=75)
    with pytest.raises(PeerFault, match="but the committed entry here is of term"):
        offered(member, offer_at(LEADER, 80, 69))
    assert member.replica.view.last_index == 99


def test_an_old_snapshot_that_comes_late_changes_nothing() -> None:
    member = follower([1] * 40 + [3] * 60, committed=99)
    member.replica.applied_to(99)
    member.replica.view.discard_before(90)
    [done] = offered(member, offer_at(LEADER, 80, 69))
    assert isinstance(done, InstallSnapshotResponse)
    assert done.outcome is InstallOutcome.AGREES
    assert (member.replica.view.before_begin, member.committed) == (89, 99)


def test_a_snapshot_of_a_deposed_leader_is_not_taken() -> None:
    member = follower([])
    message = InstallSnapshot(3, offer_at(LEADER, 80, 69), 0, 0)
    member.replica.receive("n1", message, 0.0)
    [piece] = member.replica.receiver.take_pieces()
    member.replica.receive("n1", Heartbeat(4, -1, 1), 0.0)
    assert not member.replica.receiver.install(piece)
    assert member.replica.view.last_index == -1
    offered(member, offer_at(LEADER, 80, 69), term=3)
    assert member.replica.view.last_index == -1


def test_a_log_that_changed_while_the_file_came_is_judged_as_it_is_then() -> None:
    member = follower([1] * 40)
    message = InstallSnapshot(3, offer_at(LEADER, 80, 69), 0, 0)
    member.replica.receive("n1", message, 0.0)
    [piece] = member.replica.receiver.take_pieces()
    push = PushRequest(3, Phase.APPEND, 39, 1, 99, 99, runs=LEADER.runs(40, 99))
    member.replica.receive("n1", push, 0.0)
    assert not member.replica.receiver.install(piece)
    assert member.replica.view.last_index == 99


def test_an_answer_waits_until_the_term_it_is_given_in_is_durable() -> None:
    member = follower([])
    member.replica.receive("n1", InstallSnapshot(7, offer_at(LEADER, 80, 69), 0, 0), 0.0)
    [piece] = member.replica.receiver.take_pieces()
    assert member.replica.receiver.install(piece)
    assert member.leaving(0.0) == []
    member.sync(0.0)
    assert [type(m) for _, m in member.leaving(0.0)] == [InstallSnapshotResponse]


def group_of(*voters: str) -> Configuration:
    return Configuration(voters=frozenset(voters), addresses={name: f"{name}:1" for name in voters})


def installed(member: Member, group: NumberedConfiguration | None) -> Membership:
    """The membership of a member that was given a snapshot with that configuration."""
    member.replica.receive("n1", InstallSnapshot(3, offer_at(LEADER, 80, 69), 0, 0), 0.0)
    [piece] = member.replica.receiver.take_pieces()
    assert member.replica.receiver.install(piece, group)
    return member.replica.state.membership


def test_a_snapshot_brings_the_configuration_of_its_last_entry() -> None:
    member, three = follower([]), group_of("n0", "n1", "n9")
    membership = installed(member, NumberedConfiguration(75, three))
    assert (membership.index, membership.configuration) == (75, three)
    assert membership.members == {"n0", "n1", "n9"}
    # The log reaches that entry only now, and the next one after it.
    four = group_of("n0", "n1", "n8", "n9")
    changes = (
        (75, NumberedConfiguration(-1, three)),
        (90, NumberedConfiguration(75, four)),
    )
    push = PushRequest(3, Phase.APPEND, 69, 3, 99, 89, runs=LEADER.runs(70, 99), changes=changes)
    member.replica.receive("n1", push, 0.0)
    assert membership.index == 75
    assert membership.at(89).index == 75
    member.replica.receive("n1", Heartbeat(3, 99, 2), 0.0)
    assert (membership.index, membership.configuration) == (90, four)


def test_changes_in_a_log_that_is_dropped_are_forgotten() -> None:
    member = follower([1] * 40 + [2] * 200, committed=39)
    membership = member.replica.state.membership
    membership.appended(50, NumberedConfiguration(-1, group_of("n0")))
    began_with = membership.configuration
    installed(member, NumberedConfiguration(-1, group_of("n0", "n1")))
    assert member.committed == 69
    assert (membership.index, membership.configuration) == (-1, began_with)
    assert membership.known_committed == -1


def test_a_snapshot_tells_a_member_that_was_told_nothing_who_belongs_to_the_group() -> None:
    three = group_of("n0", "n1", "n9")
    membership = Membership(Configuration())
    membership.restarted(NumberedConfiguration(-1, three))
    assert membership.configuration == three


# --- a group ------------------------------------------------------------------------------------


class InstallingGroup(Group):
    """n0 leads and has a snapshot; n2 was away. Files arrive at once, unless they are dropped."""

    def __init__(self) -> None:
        super().__init__([[1] * 100, [1] * 100, [1] * 3])
        self.silent = {"n2"}
        leader = self.elect("n0")
        leader.replica.view.discard_before(50)
        offer = offer_at(leader.replica.view, 80, 69)
        self.source = Source(offer)
        for dispatcher in leader.replica.dispatchers.values():
            dispatcher._snapshots = self.source
        self.silent.clear()
        self.dropped_answers = 0

    def pass_time_with_files(self, for_s: float) -> None:
        end = self.now + for_s
        while self.now < end:
            self.pass_time(HEARTBEAT_S)
            receiver = self["n2"].replica.receiver
            for piece in receiver.take_pieces():
                receiver.install(piece)


def test_a_member_behind_the_beginning_catches_up_by_a_snapshot() -> None:
    group = InstallingGroup()
    group.pass_time_with_files(2.0)
    view = group["n2"].replica.view
    assert (view.before_begin, view.last_index) == (69, 100)
    assert group["n2"].committed == 100
    assert group["n0"].replica.dispatchers["n2"].phase is Phase.COMMIT


def test_an_answer_about_a_snapshot_that_is_lost_pins_nobody() -> None:
    group = InstallingGroup()
    lost: list[Message] = []

    def dropped(sender: str, receiver: str, message: Message) -> bool:
        hit = isinstance(message, InstallSnapshotResponse) and len(lost) < 3
        if hit:
            lost.append(message)
        return hit

    run = group.run
    group.run = lambda *args, **named: run(dropped=dropped)  # type: ignore[method-assign]
    group.pass_time_with_files(20.0)
    assert len(lost) == 3
    assert group["n2"].committed == 100
    assert group["n0"].replica.dispatchers["n2"].phase is Phase.COMMIT


def test_a_new_leader_goes_on_where_the_old_one_died() -> None:
    group = InstallingGroup()
    group.pass_time(0.5)
    assert group["n2"].replica.receiver.take_pieces()
    group.silent = {"n0"}
    group["n1"].replica.followers._snapshots = group.source
    group["n1"].replica.view.discard_before(60)
    group.elect("n1")
    group.pass_time_with_files(3.0)
    assert group["n1"].role is Role.LEADER
    view = group["n2"].replica.view
    assert (view.before_begin, view.last_index) == (69, 101)


def test_a_member_whose_log_was_replaced_wins_no_election_before_it_has_what_is_committed() -> None:
    group = InstallingGroup()
    group.pass_time(0.5)
    receiver = group["n2"].replica.receiver
    for piece in receiver.take_pieces():
        receiver.install(piece)
    group["n2"].sync(group.now)
    group.silent = {"n0"}
    group.stand("n2")
    group.run()
    assert group["n2"].role is not Role.LEADER
    assert group["n2"].replica.view.last_index == 69
