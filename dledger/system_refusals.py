"""What the operating system refuses a process, what that means, and what an operator does about it.

This is the project's one table of such errors: stores, servers, clients and commands take their
error texts from it, and decide by it, for example to release a reserve or to wait for descriptors.
Pure.

Sources: errno(3), the errors of pwrite(2), open(2), fsync(2), accept(2), connect(2), clone(2).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The resource that is refused."""

    ROOM = "room on a disk"
    BROKEN_DISK = "a disk that works"
    WRITABLE_DISK = "a disk that may be written to"
    RIGHTS = "rights to a file"
    DESCRIPTORS = "file descriptors"
    MEMORY = "memory"
    THREADS = "threads"
    LOCAL_PORTS = "free ports of this machine"
    NETWORK = "a way through the network"
    LISTENER = "a program that listens"


class Refusal(NamedTuple):
    """One row.

    Attributes:
        kind: the resource that is refused.
        meaning: what happened, without a full stop.
        cure: what an operator does, in the imperative.
    """

    kind: Kind
    meaning: str
    cure: str


_FREE = "free some of the disk, or enlarge it"
_REPLACE = "look for its errors in the log of the kernel, repair or replace it, then start again"

_THREADS = Refusal(
    Kind.THREADS,
    "the system starts no more threads for this user or control group",
    "raise `ulimit -u`, pids.max (systemd: TasksMax) or `ulimit -v`, then start again",
)
_MEMORY = Refusal(
    Kind.MEMORY,
    "the system gives this process no more memory",
    "raise `ulimit -v` or the memory limit of its control group, or free memory, then start again",
)

REFUSALS: dict[int, Refusal] = {
    errno.ENOSPC: Refusal(Kind.ROOM, "no space or no inode is left on the disk", _FREE),
    errno.EDQUOT: Refusal(
        Kind.ROOM, "the quota on the disk is used up", "free some of it, or raise the quota"
    ),
    errno.EFBIG: Refusal(
        Kind.RIGHTS, "the file may not grow so large", "raise `ulimit -f`, then start again"
    ),
    errno.EIO: Refusal(Kind.BROKEN_DISK, "the disk fails", _REPLACE),
    errno.ENXIO: Refusal(Kind.BROKEN_DISK, "the disk is gone", _REPLACE),
    errno.ENODEV: Refusal(Kind.BROKEN_DISK, "the disk is gone", _REPLACE),
    errno.ESTALE: Refusal(
        Kind.BROKEN_DISK, "the network disk has lost the file", "mount it again, then start again"
    ),
    errno.EROFS: Refusal(
        Kind.WRITABLE_DISK,
        "the disk is read-only",
        "look in the log of the kernel for why, mount it for writing, then start again",
    ),
    errno.EACCES: Refusal(
        Kind.RIGHTS, "this user may not", "give the user of this process the rights to it"
    ),
    errno.EPERM: Refusal(
        Kind.RIGHTS, "this user may not", "give the user of this process the rights to it"
    ),
    errno.EMFILE: Refusal(
        Kind.DESCRIPTORS,
        "this process may open no more files and connections",
        "raise `ulimit -n` (systemd: LimitNOFILE), then start again",
    ),
    errno.ENFILE: Refusal(
        Kind.DESCRIPTORS,
        "the whole system may open no more files and connections",
        "raise fs.file-max by sysctl, or end what holds them",
    ),
    errno.ENOBUFS: Refusal(
        Kind.MEMORY, "the system has no memory for the connection", _MEMORY.cure
    ),
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: _THREADS,  # from fork and clone alone: elsewhere the event loop handles it
    errno.EADDRNOTAVAIL: Refusal(
        Kind.LOCAL_PORTS,
        "this machine has no free port or no such address to call from",
        "end what holds its ports, or widen net.ipv4.ip_local_port_range",
    ),
    errno.ENETUNREACH: Refusal(
        Kind.NETWORK, "the network is unreachable", "check the network of this machine"
    ),
    errno.ENETDOWN: Refusal(
        Kind.NETWORK, "the network is down", "check the network of this machine"
    ),
    errno.EHOSTUNREACH: Refusal(
        Kind.NETWORK, "no route leads to that machine", "check its address, and the routes to it"
    ),
    errno.ETIMEDOUT: Refusal(
        Kind.NETWORK,
        "that machine does not answer",
        "check that it runs, and that no firewall drops the packets",
    ),
    errno.ECONNREFUSED: Refusal(
        Kind.LISTENER, "nothing listens there", "check the address, and that the server runs"
    ),
}

