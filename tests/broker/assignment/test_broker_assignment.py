"""Queues that the broker assigns (400): each member has some, and loses none by accident."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from broker.assignment.processor import MAX_QUEUES, AssignmentProcessor
from broker.assignment.state import MODES, Mode
from broker.consumers.members import CONSUMERS, Consumers, Member
from broker.features import REGISTRY
from broker.log.state import BrokerState
from broker.serving.routes import ROUTES, Routes
from remoting.bodies.assignment import POP, RequestMode, decode_assigned, decode_modes
from remoting.bodies.heartbeat import ConsumerData
from remoting.bodies.route import QueueData, TopicRoute
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.parts_alone import parts_alone
from tests.broker.serving.test_broker_waiting import FakeLog, Origin
from tests.broker.untimed import Stepped

ROUTE = TopicRoute([QueueData("a", 2, 2, 6), QueueData("b", 1, 1, 6)])


class KnownRoutes(Routes):
    """Says at once where a topic is."""

    def __init__(self, route: TopicRoute | None) -> None:
        super().__init__(lambda *_: None, ())
        self.route = route

    def find(self, _topic: str, then: Callable[[TopicRoute | None], None]) -> None:
        then(self.route)


class Assigning:
    """A broker that knows some members of group g."""

    def __init__(self, *members: str, mode: Mode | None = None) -> None:
        self.state = BrokerState(REGISTRY)
        if mode is not None:
            self.state[MODES].modes["T", "g"] = mode
        self.routes = KnownRoutes(ROUTE)
        consumers = Consumers()
        for name in members:
            consumers.register(Origin(), Member(name, 0.0, ConsumerData("g")))
        self.processor = AssignmentProcessor(
            parts_alone(self.state, FakeLog(), made={CONSUMERS: consumers, ROUTES: self.routes})
        )

    def ask(self, client_id: str, **more: str) -> list[tuple[str, int, str]] | None:
        body = {"topic": "T", "consumerGroup": "g", "clientId": client_id, **more}
        origin = Origin()
        command = Command(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(body).encode())
        self.processor.query(origin, command)
        (reply,) = origin.sent
        rows = json.loads(reply.body)["messageQueueAssignments"]
        if rows is None:
            return None
        queues = [(one["messageQueue"], one["mode"]) for one in rows]
        return [(queue["brokerName"], queue["queueId"], mode) for queue, mode in queues]


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE"])
def test_members_that_pull_share_the_queues(strategy: str) -> None:
    broker = Assigning("c0", "c1")
    first, second = [broker.ask(name, strategyName=strategy) or [] for name in ("c0", "c1")]
    assert sorted(first + second) == [("a", 0, "PULL"), ("a", 1, "PULL"), ("b", 0, "PULL")]


@pytest.mark.parametrize("shares", [-1, 0, 3, 4])
def test_members_that_all_share_pop_any_queue_of_each_broker(shares: int) -> None:
    broker = Assigning("c0", "c1", "c2", "c3", mode=Mode(POP, shares))
    assert broker.ask("c2") == [("a", -1, "POP"), ("b", -1, "POP")]


def test_a_member_pops_its_queues_and_those_of_the_members_behind_it() -> None:
    broker = Assigning("c0", "c1", "c2", mode=Mode(POP, 1))
    assert broker.ask("c0") == [("a", 0, "POP"), ("a", 1, "POP")]
    assert broker.ask("c2") == [("a", 0, "POP"), ("b", 0, "POP")]


def test_each_of_more_members_than_queues_pops_one() -> None:
    names = [f"c{number}" for number in range(5)]
    broker = Assigning(*names, mode=Mode(POP, 1))
    queues = [broker.ask(name) for name in names]
    assert queues == [
        [("a", 0, "POP")],
        [("a", 1, "POP")],
        [("b", 0, "POP")],
        [("a", 0, "POP")],
        [("a", 1, "POP")],
    ]


def test_a_member_that_broadcasts_pulls_everything() -> None:
    broker = Assigning("c0", "c1", mode=Mode(POP, -1))
    shares = broker.ask("c1", messageModel="BROADCASTING")
    assert shares == [("a", 0, "PULL"), ("a", 1, "PULL"), ("b", 0, "PULL")]


def test_a_client_that_a_new_leader_does_not_know_yet_keeps_its_queues() -> None:
    assert Assigning("c0").ask("c1") is None
    assert Assigning(mode=Mode(POP, -1)).ask("c1") is None


def test_clients_keep_their_queues_while_no_name_server_answers() -> None:
    broker = Assigning("c0")
    broker.routes.route = None
    assert broker.ask("c0") is None
    assert broker.ask("c0", messageModel="BROADCASTING") is None


class SteppedOrigin(Stepped, Origin):
    """A client that keeps what it is sent, step by step."""


@pytest.mark.parametrize("shares", [0, 16_000])
@pytest.mark.parametrize("brokers", [1, MAX_QUEUES])
def test_no_step_of_an_answer_takes_long_however_many_queues_it_has(
    brokers: int, shares: int
) -> None:
    members = [f"c{number:05}" for number in range(16_100)]
    broker = Assigning(*members, mode=Mode(POP, shares))
    each = MAX_QUEUES // brokers
    broker.routes.route = TopicRoute(
        [QueueData(f"b{one}", each, each, 6) for one in range(brokers)]
    )
    for more in ({}, {"messageModel": "BROADCASTING"}):
        body = {"topic": "T", "consumerGroup": "g", "clientId": members[7], **more}
        origin = SteppedOrigin()
        command = Command(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(body).encode())
        broker.processor.query(origin, command)
        (reply,) = origin.sent
        assert len(decode_assigned(reply.body) or ()) >= (1 if shares == 0 and not more else 16_000)
        assert origin.longest_s < 0.05
        assert origin.steps > (1 if brokers == 1 and shares == 0 and not more else 50)


def test_queues_that_a_name_server_lists_twice_or_without_right_to_read_count_once() -> None:
    broker = Assigning("c0")
    broker.routes.route = TopicRoute(
        [
            QueueData("b", 1, 1, 6),
            QueueData("a", 1, 1, 4),
            QueueData("b", 2, 2, 6),
            QueueData("c", 5, 5, 2),
            QueueData("d", 0, 1, 6),
        ]
    )
    assert broker.ask("c0") == [("a", 0, "PULL"), ("b", 0, "PULL"), ("b", 1, "PULL")]


def test_the_list_of_all_modes_is_made_in_steps() -> None:
    assigning = Assigning()
    modes = assigning.state[MODES].modes
    for number in range(1000):
        modes[f"T{number % 10}", f"g{number}"] = Mode(POP, number)
    steps = assigning.processor.all_modes(Origin(), Command(RequestCode.QUERY_ASSIGNMENT))
    next(steps)
    modes.drop_group("g999")  # between two steps
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            reply: Command = ended.value
            break
        count += 1
    assert count >= 10
    found = decode_modes(reply.body)
    assert len(found) == 999
    assert found[0] == RequestMode("T0", "g0", POP, 0)
