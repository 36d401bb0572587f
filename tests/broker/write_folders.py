"""Writes the folders of a group of three, for later programs to open.

    cd CHECKOUT && .venv/bin/python -m tests.broker.write_folders NAME.tar.xz

The brokers are processes of the checkout, of whatever commit; one that does not have this file is
given its path instead of `-m`. Beside the archive goes what must be found in it, as JSON: the
messages as a client sees them, and the state as that program folds its log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack
import trio

from broker.features import empty_state
from broker.log.entry import FORMAT_VERSION
from broker.log.fold import fold
from broker.log.state_snapshot import captured
from broker.messages.state import MESSAGES
from dledger.client.group_client import GroupClient
from dledger.entry import HEADER_BYTES, Entry, Magic
from dledger.free_ports import free_addresses
from dledger.store.scan import scan_folder
from remoting.bodies.consumer_group import QueueLock, encode_queue_lock
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.bodies.message_queue import MessageQueue
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.message_id import message_id, parse_message_id
from remoting.message.record import MessageRecord, decode_records
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.broker.one_broker import Client, Clock, send_fields
from tests.broker.pop.popping_broker import PopClient

NODES = ("n0", "n1", "n2")
HOUR_MS = 3_600_000
# Long enough for what is to be open at the end; what is to end says so itself.
PATIENT = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0186400\x02"
COMMIT, ROLLBACK = 8, 12
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


def entries_of(folder: Path) -> list[Entry]:
    """The whole log in the folder of one member."""
    found = []
    for header, path, offset in scan_folder(str(folder)).entries():
        with open(path, "rb") as file:
            file.seek(offset + HEADER_BYTES)
            body = file.read(header.body_size)
        found.append(Entry(header.index, header.term, header.pos, header.magic, body))
    return found


def applied(entries: list[Entry]) -> list[Entry]:
    """Those that a member gives its state machine."""
    return [entry for entry in entries if entry.magic == Magic.NORMAL]


def rows_of(chunks: Iterator[bytes]) -> dict[str, list[Any]]:
    """The rows of a state by their names, in an order of their own, as JSON has them."""
    rows: dict[str, list[Any]] = {}
    for chunk in chunks:
        what, some = msgpack.unpackb(chunk, strict_map_key=False)
        rows.setdefault(what, []).extend(json.loads(json.dumps(some, sort_keys=True)))
    ordered = {"times", "quarters", "lock clock"}  # columns, not rows
    return {what: some if what in ordered else sorted(some, key=str) for what, some in rows.items()}


@contextmanager
def processes(folder: Path, peers: dict[str, str]) -> Iterator[str]:
    """A name server and three brokers; where clients reach the leader. Ended by SIGTERM."""
    nameserver, group_address, *listen = free_addresses(5)
    addresses = dict(zip(NODES, listen, strict=True))
    commands = [["-m", "nameserver", "--listen", nameserver]]
    commands += [
        [
            *("-m", "broker", "--group", "broker-a", "--node", node),
            *("--peers", ",".join(f"{name}={at}" for name, at in peers.items())),
            *("--listen", addresses[node], "--nameservers", nameserver),
            *("--listen-group", group_address, "--share-port", "--dir", str(folder / node)),
            *("--transaction-check-after-seconds", "1", "--transaction-check-every-seconds", "1"),
            *("--transaction-max-checks", "1", "--exit-with-stdin"),
        ]
        for node in NODES
    ]
    running = [
        subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE) for command in commands
    ]
    try:
        yield group_address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)


class Writer:
    """One client of the leader, and what it leaves behind.

    Attributes:
        left: what a test needs in order to go on: handles, and who has what.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.clock = Clock()
        self.pops = PopClient(client, self.clock)
        self.left: dict[str, Any] = {}

    async def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        self.clock.now_ms = time.time_ns() // 1_000_000
        reply = await self.client.ask(code, body, **fields)
        assert reply.code == 0, (code, fields, reply)
        return reply

    async def json(self, code: int, **content: Any) -> Command:
        return await self.ask(code, json.dumps(content).encode())

    async def topic(self, name: str, queues: int = 1) -> None:
        counts: dict[str, Any] = {"readQueueNums": queues, "writeQueueNums": queues}
        await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, perm=6, **counts)

    async def send(self, topic: str, *bodies: str, queue_id: int = 0, pairs: str = "") -> Command:
        reply = None
        for body in bodies:
            own = f"TAGS\x01t\x02KEYS\x01key-{body}\x02UNIQ_KEY\x01id-{body}\x02"
            fields = send_fields(topic, queue_id, i=own + pairs, g=time.time_ns() // 1_000_000)
            reply = await self.ask(RequestCode.SEND_MESSAGE_V2, body.encode(), **fields)
        assert reply is not None
        return reply

    async def half(self, body: str, pairs: str = PATIENT) -> dict[str, Any]:
        """Begin a transaction of group P; the fields that name it."""
        pairs = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01id-{body}\x02{pairs}"
        fields = send_fields("transacted", i=pairs, f=4)
        told = await self.ask(RequestCode.SEND_MESSAGE_V2, body.encode(), **fields)
        return {
            "producerGroup": "P",
            "tranStateTableOffset": told.fields["queueOffset"],
            "commitLogOffset": parse_message_id(told.fields["msgId"]).physical_offset,
            "msgId": told.fields["transactionId"],
        }

    async def end(self, half: dict[str, Any], how: int) -> None:
        await self.ask(RequestCode.END_TRANSACTION, commitOrRollback=how, **half)

    async def commit(self, group: str, topic: str, offset: int) -> None:
        fields: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": 0}
        await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=offset, **fields)

    async def reset(self, topic: str, offset: int) -> None:
        fields: dict[str, Any] = {"group": "g", "topic": topic, "timestamp": 0, "isForce": "true"}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await self.ask(code, queueId=0, offset=offset, **fields)

    async def back(self, body: str, level: int) -> None:
        """Group g could not consume this message of the topic "failed"."""
        records = await self.client.messages("failed")
        (at,) = [one.physical_offset for one in records if one.body == body.encode()]
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self.ask(code, group="g", offset=at, delayLevel=level)

    async def lock(self, client_id: str, queue_ids: list[int], *, unlocks: bool = False) -> None:
        queues = [MessageQueue("orders", "broker-a", queue_id) for queue_id in queue_ids]
        code = RequestCode.UNLOCK_BATCH_MQ if unlocks else RequestCode.LOCK_BATCH_MQ
        await self.ask(code, encode_queue_lock(QueueLock("g", client_id, queues)))

    async def heartbeat(self) -> None:
        subscriptions = [SubscriptionData("orders", "n > 3", "SQL92", 7), SubscriptionData("T")]
        consumers = [ConsumerData("g", subscriptions=subscriptions)]
        await self.ask(34, encode_heartbeat(Heartbeat("c1", ["P"], consumers)))

    async def pop(self, count: int, invisible_ms: int, **more: Any) -> list[Any]:
        self.clock.now_ms = time.time_ns() // 1_000_000
        found: list[Any] = await self.pops.pop(
            maxMsgNums=count, queueId=0, invisibleTime=invisible_ms, **more
        )
        assert len(found) == count, found
        return found

    async def until_end(self, topic: str, count: int) -> None:
        """Wait until a topic has so many messages."""
        with trio.fail_after(60):
            while True:
                reply = await self.client.ask(30, topic=topic, queueId=0)
                if reply.code == 0 and int(reply.fields["offset"]) >= count:
                    return
                await trio.sleep(0.1)

    async def before_the_snapshot(self) -> None:
        for topic in ("T", "ordered", "failing", "orders", "delayed", "failed", "transacted"):
            await self.topic(topic, 2 if topic == "orders" else 1)
        await self.json(200, groupName="g", retryMaxTimes=3, consumeBroadcastEnable=False)
        await self.json(200, groupName="h", retryMaxTimes=0)
        for group in ("gone", "left"):
            await self.json(200, groupName=group)
        await self.heartbeat()
        await self.send("orders", *[f"o{n}" for n in range(6)], pairs="n\x014\x02")
        batch = [
            BatchMessage(b"b%d" % n, b"TAGS\x01t\x02UNIQ_KEY\x01id-b%d\x02" % n) for n in (0, 1)
        ]
        await self.ask(320, encode_batch_body(batch), **send_fields("orders", 1, m="true"))
        for name in ("again", "gone"):
            await self.topic(name)
            await self.send(name, *[f"old-{name}-{n}" for n in range(5)])
            await self.commit("g", name, 4)
            await self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)
        await self.topic("again")
        await self.send("again", *[f"new-again-{n}" for n in range(3)])
        await self.topic("later")
        await self.send("later", *[f"old-later-{n}" for n in range(5)])
        await self.delays("early")
        await self.transactions("early")
        await self.send("failed", "late", "dead", "dead again", "comes")
        await self.back("comes", 1)
        await self.back("late", 16)
        await self.back("dead", -1)
        await self.popping()
        await self.lock("c1", [0, 1])
        await self.commit("g", "orders", 2)
        await self.commit("g", "T", 1)
        await self.commit("gone", "orders", 3)
        await self.commit("left", "orders", 2)
        await self.reset("again", 1)
        await self.until_end("%RETRY%g", 1)

    async def behind_the_snapshot(self) -> None:
        await self.send("orders", "o6", "o7", pairs="n\x012\x02")
        await self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="later")
        await self.topic("later")
        await self.send("later", *[f"new-later-{n}" for n in range(3)])
        await self.delays("late")
        await self.end(self.left.pop("half early to commit"), COMMIT)
        await self.end(self.left.pop("half early to roll back"), ROLLBACK)
        await self.transactions("late")
        await self.back("dead again", -1)
        await self.ask(RequestCode.REDRIVE_DEAD_LETTERS, consumerGroup="g", queueId=0, maxMsgNums=1)
        await self.lock("c1", [1], unlocks=True)
        await self.lock("c2", [1])
        await self.commit("g", "orders", 4)
        await self.reset("orders", 3)
        await self.reset("failed", 2)
        pulled = await self.client.pull("failed", 2)  # it reads where it was moved
        assert pulled.code == 0, pulled
        for group, cleans in (("gone", "true"), ("left", "false")):
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            await self.ask(code, groupName=group, cleanOffset=cleans)
        forbidden: dict[str, Any] = {"group": "h", "topic": "orders", "readable": "false"}
        await self.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, **forbidden)
        await self.ask(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=71")
        mode = {"consumerGroup": "h", "topic": "orders", "mode": "POP", "popShareQueueNum": 1}
        await self.json(RequestCode.SET_MESSAGE_REQUEST_MODE, **mode)
        await self.until_end("delayed", 2)

    async def delays(self, when: str) -> None:
        """One that is delivered at once, two that wait, and one that is recalled."""
        await self.send("delayed", f"{when} delivered", pairs="TIMER_DELAY_MS\x01500\x02")
        await self.send("delayed", f"{when} of a level", pairs="DELAY\x0118\x02")
        for body in ("waits", "is recalled", "to recall"):
            timed = f"TIMER_DELAY_MS\x01{HOUR_MS}\x02"
            told = await self.send("delayed", f"{when} {body}", pairs=timed)
            self.left[f"handle of {when} {body}"] = told.fields["recallHandle"]
        handle = self.left.pop(f"handle of {when} is recalled")
        await self.ask(RequestCode.RECALL_MESSAGE, topic="delayed", recallHandle=handle)

    async def transactions(self, when: str) -> None:
        """Of each kind one that has ended, and those that are open."""
        await self.end(await self.half(f"{when} committed"), COMMIT)
        await self.end(await self.half(f"{when} rolled back"), ROLLBACK)
        for how in ("open", "to commit", "to roll back"):
            self.left[f"half {when} {how}"] = await self.half(f"{when} {how}")
        await self.half(f"{when} given up", "CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02")
        await self.until_end(GIVEN_UP, 2 if when == "late" else 1)
        if when == "late":
            code = RequestCode.RESUME_CHECK_HALF_MESSAGE
            (_early, late) = await self.client.messages(GIVEN_UP)
            id_ = message_id(late.store_host, late.store_port, late.physical_offset)
            await self.ask(code, msgId=id_, topic="transacted")
            await self.until_end(GIVEN_UP, 3)  # no producer ends it this time either

    async def popping(self) -> None:
        """Of T: one acknowledged, one hidden longer, one due soon; of another one all in order."""
        await self.send("T", "p0", "p1", "p2", "p3")
        acked, hidden, out = await self.pop(3, 300_000)
        self.left["handle of p2"] = out.handle
        assert (await self.pops.ack(acked)).code == 0
        assert (await self.pops.hide(hidden, 200_000)).code == 0
        await self.send("ordered", "s0", "s1", "s2")
        await self.pop(2, 60_000, topic="ordered", order="true", attemptId="attempt")
        await self.send("failing", "f0")
        await self.pop(1, 1000, topic="failing", consumerGroup="h")
        await trio.sleep(1.5)
        fields: dict[str, Any] = {"topic": "failing", "consumerGroup": "h", "queueId": 0}
        assert await self.pops.pop(**fields) == []  # it is a dead letter now
        await self.until_end("%DLQ%h", 1)


async def read_all(client: Client, state: Any) -> dict[str, list[Any]]:
    """The messages of each queue as a client sees them."""
    found = {}
    for topic, ends in sorted(state[MESSAGES].queue_ends.items()):
        for queue_id in sorted(ends):
            begin = await client.ask(31, topic=topic, queueId=queue_id)
            first = int(begin.fields["offset"])
            reply = await client.pull(topic, first, queue_id, maxMsgNums=64, consumerGroup="all")
            assert reply.code == 0, reply
            found[f"{topic}/{queue_id}"] = [shown(one) for one in decode_records(reply.body)]
    return found


def shown(record: MessageRecord) -> list[Any]:
    """What is compared of a message."""
    place = (record.queue_offset, record.physical_offset, record.store_timestamp)
    return [*place, record.reconsume_times, record.body.decode(), record.property_map()]


async def write(folder: Path) -> dict[str, Any]:
    """Let the group write its folders; what is in them."""
    peers = dict(zip(NODES, free_addresses(3), strict=True))
    log = GroupClient("broker-a", peers)
    with processes(folder, peers) as address:
        async with trio.open_nursery() as nursery:
            client = Client(nursery, address)
            await until_served(client)
            writer = Writer(client)
            await writer.before_the_snapshot()
            snapshots = [(await log.snapshot(node)).index for node in NODES]
            await writer.behind_the_snapshot()
            await trio.sleep(1)  # what pulls have brought along
            state = empty_state()
            fold(state, applied(entries_of(folder / "n0")))
            messages = await read_all(client, state)
            client.close()
            nursery.cancel_scope.cancel()
    logs = [entries_of(folder / node) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
    state = empty_state()
    fold(state, applied(logs[0]))
    return {
        "format": FORMAT_VERSION,
        "entries": len(logs[0]),
        "snapshots": snapshots,
        "written_ms": time.time_ns() // 1_000_000,
        "left": writer.left,
        "messages": messages,
        "state": rows_of(captured(state)),
    }


async def until_served(client: Client) -> None:
    """Wait until the group has a leader."""
    with trio.fail_after(120):
        while True:
            with suppress(RemotingError, OSError):
                if (await client.ask(30, topic="TBW102", queueId=0)).code == 0:
                    return
            await trio.sleep(0.2)


def pack(folder: Path, archive: Path) -> None:
    """Write the folders into an archive, without what was never written of their files."""
    holes = ("--sparse", "--hole-detection=raw", "--sort=name", "--owner=0", "--group=0")
    command = ["tar", *holes, "-C", str(folder), "-cJf", str(archive), *NODES]
    subprocess.run(command, check=True)


def main(archive: str) -> None:
    """Write the archive, and the JSON beside it."""
    with tempfile.TemporaryDirectory() as made:
        found = trio.run(write, Path(made))
        pack(Path(made), Path(archive))
    Path(archive.replace(".tar.xz", ".json")).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
