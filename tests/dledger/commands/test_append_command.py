"""`dledger append`: what bodies it takes, in which pieces, and what its exit code says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import pytest
import trio

import dledger
from dledger.client.client_errors import AnswerOverdue
from dledger.command_line.ending import ExitCode
from dledger.commands.append_command import append_batches, batches, lines
from dledger.entry import MAX_BODY_BYTES
from dledger.wire.client_protocol import MAX_BODIES, Operation, Request
from tests.dledger.client.fake_member import GROUP, Answer, FakeGroup, appended, fake_group, silent


def pieces(*parts: bytes) -> Callable[[], Awaitable[bytes]]:
    left = list(parts)

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return left.pop(0) if left else b""

    return read


async def read_lines(*parts: bytes) -> list[list[bytes]]:
    return [batch async for batch in lines(pieces(*parts))]


async def test_lines_are_cut_at_newlines_and_nothing_else() -> None:
    assert await read_lines(b"one\ntw", b"o\n\n\xff\xfe\r\nlast") == [
        [b"one"],
        [b"two", b"", b"\xff\xfe\r"],
        [b"last"],
    ]
    assert await read_lines() == []
    assert await read_lines(b"\n") == [[b""]]


async def test_a_line_is_handed_on_before_the_input_ends() -> None:
    async def read() -> bytes:
        if not given:
            given.append(True)
            return b"first\nsec"
        return await trio.sleep_forever()

    given: list[bool] = []
    async with aclosing(lines(read)) as found:
        with trio.fail_after(5):
            assert await anext(found) == [b"first"]


async def test_a_line_longer_than_any_entry_is_refused_before_it_fills_memory() -> None:
    read: list[int] = []

    async def endless() -> bytes:
        await trio.lowlevel.checkpoint()
        read.append(1)
        return bytes(1024 * 1024)

    with pytest.raises(dledger.EntryTooLarge):
        await anext(lines(endless))
    assert len(read) == MAX_BODY_BYTES // (1024 * 1024) + 1


def test_bodies_go_in_as_many_as_one_request_carries() -> None:
    sizes = [len(batch) for batch in batches([b"x"] * (2 * MAX_BODIES + 1))]
    assert sizes == [MAX_BODIES, MAX_BODIES, 1]
    half = bytes(MAX_BODY_BYTES // 2)
    assert [len(batch) for batch in batches([half, half, half, b"x"])] == [2, 2]
    assert batches([]) == []


async def test_what_was_appended_before_a_failure_has_been_told() -> None:
    def script(request: Request) -> Answer:
        return dledger.EntryTooLarge(9, 5) if request.payload == b"third" else appended(request)

    async def three() -> AsyncGenerator[list[bytes], None]:
        for body in (b"first", b"second", b"third"):
            yield [body]

    told: list[Sequence[int]] = []
    async with fake_group(1) as group:
        group.elect(0, term=1).script = script
        async with dledger.connect(group.peers, group=GROUP) as log:
            with pytest.raises(dledger.EntryTooLarge):
                await append_batches(log, three(), lambda *entry: told.append(entry))
    assert len(told) == 2


async def test_no_batch_is_taken_before_the_one_before_it_is_told() -> None:
    told: list[int] = []
    ahead: list[int] = []

    async def five() -> AsyncGenerator[list[bytes], None]:
        for number in range(5):
            ahead.append(number - len(told))
            yield [b"%d" % number]

    async with fake_group(1) as group:
        group.elect(0, term=1)
        async with dledger.connect(group.peers, group=GROUP) as log:
            await append_batches(log, five(), lambda index, *_: told.append(index))
    assert len(told) == 5
    assert ahead == [0] * 5


def words_for(group: FakeGroup, timeout_s: float = 5.0) -> list[str]:
    peers = ",".join(f"{name}={address}" for name, address in group.peers.items())
    words = ["append", "--group", GROUP, "--peers", peers, "--timeout", str(timeout_s)]
    return [sys.executable, "-m", "dledger", *words]


async def run_append(
    group: FakeGroup, *bodies: bytes, stdin: bytes = b"", timeout_s: float = 5.0
) -> subprocess.CompletedProcess[bytes]:
    command = [*words_for(group, timeout_s), *map(os.fsdecode, bodies)]
    return await trio.run_process(
        command, stdin=stdin, check=False, capture_stdout=True, capture_stderr=True
    )


def bodies_of(request: Request) -> list[bytes]:
    assert request.operation is Operation.APPEND
    found, at = [], 0
    for size in request.numbers:
        found.append(request.payload[at : at + size])
        at += size
    return found


async def test_bytes_that_are_no_text_are_appended_as_they_are() -> None:
    async with fake_group(1) as group:
        leader = group.elect(0, term=1)
        ended = await run_append(group, b"caf\xe9", b"\xff")
        assert (ended.returncode, ended.stderr) == (ExitCode.DONE, b"")
        ended = await run_append(group, stdin=b"caf\xe9\n\xff\n")
        assert (ended.returncode, ended.stderr) == (ExitCode.DONE, b"")
        assert [bodies_of(request) for request in leader.asked] == [[b"caf\xe9", b"\xff"]] * 2


async def test_the_exit_code_tells_what_was_not_done_from_what_is_not_known() -> None:
    async with fake_group(1) as group:
        leader = group.elect(0, term=1)
        leader.script = lambda _: dledger.EntryTooLarge(9, 5)
        refused = await run_append(group, b"x")
        assert refused.returncode == ExitCode.FAILED
        leader.script = silent
        unknown = await run_append(group, b"x", timeout_s=0.5)
        assert unknown.returncode == ExitCode.OUTCOME_UNKNOWN
        assert unknown.stderr.decode() == f"dledger: {AnswerOverdue(0.5)}\n"


async def test_entries_that_cannot_be_told_are_not_said_to_be_missing() -> None:
    async with fake_group(1) as group:
        leader = group.elect(0, term=1)
        full = os.open("/dev/full", os.O_WRONLY)
        try:
            ended = await trio.run_process(
                [*words_for(group), "x"], stdout=full, check=False, capture_stderr=True
            )
        finally:
            os.close(full)
        assert [bodies_of(request) for request in leader.asked] == [[b"x"]]
        assert ended.returncode == ExitCode.OUTCOME_UNKNOWN
        (line,) = ended.stderr.decode().splitlines()
        assert "1 bodies were appended, but standard output cannot be written" in line


async def test_a_closed_standard_input_is_one_line() -> None:
    async with fake_group(1) as group:
        group.elect(0, term=1)
        shell = ["sh", "-c", 'exec "$@" <&-', "sh", *words_for(group)]
        ended = await trio.run_process(shell, check=False, capture_stderr=True)
        assert ended.returncode == ExitCode.FAILED
        assert ended.stderr.decode().splitlines() == [
            "dledger: standard input is closed: give one, /dev/null for an empty one"
        ]


async def test_more_lines_than_one_request_carries_are_all_appended() -> None:
    count = 3 * MAX_BODIES + 5
    async with fake_group(1) as group:
        leader = group.elect(0, term=1)
        ended = await run_append(group, stdin=b"".join(b"%d\n" % i for i in range(count)))
        assert ended.returncode == ExitCode.DONE, ended.stderr
        assert len(ended.stdout.splitlines()) == count
        arrived = [body for request in leader.asked for body in bodies_of(request)]
        assert arrived == [b"%d" % i for i in range(count)]


async def test_a_line_of_a_pipe_is_appended_while_the_writer_waits_to_write_the_next() -> None:
    async with fake_group(1) as group:
        group.elect(0, term=1)
        process = await trio.lowlevel.open_process(
            words_for(group), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with trio.fail_after(30):  # a loaded machine takes seconds to start it
                async with process.stdin, process.stdout:
                    for line in (b"first\n", b"second\n"):
                        await process.stdin.send_all(line)
                        told = bytearray()
                        while not told.endswith(b"\n"):
                            piece = await process.stdout.receive_some()
                            assert piece, "the command ended before its input did"
                            told += piece
                        assert told.count(b"\n") == 1
                    await process.stdin.aclose()
                    assert await process.wait() == ExitCode.DONE
        finally:
            process.kill()
            await process.wait()
