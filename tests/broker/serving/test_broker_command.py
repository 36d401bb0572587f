from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import click
import pytest
import trio

from broker import second_port
from broker.broker_command import main
from broker.config import BrokerConfig, read_nameservers
from broker.errors import SettingInvalid
from broker.server import SPARE_DESCRIPTORS
from dledger.free_ports import free_ports
from remoting.net.address import Address
from remoting.wire.errors import RemotingError
from tests.broker.one_broker import Client
from tests.remoting.net.certificates import Authority


@pytest.fixture(autouse=True)
def keep_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process leave its log to pytest."""
    monkeypatch.setattr("broker.broker_command.set_up_logging", lambda *_: None)


def config(**more: object) -> BrokerConfig:
    settings: dict[str, object] = {
        "group": "broker-a",
        "node_id": "n0",
        "peers": {"n0": "127.0.0.1:20911"},
        "listen": Address("127.0.0.1", 10911),
        "directory": Path("unused"),
    }
    return BrokerConfig(**{**settings, **more})  # type: ignore[arg-type]


def test_the_address_that_clients_are_told_is_the_advertised_one() -> None:
    assert config().address == Address("127.0.0.1", 10911)
    everywhere = config(listen=Address("0.0.0.0", 1), advertise=Address("10.0.0.7", 2))
    assert everywhere.address == Address("10.0.0.7", 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"listen": Address("localhost", 1)}, "--listen: localhost is no IPv4 address"),
        ({"listen": Address("::1", 1)}, "--listen: ::1 is no IPv4 address"),
        ({"listen": Address("0.0.0.0", 1)}, "--advertise: clients cannot connect to 0.0.0.0"),
        ({"nameservers": ("nonsense",)}, "--nameservers: 'nonsense' is not an address"),
        ({"cluster": "two words"}, "--cluster"),
    ],
)
def test_a_setting_that_cannot_be_is_named(more: dict[str, object], words: str) -> None:
    with pytest.raises(SettingInvalid, match=words):
        config(**more)


AT_SECOND_PORT: dict[str, dict[str, object]] = {
    "n0 in --peers": {"peers": {"n0": "10.0.0.1:10909"}},
    "n1 in --peers": {"peers": {"n0": "10.0.0.1:1", "n1": "10.0.0.1:10909"}},
    "--listen-peers": {"listen_peers": Address("0.0.0.0", 10909)},
    "--listen-group": {"listen_group": Address("10.0.0.1", 10909)},
    "--advertise": {"advertise": Address("10.0.0.1", 10909)},
    "--metrics": {"metrics": Address("127.0.0.1", 10909)},
    "10.0.0.1:10909 in --nameservers": {"nameservers": ("10.0.0.2:10909", "10.0.0.1:10909")},
}
ELSEWHERE: list[dict[str, object]] = [
    {"peers": {"n0": "10.0.0.1:10911", "n1": "10.0.0.2:10909"}},
    {"nameservers": ("10.0.0.2:10909",)},
    {"metrics": Address("127.0.0.1", 10913)},
]


def test_an_address_at_the_second_port_of_clients_is_named_with_a_port_that_is_free() -> None:
    known = {setting.split()[-1].removeprefix("--").replace("-", "_") for setting in AT_SECOND_PORT}
    addresses = {
        field.name
        for field in fields(BrokerConfig)
        if "Address" in str(field.type) or field.name in ("peers", "nameservers")
    }
    assert addresses - {"listen"} == known

    listen = Address("10.0.0.1", 10911)
    for setting, more in AT_SECOND_PORT.items():
        given = {"peers": {"n0": "10.0.0.1:20911"}, "listen": listen, **more}
        told = second_port.advice(config(**given))
        assert told is not None, setting
        assert f"port 10909, which is that of {setting}, and fail" in told
        asked = re.search(r"give --listen port (\d+)", told)
        assert asked is not None
        moved = {**given, "listen": Address("10.0.0.1", int(asked[1]))}
        assert second_port.advice(config(**moved)) is None, told
    for more in ELSEWHERE:
        given = {"peers": {"n0": "10.0.0.1:20911"}, "listen": listen, **more}
        assert second_port.advice(config(**given)) is None, more


def test_a_program_at_the_second_port_is_told_and_the_broker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.broker_command._run", nothing)
    (listen,) = free_ports(1, beside=second_port.SECOND_PORT)
    (log,) = free_ports(1)
    assert main(arguments(tmp_path, listen, log)) == 0
    assert not caplog.text
    with socket.create_server(("127.0.0.1", listen + second_port.SECOND_PORT)):
        assert main(arguments(tmp_path, listen, log)) == 0
    assert f"another program listens on 127.0.0.1:{listen - 2}" in caplog.text


async def nothing(_config: BrokerConfig, _ctx: click.Context) -> None:
    pass


def test_name_servers_are_separated_by_semicolons() -> None:
    assert read_nameservers(" a:1; b:2;;") == ("a:1", "b:2")


def arguments(directory: Path, listen: int, log: int) -> list[str]:
    return [
        "--group=broker-a",
        "--node=n0",
        f"--peers=n0=127.0.0.1:{log}",
        f"--listen=127.0.0.1:{listen}",
        f"--dir={directory}",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("--node=n9", "--node: n9 is not one of"),
        ("--peers=n0", "--peers: 'n0' is not id=host:port"),
        ("--listen=here", "--listen: 'here' is not an address"),
        ("--listen=::1:10911", "--listen: '::1:10911' is not an address"),
        ("--listen-peers=here", "--listen-peers: 'here' is not an address"),
    ],
)
def test_a_wrong_value_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, words: str
) -> None:
    assert main([*arguments(tmp_path, 1, 2), change]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("--nonsense", "arguments: No such option"),
        ("--keep-hours=many", "arguments: Invalid value for '--keep-hours': 'many' is not"),
        ("more", "arguments: Got unexpected extra argument (more)"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, words: str
) -> None:
    assert main([*arguments(tmp_path, 1, 2), change]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.endswith("; see python -m broker --help\n")
    assert captured.err.count("\n") == 1


def test_the_help_names_every_option_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    page = (Path(__file__).parents[3] / "docs" / "broker.md").read_text(encoding="utf-8")
    table = page.partition("| argument |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(--[a-z-]+)`", table))
    assert {"--group", "--no-auto-create-topics", "--listen-peers"} <= named
    assert named <= set(re.findall(r"--[a-z-]+", shown))


@pytest.mark.parametrize("which", ["listen", "log"])
def test_a_port_in_use_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [other] = free_ports(1)
        listen, log = (port, other) if which == "listen" else (other, port)
        assert main(arguments(tmp_path, listen, log)) == 1
    error = capsys.readouterr().err
    assert f"{port}" in error
    assert "in use" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("end", [pytest.param("SIGTERM", marks=pytest.mark.real_starts), "input"])
def test_a_broker_says_what_it_does_and_ends_cleanly(tmp_path: Path, end: str) -> None:
    port, log_port = free_ports(2)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "broker", "--exit-with-stdin"),
            *arguments(tmp_path, port, log_port),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdin is not None
    lines = [process.stdout.readline()]
    while "leader of term 1\n" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], process.stderr.read()
    assert lines[0] == f"broker n0 listening on 127.0.0.1:{port}\n"
    if end == "SIGTERM":
        process.terminate()
    else:
        process.stdin.close()
    assert process.wait(10) == 0
    # A program of another test may listen at the port of the VIP channel.
    assert [line for line in process.stderr if "VIP channel" not in line] == []
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_a_broker_tells_of_a_hangup_and_goes_on(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        assert process.stderr is not None
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            while "SIGHUP: there is no file to read again" not in (
                line := process.stderr.readline()
            ):
                assert line
        process.terminate()
        assert process.wait(10) == 0


def test_a_broker_reads_certificates_again_at_a_hangup(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    files = authority.sign("n0", "127.0.0.1")
    with running(
        tmp_path / "n0",
        *("--tls-cert", str(files.certificate), "--tls-key", str(files.key)),
        *("--tls-ca", str(authority.path), "--tls-mode", "enforcing"),
    ) as process:
        for content, told in (
            (files.key.read_bytes(), "certificates were read again"),
            (b"half a file", "the old certificates stay in use: tls.certificate, tls.key"),
        ):
            files.key.write_bytes(content)
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            while told not in (line := process.stderr.readline()):
                assert line
            assert process.poll() is None


@contextmanager
def running(directory: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A broker that listens, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "broker", *arguments(directory, *free_ports(2)), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            assert "listening" in process.stdout.readline()
            yield process
        finally:
            process.kill()
            process.wait(10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tls-mode", "enforcing"), "--tls-mode: enforcing needs --tls-cert and --tls-key"),
        (("--tls-cert", "n0.pem"), "--tls-key: is missing"),
        (("--tls-cert", "n0.pem", "--tls-key", "k.pem"), "--tls-ca: is missing"),
        (
            ("--tls-cert", "n0.pem", "--tls-key", "k.pem", "--tls-ca", "a.pem"),
            "tls.authorities: a.pem cannot be used",
        ),
        (("--tls-mode", "lax"), "Invalid value for '--tls-mode': 'lax' is not one of"),
    ],
)
def test_certificates_that_cannot_be_used_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert main([*arguments(tmp_path, *free_ports(2)), *options]) in (1, 2)
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def started(directory: Path, files: int, port: int, log_port: int) -> subprocess.Popen[str]:
    """A broker that may open so many files."""
    command = shlex.join([sys.executable, "-m", "broker", "--exit-with-stdin"])
    command += " " + shlex.join(arguments(directory, port, log_port))
    return subprocess.Popen(
        ["/bin/sh", "-c", f"ulimit -n {files}; exec {command}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_too_few_files_are_one_line_before_the_log_is_opened(tmp_path: Path) -> None:
    port, log_port = free_ports(2)
    process = started(tmp_path / "data", 300, port, log_port)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "may open 300 files" in error
    assert "ulimit -n" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "data").exists()


async def test_more_clients_than_files_leave_the_broker_serving_those_it_has(
    tmp_path: Path,
) -> None:
    port, log_port = free_ports(2)
    process = started(tmp_path, SPARE_DESCRIPTORS + 40, port, log_port)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while "leader of term 1\n" not in (line := process.stdout.readline()):
            assert line
        async with trio.open_nursery() as nursery:
            client = Client(nursery, f"127.0.0.1:{port}")
            assert (await client.send("first", b"x")).code == 0
            flood = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
            for number in range(20):  # each topic opens files of its own
                assert (await client.send(f"topic-{number}", b"x")).code == 0
            for one in flood:
                one.close()
            with trio.fail_after(20):
                while True:  # until the server has noticed that they are gone
                    try:
                        late = Client(nursery, f"127.0.0.1:{port}")
                        assert (await late.send("last", b"x")).code == 0
                        break
                    except RemotingError:
                        await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    finally:
        process.stdin.close()
        assert process.wait(30) == 0
        process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()
