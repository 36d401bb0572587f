from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from broker.replies import askers
from broker.replies.askers import Askers
from remoting.bodies.heartbeat import Heartbeat, encode_heartbeat
from remoting.message.properties import decode_properties
from remoting.net.address import Address
from remoting.net.request_table import Settle
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials
from tests.broker.access.guarded_broker import allow, guarded
from tests.broker.one_broker import Client, running_broker, send_fields, until
from tests.broker.untimed import Untimed

QUESTION = "CORRELATION_ID\x01n\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000\x02"
REPLY = "MSG_TYPE\x01reply\x02" + QUESTION
TOPIC = "DefaultCluster_REPLY_TOPIC"


async def answer(client: Client, topic: str = TOPIC, properties: str = REPLY) -> Command:
    return await client.ask(325, b"42", **send_fields(topic, 0, i=properties))


async def test_a_reply_is_pushed_to_the_client_that_has_asked(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        asker, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        asker.answers = True
        assert (await asker.send("T", b"6 x 7?", i=QUESTION)).code == 0
        (message,) = await consumer.messages("T")
        properties = message.property_map()
        assert properties["CLUSTER"] == "DefaultCluster"
        assert properties["CORRELATION_ID"] == "n"
        told = await answer(consumer)
        assert (told.code, told.fields["queueId"], told.fields["queueOffset"]) == (0, "0", "0")
        (push,) = asker.notices
        assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"42")
        assert push.fields["topic"] == TOPIC
        pairs = decode_properties(push.fields["properties"].encode())
        assert (pairs["CORRELATION_ID"], pairs["MSG_TYPE"]) == ("n", "reply")
        assert TOPIC in (await consumer.ask(21)).body.decode()