# The primary result codes of SQLite that hide an errno of the system (sqlite.org/rescode.html).
_SQLITE: dict[int, int] = {
    7: errno.ENOMEM,  # SQLITE_NOMEM
    8: errno.EROFS,  # SQLITE_READONLY
    10: errno.EIO,  # SQLITE_IOERR
    13: errno.ENOSPC,  # SQLITE_FULL
}

# Python's RuntimeError when the system starts no thread: it has no class of its own for it.
_NO_THREAD = "can't start new thread"


def refusal_of(error: BaseException) -> Refusal | None:
    """Return the row that an error of the system means, or None.

    Looks at the error, and at the first match inside of a group.
    """
    for each in single(error):
        if isinstance(each, MemoryError):
            return _MEMORY
        if isinstance(each, RuntimeError) and _NO_THREAD in str(each):
            return _THREADS
        # Errors of TLS are OSErrors with numbers of their own.
        numbered = isinstance(each, OSError) and type(each).__module__ != "ssl"
        if numbered and (found := REFUSALS.get(getattr(each, "errno", None) or 0)) is not None:
            return found
    return None


def of_sqlite(code: int | None, words: str) -> OSError:
    """Return the error of the system behind one of SQLite, by its code; without errno if
    unknown.
    """
    number = _SQLITE.get((code or 0) & 0xFF)
    return OSError(words) if number is None else OSError(number, words)


def is_of(kind: Kind, error: BaseException) -> bool:
    found = refusal_of(error)
    return found is not None and found.kind is kind


def told(error: BaseException) -> str:
    """Return what the system refused and what to do, or the error's own text if unknown."""
    found = refusal_of(error)
    return meaning(error) if found is None else f"{found.meaning}: {found.cure}"


def meaning(error: BaseException) -> str:
    """Return what the system refused, or the error's own text if unknown."""
    if (found := refusal_of(error)) is not None:
        return found.meaning
    each = next(single(error), error)
    if isinstance(each, OSError) and each.strerror:
        return each.strerror
    return str(each) or type(each).__name__


def line_about(error: BaseException, ours: tuple[type[BaseException], ...]) -> str | None:
    """Return the line that a program ends with, or None if only a traceback explains the error.

    The line is about the first error in a chain that is one of `ours` or a refusal of the system:
    an error that was raised while another one propagated came later, and hides it.
    """
    errors = list(single(error))
    for each in errors:
        if (first := _first_telling(each, ours)) is not None:
            if isinstance(first, ours):
                return str(first)
            where = first.filename if isinstance(first, OSError) else None
            return f"{where}: {told(first)}" if isinstance(where, str) else told(first)
    return None


def _first_telling(
    error: BaseException, ours: tuple[type[BaseException], ...]
) -> BaseException | None:
    found: BaseException | None = None
    each: BaseException | None = error
    while each is not None:
        telling = isinstance(each, ours) or refusal_of(each) is not None
        if telling or (isinstance(each, OSError) and each.filename is not None):
            found = each
        # An error explains its explicit cause, but not the error that it interrupted.
        made_from = each.__cause__ is not None or each.__suppress_context__
        each = None if made_from else each.__context__
    return found


def single(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside nested groups, or the single error.

    For a connection that was tried at several addresses it yields the error of each: trio raises
    one without errno, with a group of them as its cause.
    """
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from single(inner)
    elif isinstance(error, OSError) and isinstance(error.__cause__, BaseExceptionGroup):
        yield from single(error.__cause__)
    else:
        yield error
