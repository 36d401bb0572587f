"""A broker's settings: flags, the environment, a file and defaults; read again at SIGHUP."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from broker.broker_command import _CHANGEABLE, broker, main
from broker.config import DEFAULT_SNAPSHOTS, BrokerConfig
from broker.config_of_options import checked_config
from dledger.command_line.node_options import NODE_OPTIONS
from dledger.command_line.option_sources import options_of
from dledger.free_ports import free_ports
from dledger_mq.__main__ import main as dledger_mq
from nameserver.nameserver_command import main as nameserver
from proxy.proxy_command import main as proxy
from remoting.net.access_file import new_access_file
from remoting.net.address import Address
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.frame import decode_frame, encode_command
from remoting.wire.signature import Credentials

GOOD = """
[all]
group = "orders"
nameservers = "127.0.0.1:9876"
log-format = "json"

[all.peers]
n0 = "127.0.0.1:1"
n1 = "127.0.0.1:2"

[broker]
node = "n0"
dir = "data"
listen = "127.0.0.1:10911"
keep_hours = 12

[nameserver]
listen = "127.0.0.1:9876"
"""


def written(folder: Path, text: str) -> str:
    path = folder / "broker.toml"
    path.write_text(text)
    return str(path)


def test_flags_go_before_the_environment_and_that_before_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, GOOD)
    monkeypatch.setenv("DLEDGER_BROKER_CONFIG", path)
    monkeypatch.setenv("DLEDGER_BROKER_ELECTION_TIMEOUT_MS", "800")
    monkeypatch.setenv("DLEDGER_BROKER_NODE", "n1")
    monkeypatch.setenv("DLEDGER_CLUSTER", "here")
    assert main(["--print-config", "--node", "n0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'node = "n0"  # --node' in lines
    assert "election-timeout-ms = 800  # DLEDGER_BROKER_ELECTION_TIMEOUT_MS" in lines
    assert 'cluster = "here"  # DLEDGER_CLUSTER' in lines
    assert f"keep-hours = 12  # {path}" in lines
    assert f'log-format = "json"  # {path}' in lines
    assert "snapshot-every-entries = 500000  # default" in lines
    assert "# prefer is not set" in lines
    assert not (tmp_path / "data").exists()
    # What is printed can be used as a file, and then a broker starts.
    monkeypatch.delenv("DLEDGER_BROKER_NODE")
    printed = written(tmp_path, "\n".join(lines))
    assert "print-config" not in tomllib.loads("\n".join(lines))["broker"]
    assert main(["--config", printed, "--print-config"]) == 0
    again = tomllib.loads(capsys.readouterr().out)["broker"]
    assert again == tomllib.loads("\n".join(lines))["broker"]
    # The name server reads over the table of the broker, and the other way round.
    with pytest.raises(SystemExit) as ended:
        nameserver(["--config", written(tmp_path, GOOD), "--print-config"])
    assert ended.value.code == 0
    assert f'listen = "127.0.0.1:9876"  # {path}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[broker]\nkeep-hour = 5", "[broker] keep-hour: no such key; expected one of access"),
        ("[serve]\nnode = 'n0'", ", serve: no such table; expected one of [all, broker, name"),
        ("broker = 5", "expected a table [broker]"),
        ("nameserver = 5", "expected a table [nameserver]"),
        ("[all]\nnode = 'n0'", "[all] node: no such key; expected one of group, cluster"),
        ("[broker]\nkeep-hours = '5'", '[broker] keep-hours: "5" instead of a whole number'),
        ("[broker]\nauto-create-topics = 1", "1 instead of true or false"),
        ("[broker]\nlog-format = 'xml'", "expected one of text, json"),
        ("[all]\nlog-level = 7", "[all] log-level: 7 instead of one of debug, info"),
        ("[broker]\npass-over-entry = 3", "3 instead of a list of whole numbers"),
        ("[broker]\npass-over-entry = [-3]", "[broker] pass-over-entry: -3 is not in the range"),
        ("[broker", "this is not TOML"),
        ("\0", "this is not TOML"),
        ("a = " + "[" * 20_000, "this is not TOML"),
        ("a = " + "9" * 20_000, "this is not TOML"),
        ("[broker]\nkeep-hours = 1979-05-27", '"1979-05-27" instead of a whole number'),
        (GOOD.replace("keep_hours = 12", "keep-hours = 0"), "[broker] keep-hours: 0: give 1"),
        (GOOD.replace('"n0"\ndir', '"n9"\ndir'), "[broker] node: n9 is not one of ['n0', 'n1']"),
        (GOOD.replace("10911", "x"), "[broker] listen: '127.0.0.1:x' is not an address"),
        (GOOD.replace('"127.0.0.1:2"', '"nowhere"'), "[broker] peers: 'nowhere' is not host:port"),
        (GOOD.replace("keep_hours", "election-timeout-ms"), "[broker] election-timeout-ms: must"),
        (GOOD.replace("keep_hours = 12", "snapshot-kept = 0"), "[broker] snapshot-kept: 0 is not"),
        (GOOD.replace("keep_hours = 12", "prefer = 'n7'"), "[broker] prefer: n7 is not one of"),
        (GOOD.replace("keep_hours = 12", "relays-from = 'x'"), "[broker] relays-from: 'x' does"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_file_table_key_and_what_is_expected(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    assert main(["--config", path, "--print-config"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.startswith(f"broker: {path}")
    assert captured.err.count("\n") == 1


def test_a_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere.toml")
    assert main(["--config", missing, "--print-config"]) == 1
    assert capsys.readouterr().err == f"broker: {missing}: cannot be read: No such file or dir" + (
        "ectory\n"
    )
    with pytest.raises(SystemExit) as ended:
        nameserver(["--config", missing, "--print-config"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"nameserver: {missing}: cannot be read")
    assert main(["--config", str(tmp_path), "--print-config"]) == 2
    assert "is a directory" in capsys.readouterr().err
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[broker]\ngroup = '\xe4'")
    assert main(["--config", str(latin), "--print-config"]) == 1
    assert "this is not TOML" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[nameserver]\nlisten = 'here'", "[nameserver] listen: 'here' is not an address"),
        ("[nameserver]\nmax-connections = 0", "[nameserver] max-connections: 0 is not in the"),
        ("[nameserver]\nchanges-from = 'x'", "[nameserver] changes-from: 'x' does not appear"),
        ("[nameserver]\nnode = 'n0'", "[nameserver] node: no such key; expected one of access"),
    ],
)
def test_a_mistake_in_the_table_of_a_name_server_is_one_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SystemExit) as ended:
        nameserver(["--config", path, "--print-config"])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"nameserver: {path}")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("DLEDGER_BROKER_NODES", "; did you mean DLEDGER_BROKER_NODE?"),
        ("DLEDGER_BROKER_TLS_CERTT", ""),
        ("DLEDGER_BROKER_PORT", ""),
        ("DLEDGER_BROKER_X", ""),
    ],
)
def test_a_variable_that_is_no_option_is_one_line(
    variable: str,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, "10911")
    assert main(["--print-config"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"broker: {variable}: no such variable, see --help")
    assert line.endswith(expected)
    assert main(["--help"]) == 0


def test_name_servers_and_proxies_refuse_variables_that_are_no_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for server, name in ((nameserver, "NAMESERVER"), (proxy, "PROXY")):
        monkeypatch.setenv(f"DLEDGER_{name}_LISTENS", "127.0.0.1:1")
        refused = CliRunner().invoke(server, ["--print-config"])
        assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
        assert f"did you mean DLEDGER_{name}_LISTEN?" in refused.output


def test_variables_of_other_programs_and_of_kubernetes_services_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes makes them for a service that is called dledger-broker, or dledger-broker-n0."""
    for name, value in (
        ("DLEDGER_BROKER_SERVICE_HOST", "10.0.0.1"),
        ("DLEDGER_BROKER_SERVICE_PORT", "10911"),
        ("DLEDGER_BROKER_SERVICE_PORT_CLIENTS", "10911"),
        ("DLEDGER_BROKER_PORT", "tcp://10.0.0.1:10911"),
        ("DLEDGER_BROKER_PORT_10911_TCP", "tcp://10.0.0.1:10911"),
        ("DLEDGER_BROKER_PORT_10911_TCP_ADDR", "10.0.0.1"),
        ("DLEDGER_BROKER_N0_SERVICE_HOST", "10.0.0.2"),
        ("DLEDGER_NAMESERVER_LISTENS", "of another program"),
        ("DLEDGER_OTHER", "of nobody"),
        ("DLEDGER_BROKER_CONFIG", written(tmp_path, GOOD)),
    ):
        monkeypatch.setenv(name, value)
    assert main(["--print-config"]) == 0
    assert "[broker]" in capsys.readouterr().out


