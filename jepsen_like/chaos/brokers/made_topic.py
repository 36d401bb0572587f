"""The topic of a run, for clients that look for it before the first message is sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import trio

from dledger_mq import Admin, PullConsumer
from dledger_mq.errors import MessagingError

_log = logging.getLogger(__name__)

QUEUES: Final = 4
PAUSE_S: Final = 0.5


class MadeTopic:
    """A topic that is made once, with a consumer group that begins with its first message.

    Args:
        nameservers: of the brokers.
        topic: its name.
        group: None for groups that say themselves where they begin.
        message_type: of the messages that the topic takes; None for plain ones.
        in_order: whether the group consumes in order by proxies.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        topic: str,
        group: str | None = None,
        *,
        message_type: str | None = None,
        in_order: bool = False,
    ) -> None:
        self._nameservers = nameservers
        self._topic = topic
        self._group = group
        self._message_type = message_type
        self._in_order = in_order
        self._turn = trio.Lock()
        self.is_made = False

    async def made(self) -> None:
        """Make it, again and again while that fails: consumers look for it only now and then."""
        async with self._turn:
            while not self.is_made:
                try:
                    await self._make()
                    self.is_made = True
                except MessagingError as error:
                    _log.info("the topic is not made yet: %s", error)
                    await trio.sleep(PAUSE_S)

    async def _make(self) -> None:
        async with Admin(nameservers=self._nameservers) as admin:
            await admin.create_topic(self._topic, queues=QUEUES, message_type=self._message_type)
            if self._group is not None and self._in_order:
                await admin.group(self._group).create(in_order=True)
        if self._group is not None:
            async with PullConsumer(self._group, nameservers=self._nameservers) as consumer:
                for queue in await consumer.queues(self._topic):
                    await consumer.commit(queue, 0)
