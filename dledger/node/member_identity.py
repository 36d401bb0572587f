"""Which group a member is of, beyond the name, and what follows when it learns more of that."""

from __future__ import annotations

from collections.abc import Callable

import trio

from dledger.config import NodeConfig
from dledger.core.replica import Replica
from dledger.network.links import Links
from dledger.node.birth_watch import BirthWatch
from dledger.serving.group_port import GroupPort
from dledger.serving.host_parts import HostParts
from dledger.serving.identity_guard import IdentityGuard
from dledger.snapshots.restoring import Opened


class MemberIdentity:
    """One member's identity, and the port behind which it is known by it.

    Attributes:
        guard: judges the identities of others.
        port: takes in what is meant for the member; another one from each new generation on.

    Args:
        config: of the member.
        opened: its folder.
        replica: its protocol.
        turned: unparked after every turn.
        host: where it runs.
        fail: ends the member.
    """

    port: GroupPort
    _links: Links

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        replica: Replica,
        turned: trio.lowlevel.ParkingLot,
        host: HostParts,
        fail: Callable[[Exception], None],
    ) -> None:
        self._group = config.group
        self._replica = replica
        self._ports = host.ports
        self.guard = IdentityGuard(config, opened, self._new_generation, self._contradicted, fail)
        self._birth_watch = BirthWatch(
            config,
            opened,
            replica,
            turned,
            self._births,
            host.platform.run_blocking,
            self._born,
        )

    def connect(self, links: Links, port: GroupPort) -> None:
        """What is new is told on `links`; others reach the member by `port`."""
        self._links = links
        self.port = port

    def start(self, nursery: trio.Nursery) -> None:
        """Take in what others say."""
        self._ports[self._group] = self.port
        nursery.start_soon(self._birth_watch.run)

    def stop(self) -> None:
        """Take in nothing more."""
        self.port.closed = True
        self._ports.pop(self._group, None)

    def _births(self, peer: str | None) -> set[str]:
        return self.port.births(peer)

    def _new_generation(self) -> None:
        self._renew_port()
        self._links.introduce_as(self.guard.identity)

    def _born(self, birth: bytes) -> None:
        """The folder says the birth now. A channel of another group ends; the others go on."""
        self.guard.born(birth)
        if self.port.closed:
            return
        if self.port.hears_another_group:
            self._renew_port()
        self._links.say_anew(self.guard.identity)

    def _renew_port(self) -> None:
        self.port = self._ports[self._group] = self.port.renewed()

    def _contradicted(self) -> None:
        self._replica.admission.contradicted(trio.current_time())
