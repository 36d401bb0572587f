"""Hostile values of single fields: each harms its own request at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.errors import RequestRefused
from broker.log.one_by_one import call, call_each, failure
from broker.sends.pending_messages import PendingSend
from broker.sends.request import SendTerms
from broker.sends.request import _terms as read_terms
from broker.sends.sends import Sends
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.field_values import INT32_MAX, INT32_MIN
from remoting.wire.frame import FrameDecoder, encode_command
from tests.broker.one_broker import Client, send_fields, served
from tests.broker.pop.popping_broker import popping

DELAYED = "TIMER_DELAY_SEC\x0160\x02"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"


def sending(body: bytes, opaque: int, **more: Any) -> bytes:
    texts = {name: str(value) for name, value in send_fields("T", **more).items()}
    return encode_command(Command(310, texts, body, opaque))


async def answers(client: Client, frames: Sequence[bytes]) -> dict[int, Command]:
    """What a client is answered that sends all of them at once."""
    host, port = client.address.rsplit(":", 1)
    decoder = FrameDecoder()
    found: dict[int, Command] = {}
    with trio.fail_after(10):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(b"".join(frames))
            while len(found) < len(frames):
                for command in decoder.feed(bytes(await stream.receive_some(1 << 16))):
                    found[command.opaque] = command
    return found


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
@pytest.mark.parametrize("times", [-1, -5, INT32_MIN, INT32_MIN + 1])
async def test_a_message_that_failed_less_than_never_has_never_failed(
    tmp_path: Path, times: int, code: int
) -> None:
    async with served(tmp_path) as client:
        body = b"x" if code == 310 else encode_batch_body([BatchMessage(b"x")])
        assert (await client.ask(code, body, **send_fields("T", j=times))).code == 0
        (message,) = await client.messages("T")
        assert message.reconsume_times == 0


async def test_a_count_of_failures_that_is_no_number_of_32_bits_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for times in (INT32_MAX + 1, INT32_MIN - 1, 1 << 40, "1_0", "+1", " 1", "x"):
            assert (await client.send("T", b"x", j=times)).code == ResponseCode.SYSTEM_ERROR, times
        assert (await client.send("T", b"good")).code == 0
        assert [one.body for one in await client.messages("T")] == [b"good"]


def take_as_sent(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each send be one that has failed so often, as brokers of before took it."""
    read = read_terms.__wrapped__

    def terms(*texts: Any) -> SendTerms:
        return read(*texts)._replace(reconsume_times=times)

    monkeypatch.setattr("broker.sends.request._terms", terms)


