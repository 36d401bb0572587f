"""The objects that all parts of one run share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import trio

from jepsen_like.simulation.hosts.group_book import Broken, GroupBook
from jepsen_like.simulation.hosts.journal import Journal
from jepsen_like.simulation.hosts.open_calls import OpenCalls
from jepsen_like.simulation.hosts.plan import HostsPlan
from jepsen_like.simulation.hosts.virtual_internet import VirtualInternet


class Around(NamedTuple):
    """The shared objects of a run.

    Attributes:
        calls: the calls that have not ended.
        broken: called with a promise that does not hold.
        nursery: of the run; no task of a killed process may run in it.
        calm_since: returns when the network was last healed.
    """

    plan: HostsPlan
    internet: VirtualInternet
    journal: Journal
    books: dict[str, GroupBook]
    calls: OpenCalls
    broken: Broken
    nursery: trio.Nursery
    calm_since: Callable[[], float]
