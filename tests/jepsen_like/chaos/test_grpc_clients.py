"""Producers and consumers of a run that speak gRPC: their calls, and what they note."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing
from click.testing import CliRunner
from google.protobuf.message import Message

from dledger_mq import Producer
from jepsen_like.__main__ import main
from jepsen_like.chance import Chance
from jepsen_like.chaos.brokers.clients import DRAINED_TIMEOUT_S
from jepsen_like.chaos.brokers.grpc import messages as grpc_messages
from jepsen_like.chaos.brokers.grpc.connection import SERVICE, CallBroken, GrpcConnection
from jepsen_like.chaos.brokers.grpc.messages import GrpcMessages
from jepsen_like.chaos.brokers.grpc.producer import GrpcProducer
from jepsen_like.chaos.brokers.grpc.proxies import Proxies, proxies
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import Turn
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.run import FINAL_TIMEOUT_S
from jepsen_like.history.operation import EventType
from jepsen_like.history.reading import read_history
from jepsen_like.history.writer import HistoryWriter
from proxy.http2.call import Call
from proxy.http2.draining import Draining
from proxy.http2.errors import GrpcStatus
from proxy.http2.limits import Limits
from proxy.http2.server import serve_connection
from proxy.http2.status import Status as GrpcCode
from proxy.wire.messages_pb2 import Code, SendMessageRequest, SendMessageResponse, Status
from tests.jepsen_like.chaos.run_process import run_in

STEP = 7
Router = Callable[[Call], Awaitable[None]]


async def echo(call: Call) -> None:
    assert call.path == SERVICE + "Echo"
    assert call.metadata["x-mq-client-id"] == "me"
    while (message := await call.receive()) is not None:
        await call.send(message)
        await call.send(message)


async def connected(
    nursery: trio.Nursery, router: Router, draining: Draining | None = None
) -> GrpcConnection:
    ours, theirs = trio.testing.memory_stream_pair()
    draining = draining or Draining()
    nursery.start_soon(
        lambda: serve_connection(theirs, router, Limits(), "test", draining=draining)
    )
    connection = GrpcConnection(ours, "test:1", "me")
    nursery.start_soon(connection.run)
    return connection


async def test_many_calls_of_one_connection_are_answered(nursery: trio.Nursery) -> None:
    connection = await connected(nursery, echo)
    answers: list[list[bytes]] = []

    async def ask(number: int) -> None:
        answers.append(await connection.call("Echo", b"%d" % number * 900, 5.0))

    for begin in range(0, 400, 100):
        async with trio.open_nursery() as calls:
            for number in range(begin, begin + 100):
                calls.start_soon(ask, number)
    assert sorted(answers) == sorted([[b"%d" % number * 900] * 2 for number in range(400)])


async def test_a_status_of_grpc_breaks_a_call(nursery: trio.Nursery) -> None:
    async def refuse(call: Call) -> None:
        raise GrpcStatus(GrpcCode.UNAVAILABLE, "not now")

    connection = await connected(nursery, refuse)
    with pytest.raises(CallBroken, match="gRPC status 14: not now") as caught:
        await connection.call("Echo", b"", 5.0)
    assert not caught.value.is_certain


async def test_a_call_without_an_answer_is_uncertain_and_reset(nursery: trio.Nursery) -> None:
    ended = trio.Event()

    async def hang(call: Call) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    connection = await connected(nursery, hang)
    with pytest.raises(CallBroken, match="no answer") as caught:
        await connection.call("Echo", b"", 0.2)
    assert not caught.value.is_certain
    with trio.fail_after(5):
        await ended.wait()


async def test_a_proxy_that_ends_takes_no_further_call(nursery: trio.Nursery) -> None:
    draining = Draining()
    connection = await connected(nursery, echo, draining)
    assert await connection.call("Echo", b"1", 5.0)
    draining.begin()
    await trio.testing.wait_all_tasks_blocked()
    assert connection.is_over
    with pytest.raises(CallBroken) as caught:
        await connection.call("Echo", b"2", 5.0)
    assert caught.value.is_certain


async def test_without_a_proxy_nothing_was_done(free_port: int) -> None:
    async with proxies([f"127.0.0.1:{free_port}"], 0, "me") as client:
        with pytest.raises(CallBroken) as caught:
            await client.ask(SendMessageRequest(), SendMessageResponse, 1.0)
    assert caught.value.is_certain


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Answering:
    """A client in the place of one of proxies, which gives one answer."""

    def __init__(self, answer: SendMessageResponse | CallBroken) -> None:
        self._answer = answer

    async def ask(
        self, request: SendMessageRequest, answer_type: type[Message], timeout_s: float
    ) -> list[SendMessageResponse]:
        (message,) = request.messages
        assert message.body == b"42"
        if isinstance(self._answer, CallBroken):
            raise self._answer
        return [self._answer]


def status(code: Code) -> SendMessageResponse:
    return SendMessageResponse(status=Status(code=code, message="why"))


@pytest.mark.parametrize(
    ("answer", "told", "process", "is_due"),
    [
        (status(Code.OK), EventType.OK, 3, True),
        (status(Code.ILLEGAL_MESSAGE_KEY), EventType.FAIL, 3, False),
        (status(Code.HA_NOT_AVAILABLE), EventType.INFO, 3 + STEP, False),
        (CallBroken("no proxy", True), EventType.FAIL, 3, False),
        (CallBroken("no answer", False), EventType.INFO, 3 + STEP, False),
    ],
    ids=["ok", "wrong", "no-leader", "not-sent", "no-answer"],
)
async def test_the_history_has_the_outcome_that_the_proxy_told(
    answer: SendMessageResponse | CallBroken,
    told: EventType,
    process: int,
    is_due: bool,
    tmp_path: Path,
) -> None:
    with HistoryWriter(tmp_path / "history.jsonl", model="queue") as writer:
        notes = Notes(Recorder(writer, lambda: 0), STEP)
        workload = GrpcMessages(notes, ["127.0.0.1:1"], ["127.0.0.1:2"])
        turn = Turn(1, 3, 42, Chance(1, "producer"), 0)
        producer = GrpcProducer(cast(Proxies, Answering(answer)))
        assert await workload.send(cast(Producer, producer), turn) == (told, process)
        assert ((None, 42) in notes.due) == is_due
    (operation,) = read_history(tmp_path / "history.jsonl").operations
    assert operation.function == "send"
    assert operation.value == 42


def test_a_run_waits_for_all_that_a_consumer_may_have_to_wait_for() -> None:
    assert GrpcMessages.longest_wait_s + DRAINED_TIMEOUT_S < FINAL_TIMEOUT_S


def test_clients_of_grpc_go_with_messages_alone() -> None:
    ended = CliRunner().invoke(main, ["run", "--workload", "delay", "--client", "grpc"])
    assert ended.exit_code == 2
    assert "--client grpc goes with --workload messages" in ended.output


@pytest.mark.long
def test_nothing_that_clients_of_grpc_settled_comes_again_while_leaders_and_proxies_break(
    tmp_path: Path,
) -> None:
    words = ("--workload", "grpc", "--nemesis", "kill,freeze,proxy")
    ended = run_in(tmp_path, *words, "--time", "30", "--seed", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "valid (parts)" in ended.stdout


@pytest.mark.long
def test_clients_of_grpc_lose_no_message_while_leaders_and_proxies_are_killed(
    tmp_path: Path,
) -> None:
    words = ("--workload", "messages", "--client", "grpc", "--nemesis", "kill,proxy")
    ended = run_in(tmp_path, *words, "--time", "20", "--seed", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "valid (queue)" in ended.stdout


@pytest.mark.parametrize(("function", "is_made"), [("receive", False), ("send", True)])
def test_killed_clients_have_made_all_topics_once_one_of_them_has_sent(
    function: str, is_made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of one part may receive nothing while the topic of another one is made."""
    topic = SimpleNamespace(is_made=False)
    monkeypatch.setattr(grpc_messages, "MadeTopic", lambda *_, **__: topic)
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, model="parts") as writer:
        writer.event(0, 0, EventType.INVOKE, function, ("other", None), 1)
        workload = GrpcMessages(Notes(Recorder(writer, lambda: 0), STEP), [], [])
    workload.go_on(read_history(path).operations)
    assert topic.is_made == is_made
