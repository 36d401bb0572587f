"""Questions of one client and replies of another, through real brokers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from dledger_mq import (
    InvalidMessage,
    Message,
    NoReply,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestRefused,
)
from dledger_mq.connection.replies import AwaitedReplies, reply_to
from dledger_mq.connection.replies import question as asking
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.dledger_mq.real_group import real_group

ENOUGH_S = 60


def question(**properties: str) -> ReceivedMessage:
    return ReceivedMessage(MessageQueue("T", "b", 3), 0, b"?", properties)


def test_a_reply_goes_to_the_broker_that_stored_the_question_with_its_number() -> None:
    pairs = {
        "CLUSTER": "c",
        "CORRELATION_ID": "n",
        "REPLY_TO_CLIENT": "asker",
        "TTL": "9",
        "X": "y",
    }
    queue, command = reply_to(question(**pairs), b"!")
    assert queue == MessageQueue("c_REPLY_TOPIC", "b", 0)
    assert (command.code, command.body) == (RequestCode.SEND_REPLY_MESSAGE_V2, b"!")
    run = command.fields["i"]
    assert "CORRELATION_ID\x01n\x02" in run
    assert "MSG_TYPE\x01reply\x02" in run
    assert "X\x01" not in run


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_a_message_that_is_no_question_has_no_reply(missing: str) -> None:
    pairs = {"CLUSTER": "c", "CORRELATION_ID": "n", "REPLY_TO_CLIENT": "asker"}
    del pairs[missing]
    with pytest.raises(InvalidMessage, match=missing):
        reply_to(question(**pairs), b"!")


def test_a_question_without_a_limit_is_told_of_a_long_life() -> None:
    assert asking("c", "1", 3.0)["TTL"] == "3000"
    assert asking("c", "1", float("inf"))["TTL"] == "2147483000"


def test_a_reply_is_told_once_and_only_to_its_question() -> None:
    replies = AwaitedReplies()
    told: list[ReceivedMessage] = []
    replies.expect("n", told.append)
    for number in ("m", "n", "n"):
        fields = {"topic": "t", "properties": f"CORRELATION_ID\x01{number}\x02"}
        replies.pushed(Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, b"!"))
    (reply,) = told
    assert (reply.body, reply.topic) == (b"!", "t")
    replies.expect("k", told.append)
    replies.forget("k")
    replies.forget("k")
    fields = {"topic": "t", "properties": "CORRELATION_ID\x01k\x02"}
    replies.pushed(Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, b"!"))
    assert len(told) == 1


@pytest.mark.feature("F44")
async def test_questions_are_answered_while_their_asker_waits(tmp_path: Path) -> None:
    late: list[ReceivedMessage] = []
    with trio.fail_after(ENOUGH_S):
        async with real_group(tmp_path) as group:
            names = [group.names]
            async with (
                Producer("p", nameservers=names) as asker,
                Producer("q", nameservers=names) as replier,
            ):

                async def listener(messages: Sequence[ReceivedMessage]) -> None:
                    for message in messages:
                        if message.body == b"nobody":
                            late.append(message)
                        elif message.body != b"first":
                            await replier.reply(message, b"re: " + message.body)

                await asker.send(Message("T", b"first"), timeout_s=20)
                async with PushConsumer("g", "T", listener, nameservers=names) as consumer:
                    await consumer.ready()
                    answers: dict[int, bytes] = {}

                    async def ask(number: int) -> None:
                        body = b"%d" % number
                        reply = await asker.ask(Message("T", body), timeout_s=20)
                        answers[number] = reply.body

                    async with trio.open_nursery() as nursery:
                        for number in range(50):
                            nursery.start_soon(ask, number)
                    assert answers == {number: b"re: %d" % number for number in range(50)}
                    with pytest.raises(NoReply, match="within 1 s"):
                        await asker.ask(Message("T", b"nobody"), timeout_s=1)
                    await replier.reply(late[0], b"too late")  # the client still takes it
                    await ask(51)
                    assert answers[51] == b"re: 51"
            gone = late[0]
            async with Producer("q", nameservers=names) as replier:
                with pytest.raises(RequestRefused) as refused:
                    await replier.reply(gone, b"the asker has left")
                assert refused.value.code == ResponseCode.SYSTEM_ERROR
