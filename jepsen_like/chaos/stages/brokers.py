"""A group of brokers with a name server, and what sends and consumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jepsen_like.chaos.nemeses.catalogue import CLOCK_STEP_MS
from jepsen_like.chaos.plan import CPP_CLIENT, RunPlan
from jepsen_like.chaos.wiring import BALANCER_HOST, CLIENTS_HOST, NAMESERVER_HOST, Wiring

CONSUMERS, PRODUCERS = 2, 4
# What `jepsen-like list` says of each workload with brokers, and the model of its history.
EXPLANATIONS = {
    "messages": "Brokers: each message that was acknowledged is consumed, by a group of consumers.",
    "broadcast": "Brokers: each message that was acknowledged is consumed by every consumer.",
    "offset": "Brokers: committed offsets never go back, and none that was acknowledged is lost.",
    "queue-lock": "Brokers: no two clients hold the lock of a queue at the same time.",
    "ordered": "Brokers: messages of one key are consumed in the order in which they were sent.",
    "delay": "Brokers: delayed messages come once they are due, never before, and none is lost.",
    "transaction": "Brokers: transactions that commit are delivered, those that roll back never.",
    "pop": "Brokers: each message that was acknowledged is consumed, by consumers that pop.",
    "everything": "Brokers: all at once, recalls, resets and topics made again included.",
}
MODELS = {
    "messages": "queue",
    "broadcast": "broadcast",
    "offset": "offsets",
    "queue-lock": "mutex",
    "ordered": "queue",
    "delay": "delays",
    "transaction": "transactions",
    "pop": "queue",
    "everything": "parts",
}
# A group promises each message at least once. Messages of a producer are in several queues, unless
# their keys say in which.
ALLOWED = {
    "messages": ("duplicated", "reordered"),
    "broadcast": ("duplicated", "reordered"),
    "offset": (),
    "queue-lock": (),
    "ordered": ("duplicated",),
    "delay": ("duplicated",),
    "transaction": ("duplicated",),
    "pop": ("duplicated", "reordered"),
    "everything": (),
}
# How long clients may give what they fetched before its topic was deleted.
CACHED_NS = 5_000_000_000
# Brokers count milliseconds, by a clock that is not that of the history.
SETTINGS = {"delay": {"clock_error_ns": 5_000_000}, "offset": {"initial": 0}}
# What is judged only as a part of `everything`: its model, and its settings.
OPERATED: Mapping[str, Mapping[str, object]] = {
    "recall": {"model": "recalls", "allowed": ["duplicated"], "clock_error_ns": 5_000_000},
    "reset": {"model": "resets", "allowed": ["duplicated", "reordered"]},
    "remade": {
        "model": "remade",
        "allowed": ["duplicated", "reordered"],
        "cached_ns": CACHED_NS,
    },
}
PARTS = ("messages", "ordered", "delay", "transaction", "pop", "offset")
# One that was set back may say when a message is due, and one that was set ahead that it is.
STEPPED_NS = 2 * CLOCK_STEP_MS[1] * 1_000_000


def settings_of(plan: RunPlan) -> dict[str, object]:
    """Further fields of the header of the history."""
    stepped_ns = STEPPED_NS if "clock" in plan.nemeses else 0
    if plan.service != "everything":
        return _stepped(SETTINGS.get(plan.service, {}), stepped_ns)
    parts = {
        name: {"model": MODELS[name], "allowed": list(ALLOWED[name]), **SETTINGS.get(name, {})}
        for name in PARTS
    }
    return {
        "parts": {name: _stepped(one, stepped_ns) for name, one in {**parts, **OPERATED}.items()}
    }


def _stepped(settings: Mapping[str, object], stepped_ns: int) -> dict[str, object]:
    error_ns = settings.get("clock_error_ns")
    return {
        **settings,
        **({"clock_error_ns": error_ns + stepped_ns} if isinstance(error_ns, int) else {}),
    }


class BrokerStage:
    """See Stage.

    Clients of C++ reach the group at one address, a balancer's: they look for another leader every
    30 s, and would be without one for most of a run.

    Args:
        plan: the run.
        folder: of the run.
        names: the members that the group begins with.
        spares: those that may come to it.
        begin_ns: the reading of the monotonic clock that the history calls 0.
    """

    group = "broker-a"
    has_invariant = False
    can_join = True
    clients_come_back = True
    # The last process of a step looks at what there is in the end.
    readers, writers, step = CONSUMERS, PRODUCERS, CONSUMERS + PRODUCERS + 1

    def __init__(
        self,
        plan: RunPlan,
        folder: Path,
        names: Sequence[str],
        spares: Sequence[str],
        begin_ns: int,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._names = names
        self._spares = spares
        self._has_balancer = plan.client == CPP_CLIENT
        self._begin_ns = begin_ns
        self.model_name: str | None = MODELS[plan.service]
        self.allowed: tuple[str, ...] = ALLOWED[plan.service]
        self.hosts: Sequence[str] = (NAMESERVER_HOST, *[BALANCER_HOST] * self._has_balancer)

    def member_command(self, wiring: Wiring, name: str, *, joining: bool) -> list[str]:
        """See Stage."""
        listen_peers, listen = wiring.listens(name)
        peers = [name] if joining or self._plan.grown else self._names
        settings = {
            "group": self.group,
            "node_id": name,
            "peers": {peer: wiring.peer_address(name, peer) for peer in peers},
            "joining": joining,
            "listen": listen,
            "listen_peers": listen_peers,
            "listen_group": wiring.group_address(name) if self._has_balancer else None,
            "advertise": wiring.port_address(BALANCER_HOST) if self._has_balancer else None,
            "nameserver": wiring.port_address(NAMESERVER_HOST),
            "directory": str(self._folder / "data" / name),
            "seeded_bug": self._plan.seeded_bug,
        }
        path = self._folder / "members" / f"{name}.json"
        path.write_text(json.dumps(settings, indent=1) + "\n")
        return wiring.command(name, [sys.executable, "-m", "jepsen_like.chaos.brokers", str(path)])

    def client_command(self, wiring: Wiring) -> list[str]:
        """See Stage."""
        plan = self._plan
        home = self._folder / "home"
        if plan.client == CPP_CLIENT:
            home.mkdir()
        settings = {
            "seed": plan.seed,
            "nameserver": wiring.port_address(NAMESERVER_HOST),
            "consumers": self.readers,
            "producers": self.writers,
            "step": self.step,
            "calls_a_second": plan.calls_a_second,
            "begin_ns": self._begin_ns,
            "history": str(self._folder / "history.jsonl"),
            "workload": plan.service,
            "client": plan.client,
            "home": str(home),
            "header": {
                "workload": plan.service,
                "model": self.model_name,
                "seed": plan.seed,
                **settings_of(plan),
            },
        }
        path = self._folder / "clients.json"
        path.write_text(json.dumps(settings, indent=1) + "\n")
        command = [sys.executable, "-m", "jepsen_like.chaos.brokers.clients", str(path)]
        return wiring.command(CLIENTS_HOST, command)

    def beside_commands(self, wiring: Wiring) -> Mapping[str, list[str]]:
        """See Stage."""
        _, listen = wiring.listens(NAMESERVER_HOST)
        command = [sys.executable, "-m", "nameserver", "--listen", listen, "--exit-with-stdin"]
        commands = {"name-server": wiring.command(NAMESERVER_HOST, command)}
        if self._has_balancer:
            _, listen = wiring.listens(BALANCER_HOST)
            members = [wiring.group_address(name) for name in (*self._names, *self._spares)]
            command = [sys.executable, "-m", "jepsen_like.chaos.brokers.balancer", listen, *members]
            commands["balancer"] = wiring.command(BALANCER_HOST, command)
        return commands
