"""The folders that an earlier program wrote open, mean what they meant, and go on.

`folders-of-format-5` was written by the last program of log format 5; `write_folders.py` says how
and what is in it.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.delay.commands import MoveDelayed
from broker.delay.deliveries import DELIVERIES
from broker.features import REGISTRY, empty_state
from broker.formats.state import FORMATS
from broker.log.entry import FORMAT_VERSION, EntryKind, kind_of
from broker.log.fold import fold
from broker.log.state_snapshot import captured, restored
from broker.retention.commands import KeepLogFrom
from broker.transactions.commands import MoveHalf
from dledger.store.disk import OsDisk
from dledger.store.snapshot_file import SnapshotReader
from remoting.bodies.consumer_group import QueueLock, decode_locked_queues, encode_queue_lock
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.table import decode_properties_text
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import Client, Clock, until
from tests.broker.pop.popping_broker import PopClient
from tests.broker.three_brokers import Group, group_of_three
from tests.broker.transactions.transacting_broker import COMMIT, HALF, ROLLBACK
from tests.broker.write_folders import NODES, applied, entries_of, read_all, rows_of

DATA = Path(__file__).parents[1] / "data"
NAME = "folders-of-format-5"
HOUR_MS = 3_600_000
# Written when segments of the log are dropped, so not by a few messages.
OF_RETENTION = {KeepLogFrom.kind, MoveDelayed.kind, MoveHalf.kind}


@pytest.fixture(scope="module")
def told() -> Any:
    """What the earlier program says of its folders."""
    return json.loads((DATA / f"{NAME}.json").read_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folders of the three members."""
    with tarfile.open(DATA / f"{NAME}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


# --- what the log means ---------------------------------------------------------------------------


def state_in(rows: dict[str, list[Any]], told: Any) -> dict[str, list[Any]]:
    """The rows of what the earlier program had. What came later must be as in an empty log."""
    then = told["state"]
    numbers = {name for name, _value in then["numbers"]}
    new = [row for row in rows["numbers"] if row[0] not in numbers]
    empty = rows_of(captured(empty_state()))
    assert all(row in empty["numbers"] for row in new), new
    assert {what for what in rows if what not in then} <= empty.keys()
    kept = {what: some for what, some in rows.items() if what in then}
    return {**kept, "numbers": [row for row in rows["numbers"] if row[0] in numbers]}


def test_each_members_log_is_folded_to_the_state_that_it_was_folded_to(
    folder: Path, told: Any
) -> None:
    for node in NODES:
        state = empty_state()
        entries = entries_of(folder / node)
        assert len(entries) == told["entries"]
        fold(state, applied(entries))
        assert state_in(rows_of(captured(state)), told) == told["state"]


def test_each_members_snapshot_and_the_log_behind_it_give_the_same_state(
    folder: Path, told: Any
) -> None:
    for node, index in zip(NODES, told["snapshots"], strict=True):
        path = folder / node / f"dledger-{node}" / "snapshots" / f"{index:020d}.snapshot"
        reader = SnapshotReader(OsDisk(), str(path))
        behind = entries_of(folder / node)[index + 1 :]
        assert len(behind) > 40
        state = restored(reader.chunks(), REGISTRY)
        fold(state, applied(behind))
        assert state_in(rows_of(captured(state)), told) == told["state"]


def test_the_log_has_every_kind_of_command_that_its_format_has(folder: Path, told: Any) -> None:
    known = {one.command.kind for one in REGISTRY.commands() if one.layout.since <= told["format"]}
    found = set()
    for entry in entries_of(folder / NODES[0]):
        body = entry.body
        if kind_of(body) is EntryKind.RECORD:
            body = body[int.from_bytes(body[:4], "big") :]
        if kind_of(body) is EntryKind.COMMAND:
            found.add(REGISTRY.decode(body).kind)
    assert known - found == OF_RETENTION


# --- how the group goes on ------------------------------------------------------------------------


class Opened:
    """The group, opened by this program an instant after the earlier one had ended.

    Attributes:
        left: what the earlier program's clients had in hand.
    """

    def __init__(self, group: Group, leader: str, client: Client, told: Any) -> None:
        self.group = group
        self.broker = group.brokers[leader]
        self.client = client
        self.written_ms: int = told["written_ms"]
        self.messages: dict[str, list[Any]] = told["messages"]
        self.left: dict[str, Any] = told["left"]
        self.pops = PopClient(client, group.clock)

    def at(self, at_ms: int) -> None:
        """Let it be so late, and what is due be delivered."""
        self.group.clock.now_ms = self.written_ms + at_ms
        while self.broker.parts[DELIVERIES].deliver() == 0.0:
            pass

    async def has(self, queue: str, *new: str) -> None:
        """Wait until a queue has these messages behind those of before; no other may be there."""
        then = self.messages[queue]

        async def are_there() -> bool:
            now = await read_all(self.client, self.broker.machine.state)
            assert now[queue][: len(then)] == then
            bodies = [message[4] for message in now[queue][len(then) :]]
            assert bodies == list(new[: len(bodies)])
            return len(bodies) == len(new)

        await until(are_there)

    async def has_only_these_new(self, **new: list[str]) -> None:
        """All messages of before are as they were, and nothing came but these."""
        now = await read_all(self.client, self.broker.machine.state)
        assert now.keys() == self.messages.keys()
        for queue, then in self.messages.items():
            assert now[queue][: len(then)] == then
            added = [message[4] for message in now[queue][len(then) :]]
            assert sorted(added) == sorted(new.get(queue.replace("/0", ""), [])), queue

    async def committed(self, group: str, topic: str) -> Command:
        return await self.client.ask(14, consumerGroup=group, topic=topic, queueId=0)

    async def end(self, half: str, how: int) -> None:
        code = RequestCode.END_TRANSACTION
        reply = await self.client.ask(code, commitOrRollback=how, **self.left[f"half {half}"])
        assert reply.code == 0, reply

    async def lock(self, client_id: str) -> list[int]:
        """Which queues of "orders" the client has once it has asked for both."""
        queues = [MessageQueue("orders", "broker-a", queue_id) for queue_id in (0, 1)]
        reply = await self.client.ask(41, encode_queue_lock(QueueLock("g", client_id, queues)))
        return [queue.queue_id for queue in decode_locked_queues(reply.body)]

    async def told(self, code: int, **fields: Any) -> Any:
        """The JSON body of a reply."""
        reply = await self.client.ask(code, **fields)
        assert reply.code == 0, reply
        return json.loads(reply.body)


@asynccontextmanager
async def opened(folder: Path, told: Any) -> AsyncIterator[Opened]:
    """All three members, and the format raised."""
    clock = Clock()
    clock.now_ms = told["written_ms"]
    async with group_of_three(folder, clock=clock) as group:
        leader, client = await group.leader()

        async def is_raised() -> bool:
            formats = [one.machine.state[FORMATS] for one in group.brokers.values()]
            return all(one.format_version == FORMAT_VERSION for one in formats)

        await until(is_raised)
        yield Opened(group, leader, client, told)


@pytest.mark.long
async def test_all_messages_are_there_and_found_by_their_keys(folder: Path, told: Any) -> None:
    async with opened(folder, told) as one:
        await one.has_only_these_new()
        fields: dict[str, Any] = {
            "topic": "orders",
            "maxNum": 9,
            "beginTimestamp": 0,
            "endTimestamp": 1 << 60,
        }

        async def is_found() -> bool:
            for key in ("o0", "o7"):
                found = await one.client.ask(12, key=f"key-{key}", **fields)
                if found.code or found.body.count(f"id-{key}".encode()) != 1:
                    return False
            return True

        await until(is_found)


async def test_delayed_messages_come_once_each_at_their_time(folder: Path, told: Any) -> None:
    async with opened(folder, told) as one:
        one.at(1_000)
        for when in ("early", "late"):
            handle = one.left[f"handle of {when} to recall"]
            code = RequestCode.RECALL_MESSAGE
            reply = await one.client.ask(code, topic="delayed", recallHandle=handle)
            assert reply.code == 0, reply
        one.at(HOUR_MS // 2 - 30_000)
        await one.has_only_these_new()
        one.at(HOUR_MS // 2)
        await one.has("%RETRY%g/0", "late")
        one.at(HOUR_MS)
        await one.has("delayed/0", "early waits", "late waits")
        one.at(2 * HOUR_MS)
        waited = ["early waits", "late waits", "early of a level", "late of a level"]
        await one.has("delayed/0", *waited)
        one.at(3 * HOUR_MS)
        await one.has_only_these_new(**{"%RETRY%g": ["late"], "delayed": waited})


async def test_open_transactions_end_once_and_ended_ones_do_not_end_again(
    folder: Path, told: Any
) -> None:
    async with opened(folder, told) as one:
        for _ in range(2):  # the answer may have been lost
            await one.end("late to commit", COMMIT)
            await one.end("late to roll back", ROLLBACK)
        await one.end("early open", COMMIT)
        await one.has("transacted/0", "late to commit", "early open")
        resume = RequestCode.RESUME_CHECK_HALF_MESSAGE
        half = await one.client.send("transacted", b"new", f=4, i=HALF)
        assert half.code == 0
        new = {"transacted": ["late to commit", "early open"], "RMQ_SYS_TRANS_HALF_TOPIC": ["new"]}
        await one.has_only_these_new(**new)
        assert (await one.client.ask(resume, msgId="0" * 32)).code != 0
        await one.end("late open", ROLLBACK)
        await one.has_only_these_new(**new)


@pytest.mark.long
async def test_what_was_popped_is_out_until_its_time_or_its_acknowledgement(
    folder: Path, told: Any
) -> None:
    async with opened(folder, told) as one:
        in_order = {"topic": "ordered", "order": "true", "queueId": 0}
        assert await one.pops.bodies(queueId=0) == [b"p3"]
        assert await one.pops.bodies(**in_order) == []
        acked = await one.client.ask(
            RequestCode.ACK_MESSAGE,
            consumerGroup="g",
            topic="T",
            queueId=0,
            offset=2,
            extraInfo=one.left["handle of p2"],
        )
        assert acked.code == 0, acked
        one.at(61_000)
        assert await one.pops.bodies(**in_order) == [b"s0", b"s1", b"s2"]
        one.at(1_000_000)
        assert sorted(await one.pops.bodies(queueId=0)) == [b"p1", b"p3"]
        assert await one.pops.bodies(queueId=0, topic="failing", consumerGroup="h") == []
        assert (await one.committed("h", "failing")).fields["offset"] == "1"


@pytest.mark.long
async def test_dead_letters_are_redriven_that_were_not_before(folder: Path, told: Any) -> None:
    async with opened(folder, told) as one:
        code = RequestCode.REDRIVE_DEAD_LETTERS
        reply = await one.client.ask(code, consumerGroup="g", queueId=0)
        assert (reply.integer("redriven"), reply.integer("taken")) == (1, 1)
        await one.has_only_these_new(**{"%RETRY%g": ["dead again"]})


async def test_offsets_resets_and_locks_are_kept(folder: Path, told: Any) -> None:
    async with opened(folder, told) as one:
        offsets = {("g", "orders"): 3, ("g", "again"): 1, ("g", "failed"): 2, ("left", "orders"): 2}
        for (group, topic), offset in offsets.items():
            assert (await one.committed(group, topic)).fields["offset"] == str(offset)
        # No offset is kept, so it begins with the first message of a queue that lost none.
        assert (await one.committed("gone", "orders")).fields["offset"] == "0"
        # A member that was moved and does not know it yet commits: that does not count.
        fields: dict[str, Any] = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        assert (await one.client.ask(15, commitOffset=8, **fields)).code == 0
        moved = await one.client.pull("orders", 8)
        assert (moved.code, moved.fields["nextBeginOffset"]) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "3",
        )
        assert (await one.client.pull("orders", 3)).code == 0
        await one.client.ask(15, commitOffset=5, **fields)
        assert (await one.committed("g", "orders")).fields["offset"] == "5"
        assert await one.lock("c3") == []
        assert (await one.lock("c1"), await one.lock("c2")) == ([0], [1])
        one.at(10_000)
        assert await one.lock("c3") == []


@pytest.mark.long
async def test_settings_of_groups_and_brokers_are_kept(folder: Path, told: Any) -> None:
    async with opened(folder, told) as one:
        groups = (await one.told(201))["subscriptionGroupTable"]
        assert {name: group["retryMaxTimes"] for name, group in groups.items()} == {"g": 3, "h": 0}
        assert (groups["g"]["consumeBroadcastEnable"], groups["h"]["consumeBroadcastEnable"]) == (
            False,
            True,
        )
        fields = {"group": "h", "topic": "orders"}
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        assert (await one.told(code, **fields))["readable"] is False
        config = (await one.client.ask(RequestCode.GET_BROKER_CONFIG)).body
        assert decode_properties_text(config)["fileReservedTime"] == "71"
        modes = await one.told(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert "POP" in json.dumps(modes)
        # The condition of the last heartbeat: it is in no request.
        asked: dict[str, Any] = {"consumerGroup": "g", "sysFlag": 2, "expressionType": "SQL92"}
        await one.client.pull("orders", 3)  # where it was moved
        reply = await one.client.pull("orders", 3, subVersion=7, **asked)
        assert (reply.code, reply.fields["nextBeginOffset"]) == (0, "8")
        assert [reply.body.count(b"key-o%d" % n) for n in (3, 4, 5, 6, 7)] == [1, 1, 1, 0, 0]


async def test_the_group_goes_on_in_the_new_format_through_a_restart(
    folder: Path, told: Any
) -> None:
    async with opened(folder, told) as one:
        assert (await one.client.send("orders", b"o8")).fields["queueOffset"] == "8"
        assert (await one.client.send("again", b"a3")).fields["queueOffset"] == "3"
        # The topic was deleted in a format that did not keep where its queue ended.
        assert (await one.client.send("gone", b"new")).fields["queueOffset"] == "0"
        for topic, begin in (("later", "3"), ("again", "4")):
            assert (await one.client.ask(215, topic=topic)).code == 0
            assert (await one.client.send(topic, b"new")).fields["queueOffset"] == begin
        timed = "TIMER_DELAY_MS\x0160000\x02UNIQ_KEY\x01id\x02"
        assert (await one.client.send("delayed", b"d", i=timed)).code == 0
        expected = await everything(one)
    async with opened(folder, told) as one:
        assert await everything(one) == expected
        one.at(60_000)
        await one.has("delayed/0", "d")
    for node in NODES:
        entries = entries_of(folder / node)
        assert entries[: told["entries"]] == entries_of(folder / NODES[0])[: told["entries"]]


async def everything(one: Opened) -> Any:
    """All messages from the first offsets on, and that all members have the same state."""
    states = [broker.machine.state for broker in one.group.brokers.values()]

    async def are_equal() -> bool:
        return states[0] == states[1] == states[2]

    await until(are_equal)
    return {
        topic: [record.body for record in await one.client.messages(topic)]
        for topic in ("gone", "later", "again")
    }
