"""The identity of a member's group beyond its name, and the port that uses it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dledger.config import NodeConfig
from dledger.core.orphans import Orphans
from dledger.core.replica import Replica
from dledger.network.links import Links
from dledger.node.birth_watch import BirthWatch
from dledger.node.member_alarms import member_alarms
from dledger.serving.group_port import GroupPort
from dledger.serving.host_parts import HostParts
from dledger.serving.identity_guard import IdentityGuard
from dledger.snapshots.restoring import Opened
from dledger.status import MemberAlarm
from dledger.waits.progress import Progress
from dledger.wire.channel_protocol import MAX_PROCESS


class MemberIdentity:
    """One member's identity, and its port; renews channels when the identity changes.

    Attributes:
        guard: compares the identities of callers with the member's.
        port: accepts the member's messages and clients; replaced with each new generation.

    Args:
        config: of the member.
        opened: its folder.
        host: the process that it runs in.
        fail: ends the member.
    """

    port: GroupPort
    _replica: Replica
    _links: Links
    _birth_watch: BirthWatch

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        host: HostParts,
        fail: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._opened = opened
        self._ports = host.ports
        self._run_blocking = host.platform.run_blocking
        process = 1 + int(host.platform.chance() * (MAX_PROCESS - 1))
        self.guard = IdentityGuard(config, opened, self._new_generation, self._grown, fail, process)

    def connect(self, replica: Replica, moved: Progress, links: Links, port: GroupPort) -> None:
        """Connect this to the member. The guard is made first, then the links, then the member.

        Args:
            replica: the member's protocol.
            moved: made when the role or the group has changed, or entries were applied.
            links: a changed identity is sent on them.
            port: accepts the member's messages and clients.
        """
        self._replica = replica
        self._links = links
        self.port = port
        self._birth_watch = BirthWatch(
            self._config,
            self._opened,
            replica,
            moved,
            self._births,
            self._run_blocking,
            self._born,
        )

    def start(self) -> None:
        self._ports[self._config.group] = self.port

    async def run(self) -> None:
        """Wait for the birth of the group if it is unknown. Raises LogCorrupt, DiskFailed."""
        await self._birth_watch.run()

    def stop(self) -> None:
        self.port.close()
        self._ports.pop(self._config.group, None)

    def machine_version(self, member: str) -> int | None:
        """Return the version up to which the state machine of a member, perhaps this one, reads
        entries; None if the member has not told it, or is not connected.
        """
        if member == self._config.node_id:
            return self._opened.machine.version or None
        return self.port.machine_version(member)

    def oldest_machine_version(self, members: Collection[str]) -> int | None:
        """Return the version that all these members read; None if a member has not told its own."""
        versions = [self.machine_version(member) for member in members]
        told = [version for version in versions if version is not None]
        return min(told) if told and len(told) == len(versions) else None

    def has_able_machine(self, member: str) -> bool:
        return self.port.has_able_machine(member)

    def machine_stops(self, stopped: bool) -> None:
        """Tell all members whether the state machine here has stopped."""
        self.guard.machine_stops(stopped)
        self._links.say_anew(self.guard.identity)

    def holds_orphans(self, orphans: Orphans | None) -> None:
        """Tell all members which committed entries this one holds and the group lost."""
        self.guard.holds_orphans(orphans)
        self._links.say_anew(self.guard.identity)

    def alarms(self, orphans: Orphans | None) -> list[MemberAlarm]:
        """Return the alarms of the member, given its own orphans."""
        port, guard = self.port, self.guard
        return member_alarms(
            self._config.node_id,
            orphans,
            port.orphans(),
            port.rivals.names,
            guard.refused_as_second.names,
        )

    def _births(self, peer: str | None) -> set[str]:
        return self.port.births(peer)

    def _new_generation(self) -> None:
        self._renew_port()
        self._links.introduce_as(self.guard.identity)

    def _born(self, birth: bytes) -> None:
        """Close the channels of another group, now that the folder has the birth."""
        self.guard.born(birth)
        if self.port.closed:
            return
        if self.port.hears_another_group:
            self._renew_port()
        self._links.say_anew(self.guard.identity)

    def _renew_port(self) -> None:
        self.port = self._ports[self._config.group] = self.port.renewed()

    def _grown(self) -> None:
        self._replica.admission.told_grown()
