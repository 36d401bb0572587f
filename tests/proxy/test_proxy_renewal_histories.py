"""Random histories of clients and messages that are renewed: who has what, in virtual time.

The broker is a model: a message is one client's until its time is over, and its handles of that
delivery are good. Whatever happens, a message that a living client works on is nobody else's, an
acknowledgement by the first handle counts, and what a proxy keeps ends with its clients.
"""

from __future__ import annotations

from random import Random

import pytest
import trio
from trio.testing import MockClock

from proxy.receiving.receipt_handle import read_handle
from proxy.wire.messages_pb2 import Code, HeartbeatRequest, NotifyClientTerminationRequest
from remoting.message.record import encode_record
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.examples import seeds
from tests.proxy.grpc_client import GrpcClient
from tests.proxy.real_proxy import acknowledging, changing, receiving
from tests.proxy.scripted_brokers import ScriptedBrokers, record, scripted_proxy

TOPIC = "Orders"
_STEPS = 60


class ModelBroker:
    """One queue of messages, which are given to whoever asks when they are visible.

    Attributes:
        visible_at: of each message that is not acknowledged, by its offset.
        given_ms: the times of the handles of its delivery.
    """

    def __init__(self, brokers: ScriptedBrokers, random: Random) -> None:
        self.visible_at: dict[int, float] = {}
        self.times: dict[int, set[str]] = {}
        self.is_led = True
        self._random = random
        self._last_ms = 0
        brokers.answers[RequestCode.POP_MESSAGE] = self._pop
        brokers.answers[RequestCode.ACK_MESSAGE] = self._acknowledge
        brokers.answers[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = self._change

    def _now_ms(self) -> int:
        """No two are equal."""
        self._last_ms = max(self._last_ms + 1, round(trio.current_time() * 1000))
        return self._last_ms

    def _hide(self, offset: int, command: Command) -> dict[str, str]:
        invisible_ms = int(command.fields["invisibleTime"])
        popped_ms = str(self._now_ms())
        self.visible_at[offset] = trio.current_time() + invisible_ms / 1000
        self.times[offset].add(popped_ms)
        return {"popTime": popped_ms, "invisibleTime": str(invisible_ms), "reviveQid": "0"}

    def _pop(self, command: Command) -> Command:
        now = trio.current_time()
        ready = [offset for offset, due in self.visible_at.items() if due <= now]
        if not ready or not self.is_led:
            return command.reply(ResponseCode.POLLING_TIMEOUT)
        offset = self._random.choice(ready)
        self.times[offset] = set()
        fields = self._hide(offset, command)
        reply = command.reply(0, fields)
        reply.body = encode_record(record(TOPIC, offset, b"%d" % offset))
        return reply

    def _refusal(self, command: Command) -> Command | None:
        if not self.is_led:
            return command.reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark="no leader")
        offset = int(command.fields["offset"])
        popped_ms = command.fields["extraInfo"].split()[1]
        is_held = self.visible_at.get(offset, 0.0) > trio.current_time()
        if not is_held or popped_ms not in self.times[offset]:
            return command.reply(ResponseCode.NO_MESSAGE, remark="given again")
        return None

    def _acknowledge(self, command: Command) -> Command:
        refusal = self._refusal(command)
        if refusal is None:
            del self.visible_at[int(command.fields["offset"])]
        return refusal or command.reply()

    def _change(self, command: Command) -> Command:
        refusal = self._refusal(command)
        if refusal is not None:
            return refusal
        return command.reply(0, self._hide(int(command.fields["offset"]), command))


class Worker:
    """A client, and the messages that it works on, by their first handles."""

    def __init__(self, client: GrpcClient) -> None:
        self.client = client
        self.works_on: dict[int, str] = {}


async def _step(random: Random, broker: ModelBroker, workers: list[Worker], calm: bool) -> None:
    worker = random.choice(workers)
    client = worker.client
    match random.choice(("receive", "receive", "acknowledge", "change", "wait", "leave")):
        case "receive":
            got = await client.receive(receiving(TOPIC, auto_renew=True))
            for message in got.messages:
                offset = message.system_properties.queue_offset
                others = [one for one in workers if offset in one.works_on]
                assert not others, f"message {offset} is another's"
                worker.works_on[offset] = message.system_properties.receipt_handle
        case "acknowledge" if worker.works_on:
            offset, handle = worker.works_on.popitem()
            done = await client.unary(acknowledging(TOPIC, handle))
            assert done.status.code == Code.OK, done
        case "change" if worker.works_on:
            offset, handle = worker.works_on.popitem()
            seconds = random.choice((0, 5, 20))
            done = await client.unary(changing(TOPIC, handle, seconds))
            assert done.status.code == Code.OK, done
            assert read_handle(done.receipt_handle).offset == offset
        case "leave" if random.random() < 0.3:
            await client.unary(NotifyClientTerminationRequest())
            worker.works_on.clear()
        case _:
            for _ in range(random.randrange(1, 8)):
                await trio.sleep(random.choice((5, 50)))
                broker.is_led = calm or random.random() < 0.9
                if not broker.is_led:
                    await trio.sleep(2)
                    broker.is_led = True
                for one in workers:
                    await one.client.unary(HeartbeatRequest())
                for one in workers:
                    for offset in one.works_on:
                        assert broker.visible_at[offset] > trio.current_time()


@pytest.mark.parametrize("seed", seeds(30, 1))
async def test_a_message_is_its_clients_as_long_as_it_lives(
    seed: int, autojump_clock: MockClock
) -> None:
    random = Random(seed)
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        broker = ModelBroker(here.brokers, random)
        broker.visible_at = dict.fromkeys(range(40), 0.0)
        workers = [Worker(await here.client()) for _ in range(4)]
        for worker in workers:
            await worker.client.unary(HeartbeatRequest())
        began = trio.current_time()
        for _ in range(_STEPS):
            await _step(random, broker, workers, calm=seed % 3 == 0)
            if trio.current_time() - began > 3000:
                break
        working = sum(len(worker.works_on) for worker in workers)
        assert len(here.proxy.renewals) >= working
        for worker in workers:
            # One that left, and received again since, is unknown until it is heard of.
            await worker.client.unary(HeartbeatRequest())
            await worker.client.unary(NotifyClientTerminationRequest())
        await trio.sleep(10)
        assert len(here.proxy.renewals) == 0
        assert here.proxy.renewals._due == {}
        assert here.proxy.renewals._of_client == {}
