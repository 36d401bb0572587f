"""Answers changes of subscriptions (200071), and drops those that clients do not repeat.

Source: RocketMQ's LiteSubscriptionCtlProcessor.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.groups.config import (
    LITE_RESET_EXCLUSIVE,
    LITE_RESET_UNSUBSCRIBE,
    ConsumerGroup,
)
from broker.lite import rows
from broker.lite.commands import ResetLite
from broker.lite.limits import MAX_NAMED, MAX_SUBSCRIBERS, MAX_SUBSCRIPTIONS
from broker.lite.names import lite_key
from broker.lite.popping import LITE_POPPING, SUBSCRIPTIONS
from broker.lite.request import Change, SubscriptionChange, read_changes
from broker.lite.state import LITE
from broker.lite.subscriptions import Subscriber
from broker.log.submissions import submit_commands
from broker.messages.state import MESSAGES
from broker.serving.needs import Action
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.user_shares import USER_SHARES
from broker.topics.needs import group_need, topic_need
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command, server_request

# Lite topics that one step subscribes to, or looks at.
_A_STEP: Final = 256


class Subscribing:
    """Changes what clients have subscribed to."""

    def __init__(self, parts: Parts) -> None:
        self._lite = parts.state[LITE]
        self._messages = parts.state[MESSAGES]
        self._log = parts.log
        self._access = parts[ACCESS_GUARD]
        self._shares = parts[USER_SHARES]
        self._popping = parts[LITE_POPPING]
        self._subscriptions = parts[SUBSCRIPTIONS]
        self._clock = parts.clock
        self._wall_clock_ms = parts.wall_clock_ms
        self._work = parts.work

    def change(self, origin: Origin, command: Command) -> Steps:
        """Change the subscriptions of clients. The reply leaves when the offsets that it asks for
        are in the log.

        Raises BodyMalformed; RequestRefused: (16) (17) (26) as a pop, (29) a bad name, (604) the
        request makes no sense, (2018) too many subscriptions, of all or of its user.
        """
        changes = read_changes(command)
        needs = {group_need(one.group, Action.SUB) for one in changes}
        needs |= {topic_need(one.parent, Action.SUB) for one in changes}
        self._access.require(origin, command, tuple(sorted(needs)))
        resets: list[ResetLite] = []
        user = self._shares.user_of(origin, command)
        for one in changes:
            yield from self._changed(origin, user, one, resets)
        self._popping.flush()
        if not resets:
            return command.reply()
        reply = replying(origin, command)

        def then(refusal: RequestRefused | None) -> None:
            for one in resets:
                keys = [(one.group, one.parent, name.encode()) for name, _offset in one.offsets]
                self._popping.freed(keys)
            reply(refusal)

        submit_commands(self._log, resets, then)
        return None

    def _changed(
        self,
        origin: Origin,
        user: str | None,
        asked: SubscriptionChange,
        resets: list[ResetLite],
    ) -> Iterator[None]:
        key = asked.group, asked.client_id
        known = self._subscriptions.client(key)
        if asked.change is Change.CLEAR:
            self._drop(known)
            return
        config = self._popping.check(asked.group, asked.parent)
        names = [lite_key(name) for name in asked.names]
        if known is not None and known.parent != asked.parent:
            self._drop(known)  # the group was bound to another topic meanwhile
        if asked.change is Change.SET:
            if known is not None and asked.version < known.version:
                return  # a newer one came first
        elif config.is_lite_wildcard:
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION,
                f"clients of group {asked.group} read all lite topics: lite.sub.wildcard is set",
            )
        if self._subscriptions.client(key) is None:
            self._take(user, "clients", len(self._subscriptions), MAX_SUBSCRIBERS, 1)
        client = self._subscriptions.heard(
            asked.group, asked.client_id, asked.parent, origin, self._clock()
        )
        client.version = max(client.version, asked.version)
        if config.is_lite_wildcard:
            if self._subscriptions.be_wild(client):
                self._work.later("looking for messages of lite topics", self._all_of(client))
            return
        if asked.change is not Change.ADD:
            wanted = set(names)
            gone = names
            if asked.change is Change.SET:
                gone = [name for name in client.wanted if name not in wanted]
            for some in pieces(gone, _A_STEP):
                left = self._subscriptions.remove(client, some)
                if asked.change is Change.REMOVE and config.lite_resets(LITE_RESET_UNSUBSCRIBE):
                    self._reset(asked.group, asked.parent, left, resets)
                yield
        if asked.change is not Change.REMOVE:
            self._check_room(config, client, user, names)
            for some in pieces(names, _A_STEP):
                self._added(config, client, asked, some, resets)
                yield

    def _check_room(
        self, config: ConsumerGroup, client: Subscriber, user: str | None, names: Sequence[bytes]
    ) -> None:
        new = sum([name not in client.wanted for name in names])
        quota = min(config.lite_quota, MAX_NAMED)
        if len(client.wanted) + new > quota:
            raise _too_many(
                f"client {client.client_id:.100} of group {config.group} has {len(client.wanted)} "
                f"lite topics: at most {quota}"
            )
        self._take(user, "subscriptions", self._subscriptions.count, MAX_SUBSCRIPTIONS, new)

    def _take(self, user: str | None, what: str, taken: int, most: int, new: int) -> None:
        """Raise RequestRefused (2018) if there are too many for some new ones, of all users or of
        this one.
        """
        if taken + new > most:
            raise _too_many(f"there are {taken} {what} of lite topics: drop some")
        is_half_full = 2 * taken >= most
        if new and not self._shares.may_take(
            user, f"lite {what}", most, is_half_full=is_half_full, count=new
        ):
            raise _too_many(f"user {user} has added too many {what} of lite topics: drop some")

    def _added(
        self,
        config: ConsumerGroup,
        client: Subscriber,
        asked: SubscriptionChange,
        names: Sequence[bytes],
        resets: list[ResetLite],
    ) -> None:
        if client.is_gone:
            return
        group, parent = client.group, client.parent
        if config.is_lite_exclusive and asked.change is Change.ADD:
            taken = [name for name in names if self._take_over(client, name)]
            if config.lite_resets(LITE_RESET_EXCLUSIVE):
                self._reset(group, parent, taken, resets)
        elif config.is_lite_exclusive:
            # A client repeats what it has: what another one took over since is not its any more,
            # even if the notice was lost.
            names = [name for name in names if not self._is_lost(client, name)]
        offsets: list[tuple[str, int]] = []
        for name in names if asked.start is not None else ():
            row = self._lite.row(parent, name)
            if row is not None and asked.start is not None:
                first = rows.begin(row, self._messages.kept_position)
                offset = asked.start.offset(first, rows.end(row))
                if offset is not None and offset != self._lite.done(group, parent, name):
                    offsets.append((name.decode(), offset))
        if offsets:
            resets.append(ResetLite(group, parent, offsets, self._wall_clock_ms()))
        # Those whose offset changes are ready when it has.
        later = {name for one in resets for name, _offset in one.offsets}
        for name in self._subscriptions.add(client, names):
            if not later or name.decode() not in later:
                client.ready[name] = None
        if client.ready:
            self._popping.wake(client)

    def _take_over(self, client: Subscriber, name: bytes) -> bool:
        """Take a lite topic from the other clients of a group; return whether one had it."""
        others = self._others(client, name)
        for other in others:
            self._subscriptions.remove(other, [name])
            _tell_lost(other, name)
        return bool(others)

    def _is_lost(self, client: Subscriber, name: bytes) -> bool:
        """Return whether another client of the group has a lite topic; then tell this one."""
        if name in client.wanted or not self._others(client, name):
            return False
        _tell_lost(client, name)
        return True

    def _others(self, client: Subscriber, name: bytes) -> list[Subscriber]:
        wanted = self._subscriptions.group(client.parent, client.group)
        found = () if wanted is None else wanted.of(name)
        return [one for one in found if one is not client and not one.is_gone]

    def _reset(
        self, group: str, parent: str, names: Sequence[bytes], resets: list[ResetLite]
    ) -> None:
        """Have a group begin with the first message of lite topics again."""
        if names:
            offsets = [(name.decode(), 0) for name in names]
            resets.append(ResetLite(group, parent, offsets, self._wall_clock_ms()))

    # --- silent clients, and all that they want ---------------------------------------------------

    def look_over(self) -> None:
        """Drop the clients that have not repeated their subscriptions."""
        self._work.begin("dropping subscriptions of lite topics", self._dropping(self._clock()))

    def _dropping(self, now: float) -> Iterator[None]:
        while (client := self._subscriptions.silent(now)) is not None:
            self._drop(client)
            yield

    def _drop(self, client: Subscriber | None) -> None:
        if client is not None:
            self._subscriptions.drop(client.key)
            self._work.begin(
                "clearing subscriptions of lite topics", self._subscriptions.clear(client)
            )
            self._popping.ask_again(client.key)

    def make_all_ready(self, clients: Sequence[Subscriber]) -> None:
        """Have lite topics looked at for messages, as if they were new to these clients."""
        for client in clients:
            self._work.later("looking for messages of lite topics", self._all_of(client))

    def _all_of(self, client: Subscriber) -> Iterator[None]:
        key = client.group, client.parent
        wanted = self._subscriptions.group(client.parent, client.group)
        if wanted is None:
            return
        if not client.is_wild:
            for some in pieces(client.wanted, _A_STEP):
                if client.is_gone:
                    return
                client.ready.update(dict.fromkeys(some))
                yield
        elif (of := self._lite.parents.get(client.parent)) is not None:
            for shard in of.topics.shards():
                for rows_of in pieces(shard.items(), _A_STEP):
                    for name, row in rows_of:
                        done = self._lite.done(*key, name)
                        if done is None or done < rows.end(row):
                            wanted.ready[name] = None
                    yield
                    self._popping.wake(client)
                    self._popping.flush()
        self._popping.wake(client)
        self._popping.flush()


def _tell_lost(client: Subscriber, name: bytes) -> None:
    """Tell a client that another one has a lite topic."""
    fields = {
        "clientId": client.client_id,
        "consumerGroup": client.group,
        "liteTopic": name.decode(),
    }
    client.origin.send_oneway(server_request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, fields))


def _too_many(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark)
