"""Frames that real clients sent, against a running broker over a plain socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from remoting.bodies.consumer_group import decode_consumer_list, decode_locked_queues
from remoting.message.record import decode_records
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, decode_frame
from tests.broker.one_broker import running_broker

DATA = Path(__file__).parents[1] / "data"


class Wire:
    """A plain socket that sends captured frames."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self._commands: list[Command] = []

    async def ask(self, name: str) -> Command:
        """Send the frame and wait for its reply; requests of the broker are passed over."""
        frame = (DATA / f"{name}.bin").read_bytes()
        opaque = decode_frame(frame).opaque
        await self._stream.send_all(frame)
        with trio.fail_after(5):
            while True:
                for command in self._commands:
                    if command.is_response and command.opaque == opaque:
                        self._commands.remove(command)
                        assert command.fields is not None
                        return command
                data = await self._stream.receive_some(65536)
                assert data, "the broker closed the connection"
                self._commands += self._decoder.feed(bytes(data))


@asynccontextmanager
async def wired(directory: Path) -> AsyncIterator[tuple[Wire, Wire]]:
    """A running broker, and two connections to it."""
    async with running_broker(directory) as (broker, _nursery):
        address = broker.config.address
        async with (
            await trio.open_tcp_stream(address.host, address.port) as one,
            await trio.open_tcp_stream(address.host, address.port) as other,
        ):
            yield Wire(one), Wire(other)


async def test_the_c_clients_session_goes_as_it_went_when_it_was_recorded(tmp_path: Path) -> None:
    async with wired(tmp_path) as (wire, _other):
        sent = await wire.ask("cpp-SEND_MESSAGE")
        assert sent.code == 0
        assert len(sent.fields["msgId"]) == 32
        assert (await wire.ask("cpp-HEART_BEAT")).code == 0
        members = decode_consumer_list((await wire.ask("cpp-GET_CONSUMER_LIST_BY_GROUP")).body)
        assert members == ["24485-127.0.0.1@DEFAULT"]
        assert (await wire.ask("cpp-QUERY_CONSUMER_OFFSET")).fields == {"offset": "0"}
        assert (await wire.ask("cpp-GET_MAX_OFFSET")).fields == {"offset": "1"}
        assert (await wire.ask("cpp-UPDATE_CONSUMER_OFFSET")).code == 0
        assert (await wire.ask("cpp-QUERY_CONSUMER_OFFSET")).fields == {"offset": "2"}
        locked = decode_locked_queues((await wire.ask("cpp-LOCK_BATCH_MQ")).body)
        assert [queue.queue_id for queue in locked] == [0]
        assert (await wire.ask("cpp-UNLOCK_BATCH_MQ")).code == 0
        assert (await wire.ask("cpp-UNREGISTER_CLIENT")).code == 0
        # It names a place in another broker's log.
        assert (await wire.ask("cpp-CONSUMER_SEND_MSG_BACK")).code == 1


async def test_a_waiting_pull_is_answered_by_another_clients_message(tmp_path: Path) -> None:
    async with wired(tmp_path) as (producer, consumer):
        await producer.ask("node-SEND_MESSAGE_V2")  # makes the topic, with a message in queue 3
        replies: list[Command] = []

        async def pull() -> None:
            replies.append(await consumer.ask("node-PULL_MESSAGE"))

        async with trio.open_nursery() as waiting:
            waiting.start_soon(pull)
            await producer.ask("node-HEART_BEAT")
            assert (await producer.ask("cpp-SEND_MESSAGE")).code == 0
        (message,) = decode_records(replies[0].body)
        assert message.body == b"sync-body"
        assert message.property_map()["KEYS"] == "k"
        assert (await consumer.ask("cpp-GET_MAX_OFFSET")).fields == {"offset": "1"}


async def test_the_javascript_clients_session_goes_as_it_went(tmp_path: Path) -> None:
    async with wired(tmp_path) as (wire, _other):
        sent = await wire.ask("node-SEND_MESSAGE_V2")
        assert (sent.code, sent.fields["queueId"]) == (0, "3")
        assert (await wire.ask("node-HEART_BEAT")).code == 0
        members = decode_consumer_list((await wire.ask("node-GET_CONSUMER_LIST_BY_GROUP")).body)
        assert members == ["192.0.2.2@18841"]
        assert (await wire.ask("node-QUERY_CONSUMER_OFFSET")).fields == {"offset": "0"}
        assert (await wire.ask("node-UPDATE_CONSUMER_OFFSET")).code == 0
        assert (await wire.ask("node-QUERY_CONSUMER_OFFSET")).fields == {"offset": "1"}
        assert (await wire.ask("node-GET_MAX_OFFSET")).fields == {"offset": "0"}
        assert (await wire.ask("node-CONSUMER_SEND_MSG_BACK")).code == 1
        assert (await wire.ask("node-UNREGISTER_CLIENT")).code == 0


async def test_the_java_clients_frames_are_answered_in_their_own_header_format(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as (wire, _other):
        for name in ("java-SEND_MESSAGE_V2", "java4-SEND_MESSAGE_V2", "javabinary-SEND_MESSAGE_V2"):
            sent = await wire.ask(name)
            assert sent.code == 0
            assert sent.header_format == int(name.startswith("javabinary"))
        batch = await wire.ask("java-SEND_BATCH_MESSAGE")
        ids = batch.fields["msgId"].split(",")
        assert len(ids) > 1
        assert {len(one) for one in ids} == {32}
        assert (await wire.ask("java4-HEART_BEAT")).code == 0
        assert decode_consumer_list((await wire.ask("java4-GET_CONSUMER_LIST_BY_GROUP")).body)
        assert (await wire.ask("java4-QUERY_CONSUMER_OFFSET")).fields["offset"] == "0"
        locked = decode_locked_queues((await wire.ask("java-LOCK_BATCH_MQ")).body)
        assert [queue.broker_name for queue in locked] == ["rec-a"]
        assert (await wire.ask("java-UNLOCK_BATCH_MQ")).code == 0
        assert (await wire.ask("java-CONSUMER_SEND_MSG_BACK")).code == 1
        assert (await wire.ask("java-LITE_PULL_MESSAGE")).code == 17
        assert (await wire.ask("java-UNREGISTER_CLIENT")).code == 0
