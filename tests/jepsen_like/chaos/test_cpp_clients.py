"""Producers and consumers of C++ in a run; a package in the place of RocketMQ's stands for them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.chance import Chance
from jepsen_like.chaos.brokers.clients import DRAINED_TIMEOUT_S
from jepsen_like.chaos.brokers.cpp.installed import CppClientMissing, find_cpp_client
from jepsen_like.chaos.brokers.cpp.messages import CppMessages
from jepsen_like.chaos.brokers.cpp.process import CppEnded, cpp_process
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import Turn
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.run import FINAL_TIMEOUT_S
from jepsen_like.history.operation import EventType
from jepsen_like.history.reading import read_history
from jepsen_like.history.writer import HistoryWriter
from tests.jepsen_like.chaos.run_process import PROJECT, run_in

STEP = 7

EXCEPTIONS = """
class RocketMQException(Exception): ...
class NullPointerException(RocketMQException): ...
class MallocFailed(RocketMQException): ...
class ProducerStartFailed(RocketMQException): ...
class ProducerSendSyncFailed(RocketMQException): ...
class PushConsumerStartFailed(RocketMQException): ...
"""

CLIENT = """
import enum, os, threading, types
from pathlib import Path
from . import exceptions

HOME = Path(os.environ["HOME"])

def note(text):
    print("the library says something", flush=True)  # which must not be taken for an answer
    with (HOME / "notes").open("a") as notes:
        notes.write(text + "\\n")

class SendStatus(enum.IntEnum):
    OK = 0
    FLUSH_DISK_TIMEOUT = 1

class Message:
    def __init__(self, topic): ...
    def set_keys(self, keys): ...
    def set_body(self, body): self.body = body

class Producer:
    def __init__(self, group, timeout): self.starts = 0
    def set_namesrv_addr(self, address): ...
    def start(self):
        self.starts += 1
        if self.starts == 1:
            raise exceptions.ProducerStartFailed("no name server yet")
    def send_sync(self, message):
        note(message.body)
        match message.body:
            case "1": return types.SimpleNamespace(status=SendStatus.OK)
            case "2": raise exceptions.ProducerSendSyncFailed("No route info of this topic")
            case "3": return types.SimpleNamespace(status=SendStatus.FLUSH_DISK_TIMEOUT)
            case "4": raise exceptions.NullPointerException("no memory")
            case "5": os.abort()

class RecvMessage:
    def __init__(self, handle): self.body = handle

dll = types.SimpleNamespace(Subscribe=lambda handle, topic, tags: None)

class PushConsumer:
    _handle = None
    def __init__(self, group): ...
    def set_namesrv_addr(self, address): ...
    def _register_callback(self, callback): self.callback = callback
    def start(self):
        threading.Thread(target=self.deliver, daemon=True).start()
    def deliver(self):
        for body in (b"7", b"8", b"9"):
            note(f"{body.decode()} -> {self.callback(None, body)}")
    def shutdown(self): note("left")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of clients, with the other package in the place of RocketMQ's."""
    package = tmp_path / "packages" / "rocketmq"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "exceptions.py").write_text(EXCEPTIONS)
    (package / "client.py").write_text(CLIENT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(PROJECT), str(package.parent))))
    home = tmp_path / "home"
    home.mkdir()
    return home


async def test_a_send_is_unknown_unless_it_was_acknowledged_or_never_left(home: Path) -> None:
    async with cpp_process("produce", "127.0.0.1:1", "T", "G", home) as client:
        outcomes = {}
        for body in ("1", "2", "3", "4"):
            await client.say(send=body)
            outcomes[body] = (await client.hear_within(30))["outcome"]
    assert outcomes == {"1": "ok", "2": "unknown", "3": "unknown", "4": "fail"}


async def test_a_crash_of_a_client_is_told(home: Path) -> None:
    async with cpp_process("produce", "127.0.0.1:1", "T", "G", home) as client:
        await client.say(send="5")
        with pytest.raises(CppEnded, match=r"\(produce\) ended with -6"):
            await client.hear()


