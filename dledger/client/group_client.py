"""A group for tools and scripts: one call, one connection. Programs use `dledger.connect`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import trio

from dledger.changes import PathPart
from dledger.client.client_errors import (
    ClientRefused,
    ConnectionLost,
    GroupUnreachable,
    refused_by_all,
)
from dledger.client.known_members import KnownMember, KnownMembers, Peers
from dledger.client.node_connection import NodeConnection, connect_node
from dledger.client.remote_log import (
    RemoteLog,
    checked_tls,
    connect_member,
    member_status,
    open_log,
)
from dledger.core.membership.configuration_change import Change, Transition
from dledger.core.membership.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.entry import Entry
from dledger.errors import DLedgerError, MessageMalformed
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.sessions.session import DEFAULT_TIMEOUT_S, DEFAULT_TTL_S, NotAppendedInTime, Session
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.wire.change_protocol import ChangeRequest, encode_change
from dledger.wire.client_protocol import (
    MAX_WAIT_MS,
    Leadership,
    Operation,
    askable,
    decode_entries_answer,
)
from dledger.wire.proof import Credentials, shows_of
from dledger.wire.query_protocol import Queried
from dledger.wire.watch_protocol import WatchEvent

__all__ = ["GroupClient", "GroupUnreachable", "WrittenSnapshot", "connect_node"]

# A member that does not name the leader within this time counts as not leading.
ASK_TIMEOUT_S = 2.0


class WrittenSnapshot(NamedTuple):
    """A snapshot of a member: its last entry, its bytes, its path on that member."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    size: int
    path: str


