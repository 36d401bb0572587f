"""A member that leads again has nothing left of the term before: it is as a new leader is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest

from broker.consumers.members import CONSUMERS
from broker.serving.requests import Requests
from broker.store.message_reader import MESSAGE_READER
from dledger import Body, LeadershipLost, NotLeader
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, encode_heartbeat
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.broker_in_memory import BrokerInMemory, broker_in_memory
from tests.broker.leader_script import (
    Done,
    Refusing,
    Script,
    objects_below,
    pop_fields,
    pull_fields,
)
from tests.broker.log.test_broker_refused_work import play
from tests.broker.pop.popping_broker import popped

# More appends than the script makes.
MOST_APPENDS: Final = 120
EACH: Final = 4

# What is kept on purpose, with the reason.
KEPT: Final = {
    "Checks._move_before": "what retention wants to go",
    "Copies.refused": "a figure",
    "Deliveries._asleep_until_ms": "set before each pause",
    "Deliveries._move_before": "what retention wants to go",
    "Popping._turns": "with which queue the next pop begins",
    "PullProcessor._commits_offsets": "a member that ends does so in its next term, too",
    "RedriveProcessor._turn": "to which queue the next one goes",
    "RetryProcessor._turn": "to which queue the next one goes",
    "Sends._epoch": "tells the appends of one term from those of another",
    "Sends._turn": "to which queue the next one goes",
}
# What waits when the term ends, in some of the runs.
WAITS: Final = {
    "Checks._due",
    "Chooser._soonest",
    "GatheredAcks._is_in_flight",
    "GatheredAcks._messages",
    "GatheredAcks._thens",
    "OffsetCommits._is_in_flight",
    "OwnTopics._making",
    "Popping._busy",
    "TopicChanges._deleting",
    "WaitingRequests._count",
    "WaitingRequests._weight",
    "_Waiting.offsets",
    "_Waiting.thens",
}
# The clients of a member stay when its term ends, and figures go on.
NOT_OF_A_TERM: Final = ("broker.traffic.", "broker.consumers.", "broker.producers.")


class Ended(Exception):
    """The member leads no more, and the script ends."""


class Ending(Script):
    """A script that ends with one append, which is lost with the term, as all are from then on.

    Attributes:
        lost: those that wait for the outcomes.
    """

    def __init__(self, there: BrokerInMemory, last_append: int) -> None:
        self.lost: list[Done] = []
        super().__init__(there, Refusing(there.log, last_append, self._lose))

    def _lose(self, log: Refusing, _bodies: Sequence[Body], done: Done) -> None:
        self.lost.append(done)
        self.there.log.submit = partial(self._lose, log)  # type: ignore[method-assign]

    def tell(self) -> None:
        while self.lost:
            self.lost.pop(0)(LeadershipLost(1, 1, None))

    def settle(self) -> None:
        if not self.lost:
            super().settle()
        if self.lost:
            raise Ended


def memory(requests: Requests, shared: set[int]) -> dict[str, list[str]]:
    """Flags, numbers and the sizes of collections that are its own, by class and attribute."""
    found: dict[str, list[str]] = {}
    for one in objects_below(requests):
        module = type(one).__module__
        if id(one) in shared or not module.startswith("broker."):
            continue
        if module.startswith(NOT_OF_A_TERM):
            continue
        for name in [*getattr(one, "__dict__", {}), *getattr(type(one), "__slots__", ())]:
            value = getattr(one, name, None)
            if isinstance(value, list | dict | set | deque):
                value = len(value)
            if value is None or isinstance(value, bool | int | float):
                found.setdefault(f"{type(one).__name__}.{name}", []).append(repr(value))
    return {name: sorted(values) for name, values in found.items()}


def pop_some(script: Script) -> list[dict[str, Any]]:
    """Messages that are out all the time, as those that acknowledge them name them."""
    script.topic("OUT")
    out: list[dict[str, Any]] = []
    for _ in range(4):
        script.send("OUT")
        pop = script.pop(topic="OUT", consumerGroup="out", invisibleTime=43_200_000)
        (one,) = popped(pop)
        queue = {"consumerGroup": "out", "topic": "OUT", "queueId": 0}
        out.append({**queue, "offset": one.record.queue_offset, "extraInfo": one.handle})
    return out


def ask_for_all(there: BrokerInMemory, script: Script, out: Sequence[dict[str, Any]]) -> None:
    """Clients ask for what waits for messages, for topics and for the log."""
    queue: dict[str, Any] = {"consumerGroup": "g", "topic": "P", "queueId": 0}
    offset: dict[str, Any] = {**queue, "consumerGroup": "h", "commitOffset": 0}
    pull = pull_fields("T", there.parts[MESSAGE_READER].end("T", 0))
    reset: dict[str, Any] = {"group": "g", "topic": "T", "timestamp": 0, "isForce": "true"}
    send = {
        **{"a": "P", "b": "brand new", "c": "TBW102", "d": 1, "e": 0, "f": 0},
        **{"g": 0, "h": 0, "i": "", "j": 0, "k": "false"},
    }
    asked: list[tuple[int, bytes, dict[str, Any]]] = [
        (RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", ["P"])), {}),
        (RequestCode.POP_MESSAGE, b"", pop_fields("P", 15_000)),
        (RequestCode.POP_MESSAGE, b"", pop_fields("P", 15_000, order="true")),
        (RequestCode.POP_MESSAGE, b"", pop_fields("T", 15_000)),
        (RequestCode.PULL_MESSAGE, b"", {**pull, "consumerGroup": "h"}),
        (RequestCode.UPDATE_CONSUMER_OFFSET, b"", offset),
        (RequestCode.UPDATE_CONSUMER_OFFSET, b"", offset),
        *((RequestCode.ACK_MESSAGE, b"", each) for each in out),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, b"", reset),
        (RequestCode.SEND_MESSAGE_V2, b"x", send),
        (RequestCode.SEND_MESSAGE_V2, b"x", send),
        (RequestCode.DELETE_TOPIC_IN_BROKER, b"", {"topic": "T"}),
        (
            RequestCode.REDRIVE_DEAD_LETTERS,
            b"",
            {"consumerGroup": "g", "target": "TOPIC", "queueId": 0, "beginOffset": 0},
        ),
    ]
    for _ in range(2):  # the second ones wait behind the first
        commands = [script.command(code, body, **fields) for code, body, fields in asked]
        there.together(commands)


def differences(there: BrokerInMemory, when: str) -> dict[str, str]:
    """What is not as a new leader has it."""
    fresh = there.new_leader()
    shared = {id(one) for one in objects_below(there.requests)}
    shared &= {id(one) for one in objects_below(fresh)}
    old, new = memory(there.requests, shared), memory(fresh, shared)
    return {
        name: f"{when}: {old.get(name)}, not {new.get(name)}"
        for name in (old.keys() | new.keys()) - KEPT.keys()
        if old.get(name) != new.get(name)
    }


# When those that wait for an append of the term are told that it is lost. A member leads again only
# when it has applied an entry of its new term, and by then it has told all.
TOLD: Final = ("before the term ends", "between the terms")


def leads_again(there: BrokerInMemory, script: Ending, told: str) -> None:
    """The member hands leadership over, or loses it, and is elected once more."""
    for service in there.requests._services:
        service.ending()
    there.log.is_ready_leader = False
    proposed: list[Sequence[Body]] = []
    if told != TOLD[0]:
        there.requests.follow_role()

        def submit(bodies: Sequence[Body], _done: Done) -> None:
            proposed.append(bodies)
            raise NotLeader(None, 1)

        there.log.submit = submit  # type: ignore[method-assign, assignment]
    script.tell()
    assert proposed == [], "what waited was refused with the term, and is proposed after it"
    there.log.settle()
    there.requests.follow_role()
    there.log.is_ready_leader, there.log.term = True, 2
    there.requests.follow_role()


@pytest.mark.parametrize("told", TOLD)
def test_a_member_that_leads_again_is_as_a_new_leader_is(told: str) -> None:
    differs: dict[str, str] = {}
    waited: set[str] = set()
    ends = 0
    for number in range(0, MOST_APPENDS, EACH):
        with broker_in_memory() as there:
            script = Ending(there, number)
            out: list[dict[str, Any]] = []
            with suppress(Ended):
                out = pop_some(script)
                play(script)
            if not script.lost:
                break
            ends += 1
            ask_for_all(there, script, out)
            waited |= differences(there, "").keys()
            leads_again(there, script, told)
            differs |= differences(there, f"append {number}")
    assert ends > 15
    assert waited >= WAITS  # else the questions ask for nothing
    assert differs == {}


def test_a_pop_whose_group_is_made_when_another_member_leads_does_not_wait_here() -> None:
    """The next leader commits what this one has proposed. A pop that waits here would never end."""
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, lambda *_: None))
        script.topic("T")
        fields = {**pop_fields("T", 15_000), "consumerGroup": "brand-new"}
        heartbeat = encode_heartbeat(Heartbeat("c", [], [ConsumerData("brand-new-too")]))
        pop = script.command(RequestCode.POP_MESSAGE, **fields)
        beat = script.command(RequestCode.HEART_BEAT, heartbeat)
        there.together([pop, beat])
        there.log.is_ready_leader = False
        there.requests.follow_role()
        there.log.settle()
        assert there.answers.pop(pop.opaque).code == ResponseCode.POLLING_TIMEOUT
        assert there.answers.pop(beat.opaque).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert there.parts[CONSUMERS].count("brand-new-too") == 0
