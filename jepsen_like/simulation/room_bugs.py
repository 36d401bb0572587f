"""Bugs planted on purpose: what a member does when its disk is full."""

from __future__ import annotations

from dledger.store.disk_room import DiskRoom
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _full_disk_is_final() -> list[Replacement]:
    ran_out = DiskRoom._ran_out

    def once(self: DiskRoom, error: OSError, size: int) -> bool:
        ran_out(self, error, size)
        return False

    return [Replacement(DiskRoom, "_ran_out", once)]


def _room_is_never_found() -> list[Replacement]:
    def look(self: DiskRoom, now: float) -> bool:
        if self.why_short is None and self._free() < self._reserve.size_bytes:
            self._is_short(self._little())
        return False

    return [Replacement(DiskRoom, "look", look)]


def _entries_take_the_reserve() -> list[Replacement]:
    def takes(self: DiskRoom, size: int) -> bool:
        return True

    return [Replacement(DiskRoom, "takes", takes)]


ROOM_BUGS = (
    SeededBug(
        "full-disk-is-final",
        "a write that found no room is not tried again when the reserve was given up",
        _full_disk_is_final,
    ),
    SeededBug(
        "room-is-never-found",
        "a member whose disk was full refuses appends for ever",
        _room_is_never_found,
    ),
    SeededBug(
        "entries-take-the-reserve",
        "a member with a full disk takes entries from its leader until nothing is left for records",
        _entries_take_the_reserve,
    ),
)
