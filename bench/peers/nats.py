"""Three NATS servers with one stream in three copies, and clients of them, all built here."""

from __future__ import annotations

import json
from functools import partial

from bench.place import Place
from bench.plan import Contender
from bench.system import Command, Served, System
from bench.toolchain import Toolchain, go_version

SERVER = "github.com/nats-io/nats-server/v2"


def served(toolchain: Toolchain, syncs: bool) -> Served:
    """Raises Unavailable."""
    program = str(toolchain.go_program("nats-server", SERVER))
    clients = toolchain.go_program("nats", "./nats")
    version = f"NATS {go_version(SERVER)}"
    return Served(version, partial(server, program, syncs=syncs), str(clients))


def settings(place: Place, node_id: str, syncs: bool) -> str:
    """NATS's default is to sync every two minutes."""
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
    """Write the settings file of a member, and return its command."""
    path = place.folder / f"{node_id}.conf"
    path.write_text(settings(place, node_id, syncs))
    return [program, "--config", str(path)]


NATS = System(
    Contender("nats", "NATS R3, sync always", round_trips=2),
    lambda tools: served(tools, syncs=True).prepared(),
)
NATS_DEFAULT = System(
    Contender("nats-default", "NATS R3, default", syncs=False, round_trips=2),
    lambda tools: served(tools, syncs=False).prepared(),
)
