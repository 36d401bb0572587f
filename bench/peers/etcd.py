"""Three etcd servers, and clients of them: etcd is the machine's own, the clients are built."""

from __future__ import annotations

import json
from typing import NamedTuple

from bench.place import Place
from bench.plan import Contender
from bench.system import Command, Prepared, System
from bench.toolchain import Toolchain, run
from bench.workload import Workload

ADVICE = "install Debian's etcd-server, or put etcd on PATH"
# The longest run with the largest bodies stays below it; the default of 2 GB might not.
_QUOTA_BYTES = 8 * 1024 * 1024 * 1024


class Programs(NamedTuple):
    """The server, and the clients that were built for it."""

    server: str
    clients: str


def programs(toolchain: Toolchain) -> Programs:
    """Find and build them. Raises Unavailable."""
    server = toolchain.find("etcd", ADVICE)
    return Programs(server, str(toolchain.go_program("etcd", "./etcd")))


def server(program: str, place: Place, node_id: str) -> Command:
    """One member."""
    client, peer = f"http://{place.peers[node_id]}", f"http://{place.inner[node_id]}"
    cluster = ",".join(f"{each}=http://{address}" for each, address in place.inner.items())
    return [
        *(program, "--name", node_id, "--data-dir", str(place.folder / node_id)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
        *("--quota-backend-bytes", str(_QUOTA_BYTES)),
    ]


def clients(program: str, role: str, place: Place, workload: Workload) -> Command:
    """The clients: `load` for throughput, or `failover`."""
    return [program, role, json.dumps(place.peers), str(place.folder), workload.to_json()]


def version(program: str) -> str:
    """The version that the server reports."""
    return run([program, "--version"]).splitlines()[0].replace("etcd Version:", "etcd")


def _prepare(toolchain: Toolchain) -> Prepared:
    found = programs(toolchain)

    def commands(place: Place, workload: Workload) -> list[Command]:
        servers = [server(found.server, place, each) for each in place.peers]
        return [*servers, clients(found.clients, "load", place, workload)]

    return Prepared(version(found.server), commands)


ETCD = System(Contender("etcd", "etcd", round_trips=2), _prepare)
