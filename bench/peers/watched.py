"""The systems of the failover benchmark: how members and clients are started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import dledger
from bench.peers import etcd, nats
from bench.place import Place
from bench.system import Command
from bench.toolchain import Toolchain
from bench.workload import Workload

ROLE = "failover"
# Until a restarted member has caught up, and a leader that was continued has stepped down.
SETTLED_S = 5.0
# Java DLedger took 7 to 11 s from the restart of a member until it had caught up.
JAVA_SETTLED_S = 15.0


class Watching(NamedTuple):
    """All programs are there. `in_files`: its log is read back from the members' own files."""

    version: str
    member: Callable[[Place, str], Command]
    clients: Callable[[Place, Workload], Command]
    in_files: bool = False
    settled_s: float = SETTLED_S


class Watched(NamedTuple):
    """A system and its clients. `prepare` raises Unavailable."""

    key: str
    name: str
    clients: str
    prepare: Callable[[Toolchain], Watching]


def _dledger(_: Toolchain) -> Watching:
    def member(place: Place, node_id: str) -> Command:
        module = [sys.executable, "-m", "bench.session_member"]
        return [*module, node_id, json.dumps(place.peers), str(place.folder / node_id)]

    def clients(place: Place, workload: Workload) -> Command:
        module = [sys.executable, "-m", "bench.session_clients", ROLE]
        return [*module, json.dumps(place.peers), str(place.folder), workload.to_json()]

    return Watching(f"dledger {dledger.__version__}", member, clients, in_files=True)


def _etcd(toolchain: Toolchain) -> Watching:
    found = etcd.programs(toolchain)
    return Watching(
        etcd.version(found.server),
        lambda place, node_id: etcd.server(found.server, place, node_id),
        lambda place, workload: etcd.clients(found.clients, ROLE, place, workload),
    )


def _nats(toolchain: Toolchain) -> Watching:
    found = nats.programs(toolchain)
    return Watching(
        nats.version(),
        lambda place, node_id: nats.server(found.server, place, node_id, syncs=True),
        lambda place, workload: nats.clients(found.clients, ROLE, place, workload),
    )


def _java(toolchain: Toolchain) -> Watching:
    java = toolchain.java_command()

    def member(place: Place, node_id: str) -> Command:
        return [*java, "Member", node_id, json.dumps(place.peers), str(place.folder / node_id)]

    def clients(place: Place, workload: Workload) -> Command:
        task = [ROLE, json.dumps(place.peers), str(place.folder), workload.to_json()]
        return [*java, "Clients", *task]

    return Watching("Java DLedger 0.4.0", member, clients, True, JAVA_SETTLED_S)


_RETRIES = "tries again 5 ms after 0.3 s without an answer, or after an error"
WATCHED = (
    Watched("dledger", "dledger", "sessions of GroupClient, as they are", _dledger),
    Watched("etcd", "etcd", f"etcd's own, which {_RETRIES}", _etcd),
    Watched("nats", "NATS R3, sync always", f"NATS's own, which {_RETRIES}", _nats),
    Watched("java", "Java DLedger", "DLedgerClient, as it is", _java),
)
