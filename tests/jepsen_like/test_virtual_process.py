"""A simulated process has its disk, its threads and its clock for as long as it lives."""

from collections.abc import Callable

import pytest
import trio

from dledger.errors import DataFolderLocked
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.leaping_loop import LeapingClock, run_in_virtual_time
from jepsen_like.simulation.hosts.plan import DiskStyle
from jepsen_like.simulation.hosts.process import Life, ProcessDisk, ProcessEnded
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk

STYLE = DiskStyle(sync_s=0.001, work_s=0.002)


@pytest.fixture
async def life(autojump_clock: object) -> Life:
    """A process that runs."""
    return Life()


async def test_what_a_killed_process_still_does_never_reaches_the_disk(life: Life) -> None:
    machine = VirtualDisk(Chance(1, "disk"))
    disk = ProcessDisk(machine, life, STYLE, Chance(1, "process"))
    disk.make_folder("/d")
    file = disk.create("/d/f")
    file.write(b"before", 0)
    lock = disk.lock("/d/lock")
    life.end()
    machine.end_process()
    late: tuple[Callable[[], None], ...] = (
        lambda: file.write(b"after", 0),
        file.sync,
        lambda: disk.remove("/d/f"),
    )
    for effect in late:
        with pytest.raises(ProcessEnded):
            effect()
    held = machine.lock("/d/lock")
    lock.close()
    with pytest.raises(DataFolderLocked):
        machine.lock("/d/lock")
    held.close()
    assert machine.open("/d/f").read(9, 0) == b"before"


async def test_waiting_ends_with_the_process(life: Life) -> None:
    async def end() -> None:
        await trio.sleep(1.0)
        life.end()

    began_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        with pytest.raises(ProcessEnded):
            await life.wait(100.0)
    assert trio.current_time() - began_at < 2.0


async def test_syncs_take_time_by_the_clock_of_the_process(life: Life) -> None:
    disk = ProcessDisk(VirtualDisk(Chance(1, "disk")), life, STYLE, Chance(1, "process"))
    file = disk.create("/f")
    for _ in range(100):
        file.sync()
    assert 0.05 < disk.spent_s < 0.2


def test_a_file_renamed_into_a_synced_folder_survives_a_power_cut() -> None:
    disk = VirtualDisk(Chance(1, "disk"))
    file = disk.create("/spare/1")
    file.write(b"zeros", 0)
    file.sync()
    disk.rename("/spare/1", "/data/1")
    disk.sync_folder("/data")
    disk.cut_power(CrashStyle(keep=0.0, torn=0.0, names_in_order=True))
    assert disk.open("/data/1").read(9, 0) == b"zeros"


def test_time_leaps_over_what_nothing_does_in() -> None:
    clock = LeapingClock()

    async def main() -> float:
        await trio.sleep(86_400.0)
        return trio.current_time()

    assert run_in_virtual_time(1, clock, main) >= 86_400.0


def test_a_task_that_looks_at_the_clock_again_and_again_sees_it_go_on() -> None:
    async def main() -> None:
        end_at = trio.current_time() + 1e-6
        while trio.current_time() < end_at:
            with trio.move_on_at(trio.current_time()):
                await trio.sleep_forever()

    run_in_virtual_time(1, LeapingClock(), main)


def order_of_tasks(seed: int) -> list[int]:
    order: list[int] = []

    async def note(number: int) -> None:
        for _ in range(3):
            await trio.sleep(1.0)
            order.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(note, number)

    run_in_virtual_time(seed, LeapingClock(), main)
    return order


def test_the_seed_decides_in_which_order_tasks_run() -> None:
    assert order_of_tasks(1) == order_of_tasks(1)
    assert order_of_tasks(1) != order_of_tasks(2)
