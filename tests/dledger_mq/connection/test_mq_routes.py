from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from dledger_mq import (
    Admin,
    Client,
    Message,
    NameServersUnreachable,
    NoMaster,
    Producer,
    PullConsumer,
    PullStatus,
    Rejected,
    RequestRefused,
    RouteNotFound,
)
from dledger_mq.connection.calls import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    RESTART_PAUSE_S,
    call_master,
    pause_s,
)
from dledger_mq.connection.requests import max_offset
from dledger_mq.connection.topic_route import client_route
from dledger_mq.consuming.subscription import subscription
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.route import BrokerData, QueueData, TopicRoute
from remoting.message.properties import encode_properties
from remoting.message.topic_names import TEMPLATE_TOPIC
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, scripted

QUEUE = MessageQueue("T", "broker-a", 0)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[ScriptedNames, ScriptedBroker]]:
    broker = ScriptedBroker()
    async with scripted(broker) as names:
        yield names, broker


def test_queues_that_may_not_be_written_or_read_are_left_out() -> None:
    route = client_route(
        "T",
        TopicRoute(
            [QueueData("a", 2, 3, 4), QueueData("b", 2, 1, 2), QueueData("c", 1, 1, 6)],
            [BrokerData("C", "a", {0: "x:1"}), BrokerData("C", "b", {0: "y:1"})],
        ),
    )
    assert route.write_queues == (MessageQueue("T", "b", 0),)
    assert route.read_queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
        MessageQueue("T", "c", 0),
    )
    assert route.masters == {"a": "x:1", "b": "y:1"}


@pytest.mark.feature("F7")
def test_an_order_configuration_fixes_the_queues_to_send_to() -> None:
    brokers = [BrokerData("C", "a", {0: "x:1"}), BrokerData("C", "b", {1: "y:1"})]
    queues = [QueueData("a", 8, 8, 6)]
    route = client_route("T", TopicRoute(queues, brokers, "b:2;a:1;"))
    assert route.write_queues == tuple(
        MessageQueue("T", name, number) for name, number in (("b", 0), ("b", 1), ("a", 0))
    )
    assert len(route.read_queues) == 8
    with pytest.raises(BodyMalformed):
        client_route("T", TopicRoute(queues, brokers, "b:1000000000"))


async def test_a_send_to_a_fixed_queue_of_a_broker_that_is_away_is_refused() -> None:
    async with running() as (names, _broker):
        names.routes["T"].order_topic_conf = "gone:1"
        async with Producer("p", nameservers=names.address) as producer:
            with pytest.raises(Rejected, match="gone"):
                await producer.send(Message("T", b"x"), timeout_s=0.5)
            with pytest.raises(Rejected, match="gone"):
                await producer.send_oneway(Message("T", b"x"))


def test_a_slave_is_no_leader() -> None:
    route = client_route(
        "T", TopicRoute([QueueData("a", 1, 1, 6)], [BrokerData("C", "a", {1: "x:1"})])
    )
    assert (route.write_queues, len(route.read_queues), route.masters) == ((), 1, {})


def test_pauses_are_short_for_ten_seconds_and_then_a_second() -> None:
    pauses = [pause_s(failures) for failures in range(1, 40)]
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses[-1] == LONGEST_PAUSE_S
    at_first = [pause for pause in pauses if pause <= RESTART_PAUSE_S]
    assert 9 < sum(at_first) < 12
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("text", "expression", "tags"),
    [
        ("*", "*", []),
        ("", "*", []),
        ("A", "A", ["A"]),
        (" A||B || ", "A || B", ["A", "B"]),
        ("A || *", "*", []),
    ],
)
def test_a_tag_expression_is_split(text: str, expression: str, tags: list[str]) -> None:
    found = subscription("T", text)
    assert (found.expression, found.tags) == (expression, tags)


async def test_callers_that_ask_at_once_share_one_question() -> None:
    async with running() as (names, _broker), Client([names.address]) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client.routes.find, "T")
        assert len(names.requests) == 1


@contextmanager
def held_questions(client: Client) -> Iterator[trio.Event]:
    """Questions to name servers wait for the event."""
    routes, go_on = client.routes, trio.Event()
    ask = routes.ask_nameserver

    async def held(command: Command, what: str) -> Command:
        await go_on.wait()
        return await ask(command, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "ask_nameserver", held)
        yield go_on


async def test_callers_that_share_a_question_survive_the_one_that_asked() -> None:
    async with (
        running() as (names, _broker),
        Client([names.address]) as client,
    ):
        found = []

        async def find() -> None:
            found.append(await client.routes.find("T"))

        with held_questions(client) as go_on:
            async with trio.open_nursery() as nursery:
                first = trio.CancelScope()

                async def asks() -> None:
                    with first:
                        await find()

                nursery.start_soon(asks)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(find)
                nursery.start_soon(find)
                await trio.testing.wait_all_tasks_blocked()
                first.cancel()
                await trio.testing.wait_all_tasks_blocked()
                go_on.set()
        assert len(names.requests) == 1
        assert [one.topic for one in found] == ["T", "T"]


async def test_callers_that_share_a_question_share_its_error() -> None:
    async with running() as (names, _broker), Client([names.address]) as client:
        names.set_route("T", None)
        names.routes.clear()
        errors = []

        async def find() -> None:
            with pytest.raises(RouteNotFound) as raised:
                await client.routes.find("T")
            errors.append(raised.value)

        with held_questions(client) as go_on:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(find)
                nursery.start_soon(find)
                await trio.testing.wait_all_tasks_blocked()
                go_on.set()
        assert errors[0] is errors[1]


