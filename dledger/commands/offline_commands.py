"""Commands over folders at rest: `dump` and `verify`. No node has to run; nothing is written."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import click

from dledger.command_line.options import EXISTING_FOLDER, flag, json_option, option
from dledger.command_line.rows import new_table, table_console
from dledger.command_line.standard_streams import OutputFailed, telling
from dledger.entry import HEADER_BYTES, Magic
from dledger.errors import BeginningDropped, BirthUnreadable, LogCorrupt
from dledger.sessions.session_entry import is_envelope
from dledger.store.birth_file import BirthFile
from dledger.store.disk import OsDisk
from dledger.store.generation_file import GenerationFile
from dledger.store.orphans_file import OrphansFile
from dledger.store.scan import EntryPlace, StoreScan, scan_folder
from dledger.store.snapshot_folder import SnapshotFolder

# After this many passes the logs drop their beginnings faster than `verify` reads them.
_MAX_PASSES = 10

# The columns of one line of `dump`; sums are printed as Java prints them, signed.
COLUMNS = (
    "index",
    "term",
    "pos",
    "size",
    "channel",
    "chainCrc",
    "bodyCrc",
    "bodySize",
    "sha256",
    "magic",
)


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


class _Bodies:
    """Reads bodies at the positions of a scan; keeps one file open."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._path = ""
        self._file: BinaryIO = BytesIO()

    def digest(self, place: EntryPlace) -> str:
        return hashlib.sha256(self.body(place)).hexdigest()

    def body(self, place: EntryPlace) -> bytes:
        if self._path != place.path:
            self._stack.pop_all().close()
            self._path = place.path
            file = open(place.path, "rb")  # noqa: SIM115 - the stack closes it
            self._file = self._stack.enter_context(file)
        self._file.seek(place.offset + HEADER_BYTES)
        return self._file.read(place.header.body_size)


@click.command()
@json_option("One JSON object a line instead of columns.")
@option(
    "--from",
    "first",
    "First index to print.",
    default=0,
    type=click.IntRange(0),
    show_default=False,
)
@option("--to", "last", "Last index to print.", default=None, type=click.IntRange(0))
@flag("--bodies", "Only the bodies, a line each, as `dledger append` reads them.")
@click.argument("folder", type=EXISTING_FOLDER)
def dump(folder: Path, first: int, last: int | None, bodies: bool, as_json: bool) -> None:
    """Print every entry in FOLDER, one line each.

    \b
      dledger dump /tmp/log/dledger-n0
      dledger dump /tmp/log/dledger-n0 --bodies | dledger append --dir /tmp/other

    FOLDER is a node's data folder, or the `dledger-<id>` folder in it; Java DLedger may have
    written it. Columns, separated by tabs: index, term, pos, size, channel, chainCrc, bodyCrc,
    bodySize, sha256 of the body, magic. Entries at the end may not be committed; `dledger verify`
    says how far it is recorded.

    With --bodies the command leaves out no-ops and changes of the group, and ends with exit code 1
    at a body that has a line end or belongs to a session: append such a one by a program.
    """  # noqa: D301 - click's mark, a backspace
    if bodies and as_json:
        raise click.UsageError("--json and --bodies exclude each other")
    wanted = range(first, sys.maxsize if last is None else last + 1)
    try:
        if not (bodies or as_json):
            _say("\t".join(COLUMNS))
        _dump(folder, wanted, _print_body if bodies else partial(_print_row, as_json))
    except OSError as error:
        raise click.ClickException(_cannot_read(error, folder)) from error
    except OutputFailed as error:
        raise error.__cause__ or error from None


def _dump(folder: Path, wanted: range, show: Callable[[EntryPlace, _Bodies], None]) -> None:
    scan = scan_folder(str(folder))
    with ExitStack() as stack:
        bodies = _Bodies(stack)
        for place in scan.entries(check_sums=False):
            if place.header.index in wanted:
                try:
                    show(place, bodies)
                except FileNotFoundError:
                    raise scan.dropped() or FileNotFoundError(place.path) from None
    _report_problems(scan)


