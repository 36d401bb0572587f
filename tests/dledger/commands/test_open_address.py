"""Servers that other machines reach say what protects them, or that nothing does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.broker_command import main as broker_main
from dledger.command_line.open_address import is_only_here, problem_of_open_address
from nameserver.nameserver_command import main as nameserver_main
from remoting.net.access_file import new_access_file


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("broker.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_only_loopback_addresses_are_of_this_machine_alone(host: str, is_here: bool) -> None:
    assert is_only_here(host) is is_here
    assert (problem_of_open_address(host, is_insecure=False) is None) is is_here


def test_who_asks_for_it_is_warned_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert problem_of_open_address("10.0.0.1", is_insecure=True) is None
        assert problem_of_open_address("127.0.0.1", is_insecure=True) is None
    assert [one.getMessage().count("\n") for one in caplog.records] == [0]
    assert "--insecure: other machines reach 10.0.0.1" in caplog.text


def test_a_broker_and_a_name_server_do_not_start_unprotected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access = tmp_path / "access.toml"
    new_access_file(access, "admin")
    here = {"--listen": "127.0.0.1:10911", "--peers": "n0=127.0.0.1:20911"}
    for more, others in (
        (("--listen", "10.1.2.3:10911"), {}),
        (("--listen-group", "10.1.2.3:10912"), {}),
        # Users count at the ports of clients alone.
        (("--peers", "n0=10.1.2.3:20911"), {"--access": str(access)}),
        (("--listen-peers", "10.1.2.3:20911"), {"--access": str(access)}),
    ):
        options = {**here, **others, **dict([more])}
        words = [word for pair in options.items() for word in pair]
        given = ["--group", "g", "--node", "n0", *words]
        assert broker_main([*given, "--dir", str(tmp_path / "data")]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"broker: {more[0]}: other machines reach 10.1.2.3")
        assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()
    ended = CliRunner().invoke(nameserver_main, ["--listen", "10.1.2.3:9876"])
    assert (ended.exit_code, ended.output.count("\n")) == (1, 1)
    assert "--listen: other machines reach 10.1.2.3" in ended.output
