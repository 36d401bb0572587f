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
    """A system with its programs. `commands` start a run; one of them prints the result."""

    version: str
    commands: Callable[[Place, Workload], list[Command]]


class System(NamedTuple):
    """A contender. `prepare` finds or builds its programs, or raises Unavailable."""

    contender: Contender
    prepare: Callable[[Toolchain], Prepared]


class Served(NamedTuple):
    """Servers of others, and clients that were built for them."""

    version: str
    server: Callable[[Place, str], Command]
    clients: str

    def task(self, role: str, place: Place, workload: Workload) -> Command:
        """Return the command of the clients in a role: `load`, or `failover`."""
        return [self.clients, *client_words(role, place, workload)]

    def prepared(self) -> Prepared:

        def commands(place: Place, workload: Workload) -> list[Command]:
            servers = [self.server(place, each) for each in place.peers]
            return [*servers, self.task("load", place, workload)]

        return Prepared(self.version, commands)


def python_module(name: str) -> Command:
    return [sys.executable, "-m", f"bench.{name}"]


def member_words(place: Place, node_id: str) -> Command:
    """Return the arguments of a member's program: ID PEERS FOLDER."""
    return [node_id, json.dumps(place.peers), str(place.folder / node_id)]


def client_words(role: str, place: Place, workload: Workload) -> Command:
    """Return the arguments of clients: ROLE PEERS FOLDER WORKLOAD."""
    return [role, json.dumps(place.peers), str(place.folder), workload.to_json()]