def _cannot_read(error: OSError, folder: Path) -> str:
    return f"{error.filename or folder} cannot be read: {error.strerror or error}"


def _row(place: EntryPlace, bodies: _Bodies) -> dict[str, int | str]:
    header = place.header
    values = (
        header.index,
        header.term,
        header.pos,
        header.size,
        header.channel,
        _signed(header.chain_crc),
        _signed(header.body_crc),
        header.body_size,
        bodies.digest(place),
        header.magic,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _say(line: str | bytes) -> None:
    with telling():
        click.echo(line)


def _print_row(as_json: bool, place: EntryPlace, bodies: _Bodies) -> None:
    row = _row(place, bodies)
    _say(json.dumps(row) if as_json else "\t".join(map(str, row.values())))


def _print_body(place: EntryPlace, bodies: _Bodies) -> None:
    if place.header.magic != Magic.NORMAL:
        return
    body = bodies.body(place)
    if b"\n" in body or is_envelope(body):
        what = "has a line end" if b"\n" in body else "belongs to a session"
        raise click.ClickException(f"entry {place.header.index} {what}: append it by a program")
    _say(body)


def _report_problems(scan: StoreScan) -> None:
    for problem in scan.problems:
        click.echo(f"{problem.path} at byte {problem.offset}: {problem.text}", err=True)
    if scan.problems:
        sys.exit(1)


@click.command()
@json_option("One JSON object with every folder.")
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    type=EXISTING_FOLDER,
)
def verify(folders: tuple[Path, ...], as_json: bool) -> None:
    """Check the files in FOLDERS, and compare the logs.

    \b
      dledger verify /tmp/log
      dledger verify /mnt/n0/dledger-n0 /mnt/n1/dledger-n1

    Every header, both sums, the index and the snapshots are checked. A folder made by `dledger
    group` or `dledger-mq up` stands for all its members. Several folders are compared entry by
    entry, up to what all of them record as committed: equal chain sums mean equal history. Exit
    code 1 if anything is wrong, or cannot be read.

    The column `known committed` is what the folder records. A running node records it four times a
    second, so `dledger status` may say more.
    """  # noqa: D301 - click's mark, a backspace
    nodes = _node_folders(folders)
    reports, differing = _verify_all(nodes)
    failed = differing is not None or any(report.problems for report in reports)
    if as_json:
        shown = [asdict(report) for report in reports]
        click.echo(json.dumps({"folders": shown, "first_difference": differing}))
    else:
        _print_reports(reports, differing, any(len(compared) > 1 for compared in nodes))
    sys.exit(1 if failed else 0)


@dataclass(frozen=True, slots=True)
class _Report:
    folder: str
    first_index: int
    last_index: int
    committed: int
    birth: str  # of the group, in hexadecimal digits; empty if the folder has no record of it
    problems: list[str]
    readable: bool = True


def _node_folders(folders: tuple[Path, ...]) -> list[list[Path]]:
    """Return the nodes' folders, in lists of folders to compare with one another.

    A folder of several nodes stands for their folders, and one made by `dledger-mq up` for those
    in DIR/<node> or DIR/<group>/<node>. The nodes of its two groups are not compared.
    """
    found: list[Path] = []
    of_groups: list[list[Path]] = []
    for folder in folders:
        inside = sorted(folder.glob("dledger-*"))
        below = [] if inside else sorted(folder.glob("*/dledger-*/data"))
        if len(inside) > 1:
            found += inside
        elif below:
            found += [data.parent for data in below]
        elif groups := {data.parents[2] for data in folder.glob("*/*/dledger-*/data")}:
            of_groups += [sorted(group.glob("*/dledger-*")) for group in sorted(groups)]
        else:
            found.append(folder)
    return [found, *of_groups] if found else of_groups


