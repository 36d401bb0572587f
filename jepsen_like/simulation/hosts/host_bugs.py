"""Bugs planted on purpose in connections, links, clients and closing, which only hosts run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from dledger.changes import Path
from dledger.client.leader_search import LeaderSearch
from dledger.client.node_connection import _NoAnswer
from dledger.client.remote_entries import RemoteEntries
from dledger.config import Address
from dledger.core.messages import Heartbeat, HeartbeatResponse
from dledger.entry import Entry
from dledger.network.channel import Channel
from dledger.network.host_connection import HostConnection, RetryPause
from dledger.network.links import Links
from dledger.node.driver import Driver
from dledger.serving.group_port import GroupPort
from dledger.serving.served_queries import ServedQueries
from dledger.sessions.session import Session
from dledger.waits.change_history import ChangeHistory, Selected
from dledger.waits.pending_appends import PendingAppends
from dledger.waits.progress import Progress
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug

HOST_BUGS: dict[str, SeededBug] = {}


def _bug(name: str, what: str) -> Callable[[Callable[[], list[Replacement]]], None]:
    def enter(replacements: Callable[[], list[Replacement]]) -> None:
        HOST_BUGS[name] = SeededBug(name, what, replacements)

    return enter


def _nothing(part: object) -> None:
    """Replaces a method, and does nothing."""


# --- between processes ----------------------------------------------------------------------------


@_bug("closed-port-hears", "a member that was closed leaves the channels of its peers open")
def _closed_port_hears() -> list[Replacement]:
    return [Replacement(GroupPort, "close", _nothing)]


@_bug("refused-once-given-up", "a connection that was refused once is never dialled again")
def _refused_once() -> list[Replacement]:
    def refused(channel: Channel) -> None:
        channel._connection.close()

    return [Replacement(Channel, "refused", refused)]


@_bug("dialled-without-a-pause", "a connection that fails is dialled again at once")
def _no_pause() -> list[Replacement]:
    async def wait(pause: RetryPause) -> None:
        await trio.lowlevel.checkpoint()

    return [Replacement(RetryPause, "wait", wait)]


@_bug("heartbeats-to-another-group", "messages of many groups in one frame go to the wrong groups")
def _wrong_group() -> list[Replacement]:
    collect = HostConnection.collect

    def to_another(
        connection: HostConnection, message: Heartbeat | HeartbeatResponse, number: int
    ) -> None:
        numbers = sorted(connection._channels)
        collect(connection, message, numbers[(numbers.index(number) + 1) % len(numbers)])

    return [Replacement(HostConnection, "collect", to_another)]


@_bug("links-keep-to-first-members", "links do not follow a change of the members")
def _first_members() -> list[Replacement]:
    set_members = Links.set_members

    def once(links: Links, addresses: Mapping[str, Address]) -> None:
        if not links.members:
            set_members(links, addresses)

    return [Replacement(Links, "set_members", once)]


# --- in one process -------------------------------------------------------------------------------


@_bug("one-group-ends-the-host", "what goes wrong in one group ends the process with all of them")
def _ends_the_host() -> list[Replacement]:
    def fail(driver: Driver, error: Exception) -> None:
        raise error

    return [Replacement(Driver, "fail", fail)]


@_bug("calls-outlive-their-node", "calls that wait for a node's progress do not end when it closes")
def _calls_outlive() -> list[Replacement]:
    return [Replacement(Progress, "close", _nothing)]


@_bug("appends-outlive-their-node", "appends that wait are not answered when their node closes")
def _appends_outlive() -> list[Replacement]:
    def close(pending: PendingAppends) -> None:
        pending._submissions.clear()

    return [Replacement(PendingAppends, "close", close)]


# --- clients --------------------------------------------------------------------------------------


@_bug("asked-by-address", "a client skips a member at an address where it asked another member")
def _asked_by_address() -> list[Replacement]:
    asked: dict[int, set[Address]] = {}

    def ask_members(search: LeaderSearch, asking: trio.Nursery, above_term: int) -> None:
        if not search._asked:  # another search begins
            asked[id(search)] = set()
        for member in search._members.all:
            if member.address not in asked[id(search)]:
                asked[id(search)].add(member.address)
                search._asked.add(member)
                asking.start_soon(search._ask, asking, member, above_term)

    return [Replacement(LeaderSearch, "_ask_members", ask_members)]


@_bug("lost-answer-is-certain", "a client takes a request without an answer for one never made")
def _certain() -> list[Replacement]:
    return [Replacement(_NoAnswer, "sent", False)]


@_bug("stream-left-open", "a client's connection ends, and its socket stays")
def _left_open() -> list[Replacement]:
    async def leave(stream: trio.abc.AsyncResource) -> None:
        await trio.lowlevel.checkpoint()

    return [Replacement(trio, "aclose_forcefully", leave)]


@_bug("session-renumbered", "an append of a session is repeated under a number of its own")
def _renumbered() -> list[Replacement]:
    batch = Session._batch

    def renumbered(session: Session) -> list[tuple[int, bytes]]:
        found = batch(session)
        if session._in_log:  # it was sent before
            count = len(session._unsettled)
            session._unsettled = type(session._unsettled)(
                (number + count, body) for number, body in session._unsettled
            )
            session._next += count
            session._in_log = 0
            return batch(session)
        return found

    return [Replacement(Session, "_batch", renumbered)]


@_bug("tail-skips-an-entry", "a remote reader of the log loses the first entry of each answer")
def _skips() -> list[Replacement]:
    async def one_more(entries: RemoteEntries) -> Entry:
        if not entries._ready:
            more = await entries._more(entries._next)
            entries._ready.extend(more[1:] if len(more) > 1 else more)
            if not entries._ready:
                raise StopAsyncIteration
        entry = entries._ready.popleft()
        entries._next = entry.index + 1
        return entry

    return [Replacement(RemoteEntries, "__anext__", one_more)]


# --- queries and watches --------------------------------------------------------------------------


@_bug("query-without-a-read-index", "a member answers queries by its state, and asks no leader")
def _without_read_index() -> list[Replacement]:
    async def read(queries: ServedQueries) -> None:
        await trio.lowlevel.checkpoint()

    return [Replacement(ServedQueries, "read", read)]


@_bug("entry-cut-by-an-answer", "an answer to a watch ends within the changes of an entry")
def _cut_by_an_answer() -> list[Replacement]:
    select = ChangeHistory.select

    def some(history: ChangeHistory, after: int, path: Path, max_bytes: int) -> Selected:
        rows, upto, is_all = select(history, after, path, max_bytes)
        return Selected(rows[:7], upto, is_all)

    return [Replacement(ChangeHistory, "select", some)]
