"""The progress of a group: kept by the brokers, or in a file of a broadcasting consumer."""

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master
from dledger_mq.connection.client import Client
from dledger_mq.errors import MessagingError, OffsetFileLocked, OffsetFileUnreadable
from dledger_mq.message import ConsumeFrom
from remoting.bodies.message_queue import MessageQueue
from remoting.message.topic_names import RETRY_PREFIX
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Leaders answer requests for offsets from memory. One that takes longer may be frozen: ask a name
# server for another. These requests may be repeated.
START_ATTEMPT_S: Final = 1.0

_FORMAT: Final = "dledger-mq offsets 1"


class Offsets(Protocol):
    async def load(self, queue: MessageQueue) -> int | None:
        """Return the next offset to consume, or None if none was ever committed."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Commit offsets; return the queues for which it succeeded."""

    async def commit_last(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Commit before others read the queues: through an election, for some seconds."""


class BrokerOffsets:
    """Progress kept by the brokers, shared by the members of a group."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    async def load(self, queue: MessageQueue) -> int | None:
        """Raises MessagingError, RemotingError: see `call_master`."""
        reply = await call_master(
            self._client,
            queue,
            requests.query_offset(self._group, queue),
            "give a committed offset",
            attempt_s=START_ATTEMPT_S,
            accepted=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = reply.integer("offset", -1)
        return offset if offset >= 0 else None

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Commit to the brokers of all queues at once. The next commit repeats what failed."""
        asked: list[MessageQueue] = []
        wanted: list[tuple[str, Command]] = []
        for queue, offset in offsets.items():
            route = self._client.routes.known(queue.topic)
            address = None if route is None else route.masters.get(queue.broker_name)
            if address is not None:
                asked.append(queue)
                wanted.append((address, requests.update_offset(self._group, queue, offset)))
        outcomes = await self._client.request_all(wanted)
        return {
            queue
            for queue, outcome in zip(asked, outcomes, strict=True)
            if isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS
        }

    async def commit_last(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Commit; repeat for 5 s what failed."""
        kept = await self.commit(offsets)

        async def go_on(queue: MessageQueue) -> None:
            command = requests.update_offset(self._group, queue, offsets[queue])
            try:
                await call_master(
                    self._client,
                    queue,
                    command,
                    "commit an offset",
                    attempt_s=START_ATTEMPT_S,
                )
                kept.add(queue)
            except (MessagingError, RemotingError) as error:
                _log.info("%s is not committed: %s", queue, error)

        async with trio.open_nursery() as nursery:
            for queue in offsets.keys() - kept:
                nursery.start_soon(go_on, queue)
        return kept


class FileOffsets:
    """Progress of one broadcasting consumer, in a file of its own, or in memory if there is none.

    Raises OffsetFileUnreadable: the file is not one of offsets.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets = {} if path is None else read_offsets(path)

    async def load(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Rewrite the file: a few kilobytes every five seconds, faster than a thread starts.

        If it cannot be written, on a full disk for example, the next commit tries it again.
        """
        self._offsets.update(offsets)
        if self._path is not None and offsets:
            try:
                write_offsets(self._path, self._offsets)
            except OSError as error:
                _log.warning("offsets are not kept in %s yet: %s", self._path, error)
                return set()
        return set(offsets)

    async def commit_last(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        return await self.commit(offsets)


async def starting_offset(
    client: Client,
    offsets: Offsets,
    queue: MessageQueue,
    consume_from: ConsumeFrom,
    timestamp_ms: int,
) -> int:
    """Return where a consumer begins to read a queue.

    A committed offset decides. Without one `consume_from` does, except that a retry topic is read
    from its first message, since its messages are the group's own. Source: RocketMQ's
    RebalancePushImpl; unlike a Java broker's answer to a young queue, LAST is never the beginning.

    `timestamp_ms` is for TIMESTAMP, since 1970. Raises MessagingError, RemotingError: see
    `call_master`.
    """
    committed = await offsets.load(queue)
    if committed is not None:
        return committed
    if queue.topic.startswith(RETRY_PREFIX) or consume_from is ConsumeFrom.FIRST:
        command, what = requests.min_offset(queue), "give the first offset"
    elif consume_from is ConsumeFrom.LAST:
        command, what = requests.max_offset(queue), "give the last offset"
    else:
        command = requests.search_offset(queue, timestamp_ms)
        what = "find the offset of a time"
    reply = await call_master(client, queue, command, what, attempt_s=START_ATTEMPT_S)
    return reply.integer("offset")


def read_offsets(path: Path) -> dict[MessageQueue, int]:
    """Return the offsets of a file; none if there is no file. Raises OffsetFileUnreadable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise OffsetFileUnreadable(str(path), f"format {content['format']!r:.40}")
        return {
            MessageQueue(str(topic), str(broker_name), int(queue_id)): int(offset)
            for topic, broker_name, queue_id, offset in content["offsets"]
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise OffsetFileUnreadable(str(path), f"{type(error).__name__}: {error}") from None


def write_offsets(path: Path, offsets: Mapping[MessageQueue, int]) -> None:
    """Replace the file atomically, and make its folder, as RocketMQ's clients do.

    It is not synced: after a power cut messages are consumed again, as after a crash. Raises
    OSError.
    """
    rows = [[one.topic, one.broker_name, one.queue_id, offsets[one]] for one in sorted(offsets)]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps({"format": _FORMAT, "offsets": rows}), encoding="utf-8")
    os.replace(beside, path)


@contextmanager
def locked_offsets(path: Path) -> Iterator[None]:
    """Lock a file of offsets during the block, by a lock on a file beside it.

    The file itself is replaced at each commit, so a lock on it would be a lock on an old file. The
    lock file is never removed: a consumer that waits for its lock could not notice that.

    Raises:
        OffsetFileLocked: another consumer has locked it, in this process or another one.
        OffsetFileUnreadable: there can be no such file.
    """
    try:
        beside = path.with_name(path.name + ".lock")
        beside.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except (OSError, ValueError) as error:  # a ValueError: there can be no file of this name
        raise OffsetFileUnreadable(str(path), f"{type(error).__name__}: {error}") from None
    with os.fdopen(descriptor, "r+b", buffering=0):  # its end gives up the lock
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OffsetFileLocked(str(path)) from None
        except OSError as error:
            reason = f"it cannot be locked: {error}"
            raise OffsetFileUnreadable(str(path), reason) from None
        yield
