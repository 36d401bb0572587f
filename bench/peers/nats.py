"""Three NATS servers with one stream in three copies, and clients of them, all built here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from bench.place import Place
from bench.plan import Contender
from bench.system import Command, Prepared, System
from bench.toolchain import Toolchain, go_version
from bench.workload import Workload

SERVER = "github.com/nats-io/nats-server/v2"


class Programs(NamedTuple):
    """The server, and the clients that were built for it."""

    server: str
    clients: str


def programs(toolchain: Toolchain) -> Programs:
    """Build them. Raises Unavailable."""
    server = toolchain.go_program("nats-server", SERVER)
    return Programs(str(server), str(toolchain.go_program("nats", "./nats")))


def settings(place: Place, node_id: str, syncs: bool) -> str:
    """The settings file of one server. Its default is to sync every two minutes."""
    routes = ", ".join(f"nats://{address}" for address in place.inner.values())
    folder = json.dumps(str(place.folder / node_id))
    lines = [
        f"server_name: {node_id}",
        f"listen: {json.dumps(place.peers[node_id])}",
        "jetstream {",
        f"  store_dir: {folder}",
        *(["  sync_interval: always"] if syncs else []),
        "}",
        "cluster {",
        "  name: bench",
        f"  listen: {json.dumps(place.inner[node_id])}",
        f"  routes: [{routes}]",
        "}",
    ]
    return "\n".join(lines) + "\n"


def server(program: str, place: Place, node_id: str, syncs: bool) -> Command:
    """One member; writes its settings file."""
    path = place.folder / f"{node_id}.conf"
    path.write_text(settings(place, node_id, syncs))
    return [program, "--config", str(path)]


def clients(program: str, role: str, place: Place, workload: Workload) -> Command:
    """The clients: `load` for throughput, or `failover`."""
    return [program, role, json.dumps(place.peers), str(place.folder), workload.to_json()]


def version() -> str:
    """The version of the server."""
    return f"NATS {go_version(SERVER)}"


def _prepare(syncs: bool) -> Callable[[Toolchain], Prepared]:
    def prepare(toolchain: Toolchain) -> Prepared:
        found = programs(toolchain)

        def commands(place: Place, workload: Workload) -> list[Command]:
            servers = [server(found.server, place, each, syncs) for each in place.peers]
            return [*servers, clients(found.clients, "load", place, workload)]

        return Prepared(version(), commands)

    return prepare


NATS = System(Contender("nats", "NATS R3, sync always", round_trips=2), _prepare(True))
NATS_DEFAULT = System(
    Contender("nats-default", "NATS R3, default", syncs=False, round_trips=2), _prepare(False)
)
