"""Messages are found by their keys (12), whatever happened to the index."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.query import searches
from broker.query.keys import MAX_KEYS_PER_MESSAGE
from remoting.message.properties import encode_properties
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, served

EVER = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}


async def send(client: Client, body: bytes, keys: str = "", unique: str = "", **more: Any) -> None:
    properties = {name: text for name, text in (("KEYS", keys), ("UNIQ_KEY", unique)) if text}
    fields = {"i": encode_properties(properties).decode(), **more}
    reply = await client.send(more.pop("topic", "T"), body, **fields)
    assert reply.code == 0, reply


async def query(client: Client, key: str, topic: str = "T", **more: Any) -> Command:
    fields = {"topic": topic, "key": key, "maxNum": 32, **EVER, **more}
    return await client.ask(RequestCode.QUERY_MESSAGE, **fields)


async def found(client: Client, key: str, topic: str = "T", **more: Any) -> list[bytes]:
    reply = await query(client, key, topic, **more)
    assert reply.code in (0, ResponseCode.QUERY_NOT_FOUND), reply
    return [record.body for record in decode_records(reply.body)]


@pytest.mark.feature("F46")
async def test_a_message_is_found_by_its_unique_key_and_by_each_of_its_keys(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await send(client, b"1", "order-1  user-7", "AC01")
        await send(client, b"2", "order-2 user-7", "AC02", e=3)
        await send(client, b"x" * 100_000, "order-3", "AC03")
        assert await found(client, "order-1") == [b"1"]
        assert await found(client, "AC02", _UNIQUE_KEY_QUERY="true", maxNum=0) == [b"2"]
        assert await found(client, "user-7") == [b"2", b"1"]
        assert await found(client, "order-3") == [b"x" * 100_000]
        assert await found(client, "order-1 ") == []
        assert await found(client, "order-1", "U") == []
        reply = await query(client, "order-1")
        assert int(reply.fields["indexLastUpdatePhyoffset"]) > 0
        assert int(reply.fields["indexLastUpdateTimestamp"]) == START_MS


@pytest.mark.feature("F46")
async def test_keys_with_the_same_hash_are_told_apart(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await send(client, b"1", "Aa")
        await send(client, b"2", "BB")
        assert await found(client, "Aa") == [b"1"]
        assert await found(client, "BB") == [b"2"]


async def test_the_newest_messages_of_a_time_are_found(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for number in range(100):
            clock.now_ms = START_MS + number * 700
            await send(client, b"%d" % number, "k")
        at_50 = START_MS + 50 * 700
        assert await found(client, "k", maxNum=2) == [b"99", b"98"]
        assert len(await found(client, "k", maxNum=(1 << 31) - 1)) == 64
        begin, end = at_50 - 700, at_50 + 699
        both = await found(client, "k", beginTimestamp=begin, endTimestamp=end)
        assert both == [b"50", b"49"]
        assert await found(client, "k", beginTimestamp=at_50, endTimestamp=at_50) == [b"50"]
        assert await found(client, "k", beginTimestamp=at_50 + 1, endTimestamp=at_50 + 2) == []
        assert await found(client, "k", beginTimestamp=10, endTimestamp=5) == []


async def test_messages_of_a_deleted_topic_are_not_found_and_those_of_a_new_one_are(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        await send(client, b"old", "k")
        assert await found(client, "k") == [b"old"]
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        assert await found(client, "k") == []
        await send(client, b"new", "k")
        assert await found(client, "k") == [b"new"]


@pytest.mark.parametrize("lost", ["nothing", "index", "queues"])
@pytest.mark.parametrize("sync_s", [0.0, pytest.param(60.0, marks=pytest.mark.long)])
async def test_messages_are_found_after_a_restart(
    tmp_path: Path, lost: str, sync_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.query.tasks.SYNC_S", sync_s)
    async with served(tmp_path) as client:
        async with trio.open_nursery() as nursery:
            for number in range(300):
                one = partial(send, client, b"%d" % number, f"k{number}", e=number % 4)
                nursery.start_soon(one)
        assert await found(client, "k7") == [b"7"]
    if lost == "index":
        shutil.rmtree(tmp_path / "index")
    elif lost == "queues":
        shutil.rmtree(tmp_path / "consumequeue")
    async with served(tmp_path) as client:
        await send(client, b"300", "k300")
        for number in (0, 7, 299, 300):
            assert await found(client, f"k{number}") == [b"%d" % number]
    assert (tmp_path / "index" / ".synced").exists() == (sync_s == 0)


async def test_an_index_is_made_in_the_order_of_the_log(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for number in range(200):
            clock.now_ms = START_MS + number * 5000
            await send(client, b"%d" % number, "k", e=number * 7 % 4)
        newest = [b"%d" % number for number in range(199, 135, -1)]
        assert await found(client, "k", maxNum=64) == newest
    shutil.rmtree(tmp_path / "index")
    async with served(tmp_path, clock=clock) as client:
        assert await found(client, "k", maxNum=64) == newest


async def test_a_message_with_too_many_keys_is_found_by_the_first(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await send(client, b"1", " ".join(f"k{number}" for number in range(1000)), "AC")
        assert await found(client, "AC") == [b"1"]
        assert await found(client, f"k{MAX_KEYS_PER_MESSAGE - 2}") == [b"1"]
        assert await found(client, f"k{MAX_KEYS_PER_MESSAGE - 1}") == []


async def test_wrong_searches_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        assert (await query(client, "k", maxNum=0)).code == ResponseCode.INVALID_PARAMETER
        assert (await query(client, "k", beginTimestamp="soon")).code == ResponseCode.SYSTEM_ERROR
        none = await query(client, "k")
        assert (none.code, none.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
        )


async def test_an_answer_ends_before_a_frame_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "MAX_ANSWER_BYTES", 50_000)
    async with served(tmp_path) as client:
        for number in range(10):
            await send(client, b"%d" % number + b"x" * 20_000, "k")
        assert [body[:1] for body in await found(client, "k")] == [b"9", b"8"]
        await send(client, b"y" * 60_000, "k")
        assert await found(client, "k") == [b"y" * 60_000]


async def test_a_search_that_the_index_does_not_come_up_to_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.query.processor.WAIT_S", 0.0)
    monkeypatch.setattr("broker.query.indexing.KeyIndexing.step", lambda *_: False)
    async with running_broker(tmp_path) as (one, nursery):
        client = Client(nursery, str(one.config.address))
        await send(client, b"1", "k")
        reply = await query(client, "k")
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "ask again" in (reply.remark or "")
