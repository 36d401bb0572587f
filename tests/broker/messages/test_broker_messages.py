from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from broker.formats.commands import RaiseFormat
from broker.limits import BrokerLimits
from broker.log.entry import LARGE_ENTRIES_VERSION, encode_log_command
from broker.topics.state import TOPICS
from remoting.bodies.consumer_group import QueueLock, encode_queue_lock
from remoting.bodies.message_queue import MessageQueue
from remoting.message.batch import MAX_BATCH_MESSAGES, BatchMessage, encode_batch_body
from remoting.message.message_id import message_id, parse_message_id
from remoting.message.record import MessageRecord, decode_record, decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.delay.delaying_broker import delaying
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, send_fields, served


async def test_a_message_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        reply = await client.send("T", b"hello", 2, tags="TagA", keys="k1 k2", h=7, f=1)
        assert reply.code == ResponseCode.SUCCESS
        assert reply.fields["queueId"] == "2"
        assert reply.fields["queueOffset"] == "0"
        (message,) = await client.messages("T", 2)
        assert message.body == b"hello"
        assert (message.topic, message.queue_id, message.queue_offset) == ("T", 2, 0)
        assert (message.flag, message.system_flag) == (7, 1)
        assert message.property_map()["TAGS"] == "TagA"
        assert message.store_timestamp == START_MS
        host, port = client.address.split(":")
        assert (message.store_host, message.store_port) == (host, int(port))
        assert message.born_host == "127.0.0.1"
        assert reply.fields["msgId"] == message_id(host, int(port), message.physical_offset)


