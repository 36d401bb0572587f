"""Carries a session's commands from a member: to itself while it leads, else to the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from dledger.client.known_members import KnownMembers
from dledger.client.leader_connection import LeaderConnection, NetworkWay
from dledger.config import NodeConfig
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import Entry
from dledger.errors import NotLeader
from dledger.network.network import TCP, Network
from dledger.network.tls import GroupTls
from dledger.sessions.session import Session, open_session
from dledger.sessions.session_entry import SessionCommand
from dledger.sessions.session_gate import SessionGate
from dledger.sessions.with_sessions import SessionAnswer
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.wire.proof import Shows, shows_nothing


class Member(Protocol):
    """The part of a node that a session uses."""

    @property
    def config(self) -> NodeConfig: ...

    @property
    def configuration(self) -> NumberedConfiguration: ...

    @property
    def is_ready_leader(self) -> bool: ...

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]: ...


class LocalWay:
    """A SessionWay that begins at a node of this process. Made by `local_way`."""

    def __init__(
        self, node: Member, gate: SessionGate, members: KnownMembers, leader: LeaderConnection
    ) -> None:
        self._node = node
        self._gate = gate
        self._members = members
        self._leader = leader
        self._network = NetworkWay(leader)

    async def reach(self) -> None:
        if not self._node.is_ready_leader:
            self._follow()
            await self._network.reach()

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        if self._node.is_ready_leader:
            try:
                return await self._gate.carry_out(command)
            except NotLeader:
                self._follow()
                await self._network.reach()
        return await self._network.carry_out(command)

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        return await self._node.entries_from(first, wait_s)

    def _follow(self) -> None:
        index, configuration = self._node.configuration
        self._members.learn(index, configuration.addresses)


@asynccontextmanager
async def local_way(
    node: Member,
    gate: SessionGate,
    tls: GroupTls | None = None,
    network: Network = TCP,
    shows: Shows = shows_nothing,
) -> AsyncIterator[LocalWay]:
    members = KnownMembers(node.config.group, node.config.peers)
    async with unwrapping_nursery() as nursery:
        leader = LeaderConnection(members, tls, nursery, network, shows)
        nursery.start_soon(leader.run)
        yield LocalWay(node, gate, members, leader)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def local_session(
    node: Member,
    gate: SessionGate,
    ttl_s: float,
    timeout_s: float,
    tls: GroupTls | None = None,
    network: Network = TCP,
    shows: Shows = shows_nothing,
) -> AsyncIterator[Session]:
    """Open a session that begins at a member. Raises NotAppendedInTime."""
    async with (
        local_way(node, gate, tls, network, shows) as way,
        open_session(way, ttl_s, timeout_s) as session,
    ):
        yield session
