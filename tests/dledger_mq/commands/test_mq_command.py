import errno
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
import trio
from click.testing import CliRunner, Result

from dledger.shown_output import escaped
from dledger_mq.__main__ import _EscapedLines, main
from dledger_mq.clusters.group_directory import ClusterPlan, GroupDirectory, GroupPlan, NodePlan
from dledger_mq.clusters.local_cluster import broker_program
from dledger_mq.clusters.new_groups import new_groups
from dledger_mq.commands.status_command import _alarms, _undelivered
from dledger_mq.errors import GroupDirectoryError
from remoting.bodies.route import BrokerData, ClusterInfo
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, scripted

NODES = (NodePlan("n0", "127.0.0.1:1", "127.0.0.1:2"), NodePlan("n1", "127.0.0.1:3", "127.0.0.1:4"))
PLAN = ClusterPlan(
    "DefaultCluster",
    "127.0.0.1:9876",
    (
        GroupPlan("broker-a", NODES, "127.0.0.1:5", "n1"),
        GroupPlan("broker-b", (NodePlan("b0", "127.0.0.1:6", "127.0.0.1:7"),)),
    ),
)

# Nobody listens on port 1.
NOBODY = "127.0.0.1:1"


def test_a_group_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    directory = GroupDirectory(tmp_path)
    assert directory.read_plan() is None
    directory.write(PLAN, {"n0": 7})
    assert directory.read_plan() == PLAN
    assert directory.read_pids() == {"n0": 7}
    assert PLAN.groups[0].peers == "n0=127.0.0.1:1,n1=127.0.0.1:3"
    assert [node.name for node in PLAN.nodes] == ["n0", "n1", "b0"]


def test_a_directory_of_an_earlier_version_is_read_as_one_group(tmp_path: Path) -> None:
    content = {
        **{"format": "dledger-mq group 1", "cluster": "DefaultCluster", "group": "broker-a"},
        **{"nameserver": "127.0.0.1:9876", "pids": {"n0": 7}},
        "nodes": [
            {"name": one.name, "peer": one.peer_address, "client": one.client_address}
            for one in NODES
        ],
    }
    (tmp_path / "group.json").write_text(json.dumps(content))
    plan = ClusterPlan("DefaultCluster", "127.0.0.1:9876", (GroupPlan("broker-a", NODES),))
    assert GroupDirectory(tmp_path).read_plan() == plan


def test_a_program_gets_what_its_group_needs(tmp_path: Path) -> None:
    first, second = (
        " ".join(broker_program(GroupDirectory(tmp_path), PLAN, group, group.nodes[0]).arguments)
        for group in PLAN.groups
    )
    assert "--group broker-a --node n0 --peers n0=127.0.0.1:1,n1=127.0.0.1:3" in first
    assert first.endswith("--listen-group 127.0.0.1:5 --share-port --prefer n1")
    assert "--group broker-b --node b0 --peers b0=127.0.0.1:6 --listen 127.0.0.1:7" in second
    assert "--listen-group" not in second
    assert "--prefer" not in second
    (group, _) = PLAN.groups
    more = broker_program(GroupDirectory(tmp_path), PLAN, group, group.nodes[0], ("--config", "f"))
    assert more.arguments[-7:-5] == ("--config", "f")


def test_new_groups_are_led_by_different_nodes_as_far_as_there_are_enough() -> None:
    groups = new_groups(3, 2)
    assert [group.name for group in groups] == ["broker-a", "broker-b", "broker-c"]
    assert [group.preferred for group in groups] == ["a0", "b1", "c0"]
    addresses = [
        *(group.address for group in groups),
        *(node.peer_address for group in groups for node in group.nodes),
        *(node.client_address for group in groups for node in group.nodes),
    ]
    assert len(set(addresses)) == 15
    (alone,) = new_groups(1, 1)
    assert (alone.nodes[0].name, alone.address, alone.preferred) == ("n0", None, None)