# What brokers of before took.
@pytest.mark.parametrize("times", [INT32_MAX, INT32_MAX - 1, -1, -5, INT32_MIN])
async def test_a_count_of_failures_saturates_when_a_message_is_popped_again(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_as_sent(times, monkeypatch)
    async with popping(tmp_path) as one:
        await one.send(b"x")
        await one.send(b"y")
        for number in range(4):
            one.at(100 * number)
            popped = await one.pop()
            assert [message.body for message in popped] == [b"x", b"y"]
            counts = [message.record.reconsume_times for message in popped]
            # The first pop tells what is stored.
            expected = min(max(times, 0) + number, INT32_MAX) if number else times
            assert counts == [expected] * 2


@pytest.mark.parametrize("times", [INT32_MAX, -1, -5, INT32_MIN, INT32_MIN + 1])
async def test_a_message_is_sent_back_whatever_its_count_of_failures_is(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_as_sent(times, monkeypatch)
    async with served(tmp_path) as client:
        assert (await client.send("T", b"x")).code == 0
        (message,) = await client.messages("T")
        back: dict[str, Any] = {"group": "g", "offset": message.physical_offset, "delayLevel": 0}
        assert (await client.ask(36, **back)).code == 0
        if times == INT32_MAX:
            (dead,) = await client.messages("%DLQ%g")
            assert dead.reconsume_times == INT32_MAX


@pytest.mark.parametrize("kind", [DELAYED, HALF])
@pytest.mark.parametrize(
    "key", ["XUNIQ_KEY\x01a\x02", "K\x01UNIQ_KEY\x01a\x02", "UNIQ_KEY\x02", ""]
)
async def test_a_message_is_given_a_key_unless_it_has_one(
    tmp_path: Path, kind: str, key: str
) -> None:
    async with served(tmp_path) as client:
        frames = [sending(b"good", 1), sending(b"odd", 2, i=key + kind), sending(b"good", 3)]
        found = await answers(client, frames)
        assert {opaque: reply.code for opaque, reply in found.items()} == {1: 0, 2: 0, 3: 0}
        assert found[2].fields["recallHandle" if kind == DELAYED else "transactionId"]


@pytest.mark.parametrize("kind", [DELAYED.encode(), HALF.encode()])
async def test_a_key_that_is_no_text_is_answered_and_a_message_with_it_recalled(
    tmp_path: Path, kind: bytes
) -> None:
    async with served(tmp_path) as client:
        body = encode_batch_body([BatchMessage(b"x", b"UNIQ_KEY\x01\xff\xfe\x02" + kind)])
        reply = await client.send("T", body, m="true")
        assert reply.code == 0
        if kind == HALF.encode():
            assert reply.fields["transactionId"] == "\ufffd\ufffd"
            return
        handle = reply.fields["recallHandle"]
        recalled = await client.ask(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle)
        assert (recalled.code, recalled.fields["msgId"]) == (0, "\ufffd\ufffd")


@pytest.mark.parametrize("is_batch", [False, True])
async def test_of_several_tags_the_last_is_stored_and_found_by_tag_and_by_condition(
    tmp_path: Path, is_batch: bool
) -> None:
    run = "TAGS\x01first\x02XTAGS\x01odd\x02K\x01TAGS\x01in a value\x02TAGS\x01last\x02"
    async with served(tmp_path) as client:
        if is_batch:
            messages = [BatchMessage(b"x", run.encode()), BatchMessage(b"y", run.encode())]
            assert (await client.send("T", encode_batch_body(messages), m="true")).code == 0
        else:
            for body in (b"x", b"y"):
                assert (await client.send("T", body, i=run)).code == 0
        for wanted, kind in (("last", "TAG"), ("TAGS = 'last'", "SQL92")):
            reply = await client.pull("T", 0, subscription=wanted, expressionType=kind)
            assert [one.body for one in decode_records(reply.body)] == [b"x", b"y"]
            assert {one.property_map()["XTAGS"] for one in decode_records(reply.body)} == {"odd"}
        for wanted in ("first", "odd"):
            reply = await client.pull("T", 0, subscription=wanted)
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY


def fails_for(body: bytes, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `PendingSend`, or of `Sends` that is given one, with a defect for a message."""

    def failing(one: Any, *args: Any) -> Any:
        send = one if isinstance(one, PendingSend) else args[0]
        if send.records[0].body == body:
            raise IndexError("a defect")
        return method(one, *args)

    return failing


@pytest.mark.parametrize(
    ("owner", "name", "stored"),
    [
        (PendingSend, "stored", [b"before", b"bad", b"after"]),
        (Sends, "_encode", [b"before", b"after"]),
    ],
)
async def test_a_defect_in_one_send_leaves_the_others_of_its_append_answered(
    tmp_path: Path,
    owner: type,
    name: str,
    stored: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(tmp_path) as client:
        assert (await client.send("T", b"first")).code == 0
        monkeypatch.setattr(owner, name, fails_for(b"bad", getattr(owner, name)))
        bodies = [b"before", b"bad", b"after"]
        found = await answers(client, [sending(body, n) for n, body in enumerate(bodies)])
        assert [found[n].code for n in range(3)] == [0, ResponseCode.SYSTEM_ERROR, 0]
        assert [one.body for one in await client.messages("T")] == [b"first", *stored]
    assert "a defect" in caplog.text


def test_of_several_calls_one_that_raises_keeps_no_other_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []

    def fails(_number: int) -> None:
        raise KeyError("a defect")

    call_each("telling", [told.append, fails, told.append], 7)
    assert told == [7, 7]
    assert call("telling", told.append, 8)
    assert not call("telling", fails, 8)
    assert caplog.text.count("a defect") == 4  # the line and its traceback, twice
    refusal = failure("telling", KeyError("x"))
    assert isinstance(refusal, RequestRefused)
    assert refusal.code == ResponseCode.SYSTEM_ERROR
