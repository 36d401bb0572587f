"""How long a leader waits for a peer's answers, on links and disks of all speeds."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from dledger.core.messages import Phase, PushRequest, PushResponse
from dledger.core.round_trip import LEAST_WAIT_S, MOST_WAIT_S, RoundTrip
from tests.dledger.core.test_core_replication import accepted, dispatcher
from tests.dledger.core.timed_group import TimedGroup

THREE = ["n0", "n1", "n2"]
IN_FLIGHT = 1_000


def test_a_peer_that_was_never_measured_is_waited_for_two_heartbeats() -> None:
    assert RoundTrip().wait_s == LEAST_WAIT_S


def test_the_wait_follows_the_smoothed_round_trip_and_its_deviation() -> None:
    trip = RoundTrip()
    trip.took(0.4)
    assert trip.wait_s == pytest.approx(0.4 + 4 * 0.2)
    trip.took(0.8)
    assert trip.wait_s == pytest.approx(0.45 + 4 * 0.25)


def test_the_wait_is_never_close_to_a_round_trip_that_does_not_vary() -> None:
    trip = RoundTrip()
    for _ in range(100):
        trip.took(0.3)
    assert trip.wait_s == pytest.approx(0.3 + LEAST_WAIT_S)


def test_each_missed_answer_doubles_the_wait_up_to_a_bound() -> None:
    trip = RoundTrip()
    waits = []
    for _ in range(6):
        trip.missed()
        waits.append(trip.wait_s)
    assert waits == [0.4, 0.8, 1.6, 3.2, MOST_WAIT_S, MOST_WAIT_S]
    trip.took(100.0)
    assert trip.wait_s == MOST_WAIT_S


def test_an_answer_ends_the_doubling() -> None:
    trip = RoundTrip()
    trip.missed()
    trip.missed()
    trip.took(0.001)
    assert trip.wait_s == pytest.approx(0.001 + LEAST_WAIT_S)


def _probes(pushes: list[PushRequest]) -> list[Phase]:
    return [push.phase for push in pushes]


def test_a_probe_without_an_answer_is_repeated_ever_less_often() -> None:
    probing = dispatcher([1, 1, 1])
    asked_at = []
    now = 0.0
    while now < 10.0:
        assert _probes(probing.pump(-1, now)) == [Phase.COMPARE]
        asked_at.append(now)
        now = probing.next_deadline(-1)
    waits = [later - at for at, later in pairwise(asked_at)]
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2][: len(waits)])


def test_a_peer_that_is_heard_again_is_probed_at_once() -> None:
    probing = dispatcher([1, 1, 1])
    for now in (0.0, 0.2, 0.6, 1.4):
        probing.pump(-1, now)
    assert probing.next_deadline(-1) > 2.0
    probing.heard(1.5)
    assert _probes(probing.pump(-1, 1.5)) == [Phase.COMPARE]


def test_a_peer_that_answers_heartbeats_all_the_time_is_not_probed_more_often() -> None:
    probing = dispatcher([1, 1, 1])
    probing.pump(-1, 0.0)
    for number in range(1, 20):
        probing.heard(0.01 * number)
    assert probing.pump(-1, 0.195) == []


def test_a_connection_that_is_back_ends_the_doubling() -> None:
    probing = dispatcher([1, 1, 1])
    for now in (0.0, 0.2, 0.6, 1.4):
        probing.pump(-1, now)
    probing.reachable(1.5)
    assert _probes(probing.pump(-1, 1.5)) == [Phase.COMPARE]
    assert probing.next_deadline(-1) == pytest.approx(1.5 + LEAST_WAIT_S)


def test_what_was_sent_twice_is_not_measured() -> None:
    # The acknowledgement of the first copy comes right after the second left: measured from
    # there, the peer would seem quick, and be compared anew with each window for ever.
    streaming = dispatcher([1, 1, 1])
    streaming.pump(-1, 0.0)
    streaming.receive(accepted(Phase.COMPARE, 1, 1), 0.0)
    [push] = streaming.pump(-1, 0.0)
    assert push.phase is Phase.APPEND
    streaming.pump(-1, LEAST_WAIT_S)
    refusal = PushResponse(1, Phase.COMPARE, ok=False, index=2, hint_index=1, hint_term=1)
    streaming.receive(refusal, 0.25)
    streaming.pump(-1, 0.25)
    streaming.receive(accepted(Phase.COMPARE, 1, 1), 0.25)
    [again] = streaming.pump(-1, 0.25)
    assert again.phase is Phase.APPEND
    waits_s = streaming.next_deadline(-1) - 0.25
    streaming.receive(accepted(Phase.APPEND, 2, 2), 0.26)
    assert waits_s == pytest.approx(2 * LEAST_WAIT_S)
    streaming.lost(0.26)
    assert streaming.next_deadline(-1) == pytest.approx(0.26 + waits_s)


@pytest.mark.parametrize(
    ("round_trip_s", "sync_s", "election_timeout_s"),
    [
        (0.001, 0.001, 0.5),
        (0.15, 0.001, 0.5),
        (0.24, 0.001, 0.75),
        (0.3, 0.001, 1.0),
        (0.3, 0.02, 1.0),
        (0.6, 0.01, 2.0),
        (0.001, 0.3, 1.0),
    ],
)
def test_slow_links_and_disks_carry_what_is_possible_without_comparing_anew(
    round_trip_s: float, sync_s: float, election_timeout_s: float
) -> None:
    chance = Random(7)
    group = TimedGroup(
        THREE,
        lambda sender, receiver: round_trip_s / 2 * (0.98 + 0.04 * chance.random()),
        lambda member: sync_s,
        election_timeout_s=election_timeout_s,
    )
    group.run(lambda: group.leader is not None, 60.0)
    leader = group.leader
    assert leader is not None
    term = leader.term
    group.keep_in_flight(leader.name, IN_FLIGHT)
    round_s = round_trip_s + sync_s
    group.run_for(20 * round_s)
    group.pushes.clear()
    before = leader.committed
    group.run_for(100 * round_s)
    assert (group.leader, leader.term) == (leader, term)
    # One hundred windows are possible.
    assert leader.committed - before >= 0.95 * 100 * IN_FLIGHT
    assert group.pushes[Phase.COMPARE] == group.pushes[Phase.TRUNCATE] == 0
    assert group.pushes[Phase.APPEND] >= 2 * 95


@pytest.mark.parametrize("seed", range(5))
def test_a_timeout_of_three_round_trips_is_enough_for_elections(seed: int) -> None:
    round_trip_s, timeout_s = 0.3, 0.9
    group = TimedGroup(
        THREE,
        lambda sender, receiver: round_trip_s / 2,
        lambda member: 0.005,
        election_timeout_s=timeout_s,
        seed=seed,
    )
    group.run(lambda: group.leader is not None, 5 * timeout_s)
    first = group.leader
    assert first is not None
    term = first.term
    group.run_for(20.0)
    assert (group.leader, first.term) == (first, term)
    group.separate([first.name])
    group.run(lambda: group.leader is not first, 4 * timeout_s)
