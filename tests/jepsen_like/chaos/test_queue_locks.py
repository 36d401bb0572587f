"""The workload of locks: what the history has of clients that take and give back locks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dledger_mq import MessageQueue
from dledger_mq.errors import MessagingError, OutcomeUnknown, SendFailed
from jepsen_like.chance import Chance
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.queue_locks import (
    HELD_AT_MOST_NS,
    LOCK_PERIOD_NS,
    LONGEST_HOLD_S,
    NS_A_S,
    QueueLocks,
)
from jepsen_like.chaos.brokers.workload import Turn
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.check_files import Plan, check_file
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.reading import read_history
from jepsen_like.history.writer import HistoryWriter
from remoting.wire.errors import RemotingError

STEP = 10
HOLD_NS = round(LONGEST_HOLD_S * NS_A_S)
OK, FAIL, INFO = EventType.OK, EventType.FAIL, EventType.INFO


class LocksOfOneBroker(QueueLocks):
    """Locks as a broker gives them, whose next answers may be lost."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes, [])
        self._queue = MessageQueue("chaos", "broker-a", 0)
        self.owners: dict[str, str] = {}
        self.names: list[str] = []
        self.errors: list[Exception | None] = []
        self.gives_to_all = False

    async def lock(self, client: Any, group: str, client_id: str) -> bool:
        self.names.append(client_id)
        if self.gives_to_all:
            return True
        owner = self.owners.setdefault(group, client_id)
        self._answer()
        return owner == client_id

    async def unlock(self, client: Any, group: str, client_id: str) -> None:
        if self.owners.get(group) == client_id:
            del self.owners[group]
        self._answer()

    def _answer(self) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


class Clients:
    """Clients of such a broker, by their places."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self.path = path
        self.locks = LocksOfOneBroker(notes)
        self.now_ns = 0
        self._processes = {0: 0, 1: 1}
        self._numbers = itertools.count()

    async def turn(self, place: int) -> EventType:
        number = next(self._numbers)
        turn = Turn(place, self._processes[place], number, Chance(1, "any"), self.now_ns)
        outcome, self._processes[place] = await self.locks.send(None, turn)
        return outcome

    async def late_turn(self, place: int) -> EventType:
        """One at which whoever has a lock gives it back."""
        self.now_ns += HOLD_NS
        return await self.turn(place)

    def verdict(self) -> str:
        return check_file(self.path, Plan("mutex")).verdict

    def operations(self) -> Sequence[Operation]:
        return read_history(self.path).operations

    def told(self) -> list[tuple[str, int, EventType]]:
        return [(each.function, each.process, each.outcome) for each in self.operations()]


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    clock = itertools.count()
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, model="mutex") as writer:
        yield Clients(path, Notes(Recorder(writer, lambda: next(clock)), STEP))


async def test_a_client_keeps_a_lock_for_a_while_and_is_refused_what_another_has(
    clients: Clients,
) -> None:
    assert [await clients.turn(place) for place in (0, 0, 1)] == [OK, OK, FAIL]
    assert [await clients.late_turn(0), await clients.turn(1), await clients.late_turn(1)] == [
        OK
    ] * 3
    assert [function for function, _, _ in clients.told()] == [
        *("acquire", "acquire", "release", "acquire", "release")
    ]
    assert clients.verdict() == "valid"


async def test_a_broker_that_gives_a_lock_to_two_is_found(clients: Clients) -> None:
    clients.locks.gives_to_all = True
    assert [await clients.turn(place) for place in (0, 1)] == [OK, OK]
    assert clients.verdict() == "invalid"


async def test_each_acquisition_has_a_name_that_never_comes_again(clients: Clients) -> None:
    for place in (0, 0, 0, 0, 1, 1):
        await clients.late_turn(place)
    assert len(set(clients.locks.names)) == len(clients.locks.names) == 3


@pytest.mark.parametrize(
    "error",
    [OutcomeUnknown("chaos", "late", 1), MessagingError("no reply"), RemotingError("it broke")],
    ids=lambda error: type(error).__name__,
)
async def test_a_client_whose_answer_was_lost_goes_on_as_another(
    error: Exception, clients: Clients
) -> None:
    await clients.turn(0)
    clients.locks.errors = [error]
    assert await clients.late_turn(0) is INFO  # it was given back, and the client does not know
    assert [await clients.turn(1), await clients.late_turn(1), await clients.turn(0)] == [OK] * 3
    assert [process for _, process, _ in clients.told()] == [0, 0, 1, 1, STEP]
    assert clients.verdict() == "valid"


async def test_a_lock_that_could_not_be_given_back_is_tried_again_and_then_left(
    clients: Clients,
) -> None:
    await clients.turn(0)
    clients.locks.errors = [SendFailed("chaos", "no broker leads", 1)] * 2
    assert await clients.late_turn(0) is FAIL
    assert await clients.turn(0) is FAIL
    clients.now_ns = HELD_AT_MOST_NS + 1
    assert await clients.turn(0) is INFO
    assert await clients.turn(1) is OK
    assert clients.verdict() == "valid"


async def test_locks_of_clients_that_were_killed_become_free(clients: Clients) -> None:
    await clients.turn(0)
    clients.locks.go_on(clients.operations())
    clients.locks.owners.clear()  # it has expired
    assert await clients.turn(1) is OK
    assert clients.verdict() == "valid"


async def test_locks_follow_one_another(clients: Clients) -> None:
    await clients.turn(0)
    await clients.late_turn(0)
    clients.now_ns = LOCK_PERIOD_NS
    await clients.turn(0)
    assert [one.key for one in clients.operations()] == ["lockers-0", "lockers-0", "lockers-1"]
