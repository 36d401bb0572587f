"""A state machine over the library, or over another system: its members, its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from jepsen_like.chaos.brokers.security_files import SecurityFiles
from jepsen_like.chaos.clients.settings import ClientSettings
from jepsen_like.chaos.members.settings import MemberSettings
from jepsen_like.chaos.service import Described
from jepsen_like.chaos.stages.stage import Setting, command_with
from jepsen_like.chaos.wiring import CLIENTS_HOST, Wiring

MAX_CLOCK_DRIFT = 0.05
CALL_TIMEOUT_S = 2.0
# Each member has a reader of its own. There are four ways to write, and each member is used.
READERS_A_MEMBER = 1
WRITERS_LEAST = 4
MEMBER_MODULE, CLIENTS_MODULE = "jepsen_like.chaos.members", "jepsen_like.chaos.clients"


class LibraryStage:
    """A state machine over the library, or over another system. Implements Stage."""

    group = "chaos"
    allowed: tuple[str, ...] = ()
    hosts: Sequence[str] = ()
    clients_come_back = False
    security: SecurityFiles | None = None

    def __init__(self, setting: Setting, service: Described) -> None:
        self._setting = setting
        self._plan = plan = setting.plan
        self._service = service
        names = setting.names
        self.can_join = plan.system is None
        self.model_name = service.model_name
        self.has_invariant = service.has_invariant
        self.readers = READERS_A_MEMBER * len(names)
        self.writers = max(WRITERS_LEAST, len(names))
        self.step = self.readers + self.writers + len(names)

    def member_command(self, wiring: Wiring, name: str, *, joining: bool) -> list[str]:
        own = wiring.addresses[name]
        peers = [name] if joining or self._plan.grown else self._setting.names
        settings = MemberSettings(
            group=self.group,
            node_id=name,
            service=self._service.name,
            peers=wiring.peers(peers),
            listen=own.peer,
            clients=own.clients,
            data_dir=str(self._setting.folder / "data" / name),
            joining=joining,
            max_clock_drift=MAX_CLOCK_DRIFT if self._plan.lease else None,
            seeded_bug=self._plan.seeded_bug,
        )
        path = self._setting.folder / "members" / f"{name}.json"
        module = self._plan.system or MEMBER_MODULE
        return command_with(asdict(settings), path, wiring, name, module)

    def client_command(self, wiring: Wiring) -> list[str]:
        plan, service = self._plan, self._service
        header: dict[str, object] = {"workload": service.name, "seed": plan.seed}
        if self.model_name is not None:
            header["model"] = self.model_name
        settings = ClientSettings(
            seed=plan.seed,
            service=service.name,
            group=self.group,
            peers=wiring.peers(self._setting.names),
            ports={name: wiring.addresses[name].clients for name in self._setting.names},
            readers=self.readers,
            writers=self.writers,
            calls_a_second=plan.calls_a_second,
            timeout_s=CALL_TIMEOUT_S,
            begin_ns=self._setting.begin_ns,
            history=str(self._setting.folder / "history.jsonl"),
            header={**header, **service.settings},
            ports_only=plan.system is not None,
        )
        path = self._setting.folder / "clients.json"
        return command_with(asdict(settings), path, wiring, CLIENTS_HOST, CLIENTS_MODULE)

    def beside_commands(self, wiring: Wiring) -> Mapping[str, list[str]]:
        return {}
