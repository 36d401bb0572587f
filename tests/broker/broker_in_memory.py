"""A whole broker without network, disk of its log, or time: its fold, and what its leader does.

Each append is applied by the next `settle`. The test moves the clock.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from broker.access.user_changes import RANDOM_BYTES
from broker.config import BrokerConfig
from broker.delay.deliveries import DELIVERIES
from broker.features import REGISTRY
from broker.formats.commands import RaiseFormat
from broker.formats.gate import READ_BY_ALL
from broker.log.command_layout import LogCommand
from broker.log.entry import LARGE_ENTRIES_VERSION, encode_log_command
from broker.log.guarded_log import GuardedLog
from broker.machine import BrokerMachine
from broker.retention.kept_back import KEPT_BACK
from broker.serving.parts import Parts
from broker.serving.requests import Requests
from broker.store.consume_queues import ConsumeQueues
from broker.store.message_reader import MESSAGE_READER
from dledger import (
    HEADER_BYTES,
    LARGEST_BODY_BYTES,
    Appended,
    Body,
    DLedgerError,
    Entry,
    EntryTooLarge,
    LogCorrupt,
)
from dledger.entry import Magic, body_bytes, stamped_body
from jepsen_like.simulation.broker.served_broker import Client, services_of
from remoting.message.record import MessageRecord, decode_records
from remoting.net.address import Address
from remoting.net.connection import Connection
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS
from tests.broker.untimed import AtOnce

Done = Callable[[list[Appended] | DLedgerError], None]


class MemoryLog:
    """Implements `broker.log.replicated_log.Log`."""

    is_ready_leader = True
    term = 1
    begin_position = 0

    def __init__(self, machine: BrokerMachine, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.content = bytearray()
        self.longest_body_bytes = 0
        self.is_damaged = False
        self._entries = 0
        self._machine = machine
        self._pending: deque[tuple[list[Entry], Done]] = deque()

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        if (longest := max(map(body_bytes, bodies))) > self.max_body_bytes:
            raise EntryTooLarge(longest, self.max_body_bytes)
        self.longest_body_bytes = max(self.longest_body_bytes, longest)
        entries: list[Entry] = []
        for body in bodies:
            placed = stamped_body(body, self.end)
            entries.append(Entry(self._entries, self.term, self.end, Magic.NORMAL, placed))
            self._entries += 1
            self.content += bytes(HEADER_BYTES) + placed
        self._pending.append((entries, done))

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        return len(self.content)

    def read_bytes(self, pos: int, size: int) -> bytes:
        assert pos + size <= self.end
        return bytes(memoryview(self.content)[pos : pos + size])

    def check_at(self, pos: int) -> None:
        """Raise LogCorrupt if the test has damaged what this member has."""
        if self.is_damaged:
            raise LogCorrupt("memory", pos, "damaged by the test")

    def settle(self) -> None:
        """Apply what was appended, and what that has appended."""
        while self._pending:
            entries, done = self._pending.popleft()
            results = self._machine.apply(entries)
            done(
                [
                    Appended(one.index, one.term, one.pos, result)
                    for one, result in zip(entries, results, strict=True)
                ]
            )


class BrokerInMemory:
    """A leader, and a client that asks it.

    Attributes:
        now_ms: the wall clock.
        log: the log.
        parts: what the features share.
        questions: what the broker has asked the client.
        answers: to its requests, by number.
    """

    def __init__(self, folder: Path, max_body_bytes: int, format_version: int) -> None:
        self.now_ms = START_MS
        self._folder = folder
        self.machine = BrokerMachine(ConsumeQueues(folder / "consumequeue"), REGISTRY)
        self.log = MemoryLog(self.machine, max_body_bytes)
        self._format_version = format_version
        self.parts = self._new_parts()
        self.answers: dict[int, Command] = {}
        self._answer_counts: Counter[int] = Counter()
        self._opaque = 0
        self.questions: list[Command] = []
        self.client = Client(self._answered, self.questions.append)
        self.requests = self._new_requests(self.parts)
        self.machine.on_applied = self.requests.applied
        self.requests.follow_role()
        if format_version:
            self.fold(RaiseFormat(format_version))
        self.log.settle()

    def _new_parts(self) -> Parts:
        return Parts(
            config=BrokerConfig(
                group="broker-a",
                node_id="n0",
                peers={},
                listen=Address("127.0.0.1", 10911),
                directory=self._folder,
            ),
            log=GuardedLog(self.log),
            state=self.machine.state,
            queues=self.machine.queues,
            announce=lambda then: None if then is None else then(),
            confirm=lambda then: then(None),
            led_term=lambda: self.requests.led_term,
            wall_clock_ms=lambda: self.now_ms,
            clock=lambda: self.now_ms / 1000,
            process_id=1,
            figures=dict,
            work=AtOnce(),
            made={RANDOM_BYTES: os.urandom, READ_BY_ALL: lambda: self._format_version},
        )

    def _new_requests(self, parts: Parts) -> Requests:
        return Requests(
            "broker-a",
            parts.log,
            services_of(parts),
            lambda then: then(None),
            lambda: None,
            lambda: True,
        )

    def new_leader(self) -> Requests:
        """What another member has that leads from now on, over the same state and log."""
        requests = self._new_requests(self._new_parts())
        requests.follow_role()
        return requests

    def _answered(self, reply: Command) -> None:
        self.answers[reply.opaque] = reply
        self._answer_counts[reply.opaque] += 1

    def check_answers(self) -> None:
        """No request was answered twice: the second answer may be another request's."""
        assert [one for one, count in self._answer_counts.items() if count > 1] == []

    def fold(self, command: LogCommand) -> None:
        """Append a command, as no service does."""
        self.log.submit([encode_log_command(command)], lambda _outcome: None)
        self.log.settle()

    def together(self, commands: Sequence[Command]) -> None:
        """Requests that come in one read; those behind an answer in steps wait for it."""
        left = list(commands)
        while left:
            del left[: self.requests.on_commands(cast(Connection, self.client), left)]

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """A request and its reply."""
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        command = Command(code, texts, body, opaque=self._opaque)
        self.together([command])
        self.log.settle()
        return self.answers.pop(self._opaque)

    def at(self, at_s: float) -> None:
        """Let it be so late, and all that is due be done."""
        self.now_ms = START_MS + round(at_s * 1000)
        deliveries = self.parts[DELIVERIES]
        for _ in range(3):
            self.requests.tick()
            self.log.settle()
            while deliveries.deliver() == 0.0:
                self.log.settle()
            self.log.settle()

    def move_everything(self) -> None:
        """Have all messages moved that wait, as before retention drops the log so far."""
        self.parts[KEPT_BACK].move_before(self.log.end)
        self.at((self.now_ms - START_MS) / 1000 + 2)

    def messages(self, topic: str) -> list[MessageRecord]:
        """All messages of a topic, whatever their queues."""
        found: list[MessageRecord] = []
        reader = self.parts[MESSAGE_READER]
        for queue_id in range(18):
            at, end = 0, reader.end(topic, queue_id)
            while at < end:
                read = reader.read(topic, queue_id, at, 32)
                found += decode_records(read.messages)
                at = read.next_offset
        return found


@contextmanager
def broker_in_memory(
    max_body_bytes: int = LARGEST_BODY_BYTES, format_version: int = LARGE_ENTRIES_VERSION
) -> Iterator[BrokerInMemory]:
    """A broker whose log is of a format that has large entries, unless it is told otherwise."""
    with TemporaryDirectory() as folder:
        broker = BrokerInMemory(Path(folder), max_body_bytes, format_version)
        try:
            yield broker
            broker.check_answers()
        finally:
            broker.machine.close()
