"""A broker starts from its newest snapshot: what is replayed, and what becomes of broken files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import dledger
from broker.features import REGISTRY, empty_state
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured
from broker.machine import BrokerMachine
from broker.messages.record_facts import UNIT, units_of
from broker.messages.state import MESSAGES
from broker.server import Broker
from broker.store.consume_queue import UNIT_BYTES
from broker.store.consume_queue_disk import OS_DISK
from broker.store.consume_queues import ConsumeQueues
from broker.store.queue_rebuild import QueueRebuild
from broker.store.queue_sync import QueueSync
from broker.store.synced_mark import SyncedMark
from broker.topics.commands import DeleteTopic
from dledger.errors import DiskFailed
from remoting.wire.codes import ResponseCode
from tests.broker.log.test_broker_fold import Log, actions, build, with_topic
from tests.broker.one_broker import Client, running_broker, until
from tests.broker.store.test_broker_consume_queue import FEW, arrivals, fill, queues, unit
from tests.dledger.snapshots.test_log_retention import copy_unless_removed
from tests.examples import examples

applied: list[int] = []


@pytest.fixture(autouse=True)
def count_what_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = BrokerMachine.apply
    applied.clear()

    def counting(machine: BrokerMachine, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        applied.extend(entry.index for entry in entries)
        return apply(machine, entries)

    monkeypatch.setattr(BrokerMachine, "apply", counting)


async def send(broker: Broker, nursery: trio.Nursery, topic: str, numbers: range) -> Client:
    client = Client(nursery, str(broker.config.address))
    for number in numbers:
        assert (await client.send(topic, b"%d" % number, tags="A")).code == 0
    return client


async def bodies(client: Client, topic: str) -> list[int]:
    return [int(message.body) for message in await client.messages(topic)]


async def filled(directory: Path) -> None:
    """Ten messages, a snapshot, and two more; an offset on either side."""
    async with running_broker(directory) as (broker, nursery):
        client = await send(broker, nursery, "T", range(10))
        await client.heartbeat("c", "g", "T")
        await client.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=3)
        await broker.node.snapshot()
        await client.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=5)
        await send(broker, nursery, "T", range(10, 12))
    applied.clear()


async def check_all_is_there(broker: Broker, nursery: trio.Nursery) -> None:
    client = await send(broker, nursery, "T", range(12, 13))
    assert await bodies(client, "T") == list(range(13))
    reply = await client.ask(14, consumerGroup="g", topic="T", queueId=0)
    assert reply.fields == {"offset": "5"}
    assert broker.machine.state[MESSAGES].messages == 13


async def test_a_start_replays_only_what_lies_behind_the_snapshot(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with running_broker(tmp_path) as (broker, nursery):
        assert len(applied) == 3
        await check_all_is_there(broker, nursery)
        restarted = list(captured(broker.machine.state))
    shutil.rmtree(tmp_path / "dledger-n0" / "snapshots")
    async with running_broker(tmp_path) as (broker, _nursery):
        # The same as without any snapshot.
        assert 1 in applied
        assert list(captured(broker.machine.state)) == restarted


@pytest.mark.parametrize("damage", ["all gone", "one gone", "cut", "garbage behind the end"])
async def test_consume_queues_that_are_damaged_are_made_again_from_the_log(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    folder = tmp_path / "consumequeue"
    file = folder / "T" / "0" / f"{0:020d}"
    if damage == "all gone":
        shutil.rmtree(folder)
    elif damage == "one gone":
        file.unlink()
    elif damage == "cut":
        os.truncate(file, 5 * UNIT_BYTES)
    else:
        file.write_bytes(file.read_bytes()[: 10 * UNIT_BYTES] + b"\xff" * 99)
    async with running_broker(tmp_path) as (broker, nursery):
        await check_all_is_there(broker, nursery)
    assert ("making them again from entries 0 and later" in caplog.text) == ("behind" not in damage)


async def test_a_leader_mends_its_queues_before_it_serves_again(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with running_broker(tmp_path) as (broker, nursery):
        queues, state = broker.machine.queues, broker.machine.state
        # As after another member's snapshot, whose queues this member does not have.
        SyncedMark(str(tmp_path / "consumequeue"), OS_DISK).withdraw()
        queues.close()
        shutil.rmtree(tmp_path / "consumequeue" / "T")
        queues.resume(state[MESSAGES].queue_ends, state.log_end)
        client = Client(nursery, str(broker.config.address))
        assert (await client.pull("T", 0)).code == ResponseCode.SERVICE_NOT_AVAILABLE

        async def serves() -> bool:
            return broker.requests.led_term is not None

        await until(serves)  # also if no client asks
        await check_all_is_there(broker, nursery)


async def test_a_topic_that_was_deleted_and_made_again_behind_the_snapshot_is_the_new_one(
    tmp_path: Path,
) -> None:
    await filled(tmp_path)
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        assert (await client.ask(215, topic="T")).code == 0
        await send(broker, nursery, "T", range(100, 103))
    for gone in (False, True):
        if gone:
            shutil.rmtree(tmp_path / "consumequeue")
        async with running_broker(tmp_path) as (broker, nursery):
            client = Client(nursery, str(broker.config.address))
            assert await bodies(client, "T") == [100, 101, 102]
            assert broker.machine.queues.damaged == set()


async def test_a_topic_made_again_before_the_snapshot_is_made_again_from_the_new_messages(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = await send(broker, nursery, "T", range(8))
        assert (await client.ask(215, topic="T")).code == 0
        await send(broker, nursery, "T", range(100, 103))
        await broker.node.snapshot()
    shutil.rmtree(tmp_path / "consumequeue")
    async with running_broker(tmp_path) as (broker, nursery):
        client = await send(broker, nursery, "T", range(103, 104))
        assert await bodies(client, "T") == [100, 101, 102, 103]


@pytest.mark.feature("F26")
@pytest.mark.parametrize("rounds", [3, pytest.param(6, marks=pytest.mark.long)])
async def test_images_of_the_folder_at_any_moment_have_all_that_was_acknowledged(
    tmp_path: Path, rounds: int
) -> None:
    live = tmp_path / "live"
    images: list[Path] = []
    snapshots = dledger.SnapshotPolicy(every_entries=7, trailing_entries=0)
    # So that an image is copied soon.
    store = dledger.StoreConfig(segment_bytes=65536, index_segment_bytes=3200, max_body_bytes=4000)
    async with running_broker(live, snapshots=snapshots, store=store) as (broker, nursery):
        for round_ in range(rounds):
            await send(broker, nursery, "T", range(5 * round_, 5 * round_ + 5))
            if round_ % 2:
                await trio.sleep(0.3)
            images.append(tmp_path / f"image {round_}")
            shutil.copytree(live, images[-1], copy_function=copy_unless_removed)
    for round_, image in enumerate(images):
        async with running_broker(image, store=store) as (broker, nursery):
            client = Client(nursery, str(broker.config.address))
            assert await bodies(client, "T") == list(range(5 * round_ + 5))


# --- what is durable before a snapshot stands for it ----------------------------------------------


def test_the_files_are_synced_before_the_first_chunk_is_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = BrokerMachine(queues(tmp_path), REGISTRY)
    fill(machine.queues, "A", 0, 0, FEW + 1)
    synced: list[str] = []
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    chunks = machine.snapshot()
    assert synced == []
    next(chunks)
    queue = tmp_path / "consumequeue" / "A" / "0"
    files = {str(queue / f"{0:020d}"), str(queue / f"{FEW * UNIT_BYTES:020d}")}
    folders = {str(queue), str(queue.parent), str(tmp_path / "consumequeue"), str(tmp_path)}
    mark = str(tmp_path / "consumequeue" / ".synced")
    assert set(synced) == files | folders | {mark}
    assert synced.index(mark) > max(synced.index(path) for path in files | {str(queue)})
    synced.clear()
    fill(machine.queues, "A", 0, FEW + 1, 1)
    next(machine.snapshot())
    assert str(queue / f"{0:020d}") not in synced
    machine.queues.close()


def test_what_a_snapshot_that_was_given_up_did_not_sync_the_next_one_does(tmp_path: Path) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 1)
    given_up = target.sync_due(0)
    assert given_up.paths
    fill(target, "B", 0, 0, 1)
    assert target.sync_due(0).paths > given_up.paths
    target.sync_due(0).run()
    assert not target.sync_due(0).paths
    target.close()


def test_after_a_sync_that_failed_no_snapshot_is_taken_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 1)

    def fail(_descriptor: int) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no"):
        target.sync_due(0).run()
    monkeypatch.undo()
    # The system may take what it lost for written, so a second sync proves nothing.
    with pytest.raises(OSError, match="start the broker again"):
        target.sync_due(0).run()
    target.close()


def test_files_of_a_topic_that_is_deleted_meanwhile_are_not_missed(tmp_path: Path) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 1)
    sync = target.sync_due(0)
    target.delete_topic("A")
    sync.run()
    assert isinstance(sync, QueueSync)
    assert sync.is_done
    target.close()


# --- consume queues that go on --------------------------------------------------------------------


def resumed(folder: Path, end: int) -> ConsumeQueues:
    """The queues of a restart from a snapshot that this member wrote itself."""
    SyncedMark(str(folder / "consumequeue"), OS_DISK).write(7)
    target = queues(folder)
    target.resume({"A": {0: end}}, 7)
    return target


def test_a_queue_goes_on_where_the_snapshot_says_and_forgets_what_came_later(
    tmp_path: Path,
) -> None:
    first_run = queues(tmp_path)
    fill(first_run, "A", 0, 0, 3 * FEW)
    first_run.close()
    target = resumed(tmp_path, FEW + 2)
    assert not target.damaged
    assert target.end("A", 0) == FEW + 2
    assert target.read("A", 0, 0, 99) == b"".join(unit(n) for n in range(FEW + 2))
    fill(target, "A", 0, FEW + 2, 1)
    assert target.read("A", 0, FEW + 1, 99) == unit(FEW + 1) + unit(FEW + 2)
    target.close()


@pytest.mark.parametrize("end", [1, FEW - 1, FEW, FEW + 1, 2 * FEW, 2 * FEW + 1])
def test_a_queue_whose_last_file_is_short_or_gone_is_damaged(tmp_path: Path, end: int) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, end)
    target.close()
    whole = resumed(tmp_path, end)
    assert not whole.damaged
    whole.close()
    last = max((tmp_path / "consumequeue" / "A" / "0").iterdir())
    os.truncate(last, last.stat().st_size - 1)
    assert resumed(tmp_path, end).damaged == {("A", 0)}
    last.unlink()
    assert resumed(tmp_path, end).damaged == {("A", 0)}


def test_a_gap_between_files_is_damage_and_missing_first_files_are_retention(
    tmp_path: Path,
) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 4 * FEW)
    target.close()
    files = sorted((tmp_path / "consumequeue" / "A" / "0").iterdir())
    files[1].unlink()
    assert resumed(tmp_path, 4 * FEW).damaged
    files[0].unlink()
    target = resumed(tmp_path, 4 * FEW)
    assert not target.damaged
    assert target.begin("A", 0, 100 * 3 * FEW) == 3 * FEW
    target.close()


def test_more_files_missing_than_retention_removes_is_an_error_not_a_later_beginning(
    tmp_path: Path,
) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 4 * FEW)
    target.close()
    for file in sorted((tmp_path / "consumequeue" / "A" / "0").iterdir())[:2]:
        file.unlink()
    target = resumed(tmp_path, 4 * FEW)
    with pytest.raises(DiskFailed, match="files are missing"):
        target.begin("A", 0, 100 * FEW)
    target.close()


@pytest.mark.feature("F28")
def test_the_beginning_of_a_queue_follows_what_is_kept_of_the_log(tmp_path: Path) -> None:
    target = ConsumeQueues(tmp_path / "consumequeue", 2, FEW)
    count = 5 * FEW
    fill(target, "A", 0, 0, count)
    folder = tmp_path / "consumequeue" / "A" / "0"
    assert target.begin("A", 0, 0) == 0
    for kept in (0, 1, 100, 101, 100 * FEW, 100 * (count - 1), 100 * count):
        begin = target.begin("A", 0, kept)
        assert begin == next((n for n in range(count) if 100 * n >= kept), count)
        target.remove_files("A", 0, kept)
        assert target.read("A", 0, max(0, begin - 1), 1) == (unit(max(0, begin - 1)))
        assert UNIT.size * max(0, begin - 1) >= min(int(path.name) for path in folder.iterdir())
    assert len(list(folder.iterdir())) == 1
    target.close()
    target = resumed(tmp_path, count)
    assert not target.damaged
    assert target.begin("A", 0, 100 * count) == count
    fill(target, "A", 0, count, 1)
    assert target.begin("A", 0, 100 * count) == count
    target.close()


def test_an_unknown_queue_begins_and_ends_at_zero(tmp_path: Path) -> None:
    target = queues(tmp_path)
    assert (target.begin("A", 0, 7), target.end("A", 0)) == (0, 0)
    target.remove_files("A", 0, 7)
    target.append({("A", 0): arrivals(0, range(1))})
    target.close()


# --- what the log does not give back --------------------------------------------------------------


def log_of(count: int, first: int = 0) -> list[dledger.Entry]:
    log = Log()
    with_topic(log)
    for offset in range(first, first + count):
        log.append_record("A", 0, offset)
    return log.entries[1:] if first else log.entries


@pytest.mark.parametrize(
    ("found", "is_whole", "begin"),
    [
        (log_of(5), True, 0),
        (log_of(3, 2), False, 2),
        ([], False, 5),
        (log_of(7), True, 0),  # the last two are behind the snapshot
        (log_of(3, 2), True, None),
        (log_of(4), True, None),
        ([], True, None),
        (log_of(2, 1), False, 5),  # passed over: else the log would have the next ones
        (log_of(5, 2), False, 2),  # the last two are behind the snapshot
        (log_of(3, 7), False, 5),  # all behind the snapshot
    ],
)
def test_a_queue_is_mended_only_if_the_log_leads_to_its_end(
    tmp_path: Path, found: list[dledger.Entry], is_whole: bool, begin: int | None
) -> None:
    target = resumed(tmp_path, 5)
    assert target.damaged == {("A", 0)}
    rebuild = QueueRebuild(target.to_mend, is_whole, REGISTRY)
    rebuild.take(found)
    if begin is None:
        with pytest.raises(DiskFailed, match="the snapshot to 5"):
            rebuild.finish()
    else:
        rebuild.finish()
        assert not target.damaged
        assert (target.begin("A", 0, 0), target.end("A", 0)) == (begin, 5)
        units = [unit[0] for unit in UNIT.iter_unpack(target.read("A", 0, begin, 9))]
        wanted = [entry.body_pos for entry in found if entry.index][: 5 - begin]
        assert units == (wanted if begin < 5 else [])
    target.close()


def test_a_record_that_the_fold_passed_over_is_not_put_back(tmp_path: Path) -> None:
    target, log = resumed(tmp_path, 3), Log()
    with_topic(log)
    for offset in (0, 1, 1, 7, 2):
        log.append_record("A", 0, offset)
    rebuild = QueueRebuild(target.to_mend, True, REGISTRY)
    rebuild.take(log.entries)
    rebuild.finish()
    places = [unit[0] for unit in UNIT.iter_unpack(target.read("A", 0, 0, 9))]
    assert places == [log.entries[at].body_pos for at in (1, 2, 5)]
    target.close()


def test_a_record_between_the_deletion_of_its_topic_and_its_creation_is_not_put_back(
    tmp_path: Path,
) -> None:
    log = Log()
    with_topic(log)
    log.append_record("A", 0, 0)
    log.append(encode_log_command(DeleteTopic("A", 9)))
    log.append_record("A", 0, 0)  # proposed before its leader had applied the deletion
    with_topic(log)
    acknowledged = log.append_record("A", 0, 0)
    for at, first in enumerate((0, 1, 2, 3)):
        target = resumed(tmp_path / str(at), 1)
        rebuild = QueueRebuild(target.to_mend, is_whole=first == 0, registry=REGISTRY)
        rebuild.take(log.entries[first:])
        rebuild.finish()
        assert [unit[0] for unit in UNIT.iter_unpack(target.read("A", 0, 0, 9))] == [
            acknowledged.body_pos
        ]
        target.close()


@given(actions, st.integers(0, 40))
@settings(max_examples=examples(100))
def test_queues_that_are_made_again_equal_those_of_the_fold(
    script: list[tuple[str, str, int]], dropped: int
) -> None:
    log, state = build(script), empty_state()
    folded = fold(state, log.entries)
    ends = {
        (topic, n): end
        for topic, table in state[MESSAGES].queue_ends.items()
        for n, end in table.items()
    }
    first = min(dropped, len(log.entries))
    with TemporaryDirectory() as folder:
        target = ConsumeQueues(Path(folder) / "consumequeue", 4, FEW)
        target.resume(state[MESSAGES].queue_ends, state.log_end)
        damaged = set(target.damaged)
        assert damaged == ends.keys()
        # As with a snapshot of an earlier version, which does not say what was passed over.
        rebuild = QueueRebuild(target.to_mend, is_whole=first == 0, registry=REGISTRY)
        rebuild.take(log.entries[first:])
        rebuild.finish()
        kept = log.entries[first].pos if log.entries[first:] else state.log_end
        for key in damaged:
            arrived = folded.arrivals[key]
            places = arrived.places
            begin = next((at for at, place in enumerate(places) if place >= kept), ends[key])
            # A record that was passed over may stand for a message before, which is dropped.
            assert target.begin(*key, kept) <= begin
            units = units_of(arrived)[begin * UNIT.size :]
            assert target.read(*key, begin, 99) == units, (key, begin)
        target.close()
