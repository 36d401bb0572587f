"""A group of brokers with a name server, producers and consumers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dledger_mq.clusters.certificate_folder import NAMESERVER, CertificateFolder
from jepsen_like.chaos.brokers.security_files import security_files
from jepsen_like.chaos.nemeses.catalogue import CLOCK_STEP_MS
from jepsen_like.chaos.plan import CPP_CLIENT, GRPC_CLIENT, RunPlan
from jepsen_like.chaos.stages.stage import Setting, command_with
from jepsen_like.chaos.wiring import (
    BALANCER_HOST,
    CLIENTS_HOST,
    NAMESERVER_HOST,
    PROXY_HOSTS,
    Wiring,
)

CONSUMERS, PRODUCERS = 2, 4
GUARDED, GRPC = "guarded", "grpc"
# The explanations of workloads with brokers for `jepsen-like list`.
EXPLANATIONS = {
    "messages": "Brokers: each message that was acknowledged is consumed, by a group of consumers.",
    "guarded": "Brokers with TLS and users: nothing is lost, and nothing denied is stored.",
    "broadcast": "Brokers: each message that was acknowledged is consumed by every consumer.",
    "offset": "Brokers: committed offsets never go back, and none that was acknowledged is lost.",
    "queue-lock": "Brokers: no two clients hold the lock of a queue at the same time.",
    "ordered": "Brokers: messages of one key are consumed in the order in which they were sent.",
    "delay": "Brokers: delayed messages come once they are due, never before, and none is lost.",
    "transaction": "Brokers: transactions that commit are delivered, those that roll back never.",
    "pop": "Brokers: each message that was acknowledged is consumed, by consumers that pop.",
    "everything": "Brokers: all at once, recalls, resets and topics made again included.",
    "grpc": "Brokers behind two proxies: by gRPC, what is acknowledged or hidden stays away.",
}
# How long clients may give messages that they fetched before the topic was deleted.
CACHED_NS = 5_000_000_000
# Brokers count milliseconds, by another clock than that of the history.
CLOCK_ERROR_NS = 5_000_000


class Promise(NamedTuple):
    """The checker of a workload's history, its settings, and kinds of problems that do not
    count.
    """

    model: str
    allowed: tuple[str, ...] = ()
    settings: Mapping[str, int] = {}


# A group promises each message at least once. Messages of a producer are in several queues, unless
# their keys choose one.
PROMISES = {
    "messages": Promise("queue", ("duplicated", "reordered")),
    "guarded": Promise("guarded-queue", ("duplicated", "reordered")),
    "broadcast": Promise("broadcast", ("duplicated", "reordered")),
    "offset": Promise("offsets", settings={"initial": 0}),
    "queue-lock": Promise("mutex"),
    "ordered": Promise("queue", ("duplicated",)),
    "delay": Promise("delays", ("duplicated",), {"clock_error_ns": CLOCK_ERROR_NS}),
    "transaction": Promise("transactions", ("duplicated",)),
    "pop": Promise("queue", ("duplicated", "reordered")),
    "everything": Promise("parts"),
    "grpc": Promise("parts"),
    # These are parts of these two alone.
    "recall": Promise("recalls", ("duplicated",), {"clock_error_ns": CLOCK_ERROR_NS}),
    "reset": Promise("resets", ("duplicated", "reordered")),
    "remade": Promise("remade", ("duplicated", "reordered"), {"cached_ns": CACHED_NS}),
    "settled": Promise("settled", ("duplicated", "reordered"), {"clock_error_ns": CLOCK_ERROR_NS}),
}
PARTS = {
    "everything": (
        *("messages", "ordered", "delay", "transaction", "pop", "offset"),
        *("recall", "reset", "remade"),
    ),
    GRPC: ("settled", "ordered", "delay", "transaction"),
}
# A broker that was set back may name the time when a message is due, and one that was set ahead may
# find it due.
STEPPED_NS = 2 * CLOCK_STEP_MS[1] * 1_000_000


def settings_of(plan: RunPlan) -> dict[str, object]:
    if plan.service not in PARTS:
        return _settings(PROMISES[plan.service], plan)
    promises = {name: PROMISES[name] for name in PARTS[plan.service]}
    parts = {
        name: {"model": one.model, "allowed": list(one.allowed), **_settings(one, plan)}
        for name, one in promises.items()
    }
    return {"parts": parts}


def _settings(promise: Promise, plan: RunPlan) -> dict[str, object]:
    settings: dict[str, object] = dict(promise.settings)
    if "clock" in plan.nemeses and "clock_error_ns" in settings:
        settings["clock_error_ns"] = CLOCK_ERROR_NS + STEPPED_NS
    return settings


class BrokerStage:
    """A group of brokers. Implements Stage.

    Clients of C++ reach the group at one address, a balancer's: they look for another leader every
    30 s, and would be without one for most of a run.
    """

    group = "broker-a"
    has_invariant = False
    can_join = True
    clients_come_back = True
    # The last process of a step makes the last reads.
    readers, writers, step = CONSUMERS, PRODUCERS, CONSUMERS + PRODUCERS + 1

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._plan = plan = setting.plan
        self._has_balancer = plan.client == CPP_CLIENT
        has_proxies = plan.client == GRPC_CLIENT or plan.service == GRPC
        self._proxies: Sequence[str] = PROXY_HOSTS if has_proxies else ()
        self.security = security_files(setting.folder) if plan.service == GUARDED else None
        promise = PROMISES[plan.service]
        self.model_name: str | None = promise.model
        self.allowed = promise.allowed
        self.hosts: Sequence[str] = (
            NAMESERVER_HOST,
            *[BALANCER_HOST] * self._has_balancer,
            *self._proxies,
        )

    def member_command(self, wiring: Wiring, name: str, *, joining: bool) -> list[str]:
        own = wiring.addresses[name]
        peers = [name] if joining or self._plan.grown else self._setting.names
        settings = {
            "group": self.group,
            "node_id": name,
            "peers": wiring.peers(peers),
            "joining": joining,
            "listen": own.clients,
            "listen_peers": own.peer,
            "listen_group": own.group if self._has_balancer else None,
            "advertise": _clients_address(wiring, BALANCER_HOST) if self._has_balancer else None,
            "nameserver": _clients_address(wiring, NAMESERVER_HOST),
            "certificates": None if self.security is None else str(self.security.certificates),
            "access": None if self.security is None else str(self.security.access),
            "directory": str(self._setting.folder / "data" / name),
            "seeded_bug": self._plan.seeded_bug,
        }
        path = self._setting.folder / "members" / f"{name}.json"
        return command_with(settings, path, wiring, name, "jepsen_like.chaos.brokers")

    def client_command(self, wiring: Wiring) -> list[str]:
        plan = self._plan
        home = self._setting.folder / "home"
        if plan.client == CPP_CLIENT:
            home.mkdir()
        settings = {
            "seed": plan.seed,
            "nameserver": _clients_address(wiring, NAMESERVER_HOST),
            "consumers": self.readers,
            "producers": self.writers,
            "step": self.step,
            "calls_a_second": plan.calls_a_second,
            "begin_ns": self._setting.begin_ns,
            "history": str(self._setting.folder / "history.jsonl"),
            "workload": plan.service,
            "client": plan.client,
            "home": str(home),
            "security": None if self.security is None else [*map(str, self.security)],
            "proxies": [_clients_address(wiring, host) for host in self._proxies],
            "header": {
                "workload": plan.service,
                "model": self.model_name,
                "seed": plan.seed,
                **settings_of(plan),
            },
        }
        path = self._setting.folder / "clients.json"
        module = "jepsen_like.chaos.brokers.clients"
        return command_with(settings, path, wiring, CLIENTS_HOST, module)

    def beside_commands(self, wiring: Wiring) -> Mapping[str, list[str]]:
        listen = _clients_address(wiring, NAMESERVER_HOST)
        command = [sys.executable, "-m", "nameserver", "--listen", listen, "--exit-with-stdin"]
        command.append("--insecure")  # hosts of a simulated network have addresses of their own
        if self.security is not None:
            folder = CertificateFolder(self.security.certificates)
            command += folder.server_options(NAMESERVER)
            command += ["--access", str(self.security.access)]
        commands = {"name-server": wiring.command(NAMESERVER_HOST, command)}
        if self._has_balancer:
            listen = _clients_address(wiring, BALANCER_HOST)
            members = [
                wiring.addresses[name].group
                for name in (*self._setting.names, *self._setting.spares)
            ]
            command = [sys.executable, "-m", "jepsen_like.chaos.brokers.balancer", listen, *members]
            commands["balancer"] = wiring.command(BALANCER_HOST, command)
        for host in self._proxies:
            listen = _clients_address(wiring, host)
            bug = self._plan.seeded_bug
            program = ["proxy"] if bug is None else ["jepsen_like.chaos.brokers.grpc", bug]
            command = [sys.executable, "-m", *program, "--listen", listen, "--exit-with-stdin"]
            command += ["--insecure", "--nameservers", _clients_address(wiring, NAMESERVER_HOST)]
            commands[host] = wiring.command(host, command)
        return commands


def _clients_address(wiring: Wiring, host: str) -> str:
    return wiring.addresses[host].clients
