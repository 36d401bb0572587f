"""Each workload, run by hand on one machine, makes histories that its model takes for valid."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

from dledger.entry import Entry, Magic
from jepsen_like.chance import Chance
from jepsen_like.chaos.outcomes import ok
from jepsen_like.chaos.service import Call, Caller, CallFailed, Described
from jepsen_like.chaos.services import find_service
from jepsen_like.chaos.wire import (
    Messages,
    call_message,
    outcome_message,
    parse_call,
    parse_outcome,
)
from jepsen_like.chaos.workloads.catalogue import WORKLOADS
from jepsen_like.chaos.workloads.json_commands import JsonCommands
from jepsen_like.check_files import Plan, check_file
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import thawed
from jepsen_like.history.writer import HistoryWriter

CALLS = 600
CLIENTS = 4


def entry(index: int, body: bytes) -> Entry:
    return Entry(index, 1, 0, Magic.NORMAL, body)


class OneMember:
    """A member of a group of one, without a log."""

    def __init__(self, service: Described) -> None:
        self.service = service
        self.machine = service.service.machine()
        self._indexes = itertools.count()

    def make(self, call: Call) -> object:
        """As clients do, over the wire and back."""
        messages = Messages()
        messages.feed(call_message(call, in_session=False))
        message = messages.next()
        assert message is not None
        arrived, _ = parse_call(message)
        if arrived.is_read:
            result = self.service.query(self.machine, arrived)
        else:
            assert arrived.body is not None
            (result,) = self.machine.apply([entry(next(self._indexes), arrived.body)])
        messages.feed(outcome_message(ok(result), None))
        message = messages.next()
        assert message is not None
        outcome, _ = parse_outcome(message)
        return outcome.value if call.is_read else self.service.answered(call, outcome.value)


def write_history(
    path: Path, service: Described, member: OneMember, lie: random.Random | None = None
) -> Counter[str]:
    """Sequential clients. With `lie` some answers are those to an earlier call like it."""
    counts: Counter[str] = Counter()
    earlier: dict[tuple[str, object], object] = {}
    clock = itertools.count()
    numbers = itertools.count()
    chances = [Chance(1, f"client {client}") for client in range(CLIENTS)]
    with HistoryWriter(path, model=service.model_name, **service.settings) as writer:

        def note(process: int, type: EventType, call: Call, value: object) -> None:
            writer.event(process, next(clock), type, call.function, call.key, value)

        def make(process: int, call: Call) -> None:
            note(process, EventType.INVOKE, call, call.value)
            try:
                value = member.make(call)
            except CallFailed:
                note(process, EventType.FAIL, call, call.value)
                counts[f"{call.function} failed"] += 1
                return
            if lie is not None and lie.random() < 0.2:
                value = earlier.get((call.function, call.key), value)
            earlier[call.function, call.key] = value
            note(process, EventType.OK, call, value)
            counts[call.function] += 1
            counts["reads"] += call.is_read

        for _ in range(CALLS):
            process = random.Random(next(clock)).randrange(CLIENTS)
            make(
                process, service.service.generate(Caller(chances[process], process, next(numbers)))
            )
        for call in service.final():
            make(0, call)
    return counts


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_correct_member_makes_a_valid_history(name: str, tmp_path: Path) -> None:
    service = find_service(name)
    counts = write_history(tmp_path / "history.jsonl", service, OneMember(service))
    checked = check_file(tmp_path / "history.jsonl", Plan())
    assert checked.verdict == "valid", checked
    assert sum(counts.values()) > CALLS / 2
    if name not in ("lock", "queue"):
        assert counts["reads"] > 20


# Answers of locks have no past, sums of a bank are always right, and a transaction names its steps.
@pytest.mark.parametrize("name", sorted(WORKLOADS.keys() - {"lock", "bank", "append"}))
def test_old_answers_are_noticed(name: str, tmp_path: Path) -> None:
    service = find_service(name)
    write_history(tmp_path / "history.jsonl", service, OneMember(service), random.Random(5))
    assert check_file(tmp_path / "history.jsonl", Plan()).verdict == "invalid"


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_snapshot_restores_the_state(name: str, tmp_path: Path) -> None:
    service = find_service(name)
    member = OneMember(service)
    write_history(tmp_path / "history.jsonl", service, member)
    other = service.service.machine()
    assert isinstance(member.machine, JsonCommands)
    assert isinstance(other, JsonCommands)
    other.restore(iter(member.machine.snapshot()))
    assert service.state(other) == service.state(member.machine)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_a_body_that_is_no_command_changes_nothing(name: str) -> None:
    machine = find_service(name).service.machine()
    assert machine.apply([entry(0, b"\xff\x00"), entry(1, b"[1]"), entry(2, b"{}")]) == [None] * 3


def test_the_bank_notices_money_that_appears() -> None:
    service = find_service("bank")
    machine = service.service.machine()
    assert service.invariant(machine) is None
    assert isinstance(machine, JsonCommands)
    machine.state["0"] += 1
    assert service.invariant(machine) == "the balances add up to 801, not 800"


def test_values_of_calls_pass_over_the_wire_unchanged() -> None:
    call = Call("txn", None, (("r", "x", None), ("append", "y", 3)))
    messages = Messages()
    messages.feed(call_message(call, in_session=True))
    message = messages.next()
    assert message is not None
    arrived, in_session = parse_call(message)
    assert in_session
    assert (arrived.function, arrived.key, thawed(arrived.value)) == (
        "txn",
        None,
        [["r", "x", None], ["append", "y", 3]],
    )
    assert arrived.body == call.entry
