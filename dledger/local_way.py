"""The way of a session's commands from a member: to itself while it leads, else to the leader."""

from __future__ import annotations

from typing import Protocol

from dledger.client import GroupClient, LeaderConnection
from dledger.config import NodeConfig
from dledger.core.configuration_codec import NumberedConfiguration
from dledger.errors import NotLeader
from dledger.network_way import NetworkWay
from dledger.session_entry import SessionCommand
from dledger.session_gate import SessionGate
from dledger.tls import GroupTls
from dledger.with_sessions import SessionAnswer


class Member(Protocol):
    """What this needs of a node."""

    @property
    def config(self) -> NodeConfig:
        """As in Node."""
        ...

    @property
    def configuration(self) -> NumberedConfiguration:
        """As in Node."""
        ...

    @property
    def is_ready_leader(self) -> bool:
        """As in Node."""
        ...


class LocalWay:
    """A SessionWay that begins at a node of this process."""

    def __init__(self, node: Member, gate: SessionGate, tls: GroupTls | None = None) -> None:
        self._node = node
        self._gate = gate
        self._client = GroupClient(node.config.group, node.config.peers, tls)
        self._network = NetworkWay(LeaderConnection(self._client))

    async def reach(self) -> None:
        """As in SessionWay."""
        if not self._node.is_ready_leader:
            self._follow()
            await self._network.reach()

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        """As in SessionWay."""
        if self._node.is_ready_leader:
            try:
                return await self._gate.carry_out(command)
            except NotLeader:
                self._follow()
                await self._network.reach()
        return await self._network.carry_out(command)

    def _follow(self) -> None:
        index, configuration = self._node.configuration
        self._client.learn(index, configuration.addresses)

    async def close(self) -> None:
        """As in SessionWay."""
        await self._network.close()
