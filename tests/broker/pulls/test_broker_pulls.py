from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from broker.limits import MAX_PULL_BYTES, MAX_PULL_MESSAGES, BrokerLimits
from broker.log.folded import Folded
from broker.messages.record_facts import UNIT, units_of
from broker.offsets.state import OFFSETS
from broker.pulls.held_pulls import HELD_PULLS
from broker.server import Broker
from dledger.network.plain_socket import write_now
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.properties import encode_properties
from remoting.message.record import decode_records
from remoting.net.connection import ConnectionLimits
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, encode_command
from tests.broker.one_broker import (
    START_MS,
    Client,
    Clock,
    running_broker,
    send_fields,
    served,
    until,
)

WAIT = 6  # pull flag: may wait, brings its subscription


async def test_every_pull_reply_has_all_four_fields_as_text(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        for offset, code, next_offset in (
            (0, ResponseCode.SUCCESS, "1"),
            (1, ResponseCode.PULL_NOT_FOUND, "1"),
            (5, ResponseCode.PULL_OFFSET_MOVED, "1"),
            (-1, ResponseCode.PULL_OFFSET_MOVED, "0"),
        ):
            reply = await client.pull("T", offset)
            assert reply.code == code
            assert reply.fields == {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": next_offset,
                "minOffset": "0",
                "maxOffset": "1",
            }


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (3, 21)])
async def test_an_empty_queue_is_waited_for_at_zero_and_nowhere_else(
    tmp_path: Path, offset: int, code: int
) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x", 1)
        reply = await client.pull("T", offset, 0)
        assert (reply.code, reply.fields["nextBeginOffset"]) == (code, "0")


async def test_a_pull_gives_no_more_messages_than_it_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(40):
            await client.send("T", b"%d" % number)
        assert len(decode_records((await client.pull("T", 0, maxMsgNums=5)).body)) == 5
        reply = await client.pull("T", 3, maxMsgNums=1000)
        assert len(decode_records(reply.body)) == 37
        assert reply.fields["nextBeginOffset"] == "40"


async def test_a_pull_by_tags_gives_no_more_messages_than_it_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(8):
            await client.send("T", b"%d" % number, tags="A")
        reply = await client.pull("T", 1, maxMsgNums=3, subscription="A")
        assert [m.body for m in decode_records(reply.body)] == [b"1", b"2", b"3"]
        assert reply.fields["nextBeginOffset"] == "4"


async def test_a_pull_gives_as_many_messages_as_it_looks_at_and_no_more(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        batch = encode_batch_body(BatchMessage(b"x") for _ in range(900))
        assert (await client.send("T", batch, m="true")).code == 0
        reply = await client.pull("T", 0, maxMsgNums=(1 << 31) - 1)
        assert len(decode_records(reply.body)) == MAX_PULL_MESSAGES
        assert reply.fields["nextBeginOffset"] == str(MAX_PULL_MESSAGES)


async def test_a_pull_stops_at_256_kib_but_gives_one_message_however_large(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for size in (100_000, 100_000, 100_000, 2 * MAX_PULL_BYTES, 10):
            await client.send("T", bytes(size))
        assert len(decode_records((await client.pull("T", 0)).body)) == 2
        assert len(decode_records((await client.pull("T", 2)).body)) == 1
        (large,) = decode_records((await client.pull("T", 3)).body)
        assert len(large.body) == 2 * MAX_PULL_BYTES


@pytest.mark.feature("F35")
async def test_only_wanted_tags_come_and_the_offset_passes_the_others(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(9):
            await client.send("T", b"%d" % number, tags=f"Tag{number % 3}")
        reply = await client.pull("T", 0, subscription="Tag1 || Tag2")
        assert [m.body for m in decode_records(reply.body)] == [b"1", b"2", b"4", b"5", b"7", b"8"]
        assert reply.fields["nextBeginOffset"] == "9"
        reply = await client.pull("T", 0, subscription="Other")
        assert (reply.code, reply.fields["nextBeginOffset"]) == (20, "9")


async def test_a_scan_for_a_rare_tag_ends_after_800_messages(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        async with trio.open_nursery() as nursery:
            for _ in range(899):
                nursery.start_soon(client.send, "T", b"x")
        await client.send("T", b"rare", tags="Rare")
        reply = await client.pull("T", 0, subscription="Rare")
        assert (reply.code, reply.fields["nextBeginOffset"]) == (20, "800")
        reply = await client.pull("T", 800, subscription="Rare")
        assert [m.body for m in decode_records(reply.body)] == [b"rare"]


async def test_a_pull_that_cannot_be_answered_is_refused(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], int]] = [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"expressionType": "XPATH", "subscription": "a"}, ResponseCode.SYSTEM_ERROR),
        (
            {"expressionType": "SQL92", "subscription": "a >"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sysFlag": 0, "expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_NOT_LATEST),
        ({"queueOffset": "x"}, ResponseCode.SYSTEM_ERROR),
    ]
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        pull: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": 0,
            "queueOffset": 0,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 0,
        }
        for fields, code in refused:
            reply = await client.ask(11, **{**pull, **fields})
            assert (reply.code, bool(reply.remark)) == (code, True), fields


