"""Offsets are answered only by a leader that the group confirms."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
import trio.testing

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.confirmed_reads import ConfirmedReads
from dledger.errors import ReadUnavailable
from remoting.wire.codes import LanguageCode, RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.one_broker import Client, running_broker, served
from tests.broker.three_brokers import group_of_three
from tests.broker.untimed import AtOnce, Untimed

if TYPE_CHECKING:
    from remoting.net.connection import Connection

# Codes whose answers need a confirmed leader.
CONFIRMED = (
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.QUERY_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
)

Answers = list[RequestRefused | None]


class Connected(SimpleNamespace):
    """A connection, which is counted by its identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Group:
    """Confirms when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.confirm = trio.Event()
        self.problem: ReadUnavailable | None = None

    async def read(self) -> int:
        self.asked += 1
        await self.confirm.wait()
        if self.problem is not None:
            raise self.problem
        return 7


async def test_answers_that_gather_share_one_question() -> None:
    group, answers = Group(), list[RequestRefused | None]()
    reads = ConfirmedReads(group.read, 100, AtOnce())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reads.run)
        reads.add(answers.append)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(50):
            # The question under way was asked before these came: they need one of their own.
            reads.add(answers.append)
        assert (group.asked, answers) == (1, [])
        group.confirm.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (group.asked, answers) == (2, [None] * 51)
        nursery.cancel_scope.cancel()


async def test_what_is_not_confirmed_is_refused_and_the_next_one_is_asked_for_again() -> None:
    group, answers = Group(), list[RequestRefused | None]()
    reads = ConfirmedReads(group.read, 100, AtOnce())
    group.confirm.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reads.run)
        group.problem = ReadUnavailable("no leader")
        reads.add(answers.append)
        await trio.testing.wait_all_tasks_blocked()
        assert answers[0] is not None
        assert answers[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
        group.problem = None
        reads.add(answers.append)
        await trio.testing.wait_all_tasks_blocked()
        assert answers[1] is None
        nursery.cancel_scope.cancel()


async def test_too_many_that_wait_are_refused() -> None:
    reads = ConfirmedReads(Group().read, 2, AtOnce())
    answers: Answers = []
    reads.add(answers.append)
    reads.add(answers.append)
    with pytest.raises(RequestRefused) as refused:
        reads.add(answers.append)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert answers == []


@pytest.mark.feature("F58")
async def test_a_leader_without_its_quorum_answers_no_offset(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader, client = await group.leader()
        await client.send("T", b"x")
        await client.heartbeat("c", "g", "T")
        fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "timestamp": 0}
        assert (await client.ask(15, commitOffset=0, **fields)).code == 0
        fields |= {"group": "g", "isForce": "true", "srcGroup": "g", "destGroup": "h"}
        fields |= {"key": "7F0000010001000000000000000001", "maxNum": 1}
        fields |= {"compareGroup": "g", "index": 0, "count": 1}
        fields |= {"username": "u", "subject": "User:u"}
        fields |= {"beginTimestamp": 0, "endTimestamp": 1 << 62, "maxMsgNums": 1}
        found: dict[int, int] = {}

        async def ask(code: int) -> None:
            found[code] = (await client.ask(code, **fields)).code

        for code in CONFIRMED:
            await ask(code)
        assert found == dict.fromkeys(CONFIRMED, ResponseCode.SUCCESS)
        for node_id in list(group.brokers):
            if node_id != leader:
                group.stop(node_id)
        # It still takes itself for the leader: nobody told it otherwise yet.
        assert group.brokers[leader].requests.led_term is not None
        async with trio.open_nursery() as nursery:
            for code in CONFIRMED:
                nursery.start_soon(ask, code)
        assert found == dict.fromkeys(CONFIRMED, ResponseCode.SERVICE_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("language", "version", "is_told"),
    [
        (LanguageCode.JAVA, 409, False),  # 4.9.8
        (LanguageCode.JAVA, 413, True),  # 5.0.0
        (LanguageCode.CPP, 400, False),
        (LanguageCode.GO, 317, True),
        (LanguageCode.PYTHON, 409, True),
        ("LISP", 500, False),
    ],
)
async def test_a_client_that_takes_refusals_of_offsets_for_none_is_not_told_of_any(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    language: int | str,
    version: int,
    is_told: bool,
) -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    sent: list[Command] = []
    connection = cast(
        "Connection",
        Connected(is_turn_over=False, send=sent.append, go_on=Untimed().go_on, peer="the client"),
    )
    asked = Command(RequestCode.QUERY_CONSUMER_OFFSET, fields, language=language, version=version)

    def too_many(_then: Then) -> None:
        raise RequestRefused(ResponseCode.SYSTEM_BUSY, "too many wait")

    def not_confirmed(then: Then) -> None:
        then(RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "not confirmed"))

    def lost_meanwhile(then: Then) -> None:
        broker.requests.let_go()
        then(None)

    async with running_broker(tmp_path) as (broker, nursery):
        await Client(nursery, str(broker.config.address)).send("T", b"x")
        for confirm in (too_many, not_confirmed, lost_meanwhile):
            monkeypatch.setattr(broker.requests, "_confirm", confirm)
            broker.requests.on_commands(connection, [asked])
        broker.requests.on_commands(connection, [asked])  # it does not lead any more
        assert len(sent) == (4 if is_told else 0)
        broker.requests.on_commands(connection, [Command(RequestCode.GET_MAX_OFFSET, fields)])
        assert sent[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_every_client_is_told_that_a_group_has_no_offset(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        code = RequestCode.QUERY_CONSUMER_OFFSET
        never = await client.ask(code, **fields, setZeroIfNotFound="false")
        assert never.code == ResponseCode.QUERY_NOT_FOUND


async def test_an_offset_that_is_committed_already_is_confirmed_and_not_written_again(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x")
        await client.heartbeat("c", "g", "T")
        fields: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": 0,
            "commitOffset": 1,
        }
        assert (await client.ask(15, **fields)).code == 0
        written = broker.node.status().last_index
        assert (await client.ask(15, **fields)).code == 0
        assert broker.node.status().last_index == written


async def test_an_error_in_one_confirmed_answer_does_not_touch_the_others(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        broken = await client.ask(RequestCode.GET_MAX_OFFSET, topic="T")
        assert broken.code == ResponseCode.SYSTEM_ERROR
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0)).code == 0


async def test_the_answers_that_need_a_confirmed_leader_are_these(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        handlers = broker.requests.handlers
        assert {code for code, handler in handlers.items() if handler.confirmed} == set(CONFIRMED)
