"""The systems of the failover benchmark: how members and clients are started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import dledger
from bench.peers import etcd, nats
from bench.place import Place
from bench.system import SESSIONS, Command, Served, client_words, member_words, python_module
from bench.toolchain import Toolchain
from bench.workload import Workload

ROLE = "failover"
# Until a restarted member has caught up, and a leader that was continued has stepped down.
SETTLED_S = 5.0
# Java DLedger took 7 to 11 s from the restart of a member until it had caught up.
JAVA_SETTLED_S = 15.0


class Watching(NamedTuple):
    """`in_files`: acknowledged entries are looked for in the members' own files."""

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
    member, clients = python_module("serving_member"), python_module("session_clients")
    return Watching(
        f"dledger {dledger.__version__}",
        lambda place, node_id: [*member, SESSIONS, *member_words(place, node_id)],
        lambda place, workload: [*clients, *client_words(ROLE, place, workload)],
        in_files=True,
    )


def _served(found: Served) -> Watching:
    return Watching(found.version, found.server, partial(found.task, ROLE))


def _java(toolchain: Toolchain) -> Watching:
    java = toolchain.java_command()
    return Watching(
        "Java DLedger 0.4.0",
        lambda place, node_id: [*java, "Member", *member_words(place, node_id)],
        lambda place, workload: [*java, "Clients", *client_words(ROLE, place, workload)],
        in_files=True,
        settled_s=JAVA_SETTLED_S,
    )


_RETRIES = "tries again 5 ms after 0.3 s without an answer, or after an error"
WATCHED = (
    Watched("dledger", "dledger", "sessions of GroupClient, as they are", _dledger),
    Watched(
        *("etcd", "etcd", f"etcd's own, which {_RETRIES}"),
        lambda toolchain: _served(etcd.served(toolchain)),
    ),
    Watched(
        *("nats", "NATS R3, sync always", f"NATS's own, which {_RETRIES}"),
        lambda toolchain: _served(nats.served(toolchain, syncs=True)),
    ),
    Watched("java", "Java DLedger", "DLedgerClient, as it is", _java),
)