async def test_a_pull_without_a_subscription_uses_the_one_of_the_heartbeat(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for tag in ("A", "B"):
            await client.send("T", tag.encode(), tags=tag)
        subscription = SubscriptionData("T", "B", version=4)
        data = ConsumerData("g", subscriptions=[subscription])
        await client.ask(34, encode_heartbeat(Heartbeat("c", [], [data])))
        reply = await client.pull("T", 0, sysFlag=0, subVersion=4)
        assert [m.body for m in decode_records(reply.body)] == [b"B"]


async def test_a_pull_whose_subscription_is_not_known_yet_gets_all_for_its_client_to_filter(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        for tag in ("A", "B"):
            await client.send("T", tag.encode(), tags=tag)
        reply = await client.pull("T", 0, sysFlag=0, subVersion=5)
        assert len(decode_records(reply.body)) == 2


async def test_a_lite_pull_is_answered_like_a_pull(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        reply = await client.ask(
            361,
            consumerGroup="g",
            topic="T",
            queueId=0,
            queueOffset=0,
            maxMsgNums=32,
            sysFlag=22,
            commitOffset=0,
            suspendTimeoutMillis=1,
            subVersion=0,
            subscription="*",
            maxMsgBytes=1000,
        )
        assert len(decode_records(reply.body)) == 1


# --- long polling ---------------------------------------------------------------------------------


async def held(client: Client, replies: dict[str, Command], name: str, **more: Any) -> None:
    replies[name] = await client.pull("T", 1, sysFlag=WAIT, **more)


async def until_held(client: Client, count: int) -> None:
    """Wait until so many pulls wait at the broker."""
    figure = f'"pullHeld":"{count}"'.encode()

    async def is_so() -> bool:
        return figure in (await client.ask(28)).body

    await until(is_so)


@pytest.mark.feature("F34")
async def test_a_waiting_pull_is_answered_by_the_next_message_of_its_queue_and_tag(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client, trio.open_nursery() as nursery:
        await client.send("T", b"first")
        replies: dict[str, Command] = {}
        nursery.start_soon(held, client, replies, "all")
        nursery.start_soon(lambda: held(client, replies, "tag", subscription="TagB"))
        await until_held(client, 2)
        await client.send("T", b"other queue", 1)
        await until_held(client, 2)
        await client.send("T", b"second", tags="TagA")
        await until_held(client, 1)
        assert [m.body for m in decode_records(replies["all"].body)] == [b"second"]
        assert "tag" not in replies
        await client.send("T", b"third", tags="TagB")
        await until_held(client, 0)
        assert [m.body for m in decode_records(replies["tag"].body)] == [b"third"]
        assert replies["tag"].fields["nextBeginOffset"] == "3"


async def test_a_waiting_pull_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        began = trio.current_time()
        reply = await client.pull("T", 1, sysFlag=WAIT, suspendTimeoutMillis=300)
        assert (reply.code, reply.fields["nextBeginOffset"]) == (19, "1")
        assert 0.25 < trio.current_time() - began < 3


async def test_waiting_pulls_do_not_hold_up_other_requests_of_their_connection(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client, trio.open_nursery() as nursery:
        await client.send("T", b"x")
        nursery.start_soon(held, client, {}, "a")
        await until_held(client, 1)
        assert (await client.ask(30, topic="T", queueId=0)).fields == {"offset": "1"}
        nursery.cancel_scope.cancel()


async def test_waiting_pulls_of_one_client_are_answered_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[int]] = []

    def write(descriptor: int, frame: bytes) -> int:
        written.append([command.opaque for command in FrameDecoder().feed(frame)])
        return write_now(descriptor, frame)

    replies: dict[str, Command] = {}
    async with running_broker(tmp_path) as (broker, nursery):
        sender = Client(nursery, str(broker.config.address))
        consumer = Client(nursery, str(broker.config.address))
        await sender.send("T", b"0")
        async with trio.open_nursery() as waiting:
            waiting.start_soon(held, consumer, replies, "a")
            waiting.start_soon(lambda: held(consumer, replies, "b", consumerGroup="h"))
            await until_held(sender, 2)
            monkeypatch.setattr("remoting.net.connection.write_now", write)
            await sender.send("T", b"1")
    assert {name: decode_records(reply.body)[0].body for name, reply in replies.items()} == {
        "a": b"1",
        "b": b"1",
    }
    assert {reply.opaque for reply in replies.values()} in map(set, written)


@pytest.mark.parametrize(
    ("tags", "more", "count"),
    [
        (["TagA"], {}, 1),
        (["TagA", "TagA", "TagA"], {}, 3),
        (["TagA", "TagA", "TagA"], {"subscription": "TagA"}, 3),
        (["TagA", "TagB", "TagA"], {"subscription": "TagA"}, 2),
        (["TagA", "TagB", "TagA"], {"maxMsgNums": 2}, 2),
    ],
)
async def test_a_waiting_pull_gets_what_one_that_comes_later_is_given(
    tmp_path: Path, tags: list[str], more: dict[str, Any], count: int
) -> None:
    replies: dict[str, Command] = {}
    async with served(tmp_path) as client:
        await client.send("T", b"0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: held(client, replies, "waited", **more))
            await until_held(client, 1)
            batch = [
                BatchMessage(tag.encode(), encode_properties({"TAGS": tag, "UNIQ_KEY": "1" * 32}))
                for tag in tags
            ]
            fields = send_fields("T", 0, m="true")
            await client.ask(320, encode_batch_body(batch), **fields)
        later = await client.pull("T", 1, **more)
        assert len(decode_records(later.body)) == count
        assert (replies["waited"].fields, replies["waited"].body) == (later.fields, later.body)


async def test_a_waiting_pull_gets_no_more_than_256_kib_of_what_comes(tmp_path: Path) -> None:
    replies: dict[str, Command] = {}
    async with served(tmp_path) as client:
        await client.send("T", b"0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held, client, replies, "waited")
            await until_held(client, 1)
            batch = [BatchMessage(bytes(100_000)) for _ in range(3)]
            await client.ask(320, encode_batch_body(batch), **send_fields("T", 0, m="true"))
        assert len(decode_records(replies["waited"].body)) == 2
        assert replies["waited"].fields["nextBeginOffset"] == "3"


async def test_messages_that_arrive_are_those_of_the_log(tmp_path: Path) -> None:
    arrived: list[tuple[bytes, bytes]] = []
    async with running_broker(tmp_path) as (broker, nursery):
        then = broker.machine.on_applied
        assert then is not None

        def applied(folded: Folded) -> None:
            for one in folded.arrivals.values():
                units = units_of(one)
                found = [units[at : at + UNIT.size] for at in range(0, len(units), UNIT.size)]
                arrived.extend(zip(found, one.records(), strict=True))
            then(folded)

        broker.machine.on_applied = applied
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"plain")
        delayed = encode_properties({"DELAY": "18", "UNIQ_KEY": "1" * 32}).decode()
        await client.send("T", b"with a command behind it", i=delayed)
        assert len(arrived) == 2
        for unit, record in arrived:
            place, size, _code = UNIT.unpack(unit)
            assert record == broker.node.read_bytes(place, size)


async def test_the_pulls_of_a_client_that_left_are_dropped(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        stays = Client(nursery, str(broker.config.address))
        leaves = Client(nursery, str(broker.config.address))
        await stays.send("T", b"x")
        async with trio.open_nursery() as waiting:
            waiting.start_soon(held, leaves, {}, "a")
            await until_held(stays, 1)
            waiting.cancel_scope.cancel()
        leaves.close()
        await until_held(stays, 0)
        assert (await stays.send("T", b"y")).code == 0


@pytest.mark.feature("F15")
async def test_more_pulls_than_may_wait_are_told_to_come_back(tmp_path: Path) -> None:
    limits = BrokerLimits(max_held_pulls=1)
    async with served(tmp_path, limits=limits) as client, trio.open_nursery() as nursery:
        await client.send("T", b"x")
        nursery.start_soon(held, client, {}, "a")
        await until_held(client, 1)
        reply = await client.pull("T", 1, sysFlag=WAIT)
        assert reply.code == ResponseCode.SYSTEM_BUSY
        nursery.cancel_scope.cancel()


async def test_waiting_pulls_of_a_deleted_topic_are_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as client, trio.open_nursery() as nursery:
        await client.send("T", b"x")
        replies: dict[str, Command] = {}
        nursery.start_soon(held, client, replies, "a")
        await until_held(client, 1)
        assert (await client.ask(215, topic="T")).code == 0
        await until_held(client, 0)
        assert replies["a"].code == ResponseCode.TOPIC_NOT_EXIST


# --- offsets --------------------------------------------------------------------------------------


async def commit(client: Client, offset: int, topic: str = "T", queue_id: int = 0) -> int:
    reply = await client.ask(
        15, consumerGroup="g", topic=topic, queueId=queue_id, commitOffset=offset
    )
    return reply.code


async def stored(client: Client, **more: Any) -> Command:
    return await client.ask(14, consumerGroup="g", topic="T", queueId=0, **more)


async def test_offsets_are_stored_as_they_come_but_negative_ones_change_nothing(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        for offset, expected in ((5, "5"), (2, "2"), (-1, "2"), (0, "0")):
            assert await commit(client, offset) == 0
            assert (await stored(client)).fields == {"offset": expected}


async def test_a_group_without_an_offset_starts_at_zero_on_a_young_topic(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        assert (await stored(client)).fields == {"offset": "0"}
        reply = await stored(client, setZeroIfNotFound="false")
        assert reply.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_group_without_an_offset_is_told_so_when_the_topics_beginning_is_far_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.store.message_reader.YOUNG_QUEUE_BYTES", 1000)
    async with served(tmp_path) as client:
        await client.send("T", bytes(2000))
        assert (await stored(client)).code == ResponseCode.QUERY_NOT_FOUND


async def test_an_offset_of_a_queue_that_no_topic_can_have_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        assert await commit(client, 1, "nowhere") == ResponseCode.INVALID_PARAMETER
        assert await commit(client, 1, "T", 1024) == ResponseCode.INVALID_PARAMETER


async def test_many_commits_at_once_share_entries_of_the_log(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        before = broker.node.status().applied
        async with trio.open_nursery() as many:
            for offset in range(1, 101):
                many.start_soon(commit, client, offset, "T", offset % 4)
        entries = broker.node.status().applied - before
        assert 1 <= entries < 50
        committed = broker.machine.state[OFFSETS].tables["g", "T"]
        assert all(committed[queue_id] % 4 == queue_id for queue_id in range(4))


async def test_a_pull_commits_the_offset_it_brings_for_a_known_group_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        await client.pull("T", 0, sysFlag=5, commitOffset=1)
        await client.heartbeat("c", "known", "T")
        await client.pull("T", 0, sysFlag=5, commitOffset=1, consumerGroup="known")
        broker.requests.tick()
        await client.send("T", b"behind the commit in the log", 1)
        assert broker.machine.state[OFFSETS].tables == {("known", "T"): {0: 1}}


@pytest.mark.feature("F47")
async def test_offsets_by_time_are_the_first_message_at_or_after_it(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for after_s in (0, 10, 10, 20):
            clock.now_ms = START_MS + after_s * 1000
            await client.send("T", b"x")
        for after_s, lower, upper in ((-1, 0, 0), (0, 0, 0), (5, 1, 0), (10, 1, 2), (21, 4, 3)):
            at = START_MS + after_s * 1000
            reply = await client.ask(29, topic="T", queueId=0, timestamp=at)
            assert reply.fields == {"offset": str(lower)}
            reply = await client.ask(29, topic="T", queueId=0, timestamp=at, boundaryType="UPPER")
            assert reply.fields == {"offset": str(upper)}
        reply = await client.ask(32, topic="T", queueId=0)
        assert reply.fields == {"timestamp": str(START_MS)}
        assert (await client.ask(32, topic="T", queueId=1)).fields == {"timestamp": "-1"}


async def test_the_ends_of_a_queue_never_written_to_are_zero(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        assert (await client.ask(30, topic="T", queueId=0)).fields == {"offset": "1"}
        assert (await client.ask(30, topic="T", queueId=1)).fields == {"offset": "0"}
        assert (await client.ask(31, topic="T", queueId=0)).fields == {"offset": "0"}
        assert (await client.ask(30, topic="nowhere", queueId=1)).fields == {"offset": "0"}


@pytest.mark.feature("F35")
async def test_two_tags_of_one_hash_both_come_and_the_client_tells_them_apart(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        for tag in ("Aa", "BB", "C"):
            await client.ask(310, tag.encode(), **send_fields("T", tags=tag))
        reply = await client.pull("T", 0, subscription="Aa")
        assert [m.body for m in decode_records(reply.body)] == [b"Aa", b"BB"]


async def test_a_waiting_pull_keeps_nothing_that_its_reply_does_not_need(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        nursery.start_soon(hold_with_much, client)
        await until_held(client, 1)
        (held,) = broker.parts[HELD_PULLS].all()
        assert not held.command.body
        assert not held.command.fields
        await client.send("T", b"y")


async def hold_with_much(client: Client) -> None:
    await client.pull("T", 1, sysFlag=WAIT, body=bytes(100_000), more="x" * 10_000)


@pytest.mark.feature("F14")
async def test_a_client_that_does_not_read_has_only_so_many_answers_made(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        for _ in range(4):
            await client.send("T", bytes(100_000))
        before = set(broker.requests.connections)
        stream = await trio.open_tcp_stream("127.0.0.1", broker.config.address.port)
        fields = {
            **{"consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0"},
            **{"maxMsgNums": "32", "sysFlag": "4", "subscription": "*", "commitOffset": "0"},
        }
        frames = [encode_command(Command(11, fields, opaque=number)) for number in range(140)]
        await stream.send_all(b"".join(frames[:64]))
        await until_quiet(broker)
        (slow,) = broker.requests.connections - before
        limits = ConnectionLimits()
        assert slow.unsent_bytes <= limits.pause_unsent_bytes + 2 * MAX_PULL_BYTES
        # Read at full speed, with all pulls under way at once, each of them is answered.
        nursery.start_soon(stream.send_all, b"".join(frames[64:]))
        decoder, answers = FrameDecoder(), 0
        with trio.fail_after(20):
            while answers < 140:
                answers += len(decoder.feed(bytes(await stream.receive_some())))
        await stream.aclose()


async def until_quiet(broker: Broker) -> None:
    """Wait until nothing more goes out."""
    seen: list[int] = []

    async def is_quiet() -> bool:
        seen.append(sum(one.unsent_bytes for one in broker.requests.connections))
        return len(seen) > 20 and seen[-1] > 0 and len(set(seen[-10:])) == 1

    await until(is_quiet)
