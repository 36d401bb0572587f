"""Keeps messages invisible while their clients work on them.

A client that asks for it gets no end of a message's invisible time to watch: the proxy renews it
until the client acknowledges, postpones or gives up the message, or is gone. Handles stay good, so
an acknowledgement by way of another proxy counts, and renewing then ends with a refusal.
Source: RocketMQ's proxy, DefaultReceiptHandleManager.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import floor
from typing import Final

import trio

from proxy.brokers.brokers import Brokers
from proxy.caller import Caller
from proxy.clients.sessions import Session, Sessions
from proxy.receiving.receipt_handle import ReceiptHandle
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.bodies.message_queue import MessageQueue
from remoting.net.bounded_log import about_client
from remoting.net.host_shares import HostShares
from remoting.wire.codes import RequestCode
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# A renewal begins this long before the end of an invisible time: an election fits in.
_AHEAD_S: Final = 10.0

# How long each renewal is for, the last one again and again: RocketMQ's steps.
_STEPS_S: Final = (60, 180, 300, 600, 1800, 3600)

# A message that is worked on for longer is given to others: RocketMQ's renewMaxTimeMillis.
_MOST_S: Final = 3 * 3600.0

# Renewals that fail, one after another, before a message is left to its invisible time.
_MOST_FAILURES: Final = 3
_PAUSE_S: Final = 1.0

# After which time others get what a client had that is gone, as at RocketMQ's proxy.
_LEFT_S: Final = 1

# How often the proxy looks for what is due.
_LOOK_S: Final = 1.0

# Renewals at the same time: each is a request.
_MOST_AT_ONCE: Final = 64

# Each has some 500 bytes. Messages beyond that are given again after their invisible time.
MAX_RENEWED: Final = 500_000

_Key = tuple[str, str, tuple[str, str, int, str], int]


@dataclass(slots=True, eq=False)
class _Renewed:
    """A message that is renewed.

    Attributes:
        host: of its client.
        handle: the newest one of its delivery.
        given_ms: when it was given: part of its first handle, which the client has.
        began_s: when it was given, on trio's clock.
        second: of trio's clock, in which it is due.
        steps: renewals that were done.
        failures: renewals that failed since.
        is_left: its client is gone.
    """

    client_id: str
    host: str
    group: str
    topic: str
    handle: ReceiptHandle
    given_ms: int
    began_s: float
    second: int = 0
    steps: int = 0
    failures: int = 0
    is_left: bool = False


class Renewals:
    """The messages that are renewed for clients of this proxy.

    Args:
        brokers: asked to renew.
        sessions: knows which clients are there.
    """

    def __init__(self, brokers: Brokers, sessions: Sessions) -> None:
        self._brokers = brokers
        self._sessions = sessions
        self._renewed: dict[_Key, _Renewed] = {}
        self._shares = HostShares(MAX_RENEWED)
        self._of_client: dict[str, set[_Key]] = {}
        # By the second of trio's clock in which they are due. Most are acknowledged before.
        self._due: dict[int, dict[_Key, _Renewed]] = {}
        sessions.on_end.append(self._client_gone)

    def __len__(self) -> int:
        return len(self._renewed)

    def add(self, caller: Caller, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Renew a message for a client from now on, unless too many of its host are renewed."""
        host = caller.host
        if not self._shares.has_room(host):
            _log.warning(
                "%d messages are renewed, and of host %s %d: others are given again in a minute",
                len(self._renewed),
                quoted(host),
                self._shares.of(host),
                extra=about_client(host),
            )
            return
        key = _key(group, topic, handle)
        self._forget(key)
        now = trio.current_time()
        one = _Renewed(caller.client_id, host, group, topic, handle, handle.popped_ms, now)
        self._add(key, one, _pause_s(handle.invisible_ms / 1000))

    def end(self, group: str, topic: str, handle: ReceiptHandle) -> ReceiptHandle:
        """Stop renewing a message: its consumer has settled it.

        Returns the newest handle of the delivery: RocketMQ's brokers, and ours until all members
        have the newest format, take no earlier one.
        """
        one = self._find(group, topic, handle)
        if one is None:
            return handle
        self._forget(_key(group, topic, handle))
        return one.handle

    @contextmanager
    def settling(self, group: str, topic: str, handle: ReceiptHandle) -> Iterator[ReceiptHandle]:
        """Renew a message no more while its client settles it, nor later if that succeeds.

        Its client repeats what fails for want of a leader, and has the first handle alone. So the
        newest one, which this gives, is kept until then.
        """
        one = self._find(group, topic, handle)
        try:
            yield self.end(group, topic, handle)
        except Refused as refused:
            if refused.code != Code.INVALID_RECEIPT_HANDLE:
                self._go_on(one)
            raise
        except trio.Cancelled:
            self._go_on(one)
            raise

    async def run(self) -> None:
        """Renew what is due, until cancelled."""
        limiter = trio.CapacityLimiter(_MOST_AT_ONCE)
        looked = floor(trio.current_time())
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(_LOOK_S)
                now = floor(trio.current_time())
                for second in range(looked, now):
                    for key, one in self._due.pop(second, {}).items():
                        await limiter.acquire_on_behalf_of(one)
                        nursery.start_soon(self._renew_within, limiter, key, one)
                looked = now

    async def _renew_within(self, limiter: trio.CapacityLimiter, key: _Key, one: _Renewed) -> None:
        try:
            await self._renew(key, one)
        except Exception:
            # It must not reach the other messages; this one is given again after its time.
            _log.exception("a message is renewed no more")
            self._forget(key)
        finally:
            limiter.release_on_behalf_of(one)

    async def _renew(self, key: _Key, one: _Renewed) -> None:
        if self._renewed.get(key) is not one:
            return
        if self._sessions.find(one.client_id) is None and not one.is_left:
            self._forget(key)
            return
        if trio.current_time() > one.began_s + _MOST_S:
            _log.warning(
                "client %s has worked on a message of topic %s for %.0f hours: others get it",
                quoted(one.client_id),
                quoted(one.topic),
                _MOST_S / 3600,
            )
            self._forget(key)
            return
        step_s = _LEFT_S if one.is_left else _STEPS_S[min(one.steps, len(_STEPS_S) - 1)]
        command = one.handle.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, one.group, one.topic)
        command.fields["invisibleTime"] = str(step_s * 1000)
        queue = MessageQueue(one.topic, one.handle.broker_name, one.handle.queue_id)
        try:
            reply = await self._brokers.ask(None, queue, command, "renew an invisible time")
            one.handle = one.handle.hidden(reply)
        except Refused as refused:
            one.failures += 1
            if refused.code == Code.INTERNAL_SERVER_ERROR or one.failures >= _MOST_FAILURES:
                # Acknowledged by way of another proxy, or given again.
                _log.info("a message is renewed no more: %s", quoted(refused))
                self._forget(key)
            elif self._renewed.get(key) is one:
                self._plan(key, one, _PAUSE_S)
        else:
            one.failures = 0
            one.steps += 1
            if one.is_left:
                self._forget(key)
            elif self._renewed.get(key) is one:
                self._plan(key, one, _pause_s(step_s))

    def _find(self, group: str, topic: str, handle: ReceiptHandle) -> _Renewed | None:
        """Return the delivery that a client's handle is of; None for an earlier delivery."""
        one = self._renewed.get(_key(group, topic, handle))
        return one if one is not None and handle.popped_ms == one.given_ms else None

    def _add(self, key: _Key, one: _Renewed, pause_s: float) -> None:
        self._renewed[key] = one
        self._shares.take(one.host)
        self._of_client.setdefault(one.client_id, set()).add(key)
        self._plan(key, one, pause_s)

    def _go_on(self, one: _Renewed | None) -> None:
        """Renew a message again, as it was planned."""
        if one is None:
            return
        key = _key(one.group, one.topic, one.handle)
        if key not in self._renewed:  # by a later delivery
            self._add(key, one, max(one.second - trio.current_time(), 0.0))

    def _plan(self, key: _Key, one: _Renewed, pause_s: float) -> None:
        self._unplan(key, one)
        one.second = floor(trio.current_time() + pause_s)
        self._due.setdefault(one.second, {})[key] = one

    def _unplan(self, key: _Key, one: _Renewed) -> None:
        due = self._due.get(one.second)
        if due is not None and due.get(key) is one:
            del due[key]
            if not due:
                del self._due[one.second]

    def _forget(self, key: _Key) -> None:
        one = self._renewed.pop(key, None)
        if one is not None:
            self._unplan(key, one)
            self._shares.give_back(one.host)
            keys = self._of_client.get(one.client_id)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._of_client[one.client_id]

    def _client_gone(self, session: Session) -> None:
        """Give the messages of a client to others: their invisible times may be an hour by now."""
        for key in self._of_client.get(session.client_id, ()):
            one = self._renewed[key]
            one.is_left = True
            self._plan(key, one, 0.0)


def _key(group: str, topic: str, handle: ReceiptHandle) -> _Key:
    queue = handle.broker_name, handle.kind, handle.queue_id, handle.lite_topic
    return group, topic, queue, handle.offset


def _pause_s(invisible_s: float) -> float:
    return max(invisible_s - _AHEAD_S, invisible_s / 2)
