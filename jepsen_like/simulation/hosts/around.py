"""What all parts of one run share."""

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
    """One of each for a run.

    Attributes:
        plan: what the seed decided.
        internet: the network.
        journal: trace and counts.
        books: what is known of each group, by name.
        calls: that somebody waits for.
        broken: told of a promise that does not hold.
        nursery: of the run; nothing that a killed process owned may live in it.
        calm_since: when the network was last put right.
    """

    plan: HostsPlan
    internet: VirtualInternet
    journal: Journal
    books: dict[str, GroupBook]
    calls: OpenCalls
    broken: Broken
    nursery: trio.Nursery
    calm_since: Callable[[], float]