@pytest.mark.feature("F11")
async def test_a_topic_made_by_its_first_message_has_the_queues_the_client_asked_for(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x", 3)
        await client.send("U", b"x", 7, d=100)
        topics = broker.machine.state[TOPICS].configs
        assert (topics["T"].read_queue_count, topics["T"].permission) == (4, 6)
        assert topics["U"].write_queue_count == 8
        reply = await client.send("T", b"x", 4)
        assert reply.code == ResponseCode.INVALID_PARAMETER


async def test_sends_that_wait_for_one_new_topic_are_all_stored_in_order(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        replies: list[int] = []

        async def send(number: int) -> None:
            replies.append((await client.send("T", b"%d" % number)).code)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(send, number)
        assert replies == [0] * 20
        messages = await client.messages("T")
        assert [message.queue_offset for message in messages] == list(range(20))
        assert {message.body for message in messages} == {b"%d" % n for n in range(20)}


async def test_without_automatic_creation_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, auto_create_topics=False) as client:
        assert (await client.send("T", b"x")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_send_that_cannot_be_stored_is_refused_and_the_next_one_is_not(
    tmp_path: Path,
) -> None:
    refused: list[tuple[str, dict[str, Any], int]] = [
        ("bad name", {}, ResponseCode.INVALID_PARAMETER),
        ("x" * 128, {}, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION),
        ("T", {"e": 99}, ResponseCode.INVALID_PARAMETER),
        ("T", {"i": "TRAN_MSG\x01true\x02"}, ResponseCode.INVALID_PARAMETER),
        ("T", {"i": "DELAY\x01soon\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ("T", {"i": "A\x01" + "x" * 32767 + "\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ("T", {"i": "A\x01" + "x" * 32750 + "\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ("T", {"h": 1 << 40}, ResponseCode.SYSTEM_ERROR),
        ("T", {"j": 1 << 31}, ResponseCode.SYSTEM_ERROR),
        ("T", {"e": "1_0"}, ResponseCode.SYSTEM_ERROR),
        ("T", {"e": 1 << 32}, ResponseCode.SYSTEM_ERROR),
        ("T", {"e": "one"}, ResponseCode.SYSTEM_ERROR),
        ("%RETRY%nobody", {}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ]
    async with served(tmp_path) as client:
        for topic, more, code in refused:
            reply = await client.send(topic, b"x", **more)
            assert (reply.code, bool(reply.remark)) == (code, True), (topic, more)
            assert (await client.send("T", b"x")).code == 0
        assert (await client.send("T", b"x", i="DELAY\x010\x02")).code == 0
        assert len(await client.messages("T")) == len(refused) + 1


async def test_a_message_of_four_mebibytes_is_stored_and_a_longer_one_is_refused(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        large_entries = encode_log_command(RaiseFormat(LARGE_ENTRIES_VERSION))
        await broker.node.append(large_entries)
        client = Client(nursery, str(broker.config.address))
        limit = 4 * 1024 * 1024
        assert (await client.send("T", bytes(limit + 1))).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await client.send("T", bytes(limit))).code == 0
        assert len((await client.messages("T"))[0].body) == limit


@pytest.mark.feature("F43")
async def test_a_batch_lies_in_one_queue_with_offsets_in_a_row(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        batch = [BatchMessage(b"%d" % n, b"TAGS\x01t\x02") for n in range(5)]
        body = encode_batch_body(batch)
        reply = await client.ask(320, body, **send_fields("T", 1, m="true"))
        ids = [parse_message_id(one) for one in reply.fields["msgId"].split(",")]
        messages = await client.messages("T", 1)
        assert [message.body for message in messages] == [b"%d" % n for n in range(5)]
        assert [one.physical_offset for one in ids] == [m.physical_offset for m in messages]
        assert [message.queue_offset for message in messages] == list(range(5))
        assert reply.fields["queueOffset"] == "0"
        keys = {message.property_map()["UNIQ_KEY"] for message in messages}
        assert len(keys) == 5, "each message without a key is given one of its own"


async def test_a_popped_message_is_sent_on_without_the_handle_that_it_had(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        mine = "POP_CK\x010 1 2 3 0 b 0 0\x02a\x01b\x02"
        assert (await client.send("T", b"x", i=mine)).code == 0
        body = encode_batch_body([BatchMessage(b"y", mine.encode()), BatchMessage(b"z")])
        assert (await client.ask(320, body, **send_fields("T", 0, m="true"))).code == 0
        one, two, _three = await client.messages("T")
        assert "POP_CK" not in one.property_map() | two.property_map()
        assert one.property_map()["a"] == two.property_map()["a"] == "b"


async def test_the_batch_flag_of_the_c_client_is_understood(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        body = encode_batch_body([BatchMessage(b"a"), BatchMessage(b"b")])
        await client.send("T", b"first")
        reply = await client.ask(
            10,
            body,
            producerGroup="p",
            topic="T",
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties="WAIT\x01true\x02",
            reconsumeTimes="0",
            unitMode="0",
            batch="1",
        )
        assert reply.code == 0
        assert [m.body for m in await client.messages("T")] == [b"first", b"a", b"b"]


async def test_a_broken_or_too_long_batch_stores_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        good = encode_batch_body([BatchMessage(b"a"), BatchMessage(b"b")])
        for body in (good[:-1], b"", good * MAX_BATCH_MESSAGES):
            reply = await client.ask(320, body, **send_fields("T"))
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await client.pull("T", 0)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_negative_queue_is_chosen_by_the_broker_in_turn(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        used = [(await client.send("T", b"x", -1)).fields["queueId"] for _ in range(8)]
        assert sorted(used) == sorted(["0", "1", "2", "3"] * 2)


async def test_store_times_never_go_back_with_the_clock(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        await client.send("T", b"x")
        clock.now_ms -= 5000
        await client.send("T", b"y")
        stored = [message.store_timestamp for message in await client.messages("T")]
        assert stored == [START_MS, START_MS]


@pytest.mark.feature("F58")
async def test_a_restarted_broker_goes_on_where_it_was(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"one", tags="A")
        await client.heartbeat("c", "g", "T")
        await client.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=1)
    async with served(tmp_path) as client:
        await client.send("T", b"two")
        assert [message.body for message in await client.messages("T")] == [b"one", b"two"]
        reply = await client.ask(14, consumerGroup="g", topic="T", queueId=0)
        assert reply.fields == {"offset": "1"}


@pytest.mark.feature("F15")
async def test_sends_above_what_the_log_takes_at_once_wait_their_turn(tmp_path: Path) -> None:
    limits = BrokerLimits(append_entries=3)
    async with served(tmp_path, limits=limits) as client:
        await client.send("T", b"first")
        codes: list[int] = []

        async def send() -> None:
            codes.append((await client.send("T", b"x")).code)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(send)
        assert codes == [0] * 50
        assert (await client.ask(30, topic="T", queueId=0)).fields == {"offset": "51"}


# --- failed consumption ---------------------------------------------------------------------------


async def send_back(client: Client, message: MessageRecord, **more: Any) -> int:
    fields = {"group": "g", "offset": message.physical_offset, "delayLevel": 0}
    return (await client.ask(36, **{**fields, **more})).code


@pytest.mark.feature("F38")
async def test_a_message_sent_back_comes_again_after_the_time_of_its_ladder(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        client = one.client
        await client.send("T", b"again", tags="A", f=1, h=3)
        (first,) = await client.messages("T")
        assert await send_back(client, first) == 0
        one.at(9_999)
        assert await one.bodies("%RETRY%g") == []
        one.at(10_000)
        assert await one.bodies("%RETRY%g") == [b"again"]
        (again,) = await client.messages("%RETRY%g")
        assert (again.body, again.system_flag, again.flag) == (b"again", 1, 3)
        assert (again.reconsume_times, again.born_timestamp) == (1, first.born_timestamp)
        assert again.born_port == first.born_port
        properties = again.property_map()
        assert (properties["RETRY_TOPIC"], properties["TAGS"]) == ("T", "A")
        origin = parse_message_id(properties["ORIGIN_MESSAGE_ID"])
        assert origin.physical_offset == first.physical_offset
        assert await send_back(client, again) == 0
        one.at(39_999)
        assert len(await one.bodies("%RETRY%g")) == 1
        one.at(40_000)
        assert len(await one.bodies("%RETRY%g")) == 2
        third = (await client.messages("%RETRY%g"))[1]
        assert third.reconsume_times == 2
        assert third.property_map()["ORIGIN_MESSAGE_ID"] == properties["ORIGIN_MESSAGE_ID"]
        assert third.property_map()["RETRY_TOPIC"] == "T"


@pytest.mark.parametrize(("level", "delay_ms"), [(1, 1_000), (18, 7_200_000), (99, 7_200_000)])
async def test_a_consumer_may_say_when_a_message_comes_again(
    tmp_path: Path, level: int, delay_ms: int
) -> None:
    async with delaying(tmp_path) as one:
        await one.client.send("T", b"again")
        (first,) = await one.client.messages("T")
        assert await send_back(one.client, first, delayLevel=level) == 0
        one.at(delay_ms - 1)
        assert await one.bodies("%RETRY%g") == []
        one.at(delay_ms)
        assert await one.bodies("%RETRY%g") == [b"again"]


@pytest.mark.feature("F39")
@pytest.mark.parametrize("more", [{"delayLevel": -1}, {"maxReconsumeTimes": 0}])
async def test_a_hopeless_message_goes_to_the_dead_letters(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"bad")
        (first,) = await client.messages("T")
        assert await send_back(client, first, **more) == 0
        (dead,) = await client.messages("%DLQ%g")
        assert dead.body == b"bad"
        assert dead.property_map()["DLQ_ORIGIN_TOPIC"] == "T"
        assert (await client.pull("%RETRY%g", 0)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.feature("F45")
async def test_a_place_where_no_message_begins_cannot_be_sent_back_or_viewed(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        # The body of the second message is itself a record, as an attacker would write it.
        await client.send("T", b"x")
        (real,) = await client.messages("T")
        forged = (await client.pull("T", 0)).body
        await client.send("T", forged)
        holder = (await client.messages("T"))[1]
        body_at = holder.physical_offset + 88
        for place in (-5, 0, 1, real.physical_offset + 1, body_at, 1 << 60):
            assert await send_back(client, real, offset=place) == ResponseCode.SYSTEM_ERROR
            reply = await client.ask(33, offset=place)
            assert reply.code == ResponseCode.SYSTEM_ERROR
        reply = await client.ask(33, offset=holder.physical_offset)
        assert decode_record(reply.body)[0].body == forged


async def test_a_consumers_own_send_to_its_retry_topic_waits_and_a_dead_letter_does_not(
    tmp_path: Path,
) -> None:
    async with delaying(tmp_path) as one:
        await one.client.heartbeat("c", "g", "T")
        delayed = "DELAY\x013\x02RETRY_TOPIC\x01T\x02"
        assert (await one.client.send("%RETRY%g", b"r", i=delayed, j=1, l=16)).code == 0
        assert (await one.client.send("%RETRY%g", b"dead", i=delayed, j=17, l=16)).code == 0
        assert await one.bodies("%DLQ%g") == [b"dead"]
        assert await one.bodies("%RETRY%g") == []
        one.at(10_000)
        assert await one.bodies("%RETRY%g") == [b"r"]


async def test_a_consumer_in_order_that_gives_up_leaves_a_dead_letter(tmp_path: Path) -> None:
    """Java's of version 4 does not count its last failure when it sends the message itself."""
    async with delaying(tmp_path) as one:
        await one.client.heartbeat("c", "g", "T")
        delayed = "DELAY\x013\x02RETRY_TOPIC\x01T\x02"
        assert (await one.client.send("%RETRY%g", b"again", i=delayed, j=2, l=2)).code == 0
        lock = QueueLock("g", "c", [MessageQueue("T", "broker-a", 0)])
        assert (await one.client.ask(41, encode_queue_lock(lock))).code == 0
        assert (await one.client.send("%RETRY%g", b"first", i=delayed, j=1, l=2)).code == 0
        assert (await one.client.send("%RETRY%g", b"dead", i=delayed, j=2, l=2)).code == 0
        assert await one.bodies("%DLQ%g") == [b"dead"]
        one.at(10_000)
        assert await one.bodies("%RETRY%g") == [b"again", b"first"]


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("", "MSG_REGION\x01DefaultRegion\x02"),
        ("a\x01b", "a\x01b\x02MSG_REGION\x01DefaultRegion\x02"),
        ("a\x01b\x02", "a\x01b\x02MSG_REGION\x01DefaultRegion\x02"),
        ("MSG_REGION\x01elsewhere\x02a\x01b", "MSG_REGION\x01elsewhere\x02a\x01b"),
    ],
)
async def test_a_stored_message_names_its_region(tmp_path: Path, sent: str, stored: str) -> None:
    """Java consumers of version 5 send no trace of a message without one."""
    async with served(tmp_path) as client:
        assert (await client.send("T", b"x", i=sent)).code == 0
        one, other = BatchMessage(b"y", sent.encode()), BatchMessage(b"z")
        for batch in ([one], [one, one], [one, other]):
            body = encode_batch_body(batch)
            assert (await client.ask(320, body, **send_fields("T", 0, m="true"))).code == 0
        *messages, last = await client.messages("T")
        assert [message.body for message in messages] == [b"x", b"y", b"y", b"y", b"y"]
        for message in messages:
            assert message.properties.decode().startswith(stored)
        assert last.properties.decode().startswith("MSG_REGION\x01DefaultRegion\x02")


async def test_an_oneway_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"first")
        client.send_oneway(RequestCode.SEND_MESSAGE_V2, b"oneway", **send_fields("T"))
        reply = await client.pull("T", 1, sysFlag=6)
        assert [m.body for m in decode_records(reply.body)] == [b"oneway"]


@pytest.mark.feature("F57")
async def test_namespaces_are_kept_apart(tmp_path: Path) -> None:
    # RocketMQ's clients put the namespace before the name, behind %RETRY%.
    async with served(tmp_path) as client:
        for namespace in ("MQ_INST_a", "MQ_INST_b"):
            await client.send(f"{namespace}%T", namespace.encode())
            await client.heartbeat(f"c-{namespace}", f"{namespace}%g", f"{namespace}%T")
        for namespace in ("MQ_INST_a", "MQ_INST_b"):
            (record,) = await client.messages(f"{namespace}%T")
            assert record.body == namespace.encode()
            back: dict[str, Any] = {"group": f"{namespace}%g", "offset": record.physical_offset}
            told = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, delayLevel=-1, **back)
            assert told.code == 0
            assert len(await client.messages(f"%DLQ%{namespace}%g")) == 1


@pytest.mark.feature("F48")
async def test_traces_of_clients_are_stored_and_found_by_the_ids_of_their_messages(
    tmp_path: Path,
) -> None:
    trace = b"Pub\x011700000000000\x01DefaultRegion\x01p\x01T\x01ID\x01TAG\x01KEY\x02"
    async with served(tmp_path) as client:
        await client.send("RMQ_SYS_TRACE_TOPIC", trace, keys="ID KEY")
        found = await client.ask(
            RequestCode.QUERY_MESSAGE,
            topic="RMQ_SYS_TRACE_TOPIC",
            key="ID",
            maxNum=32,
            beginTimestamp=0,
            endTimestamp=1 << 60,
        )
        (record,) = decode_records(found.body)
        assert record.body == trace
