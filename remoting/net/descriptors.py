"""Derives the number of connections of a process from its limit of open files."""

import logging
import resource
from typing import Final

from remoting.net.errors import TooFewDescriptors
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# A server needs this many connections: a cluster has name servers, brokers, tools and some clients.
FEWEST_CONNECTIONS: Final = 16

# The default limit. An idle connection takes about 10 KiB of memory.
DEFAULT_CONNECTIONS: Final = 65_536

# Fewer connections than this are logged, even if no number was requested.
_USUAL_CONNECTIONS: Final = 4096

# The soft limit to set if the system has no hard limit.
_MANY_DESCRIPTORS: Final = 1 << 20


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of open files to the hard one.

    For server programs, before they open anything.
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
    """Return the connections that a server may take: `wanted`, or fewer if the process lacks files.

    Args:
        wanted: the limit to set; None for as many as there are files for.
        spare_descriptors: the files that the process needs for everything else.

    Raises:
        TooFewDescriptors: not even 16 connections would be left, or `wanted` if that is less.
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
