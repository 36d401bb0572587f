"""What is no state machine is told when the node opens, and what is no result when it is given."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trio

import dledger
from dledger.entry import Entry
from dledger.free_ports import free_ports
from dledger.machine_check import applied, raised, snapshot_chunks


class NoApply:
    """Forgot it."""


class AsyncApply:
    """Is written as if it could wait."""

    async def apply(self, entries: Sequence[Entry]) -> list[None]:
        return [None] * len(entries)


class AsyncYields:
    """Is an asynchronous generator."""

    async def apply(self, entries: Sequence[Entry]) -> AsyncIterator[None]:
        yield None


class Yields:
    """Gives results one by one."""

    def apply(self, entries: Sequence[Entry]) -> Iterator[None]:
        yield from [None] * len(entries)


class TakesNothing:
    """Forgot its argument."""

    def apply(self) -> list[None]:
        return []


class Gives:
    """Gives what it was told to."""

    def __init__(self, give: Callable[[Sequence[Entry]], object]) -> None:
        self._give = give

    def apply(self, entries: Sequence[Entry]) -> object:
        return self._give(entries)


def config(folder: Path) -> dledger.NodeConfig:
    return dledger.NodeConfig(
        group="g",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{free_ports(1)[0]}"},
        data_dir=folder,
        election_timeout_ms=100,
        heartbeat_interval_ms=20,
        new=True,
    )


@pytest.mark.parametrize(
    ("machine", "problem"),
    [
        (NoApply(), r"NoApply has no method apply\(entries\)"),
        (dledger.LogOnly, r"LogOnly is a class: give an object, LogOnly\(\)"),
        (AsyncApply(), "AsyncApply has an async apply"),
        (AsyncYields(), "AsyncYields has an async apply"),
        (Yields(), "Yields has an apply.. that yields"),
        (TakesNothing(), "TakesNothing has an apply.. that does not take the entries"),
        (None, "NoneType has no method"),
    ],
)
async def test_what_is_no_state_machine_is_told_when_the_node_opens(
    tmp_path: Path, machine: dledger.StateMachine, problem: str
) -> None:
    with pytest.raises(dledger.MachineUnusable, match=problem) as caught:
        async with dledger.open_node(config(tmp_path), machine):
            raise AssertionError("it was opened")
    assert "\n" not in str(caught.value)
    with pytest.raises(dledger.MachineUnusable, match=problem):
        dledger.WithSessions(machine)


@pytest.mark.parametrize(
    ("give", "problem"),
    [
        (lambda entries: None, r"returned None, not a list of results, from apply\(\)"),
        (lambda entries: {entry.index for entry in entries}, "returned set, not a list"),
        (lambda entries: [], r"returned 0 results for 1 entries from apply\(\)"),
        (lambda entries: 1 / 0, r"raised ZeroDivisionError\('division by zero'\) on entries"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
async def test_what_apply_gives_is_named_when_it_is_no_list_of_results(
    tmp_path: Path,
    give: Callable[[Sequence[Entry]], object],
    problem: str,
    wrapped: bool,
) -> None:
    machine: dledger.StateMachine = Gives(give)  # type: ignore[assignment]
    with trio.fail_after(20), pytest.raises(dledger.MachineFailed, match=problem):
        await append_in_a_session(
            config(tmp_path), dledger.WithSessions(machine) if wrapped else machine
        )


def test_what_the_system_refuses_a_machine_is_no_fault_of_the_machine() -> None:
    for error in (MemoryError(), OSError(errno.EMFILE, "too many", "/state/x")):

        def apply(_entries: Sequence[Entry], error: Exception = error) -> list[object]:
            raise error

        with pytest.raises(dledger.ResourceRefused, match="ulimit"):
            applied(apply, [], 5, 5)


async def append_in_a_session(settings: dledger.NodeConfig, machine: dledger.StateMachine) -> None:
    async with dledger.open_node(settings, machine) as node:
        async for change in node.role_changes():
            if change.ready:
                break
        if isinstance(machine, dledger.WithSessions):
            async with node.session() as session:
                await session.append(b"one")
        await node.append(b"one")


async def test_odd_bodies_are_refused_and_the_node_lives_on(tmp_path: Path) -> None:
    for machine in (dledger.LogOnly(), dledger.WithSessions(dledger.LogOnly())):
        folder = tmp_path / type(machine).__name__
        async with dledger.open_node(config(folder), machine) as node:
            async for change in node.role_changes():
                if change.ready:
                    break
            odd: list[object] = [["text"], [{"a": 1}], [b"a", "b"], [bytearray(b"a")], b"abc", 5]
            for bodies in odd:
                with pytest.raises(dledger.BodyInvalid):
                    await node.append_many(bodies)  # type: ignore[arg-type]
                with pytest.raises(dledger.BodyInvalid):
                    node.submit(bodies, lambda outcome: None)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await node.append("text")  # type: ignore[arg-type]
            assert (await node.append(b"bytes")).index >= 1


class FullDisk:
    """Keeps files of its own, and their disk is full."""

    def apply(self, entries: Sequence[Entry]) -> list[None]:
        raise dledger.DiskFailed("write", "table.sqlite", OSError(28, "No space left on device"))


def test_a_machine_whose_own_disk_failed_says_so_itself() -> None:
    with pytest.raises(dledger.DiskFailed, match=r"table\.sqlite.*free some of the disk"):
        applied(FullDisk().apply, [], 5, 5)


class Saves:
    """A machine whose snapshots are what a test gives."""

    def __init__(self, given: object) -> None:
        self.given = given

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        return [None] * len(entries)

    def snapshot(self) -> object:
        return self.given

    def restore(self, chunks: Iterator[bytes]) -> None:
        list(chunks)


def test_what_snapshot_gives_is_named_when_it_is_no_list_of_chunks() -> None:
    told = {
        "bytes": (b"state", "snapshot() returned bytes: return a list of chunks, such as [state]"),
        "text": ("state", "snapshot() returned str: return a list of chunks, such as [state]"),
        "chunks of text": (["state"], "snapshot() gave a chunk of str: chunks are bytes"),
        "chunks of numbers": ([1], "snapshot() gave a chunk of int: chunks are bytes"),
        "nothing": (None, "argument 2 to map() must support iteration"),
    }
    for name, (given, text) in told.items():
        with pytest.raises(TypeError) as refused:
            list(snapshot_chunks(Saves(given)))  # type: ignore[arg-type]
        assert name == "nothing" or str(refused.value) == text, name
    assert list(snapshot_chunks(Saves([b"a", b"b"]))) == [b"a", b"b"]  # type: ignore[arg-type]


async def test_a_snapshot_of_plain_bytes_is_refused_with_what_to_give(tmp_path: Path) -> None:
    machine: dledger.StateMachine = Saves(b"state")
    async with dledger.open_node(config(tmp_path), machine) as node:
        async for change in node.role_changes():
            if change.ready:
                break
        await node.append(b"one")
        with pytest.raises(dledger.SnapshotUnavailable, match="return a list of chunks"):
            await node.snapshot()


def test_an_error_of_a_machine_is_told_in_few_words() -> None:
    assert raised(ValueError("cannot")) == "raised ValueError('cannot')"
    assert len(raised(ValueError("x" * 10_000))) < 400


@pytest.mark.parametrize(
    ("setting", "kind"), [("store", "StoreConfig"), ("snapshots", "SnapshotPolicy")]
)
def test_a_setting_of_another_kind_is_refused_with_what_to_give(
    setting: str, kind: str, tmp_path: Path
) -> None:
    wrong = {setting: 100}
    with pytest.raises(dledger.ConfigInvalid, match=f"100 is no {kind}: give {kind}"):
        config(tmp_path).with_changes(wrong)