@pytest.mark.feature("F44")
async def test_a_client_that_asked_another_group_is_found_by_its_heartbeat(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        asker, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        asker.answers = True
        assert (await answer(consumer)).code == ResponseCode.SYSTEM_ERROR
        await asker.ask(34, encode_heartbeat(Heartbeat("asker", ["P", "Q"])))
        assert (await answer(consumer)).code == 0
        await asker.ask(35, clientID="asker", producerGroup="P")
        assert (await answer(consumer)).code == 0
        await asker.ask(35, clientID="asker", producerGroup="Q")
        assert (await answer(consumer)).code == ResponseCode.SYSTEM_ERROR


async def test_a_reply_to_a_client_that_is_gone_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        asker, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        assert (await asker.send("T", b"?", i=QUESTION)).code == 0
        asker.close()
        with trio.fail_after(5):
            while (told := await answer(consumer)).code == 0:
                pass
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert "channel of <asker> not found" in str(told.remark)


async def test_a_client_that_does_not_take_a_reply_is_told_of_as_not_there(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        asker, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        assert (await asker.send("T", b"?", i=QUESTION)).code == 0
        assert (await answer(consumer)).code == ResponseCode.SYSTEM_ERROR  # it says nothing for 3 s


@pytest.mark.parametrize(
    ("topic", "properties"),
    [("T", REPLY), (TOPIC, "MSG_TYPE\x01reply\x02"), (TOPIC, "REPLY_TO_CLIENT\x01\x02")],
)
async def test_a_reply_that_goes_nowhere_is_refused(
    tmp_path: Path, topic: str, properties: str
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        told = await answer(client, topic, properties)
        assert told.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_question_in_a_cluster_whose_name_makes_no_topic_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, cluster="my.cluster") as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        asked = await client.send("T", b"?", i=QUESTION)
        assert asked.code == ResponseCode.INVALID_PARAMETER
        assert (await client.send("T", b"x")).code == 0


async def test_a_reply_that_is_sent_like_other_messages_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        asker, consumer = (Client(nursery, str(broker.config.address)) for _ in range(2))
        assert (await asker.send("T", b"6 x 7?", i=QUESTION)).code == 0
        told = await consumer.send(TOPIC, b"42", i=REPLY)
        assert told.code == ResponseCode.MESSAGE_ILLEGAL, "it would be stored, and never answered"
        assert "send it with request 324 or 325" in str(told.remark)


async def test_a_client_is_found_by_its_other_connection_when_the_newer_one_ends(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        one, two, consumer = (Client(nursery, str(broker.config.address)) for _ in range(3))
        one.answers = two.answers = True
        for asker in (one, two):
            await asker.ask(34, encode_heartbeat(Heartbeat("asker", ["P"])))
        assert (await answer(consumer)).code == 0
        assert len(two.notices) == 1
        await two.ask(35, clientID="asker", producerGroup="P")
        assert (await answer(consumer)).code == 0
        assert len(one.notices) == 1
        await one.ask(35, clientID="asker", producerGroup="P")
        assert (await answer(consumer)).code == ResponseCode.SYSTEM_ERROR


async def test_no_other_user_takes_the_replies_to_a_client(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        rights = allow("Topic:*", "Pub", "Create")
        asker, other = [await here.user(name, rights) for name in ("asker", "other")]
        asker.answers = other.answers = True
        assert (await asker.send("T", b"6 x 7?", i=QUESTION)).code == 0
        stolen = await other.send("T", b"?", i=QUESTION)
        assert stolen.code == ResponseCode.NO_PERMISSION
        assert (await answer(here.admin)).code == 0
        assert (len(asker.notices), len(other.notices)) == (1, 0)
        again = here.client(Credentials("asker", "asker-secret"))
        assert (await again.send("T", b"6 x 7?", i=QUESTION)).code == 0
        again.answers = True
        assert (await answer(here.admin)).code == 0
        assert len(again.notices) == 1
        again.close()
        asker.close()
        await until(lambda: _is_let_in(other))
        assert (await answer(here.admin)).code == 0
        assert len(other.notices) == 1


@pytest.mark.parametrize("change", ["delete", "disable"])
async def test_a_user_that_is_gone_since_it_asked_gets_no_reply(
    tmp_path: Path, change: str
) -> None:
    async with guarded(tmp_path) as here:
        asks = await here.user("asks", allow("Topic:T", "Pub"))
        assert (await asks.send("T", b"?", i=QUESTION)).code == 0
        asks.answers = True
        assert (await answer(here.admin)).code == 0
        if change == "delete":
            assert await here.ask(RequestCode.AUTH_DELETE_USER, username="asks") == 0
        else:
            body = {"username": "asks", "userStatus": "disable"}
            assert await here.ask(RequestCode.AUTH_UPDATE_USER, body, username="asks") == 0
        assert (await answer(here.admin)).code == ResponseCode.SYSTEM_ERROR
        assert len(asks.notices) == 1


async def _is_let_in(client: Client) -> bool:
    return (await client.send("T", b"?", i=QUESTION)).code == 0


class Origin(Untimed):
    """A connection."""

    is_closed = False
    is_behind = False
    peer = Address("10.0.0.1", 1)

    def send(self, command: Command) -> None: ...

    def send_all(self, commands: Sequence[Command]) -> None: ...

    def send_oneway(self, command: Command) -> None: ...

    def gather(self) -> None: ...

    def write_gathered(self) -> None: ...

    def set_aside(self, command: Command) -> None: ...

    def when_taken(self, then: object) -> None: ...

    def request(self, command: Command, settle: Settle, timeout_s: float) -> None: ...


def test_the_client_that_has_asked_nothing_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(askers, "MAX_ASKERS", 3)
    known, one, two = Askers(), Origin(), Origin()
    for name in "abc":
        known.asked(name, one)
    known.asked("a", two)
    known.asked("d", one)
    assert [known.found(name) for name in "abcd"] == [two, None, one, one]
    known.drop(one)
    assert [known.found(name) for name in "acd"] == [two, None, None]
    known.drop(two)
    known.drop(two)
    assert len(known) == 0
    assert not known._names