def test_the_defaults_of_the_options_are_those_of_a_broker() -> None:
    arguments = ["--group=g", "--node=n0", "--peers=n0=127.0.0.1:1", "--listen=127.0.0.1:2"]
    ctx = broker.make_context("broker", [*arguments, "--dir=data"])
    config = checked_config(ctx)
    assert config.snapshots == config.node.snapshots == DEFAULT_SNAPSHOTS
    (default,) = [one.default for one in NODE_OPTIONS if one.name == "election_timeout_ms"]
    assert config.election_timeout_ms == config.node.election_timeout_ms == default
    assert (
        BrokerConfig(
            group="g",
            node_id="n0",
            peers={"n0": "127.0.0.1:1"},
            listen=Address("127.0.0.1", 2),
            directory=Path("data"),
        )
        == config
    )
    assert set(_CHANGEABLE) <= options_of(broker).keys()


def test_both_servers_may_be_started_by_the_command_of_the_broker() -> None:
    for name in ("broker", "nameserver"):
        command = dledger_mq.commands[name]
        assert isinstance(command, click.Command)
        assert command.context_settings["ignore_unknown_options"]


class Process:
    """A server, its standard output and its log, as they come."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.files = {"out": self.process.stdout, "log": self.process.stderr}
        self.texts = {"out": b"", "log": b""}

    def until(self, which: str, is_there: Callable[[str], bool]) -> str:
        """Read until a text is there; return it."""
        ends_at = time.monotonic() + 30
        while not is_there(found := self.texts[which].decode()):
            ready = select.select([self.files[which]], [], [], ends_at - time.monotonic())[0]
            assert ready, found
            piece = os.read(self.files[which].fileno(), 65_536)
            assert piece, found
            self.texts[which] += piece
        return found

    def until_has(self, which: str, text: str) -> str:
        return self.until(which, lambda found: text in found)

    def hang_up(self) -> None:
        self.texts["log"] = b""
        self.process.send_signal(signal.SIGHUP)


@contextmanager
def running(*command: str, **environment: str) -> Iterator[Process]:
    process = Process(*command, **environment)
    try:
        yield process
        process.process.terminate()
        assert process.process.wait(20) == 0
    finally:
        process.process.kill()
        process.process.wait()
        for file in process.files.values():
            file.close()


@contextmanager
def notified(path: str) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(path)
        heard.settimeout(30)
        yield heard


def until_told(heard: socket.socket, message: str) -> list[str]:
    """All that is told up to a message that begins so."""
    told = [""]
    while not told[-1].startswith(message):
        told.append(heard.recv(4096).decode())
    return told[1:]


def test_a_running_broker_reads_its_file_again(tmp_path: Path) -> None:
    port, log_port = free_ports(2)
    settings: dict[str, Any] = {
        "group": "orders",
        "node": "n0",
        "peers": f"n0=127.0.0.1:{log_port}",
        "listen": f"127.0.0.1:{port}",
        "dir": str(tmp_path / "data"),
        "log-format": "json",
    }

    def write(**more: Any) -> str:
        changed = {**settings, **{key.replace("_", "-"): value for key, value in more.items()}}
        lines = [f"{key} = {json.dumps(value)}" for key, value in changed.items()]
        return written(tmp_path, "[broker]\n" + "\n".join(lines))

    notify, pings = str(tmp_path / "notify"), {"WATCHDOG_USEC": "200000"}
    with (
        notified(notify) as heard,
        running("broker", "--config", write(), NOTIFY_SOCKET=notify, **pings) as process,
    ):
        said = process.until("out", lambda text: '"ready": true' in text and text[-1] == "\n")
        events = [json.loads(line) for line in said.splitlines()]
        assert events[0]["event"] == "listening"
        assert events[0]["message"] == f"broker n0 listening on 127.0.0.1:{port}"
        named = {"event": "role", "role": "leader", "group": "orders", "node": "n0", "term": 1}
        assert named.items() <= next(one for one in events if one.get("ready")).items()
        assert all(one["ts"] for one in events)
        assert {"STATUS=the log is being read", "WATCHDOG=1"} <= {*until_told(heard, "READY=1")}
        until_told(heard, "WATCHDOG=1")

        write(log_level="info", keep_hours=5, prefer="n0", max_connections=7)
        process.hang_up()
        # On a busy machine there are other lines between these.
        told = process.until_has("log", '"settings": ["max-connections"]')
        settings_lines = [one for one in map(json.loads, told.splitlines()) if "settings" in one]
        assert [one["message"] for one in settings_lines] == [
            "changed: prefer = n0, keep-hours = 5, log-level = info",
            "not changed until the broker is started again: max-connections",
        ]
        assert {one["event"] for one in settings_lines} == {"settings"}
        until_told(heard, "RELOADING=1")
        until_told(heard, "READY=1")

        write(log_level="info", log_format="text", keep_hours=0)
        process.hang_up()
        told = process.until_has("log", "[broker] keep-hours: 0: give 1 or more")
        assert json.loads(told.splitlines()[-1])["message"].startswith("nothing was changed: ")

        write(log_level="info", log_format="text", keep_hours=6)
        process.hang_up()
        line = "Z n0 INFO changed: prefer = None, keep-hours = 6, log-format = text\n"
        process.until_has("log", line)
        process.process.terminate()
        until_told(heard, "STOPPING=1")
        assert process.process.wait(20) == 0


def test_a_running_name_server_reads_its_file_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    text = f"[nameserver]\nlisten = '127.0.0.1:{port}'\n"
    environment = {"DLEDGER_NAMESERVER_CONFIG": written(tmp_path, text)}
    environment["NOTIFY_SOCKET"] = str(tmp_path / "nobody")
    with running("nameserver", **environment) as process:
        process.until_has("out", f"nameserver listening on 127.0.0.1:{port}\n")
        assert "cannot be told: [Errno 2]" in process.until_has("log", "\n")
        written(tmp_path, text + "log-format = 'json'\nmax-connections = 7\n")
        process.hang_up()
        told = process.until_has("log", "max-connections").splitlines()
        line = json.loads(told[0])
        assert (line["node"], line["message"]) == ("nameserver", "changed: log-format = json")
        assert "group" not in line
        assert "not changed until the name server is started again" in told[1]
        written(tmp_path, text + "listen = 7")
        process.hang_up()
        assert "nothing was changed: " in process.until_has("log", "\n")


def answer(connection: socket.socket, code: int, credentials: Credentials | None) -> Command:
    request = Command(code)
    if credentials is not None:
        credentials.sign(request)
    connection.sendall(encode_command(request))
    prefix = connection.recv(4, socket.MSG_WAITALL)
    size = int.from_bytes(prefix, "big")
    return decode_frame(prefix + connection.recv(size, socket.MSG_WAITALL))


def until_registered(nameserver: Address) -> None:
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        with socket.create_connection(nameserver) as connection:
            reply = answer(connection, RequestCode.GET_BROKER_CLUSTER_INFO, None)
        if b"brokers-of-a" in reply.body:
            return
        time.sleep(0.05)
    raise AssertionError(reply)


def test_servers_read_the_file_of_access_control_again(tmp_path: Path) -> None:
    """The administrator gets another secret, which counts on connections that are open. Brokers
    register by it.
    """
    access = tmp_path / "access.toml"
    first = new_access_file(access, "admin")
    second = Credentials("admin", "another-secret")
    whole = access.read_text(encoding="ascii")
    names, port, log_port = free_ports(3)
    options = ("--log-level", "warning", "--access", str(access))
    broker = (
        *("broker", "--group", "brokers-of-a", "--node", "n0", "--dir", str(tmp_path / "data")),
        *("--peers", f"n0=127.0.0.1:{log_port}", "--listen", f"127.0.0.1:{port}"),
        *("--nameservers", f"127.0.0.1:{names}", *options),
    )
    nameserver = ("nameserver", "--listen", f"127.0.0.1:{names}", *options)
    at = Address("127.0.0.1", names)
    with running(*broker) as other:
        with running(*nameserver) as one:
            one.until_has("out", "listening")
            until_registered(at)
            with socket.create_connection(("127.0.0.1", port)) as connection:

                def codes() -> list[int]:
                    code = RequestCode.AUTH_LIST_USER
                    return [answer(connection, code, by).code for by in (first.admin, second)]

                assert codes() == [0, 16]
                seal, secret = first.seal_key.hex(), first.admin.secret_key
                for text, told, expected in (
                    (whole.replace(seal, 64 * "a"), "stays in force", [0, 16]),
                    ("half a file", "stays in force", [0, 16]),
                    (whole.replace(secret, second.secret_key), "was read again", [16, 0]),
                ):
                    access.write_text(text, encoding="ascii")
                    for process in (one, other):
                        process.hang_up()
                        process.until_has("log", told)
                    assert codes() == expected
        with running(*nameserver) as one:  # it knows no broker, and the new secret alone
            one.until_has("out", "listening")
            until_registered(at)