def test_two_cannot_hold_one_directory(tmp_path: Path) -> None:
    first, second = GroupDirectory(tmp_path), GroupDirectory(tmp_path)
    first.lock()
    with pytest.raises(GroupDirectoryError, match="already runs"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(GroupDirectoryError, match="other files"):
        GroupDirectory(tmp_path).lock()
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]


GROUP = '{"format": "dledger-mq group 2", "cluster": "c", "nameserver": "n", "groups": %s}'


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", '{"format": "other"}', "[1]", '{"format": 3}', "[" * 100_000),
        *(GROUP % "[]", GROUP % '["a"]', GROUP % '[{"group": "a", "nodes": []}]', GROUP % "3"),
    ],
    ids=lambda content: content[-20:],
)
def test_a_plan_that_cannot_be_read_is_told_and_kept(tmp_path: Path, content: str) -> None:
    (tmp_path / "group.json").write_text(content)
    with pytest.raises(GroupDirectoryError):
        GroupDirectory(tmp_path).read_plan()
    assert (tmp_path / "group.json").read_text() == content


def test_a_directory_keeps_its_numbers_of_nodes_and_groups(tmp_path: Path) -> None:
    GroupDirectory(tmp_path).write(PLAN, {})
    for option, found in (("--nodes", 2), ("--groups", 2)):
        result = CliRunner().invoke(main, ["up", "--dir", str(tmp_path), option, "5"])
        assert result.exit_code == 1
        assert f"it was made with {option} {found}, not 5" in result.output


def test_an_address_of_a_name_server_that_is_none_is_a_wrong_call_and_not_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "group"
    for option in ("--nameserver", "--grpc"):
        ended = CliRunner().invoke(main, ["up", "--dir", str(path), option, "nonsense"])
        assert (ended.exit_code, "write host:port" in ended.output) == (2, True)
    assert not (path / "group.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "status", "T"],
        ["topic", "delete", "T"],
        ["status"],
        ["send", "T", "hello", "--timeout", "0.2"],
    ],
)
def test_without_a_name_server_a_command_says_so_in_one_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, [*arguments, "--nameserver", NOBODY])
    assert result.exit_code == 1
    (line,) = [text for text in result.output.splitlines() if text.strip()]
    assert line.startswith("dledger-mq: ")
    assert "check that" in line


