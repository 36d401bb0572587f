"""A file system for each member, for runs that fill disks or cut the power."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dledger.declared_error import DeclaredError

# Room for the logs of some minutes, and quickly filled.
DISK_MIB = 48
# A file system that loses its power needs a journal of its own.
POWERED_DISK_MIB = 128
# ext4's own way to stop at once: nothing in memory gets to the disk, the journal included. It is
# that of XFS: _IOR('X', 125, __u32), and the flag EXT4_GOING_FLAGS_NOLOGFLUSH.
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
# How long killed processes may take to close their files.
BUSY_TIMEOUT_S = 10.0
BUSY_LOOK_S = 0.01
# Beside the disks of a run: the number of its watcher's process.
OWNER = ".run"
MOUNTS = Path("/proc/self/mounts")


class DiskStuck(DeclaredError):
    """A disk cannot be unmounted or mounted again. Its text says why."""

    problem: str


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small tmpfs on a folder during a block; yield whether that worked.

    Its content stays in the folder at the end. It needs root.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m", "jepsen-like", str(folder)]
    if os.geteuid() != 0 or not _done(["mount", *options]):
        yield False
        return
    try:
        yield True
    finally:
        take_down(folder)


@contextmanager
def powered_disk(folder: Path) -> Iterator[bool]:
    """Mount an ext4 of its own on a folder during a block; yield whether that worked.

    It is in a sparse file beside the folder until the end; then its content goes into the folder.
    It needs root, loop devices and mkfs.ext4.
    """
    folder.mkdir(parents=True, exist_ok=True)
    image = image_of(folder)
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        yield False
        return
    with image.open("wb") as file:
        file.truncate(POWERED_DISK_MIB * 1024 * 1024)
    made = _done(["mkfs.ext4", "-q", "-m", "0", str(image)])
    if not made or not _mounted(folder):
        image.unlink()
        yield False
        return
    (folder / "lost+found").rmdir()
    try:
        yield True
    finally:
        take_down(folder)


def take_down(folder: Path) -> None:
    """Unmount the disk of a folder, if it is one; its content goes into the folder.

    The content of an ext4 stays in its image if it cannot be mounted once more.
    """
    image = image_of(folder)
    is_mounted = os.path.ismount(folder)
    if not image.exists():
        if is_mounted:
            _keep(folder)
        return
    # It may have been shut down, or have no power at the moment.
    if (not is_mounted or _unmounted(folder)) and _mounted(folder):
        _keep(folder)
        image.unlink()
    else:
        _done(["umount", "--lazy", str(folder)])


def claim_disks(folder: Path) -> None:
    """Note that this process takes down the disks that will be in a folder."""
    (folder / OWNER).write_text(str(os.getpid()))


def take_down_orphans() -> None:
    """Unmount the disks of runs that are gone, and whose watchers were killed, too."""
    if not MOUNTS.exists():
        return
    for line in MOUNTS.read_text().splitlines():
        disk = Path(line.split()[1].replace("\\040", " "))
        owner = disk.parent / OWNER
        if owner.exists() and not os.path.exists(f"/proc/{owner.read_text()}"):
            _take_down_alone(disk, owner)


def _take_down_alone(disk: Path, owner: Path) -> None:
    """Unmount a disk unless another run does so at the same time."""
    with owner.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        take_down(disk)


def image_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.img")


def has_power(folder: Path) -> bool:
    """Return whether a folder is a disk whose power can be cut."""
    return image_of(folder).exists() and os.path.ismount(folder)


def cut_power(folder: Path) -> None:
    """Lose all unsynced data, as a power cut does, and mount the disk again.

    No process may have open files in it. Raises DiskStuck.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
    except OSError as error:
        raise DiskStuck(f"{folder} cannot be shut down: {error}") from error
    finally:
        os.close(descriptor)
    if not _unmounted(folder):
        raise DiskStuck(f"{folder}: {os.strerror(errno.EBUSY)}, after {BUSY_TIMEOUT_S:g} s")
    if not _mounted(folder):
        raise DiskStuck(f"{image_of(folder)} cannot be mounted again")


def _unmounted(folder: Path) -> bool:
    """Unmount a folder, whose processes may still be closing their files."""
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    while not _done(["umount", str(folder)]):
        if time.monotonic() > give_up:
            return False
        time.sleep(BUSY_LOOK_S)
    return True


def _mounted(folder: Path) -> bool:
    return _done(["mount", "-o", "loop", str(image_of(folder)), str(folder)])


def _keep(folder: Path) -> None:
    """Unmount a folder, and keep its content."""
    kept = folder.with_name(f"{folder.name}.kept")
    shutil.rmtree(kept, ignore_errors=True)  # of a run that was killed here
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("filler"))
    if not _done(["umount", str(folder)]):
        _done(["umount", "--lazy", str(folder)])
    shutil.rmtree(folder)
    kept.rename(folder)


def _done(command: list[str]) -> bool:
    ended = subprocess.run(command, capture_output=True, check=False)
    return ended.returncode == 0
