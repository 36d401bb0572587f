"""Writes what a producer or consumer does with messages to a trace topic, in the background."""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import trio

from dledger.wake_up import WakeUp
from dledger_mq.connection.client import Client
from dledger_mq.connection.client_use import ClientUse
from dledger_mq.connection.lifetime import Background, Lifetime
from dledger_mq.connection.this_process import now_ms
from dledger_mq.errors import SendFailed
from dledger_mq.message import Message, TransactionState, check_topic
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.sending.composer import Composer
from dledger_mq.sending.send_pipeline import SendPipeline
from dledger_mq.sending.sending import Sending, SendOutcome
from dledger_mq.tracing.trace_steps import (
    TraceStep,
    began_steps,
    ended_steps,
    sent_steps,
    transaction_step,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.message.topic_names import TRACE_TOPIC

_log = logging.getLogger(__name__)

# RocketMQ's limits: the steps that wait to be written, and the size of one trace message.
MAX_WAITING_STEPS: Final = 2048
MAX_STEPS: Final = 100
MAX_CHARACTERS: Final = 128_000

# A trace message has the ids of all its steps as keys, in properties of at most 32,767 bytes.
MAX_KEYS_CHARACTERS: Final = 8_000

# Steps of this time go together.
GATHER_S: Final = 0.5

# How long the end of a producer or consumer waits until its last steps are written.
LAST_STEPS_S: Final = 1.0

SEND_S: Final = 5.0
_MAX_IN_FLIGHT: Final = 8
_MAX_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024


class TraceWriter:
    """Writes steps of messages. The end of its ``async with`` block writes the last ones.

    It never delays the producer or consumer: steps that come faster than they are written are
    dropped, and so are those that no broker takes in time; `dropped` counts them. Messages of the
    trace topic have no steps.
    """

    def __init__(
        self, client: Client, group: str, topic: str, lifetime: Lifetime | None = None
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._lifetime = lifetime
        self.dropped = 0
        self._steps: deque[TraceStep] = deque()
        self._has_steps = WakeUp()
        self._stack = AsyncExitStack()
        self._pipeline = SendPipeline(
            client, f"_INNER_TRACE_PRODUCER-{group}", _MAX_IN_FLIGHT, _MAX_IN_FLIGHT_BYTES
        )
        self._composer = Composer(client.identity, now_ms)

    async def __aenter__(self) -> "TraceWriter":
        nursery = await self._stack.enter_async_context(
            Background(self._lifetime, until_the_end=True)
        )
        nursery.start_soon(self._pipeline.run)
        nursery.start_soon(self._write_forever)
        self._client.routes.watch(self._pipeline.route_changed)
        return self

    async def __aexit__(self, *raised: object) -> None:
        with trio.move_on_after(LAST_STEPS_S, shield=True):
            await self._write_waiting()
            await self._pipeline.drain()
        self._client.routes.unwatch(self._pipeline.route_changed)
        self._pipeline.close()
        self._drop(len(self._steps), "the block has ended")
        await self._stack.aclose()

    def sent(self, sending: Sending, outcome: SendOutcome, took_s: float) -> None:
        """Write the outcome of a send, unless no attempt was made."""
        if sending.message.topic != self._topic and sending.attempts:
            address = self._address(sending.queue)
            self._add(sent_steps(self._group, sending, outcome, address, took_s))

    def call_began(self, messages: Sequence[ReceivedMessage]) -> str:
        """Write that messages of one queue are handed out; return the call's id for
        `call_ended`.
        """
        if not messages or messages[0].topic == self._topic:
            return ""
        request = self._composer.new_id()
        self._add(began_steps(self._group, request, messages, now_ms()))
        return request

    def call_ended(
        self,
        request: str,
        messages: Sequence[ReceivedMessage],
        took_s: float,
        *,
        is_consumed: bool,
    ) -> None:
        if request:
            at_ms = now_ms()
            group = self._group
            self._add(ended_steps(group, request, messages, at_ms, took_s, is_consumed=is_consumed))

    def transaction_ended(
        self,
        message: Message | ReceivedMessage,
        message_id: str,
        queue: MessageQueue,
        state: TransactionState,
        *,
        from_check: bool,
    ) -> None:
        at_ms, address = now_ms(), self._address(queue)
        step = transaction_step(
            self._group, message, message_id, state, at_ms, address, from_check=from_check
        )
        self._add([step])

    def _address(self, queue: MessageQueue | None) -> str:
        route = None if queue is None else self._client.routes.known(queue.topic)
        if route is None or queue is None:
            return ""
        return route.masters.get(queue.broker_name, "")

    def _add(self, steps: Sequence[TraceStep]) -> None:
        room = MAX_WAITING_STEPS - len(self._steps)
        self._steps.extend(steps[:room])
        self._has_steps.set()
        self._drop(len(steps) - room, "they come faster than they are written")

    async def _write_forever(self) -> None:
        while True:
            await self._has_steps.wait()
            await trio.sleep(GATHER_S)
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        while self._steps:
            steps = self._next_message()

            def settled(outcome: SendOutcome, count: int = len(steps)) -> None:
                if isinstance(outcome, SendFailed):
                    self._drop(count, str(outcome))

            words = dict.fromkeys(word for step in steps for word in step.found_by)
            body = "".join(step.record for step in steps).encode("utf-8", "backslashreplace")
            message = Message(self._topic, body, keys=list(words))
            sending = self._composer.message(message, None, SEND_S, settled)
            if not self._pipeline.submit(sending, self._pipeline.now()):
                await self._pipeline.wait_for_start(sending)
        await trio.lowlevel.checkpoint()

    def _next_message(self) -> list[TraceStep]:
        """Take the steps of one trace message: at least one."""
        steps = [self._steps.popleft()]
        characters = len(steps[0].record)
        in_keys = sum(map(len, steps[0].found_by))
        while self._steps and len(steps) < MAX_STEPS:
            following = self._steps[0]
            characters += len(following.record)
            in_keys += sum(len(word) + 1 for word in following.found_by)
            if characters > MAX_CHARACTERS or in_keys > MAX_KEYS_CHARACTERS:
                break
            steps.append(self._steps.popleft())
        return steps

    def _drop(self, count: int, why: str) -> None:
        if count > 0:
            if not self.dropped:  # an outage drops thousands
                _log.warning(
                    "%d steps of group %s are not in the trace: %s; further ones are not logged",
                    count,
                    self._group,
                    why,
                )
            self.dropped += count


async def open_trace(stack: AsyncExitStack, use: ClientUse, topic: str) -> TraceWriter | None:
    """Return a writer that is open as long as the stack; None without a topic."""
    if not topic:
        return None
    writer = TraceWriter(use.client, use.group, topic, use.lifetime)
    return await stack.enter_async_context(writer)


def trace_topic(trace: bool | str) -> str:
    """Return the topic of a `trace` option: RocketMQ's for True, "" for False. Raises
    InvalidMessage.
    """
    topic = TRACE_TOPIC if trace is True else trace or ""
    if topic:
        check_topic(topic)
    return topic