class GroupClient:
    """A client that knows the addresses of some members of a group; each call connects anew.

    It learns the other members from them, so the given members may all leave the group while it
    lives. A group that speaks TLS requires certificates; unusable ones raise ConfigInvalid. One
    that asks for users takes `credentials`, or a certificate that names a user.
    """

    def __init__(
        self,
        group: str,
        peers: Peers,
        tls: GroupTls | TlsConfig | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._shows = shows_of(credentials)
        self._members = KnownMembers(group, peers)
        self._tls = checked_tls(self._members, tls)

    @property
    def members(self) -> dict[str, str]:
        """Name and address of each member, as last learned from the group, or as given before
        that.
        """
        return {known.node_id: str(known.address) for known in self._members.current}

    @property
    def members_are_told(self) -> bool:
        """Whether `members` was learned from the group."""
        return self._members.learned

    async def ask_members(self) -> dict[str, str]:
        """Ask the group for the name and address of each member; return `members`.

        Raises GroupUnreachable if no member answers, and ClientRefused.
        """
        if not await self._ask_all_who_leads():
            names = ", ".join(str(known) for known in self._members.all)
            raise GroupUnreachable(f"none of {names} answers")
        return self.members

    async def status(self, node_id: str) -> dict[str, object]:
        """Return one node's status. Raises GroupUnreachable."""
        return await member_status(self._members, node_id, self._tls, self._shows)

    async def leader_status(self, timeout_s: float) -> dict[str, object]:
        """Return the leader's status. Raises GroupUnreachable."""
        async with self._log(timeout_s) as log:
            return await log.status()

    async def ready_leader(self) -> str | None:
        """Return the member that leads and may serve, or None."""
        leaders = [known for known in await self._ask_all_who_leads() if known.ready]
        return max(leaders, key=lambda known: known.term).member if leaders else None

    async def _ask_all_who_leads(self) -> list[Leadership]:
        """Ask all members for the leader; learn the group's members from the answers.

        Raises ClientRefused if all of them refuse this client for good.
        """
        told: list[Leadership] = []
        refusals: list[ClientRefused] = []
        members = self._members.all
        async with unwrapping_nursery() as nursery:
            for member in members:
                nursery.start_soon(self._ask_who_leads, member, told, refusals)
        if len(refusals) == len(members):
            raise refused_by_all(refusals)
        for known in told:
            self._members.learn(known.index, known.addresses)
        return told

    async def _ask_who_leads(
        self, member: KnownMember, told: list[Leadership], refusals: list[ClientRefused]
    ) -> None:
        with trio.move_on_after(ASK_TIMEOUT_S):
            try:
                async with self._connection(member) as connection:
                    told.append(await connection.who_leads())
            except ClientRefused as error:
                refusals.append(error)
            except DLedgerError:
                return  # it does not serve

    async def append(self, bodies: Sequence[bytes], timeout_s: float) -> list[tuple[int, int, int]]:
        """Append through the leader; return (index, term, pos) of each entry.

        Raises as `RemoteLog.append_many`, and GroupUnreachable if no leader was found in time.
        """
        try:
            async with self._log(timeout_s) as log:
                appended = await log.append_many(bodies)
        except NotAppendedInTime as error:
            raise GroupUnreachable(str(error)) from error
        return [(each.index, each.term, each.pos) for each in appended]

    @asynccontextmanager
    async def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AsyncIterator[Session]:
        """Open a session with a connection of its own. See `RemoteLog.session`."""
        async with (
            self._log(timeout_s) as log,
            log.session(ttl_s=ttl_s, timeout_s=timeout_s) as session,
        ):
            yield session

    async def transfer(self, target: str | None, timeout_s: float) -> str:
        """Hand leadership to `target`, or else to the member with the longest log; return that
        member.

        Raises Rejected (TransferFailed: the old leader goes on; GroupUnreachable: check the
        leader).
        """
        async with self._log(timeout_s) as log:
            try:
                leader, _ = await log.ask_leader_long(
                    Operation.TRANSFER, (), (target or "").encode(), timeout_s
                )
            except ConnectionLost as error:
                problem = f"the connection to {error.node_id} broke; look which member leads now"
                raise GroupUnreachable(problem) from error
        return str(leader)

    async def snapshot(self, node_id: str) -> WrittenSnapshot:
        """Have one member write a snapshot of its state now.

        Raises GroupUnreachable, and SnapshotUnavailable with the reason.
        """
        async with connect_member(self._members, node_id, self._tls, self._shows) as connection:
            row, _ = await connection.ask(Operation.SNAPSHOT)
        match row:
            case [int(index), int(term), int(size), str(path)]:
                return WrittenSnapshot(index, term, size, path)
            case _:
                raise MessageMalformed("an answer to a snapshot request with wrong fields")

    async def change(
        self,
        changes: Sequence[Change],
        transition: Transition = Transition.AUTO,
        expected: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> NumberedConfiguration:
        """Change the group's members like `Node.change`; return the configuration in force then.

        Waits `timeout_s` for a leader, and then for as long as the leader needs to bring new
        voters up to date. If another member leads meanwhile, the next leader goes on; new voters
        may be learners then, so that a change with `expected` raises ConfigurationMoved.

        Raises as `Node.change`, and GroupUnreachable, ConnectionLost (unknown).
        """
        request = encode_change(ChangeRequest(changes, transition, expected))
        async with self._log(timeout_s) as log:
            _, payload = await log.ask_leader_long(*request, timeout_s)
        numbered = decode_configuration(payload)
        self._members.learn(numbered.index, numbered.configuration.addresses)
        return numbered

    async def entries(self, first: int, *, wait_ms: int = 0) -> list[Entry]:
        """Return committed entries from `first`, from any node that answers. Raises
        GroupUnreachable.
        """
        problems: list[str] = []
        refusals: list[ClientRefused] = []
        members = self._members.all
        for member in members:
            try:
                async with self._connection(member) as connection:
                    numbers = [askable(first), min(wait_ms, MAX_WAIT_MS)]
                    return decode_entries_answer(*await connection.ask(Operation.ENTRIES, numbers))
            except GroupUnreachable as error:
                problems.append(error.problem)  # GroupUnreachable adds the advice again
                if isinstance(error, ClientRefused):
                    refusals.append(error)
            except ConnectionLost as error:
                problems.append(f"{error.node_id}: {error.reason}")  # nothing was appended
        if len(refusals) == len(members):
            raise refused_by_all(refusals)
        raise GroupUnreachable("no node answers: " + "; ".join(problems))

    async def query(
        self,
        name: str,
        *arguments: object,
        on: str | None = None,
        stale: bool = False,
        max_lag_s: float | None = None,
        after: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Queried:
        """Call a query of the state machine. Arguments and errors are those of
        `RemoteLog.query`.
        """
        async with self._log(timeout_s) as log:
            return await log.query(
                name, *arguments, on=on, stale=stale, max_lag_s=max_lag_s, after=after
            )

    @asynccontextmanager
    async def watch(
        self, *path: PathPart, after: int | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Iterate over changes of the state machine, with a connection of its own during the block.

        `timeout_s`: how long the first answer may take. See `RemoteLog.watch`.
        """
        async with self._log(timeout_s) as log:
            yield log.watch(*path, after=after)

    def _log(self, timeout_s: float) -> AbstractAsyncContextManager[RemoteLog]:
        return open_log(self._members, self._tls, timeout_s, shows=self._shows)

    def _connection(self, member: KnownMember) -> AbstractAsyncContextManager[NodeConnection]:
        return connect_node(self._members.group, *member, self._tls, self._shows)
