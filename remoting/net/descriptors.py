"""How many connections a process may have, by its limit of open files."""

import logging
import resource
from typing import Final

from remoting.net.errors import TooFewDescriptors

_log = logging.getLogger(__name__)

# Fewer connections are no server: a cluster has name servers, brokers, tools and a few clients.
FEWEST_CONNECTIONS: Final = 16


def connections_allowed(wanted: int, spare_descriptors: int) -> int:
    """The connections a server may take: `wanted`, or fewer when the process has no more files.

    Args:
        wanted: what the server is to take at most.
        spare_descriptors: what the process needs for all else.

    Raises:
        TooFewDescriptors: not even 16 connections would be left, or `wanted` when that is less.
    """
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    allowed = min(wanted, descriptors - spare_descriptors)
    if allowed < min(wanted, FEWEST_CONNECTIONS):
        raise TooFewDescriptors(descriptors, spare_descriptors, FEWEST_CONNECTIONS)
    if allowed < wanted:
        _log.warning(
            "at most %d connections are taken instead of %d: the process may open %d files and "
            "keeps %d for itself; raise the limit with ulimit -n",
            allowed,
            wanted,
            descriptors,
            spare_descriptors,
        )
    return allowed
