"""One `async for` loop over a consumer's messages."""

import trio

from dledger_mq.connection.lifetime import Lifetime
from dledger_mq.consuming.listening import Delivery, Listening
from dledger_mq.errors import NotIterable
from dledger_mq.received_message import ReceivedMessage


class Iteration:
    """A loop, and the message that it has. Made by `async for message in consumer`.

    The message is acknowledged when the loop asks for the next one. If the loop ends otherwise,
    Python does not tell whether by `break` or by an error, so the message counts as not consumed:
    the next loop, which replaces this one, first gives it back, and the end of the consumer leaves
    it to the next member.
    """

    def __init__(
        self, listening: Listening, before: "Iteration | None", lifetime: Lifetime
    ) -> None:
        self._listening = listening
        self._lifetime = lifetime
        self._in_hand: Delivery | None = None
        self._to_give_back: Delivery | None = None
        self._is_replaced = False
        self._is_over = False
        self._is_waiting = False
        self._scope = trio.CancelScope()
        if before is not None:
            before._is_replaced = before._is_over = True
            before._scope.cancel()
            self._to_give_back = before._in_hand or before._to_give_back
            before._in_hand = before._to_give_back = None

    def __aiter__(self) -> "Iteration":
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Acknowledge the message of this loop, and wait for the next one.

        Cancelling loses no message: the one before is acknowledged, and the loop has none.

        Raises:
            NotIterable: another task waits in this loop, or a newer loop has begun.
            ClientClosed: the consumer has ended by an error.
        """
        if self._is_waiting:
            raise NotIterable("another task waits for its next message; use a listener instead")
        self._is_waiting = True
        try:
            self.acknowledge()
            await trio.lowlevel.checkpoint()
            await self._finish_giving_back()
            if not self._is_over:
                with trio.CancelScope() as self._scope:
                    self._in_hand = await self._listening.take()
        finally:
            self._is_waiting = False
        if self._in_hand is not None:
            return self._in_hand.messages[0]
        if self._is_replaced:
            raise NotIterable("a newer loop has begun; only one at a time gets messages")
        if self._lifetime.failure is not None:
            raise self._lifetime.closed()
        raise StopAsyncIteration

    def acknowledge(self) -> None:
        """Record that the message of this loop, if it has one, is consumed."""
        delivery, self._in_hand = self._in_hand, None
        if delivery is not None:
            self._listening.succeed(delivery)
            self._listening.release(delivery)

    async def give_back(self) -> None:
        """Send the message of this loop back, if it has one.

        If this is cancelled, the next call of `__anext__` or `give_back` sends it back first.
        """
        if self._in_hand is not None:
            self._to_give_back, self._in_hand = self._in_hand, None
        await trio.lowlevel.checkpoint()
        await self._finish_giving_back()

    def close(self) -> None:
        """End the loop where it waits; its message stays unsettled."""
        self._is_over = True
        self._scope.cancel()
        for delivery in (self._in_hand, self._to_give_back):
            if delivery is not None:
                self._listening.release(delivery)
        self._in_hand = self._to_give_back = None

    async def _finish_giving_back(self) -> None:
        while self._to_give_back is not None:
            delivery = self._to_give_back
            await self._listening.fail(delivery)
            self._listening.release(delivery)
            if self._to_give_back is delivery:
                self._to_give_back = None
