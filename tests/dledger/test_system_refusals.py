"""What the system refuses: each row of the table, at each place that meets it."""

from __future__ import annotations

import errno
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger.entry import Magic
from dledger.errors import DiskFailed, DiskFull, DLedgerError, NodeFailed, ResourceRefused
from dledger.free_ports import free_ports
from dledger.node_end import node_ending
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.system_refusals import (
    REFUSALS,
    Kind,
    line_about,
    meaning,
    of_sqlite,
    refusal_of,
    told,
)
from tests.dledger.store.test_store_failures import CONFIG, FailingDisk

OURS = (DLedgerError,)
NO_THREAD = RuntimeError("can't start new thread")


def refused(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


def test_each_row_says_what_is_refused_and_what_to_do() -> None:
    for number, row in REFUSALS.items():
        for text in row[1:]:
            assert text == text.strip()
            assert not text.endswith("."), text
            assert text[0].islower(), text
        assert refusal_of(refused(number)) is row
        line = line_about(refused(number, "/log/x"), OURS)
        assert line == f"/log/x: {row.meaning}: {row.cure}"
    assert {row.kind for row in REFUSALS.values()} == set(Kind)


def test_each_row_ends_a_node_with_its_meaning_and_cure() -> None:
    for number, row in REFUSALS.items():
        ending = node_ending(refused(number))
        assert isinstance(ending, ResourceRefused)
        assert ending.kind is row.kind
        assert row.meaning in str(ending)
        assert row.cure in str(ending)


def test_memory_and_threads_have_no_number_and_are_known_all_the_same() -> None:
    for error, kind in ((MemoryError(), Kind.MEMORY), (NO_THREAD, Kind.THREADS)):
        found = refusal_of(ExceptionGroup("", [ValueError(), error]))
        assert found is not None
        assert found.kind is kind
        assert isinstance(node_ending(error), ResourceRefused)
    assert isinstance(node_ending(RuntimeError("another")), NodeFailed)


def test_each_row_at_each_step_of_a_store_is_one_line_with_its_cure(tmp_path: Path) -> None:
    wrong = []
    steps = [("open", kind) for kind in ("write", "sync", "create", "sync_folder", "read")]
    steps += [("append", kind) for kind in ("write", "create", "grow", "sync_folder")]
    steps += [("sync", kind) for kind in ("write", "sync")]
    for at, (number, row) in enumerate(REFUSALS.items()):
        for step, kind in steps:
            folder = tmp_path / f"{at}-{step}-{kind}"
            open_store(OsDisk(), str(folder), CONFIG, "g", "n0").close()
            disk = FailingDisk()
            if step == "open":
                (folder / "dledger-n0" / "hard-state").unlink()
            try:
                if step == "open":
                    disk.fail(kind, number=number)
                store = open_store(disk, str(folder), CONFIG, "g", "n0")
            except DLedgerError as error:
                outcome: DLedgerError | None = error
            else:
                outcome = None
                try:
                    if step == "append":
                        disk.fail(kind, number=number)
                    store.append(1, Magic.NORMAL, [bytes(400)] * 4)
                    if step == "sync":
                        disk.fail(kind, number=number)
                    store.begin_sync(None).run()
                except DLedgerError as error:
                    outcome = error
                disk.kind = ""
                store.close()
            if outcome is None and disk.kind:
                continue  # that step has no such call
            if outcome is None and row.kind is Kind.ROOM and (step, kind) == ("sync", "write"):
                continue  # an index without room is written later
            line = str(outcome)
            full = row.kind is Kind.ROOM and step == "append" and kind != "sync_folder"
            expected = DiskFull if full else DiskFailed
            if not isinstance(outcome, expected) or row.cure not in line or "\n" in line:
                wrong.append((errno.errorcode[number], step, kind, line))
    assert not wrong, "\n".join(map(str, wrong))


def test_what_fails_on_the_way_out_does_not_hide_why() -> None:
    cause = DiskFailed("append to", "/log/data", refused(errno.EROFS))

    def ends() -> None:
        try:
            try:
                raise cause
            finally:
                raise refused(errno.EROFS, "/log/scratch")
        finally:
            raise refused(errno.EBADF, "/log/other")

    with pytest.raises(OSError, match="other") as raised:
        ends()
    assert line_about(raised.value, OURS) == str(cause)
    assert line_about(ExceptionGroup("", [raised.value]), OURS) == str(cause)


def test_an_error_that_was_made_from_another_speaks_for_it() -> None:
    error = DiskFailed("sync", "/log/data", refused(errno.EIO))
    error.__cause__ = error.__context__ = refused(errno.EIO, "/log/data")
    assert line_about(error, OURS) == str(error)
    assert line_about(ValueError("a bug"), OURS) is None


def test_a_connection_that_fails_says_why_at_each_of_its_addresses() -> None:
    for number in (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ECONNREFUSED, errno.EMFILE):
        error = OSError("all attempts to connect to n0:1 failed")
        error.__cause__ = ExceptionGroup("", [refused(number)])
        assert meaning(error) == REFUSALS[number].meaning
        assert told(error).endswith(REFUSALS[number].cure)


def test_a_number_of_tls_is_not_one_of_the_system() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    assert refusal_of(error) is None
    assert meaning(error) == "certificate verify failed"


def test_sqlite_tells_of_the_same_refusals() -> None:
    for code, number in ((13, errno.ENOSPC), (8, errno.EROFS), (10, errno.EIO), (7, errno.ENOMEM)):
        assert refusal_of(of_sqlite(code | 0x300, "full")) is REFUSALS[number]
    assert refusal_of(of_sqlite(None, "closed")) is None


# --- processes -----------------------------------------------------------------------------------

# Runs a module in this process with less than it wants. What Python compiles meanwhile is not kept:
# where files may not grow, half of it would be left behind, and no process could load the module.
PROGRAM = """
import os, resource, runpy, sys, threading
sys.dont_write_bytecode = True
less = sys.argv.pop(1)
if less.startswith("threads"):
    start = threading.Thread.start
    refuses = [less == "threads"]
    def limited(thread):
        if refuses[0]:
            raise RuntimeError("can't start new thread")
        start(thread)
    threading.Thread.start = limited
    if less == "threads-later":
        import signal
        signal.signal(signal.SIGUSR1, lambda *_: refuses.__setitem__(0, True))
else:
    name, value = less.split("=")
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (int(value), int(value)))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@contextmanager
def running(less: str, folder: Path, module: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the test, and whose output is closed when it ends."""
    peers, clients = free_ports(2)
    arguments = ["--group", "g", "--node", "n0", "--peers", f"n0=127.0.0.1:{peers}"]
    arguments += ["--dir", str(folder)]
    if module == "broker":
        arguments += ["--listen", f"127.0.0.1:{clients}"]
    else:
        arguments.insert(0, "serve")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, less, module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """The lines up to one that matches; fails if the process ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if re.search(pattern, line):
            return lines
    raise AssertionError("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("module", ["dledger", "broker"])
@pytest.mark.parametrize("less", ["NOFILE=12", "FSIZE=6000"])
def test_a_member_that_cannot_start_ends_with_one_line(
    tmp_path: Path, module: str, less: str
) -> None:
    with running(less, tmp_path, module) as process:
        output, _ = process.communicate(timeout=60)
    last = output.splitlines()[-1]
    assert process.returncode == 1
    assert "Traceback" not in output
    assert last.startswith(f"{module}: "), output
    assert "ulimit" in last or "disk" in last


@pytest.mark.slow
@pytest.mark.forked_programs
@pytest.mark.parametrize("module", ["dledger", "broker"])
@pytest.mark.parametrize("less", ["threads", "threads-later"])
def test_a_member_without_threads_leads_says_so_once_and_ends_by_sigterm(
    tmp_path: Path, module: str, less: str
) -> None:
    with running(less, tmp_path, module) as process:
        lines = lines_until(process, "leader of term")
        if less == "threads-later":
            process.send_signal(signal.SIGUSR1)
        began = time.monotonic()
        process.terminate()
        output, _ = process.communicate(timeout=30)
    assert time.monotonic() - began < 15
    assert process.returncode == 0, output
    told_of = [line for line in (*lines, *output.splitlines()) if "thread" in line]
    assert len(told_of) == 1 if less == "threads" else len(told_of) <= 1
    assert "Traceback" not in output
    assert all("TasksMax" in line for line in told_of)
