"""The file in which a broadcasting consumer keeps its offsets."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dledger_mq.errors import OffsetFileUnreadable
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
