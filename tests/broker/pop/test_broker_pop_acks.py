"""Acknowledgements of popped messages whose outcome only the log knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import pytest

from broker.log.append_outcome import not_leader
from broker.log.submissions import Then
from broker.pop.acks import PopAcks
from broker.pop.handle import handle
from broker.pop.state import POPS
from dledger import Appended, DLedgerError
from dledger.entry import Body
from remoting.bodies.pop import AckedPop, encode_batch_ack
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.pop.test_broker_pop_model import KEY, Member

T = TypeVar("T")

Done = Callable[[list[Appended] | DLedgerError], None]


class LaterWork:
    """Implements WorkInSteps: takes steps when it is told to."""

    def __init__(self) -> None:
        self._steps: deque[Iterator[object]] = deque()

    def later(self, _what: str, steps: Iterator[object]) -> None:
        self._steps.append(steps)

    begin = later

    def each(self, what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        self.later(what, map(do, items))

    def do(self, most: int) -> None:
        """Take so many steps."""
        for _ in range(most):
            if not self._steps:
                return
            if next(self._steps[0], self) is self:
                self._steps.popleft()


class Acknowledging:
    """A leader whose log takes its time."""

    def __init__(self) -> None:
        self.member = Member()
        self.member.reader.count = 3
        self.submitted: list[tuple[Sequence[Body], Done]] = []
        self.confirmations: list[Then] = []
        self.codes: list[int] = []
        self.work = LaterWork()
        self.acks = PopAcks(
            self.member.parts(
                self, confirm=self.confirmations.append, wall_clock_ms=lambda: 0, work=self.work
            ),
            self.member.chooser,
            lambda _key: None,
        )

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        """Implements Log."""
        self.submitted.append((bodies, done))

    def send(self, reply: Command) -> None:
        """Implements Origin."""
        self.codes.append(reply.code)

    def ack(self, offset: int, popped_ms: int) -> None:
        group, topic, queue_id = KEY
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "offset": str(offset),
            "extraInfo": handle(offset, popped_ms, 10, False, "b", queue_id, offset),
        }
        self.acks.ack(cast(Any, self), Command(RequestCode.ACK_MESSAGE, fields))
        self.acks.gathered.flush()

    def ack_batch(self, offsets: list[int], popped_ms: int) -> None:
        group, topic, queue_id = KEY
        pop = AckedPop(group, topic, queue_id, popped_ms, offsets)
        body = encode_batch_ack("b", [pop])
        self.acks.ack_batch(cast(Any, self), Command(RequestCode.BATCH_ACK_MESSAGE, body=body))
        self.acks.gathered.flush()

    def apply(self) -> None:
        """The log has what was submitted."""
        (bodies, done) = self.submitted.pop(0)
        for body in bodies:
            self.member.log.append(bytes(cast(bytes, body)))
        self.member.fold_rest()
        done([Appended(0, 1, 0, None) for _ in bodies])
        self.work.do(10_000)


def test_many_acknowledgements_are_answered_one_by_one_also_when_the_term_ends() -> None:
    one = Acknowledging()
    one.member.reader.count = 8
    given = one.member.pop(1000, 4, False, "")
    assert len(given) >= 3
    for offset in given[:3]:
        one.ack(offset, 1000)
    assert len(one.submitted) == 1  # the others wait for it
    one.acks.gathered.refuse_waiting(not_leader("b"))
    assert one.codes == []
    one.work.do(1)
    assert one.codes == [not_leader("b").code]
    one.work.do(1)
    assert len(one.codes) == 2
    (bodies, done) = one.submitted.pop(0)
    done([Appended(0, 1, 0, None) for _ in bodies])
    assert len(one.codes) == 2
    one.work.do(10)
    assert len(one.codes) == 3


def test_an_acknowledgement_that_comes_behind_another_pop_is_not_said_to_count() -> None:
    one = Acknowledging()
    assert one.member.pop(1000, 1, False, "") == [0]
    one.ack(0, 1000)
    assert one.member.pop(2000, 1, False, "") == [0]  # its entry is before the acknowledgement
    one.apply()
    assert one.codes == [ResponseCode.NO_MESSAGE]


def test_a_member_that_does_not_know_of_a_pop_makes_sure_that_it_leads() -> None:
    one = Acknowledging()
    one.ack(0, 1000)
    assert one.codes == []
    one.confirmations.pop()(not_leader("g"))
    assert one.codes == [not_leader("g").code]
    assert not one.submitted


def test_an_acknowledgement_counts_when_its_pop_is_applied_meanwhile() -> None:
    one = Acknowledging()
    one.ack(0, 1000)
    assert one.member.pop(1000, 1, False, "") == [0]
    one.confirmations.pop()(None)
    one.apply()
    assert one.codes == [0]
    assert not one.member.state[POPS].queues[KEY].in_flight


def test_a_second_acknowledgement_is_answered_as_the_first_one() -> None:
    one = Acknowledging()
    assert one.member.pop(1000, 1, False, "") == [0]
    one.ack(0, 1000)
    one.apply()
    one.ack(0, 1000)
    one.confirmations.pop()(None)
    assert one.codes == [0, 0]
    assert not one.submitted


@pytest.mark.parametrize("leads", [True, False])
def test_a_batch_with_messages_that_are_not_out_makes_sure_first(leads: bool) -> None:
    one = Acknowledging()
    assert one.member.pop(1000, 1, False, "") == [0]
    one.ack_batch([0, 1], 1000)
    assert one.codes == []
    one.confirmations.pop()(None if leads else not_leader("g"))
    if leads:
        one.apply()
    assert one.codes == [0 if leads else not_leader("g").code]
