"""One process of a virtual machine, with its view of the disk and the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

import trio

from dledger.serving.platform import DiskSpace, Platform
from dledger.store.disk import DiskFile, DiskLock
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.plan import DiskStyle
from jepsen_like.simulation.hosts.virtual_internet import MachineNetwork
from jepsen_like.simulation.node_settings import STATE_FOLDER
from jepsen_like.simulation.virtual_disk import VirtualDisk

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_SPACE = DiskSpace(free=1 << 40, total=1 << 40)

# Rounds of the loop until it has handled the report of a thread.
ROUNDS_TO_REPORT = 3


class ProcessEnded(OSError):
    """The process was killed. The disk raises this to its code that still runs on this loop.

    An OSError, so that this code takes its usual paths; its decisions have no effect any more.
    """


class Life:
    """Whether a process runs, and the tasks that wait for its end."""

    def __init__(self) -> None:
        self.is_alive = True
        self._ended = trio.Event()

    def end(self) -> None:
        self.is_alive = False
        self._ended.set()

    def check(self) -> None:
        """Raise ProcessEnded if the process has ended."""
        if not self.is_alive:
            raise ProcessEnded

    async def wait(self, wait_s: float) -> None:
        """Let time pass. Raises ProcessEnded as soon as the process has ended."""
        with trio.move_on_after(wait_s):
            await self._ended.wait()
        self.check()


class ProcessDisk:
    """The disk of a machine as one process uses it, until the process ends.

    `spent_s` is how long the syncs of this process would have taken on a real disk.
    """

    def __init__(self, disk: VirtualDisk, life: Life, style: DiskStyle, chance: Chance) -> None:
        self._disk = disk
        self._life = life
        self._style = style
        self._chance = chance
        self.spent_s = 0.0

    def synced(self) -> None:
        """Add the time of a sync to `spent_s`."""
        self._life.check()
        self.spent_s += self._chance.wait_s(self._style.sync_s)

    @property
    def work_s(self) -> float:
        """The time that the next piece of work beside the loop takes."""
        return self._chance.wait_s(self._style.work_s)

    @property
    def sync_s(self) -> float:
        """The time that the next sync beside the loop takes."""
        return self._chance.wait_s(self._style.sync_s)

    def make_folder(self, path: str) -> None:
        self._life.check()
        self._disk.make_folder(path)

    def list(self, path: str) -> list[str]:
        self._life.check()
        return self._disk.list(path)

    def open(self, path: str, *, writable: bool = True) -> DiskFile:
        self._life.check()
        return ProcessFile(self._disk.open(path, writable=writable), self, self._life)

    def create(self, path: str) -> DiskFile:
        self._life.check()
        return ProcessFile(self._disk.create(path), self, self._life)

    def rename(self, old: str, new: str) -> None:
        self._life.check()
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self._life.check()
        self._disk.remove(path)

    def sync_folder(self, path: str) -> None:
        self._life.check()
        self._disk.sync_folder(path)

    def lock(self, path: str) -> DiskLock:
        self._life.check()
        return _ProcessLock(self._disk.lock(path), self._life)


class ProcessFile:
    __slots__ = ("_disk", "_file", "_life")

    def __init__(self, file: DiskFile, disk: ProcessDisk, life: Life) -> None:
        self._file = file
        self._disk = disk
        self._life = life

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def read(self, size: int, at: int) -> bytes:
        self._life.check()
        return self._file.read(size, at)

    def write(self, data: bytes, at: int) -> None:
        self._life.check()
        self._file.write(data, at)

    def grow(self, size: int) -> None:
        self._life.check()
        self._file.grow(size)

    def allocate(self, size: int) -> None:
        self._life.check()
        self._file.allocate(size)

    def sync(self) -> None:
        self._disk.synced()
        self._file.sync()

    def close(self) -> None:
        """Close the file, unless the system closed it when the process ended."""
        if self._life.is_alive:
            self._file.close()


class _ProcessLock:
    __slots__ = ("_life", "_lock")

    def __init__(self, lock: DiskLock, life: Life) -> None:
        self._lock = lock
        self._life = life

    def close(self) -> None:
        if self._life.is_alive:  # else the next process may hold the lock
            self._lock.close()


class VirtualThreads:
    """Runs syncs after some virtual time: `SyncThreads` of dledger.

    The nursery is the world's: the syncs of a killed process fail.
    """

    def __init__(self, nursery: trio.Nursery, process: Process) -> None:
        self._nursery = nursery
        self._process = process

    def clock(self) -> float:
        """Return virtual time, plus the time of the syncs that the loop waited for."""
        return trio.current_time() + self._process.disk.spent_s

    def run(self, sync: Callable[[], None], late: Callable[[], None], patience_s: float) -> bool:
        """Run the sync at once, unless the disk hangs or takes longer than `patience_s`."""
        if self._process.machine_hangs() or self._process.disk.sync_s > patience_s:
            self._nursery.start_soon(self._run, sync, late)
            return False
        sync()
        return True

    def start(self, sync: Callable[[], None]) -> None:
        self._nursery.start_soon(self._run, sync, None)

    def shutdown(self) -> None: ...

    async def _run(self, sync: Callable[[], None], told: Callable[[], None] | None) -> None:
        process = self._process
        with trio.CancelScope(shield=True):  # like a thread, it ends by itself
            try:
                await process.life.wait(process.disk.sync_s)
                while process.machine_hangs():
                    await process.life.wait(HANG_STEP_S)
            except ProcessEnded:
                pass  # the sync fails, so that no code of the process waits for it
            sync()
            if told is not None:
                told()
            for _ in range(ROUNDS_TO_REPORT):
                await trio.lowlevel.checkpoint()


# How often a hanging sync checks whether the disk works again.
HANG_STEP_S = 0.05


class Process:
    """One life of a process; `platform` is for `open_host`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        disk: VirtualDisk,
        style: DiskStyle,
        new_network: Callable[[Callable[[], bool]], MachineNetwork],
        machine_hangs: Callable[[], bool],
        chance: Chance,
    ) -> None:
        self.life = Life()
        self.disk = ProcessDisk(disk, self.life, style, chance)
        self.machine_hangs = machine_hangs
        self.network = new_network(lambda: self.life.is_alive)
        self.platform = Platform(
            watches_loop=False,
            disk=self.disk,
            network=self.network,
            run_blocking=self.run_blocking,
            sync_threads=lambda: VirtualThreads(nursery, self),
            chance=Chance(chance.getrandbits(62), "elections").random,
            wall_clock_ms=_wall_clock_ms,
            disk_space=_space,
            state_folder=lambda: STATE_FOLDER,
        )

    async def run_blocking(
        self, work: Callable[[Unpack[Arguments]], Result], /, *arguments: *Arguments
    ) -> Result:
        """Do the work at once, after the time that it takes."""
        with trio.CancelScope(shield=True):
            await self.life.wait(self.disk.work_s)
            while self.machine_hangs():
                await self.life.wait(HANG_STEP_S)
        return work(*arguments)


def _wall_clock_ms() -> int:
    """Return the run's time, equal on all machines, so log contents depend on the seed alone."""
    return int(trio.current_time() * 1000)


def _space(folder: Path) -> DiskSpace:
    return _SPACE