async def test_a_message_is_consumed_once_it_is_noted(home: Path) -> None:
    async with cpp_process("consume", "127.0.0.1:1", "T", "G", home) as client:
        said = [await client.hear()]
        await client.say(noted=True)
        said.append(await client.hear())
        await client.say(noted=False)
        said.append(await client.hear())
        await client.say(leave=True)
        with pytest.raises(CppEnded, match="ended with 0"):
            await client.hear()
    assert [one["took"] for one in said] == ["7", "8", "9"]
    assert (home / "notes").read_text().split("\n")[:-1] == ["7 -> 0", "8 -> 1", "left"]


async def test_a_consumer_may_be_told_to_leave_while_it_is_told_of_a_message(home: Path) -> None:
    longer_than_a_pipe_takes = "." * 1_000_000
    async with cpp_process("consume", "127.0.0.1:1", "T", "G", home) as client:
        assert await client.hear() == {"took": "7"}
        async with trio.open_nursery() as nursery:
            for noted in (True, False, False):
                nursery.start_soon(partial(client.say, noted=noted, more=longer_than_a_pipe_takes))
        assert await client.hear() == {"took": "8"}


class Answering:
    """A client in the place of a process, which gives one answer."""

    def __init__(self, **answer: object) -> None:
        self._answer = answer

    async def say(self, **fields: object) -> None:
        self.said = fields

    async def hear_within(self, timeout_s: float) -> dict[str, object]:
        return self._answer


@pytest.mark.parametrize(
    ("outcome", "told", "process", "is_due"),
    [
        ("ok", EventType.OK, 3, True),
        ("fail", EventType.FAIL, 3, False),
        ("unknown", EventType.INFO, 3 + STEP, False),
    ],
)
async def test_the_history_has_the_outcome_that_the_client_told(
    outcome: str, told: EventType, process: int, is_due: bool, tmp_path: Path
) -> None:
    with HistoryWriter(tmp_path / "history.jsonl", model="queue") as writer:
        notes = Notes(Recorder(writer, lambda: 0), STEP)
        workload = CppMessages(notes, ["127.0.0.1:1"], tmp_path)
        client = Answering(outcome=outcome, error="why")
        turn = Turn(1, 3, 42, Chance(1, "producer"), 0)
        assert await workload.send(client, turn) == (told, process)
        assert client.said == {"send": "42"}
        assert (None, 42) in notes.due or not is_due
        assert not notes.due or is_due
    (operation,) = read_history(tmp_path / "history.jsonl").operations
    assert operation.function == "send"
    assert operation.value == 42


def test_a_run_waits_for_all_that_a_client_of_cpp_may_have_to_wait_for() -> None:
    assert CppMessages.longest_wait_s + DRAINED_TIMEOUT_S < FINAL_TIMEOUT_S


def test_without_the_package_a_run_says_what_to_install(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages" / "rocketmq" / "client.py").write_text("raise ImportError('no library')")
    monkeypatch.chdir(home)
    ended = CliRunner().invoke(main, ["run", "--workload", "messages", "--client", "cpp"])
    assert ended.exit_code == 2
    assert "(ImportError: no library): run `pip install rocketmq==0.4.4`" in ended.output
    assert list(home.iterdir()) == []


def test_clients_of_cpp_go_with_messages_alone() -> None:
    ended = CliRunner().invoke(main, ["run", "--workload", "delay", "--client", "cpp"])
    assert ended.exit_code == 2
    assert "--client cpp goes with --workload messages" in ended.output


@pytest.mark.long
def test_clients_of_cpp_lose_no_message_while_leaders_are_killed_and_frozen(tmp_path: Path) -> None:
    try:
        find_cpp_client()
    except CppClientMissing as error:
        pytest.skip(str(error))
    words = ("--workload", "messages", "--client", "cpp", "--nemesis", "kill,freeze")
    ended = run_in(tmp_path, *words, "--time", "20", "--seed", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "valid (queue)" in ended.stdout
