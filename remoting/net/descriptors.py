"""How many connections a process may have, by its limit of open files."""

import logging
import resource
from typing import Final

from remoting.net.errors import TooFewDescriptors
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Fewer connections are no server: a cluster has name servers, brokers, tools and a few clients.
FEWEST_CONNECTIONS: Final = 16

# Where nobody says how many: each takes about 10 KiB of memory while it is idle.
DEFAULT_CONNECTIONS: Final = 65_536

# With fewer than this the log says so, although nobody asked for more.
_USUAL_CONNECTIONS: Final = 4096

# What is asked for where the system sets no limit.
_MANY_DESCRIPTORS: Final = 1 << 20


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system lets it: its soft limit becomes the hard
    one. For programs that are servers, before they open anything.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        _log.warning("the process may open %d files, and no more (%s)", soft, quoted(error))


def connections_allowed(wanted: int | None, spare_descriptors: int) -> int:
    """The connections a server may take: `wanted`, or fewer when the process has no more files.

    Args:
        wanted: what the server is to take at most; None: as many as there are files for.
        spare_descriptors: what the process needs for all else.

    Raises:
        TooFewDescriptors: not even 16 connections would be left, or `wanted` when that is less.
    """
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = DEFAULT_CONNECTIONS if wanted is None else wanted
    if descriptors == resource.RLIM_INFINITY:
        return most
    allowed = min(most, descriptors - spare_descriptors)
    if allowed < min(most, FEWEST_CONNECTIONS):
        raise TooFewDescriptors(descriptors, spare_descriptors, FEWEST_CONNECTIONS)
    if allowed < (_USUAL_CONNECTIONS if wanted is None else wanted):
        _log.warning(
            "at most %d connections are taken%s: the process may open %d files and keeps %d for "
            "itself; raise the limit with ulimit -n",
            allowed,
            quoted("" if wanted is None else f" instead of {wanted}"),
            descriptors,
            spare_descriptors,
        )
    return allowed
