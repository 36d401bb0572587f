"""Clusters for tests: real processes, killed, frozen, started again, and none left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from command_entry.pytest_fixtures import mq_cluster, trio_mq_cluster
from dledger_mq import Message, MessageQueue, MessagingError, Producer
from dledger_mq.testing import BlockingCluster, NotRunning, TrioCluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.forked_programs]

# The fixtures as pytest finds them in a project that has this one installed; here they need not be
# installed.
__all__ = ["mq_cluster", "trio_mq_cluster"]

ENOUGH_S = 60


def processes_of(directory: Path) -> list[int]:
    """The processes whose command line names a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended
            if str(directory).encode() in line:
                found.append(int(entry.name))
    return found


async def test_a_process_that_does_not_run_is_named_in_one_line() -> None:
    with trio.fail_after(ENOUGH_S):
        async with cluster(nodes=1) as group:
            await group.kill("n0")
            for call in (group.kill, group.freeze, group.resume):
                with pytest.raises(NotRunning, match="only nameserver: restart it"):
                    await call("n0")
            with pytest.raises(NotRunning, match="n7"):
                await group.restart("n7")
            await group.restart("n0")
            directory = group.directory
            assert len(processes_of(directory)) == 1
    assert processes_of(directory) == []
    assert not directory.exists()


async def test_an_error_of_the_block_comes_out_as_it_is_and_ends_frozen_processes() -> None:
    places: list[Path] = []

    async def fail() -> None:
        async with cluster(nodes=1) as group:
            places.append(group.directory)
            await group.freeze("n0")
            raise KeyError("mine")

    with trio.fail_after(ENOUGH_S), pytest.raises(KeyError):
        await fail()
    assert processes_of(places[0]) == []


def first_of(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
    return min(queues, key=lambda queue: queue.queue_id)


async def test_a_directory_keeps_a_cluster_and_its_messages(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    offsets = []
    with trio.fail_after(ENOUGH_S):
        for body in (b"one", b"two"):
            async with (
                cluster(nodes=1, directory=directory) as group,
                Producer("w", nameservers=group.nameservers) as producer,
            ):
                result = await producer.send(Message("T", body), selector=first_of, timeout_s=20)
                offsets.append(result.queue_offset)
    assert offsets == [0, 1]


async def test_a_process_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with trio.fail_after(ENOUGH_S):
        async with cluster(nodes=1, directory=directory):
            pass
        (directory / "n0.log").unlink()
        broken = directory / "n0"
        broken.rename(directory / "n0.aside")
        broken.write_text("no folder")
        with pytest.raises(MessagingError, match="n0 did not start"):
            async with cluster(nodes=1, directory=directory):
                pytest.fail("it began")
    assert processes_of(directory) == []


OWNER = """
import sys, trio
from pathlib import Path
from dledger_mq.testing import cluster

async def main():
    async with cluster(nodes=1, directory=Path(sys.argv[1])) as group:
        await group.freeze()
        print("frozen", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def test_a_killed_owner_leaves_no_process_behind_not_even_a_frozen_one(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"frozen\n"
        children = processes_of(directory)
        assert len(children) == 2  # and the owner
        os.kill(owner.pid, signal.SIGKILL)

    async def wait_for_their_end() -> None:
        with trio.fail_after(ENOUGH_S):
            # The processes are children of no one here: their end can only be looked for.
            while processes_of(directory):  # noqa: ASYNC110
                await trio.sleep(0.05)

    trio.run(wait_for_their_end)


def test_a_plain_test_uses_the_fixture(mq_cluster: BlockingCluster) -> None:
    killed = mq_cluster.kill()
    assert mq_cluster.leader() in set(mq_cluster.nodes) - {killed}
    mq_cluster.restart(killed)
    frozen = mq_cluster.freeze(killed)
    mq_cluster.resume(frozen)
    assert len(mq_cluster.running) == 4


async def test_a_leader_is_killed_frozen_and_started_again_by_one_call_each(
    trio_mq_cluster: TrioCluster,
) -> None:
    group = trio_mq_cluster
    with trio.fail_after(ENOUGH_S):
        async with Producer("w", nameservers=group.nameservers) as producer:
            assert group.running == sorted(["nameserver", *group.nodes])
            await producer.send(Message("T", b"one"), timeout_s=20)
            first = await group.kill()
            assert first not in group.running
            await producer.send(Message("T", b"two"), timeout_s=20)
            assert await group.leader() != first
            await group.restart(first)
            second = await group.freeze()
            assert second in group.running
            await producer.send(Message("T", b"three"), timeout_s=20)
            assert await group.leader() != second
            await group.resume(second)
            await group.restart(second)  # it runs: it is killed first
            assert len(group.running) == 4
            assert len(processes_of(group.directory)) == 3