async def test_a_topic_that_is_gone_keeps_its_queues_and_loses_its_leaders() -> None:
    async with running() as (names, _broker), Client([names.address]) as client:
        before = await client.routes.find("T")
        names.routes.clear()
        with pytest.raises(RouteNotFound):
            await client.routes.refresh("T")
        now = client.routes.known("T")
        assert now is not None
        assert now.read_queues == before.read_queues
        assert (now.masters, now.write_queues) == ({}, ())


async def test_name_servers_that_are_all_down_are_named() -> None:
    async with Client(["127.0.0.1:1", "127.0.0.1:2"]) as client:
        with pytest.raises(NameServersUnreachable, match=r"127\.0\.0\.1") as caught:
            await client.routes.find("T")
    assert sorted(caught.value.nameservers) == ["127.0.0.1:1", "127.0.0.1:2"]


async def test_a_call_waits_for_a_leader_and_gives_up_when_its_time_is_over() -> None:
    async with running() as (names, broker), Client([names.address]) as client:
        names.set_route("T", None)
        with pytest.raises(NoMaster):
            await call_master(client, QUEUE, max_offset(QUEUE), "ask", timeout_s=0.3)
        async with trio.open_nursery() as nursery:

            async def elect() -> None:
                await trio.sleep(0.2)
                names.set_route("T", broker.address)

            nursery.start_soon(elect)
            reply = await call_master(client, QUEUE, max_offset(QUEUE), "ask")
        assert reply.fields["offset"] == "0"


async def test_a_refusal_for_good_ends_a_call_at_once() -> None:
    async with running() as (names, broker), Client([names.address]) as client:
        broker.answers[RequestCode.GET_MAX_OFFSET] = lambda _, c: c.reply(17, remark="no topic")
        with pytest.raises(RequestRefused, match="no topic") as caught:
            await call_master(client, QUEUE, max_offset(QUEUE), "ask")
        assert caught.value.code == 17
        assert len(broker.requests) == 1


async def test_a_leader_that_is_busy_is_asked_again() -> None:
    async with running() as (names, broker), Client([names.address]) as client:
        normal = broker.answers[RequestCode.GET_MAX_OFFSET]

        def busy(_connection: Connection, command: Command) -> Command:
            broker.answers[RequestCode.GET_MAX_OFFSET] = normal
            return command.reply(ResponseCode.SYSTEM_BUSY)

        broker.answers[RequestCode.GET_MAX_OFFSET] = busy
        await call_master(client, QUEUE, max_offset(QUEUE), "ask")
        assert len(broker.asked(RequestCode.GET_MAX_OFFSET)) == 2


async def test_a_pull_consumer_reads_a_queue_to_its_end_and_commits() -> None:
    async with running() as (names, broker):
        for number in range(70):
            tag = "A" if number % 2 else "B"
            broker.store.put("T", 0, str(number).encode(), encode_properties({"TAGS": tag}))
        async with PullConsumer("g", nameservers=[names.address]) as consumer:
            assert [queue.queue_id for queue in await consumer.queues("T")] == [0, 1]
            found: list[bytes] = []
            offset = await consumer.first_offset(QUEUE)
            while offset < await consumer.next_offset(QUEUE):
                result = await consumer.pull(QUEUE, offset, tags="A")
                found += [message.body for message in result.messages]
                offset = result.next_offset
            assert found == [str(number).encode() for number in range(1, 70, 2)]
            beyond = await consumer.pull(QUEUE, 500)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_MOVED, 70)
            assert (await consumer.pull(QUEUE, 70)).status is PullStatus.NO_NEW_MESSAGE
            assert await consumer.committed(QUEUE) is None
            await consumer.commit(QUEUE, 70)
            assert await consumer.committed(QUEUE) == 70


@pytest.mark.feature("F34")
async def test_a_held_pull_ends_when_a_message_comes() -> None:
    async with running() as (names, broker):
        async with PullConsumer("g", nameservers=[names.address]) as consumer:

            async def write() -> None:
                while not broker.held:  # noqa: ASYNC110 - the broker has no event for it
                    await trio.sleep(0.005)
                broker.put("T", 0, b"late")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                result = await consumer.pull(QUEUE, 0, hold_s=5)
        assert [message.body for message in result.messages] == [b"late"]


async def test_an_administrator_sees_how_far_a_group_is_behind() -> None:
    async with running() as (names, broker), Admin(nameservers=[names.address]) as admin:
        for _ in range(5):
            broker.store.put("T", 1, b"x")
        broker.store.offsets[("g", "T", 1)] = 2
        first, second = await admin.progress("T", "g")
    assert (first.committed, first.lag) == (None, 0)
    assert (second.next_offset, second.committed, second.lag) == (5, 2, 3)


async def test_a_leader_that_registers_between_two_questions_changes_no_number_of_queues() -> None:
    async with running() as (names, broker):
        del names.routes["T"]

        def route(_connection: Connection, command: Command) -> Command:
            reply = names._route(_connection, command)
            if not names.routes:  # behind the first question it registers
                names.set_route("T", broker.address, queues=6)
                names.set_route(TEMPLATE_TOPIC, broker.address, queues=4)
            return reply

        names.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
        async with Client([names.address]) as client:
            found = await client.routes.find("T", may_create=True)
    assert not found.provisional
    assert len(found.write_queues) == 6


async def test_a_topic_that_was_there_is_not_made_anew_while_its_group_has_no_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as (names, broker), Client([names.address]) as client:
        assert len((await client.routes.find("T", may_create=True)).write_queues) == 2
        del names.routes["T"]
        names.set_route(TEMPLATE_TOPIC, broker.address, queues=4)  # of another group
        with pytest.raises(RouteNotFound):
            await client.routes.refresh("T", may_create=True)
        monkeypatch.setattr("dledger_mq.connection.routes.GONE_S", 0.0)
        assert (await client.routes.refresh("T", may_create=True)).provisional
