"""Finds numbered bodies in the logs that members left behind."""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from dledger.entry import HEADER_BYTES, Magic
from dledger.sessions import session_entry
from dledger.store.scan import scan_folder

# How clients number their bodies.
NUMBER = struct.Struct(">Q")
# The file in which clients leave the numbers of all acknowledged bodies.
ACKNOWLEDGED = "acknowledged"


def numbers_in(folder: Path) -> set[int]:
    """Return the numbers that begin the bodies in a member's folder, ours or Java DLedger's."""
    found: set[int] = set()
    with ExitStack() as files:
        path = ""
        for entry in scan_folder(str(folder)).entries():
            if entry.path != path:
                path = entry.path
                file = files.enter_context(open(path, "rb"))
                content = files.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            if entry.header.magic != Magic.NORMAL:
                continue  # a no-op or a change of the group
            begin = entry.offset + HEADER_BYTES
            number = _number(content[begin : entry.offset + entry.header.size])
            if number is not None:
                found.add(number)
    return found


def _number(body: bytes) -> int | None:
    """Return the number at the begin of a client's body."""
    if session_entry.is_envelope(body):
        envelope = session_entry.decode(body)
        if not isinstance(envelope, session_entry.AppendEntry):
            return None
        body = envelope.body
    return NUMBER.unpack_from(body)[0] if len(body) >= NUMBER.size else None


def count_lost(acknowledged: bytes, folders: Iterable[Path]) -> int:
    """Return how many of these numbers, 8 bytes each, are not in the logs of a majority."""
    logs = [numbers_in(folder) for folder in folders]
    copies = Counter(number for log in logs for number in log)
    numbers = (number for (number,) in NUMBER.iter_unpack(acknowledged))
    return sum(2 * copies[number] <= len(logs) for number in numbers)
