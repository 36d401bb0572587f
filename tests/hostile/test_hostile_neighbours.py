"""Hostile requests beside good ones: in one write, in one append, on one member of a group."""

from __future__ import annotations

import gc
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

import remoting.message.properties
from broker.consumers.differences import Differences
from broker.consumers.members import Consumers, Member
from dledger.command_line.log_lines import MAX_EVENT_CHARACTERS
from remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.wire.codes import RequestCode
from remoting.wire.frame import FrameDecoder
from tests.broker.one_broker import Client, send_fields
from tests.hostile.attack import Request, frame_of, wire_to
from tests.hostile.broker_requests import REQUESTS
from tests.hostile.hostile_values import names_in, with_each_text_replaced
from tests.hostile.test_hostile_broker import USER, served

# Every name that the project knows of a message's property.
PROPERTY_NAMES = sorted(
    value
    for name, value in vars(remoting.message.properties).items()
    if name.isupper() and isinstance(value, str) and len(value) > 1
)

NUMBERS = (
    *("-1", "-5", "0", "1", "2147483647", "-2147483648", "2147483648", "9223372036854775807"),
    *("-9223372036854775808", "9" * 5000, "1_000", "\u0661\u0662", " 12 ", "+5", "1.5", "NaN"),
)
TEXTS = ("", "x", "true", "a\x01b", "a\nb", "\0", "\u202e", "x" * 20_000, "%RETRY%g", "T", "g")


def hostile_runs() -> Iterator[bytes]:
    """Runs of properties with each name, as it is, twice, in other names and in values."""
    wanted = b"TIMER_DELAY_SEC\x0160\x02"
    for name in map(str.encode, PROPERTY_NAMES):
        for value in (*(text.encode() for text in (*NUMBERS, *TEXTS)), b"\xff\xfe", b"\xe2\x82"):
            yield name + b"\x01" + value + b"\x02"
        yield name + b"\x01first\x02" + name + b"\x01last\x02"
        yield b"X" + name + b"\x01a\x02"
        for more in (wanted, b"TRAN_MSG\x01true\x02PGROUP\x01p\x02", b"REPLY_TO_CLIENT\x01c\x02"):
            yield b"X" + name + b"\x01a\x02" + more
            yield b"K\x01" + name + b"\x01a\x02" + more
            yield more + name
            yield name + b"\x01" + more
            yield name + b"\x01\xff\x02" + more


async def answers(client: Client, frames: list[bytes], count: int) -> dict[int, int]:
    """The codes of the answers to requests that are sent in one write, by their numbers."""
    host, port = client.address.rsplit(":", 1)
    decoder = FrameDecoder()
    found: dict[int, int] = {}
    async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as tasks:
        tasks.start_soon(stream.send_all, b"".join(frames))
        with trio.move_on_after(60):
            while len(found) < count:
                for command in decoder.feed(bytes(await stream.receive_some(1 << 16))):
                    if command.is_response:
                        found[command.opaque] = command.code
    return found


def good_send(opaque: int) -> bytes:
    fields = {name: f'"{value}"' for name, value in send_fields("T", i="").items()}
    return frame_of(RequestCode.SEND_MESSAGE_V2, (fields, b"good"), opaque)


@pytest.mark.slow
async def test_each_run_of_properties_harms_its_own_send_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(PROPERTY_NAMES) > 40
    frames: list[bytes] = []
    fields = {name: f'"{value}"' for name, value in send_fields("T", m="true", i="").items()}
    for run in hostile_runs():
        body = encode_batch_body([BatchMessage(b"x", run)])
        frames.append(frame_of(RequestCode.SEND_MESSAGE_V2, (fields, body), len(frames)))
        frames.append(good_send(len(frames)))
    async with served(tmp_path, access=None) as (client, _wire):
        for begin in range(0, len(frames), 400):
            some = frames[begin : begin + 400]
            found = await answers(client, some, len(some))
            asked = range(begin, begin + len(some))
            assert [number for number in asked if number not in found] == []
            assert {found[number] for number in asked if number % 2} == {0}, "a good send"
    assert [record.message for record in caplog.records if record.exc_info] == []


# Long texts, which nothing but the log may keep, and which can be told from all others.
MARK = "\u0239"
LONG = MARK * 60_000


def kept() -> int:
    """How many characters of the long texts are reachable, also by way of what the collector does
    not look at.
    """
    gc.collect()
    seen = {}
    owners: list[object] = gc.get_objects()
    while owners:
        referents = gc.get_referents(*owners)
        owners = []
        for one in referents:
            if isinstance(one, str):
                if len(one) > len(LONG) and one.startswith(MARK):
                    seen[id(one)] = len(one)
            elif isinstance(one, dict | tuple) and not gc.is_tracked(one):
                owners.append(one)
    return sum(seen.values())


def long_requests(code: int) -> Iterator[Request]:
    """A request with each of its fields and each text of its body long in turn, each another."""
    numbers = itertools.count(100)
    fields, body = REQUESTS[code]
    right = {name: f'"{value}"' for name, value in fields.items()}
    for name in (*fields, "unknown"):
        yield {**right, name: f'"{LONG}{next(numbers)}"'}, body
    if names_in(body):
        for number, hostile in enumerate(with_each_text_replaced(body, LONG + "@")):
            yield right, hostile.replace(b"@", str(number).encode())


@pytest.mark.slow
async def test_what_is_kept_of_clients_is_bounded_and_goes_with_their_connections(
    tmp_path: Path,
) -> None:
    gc.freeze()  # What is of the tests before is many times more, and looked at once, at the end.
    async with served(tmp_path) as (client, _wire):
        before = kept()
        for code in sorted(REQUESTS):
            async with wire_to(client.address, USER) as wire:
                for request in long_requests(code):
                    await wire.ask(code, request)
                del request
                # What it subscribes to is known as long as it is there, and no more.
                assert kept() - before <= 2 * len(LONG), f"request {code}, while it is connected"
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.send("T", b"x")
        gc.unfreeze()
        try:
            assert kept() == before
        finally:
            gc.freeze()  # as the collection of the tests has left it


async def test_what_members_subscribe_to_forges_no_line_of_the_log(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    forged = "a\n2026-11-27 00:00:00,000 CRITICAL the disk is broken \x1b[2J\u202e" + "z" * 100_000
    async with served(tmp_path) as (client, _wire):
        codes = [
            (await client.heartbeat(name, "g", "T", topic)).code
            for name, topic in (("one", "U"), ("two" + forged, "U"), ("three", forged))
        ]
        assert codes[0] == 0
        assert set(codes[1:]) == {1}, "they are refused where they come in"
    consumers = Consumers()
    with caplog.at_level(logging.DEBUG):
        for number in range(2):
            wanted = SubscriptionData(forged, forged + str(number))
            data = ConsumerData("g" + forged, subscriptions=[wanted])
            consumers.register(number, Member(forged, 0.0, data))  # type: ignore[arg-type]
        list(Differences(consumers).look(100.0))
    assert "subscribe to different things" in caplog.text
    assert all(text.isprintable() for text in caplog.messages)
    assert all(len(text) <= MAX_EVENT_CHARACTERS for text in caplog.messages)
