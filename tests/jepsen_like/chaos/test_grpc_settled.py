"""Consumers that acknowledge and hide what proxies give them, and what the history then tells."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from google.protobuf.message import Message

from jepsen_like.chaos.brokers.grpc.connection import CallBroken
from jepsen_like.chaos.brokers.grpc.settled import EVERY, KEPT, LATE, LEFT, Settled
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.stages.brokers import PROMISES
from jepsen_like.check_files import Checked, Plan, check_file
from jepsen_like.history.reading import read_history
from jepsen_like.history.writer import HistoryWriter
from proxy.wire.messages_pb2 import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    Code,
    QueryAssignmentRequest,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)

STEP = 7
CONSUMER = 1
# All that is hidden has come again by then, and was acknowledged.
LONG_S = 60.0


class Stored:
    """A message of the broker: visible from a time on, or acknowledged."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.delivery = 0
        self.visible_s = 0.0
        self.is_acknowledged = False


class Broker:
    """Answers a consumer as two proxies do; the test changes its mistakes.

    Attributes:
        forgets: whether acknowledgements are told and not kept.
        takes_stale: whether handles of earlier deliveries are good.
        hides_less: by how many seconds messages are visible too soon.
        breaks: how many further acknowledgements are kept, without an answer.
    """

    def __init__(self, numbers: range) -> None:
        self.stored = [Stored(number) for number in numbers]
        self.asked: list[tuple[int, type[Message]]] = []
        self.forgets = self.takes_stale = False
        self.hides_less = 0.0
        self.breaks = 0

    async def ask(self, place: int, request: Any, answer_type: Any) -> list[Any]:
        self.asked.append((place, type(request)))
        answer = answer_type()
        if isinstance(request, ReceiveMessageRequest):
            return [part async for part in self._given(request)]
        answer.status.code = Code.OK
        if isinstance(request, QueryAssignmentRequest):
            answer.assignments.add().message_queue.topic.name = request.topic.name
        if isinstance(request, AckMessageRequest):
            found = self._held(request.entries[0].receipt_handle)
            if found is None:
                answer.status.code = Code.INVALID_RECEIPT_HANDLE
            elif not self.forgets:
                found.is_acknowledged = True
            if self.breaks:
                self.breaks -= 1
                raise CallBroken("the proxy was killed", False)
        if isinstance(request, ChangeInvisibleDurationRequest):
            found = self._held(request.receipt_handle)
            if found is None:
                answer.status.code = Code.INVALID_RECEIPT_HANDLE
            else:
                self._hide(found, request.invisible_duration.ToMilliseconds())
        return [answer]

    def _hide(self, one: Stored, time_ms: int) -> None:
        one.visible_s = trio.current_time() + time_ms / 1000 - self.hides_less

    def _held(self, handle: str) -> Stored | None:
        number, delivery = map(int, handle.split())
        one = self.stored[number]
        is_newest = delivery == one.delivery or self.takes_stale
        return one if is_newest and not one.is_acknowledged else None

    async def _given(self, request: ReceiveMessageRequest) -> AsyncIterator[Any]:
        """Yield the messages that are visible, or one that becomes so within the wait."""
        with trio.move_on_after(request.long_polling_timeout.ToMilliseconds() / 1000):
            visible: list[Stored] = []
            while not visible:
                await trio.sleep(0.05)
                visible = [one for one in self.stored if self._is_visible(one)]
            for one in visible:
                one.delivery += 1
                self._hide(one, request.invisible_duration.ToMilliseconds())
                part = ReceiveMessageResponse()
                part.message.body = b"%d" % one.number
                system = part.message.system_properties
                system.queue_offset = one.number
                system.delivery_attempt = one.delivery
                system.receipt_handle = f"{one.number} {one.delivery}"
                yield part

    def _is_visible(self, one: Stored) -> bool:
        return not one.is_acknowledged and one.visible_s <= trio.current_time()


class Asking:
    """A client that begins with one of two proxies."""

    def __init__(self, broker: Broker, place: int) -> None:
        self._broker = broker
        self._place = place % 2

    async def ask(self, request: Any, answer_type: Any, timeout_s: float) -> list[Any]:
        return await self._broker.ask(self._place, request, answer_type)


class Consuming(Settled):
    """The workload, with clients of the broker of this test."""

    broker: Broker

    @asynccontextmanager
    async def _client(self, place: int) -> AsyncIterator[Any]:
        yield Asking(self.broker, place)


@pytest.fixture
def broker() -> Broker:
    return Broker(range(2 * EVERY))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[HistoryWriter]:
    settings = {**PROMISES["settled"].settings}
    with HistoryWriter(tmp_path / "history.jsonl", model="settled", **settings) as writer:
        yield writer


async def checked_run(broker: Broker, writer: HistoryWriter, path: Path) -> Checked:
    """Have a consumer consume what was sent, and check its notes."""

    async def sent() -> None: ...

    notes = Notes(Recorder(writer, lambda: int(trio.current_time() * 1e9)), STEP)
    for one in broker.stored:
        await notes.call(4, "send", None, one.number, sent)
        notes.expect(None, one.number)
    workload = Consuming(notes, ["127.0.0.1:1"], ["127.0.0.1:2", "127.0.0.1:3"])
    workload.broker = broker
    workload.go_on(read_history(path).operations)
    async with workload.consumer(CONSUMER):
        await trio.sleep(LONG_S)
    assert notes.all_received
    notes.drain(CONSUMER, None)
    return check_file(path, Plan(allowed=PROMISES["settled"].allowed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


async def test_a_consumer_acknowledges_in_time_or_late_and_hides_messages_by_both_proxies(
    broker: Broker, writer: HistoryWriter, path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    checked = await checked_run(broker, writer, path)
    assert checked.report is not None
    assert checked.report.verdict == "valid", checked.report.problems
    assert all(one.is_acknowledged for one in broker.stored)
    deliveries = {one.number % EVERY: one.delivery for one in broker.stored}
    assert {how for how, number in deliveries.items() if number > 1} == {LEFT, LATE}
    assert deliveries[KEPT] == 1
    assert {place for place, kind in broker.asked if kind is AckMessageRequest} == {0, 1}
    operations = read_history(path).operations
    late = [one for one in operations if one.function == "acknowledge" and not one.ok]
    assert {one.value["id"] % EVERY for one in late} == {LATE}  # type: ignore[index]


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [
        ({"forgets": True}, "came again"),
        ({"takes_stale": True}, "stale handle"),
        ({"hides_less": 0.5}, "given early"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_notes_show_a_broker_that_does_not_keep_what_it_told(
    mistake: dict[str, Any],
    kind: str,
    broker: Broker,
    writer: HistoryWriter,
    path: Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    vars(broker).update(mistake)
    checked = await checked_run(broker, writer, path)
    assert checked.report is not None
    assert checked.report.verdict == "invalid"
    assert kind in checked.report.counts


async def test_an_acknowledgement_without_an_answer_is_unknown_though_its_repeat_is_refused(
    broker: Broker, writer: HistoryWriter, path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    broker.breaks = 3
    checked = await checked_run(broker, writer, path)
    assert checked.report is not None
    assert checked.report.verdict == "valid"
    operations = read_history(path).operations
    open_ones = [one for one in operations if one.function == "acknowledge" and not one.ok]
    assert len(open_ones) >= 3
    assert not any(one.failed for one in open_ones)