def _verify_all(nodes: list[list[Path]]) -> tuple[list[_Report], int | None]:
    """Return a report of each folder, and the first index where they differ.

    A running node may drop its log's beginning meanwhile: then all folders are read again. Raises
    BeginningDropped if that happens in every pass.
    """
    passes = 1
    while True:
        try:
            reports = [[_verify_one(folder) for folder in compared] for compared in nodes]
            readable = ([report for report in compared if report.readable] for compared in reports)
            differing = [_first_difference(compared) for compared in readable if len(compared) > 1]
            first = next((index for index in differing if index is not None), None)
            return [report for compared in reports for report in compared], first
        except BeginningDropped:
            if passes == _MAX_PASSES:
                raise
            passes += 1


def _verify_one(folder: Path) -> _Report:
    try:
        return _read_one(folder)
    except OSError as error:
        return _Report(str(folder), -1, -1, -1, "", [_cannot_read(error, folder)], readable=False)


def _read_one(folder: Path) -> _Report:
    scan = scan_folder(str(folder))
    first_index = last_index = -1
    for run in scan.runs():
        first_index = run.headers[0][2] if first_index < 0 else first_index
        last_index = run.headers[-1][2]
    problems = scan.verify()
    birth, birth_problems = _birth(scan.folder)
    return _Report(
        folder=str(folder),
        first_index=first_index,
        last_index=last_index,
        committed=scan.committed,
        birth=birth,
        problems=[
            *(f"{p.path} at byte {p.offset}: {p.text}" for p in problems),
            *SnapshotFolder(OsDisk(), scan.folder).problems(),
            *birth_problems,
            *_problems_of_marks(scan.folder),
        ],
    )


def _birth(folder: str) -> tuple[str, list[str]]:
    """Return the birth of the folder's group, and the problems of its record."""
    try:
        record = BirthFile(OsDisk(), folder).record
    except BirthUnreadable as error:
        return "", [str(error)]
    return ("" if record is None else record.birth.hex()), []


def _problems_of_marks(folder: str) -> list[str]:
    """Return the problems of the small files without which no node starts on the folder."""
    problems = []
    for read in (GenerationFile, OrphansFile):
        try:
            read(OsDisk(), folder)
        except LogCorrupt as error:
            problems.append(str(error))
    return problems


def _first_difference(reports: list[_Report]) -> int | None:
    """Return the first index that all record as committed but with different chain sums."""
    first = max(report.first_index for report in reports)
    last = min(report.committed for report in reports)
    sums = (_sums(Path(report.folder), first, last) for report in reports)
    for index, found in enumerate(zip(*sums, strict=False), first):
        if len(set(found)) > 1:
            return index
    return None


def _sums(folder: Path, first: int, last: int) -> Iterator[int]:
    """Yield the chain sums of entries first..last, as far as the log goes.

    Raises BeginningDropped if retention has dropped the first one meanwhile.
    """
    scan, expected = scan_folder(str(folder)), first
    for run in scan.runs(check_sums=False):
        if run.headers[0][2] > expected:
            raise BeginningDropped(scan.folder, run.headers[0][2])
        expected = run.headers[-1][2] + 1
        for header in run.headers:
            if first <= header[2] <= last:
                yield header[6]


def _print_reports(reports: list[_Report], differing: int | None, are_compared: bool) -> None:
    columns = ("folder", "first", "last", "known committed", "problems")
    rows = [
        (one.folder, one.first_index, one.last_index, one.committed, len(one.problems))
        for one in reports
    ]
    table_console().print(new_table(columns, rows, words=("folder",)))
    for report in reports:
        for problem in report.problems:
            click.echo(problem, err=True)
    if differing is not None:
        click.echo(f"the folders differ from entry {differing} on", err=True)
    elif are_compared and all(report.readable for report in reports):
        click.echo("equal, entry by entry, up to what all of them record as committed")
