"""Drive all clients of gRPC plain, by TLS, and signed by TLS: `make client-matrix`.

Each way has a group of brokers and proxies of its own, and all features run in each. The last lines
are a table of them, by client: one mark for each way. An argument that is a way, "plain", "tls" or
"signed", selects it; each other one must be in the name of a scenario that runs.
"""

import sys
import time
from pathlib import Path
from typing import NamedTuple

from remoting.net.access_file import read_credentials
from tests.clients import grpc_signed
from tests.clients.grpc_failures import authority_of
from tests.clients.grpc_scenarios import ALONE, FEATURES, WAITING, Feature, can, featured
from tests.clients.grpc_stage import NO_TLS
from tests.clients.grpc_toolchains import GRPC_CLIENTS, GRPC_INSTALLERS, GRPC_TITLES
from tests.clients.local_cluster import UP, LocalCluster
from tests.clients.local_proxy import Reach
from tests.clients.run import BUILD, Reaching, plainly, run_all
from tests.clients.scenarios import USER, Scenario
from tests.clients.toolchains import GrpcClient, install

OK, BAD, NONE = "+", "FAILED", "-"

# Topics and groups of scenarios begin so; the user of the clients has rules for these alone.
PREFIX = "scenario"

# Every other feature of these ways does it.
OF_PLAIN = frozenset({"speaks TLS"})

OF_SIGNED: dict[str, Feature] = {
    "is refused a wrong secret": grpc_signed.is_refused_a_wrong_secret,
    "is refused a topic without a rule": grpc_signed.is_refused_a_topic_without_a_rule,
}

ALL: dict[str, Feature] = {**WAITING, **FEATURES, **OF_SIGNED, **ALONE}


class Way(NamedTuple):
    """How all clients reach proxies.

    Attributes:
        up: the command that starts the group.
        reaching: says how, once there is a group.
    """

    up: str
    reaching: Reaching


def by_tls(cluster: LocalCluster, folder: Path) -> Reach:
    """By TLS, with a proxy that shows a certificate of an authority."""
    certificates = folder / "certificates"
    cluster.command("certificates", str(certificates))
    return Reach(
        title="TLS",
        # The client that has no TLS comes without.
        options=(
            *("--tls-cert", str(certificates / "n0.pem")),
            *("--tls-key", str(certificates / "n0-key.pem"), "--tls-mode", "permissive"),
        ),
        tls=True,
        authority=authority_of(certificates),
    )


def signed(cluster: LocalCluster, folder: Path) -> Reach:
    """By TLS, as a user with the least rights; the proxy speaks for it as a super user."""
    proxy, user = folder / "proxy.toml", folder / "user.toml"
    cluster.command("user", "create", "proxy", str(proxy), "--super")
    cluster.command("user", "create", USER, str(user))
    cluster.command("user", "allow", USER, f"Topic:{PREFIX}*", "Pub,Sub")
    cluster.command("user", "allow", USER, f"Group:{PREFIX}*", "Sub")
    tls = by_tls(cluster, folder)
    return Reach(
        title="signed",
        options=(*tls.options, "--credentials", str(proxy)),
        tls=True,
        authority=tls.authority,
        user=read_credentials(user),
    )


WAYS: dict[str, Way] = {
    "plain": Way(UP, plainly),
    "tls": Way(UP, by_tls),
    "signed": Way(f"{UP} --access-control", signed),
}


def has(client: GrpcClient, what: str, way: str) -> bool:
    """Whether a client has a feature in one way."""
    if way == "tls" and client in NO_TLS:
        return False
    if what in OF_SIGNED:
        return way == "signed"
    return can(client, what) and (way == "plain" or what not in OF_PLAIN)


def scenario_of(client: GrpcClient, what: str) -> Scenario:
    """A feature of a client."""
    return featured(client, what, ALL[what], alone=what in ALONE, waits=what in WAITING)


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    ways = [way for way in WAYS if way in arguments] or list(WAYS)
    words = [word for word in arguments if word not in WAYS]
    asked = {
        (client, what)
        for client in GRPC_CLIENTS
        for what in ALL
        if all(word in f"{GRPC_TITLES[client]} {what}" for word in words)
    }
    needed = {client for client, _what in asked}
    toolchains, missing = install(
        BUILD, {client: one for client, one in GRPC_INSTALLERS.items() if client in needed}
    )
    marks: dict[tuple[GrpcClient, str], list[str]] = {}
    for way in ways:
        cells = [cell for cell in sorted(asked) if cell[0] in toolchains and has(*cell, way)]
        # The slow ones begin first.
        cells.sort(key=lambda cell: list(ALL).index(cell[1]))
        print(f"{way}:", flush=True)
        chosen = [scenario_of(*cell) for cell in cells]
        made = WAYS[way]
        results = run_all(chosen, toolchains, made.up, made.reaching) if chosen else {}
        for cell in asked:
            marks.setdefault(cell, []).append(NONE)
        for cell, scenario in zip(cells, chosen, strict=True):
            marks[cell][-1] = OK if results[scenario.name].is_ok else BAD
    show(marks, ways)
    for client, why in missing.items():
        print(f"not run: {GRPC_TITLES[client]}, which is not here: {why}")
    every = [mark for cell in marks.values() for mark in cell]
    print(
        f"{every.count(OK)} ok, {every.count(BAD)} failed, in {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 1 if BAD in every or OK not in every else 0


def show(marks: dict[tuple[GrpcClient, str], list[str]], ways: list[str]) -> None:
    """Print the table, as a page has it."""
    clients = [client for client in GRPC_CLIENTS if any(of == client for of, _what in marks)]
    titles = [GRPC_TITLES[client].removeprefix("gRPC ") for client in clients]
    print(f"| {', '.join(ways)} | {' | '.join(titles)} |")
    print(f"|---|{'---|' * len(clients)}")
    for what in ALL:
        cells = [" ".join(marks.get((client, what), [NONE])) for client in clients]
        if any(OK in cell or BAD in cell for cell in cells):
            print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
