"""A system that can be measured: how its programs are found and started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

from bench.place import Place
from bench.plan import Contender
from bench.toolchain import Toolchain
from bench.workload import Workload

Command = list[str]
# The machines that members have which only serve.
SESSIONS, TOTAL = "sessions", "total"


class Prepared(NamedTuple):
    """A system whose programs are there. `commands` start a run; one of them prints the result."""

    version: str
    commands: Callable[[Place, Workload], list[Command]]


class System(NamedTuple):
    """A contender, and how to get its programs. `prepare` raises Unavailable."""

    contender: Contender
    prepare: Callable[[Toolchain], Prepared]


class Served(NamedTuple):
    """Servers of others, and clients that were built for them, which take a task as ours do."""

    version: str
    server: Callable[[Place, str], Command]
    clients: str

    def task(self, role: str, place: Place, workload: Workload) -> Command:
        """The clients in a role: `load` for throughput, or `failover`."""
        return [self.clients, *client_words(role, place, workload)]

    def prepared(self) -> Prepared:
        """For a run: all servers, and the clients that load them."""

        def commands(place: Place, workload: Workload) -> list[Command]:
            servers = [self.server(place, each) for each in place.peers]
            return [*servers, self.task("load", place, workload)]

        return Prepared(self.version, commands)


def python_module(name: str) -> Command:
    """Runs a module of this package."""
    return [sys.executable, "-m", f"bench.{name}"]


def member_words(place: Place, node_id: str) -> Command:
    """What every program of a member is told: ID PEERS FOLDER."""
    return [node_id, json.dumps(place.peers), str(place.folder / node_id)]


def client_words(role: str, place: Place, workload: Workload) -> Command:
    """What every program of clients is told: ROLE PEERS FOLDER WORKLOAD."""
    return [role, json.dumps(place.peers), str(place.folder), workload.to_json()]