def test_a_consumer_that_gets_too_little_says_how_much(caplog: pytest.LogCaptureFixture) -> None:
    result = CliRunner().invoke(
        main, ["consume", "T", "--count", "2", "--timeout", "0.3", "--nameserver", NOBODY]
    )
    assert result.exit_code == 2
    assert "0 of 2 messages came" in result.output
    assert "check that one runs" in caplog.text


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (OSError(28, "No space left on device"), 1, "no space"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_messages_that_are_not_printed_are_not_given_back(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    raised: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(_line: str) -> bool:
        raise raised

    monkeypatch.setattr("dledger_mq.commands.consume_command.say", fail)
    broker = ScriptedBroker()
    broker.store.put("T", 0, b"x")
    async with scripted(broker, group="g", queues=1) as names:
        ended = await invoked(names, "consume", "T", "--group", "g", "--from-first")
        assert (ended.exit_code, "ends by an error" in caplog.text) == (code, False)
        assert words in ended.output
        assert bool(ended.output) == bool(words)
        assert not broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert not broker.store.offsets.get(("g", "T", 0))


@pytest.mark.parametrize("known", [[], ["broker-a"]])
async def test_without_a_leader_commands_say_so_and_not_that_the_topic_is_unknown(
    known: list[str],
) -> None:
    async with scripted() as names:
        brokers = {name: BrokerData("C", name, {1: "127.0.0.1:1"}) for name in known}
        names.set_cluster(ClusterInfo(brokers))
        for arguments in (["send", "T", "hello", "--timeout", "0.3"], ["topic", "status", "T"]):
            ended = await invoked(names, *arguments)
            assert ended.exit_code == 1
            assert "quorum" in ended.stderr
            assert ("broker-a leads" in ended.stderr) == bool(known)
            assert "know no topic" not in ended.stderr
        ended = await invoked(names, "status")
        assert ended.exit_code == 1
        assert "quorum" in ended.stderr


async def test_with_a_leader_a_topic_that_is_not_there_is_said_to_be_unknown() -> None:
    async with scripted() as names:
        names.set_cluster(ClusterInfo({"a": BrokerData("C", "a", {0: "127.0.0.1:1"})}))
        ended = await invoked(names, "topic", "status", "T")
        assert ended.exit_code == 1
        assert "know no topic 'T'" in ended.stderr


async def test_bytes_that_are_no_text_are_sent_as_they_are() -> None:
    broker = ScriptedBroker()
    async with scripted(broker, queues=1) as names:
        ended = await invoked(names, "send", "T", os.fsdecode(b"caf\xe9"))
        assert ended.exit_code == 0, ended.output
        assert [record.body for record in broker.store.queues["T", 0]] == [b"caf\xe9"]


async def test_a_line_from_a_pipe_is_sent_before_the_next_one_comes() -> None:
    broker = ScriptedBroker()
    async with scripted(broker, queues=1) as names, trio.open_nursery() as nursery:
        stored = broker.store.queues.setdefault(("T", 0), [])
        reading, writing = os.pipe()
        ended: list[Result] = []

        async def send() -> None:
            with os.fdopen(reading, "rb") as lines:
                ended.append(await invoked(names, "send", "T", input=lines))

        async def until_stored(*bodies: bytes) -> None:
            with trio.fail_after(10):
                while [record.body for record in stored] != list(bodies):  # noqa: ASYNC110
                    await trio.sleep(0.01)

        with os.fdopen(writing, "wb", buffering=0) as pipe:
            nursery.start_soon(send)
            pipe.write(b"first\r\n\nsec")
            await until_stored(b"first")
            pipe.write(b"ond\nlast")
            await until_stored(b"first", b"second")
        await until_stored(b"first", b"second", b"last")
        with trio.fail_after(10):
            while not ended:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert ended[0].exit_code == 0, ended[0].output
        assert "3 messages acknowledged" in ended[0].output


async def test_a_line_that_no_broker_takes_is_refused_after_the_lines_before_it(
    tmp_path: Path,
) -> None:
    broker = ScriptedBroker()
    async with scripted(broker, queues=1) as names:
        (tmp_path / "lines").write_bytes(b"good\n" + bytes(5 * 1024 * 1024))
        with (tmp_path / "lines").open("rb") as lines:
            ended = await invoked(names, "send", "T", input=lines)
        assert ended.exit_code == 1
        assert "a line of more than 4194304 bytes" in ended.stderr
        assert [record.body for record in broker.store.queues["T", 0]] == [b"good"]


async def test_an_answer_that_is_lost_has_an_exit_code_of_its_own() -> None:
    broker = ScriptedBroker()
    broker.answers[RequestCode.SEND_MESSAGE_V2] = lambda _connection, _command: None
    async with scripted(broker) as names:
        ended = await invoked(names, "send", "T", "hello", "--timeout", "0.3")
        assert ended.exit_code == 3
        assert "may be stored" in ended.stderr


async def invoked(names: ScriptedNames, *arguments: str, input: BinaryIO | None = None) -> Result:
    command = [*arguments, "--nameserver", names.address]
    return await trio.to_thread.run_sync(partial(CliRunner().invoke, main, command, input=input))


def test_a_topic_with_an_illegal_name_is_refused_before_anything_is_sent() -> None:
    result = CliRunner().invoke(main, ["topic", "create", "no way", "--nameserver", NOBODY])
    assert result.exit_code == 1
    assert "letters, digits" in result.output


def test_the_status_of_a_directory_without_a_group_says_how_to_start_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "dledger-mq up" in result.output


def test_the_plan_is_plain_json_that_other_programs_can_read(tmp_path: Path) -> None:
    GroupDirectory(tmp_path).write(PLAN, {"nameserver": 5})
    content = json.loads((tmp_path / "group.json").read_text())
    assert content["groups"][0]["nodes"][1]["client"] == "127.0.0.1:4"
    assert content["pids"] == {"nameserver": 5}


def test_the_status_tells_of_messages_that_could_not_be_delivered() -> None:
    for nothing in ({}, {"dledgerUndelivered": "0"}, None):
        assert _undelivered(nothing) == ""
    assert _undelivered({"dledgerUndelivered": "3"}) == (
        "3 messages could not be delivered: topic rmq_sys_undelivered says which"
    )


def test_status_says_once_what_all_members_tell() -> None:
    told = "n1 holds the committed entries 4..9\ntwo processes run as n2"
    rows: list[dict[str, object]] = [
        {"figures": {"dledgerAlarms": told}},
        {"figures": {"dledgerAlarms": told.splitlines()[0]}},
        {"figures": {"dledgerAlarms": ""}},
        {"figures": {}},
    ]
    assert _alarms(rows, "dledgerAlarms") == told.splitlines()
    assert _alarms(rows, "dledgerWarnings") == []


USER = {"create": RequestCode.AUTH_CREATE_USER, "renew": RequestCode.AUTH_UPDATE_USER}


def list_users(broker: ScriptedBroker, *users: str) -> None:
    listed = json.dumps([{"username": user} for user in users]).encode()
    broker.answers[RequestCode.AUTH_LIST_USER] = lambda _, command: command.reply(body=listed)


@asynccontextmanager
async def broker_with_users(*users: str) -> AsyncIterator[tuple[ScriptedNames, ScriptedBroker]]:
    broker = ScriptedBroker()
    list_users(broker, *users)
    async with scripted(broker) as names:
        names.set_cluster(ClusterInfo({"a": BrokerData("C", "a", {0: broker.address})}))
        yield names, broker


@pytest.mark.parametrize("command", ["create", "renew"])
async def test_a_secret_that_a_broker_may_have_taken_stays_in_its_file(
    tmp_path: Path, command: str
) -> None:
    taken: list[str] = []

    def take(connection: Connection, request: Command) -> Command | None:
        taken.append(json.loads(request.body)["password"])
        if len(taken) == 1:
            list_users(broker, "reader")
            connection.close("its answer is lost")
            return None
        return request.reply(1, remark="there is a user reader: update it")

    path = tmp_path / "reader.toml"
    async with broker_with_users(*(["reader"] if command == "renew" else [])) as (names, broker):
        broker.answers[USER[command]] = take
        ended = await invoked(names, "user", command, "reader", str(path))
    assert (ended.exit_code, len(taken)) == (3, 2)
    assert "is kept" in ended.output
    assert f'secret_key = "{taken[0]}"' in path.read_text()


@pytest.mark.parametrize("command", ["create", "renew"])
async def test_what_brokers_would_refuse_leaves_no_file_with_a_secret(
    tmp_path: Path, command: str
) -> None:
    path = tmp_path / "reader.toml"
    call = ("user", command, "reader", str(path))
    async with broker_with_users(*(["reader"] if command == "create" else [])) as (names, broker):
        told = await invoked(names, *call)
        assert "there is " in told.output
        broker.answers[RequestCode.AUTH_LIST_USER] = lambda _, request: request.reply(
            16, remark="not permitted"
        )
        assert "not permitted" in (await invoked(names, *call)).output
        assert not broker.asked(USER[command])
    async with broker_with_users() as (names, broker):
        broker.answers[RequestCode.AUTH_CREATE_USER] = lambda _, request: request.reply(
            1, remark="access control is off"
        )
        told = await invoked(names, "user", "create", "reader", str(path))
        assert ("access control is off" in told.output, "is kept" in told.output) == (True, False)
    for nameserver in (NOBODY, "no address"):
        ended = CliRunner().invoke(main, [*call, "--nameserver", nameserver])
        assert (ended.exit_code, "is kept" in ended.output) == (1, False)
    assert not path.exists()


CHANGES = {
    "topic create T": RequestCode.UPDATE_AND_CREATE_TOPIC,
    "topic delete T": RequestCode.DELETE_TOPIC_IN_BROKER,
    "group create g": RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    "group clone g h": RequestCode.CLONE_GROUP_OFFSET,
    "group reset g T --to-first": RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    "group mode g T --pop": RequestCode.SET_MESSAGE_REQUEST_MODE,
    "settings fileReservedTime=48": RequestCode.UPDATE_BROKER_CONFIG,
    "user disable u": RequestCode.AUTH_UPDATE_USER,
    "user delete u": RequestCode.AUTH_DELETE_USER,
    "user allow u * All": RequestCode.AUTH_UPDATE_ACL,
    "user forget u *": RequestCode.AUTH_DELETE_ACL,
}


def changeable(names: ScriptedNames, broker: ScriptedBroker) -> None:
    """A cluster of one broker, whose name server lists its topic."""
    names.set_cluster(ClusterInfo({"a": BrokerData("C", "broker-a", {0: broker.address})}))
    names.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda _, command: (
        command.reply(body=b'{"topicList":["T"]}')
    )
    names.answers[RequestCode.DELETE_TOPIC_IN_NAMESRV] = lambda _, command: command.reply()


@pytest.mark.parametrize("typed", CHANGES)
async def test_a_change_whose_answer_is_lost_has_the_exit_code_of_the_unknown(
    typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger_mq.admin.leaders.ORDER_TIMEOUT_S", 0.0)
    broker = ScriptedBroker()

    def cut(connection: Connection, _command: Command) -> None:
        connection.close("the test cut it")

    broker.answers[CHANGES[typed]] = cut
    async with scripted(broker) as names:
        changeable(names, broker)
        ended = await invoked(names, *typed.split())
        assert (ended.exit_code, len(broker.asked(CHANGES[typed]))) == (3, 1), ended.output
        (line,) = ended.stderr.splitlines()
        assert "may have been made, look before you repeat it" in line


@pytest.mark.parametrize(
    ("code", "remark", "exit_code"),
    [(1, "it may or may not have been stored: x", 3), (1, "no such group", 1)],
)
async def test_a_change_that_a_broker_refuses_is_unknown_only_if_the_broker_says_so(
    code: int, remark: str, exit_code: int
) -> None:
    broker = ScriptedBroker()
    broker.answers[RequestCode.CLONE_GROUP_OFFSET] = lambda _, command: command.reply(
        code, remark=remark
    )
    async with scripted(broker) as names:
        changeable(names, broker)
        ended = await invoked(names, "group", "clone", "g", "h")
        assert ended.exit_code == exit_code
        assert remark in ended.stderr


async def test_a_change_stays_unknown_if_it_is_refused_when_it_is_sent_again() -> None:
    broker = ScriptedBroker()

    def lost_then_refused(connection: Connection, command: Command) -> Command | None:
        if len(broker.asked(RequestCode.AUTH_DELETE_USER)) > 1:
            return command.reply(1, remark="there is no such user")
        connection.close("the test cut it")
        return None

    broker.answers[RequestCode.AUTH_DELETE_USER] = lost_then_refused
    async with scripted(broker) as names:
        changeable(names, broker)
        ended = await invoked(names, "user", "delete", "u")
        assert ended.exit_code == 3
        assert "there is no such user" in ended.stderr


async def test_a_question_whose_answer_is_lost_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger_mq.admin.leaders.ORDER_TIMEOUT_S", 0.0)
    broker = ScriptedBroker()
    broker.answers[RequestCode.GET_CONSUME_STATS] = lambda connection, _: connection.close("cut")
    async with scripted(broker) as names:
        changeable(names, broker)
        assert (await invoked(names, "group", "progress", "g")).exit_code == 1


async def test_a_topic_that_is_made_and_not_routed_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger_mq.admin.admin.ROUTE_TIMEOUT_S", 0.1)
    broker = ScriptedBroker()
    broker.answers[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda _, command: command.reply()
    async with scripted(broker) as names:
        changeable(names, broker)
        ended = await invoked(names, "topic", "create", "New")
        assert ended.exit_code == 3
        assert "topic New is made" in ended.stderr


async def test_a_change_that_is_done_and_not_shown_is_not_said_to_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    broker = ScriptedBroker()
    for code in (*CHANGES.values(), RequestCode.GET_ALL_MESSAGE_REQUEST_MODE):
        broker.answers.setdefault(code, lambda _, command: command.reply())
    async with scripted(broker) as names:
        changeable(names, broker)
        ended = await invoked(names, "settings", "fileReservedTime=48")  # no settings are answered
        assert (ended.exit_code, "the settings are changed" in ended.stderr) == (3, True)
        monkeypatch.setattr("dledger.command_line.standard_streams.click.echo", full)
        for typed in ("topic create T", "topic delete T", "group create g", "user disable u"):
            result = await invoked(names, *typed.split())
            assert result.exit_code == 3
            assert "standard output cannot be written (no space" in result.stderr


async def test_the_status_of_a_directory_shows_its_nodes_without_a_name_server(
    tmp_path: Path,
) -> None:
    broker = ScriptedBroker()
    broker.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda _, command: command.reply(
        body=b'{"table":{"dledgerRole":"leader"}}'
    )
    async with scripted(broker):
        node = NodePlan("n0", NOBODY, broker.address)
        GroupDirectory(tmp_path).write(
            ClusterPlan("C", NOBODY, (GroupPlan("broker-a", (node,)),)), {}
        )
        for more in ((), ("--json",)):
            ended = await trio.to_thread.run_sync(
                CliRunner().invoke, main, ["status", "--dir", str(tmp_path), *more]
            )
            assert ended.exit_code == 1
            assert "check that one runs" in ended.stderr
            assert all(word in ended.stdout for word in ("n0", broker.address, "leader"))
    assert json.loads(ended.stdout)[0]["leads"]


HOSTILE = "\x1b[31mred\nsecond line"


async def test_words_of_servers_neither_begin_a_line_nor_move_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = ScriptedBroker()
    for code in (RequestCode.CLONE_GROUP_OFFSET, RequestCode.GET_BROKER_RUNTIME_INFO):
        broker.answers[code] = lambda _, command: command.reply(1, remark=HOSTILE)
    async with scripted(broker) as names:
        changeable(names, broker)
        names.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda _, command: (
            command.reply(body=json.dumps({"topicList": [HOSTILE]}).encode())
        )
        ended = await invoked(names, "group", "clone", "g", "h")
        assert ended.stderr.count("\n") == 1
        assert "\\x1b[31mred\\nsecond line" in ended.stderr
        monkeypatch.setattr(
            "dledger.command_line.rows.shown_on", lambda _output, text: escaped(text, kept="\n\t")
        )
        for typed in ("status", "topic list"):
            shown = (await invoked(names, *typed.split())).stdout
            assert ("\\x1b[31mred" in shown, "\x1b" in shown) == (True, False)


def test_a_line_of_the_log_of_a_command_stays_one_line() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "told: %s", (HOSTILE,), None)
    shown = _EscapedLines("%(levelname)s %(message)s").format(record)
    assert shown == "WARNING told: \\x1b[31mred\\nsecond line"
