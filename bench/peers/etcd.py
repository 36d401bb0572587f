"""Three etcd servers, and clients of them: etcd is the machine's own, the clients are built."""

from __future__ import annotations

from functools import partial

from bench.place import Place
from bench.plan import Contender
from bench.system import Command, Served, System
from bench.toolchain import Toolchain, run

ADVICE = "install Debian's etcd-server, or put etcd on PATH"
# The longest run with the largest bodies stays below it; the default of 2 GB might not.
_QUOTA_BYTES = 8 * 1024 * 1024 * 1024


def served(toolchain: Toolchain) -> Served:
    """Raises Unavailable."""
    program = toolchain.find("etcd", ADVICE)
    clients = toolchain.go_program("etcd", "./etcd")
    version = run([program, "--version"]).splitlines()[0].replace("etcd Version:", "etcd")
    return Served(version, partial(server, program), str(clients))


def server(program: str, place: Place, node_id: str) -> Command:
    client, peer = f"http://{place.peers[node_id]}", f"http://{place.inner[node_id]}"
    cluster = ",".join(f"{each}=http://{address}" for each, address in place.inner.items())
    return [
        *(program, "--name", node_id, "--data-dir", str(place.folder / node_id)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
        *("--quota-backend-bytes", str(_QUOTA_BYTES)),
    ]


ETCD = System(Contender("etcd", "etcd", round_trips=2), lambda tools: served(tools).prepared())
