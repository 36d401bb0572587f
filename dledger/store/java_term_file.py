"""Term and vote as Java DLedger keeps them: `currterm`, a Java properties file of two lines."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from dledger.core.hard_state import HardState
from dledger.errors import LogCorrupt
from dledger.store.disk import Disk

FILE_NAME = "currterm"
RETIRED_NAME = "currterm.adopted"
# Two short lines; anything longer is another file.
MAX_FILE_BYTES = 4096


class JavaTerm(NamedTuple):
    """The term and vote that a Java node recorded."""

    term: int
    voted_for: str | None


def parse_java_term(text: str) -> JavaTerm | None:
    """Parse term and vote; None if the text has no term (the vote may be missing or empty)."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    term = fields.get("currTerm", "").strip()
    if not term.isascii() or not term.isdigit():
        return None
    return JavaTerm(int(term), fields.get("voteLeader", "").strip() or None)


def read_java_term(disk: Disk, folder: str) -> JavaTerm | None:
    """Read the file; None if there is no such file.

    Raises LogCorrupt if it cannot be parsed: a start from term 0 could vote twice.
    """
    if FILE_NAME not in disk.list(folder):
        return None
    path = f"{folder}/{FILE_NAME}"
    with closing(disk.open(path, writable=False)) as file:
        content = file.read(MAX_FILE_BYTES, 0)
    found = parse_java_term(content.decode("utf-8", "replace"))
    if found is None:
        raise LogCorrupt(path, 0, "it has no line 'currTerm=<number>' of Java DLedger")
    return found


def covers(record: HardState, java: JavaTerm) -> bool:
    """Return whether our record includes the term and vote that Java recorded."""
    if java.term == record.term:
        return java.voted_for == record.voted_for
    return java.term < record.term


def retire_java_term(disk: Disk, folder: str) -> None:
    """Rename the file once our own record includes its content.

    Otherwise a start that has lost our record would use the outdated file again.
    """
    if FILE_NAME in disk.list(folder):
        disk.rename(f"{folder}/{FILE_NAME}", f"{folder}/{RETIRED_NAME}")
        disk.sync_folder(folder)
