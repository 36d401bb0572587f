"""Ends a file protocol inside each call of the disk, and looks at what a power cut leaves of it.

A protocol is a generator: at each `yield` it has promised that what a new process would see now is
durable. So the promise needs no words of its own: it is what is seen after a kill at that place.
What a new process has seen it relies on, so that must be durable as well: another cut follows it.

`SyncSite` is a place in the product that syncs. Without its sync some protocol must lose something.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk, VirtualFile
from tests.examples import examples

PROJECT = Path(__file__).parents[3]
PRODUCT = (str(PROJECT / "dledger"), str(PROJECT / "broker"))
# Functions of the product that sync what they are given: the place is where they are called.
PASSES_ON = frozenset({"sync", "sync_folder", "_sync", "_sync_names"})

ALL_IS_LOST = CrashStyle(keep=0.0, torn=0.0, names_in_order=False)
ALL_IS_KEPT = CrashStyle(keep=1.0, torn=0.0, names_in_order=False)
SOME_IS_LOST = CrashStyle(keep=0.5, torn=0.5, names_in_order=False)

Seen = tuple[Any, ...]


class SyncSite(NamedTuple):
    """A line of the product that makes a file or the names in a folder durable."""

    file: str
    line: int


class CutLost(AssertionError):
    """A power cut took something that was promised."""


class WatchedDisk:
    """A virtual disk that notes which places sync, and does not for one of them."""

    def __init__(self, disk: VirtualDisk, reached: set[SyncSite], skipped: SyncSite | None) -> None:
        self.virtual = disk
        self._reached = reached
        self._skipped = skipped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.virtual, name)

    def open(self, path: str, *, writable: bool = True) -> WatchedFile:
        return WatchedFile(self, self.virtual.open(path, writable=writable))

    def create(self, path: str) -> WatchedFile:
        return WatchedFile(self, self.virtual.create(path))

    def sync_folder(self, path: str) -> None:
        if self.syncs():
            self.virtual.sync_folder(path)

    def syncs(self) -> bool:
        """Note the place that calls; return whether its sync is done."""
        site = _calling_site()
        self._reached.add(site)
        return site != self._skipped


class WatchedFile:
    """A file of a `WatchedDisk`."""

    def __init__(self, disk: WatchedDisk, file: VirtualFile) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        if self._disk.syncs():
            self._file.sync()


def _calling_site() -> SyncSite:
    frame = sys._getframe(2)
    while _only_passes_on(frame.f_code):
        assert frame.f_back is not None, "a test syncs by itself"
        frame = frame.f_back
    return SyncSite(_in_project(frame.f_code.co_filename), frame.f_lineno)


@cache
def _only_passes_on(code: CodeType) -> bool:
    return not code.co_filename.startswith(PRODUCT) or code.co_name in PASSES_ON


@cache
def _in_project(path: str) -> str:
    return str(Path(path).relative_to(PROJECT))


class Ending(NamedTuple):
    """How a run ends inside a call: a kill, or a cut that keeps some of what is not synced."""

    style: CrashStyle | None
    seed: int = 0

    def happen(self, disk: VirtualDisk) -> None:
        disk.spare()
        if self.style is None:
            disk.end_process()
        else:
            disk.cut_power(self.style)


ALL_ENDINGS = (
    Ending(None),
    Ending(ALL_IS_LOST),
    Ending(ALL_IS_KEPT),
    *(Ending(SOME_IS_LOST, seed) for seed in range(2)),
)
ENDINGS = ALL_ENDINGS[: 3 + examples(2)]


def _nothing_more(disk: WatchedDisk) -> Seen:
    """Stands for: what was seen is what is promised."""
    return ()


def _is_between(seen: Any, last: Any, coming: Any) -> bool:
    return bool(seen in (last, coming))


@dataclass(frozen=True)
class Protocol:
    """One way in which the product writes files.

    Attributes:
        act: writes; each `yield` promises what is there.
        see: what a new process finds, as it starts; may change the disk.
        is_between: whether a cut between two promises may leave this.
        go_on: writes more, as the new process does next, and returns what it then promises; the
            same as `see` unless given. None where what was seen need not be durable.
        endings: after which of them it keeps its promises.
        swept_from: how many promises are made before the first call that it is ended in.
        may_fail: before the last promise; what is not finished may be refused.
    """

    act: Callable[[WatchedDisk], Iterator[None]]
    see: Callable[[WatchedDisk], Seen]
    is_between: Callable[[Any, Any, Any], bool] = _is_between
    go_on: Callable[[WatchedDisk], Seen] | None = _nothing_more
    endings: tuple[Ending, ...] = ENDINGS
    swept_from: int = 0
    may_fail: tuple[type[Exception], ...] = ()


class Sweep:
    """All runs of one protocol.

    Args:
        protocol: is ended everywhere.
        skipped: a place that does not sync in these runs.
    """

    def __init__(self, protocol: Protocol, skipped: SyncSite | None = None) -> None:
        self._protocol = protocol
        self._skipped = skipped
        self.reached: set[SyncSite] = set()

    def run(self) -> int:
        """End it inside each call; return how many there are. Raises CutLost."""
        try:
            promised = self.promised()
        except Exception as error:
            raise CutLost(f"without any cut: {error!r}") from error
        calls = 0
        for ending in self._protocol.endings:
            calls = 0
            while self._ends_inside(calls, ending, promised):
                calls += 1
        return calls

    def _disk(self, virtual: VirtualDisk) -> WatchedDisk:
        return WatchedDisk(virtual, self.reached, self._skipped)

    def promised(self) -> list[Seen]:
        """What a kill leaves at each promise."""
        promised: list[Seen] = []
        while True:
            virtual = VirtualDisk(Chance(0, "promises"))
            steps = self._protocol.act(self._disk(virtual))
            made = sum(1 for _ in islice(steps, len(promised) + 1))
            if made == len(promised):
                return promised
            virtual.end_process()
            promised.append(self._protocol.see(self._disk(virtual)))

    def _ends_inside(self, calls: int, ending: Ending, promised: list[Seen]) -> bool:
        """Run up to that call; return whether there is one."""
        virtual = VirtualDisk(Chance(ending.seed, f"cut in call {calls}"))
        steps = self._protocol.act(self._disk(virtual))
        made = sum(1 for _ in islice(steps, self._protocol.swept_from))
        virtual.steps_left = calls
        try:
            for _ in steps:
                made += 1
        except PowerCut:
            is_over = False
        else:
            is_over = True
        ending.happen(virtual)
        where = f"{ending} in call {calls}, after {made} promises"
        try:
            first = self._protocol.see(self._disk(virtual))
        except Exception as error:
            if made < len(promised) and isinstance(error, self._protocol.may_fail):
                return not is_over
            raise CutLost(f"{where}: {error!r}") from error
        if made:
            coming = promised[min(made, len(promised) - 1)]
            if not self._protocol.is_between(first, promised[made - 1], coming):
                raise CutLost(f"{where}: {first} is not between {promised[made - 1]} and {coming}")
        go_on = self._protocol.go_on
        if made and go_on is not None:
            try:
                if go_on is not _nothing_more:
                    first = go_on(self._disk(virtual))
                virtual.cut_power(ALL_IS_LOST)
                again = self._protocol.see(self._disk(virtual))
            except Exception as error:
                raise CutLost(f"{where}, and a cut after the start: {error!r}") from error
            if again != first:
                raise CutLost(f"{where}: {first} was seen, and is {again} after a further cut")
        return not is_over
