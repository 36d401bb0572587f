"""Tasks that wait for reads: each is answered once, and there is a bound on how many wait."""

import pytest
import trio

from dledger.core.reads.read_index import ReadLost, ReadReady
from dledger.errors import DLedgerError, NodeClosing, ReadUnavailable
from dledger.node_end import NodeEnd
from dledger.waits import pending_reads
from dledger.waits.call_waits import wait_read
from dledger.waits.pending_reads import PendingReads
from dledger.waits.read_problem import ReadFacts

FACTS = ReadFacts("follower", "n0", 3, False, 5)


class Answers:
    """What became of each read, by the order they began in."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.reads = PendingReads(self.tickets.append, lambda: FACTS, wait_s=2.0)
        self.found: list[int | type[DLedgerError]] = []

    async def read(self) -> None:
        try:
            self.found.append(await wait_read(self.reads))
        except DLedgerError as error:
            self.found.append(type(error))


async def test_a_read_is_answered_when_its_index_is_applied() -> None:
    answers = Answers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answers.read)
        await trio.testing.wait_all_tasks_blocked()
        answers.reads.take([ReadReady(answers.tickets[0], 7)], [])
        answers.reads.applied_to(6)
        await trio.testing.wait_all_tasks_blocked()
        assert answers.found == []
        answers.reads.applied_to(7)
    assert answers.found == [7]


async def test_a_confirmed_read_can_still_be_lost_and_is_answered_once() -> None:
    answers = Answers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answers.read)
        await trio.testing.wait_all_tasks_blocked()
        (ticket,) = answers.tickets
        answers.reads.take([ReadReady(ticket, 7)], [])
        answers.reads.take([], [ReadLost(ticket)])
        answers.reads.take([], [ReadLost(ticket)])
        answers.reads.applied_to(7)
    assert answers.found == [ReadUnavailable]


async def test_news_of_a_read_that_was_given_up_wakes_nobody() -> None:
    answers = Answers()
    with trio.move_on_after(0):
        await answers.read()
    answers.reads.take([ReadReady(1, 3)], [ReadLost(1)])
    answers.reads.applied_to(3)
    answers.reads.close(NodeEnd())
    assert answers.found == []


async def test_more_reads_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_reads, "MAX_WAITING_READS", 2)
    answers = Answers()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(answers.read)
        await trio.testing.wait_all_tasks_blocked()
        assert answers.found == [ReadUnavailable]
        answers.reads.close(NodeEnd())
    assert answers.found == [ReadUnavailable, NodeClosing, NodeClosing]
