"""What producers and consumers of a run note of what they are told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dledger_mq.errors import MessagingError, OutcomeUnknown, Rejected, TransactionRefused
from jepsen_like.chaos.brokers.clients import BROKER_WORKLOADS
from jepsen_like.chaos.brokers.everything import PARTS
from jepsen_like.chaos.brokers.grpc.kinds import GRPC_PARTS
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.stages.brokers import EXPLANATIONS, PROMISES, settings_of
from jepsen_like.check_files import Plan, check_file
from jepsen_like.checkers.catalogue import CATALOGUE
from jepsen_like.history.operation import EventType
from jepsen_like.history.reading import read_history
from jepsen_like.history.value import Value
from jepsen_like.history.writer import HistoryWriter

STEP = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def notes(path: Path) -> Iterator[Notes]:
    clock = itertools.count()
    with HistoryWriter(path, model="queue") as writer:
        yield Notes(Recorder(writer, lambda: next(clock)), STEP)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, EventType.OK),
        (Rejected("chaos", "no broker leads", 1), EventType.FAIL),
        (OutcomeUnknown("chaos", "the connection broke", 1), EventType.INFO),
        (TransactionRefused("chaos", "7", "it was rolled back"), EventType.FAIL),
        (MessagingError("something else"), EventType.INFO),
    ],
    ids=lambda value: type(value).__name__ if value is not None else "acknowledged",
)
async def test_the_kind_of_an_error_says_what_the_history_has(
    error: Exception | None, outcome: EventType, notes: Notes, path: Path
) -> None:
    async def send() -> None:
        if error is not None:
            raise error

    found, process = await notes.call(2, "send", None, 7, send)
    assert found is outcome
    assert process == (2 + STEP if outcome is EventType.INFO else 2)
    (operation,) = read_history(path).operations
    assert (operation.outcome, operation.value) == (outcome, 7)


async def test_what_a_broker_has_not_confirmed_is_unknown(notes: Notes) -> None:
    async def commit() -> bool:
        return False

    assert await notes.call(2, "commit", None, 7, commit) == (EventType.INFO, 2 + STEP)


async def test_a_message_that_is_due_and_was_not_received_is_lost_once_drained(
    notes: Notes, path: Path
) -> None:
    async def send() -> None:
        return None

    for number in (1, 2):
        await notes.call(2, "send", None, number, send)
        notes.expect(None, number)
    notes.receive(0, None, [1])
    assert not notes.all_received
    notes.drain(0, None)
    checked = check_file(path, Plan())
    assert checked.report is not None
    assert checked.report.counts == {"lost": 1}
    notes.receive(1, None, [2])
    assert notes.all_received


def test_every_workload_of_brokers_has_a_model_and_a_line_of_explanation() -> None:
    names = BROKER_WORKLOADS.keys()
    assert names == EXPLANATIONS.keys()
    assert names | PARTS.keys() | GRPC_PARTS.keys() == PROMISES.keys()
    assert {one.model for one in PROMISES.values()} <= CATALOGUE.keys()


async def test_an_answer_is_noted_with_its_value(notes: Notes, path: Path) -> None:
    async def fetch() -> int:
        return 7

    async def commit() -> None:
        return None

    assert await notes.call(2, "commit", 1, 7, commit) == (EventType.OK, 2)
    assert await notes.ask(3, "fetch", 1, fetch) == (EventType.OK, 3)
    checked = check_file(path, Plan(model="offsets"))
    assert checked.report is not None
    assert checked.report.verdict == "valid"
    assert checked.report.figures["fetches"] == 1


@pytest.mark.parametrize("nemesis", ["kill", "clock"])
def test_each_part_of_everything_has_a_model_and_a_clock_that_errs_as_the_nemeses_let_it(
    nemesis: str,
) -> None:
    parts = settings_of(RunPlan("everything", (nemesis,)))["parts"]
    assert isinstance(parts, dict)
    assert parts.keys() == PARTS.keys()
    assert {part["model"] for part in parts.values()} <= CATALOGUE.keys()
    alone = settings_of(RunPlan("delay", (nemesis,)))
    assert parts["delay"]["clock_error_ns"] == alone["clock_error_ns"]
    assert parts["recall"]["clock_error_ns"] == alone["clock_error_ns"]


def test_parts_note_in_one_history_what_is_due_of_each(notes: Notes, path: Path) -> None:
    first, second = notes.of_part("first"), notes.of_part("second")
    first.expect(None, 1)
    second.expect("key", 2)
    second.receive(0, "key", [2])
    assert notes.due == {(("first", None), 1), (("second", "key"), 2)}
    assert not notes.all_received
    first.expect_nothing(None)
    assert notes.all_received
    (received,) = read_history(path).operations
    assert received.key == ("second", "key")


async def test_a_receive_that_its_client_leaves_brings_nothing(notes: Notes, path: Path) -> None:
    async def receive() -> Value:
        await trio.sleep_forever()

    with trio.move_on_after(0):
        await notes.take(1, None, None, receive)
    (operation,) = read_history(path).operations
    assert operation.failed
    assert not notes.received


async def test_calls_of_one_client_at_once_are_of_processes_that_are_its_own(
    notes: Notes, path: Path
) -> None:
    async def receive() -> Value:
        await trio.lowlevel.checkpoint()
        return ({"id": 7},)

    part = notes.of_part("plain")
    async with trio.open_nursery() as nursery:
        for one in (notes, part, part):
            nursery.start_soon(one.take, 1, None, None, receive)
    operations = read_history(path).operations
    assert len({one.process for one in operations}) == len(operations) == 3
    assert {one.process % STEP for one in operations} == {1}
    assert notes.received == {(None, 7), (("plain", None), 7)}
