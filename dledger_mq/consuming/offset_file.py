"""The file in which a broadcasting consumer keeps its offsets."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dledger_mq.errors import OffsetFileLocked, OffsetFileUnreadable
from remoting.bodies.message_queue import MessageQueue

_FORMAT: Final = "dledger-mq offsets 1"


def read_offsets(path: Path) -> dict[MessageQueue, int]:
    """The offsets of a file; none when there is no file.

    Raises:
        OffsetFileUnreadable: it is not a file of offsets.
    """
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OffsetFileUnreadable(str(path), f"{type(error).__name__}: {error}") from None


def write_offsets(path: Path, offsets: Mapping[MessageQueue, int]) -> None:
    """Replace the file by one with these offsets, whole or not at all.

    As RocketMQ's clients do, it makes the folder.

    It is not synced: after a power cut messages are consumed again, as after a crash.

    Raises:
        OSError: the file cannot be written.
    """
    rows = [[one.topic, one.broker_name, one.queue_id, offsets[one]] for one in sorted(offsets)]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps({"format": _FORMAT, "offsets": rows}), encoding="utf-8")
    os.replace(beside, path)


@contextmanager
def locked_offsets(path: Path) -> Iterator[None]:
    """Have the file for oneself during the block, by a lock on one beside it.

    The file itself is replaced at each commit, so a lock on it would be a lock on an old one. The
    one beside it stays, as whoever waits for its lock could not see it go.

    Raises:
        OffsetFileLocked: another consumer has it, in this process or another one.
        OffsetFileUnreadable: there can be no such file.
    """
    beside = path.with_name(path.name + ".lock")
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OffsetFileUnreadable(str(path), f"{type(error).__name__}: {error}") from None
    with _closing(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OffsetFileLocked(str(path)) from None
        except OSError as error:
            reason = f"it cannot be locked: {error}"
            raise OffsetFileUnreadable(str(path), reason) from None
        yield


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    """Close a descriptor, and with it its lock, at the end of a block."""
    try:
        yield
    finally:
        os.close(descriptor)
